"""A thread that does nothing but look at the clock: what keeps it from that would keep the training from running."""

import os
import threading
import time
from contextlib import suppress

__all__ = ["Witness"]

_NOTED_NS = 50_000
"""Nanoseconds from which a gap is looked at; shorter ones are the interpreter's own."""


class Witness:
    """Runs while it is entered; then it has the figures of `blobs_figures.Stall`, in ms."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.waiting = 0.0
        self.working = 0.0
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="witness")

    def __enter__(self) -> "Witness":
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        clock = time.perf_counter_ns
        longest = without = at_work = 0
        descriptor = None
        with suppress(OSError):
            descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        delayed, others = _delayed_ns(descriptor), _others_ns()
        last = clock()
        while not self._is_over:
            now = clock()
            gap = now - last
            if gap > _NOTED_NS:
                longest = max(longest, gap)
                before, delayed = delayed, _delayed_ns(descriptor)
                gap -= delayed - before
                without = max(without, gap)
                before, others = others, _others_ns()
                at_work = max(at_work, min(gap, others - before))
                # What looking costs is not the process's doing.
                now = clock()
            last = now
        self.longest, self.waiting, self.working = longest / 1e6, without / 1e6, at_work / 1e6
        if descriptor is not None:
            os.close(descriptor)


def _delayed_ns(descriptor: int | None) -> int:
    """Return how long this thread has waited for a processor, in all; 0 where the kernel does not tell."""
    return int(os.pread(descriptor, 128, 0).split()[1]) if descriptor is not None else 0


def _others_ns() -> int:
    """Return the processor time of the other threads of this process."""
    return time.process_time_ns() - time.thread_time_ns()
