"""Time as an argument: whoever reads or waits for it takes a Clock, so that tests never wait."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the rest of the package knows of time."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...


class SystemClock:
    """The clock of this machine."""

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
