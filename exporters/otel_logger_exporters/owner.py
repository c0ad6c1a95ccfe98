"""Ownership of a writer's folder: what tells a live writer from a dead one, and lets one process adopt what it left.

A writer holds a `flock` on `owner.lock`, which says what process it is (`OwnerRecord`), and renews it; its last renewal
is its lease. What another process concludes:

| lock | the record is of | file system | the writer is |
|---|---|---|---|
| held | | any | alive; dead when an `adopter-<n>.lock` is there, whose owner holds it |
| free | one who has given the folder up | any | dead |
| free | this boot | any | dead: a kernel knows its own locks, whatever has become of the pid |
| free | another boot, this host | local | dead: that was an earlier boot of this machine |
| free | another host | any | alive until its lease is 60 s old: locks that come by a server may not be seen here |
| not supported | | any | alive until its lease is 60 s old, unless it has given the folder up |

The age of a lease is told by a file that is written beside it, so by the clock that dated the lease, not by ours.

An adopter holds the same lock and, since that may keep out nobody on another machine, makes `adopter-<n>.lock`, with a
record and a lease of its own. `n` is one more than the newest there is, so that of several who find the same owner dead
one alone makes it.
"""

import errno
import fcntl
import math
import os
import threading
from contextlib import suppress
from pathlib import Path

from otel_logger_exporters.owner_folder import LEASE, LOCK_NAME, LockState, OwnerFolder, open_file
from otel_logger_exporters.owner_record import Machine, OwnerRecord

__all__ = ["RENEWAL_INTERVAL", "NotClaimable", "Owner", "is_owned"]

RENEWAL_INTERVAL = LEASE / 4
"""Seconds between renewals, of which some may be late."""

_LOOKS = (0.002, 0.01, 0.05)
"""Seconds between attempts to claim: `is_owned` holds the lock for a moment too."""


class NotClaimable(Exception):
    """A folder cannot be claimed; the message says why, of "it". `retry_in` (s): when that may change by time alone."""

    def __init__(self, reason: str, retry_in: float | None = None) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class Owner:
    """Holds a folder from construction to `release`; the death of the process ends it too.

    To be renewed every `RENEWAL_INTERVAL`. Construction raises OSError when the folder takes no file.
    """

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        machine = machine or Machine.this()
        lock = open_file(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT)
        with suppress(OSError):
            # flock, not fcntl's POSIX locks: those are dropped when any descriptor of the file is closed in the
            # process. Blocking: the folder is ours alone, but `is_owned` holds the lock for the moment of its look.
            # Where there are no locks, the lease stands for them.
            machine.flock(lock, fcntl.LOCK_EX)
        self._hold(machine, lock, lock, is_local=machine.file_system(folder).is_local)

    def _hold(self, machine: Machine, lock: int, lease: int, *, is_local: bool) -> None:
        self._machine = machine
        self._lock = lock
        self._lease = lease
        self._is_local = is_local
        self._adopted: OwnerFolder | None = None
        self._number = 0
        self._record = OwnerRecord.of_this_process(machine)
        # One thread closes descriptors that another renews, and the number of a closed one soon is another file's.
        self._closing = threading.Lock()
        self._renew()

    @classmethod
    def claim(cls, folder: Path, machine: Machine | None = None) -> "Owner":
        """Return the ownership of a dead writer's folder, to be renewed and released as any other.

        Raises:
            NotClaimable: its writer lives or may live, another process has it, or it is not ours alone.
            OSError: the folder cannot be read or written.
        """
        machine = machine or Machine.this()
        if folder.is_symlink():
            msg = "it is a symbolic link: give the folder that it leads to"
            raise NotClaimable(msg)
        adopted = OwnerFolder(folder, machine)
        try:
            _open_own(adopted)
            number, lease = _succeed(adopted)
        except BaseException:
            adopted.close()
            raise
        owner = cls.__new__(cls)
        owner._hold(machine, adopted.lock, lease, is_local=adopted.is_local)
        owner._adopted = adopted
        owner._number = number
        return owner

    def renew(self) -> bool:
        """Renew the lease; False when another process found it too old and has adopted the folder. Never raises.

        It waits for the disk and, on a shared file system, for its server: it is for a thread of the background. After
        the release it does nothing.
        """
        # Before the lock is asked for: in the child of a fork a thread may hold it that does not exist there.
        if self._lease < 0:
            return True
        with self._closing:
            if self._lease < 0:
                return True
            with suppress(OSError):
                found = OwnerRecord.read(self._lease)
                if found is not None and found.ended:
                    return False
            self._renew()
        return True

    def _renew(self) -> None:
        try:
            # Written, not touched: some clients date a touch by their own clock.
            self._record.write(self._lease)
            if not self._is_local:
                os.fsync(self._lease)
        except OSError:
            # A full disk has room for a time.
            with suppress(OSError):
                os.utime(self._lease)

    def release(self) -> None:
        """Give the folder up, also where a forked child still holds the descriptor."""
        # Whatever hangs with its server in a renewal keeps the lock, until the process ends.
        if self._lock < 0 or not self._closing.acquire(timeout=1):
            return
        try:
            self._record.end(self._lease)
            if self._adopted is not None:
                self._adopted.remove_adopters(self._number)
            with suppress(OSError):
                self._machine.flock(self._lock, fcntl.LOCK_UN)
            self.abandon()
        finally:
            self._closing.release()

    def abandon(self) -> None:
        """Let go in the child of a fork: closing does not unlock while the parent holds its descriptor."""
        lock, lease, adopted = self._lock, self._lease, self._adopted
        self._lock = self._lease = -1
        if adopted is not None:
            adopted.close()
            lock = -1
        for descriptor in {lock, lease} - {-1}:
            os.close(descriptor)


def _open_own(folder: OwnerFolder) -> None:
    """Open the lock of a folder if both are ours alone."""
    # Before the lock file is made as well as after: nothing is made in the folder of another.
    if (objection := folder.objection()) is not None:
        raise NotClaimable(objection)
    try:
        try:
            folder.open_lock(os.O_RDWR)
        except FileNotFoundError:
            folder.open_lock(os.O_RDWR | os.O_CREAT)
            # No writer has ever had it: what is new is not the lease of one.
            OwnerRecord().end(folder.lock)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        msg = f"its {LOCK_NAME} is a symbolic link: no writer makes one, so look who did, and remove it"
        raise NotClaimable(msg) from None
    if (objection := folder.objection()) is not None:
        raise NotClaimable(objection)


def _succeed(folder: OwnerFolder) -> tuple[int, int]:
    """Make us the successor of a dead owner, and return our number among the adopters and the file to renew."""
    state = folder.ask(fcntl.LOCK_EX, _LOOKS)
    number = max(folder.adopters(), default=0)
    try:
        before = folder.lock if number == 0 else folder.open_adopter(number, os.O_RDWR)
    except FileNotFoundError:
        msg = "another process is just done with it"
        raise NotClaimable(msg, retry_in=1.0) from None
    try:
        record = OwnerRecord.read(before)
        left = folder.seconds_left(state, before, record)
        if left > 0:
            raise NotClaimable(*_alive(record, left, is_adopter=number > 0))
        lease = _take_number(folder, number + 1, is_excluded=state is LockState.TAKEN and folder.is_local)
        if lease < 0:
            return 0, os.dup(folder.lock)
        # For those who look later: once found dead it stays so, and they need neither a lease nor a clock.
        _note_end(record or OwnerRecord(), before)
        return number + 1, lease
    finally:
        if before != folder.lock:
            os.close(before)


def _note_end(record: OwnerRecord, file: int) -> None:
    """Say in an owner's file that it is dead, and leave its time, which is that of its last renewal."""
    renewed: os.stat_result | None = None
    with suppress(OSError):
        renewed = os.fstat(file)
    record.end(file)
    if renewed is not None:
        with suppress(OSError):
            os.utime(file, ns=(renewed.st_atime_ns, renewed.st_mtime_ns))


def _take_number(folder: OwnerFolder, number: int, *, is_excluded: bool) -> int:
    """Make the file of adopter `number` and return its descriptor; -1 where it is not needed and cannot be made."""
    msg = "another process has just begun to send it"
    try:
        lease = folder.open_adopter(number, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        raise NotClaimable(msg) from None
    except OSError as error:
        # What a full disk needs most is that somebody sends what fills it.
        if is_excluded and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return -1
        raise
    # The list that gave us the number may have been an old one of a server's client; making a file has renewed it.
    if folder.adopters()[-1:] != [number]:
        folder.remove_adopter(number)
        os.close(lease)
        raise NotClaimable(msg)
    return lease


def _alive(record: OwnerRecord | None, left: float, *, is_adopter: bool) -> tuple[str, float | None]:
    """Return why the folder of an owner that is not dead cannot be claimed, and in how many seconds it perhaps can."""
    who = f"({record or OwnerRecord()})"
    if math.isinf(left):
        return (
            f"another process {who} sends it" if is_adopter else f"its writer {who} is alive; it sends by itself",
            None,
        )
    owner = "the process that sent it" if is_adopter else "its writer"
    reason = (
        f"{owner} {who} may be alive: no lock tells here, and it was last seen {max(0.0, LEASE - left):.0f} s ago. "
        f"After {LEASE:.0f} s without a sign it is taken for dead: try again in {math.ceil(left)} s"
    )
    return reason, left


def is_owned(folder: Path, machine: Machine | None = None) -> bool:
    """Tell whether the writer of `folder` lives; True where that cannot be told.

    Cheap where the lock or the record answers; else a file is written beside them and removed.
    """
    machine = machine or Machine.this()
    try:
        found = OwnerFolder(folder, machine)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        # Only what a dead writer left is adopted; the lock is the adopter's then.
        if found.adopters():
            return False
        found.open_lock(os.O_RDONLY)
        # Shared, so that two who look at once do not take each other for the owner.
        state = found.ask(fcntl.LOCK_SH)
        return found.seconds_left(state, found.lock, OwnerRecord.read(found.lock)) > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True
    finally:
        found.close()
