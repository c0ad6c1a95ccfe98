"""Where files, images and tables of runs are kept: the interface of a store, and the one that a URL names."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from otel_logger_exporters.blob_meta import BlobMeta
from otel_logger_exporters.blob_url import parse_blob_store
from otel_logger_exporters.file_store import FileBlobStore
from otel_logger_exporters.object_store import ObjectBlobStore

__all__ = ["BlobStore", "MayReplace", "open_blob_store"]

MayReplace: TypeAlias = Callable[[BlobMeta], bool]
"""Decides whether a stored file may be replaced, by what is known of it."""


class BlobStore(Protocol):
    """A place for blobs, in which names are mapped by `blob_name`; thread-safe.

    Methods raise OSError when the place fails: BlobUnavailableError where trying again may help, BlobForbiddenError
    where somebody has to mend the configuration or the rights first, another OSError where nothing will.
    """

    @property
    def uri(self) -> str:
        """The store itself, as users write it, without secrets."""
        ...

    def put_file(
        self,
        name: str,
        source_path: str | Path,
        meta: BlobMeta,
        *,
        may_replace: MayReplace | None = None,
        move: bool = False,
    ) -> str:
        """Store a local file under its name and return its URI.

        What is stored under the name is replaced if `may_replace` says so, or if there is no `may_replace`;
        FileExistsError otherwise. A file that is there with the same `meta.upload` is this very one, stored before:
        nothing is transferred and its URI returned. `may_replace` may be asked several times, about what others store
        meanwhile, and about a file whose upload another has begun and not ended (`object_claims`). With `move` the
        source is gone when this returns, and untouched when it raises. BlobCorruptError when the source is not what
        `meta` says, by its size and, where the store reads it anyway, by its digest.
        """
        ...

    def put_object(self, source_path: str | Path, meta: BlobMeta, extension: str, *, move: bool = False) -> str:
        """Store a local file as `sha256/<2 hex>/<hex>.<extension>`, the same bytes once, and return its URI."""
        ...

    def put_conflict(self, name: str, source_path: str | Path, meta: BlobMeta, *, move: bool = False) -> str:
        """Keep what could not be stored under its name as `conflicts/<name>/<meta.upload>`, and return its URI."""
        ...

    def put_new(self, name: str, source_path: str | Path, meta: BlobMeta) -> bool:
        """Store a small local file by the store's own condition that nothing is there; False when something is.

        For trials of that condition (`blob_probe`): nothing is looked for before, nor are claims.
        """
        ...

    def remove(self, name: str) -> None:
        """Delete a stored file and what is known of it, if there is one."""
        ...

    def meta(self, name: str) -> BlobMeta | None:
        """What is known of a stored file, without reading it; None when there is no such file.

        Of a file that somebody else put there nothing is known but its size: `sha256` is empty, `run_id` None.
        """
        ...

    def copy_to(
        self, name: str, destination_path: str | Path, progress: Callable[[int], None] | None = None
    ) -> BlobMeta:
        """Copy a stored file out, checked; FileNotFoundError when there is none, BlobCorruptError when it is wrong.

        The destination's folder is made; the file appears there whole or not at all, replacing one of its name.
        """
        ...


def open_blob_store(url: str, environ: Mapping[str, str]) -> BlobStore:
    """The blob store that a URL names, with credentials from `environ`; nothing is looked for before the first use.

    ConfigurationError when the URL names none, or when the variables of its provider contradict each other.
    """
    parsed = parse_blob_store(url)
    return FileBlobStore(parsed.place) if parsed.scheme == "file" else ObjectBlobStore(parsed, environ)
