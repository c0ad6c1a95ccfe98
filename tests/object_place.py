"""A blob store in a bucket, and the bucket as somebody sees who does not go through the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_logger_exporters.blob_store import BlobStore

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectPlace"]


class ObjectPlace:
    """A store under test whose keys begin with `prefix`, and its bucket."""

    def __init__(self, store: BlobStore, bucket: ObjectStore, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self._bucket = bucket

    def all_keys(self) -> set[str]:
        """The keys of all objects of the bucket."""
        return {found["path"] for page in self._bucket.list() for found in page}

    def read(self, key: str) -> bytes:
        """An object's bytes."""
        return bytes(self._bucket.get(key).bytes())

    def overwrite(self, key: str, data: bytes) -> None:
        """Put other bytes into an object, which keeps its metadata, or a new object without any."""
        attributes = self._bucket.get(key).attributes if key in self.all_keys() else None
        self._bucket.put(key, data, attributes=attributes)

    def media_type(self, key: str) -> str | None:
        """What the object's header says."""
        return self._bucket.get(key).attributes["Content-Type"]
