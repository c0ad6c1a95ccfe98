"""A lookout: a question to the disk that is asked in the background, so that its answer is there when it is wanted."""

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from otel_logger_exporters.threads import can_wait_for

__all__ = ["LONGEST_LOOK", "Lookout"]

LONGEST_LOOK = 5.0
"""Seconds that a call waits at most for what was asked."""

T = TypeVar("T")


class Lookout(Generic[T]):
    """Asks `look` in a daemon thread from construction on."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._answers: list[T] = []
        self._thread = threading.Thread(target=self._run, name="otel_logger lookout", daemon=True)
        # Since Python 3.12 none starts at the exit of the interpreter.
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def answer(self, timeout: float) -> T | None:
        """Return the answer, None when it is not there after `timeout` seconds; asks anew where the thread has none."""
        if can_wait_for(self._thread):
            self._thread.join(timeout)
            if self._thread.is_alive():
                return None
        return self._answers[0] if self._answers else self._look()

    def _run(self) -> None:
        # What fails here fails again where somebody waits for it, who knows what to do about it.
        with contextlib.suppress(Exception):
            self._answers.append(self._look())
