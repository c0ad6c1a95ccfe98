"""Staging: what a writer has on disk for the blob store, in the folder `staged` of its own."""

import errno
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from otel_logger_exporters.blob_counts import BlobCounts
from otel_logger_exporters.blob_files import make_private_folder, sha256_file
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.consignments import Consignment, Parcel, discard, parcel_path
from otel_logger_exporters.private_copy import private_copy, remove_copy
from otel_logger_exporters.space import Space

__all__ = ["STAGED", "Content", "Staged", "Staging"]

STAGED = "staged"
"""The folder of a writer's folder in which things wait for the store."""


@dataclass(frozen=True, slots=True)
class Content:
    """A parcel to be: what it is, and what writes it into a file. `role` as in `Parcel`."""

    write: Callable[[BinaryIO], object]
    media_type: str
    extension: str
    role: str = ""


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

    def path(self) -> Path:
        """Return where the folder is now."""
        return self._folder() / STAGED

    def manifest(self, staged: Staged) -> Path:
        """Return where a manifest is now."""
        return self.path() / f"{staged.number}.json"

    def put_file(self, consignment: Consignment, source: Path, media_type: str) -> Staged:
        """Take a private copy of a file, whose one parcel it becomes; OSError if there is no room for it."""
        number = self._number()
        self._make_room(source.stat().st_size)
        copy = self._place(lambda folder: private_copy(source, folder, f"{number}-0", make_room=self._space.make_room))
        path = copy.name if copy.parent.name == STAGED else str(copy)
        extension = os.path.splitext(consignment.name)[1][1:].lower()
        parcel = Parcel(path, copy.stat().st_size, media_type, extension if extension.isalnum() else "bin")
        return self._keep(number, replace(consignment, parcels=(parcel,)), blob_name(consignment.name))

    def put_objects(self, consignment: Consignment, contents: Sequence[Content]) -> Staged:
        """Write contents, each a parcel; OSError if there is no room for them."""
        number = self._number()
        parcels: list[Parcel] = []
        try:
            for index, content in enumerate(contents):
                path = self._place(partial(self._write, name=f"{number}-{index}", content=content))
                size, digest = path.stat().st_size, sha256_file(path)
                parcels.append(Parcel(path.name, size, content.media_type, content.extension, digest, content.role))
            return self._keep(number, replace(consignment, parcels=tuple(parcels)), "")
        except BaseException:
            self._remove(parcels)
            raise

    def done(self, staged: Staged) -> None:
        """Delete what is delivered."""
        self._forget(staged)
        with suppress(OSError):
            discard(self.manifest(staged), staged.consignment)

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
        """Take a new lock in the child of a fork, where the parent's may be held for ever."""
        self._lock = threading.RLock()

    def _number(self) -> str:
        return f"{next(self._numbers):08d}"

    def _make_room(self, size: int) -> None:
        if self._counts.bytes_waiting + size > self._limit:
            msg = (
                f"{self._counts.bytes_waiting} bytes wait for the blob store, and with its {size} they would be more "
                f"than OTEL_LOGGER_STAGE_MAX_BYTES={self._limit}"
            )
            raise OSError(errno.ENOSPC, msg)

    def _write(self, folder: Path, name: str, content: Content) -> Path:
        path = folder / name
        self._space.make_room(folder, 0)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                content.write(file)
            self._make_room(path.stat().st_size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _place(self, make: Callable[[Path], Path]) -> Path:
        """Make a file in the folder, wherever that is; again when it is renamed from under it."""
        while True:
            folder = self.path()
            make_private_folder(folder)
            try:
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

    def _keep(self, number: str, consignment: Consignment, mapped: str) -> Staged:
        staged = Staged(number, mapped, consignment)
        try:
            self._place(lambda folder: consignment.write(folder, number))
        except BaseException:
            self._remove(consignment.parcels)
            raise
        self._counts.stage(consignment.uid, consignment.size)
        if mapped:
            with self._lock:
                self._waiting.setdefault(mapped, []).append(staged)
        return staged

    def _remove(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            with suppress(OSError):
                remove_copy(parcel_path(self.path() / "manifest", parcel))

    def _forget(self, staged: Staged) -> None:
        with self._lock:
            waiting = self._waiting.get(staged.mapped, [])
            if staged in waiting:
                waiting.remove(staged)
            if not waiting:
                self._waiting.pop(staged.mapped, None)
