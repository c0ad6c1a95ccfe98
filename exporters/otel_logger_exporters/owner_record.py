"""What the owner of a folder says of itself in its lock file, and the machine that it is compared with."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from otel_logger_exporters.clock import Clock, SystemClock
from otel_logger_exporters.filesystems import FileSystem, file_system_of

__all__ = ["Machine", "OwnerRecord"]

_LARGEST = 4096
"""Bytes of a lock file that are read: a record has some 200."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What ownership depends on outside the folder: who we are, and how locks and file systems answer here.

    `boot_id` tells one boot of one kernel from any other; it is empty on systems that have none.
    """

    host: str
    boot_id: str
    uid: int
    flock: Callable[[int, int], object] = fcntl.flock
    file_system: Callable[[Path], FileSystem] = file_system_of
    clock: Clock = SystemClock()  # noqa: RUF009 - it has no state
    pause: Callable[[float], object] = time.sleep

    @classmethod
    def this(cls) -> "Machine":
        """Return the machine that this process runs on."""
        try:
            boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except (OSError, ValueError):
            boot_id = ""
        return cls(socket.gethostname(), boot_id, os.geteuid())


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The content of a lock file: host, boot, pid and start of the owner, and whether it has given the folder up.

    `pid` and `started` (UTC) are for people: neither is unique across containers and machines.
    """

    host: str = ""
    boot_id: str = ""
    pid: int = 0
    started: str | None = None
    ended: bool = False

    @classmethod
    def of_this_process(cls, machine: Machine) -> "OwnerRecord":
        """Return the record of the process that asks."""
        return cls(machine.host, machine.boot_id, os.getpid(), _process_start(machine.clock))

    @classmethod
    def read(cls, file: int) -> "OwnerRecord | None":
        """Return what an open lock file says; None for one that is empty, torn or of another form. Raises OSError."""
        try:
            content = json.loads(os.pread(file, _LARGEST, 0))
            found = cls(**{name: content[name] for name in cls.__slots__ if name in content})
        except (ValueError, TypeError, RecursionError):
            return None
        texts = (found.host, found.boot_id, found.started or "")
        is_typed = all(type(text) is str for text in texts) and type(found.pid) is int and type(found.ended) is bool
        return found if is_typed else None

    def write(self, file: int) -> None:
        """Make this the content of an open lock file, whose time of modification becomes now. Raises OSError."""
        content = json.dumps(asdict(self)).encode("ascii") + b"\n"
        # In place: the lock is on this file, and another one in its place would be free.
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))

    def end(self, file: int) -> None:
        """Say in an open lock file that this owner has given the folder up; nothing is raised."""
        with suppress(OSError):
            replace(self, ended=True).write(file)

    def is_of_this_kernel(self, machine: Machine) -> bool:
        """Tell whether the owner is or was a process of the kernel that runs now, so that its locks are seen here."""
        # Not the name of the host where there is a boot id: each container has a name of its own.
        if machine.boot_id:
            return self.boot_id == machine.boot_id
        return not self.boot_id and self.host == machine.host

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.host else "a process that did not say which"


def _process_start(clock: Clock) -> str | None:
    """Return when this process has started; None where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        started = datetime.fromtimestamp(clock.time_ns() / 1e9 - age, timezone.utc)
    except (OSError, ValueError, IndexError, AttributeError, OverflowError):
        return None
    return started.isoformat(timespec="seconds")
