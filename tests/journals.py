"""What tests of journals share: a clock that stands still, a disk that is full, what files hold, and children."""

import os
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from otel_logger_exporters.journal import Journal
from otel_logger_exporters.records import Kind
from otel_logger_exporters.segments import Segment, is_begun, read_segment, segments_of
from otel_logger_exporters.signals import Signal

WRITER = bytes(range(16))

_DISK = {"posix", "_io", "mmap", "fcntl", "time"}

SEGMENT_SIZE = 2**16
"""Bytes of the segments of tests: a file of that is made in no time."""

CHILD_SECONDS = 10
"""After which a child that hangs is killed."""


class StandingClock:
    """A clock that stands still."""

    def time_ns(self) -> int:
        """Return a time in 2023."""
        return 1_700_000_000_000_000_000

    def monotonic(self) -> float:
        """Return zero."""
        return 0.0


def journal_in(folder: Path, signal: Signal = Signal.METRICS, *, mapped: bool = True, **options: Any) -> Journal:
    """Return a journal of a folder, with segments that are made in no time."""
    return Journal(
        folder, signal, WRITER, clock=StandingClock(), mapped=mapped, **{"segment_size": SEGMENT_SIZE, **options}
    )


@contextmanager
def disk_with(size: int) -> Iterator[None]:
    """Let no file of this process grow over `size` bytes: a write that would is cut there, as by a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files(folder: Path, signal: Signal = Signal.METRICS) -> list[Path]:
    """Return the files of a signal, those prepared for later too, oldest first."""
    return [path for _, path in segments_of(folder, signal)]


def segments(folder: Path, signal: Signal = Signal.METRICS) -> list[Segment]:
    """Return the segments of a signal that are begun, oldest first; each of them must be one."""
    found = [read_segment(path.read_bytes()) for path in files(folder, signal) if is_begun(path)]
    assert None not in found
    return [segment for segment in found if segment is not None]


def payloads(folder: Path, kind: Kind = Kind.OTLP, signal: Signal = Signal.METRICS) -> list[bytes]:
    """Return the payloads of a kind in all segments."""
    return [bytes(r.payload) for segment in segments(folder, signal) for r in segment.records if r.kind == kind]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Return distinct payloads of ten bytes."""
    return [b"%010d" % number for number in range(start, start + count)]


@contextmanager
def tending(*journals: Journal) -> Iterator[None]:
    """Tend journals in a thread, without a pause; what it raises is raised in the end."""
    stopped = threading.Event()
    raised: list[Exception] = []

    def tend() -> None:
        while not stopped.is_set():
            for journal in journals:
                try:
                    journal.tend()
                except Exception as error:
                    raised.append(error)

    thread = threading.Thread(target=tend)
    interval = sys.getswitchinterval()
    # Threads take turns at more places so, and sooner.
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        sys.setswitchinterval(interval)
    if raised:
        raise raised[0]


def touched(action: Callable[[], object]) -> list[str]:
    """Return the C functions by which `action` touches the disk, or waits."""
    called = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ in _DISK:
            called.append(f"{function.__module__}.{function.__name__}")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return called


def fork() -> int:
    """Fork without Python's warning (3.12) of what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(action: Callable[[], object]) -> int:
    """Fork, carry out `action` in the child alone, and return its exit code: 0 if it raised nothing."""
    child = fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CHILD_SECONDS)
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
