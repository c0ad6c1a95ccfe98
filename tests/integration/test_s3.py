"""A blob store on a real S3 server keeps the contract of blob stores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import S3Store
from s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server

from otel_logger_exporters.blob_store import open_blob_store
from tests.blob_contract import BlobStoreContract, desk, size
from tests.object_place import ObjectPlace

__all__ = ["desk", "size"]

pytestmark = [pytest.mark.s3, pytest.mark.timeout(60)]

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(s3_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return a server for all tests."""
    with S3Server(tmp_path_factory.mktemp("s3"), s3_binary) as running:
        yield running


class TestS3(BlobStoreContract):
    """versitygw, over a folder."""

    @pytest.fixture
    def place(self, server: S3Server) -> ObjectPlace:
        """Return an empty bucket."""
        bucket = f"bucket-{next(NUMBERS)}"
        # A folder in the server's folder is a bucket.
        (server.bucket.parent / bucket).mkdir()
        store = open_blob_store(f"s3://{bucket}/deep/store", server.environ)
        behind = S3Store(
            bucket,
            endpoint=server.environ["AWS_ENDPOINT_URL"],
            region=REGION,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
        )
        return ObjectPlace(store, behind, "deep/store/")
