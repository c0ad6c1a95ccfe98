"""The shelf: files by their names, those that wait for the store and those in it, looked up and read back."""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from otel_logger.staging import Staging
from otel_logger_exporters.blob_files import copy_stream, temporary_file
from otel_logger_exporters.blob_meta import BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_store import BlobStore
from otel_logger_exporters.consignments import Consignment, consignments_in, parcel_path
from otel_logger_exporters.private_copy import is_trusted_copy

__all__ = ["Place", "Places", "Shelf", "media_type"]

LONGEST_LOOK = 2.0
"""Seconds for which an upload that may not overwrite waits for the store to tell whether the name is taken."""

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Place:
    """A store with the folders in which things wait for it, each with the id of the run whose they are."""

    store: BlobStore
    staged: tuple[tuple[Path, str | None], ...]


@dataclass(frozen=True, slots=True)
class _Waiting:
    manifest: Path
    consignment: Consignment
    run_id: str | None


class Places(Protocol):
    """Where files are at a moment."""

    @property
    def run_id(self) -> str | None:
        """Which run this is, None while that is not settled."""
        ...

    def writing(self) -> BlobStore | None:
        """Return the store to write to, or None while that is not settled."""
        ...

    def reading(self) -> Iterator[Place]:
        """Yield the places to look into, the likeliest first."""
        ...

    def may_replace(self, known: BlobMeta) -> bool:
        """Tell whether a stored file may be replaced by an upload that may not overwrite."""
        ...


class Shelf:
    """Knows which names are taken, and reads files back. Thread-safe."""

    def __init__(self, staging: Staging, places: Places) -> None:
        self._staging = staging
        self._places = places
        self._lock = threading.RLock()
        self._taken: set[str] = set()
        self._conflicts: dict[str, str] = {}

    def refuse_taken(self, name: str, path: Path) -> None:
        """Raise FileExistsError when a name is taken, as far as that can be told within two seconds."""
        mapped = blob_name(name)
        where = self._taken_here(mapped)
        if where is None and (store := self._places.writing()) is not None:
            known = _within(LONGEST_LOOK, lambda: store.meta(name))
            if known is not None and not self._places.may_replace(known):
                by = f", stored by attempt {known.attempt} of run {known.run_id!r}" if known.run_id is not None else ""
                where = f"is in {store.uri}{by}"
        if where is not None:
            msg = f"cannot upload {str(path)!r}: a file {name!r} {where} already; pass overwrite=True to replace it"
            raise FileExistsError(errno.EEXIST, msg)

    def note(self, name: str) -> None:
        """Take note of a name that is uploaded."""
        with self._lock:
            mapped = blob_name(name)
            self._taken.add(mapped)
            self._conflicts.pop(mapped, None)

    def note_conflict(self, name: str, reason: str) -> None:
        """Take note of a name that turned out to be another's; its next upload is told."""
        with self._lock:
            self._conflicts[blob_name(name)] = reason

    def fetch(
        self, name: str, destination: str | Path, *, overwrite: bool, progress: Callable[[int], None] | None
    ) -> None:
        """Write a file to `destination`, whole or not at all: what waits if that is newer, else what is stored.

        FileNotFoundError when there is none, FileExistsError when the destination is there and `overwrite` is false.
        """
        target = Path(destination)
        if not overwrite and os.path.lexists(target):
            msg = f"{str(target)!r} exists; pass overwrite=True to replace it with {name!r}"
            raise FileExistsError(errno.EEXIST, msg)
        if target.exists() and not target.is_file():
            msg = f"{str(target)!r} is no file, and is not replaced by {name!r}"
            raise OSError(errno.EINVAL, msg)
        places = list(self._places.reading())
        for place in places:
            if self._fetch_from(place, name, target.absolute(), progress):
                return
        looked = ", ".join(place.store.uri for place in places) or "no store: nothing has been written yet"
        msg = f"there is no file {name!r} in {looked}"
        raise FileNotFoundError(errno.ENOENT, msg)

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, for a progress bar; None when it is not known."""
        with contextlib.suppress(OSError):
            for place in self._places.reading():
                found = self._find(place, name)
                if found is not None:
                    return found.size if isinstance(found, BlobMeta) else found.consignment.size
        return None

    def abandon(self) -> None:
        """Take new locks in the child of a fork, where the parent's may be held for ever; it may still download."""
        self._lock = threading.RLock()
        self._staging.abandon()

    def _taken_here(self, mapped: str) -> str | None:
        with self._lock:
            if mapped in self._conflicts:
                return f"could not be stored before: {self._conflicts[mapped]}; it"
            if self._staging.last(mapped) is not None:
                return "waits to be stored"
            return "was uploaded by this run" if mapped in self._taken else None

    def _fetch_from(self, place: Place, name: str, target: Path, progress: Callable[[int], None] | None) -> bool:
        for _ in range(_ATTEMPTS):
            found = self._find(place, name)
            if found is None:
                return False
            if isinstance(found, BlobMeta):
                place.store.copy_to(name, target, progress)
                return True
            with contextlib.suppress(FileNotFoundError):  # it was stored at this moment
                with _opened(found) as source:
                    _copy_out(source, target, found.consignment, progress)
                return True
        msg = f"{name!r} is being replaced faster than it can be read; try again"
        raise BlobUnavailableError(errno.EAGAIN, msg)

    def _find(self, place: Place, name: str) -> BlobMeta | _Waiting | None:
        """Return what is stored under a name, or what waits and will be; None when there is neither."""
        waiting = self._waiting(place, blob_name(name))
        try:
            known = place.store.meta(name)
        except OSError:
            # What waits can be had without the store.
            if waiting is None:
                raise
            return waiting
        if known is None or waiting is None:
            return waiting if waiting is not None else known
        consignment = waiting.consignment
        is_newer = consignment.time_ns > known.time_ns and consignment.uid != known.upload
        # One that may not replace another run's will not be stored under this name.
        is_wanted = consignment.overwrite or (known.run_id is not None and known.run_id == waiting.run_id)
        return waiting if is_newer and is_wanted else known

    def _waiting(self, place: Place, mapped: str) -> _Waiting | None:
        found: _Waiting | None = None
        if (own := self._staging.last(mapped)) is not None:
            found = _Waiting(self._staging.manifest(own), own.consignment, self._places.run_id)
        for folder, run_id in place.staged:
            for manifest, consignment in consignments_in(folder):
                is_it = consignment.is_file and blob_name(consignment.name) == mapped
                if is_it and (found is None or consignment.time_ns >= found.consignment.time_ns):
                    found = _Waiting(manifest, consignment, run_id)
        return found


def _within(seconds: float, look: Callable[[], BlobMeta | None]) -> BlobMeta | None:
    """Return what a look finds, or None when it finds nothing, fails, or is not done in time."""
    found: list[BlobMeta | None] = []

    def run() -> None:
        # What the store is short of is told when the file is stored.
        with contextlib.suppress(Exception):
            found.append(look())

    thread = threading.Thread(target=run, name="otel_logger look", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # At the exit of the interpreter, since Python 3.12.
        return None
    thread.join(seconds)
    return found[0] if found else None


@contextlib.contextmanager
def _opened(waiting: _Waiting) -> Iterator[BinaryIO]:
    path = parcel_path(waiting.manifest, waiting.consignment.parcels[0])
    with path.open("rb") as source:
        if not is_trusted_copy(path, waiting.manifest.parent):
            msg = f"{str(path)!r} is not private to this user, and is not read as {waiting.consignment.name!r}"
            raise PermissionError(errno.EPERM, msg)
        yield source


def _copy_out(source: BinaryIO, target: Path, consignment: Consignment, progress: Callable[[int], None] | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_file(target.parent, 0o666) as (path, file):
        _, size = copy_stream(source, file, progress)
        file.close()
        if size != consignment.size:
            msg = f"the private copy of {consignment.name!r} has {size} bytes, it had {consignment.size}"
            raise OSError(errno.EIO, msg)
        path.replace(target)


_MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".png": "image/png",
    ".symlink": "text/plain",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def media_type(name: str) -> str:
    """Return the media type of a file by its extension; a checkpoint's is `application/octet-stream`."""
    return _MEDIA_TYPES.get(os.path.splitext(name)[1].lower(), "application/octet-stream")
