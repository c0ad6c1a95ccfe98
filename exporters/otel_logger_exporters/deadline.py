"""A deadline, the end of the time that a request has in all: name, connection, handshake, request and response."""

import math

from otel_logger_exporters.clock import Clock

__all__ = ["Deadline"]


class Deadline:
    """When what is under way has to be over: never, until it is set. Set anew for each request, by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = math.inf

    def set(self, timeout: float) -> None:
        """Give what begins now `timeout` seconds."""
        self._at = self._clock.monotonic() + timeout

    def remaining(self) -> float:
        """Return the seconds that are left; raises TimeoutError when there are none."""
        seconds = self._at - self._clock.monotonic()
        if seconds <= 0:
            msg = "the time is up"
            raise TimeoutError(msg)
        return seconds
