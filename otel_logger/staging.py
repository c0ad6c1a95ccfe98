"""Staging: what a writer has on disk for the blob store, in the folder `staged` of its own."""

import errno
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from otel_logger_exporters.blob_counts import BlobCounts
from otel_logger_exporters.blob_files import make_private_folder, new_file, opened_folder
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.consignments import Consignment, Parcel, discard, set_aside
from otel_logger_exporters.private_copy import private_copy, remove_copy
from otel_logger_exporters.space import Space

__all__ = ["STAGED", "Content", "Staged", "Staging"]

STAGED = "staged"
"""The folder of a writer's folder in which things wait for the store."""

_LONGEST_EXTENSION = 16

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """A parcel to be: what it is, and what writes it into a file. `role` as in `Parcel`.

    `sha256` is that of what is written, where it is known before: else the file is read for it.
    """

    write: Callable[[BinaryIO], object]
    media_type: str
    extension: str
    role: str = ""
    sha256: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """A consignment that waits: its number in the folder, and the mapped name of a file, else empty."""

    number: str
    mapped: str
    consignment: Consignment


class Staging:
    """Keeps consignments in a folder that may be renamed meanwhile, within `limit` bytes. Thread-safe."""

    def __init__(self, folder: Callable[[], Path], space: Space, limit: int, counts: BlobCounts) -> None:
        self._folder = folder
        self._space = space
        self._limit = limit
        self._counts = counts
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, list[Staged]] = {}
        self._reserved = 0

    def path(self) -> Path:
        """Return where the folder is now."""
        return self._folder() / STAGED

    def manifest(self, staged: Staged) -> Path:
        """Return where a manifest is now."""
        return self.path() / f"{staged.number}.json"

    def put_file(self, consignment: Consignment, source: Path, media_type: str) -> Staged:
        """Take a private copy of a file, whose one parcel it becomes; OSError if there is no room for it."""
        number = self._number()
        with self._room() as take:
            take(source.stat().st_size)
            make_room = self._space.make_room
            copy = self._place(lambda folder: private_copy(source, folder, f"{number}-0", make_room=make_room))
            path = copy.name if copy.parent.name == STAGED else str(copy)
            try:
                parcel = Parcel(path, self._size(path), media_type, _extension(consignment.name))
                return self._keep(number, replace(consignment, parcels=(parcel,)), blob_name(consignment.name))
            except BaseException:
                self._undo(number, consignment, [path])
                raise

    def put_objects(self, consignment: Consignment, contents: Sequence[Content]) -> Staged:
        """Write contents, each a parcel; OSError if there is no room for them."""
        number = self._number()
        parcels: list[Parcel] = []
        with self._room() as take:
            try:
                for index, content in enumerate(contents):
                    self._place(partial(self._write, name=f"{number}-{index}", content=content, parcels=parcels))
                    take(parcels[-1].size)
                return self._keep(number, replace(consignment, parcels=tuple(parcels)), "")
            except BaseException:
                self._undo(number, consignment, [parcel.path for parcel in parcels])
                raise

    def forget(self, staged: Staged) -> None:
        """Take note that a file does not wait any more."""
        with self._lock:
            waiting = self._waiting.get(staged.mapped, [])
            if staged in waiting:
                waiting.remove(staged)
            if not waiting:
                self._waiting.pop(staged.mapped, None)

    def discard(self, staged: Staged) -> None:
        """Delete what is delivered."""
        with suppress(OSError):
            discard(self.manifest(staged), staged.consignment)

    def set_aside(self, staged: Staged) -> None:
        """Leave on disk what no store will take."""
        with suppress(OSError):
            set_aside(self.manifest(staged))

    def last(self, mapped: str) -> Staged | None:
        """Return the last file of a mapped name that waits."""
        with self._lock:
            waiting = self._waiting.get(mapped)
            return waiting[-1] if waiting else None

    def close(self) -> None:
        """Remove the folder, if nothing waits in it."""
        with suppress(OSError):
            self.path().rmdir()

    def abandon(self) -> None:
        """Know nothing of what waits in the child of a fork, where the parent goes on, and take a new lock."""
        self._lock = threading.RLock()
        self._waiting = {}

    def _number(self) -> str:
        return f"{next(self._numbers):08d}"

    @contextmanager
    def _room(self) -> Iterator[Callable[[int], None]]:
        """What takes room, for as long as it takes until what waits is counted; OSError where there is none."""
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            with self._lock:
                waiting = self._counts.bytes_waiting + self._reserved
                if waiting + size > self._limit:
                    msg = (
                        f"{waiting} bytes wait for the blob store, and with its {size} they would be more "
                        f"than OTEL_LOGGER_STAGE_MAX_BYTES={self._limit}; raise that, or see what keeps the store"
                    )
                    raise OSError(errno.ENOSPC, msg)
                self._reserved += size
                taken += size

        try:
            yield take
        finally:
            with self._lock:
                self._reserved -= taken

    def _write(self, folder: Path, name: str, content: Content, parcels: list[Parcel]) -> Path:
        """Write a content as a new file, and add what is known of it to `parcels`."""
        self._space.make_room(folder, 0)
        # By the descriptors of both, as the folder may be renamed meanwhile.
        with opened_folder(folder) as above, new_file(above, name) as descriptor:
            with os.fdopen(descriptor, "r+b", closefd=False) as file:
                content.write(file)
                file.flush()
                sha256 = content.sha256 or _digest(file)
            size = os.fstat(descriptor).st_size
            parcels.append(Parcel(name, size, content.media_type, content.extension, sha256, content.role))
        return folder / name

    def _place(self, make: Callable[[Path], Path]) -> Path:
        """Make a file in the folder, wherever that is; again when it is renamed from under it."""
        while True:
            folder = self.path()
            try:
                make_private_folder(folder)
                made = make(folder)
            except FileNotFoundError:
                if self.path() == folder:
                    raise
                continue
            now = self.path()
            if now != folder and made.parent == folder:
                if made.exists():
                    # The name that the folder had was made anew for it.
                    make_private_folder(now)
                    made.replace(now / made.name)
                    with suppress(OSError):
                        folder.rmdir()
                        folder.parent.rmdir()
                return now / made.name
            return made

    def _size(self, path: str) -> int:
        while True:
            folder = self.path()
            try:
                return (folder / path).stat().st_size
            except FileNotFoundError:
                if self.path() == folder:
                    raise

    def _keep(self, number: str, consignment: Consignment, mapped: str) -> Staged:
        staged = Staged(number, mapped, consignment)
        self._place(lambda folder: consignment.write(folder, number))
        self._counts.stage(consignment.uid, consignment.size)
        if mapped:
            with self._lock:
                self._waiting.setdefault(mapped, []).append(staged)
        return staged

    def _undo(self, number: str, consignment: Consignment, paths: Sequence[str]) -> None:
        """Leave nothing of a call that raises; the manifest goes first, which says that the others are whole."""
        for path in (f"{number}.json", *paths):
            with suppress(OSError):
                remove_copy(self.path() / path)
        self._counts.unstage(consignment.uid)


def _digest(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def _extension(name: str) -> str:
    extension = os.path.splitext(name)[1][1:].lower()
    return extension if extension.isascii() and extension.isalnum() and len(extension) <= _LONGEST_EXTENSION else "bin"
