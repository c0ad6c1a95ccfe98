"""Ownership of a writer's folder: a locked file that tells a live writer from a dead one."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["Owner", "is_owned"]

_NAME = "owner.lock"


class Owner:
    """Holds the lock of a folder from construction to `release`; the death of the process releases it too."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # flock, not fcntl's POSIX locks: those are dropped when any descriptor of the file is closed in the
            # process. Blocking: the folder is ours alone, but `is_owned` holds the lock for the moment of its look.
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks: `is_owned` cannot tell there either, and takes every writer for alive.
            pass

    @classmethod
    def claim(cls, folder: Path) -> "Owner | None":
        """Return the ownership of a dead writer's folder, or None while a live process has it or cannot be excluded."""
        file = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return None
        owner = cls.__new__(cls)
        owner._file = file
        return owner

    def release(self) -> None:
        """Give the folder up, also where a forked child still holds the descriptor."""
        if self._file >= 0:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """Let go in the child of a fork: closing does not unlock while the parent holds its descriptor."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_owned(folder: Path) -> bool:
    """Tell whether a live process of this machine owns `folder`; True where the file system cannot tell."""
    try:
        file = os.open(folder / _NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two who look at once do not take each other for the owner.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
