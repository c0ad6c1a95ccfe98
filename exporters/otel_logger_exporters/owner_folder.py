"""The files of a folder that tell its owner: the lock, the files of adopters, and one that tells the time."""

import errno
import fcntl
import math
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from functools import cached_property
from pathlib import Path

from otel_logger_exporters.owner_record import Machine, OwnerRecord

__all__ = ["LEASE", "LOCK_NAME", "LockState", "OwnerFolder", "open_file"]

LOCK_NAME = "owner.lock"

LEASE = 60.0
"""Seconds without renewal after which an owner that no lock tells of is taken for dead."""

_ADOPTER = re.compile(r"adopter-([1-9][0-9]{0,8})\.lock")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})

_WRONG_CLOCK = 86400.0
"""Seconds by which our own clock may be wrong; it counts only where nothing can be written."""


class LockState(Enum):
    """What a file system answers to the question for a lock."""

    TAKEN = "taken"
    HELD = "held"
    UNSUPPORTED = "unsupported"


class OwnerFolder:
    """A folder opened to see, or to change, who owns it.

    Construction and methods raise OSError when the folder does not allow what they do.
    """

    def __init__(self, folder: Path, machine: Machine) -> None:
        self._folder = folder
        self._machine = machine
        # By its descriptor from here on: what stands under its name may change.
        self._place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.lock = -1

    def open_lock(self, flags: int) -> None:
        """Open the lock file, whose descriptor is `lock` then."""
        self.lock = open_file(LOCK_NAME, flags, self._place)

    def close(self) -> None:
        """Close what is open, which gives up the lock if it was taken here."""
        for descriptor in (self.lock, self._place):
            if descriptor >= 0:
                os.close(descriptor)
        self.lock = self._place = -1

    @cached_property
    def is_local(self) -> bool:
        """Whether this kernel alone has the file system mounted."""
        return self._machine.file_system(self._folder).is_local

    @cached_property
    def _written(self) -> os.stat_result:
        """What the file system says of a file that we have just written: its time is now there, its user is us."""
        name = f".tmp-{os.urandom(8).hex()}"
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._place)
        try:
            with suppress(OSError):
                os.write(file, b"\n")
                if not self.is_local:
                    os.fsync(file)
            return os.fstat(file)
        finally:
            os.close(file)
            with suppress(OSError):
                os.unlink(name, dir_fd=self._place)

    def objection(self) -> str | None:
        """Return why what is open (the folder; the lock file, once it is) is not ours alone, or None when it is."""
        for what, descriptor in (("it", self._place), (f"its {LOCK_NAME}", self.lock)):
            status = os.fstat(descriptor) if descriptor >= 0 else None
            if status is not None and not self._is_ours(status):
                us, them = self._machine.uid, status.st_uid
                return f"{what} belongs to user {them}, and this is user {us}: do this as the user who ran the training"
            if status is not None and status.st_mode & _WRITABLE_BY_OTHERS:
                mode = stat.S_IMODE(status.st_mode)
                return (
                    f"{what} can be written by others (mode {mode:04o}): see that all in it is yours, then `chmod go-w`"
                )
        return None

    def _is_ours(self, status: os.stat_result) -> bool:
        if status.st_uid == self._machine.uid:
            return True
        if self.is_local:
            return False
        # A server may have its own idea of who we are (root squashed to nobody, one user for a whole volume).
        with suppress(OSError):
            return status.st_uid == self._written.st_uid
        return False

    def ask(self, operation: int, pauses: Sequence[float] = ()) -> LockState:
        """Try to take the lock (`fcntl.LOCK_SH` or `LOCK_EX`), again after each of `pauses` (s) while it is held."""
        for pause in (*pauses, None):
            try:
                self._machine.flock(self.lock, operation | fcntl.LOCK_NB)
                return LockState.TAKEN
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return LockState.UNSUPPORTED
                if error.errno not in _BUSY:
                    raise
            if pause is not None:
                self._machine.pause(pause)
        return LockState.HELD

    def adopters(self) -> list[int]:
        """Return the numbers of the adopters' files, in order; empty for a folder that nobody has adopted."""
        matches = (_ADOPTER.fullmatch(name) for name in os.listdir(self._place))
        return sorted(int(match[1]) for match in matches if match is not None)

    def open_adopter(self, number: int, flags: int) -> int:
        """Return the descriptor of an adopter's file."""
        return open_file(f"adopter-{number}.lock", flags, self._place)

    def remove_adopters(self, last: int) -> None:
        """Remove the files of adopters up to the number `last`; none if there is a later one. Raises nothing."""
        with suppress(OSError):
            numbers = self.adopters()
            # A successor makes the number after the newest, so that the newest has to stay until its owner is done.
            for number in numbers if numbers[-1:] == [last] else ():
                self.remove_adopter(number)

    def remove_adopter(self, number: int) -> None:
        """Remove one adopter's file. Raises nothing."""
        with suppress(OSError):
            os.unlink(f"adopter-{number}.lock", dir_fd=self._place)

    def seconds_left(self, state: LockState, lease: int, record: OwnerRecord | None) -> float:
        """Return for how long an owner may still be alive: 0 when it is dead, infinite when its lock is held.

        `lease` is the descriptor of the file that it renews, `record` what that says.
        """
        if state is LockState.HELD:
            return math.inf
        if record is not None:
            if record.ended:
                return 0.0
            if state is LockState.TAKEN and record.is_of_this_kernel(self._machine):
                return 0.0
            if state is LockState.TAKEN and record.host == self._machine.host and self.is_local:
                return 0.0
        renewed = os.fstat(lease).st_mtime_ns
        try:
            age = (self._written.st_mtime_ns - renewed) / 1e9
        except OSError:
            age = (self._machine.clock.time_ns() - renewed) / 1e9 - _WRONG_CLOCK
        return max(0.0, LEASE - age)


def open_file(name: str | Path, flags: int, place: int | None = None) -> int:
    """Return the descriptor of a file that is one of ours to lock or to renew, private where it is made."""
    return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=place)
