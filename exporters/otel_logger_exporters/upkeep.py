"""The upkeep, a background thread that does on the disk what callers must not wait for."""

import contextlib
import queue
import threading
from collections.abc import Callable

from otel_logger_exporters.threads import can_wait_for

__all__ = ["Upkeep"]


class Upkeep:
    """Carries out `action` every `interval` seconds, and soon after `wake` was called.

    The thread is a daemon. `action` must not raise. `wake` may be called from a signal handler, also from one that
    interrupts another `wake`.
    """

    def __init__(self, action: Callable[[], object], *, interval: float) -> None:
        self._action = action
        self._interval = interval
        # Its `put` is the one signal between threads that is documented to be reentrant.
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_called = False
        self._thread = threading.Thread(target=self._run, name="otel_logger upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread, where one can be started: at the exit of the interpreter, since Python 3.12, none can."""
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def wake(self) -> None:
        """Have the action carried out soon."""
        if not self._is_called:
            self._is_called = True
            self._calls.put(True)

    def stop(self, timeout: float = 0.0) -> None:
        """Let the thread end when its present action has, waiting for that at most `timeout` seconds."""
        self._calls.put(False)
        if can_wait_for(self._thread):
            self._thread.join(max(0.0, timeout))

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = self._calls.get(timeout=self._interval)
            except queue.Empty:
                pass
            self._is_called = False
            if goes_on:
                self._action()
