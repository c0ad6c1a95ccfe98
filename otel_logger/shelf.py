"""The shelf: files by their names, those that wait for the store and those in it, looked up and read back."""

import contextlib
import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from otel_logger.delivery import Carrier, Standing
from otel_logger.staging import Staging
from otel_logger_exporters.blob_files import copy_stream, temporary_file
from otel_logger_exporters.blob_meta import BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_store import BlobStore
from otel_logger_exporters.consignments import Consignment, consignments_in, parcel_path
from otel_logger_exporters.private_copy import is_trusted_copy

__all__ = ["BLIND", "PAUSES", "Place", "Places", "Shelf", "Stage"]

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds after which a download is tried again from a store that cannot be reached: half a minute in all. Without what
it is to go on from a training would not begin."""

LONGEST_LOOK = 2.0
"""Seconds for which an upload that may not overwrite waits for the store to tell whether the name is taken."""

LONGEST_COMPARISON = 15.0
"""Seconds for which a download that has found what waits is held up by the question whether the store has a newer."""

BLIND = 30.0
"""Seconds for which a store that did not tell is not asked again: then it is decided when a file is stored."""

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Stage:
    """A folder in which things wait for a store, with the run (None: not known) and attempt of the writer of it."""

    folder: Path
    run_id: str | None
    attempt: int
    started_ns: int


@dataclass(frozen=True, slots=True)
class Place:
    """A store with the folders in which things wait for it."""

    store: BlobStore
    staged: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class _Waiting:
    manifest: Path
    consignment: Consignment
    stage: Stage
    is_own: bool = False

    @property
    def path(self) -> Path:
        return parcel_path(self.manifest, self.consignment.parcels[0])

    def beats(self, other: "_Waiting") -> bool:
        """Tell whether this is what a name will have, of two that wait."""
        one, two = self.stage, other.stage
        if one.run_id is not None and one.run_id == two.run_id and one.attempt != two.attempt:
            return one.attempt > two.attempt
        return self.consignment.time_ns > other.consignment.time_ns

    def will_replace(self, known: BlobMeta, store: BlobStore) -> bool:
        """Tell whether this will be stored in the place of another file."""
        stage = self.stage
        if self.is_own and stage.run_id is None:
            # The caller has just been told that it is accepted.
            return True
        carrier = Carrier(store, stage.run_id, stage.attempt, is_late=not self.is_own, started_ns=stage.started_ns)
        return carrier.standing(self.consignment, known) is Standing.REPLACED


class Places(Protocol):
    """Where files are at a moment."""

    def own(self) -> Stage:
        """Return the folder in which this writer's own things wait."""
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

    def __init__(
        self,
        staging: Staging,
        places: Places,
        longest_look: float = LONGEST_LOOK,
        wait: Callable[[float], object] = time.sleep,
        longest_comparison: float = LONGEST_COMPARISON,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._staging = staging
        self._places = places
        self._longest_look = longest_look
        self._wait = wait
        self._longest_comparison = longest_comparison
        self._monotonic = monotonic
        self._blind_until = 0.0
        self._lock = threading.RLock()
        self._taken: Counter[str] = Counter()
        self._conflicts: dict[str, str] = {}

    def take(self, name: str, path: Path, *, overwrite: bool) -> None:
        """Take a name for an upload of `path`.

        Without `overwrite` FileExistsError when it is taken, as far as that can be told within two seconds.
        """
        mapped = blob_name(name)
        with self._lock:
            where = None if overwrite else self._taken_here(mapped)
            if where is None:
                # At once: another thread may want it too.
                self._taken[mapped] += 1
        if where is None and not overwrite:
            try:
                where = self._taken_there(name)
            except BaseException:
                self.let_go(name)
                raise
            if where is not None:
                self.let_go(name)
        if where is not None:
            msg = f"cannot upload {str(path)!r}: a file {name!r} {where}; pass overwrite=True to replace it"
            raise FileExistsError(errno.EEXIST, msg)
        with self._lock:
            self._conflicts.pop(mapped, None)

    def let_go(self, name: str) -> None:
        """Let others have a name that was taken for an upload that came to nothing."""
        with self._lock:
            self._taken[blob_name(name)] -= 1

    def note_conflict(self, name: str, reason: str) -> None:
        """Take note of a name that turned out to be another's; its next upload is told."""
        with self._lock:
            self._conflicts[blob_name(name)] = reason

    def fetch(
        self, name: str, destination: str | Path, *, overwrite: bool, progress: Callable[[int], None] | None
    ) -> None:
        """Write a file to `destination`, whole or not at all: what waits for a store if newer, else what is in it.

        FileNotFoundError when there is none, FileExistsError when the destination is there and `overwrite` is false. A
        store that cannot be reached is asked again for half a minute, then BlobUnavailableError.
        """
        target = Path(destination)
        if not overwrite and os.path.lexists(target):
            msg = f"{str(target)!r} exists; pass overwrite=True to replace it with {name!r}"
            raise FileExistsError(errno.EEXIST, msg)
        if target.exists() and not target.is_file():
            msg = f"{str(target)!r} is no file, and is not replaced by {name!r}; choose another destination"
            raise OSError(errno.EINVAL, msg)
        places = list(self._places.reading())
        missing = [folder for folder in target.absolute().parents if not folder.exists()]
        try:
            if any(self._fetch_in_time(place, name, target.absolute(), progress) for place in places):
                return
        except BaseException as error:
            for folder in missing:
                with contextlib.suppress(OSError):  # others are in it
                    folder.rmdir()
            if isinstance(error, FileExistsError):
                # To callers that means that the destination itself exists.
                msg = f"{str(target.parent)!r} is no folder: {name!r} cannot be written to {str(target)!r}"
                raise NotADirectoryError(errno.ENOTDIR, msg) from error
            raise
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
        if mapped in self._conflicts:
            return f"could not be stored before: {self._conflicts[mapped]}"
        if self._staging.last(mapped) is not None:
            return "waits to be stored already"
        return "was uploaded by this run already" if self._taken[mapped] > 0 else None

    def _taken_there(self, name: str) -> str | None:
        if (store := self._places.writing()) is None:
            return None
        if self._monotonic() < self._blind_until:
            return None
        found = _within(self._longest_look, lambda: store.meta(name))
        if not found:
            # Each of the hundred parts of a checkpoint would wait anew.
            self._blind_until = self._monotonic() + BLIND
            return None
        known = found[0]
        if known is None or self._places.may_replace(known):
            return None
        if known.run_id is None:
            return f"is in {store.uri} already, stored by somebody else"
        here = f"is in {store.uri} already, stored by {known.written_by}"
        # A run that resumes without its folder and before a checkpoint was stored is a new one.
        return f"{here}; if this is that run, set OTEL_LOGGER_RUN_ID={known.run_id}"

    def _fetch_in_time(self, place: Place, name: str, target: Path, progress: Callable[[int], None] | None) -> bool:
        for pause in PAUSES:
            try:
                return self._fetch_from(place, name, target, progress)
            except BlobUnavailableError:
                self._wait(pause)
        return self._fetch_from(place, name, target, progress)

    def _fetch_from(self, place: Place, name: str, target: Path, progress: Callable[[int], None] | None) -> bool:
        for _ in range(_ATTEMPTS):
            found = self._find(place, name)
            if found is None:
                return False
            if isinstance(found, BlobMeta):
                place.store.copy_to(name, target, progress)
                return True
            try:
                source = _open(found)
            except FileNotFoundError:
                # It was stored at this moment.
                continue
            with source:
                _copy_out(source, target, found.consignment, progress)
            return True
        # Somebody has deleted what waits. What is stored is the newest there is.
        if place.store.meta(name) is None:
            return False
        place.store.copy_to(name, target, progress)
        return True

    def _find(self, place: Place, name: str) -> BlobMeta | _Waiting | None:
        """Return what is stored under a name, or what waits and will be; None when there is neither."""
        waiting = self._waiting(place, blob_name(name))
        if waiting is None:
            return place.store.meta(name)
        # What waits can be had without the store, which may take minutes to fail.
        found = _within(self._longest_comparison, lambda: place.store.meta(name))
        known = found[0] if found else None
        if known is None:
            return waiting
        if waiting.consignment.uid == known.upload:
            # While it is here, it may be that the store has been told of it and has not got it.
            return waiting if waiting.path.exists() else known
        return waiting if waiting.will_replace(known, place.store) else known

    def _waiting(self, place: Place, mapped: str) -> _Waiting | None:
        found: _Waiting | None = None
        own = self._staging.last(mapped)
        stage = self._places.own()
        if own is not None:
            found = _Waiting(self._staging.manifest(own), own.consignment, stage, is_own=True)
        own_folder = stage.folder
        for stage in place.staged:
            if own is not None and stage.folder == own_folder:
                # The order of one writer is that of its calls, whatever the clock says.
                continue
            last: _Waiting | None = None
            # Another user's cannot be read.
            with contextlib.suppress(OSError):
                for manifest, consignment in consignments_in(stage.folder):
                    if consignment.is_file and blob_name(consignment.name) == mapped:
                        last = _Waiting(manifest, consignment, stage)
            if last is not None and (found is None or last.beats(found)):
                found = last
        return found


def _within(seconds: float, look: Callable[[], BlobMeta | None]) -> list[BlobMeta | None]:
    """Return what a look finds, as the one item; none when it fails or is not done in time."""
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
        return []
    thread.join(seconds)
    return found[:1]


def _open(waiting: _Waiting) -> BinaryIO:
    path = waiting.path
    source = path.open("rb")
    if not is_trusted_copy(path, waiting.manifest.parent):
        source.close()
        # Asked of its name: it may just have been moved into the store.
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        msg = f"{str(path)!r} is not private to this user, and is not read as {waiting.consignment.name!r}"
        raise PermissionError(errno.EPERM, msg)
    return source


def _copy_out(source: BinaryIO, target: Path, consignment: Consignment, progress: Callable[[int], None] | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_file(target.parent, 0o666) as (path, file):
        _, size = copy_stream(source, file, progress)
        file.close()
        if size != consignment.size:
            msg = f"the private copy of {consignment.name!r} has {size} bytes, it had {consignment.size}"
            raise OSError(errno.EIO, msg)
        path.replace(target)
