"""Trying a blob store: write, read, conditional create, delete, with a file of its own that is gone afterwards."""

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from otel_logger_exporters.blob_meta import BlobCorruptError, BlobMeta

if TYPE_CHECKING:
    from otel_logger_exporters.blob_store import BlobStore

__all__ = ["CREATE", "DELETE", "READ", "WRITE", "ProbeStep", "probe"]

WRITE, READ, CREATE, DELETE = "write", "read", "conditional create", "delete"

_CONTENT = b"otel_logger tries whether it can store files here, and deletes this one.\n"


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """What was tried: WRITE, READ, CREATE or DELETE, and why it failed, None where it did not."""

    what: str
    error: OSError | None


def probe(store: "BlobStore") -> Iterator[ProbeStep]:
    """Try a store, and yield each step as it is done; never raises, and leaves no file behind where it may delete.

    After a failed WRITE only DELETE is tried. A failed CREATE means that the store replaces a file where it was told
    to store a new one: of two uploads of one name at the same moment both think that they have won.
    """
    name = f".otel-logger-probe-{os.urandom(8).hex()}"
    digest = hashlib.sha256(_CONTENT).hexdigest()
    meta = BlobMeta(None, 0, digest, len(_CONTENT), "text/plain", name)
    with tempfile.TemporaryDirectory(prefix="otel-logger-probe-") as folder:
        source, copy = Path(folder) / "source", Path(folder) / "copy"
        source.write_bytes(_CONTENT)
        try:
            written = _tried(WRITE, lambda: store.put_file(name, source, meta))
            yield written
            if written.error is None:
                yield _tried(READ, lambda: _read(store, name, copy))
                yield _tried(CREATE, lambda: _create(store, name, source, meta))
        finally:
            # Also when nobody wants to hear more, and when the answer to WRITE alone was lost.
            deleted = _tried(DELETE, lambda: _delete(store, name))
        yield deleted


def _tried(what: str, action: Callable[[], object]) -> ProbeStep:
    try:
        action()
    except OSError as error:
        return ProbeStep(what, error)
    return ProbeStep(what, None)


def _read(store: "BlobStore", name: str, copy: Path) -> None:
    store.copy_to(name, copy)
    if copy.read_bytes() != _CONTENT:
        msg = f"{store.uri} gave back other bytes than were stored"
        raise BlobCorruptError(errno.EIO, msg)


def _create(store: "BlobStore", name: str, source: Path, meta: BlobMeta) -> None:
    if store.put_new(name, source, meta):
        msg = f"{store.uri} replaced a file where it was told to store a new one only (If-None-Match)"
        raise OSError(errno.ENOTSUP, msg)


def _delete(store: "BlobStore", name: str) -> None:
    store.remove(name)
    if store.meta(name) is not None:
        msg = f"{store.uri} still has a file that it said to have deleted: {name!r}"
        raise OSError(errno.EIO, msg)
