"""Time stamps of metrics: one per call and process, never backwards, a millisecond apart where the clock allows."""

from collections.abc import Callable

__all__ = ["Stamper"]

LONGEST_LEAD = 60_000
"""Units (ms or ns) that stamps may run ahead of the clock in a burst. Prometheus refuses points over 10 minutes ahead,
and a point in the future is not seen by a query at now."""


class Stamper:
    """Gives each call its time: `t = max(last, min(max(now, last + 1), now + 60 000))` in whole milliseconds.

    Prometheus keeps one value per series and millisecond and rolls a whole request back otherwise, so calls are set
    one millisecond apart; a burst runs at most a minute ahead of the clock and then shares its last millisecond.
    With `nanoseconds` the unit is the nanosecond. Not thread-safe: its caller holds the recorder's lock.
    """

    def __init__(self, time_ns: Callable[[], int], *, nanoseconds: bool = False) -> None:
        self._time_ns = time_ns
        self._unit = 1 if nanoseconds else 1_000_000
        self._last = 0

    def stamp(self) -> int:
        """Return the time of a call that is made now, in nanoseconds since the epoch."""
        now = self._time_ns() // self._unit
        self._last = max(self._last, min(max(now, self._last + 1), now + LONGEST_LEAD))
        return self._last * self._unit
