"""Every blob store that needs no real server keeps the contract of blob stores."""

from __future__ import annotations

import itertools
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import S3Store

from otel_logger_exporters import object_client
from otel_logger_exporters.blob_store import open_blob_store
from otel_logger_exporters.file_store import FileBlobStore
from tests.blob_contract import SMALL, BlobStoreContract, desk, size
from tests.object_place import ObjectPlace

__all__ = ["desk", "size"]

pytestmark = pytest.mark.timeout(60)

NUMBERS = itertools.count()
"""Of buckets and memories, which live longer than a test."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Return the URL of what speaks the protocol of S3."""
    # It loads for a second, which only those have to pay who run these tests.
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    mimic = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def answer(environ: Any, start_response: Any) -> Any:
        # It looks for an object and stores one in two steps, where real S3 is exact.
        with one_at_a_time:
            return mimic(environ, start_response)

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()
    server.server_close()


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
