"""Every blob store that needs no real server keeps the contract of blob stores."""

from __future__ import annotations

import importlib
import itertools
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import S3Store

from otel_logger_exporters import object_client
from otel_logger_exporters.blob_store import open_blob_store
from otel_logger_exporters.file_store import FileBlobStore
from tests.blob_contract import SMALL, BlobStoreContract, desk, size
from tests.object_place import ObjectPlace

__all__ = ["desk", "size"]

NUMBERS = itertools.count()
"""Of buckets and memories, which live longer than a test."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Return the URL of what speaks the protocol of S3."""
    # It loads for a second, which only those have to pay who run these tests.
    server = importlib.import_module("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class FolderPlace:
    """A store in a folder of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.prefix = "deep/store/"
        self.store = FileBlobStore(folder / "deep" / "store")

    def all_keys(self) -> set[str]:
        """All files."""
        return {path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*") if path.is_file()}

    def read(self, key: str) -> bytes:
        """A file's bytes."""
        return (self._folder / key).read_bytes()

    def overwrite(self, key: str, data: bytes) -> None:
        """Write a file."""
        (self._folder / key).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / key).write_bytes(data)

    def media_type(self, key: str) -> str | None:
        """None: files have none."""
        return None


class TestFolder(BlobStoreContract):
    """A folder."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> FolderPlace:
        """Return an empty one."""
        return FolderPlace(tmp_path / "place")


class TestMemory(BlobStoreContract):
    """Memory."""

    @pytest.fixture
    def place(self) -> ObjectPlace:
        """Return one of a name of its own."""
        name = f"place-{next(NUMBERS)}"
        store = open_blob_store(f"memory://{name}", {})
        assert store.meta("nothing") is None  # which makes it
        return ObjectPlace(store, object_client._memories[name], "")


class TestS3Mimic(BlobStoreContract):
    """What speaks the protocol of S3 and keeps objects in this process."""

    @pytest.fixture
    def size(self) -> int:
        """Return the small size: with large files, which take it long, `tests/integration` tests a real server."""
        return SMALL

    @pytest.fixture
    def place(self, endpoint: str) -> ObjectPlace:
        """Return an empty bucket."""
        bucket = f"bucket-{next(NUMBERS)}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=10).close()
        environ = {
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
        }
        store = open_blob_store(f"s3://{bucket}/deep/store", environ)
        behind = S3Store(
            bucket,
            endpoint=endpoint,
            region="us-east-1",
            access_key_id="any",
            secret_access_key="any",
            client_options={"allow_http": True},
        )
        return ObjectPlace(store, behind, "deep/store/")
