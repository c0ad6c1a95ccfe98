"""The workbench, a background thread for what is too slow for the training's: encoding images and tables."""

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.errors import quoted
from otel_logger_exporters.ledger import Ledger

__all__ = ["Workbench"]

LARGEST_QUEUE = 256 * 2**20
"""Bytes of snapshots that may wait in memory; beyond it the newest is lost and counted, for the host's memory is the
training's. One alone may be larger: the caller has one like it. What a job puts is always taken: it is made of what
that holds, and was let in with it."""


class Workbench:
    """Does jobs one after another, in order.

    The thread is a daemon and starts with the first job: a logger that stores nothing has none. Where none can be
    started, as at the exit of the interpreter since Python 3.12, `drain` does the jobs itself.
    """

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()
        self._bytes = 0
        self._busy = False
        self._worker: threading.Thread | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None], size: int = 0) -> bool:
        """Add a job that holds `size` bytes; return False, without adding it, when too much waits already."""
        with self._changed:
            is_full = size and self._bytes and self._bytes + size > LARGEST_QUEUE
            if self._stopped or (is_full and threading.current_thread() is not self._worker):
                return False
            self._jobs.append((job, size))
            self._bytes += size
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="otel_logger encoder", daemon=True)
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()
            return True

    def drain(self, timeout: float) -> int:
        """Wait until all jobs are done, at most `timeout` seconds; return how many are left."""
        deadline = self._clock.monotonic() + timeout
        if self._thread is None:
            while self._clock.monotonic() < deadline and self._do_next():
                pass
        if threading.current_thread() is self._thread:
            # A job of the caller's closes the logger, or a collection of garbage that it sets off: it cannot wait for
            # itself.
            return len(self._jobs)
        with self._changed:
            self._changed.notify_all()
            while (self._jobs or self._busy) and not sys.is_finalizing():
                remaining = deadline - self._clock.monotonic()
                is_over = self._thread is None or not self._thread.is_alive() or (self._stopped and not self._busy)
                if remaining <= 0 or is_over:
                    break
                self._changed.wait(remaining)
            return len(self._jobs) + self._busy

    def stop(self) -> int:
        """Take no more jobs, and end the thread after the one it is at; return how many are left undone."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            return len(self._jobs) + self._busy

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._stopped or self._jobs):
                    self._changed.wait()
                if self._stopped:
                    return
            self._do_next()

    def _do_next(self) -> bool:
        with self._changed:
            if self._stopped or not self._jobs:
                return False
            job, size = self._jobs.popleft()
            self._busy = True
            self._worker = threading.current_thread()
        try:
            job()
        except BaseException as error:
            # BaseException: a panic of Rust code is one, and would end the thread with all that waits.
            self._ledger.drop("blob", 1, f"An image or table could not be encoded: {quoted(error)}")
        # Dropped before the wait for the next: a job holds its snapshot.
        del job
        with self._changed:
            self._bytes -= size
            self._busy = False
            self._worker = None
            self._changed.notify_all()
        return True
