"""The check of the folder of runs: whether it can be written, how safe data is there, and what waits in it."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

from otel_logger import readable
from otel_logger.announce import shown
from otel_logger.findings import Finding, fine, problem, skipped, warning
from otel_logger.folders import runs_below
from otel_logger.leftovers import bytes_staged
from otel_logger.settings import Settings
from otel_logger_exporters.filesystems import FileSystem, file_system_of, free_bytes
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.owner import is_owned
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Space

__all__ = ["check_folder", "check_store_folder", "check_unsent"]

LOCAL_DISK = "a disk of this machine (ext4, XFS; in Kubernetes an emptyDir)"

_NOT_ALLOWED = (errno.EACCES, errno.EPERM)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_folder(
    directory: Path,
    settings: Settings,
    *,
    file_system: Callable[[Path], FileSystem] = file_system_of,
    free: Callable[[Path], tuple[int, int]] = free_bytes,
) -> Iterator[Finding]:
    """Yield whether OTEL_LOGGER_DIR takes runs, and how well they are kept there; leaves nothing behind."""
    try:
        place, are_locks_kept = _tried(directory)
    except OSError as error:
        yield _unwritable("folder", "OTEL_LOGGER_DIR", directory, error)
        return
    kind = file_system(place)
    state = "can be written" if place == directory else "can be made"
    yield fine("folder", f"{shown(directory)} {state}, on {_called(kind)}")
    yield _durability(kind, settings)
    if not are_locks_kept:
        yield warning(
            "locks",
            f"{_called(kind)} keeps no locks: a dead writer is known as such a minute later",
            f"Set OTEL_LOGGER_DIR to {LOCAL_DISK}.",
        )
    try:
        yield _space(free(place), settings)
    except OSError as error:
        yield skipped("space", f"it cannot be told what is free: {error.strerror or error}")


def check_store_folder(folder: Path) -> tuple[Finding, Path | None]:
    """Return whether a folder of OTEL_LOGGER_BLOB_STORE can be written, and it, or where it would be made."""
    try:
        place, _ = _tried(folder)
    except OSError as error:
        return _unwritable("blob store", "OTEL_LOGGER_BLOB_STORE", folder, error), None
    return fine("blob store", f"{shown(folder)} {'can be written' if place == folder else 'can be made'}"), place


def check_unsent(directory: Path, *, has_endpoint: bool) -> Finding:
    """Return how much of the runs in the folder no endpoint has taken, and what sends it."""
    try:
        waiting, kept, dead = _unsent(directory)
    except OSError as error:
        return skipped("unsent", f"{shown(directory)} cannot be read: {error.strerror or error}")
    where = shown(directory)
    lost = f"; {dead} {'process' if dead == 1 else 'processes'} died without an end" if dead else ""
    if waiting:
        endpoint = "" if has_endpoint else ", with OTEL_EXPORTER_OTLP_ENDPOINT set to where it is to go"
        return warning(
            "unsent",
            f"{readable.size(waiting)} of ended runs in {where} could not be sent{lost}",
            f"Send it: otel-logger sync {quote(where)}{endpoint}",
        )
    if kept:
        # Kept on purpose, and sent when somebody wants it.
        found = f"{readable.size(kept)} of ended runs is kept in {where}{lost}; `otel-logger sync` would send it"
        return fine("unsent", found)
    return fine("unsent", f"nothing waits in {where}{lost}")


def _unsent(directory: Path) -> tuple[int, int, int]:
    """Return the bytes of dead writers that could not be sent, those that were kept, and how many have no end."""
    waiting = kept = dead = 0
    for _, writers in runs_below(directory):
        for folder, writer in writers:
            if is_owned(folder):
                # It sends by itself.
                continue
            dead += writer.ended_ns is None
            waiting += bytes_staged(folder)
            for signal in Signal:
                unread = JournalReader(folder, signal, keep=True).unread
                if signal.value in writer.kept:
                    kept += unread
                else:
                    waiting += unread
    return waiting, kept, dead


def _tried(folder: Path) -> tuple[Path, bool]:
    """Write and lock a file below `folder`, or where that would be made, and remove it; return the place and whether
    locks are kept there. OSError when it cannot be written.
    """
    place = folder
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{str(place)!r} is no folder")
    attempt = Path(tempfile.mkdtemp(prefix=".otel-logger-doctor-", dir=place))
    try:
        with open(attempt / "file", "wb") as file:
            file.write(b"otel_logger")
            file.flush()
            os.fsync(file.fileno())
            return place, _keeps_locks(attempt / "file", file.fileno())
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _keeps_locks(path: Path, file: int) -> bool:
    second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(second)
    return False


def _durability(kind: FileSystem, settings: Settings) -> Finding:
    if settings.durability == "interval":
        return fine("durability", "interval, as set: a process that is killed loses its last 200 ms")
    if kind.is_mappable:
        return fine("durability", "call: what is recorded survives the death of the process")
    return warning(
        "durability",
        f"call cannot be had on {_called(kind)}: a process that is killed loses its last 200 ms",
        f"Set OTEL_LOGGER_DIR to {LOCAL_DISK}, or OTEL_LOGGER_DURABILITY=interval if that will do.",
    )


def _space(sizes: tuple[int, int], settings: Settings) -> Finding:
    free, total = sizes
    if not total:
        return skipped("space", "the file system does not say how much is free")
    floor = Space(min_free=settings.min_free_bytes).floor(total)
    found = f"{readable.size(free)} of {readable.size(total)} are free"
    if free >= floor:
        return fine("space", found)
    return problem(
        "space",
        f"{found}, of which {readable.size(floor)} are left to others: nothing more is recorded",
        "Free some, or set OTEL_LOGGER_DIR to another disk, or OTEL_LOGGER_MIN_FREE_BYTES to less.",
    )


def _unwritable(check: str, variable: str, folder: Path, error: OSError) -> Finding:
    if error.errno in _NOT_ALLOWED:
        remedy = f"Let this user (uid {os.geteuid()}) write there, or set {variable} to a folder that it may write."
    elif error.errno == errno.EROFS:
        remedy = f"Set {variable} to a folder that is not mounted read-only; in Kubernetes on a volume (emptyDir)."
    elif error.errno in _FULL:
        remedy = f"Free some, or set {variable} to another disk."
    else:
        remedy = f"Set {variable} to a folder that can be written, on {LOCAL_DISK}."
    return problem(check, f"{shown(folder)} cannot be written: {error.strerror or error}", remedy)


def _called(kind: FileSystem) -> str:
    shared = "" if kind.is_local or kind.name == "unknown" else " (shared)"
    return "a file system that is not known" if kind.name == "unknown" else f"{kind.name}{shared}"
