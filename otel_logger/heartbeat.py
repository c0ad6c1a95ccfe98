"""The heartbeat, which records what is known of a run at regular times until its end ends the series."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from otel_logger.stamps import Stamper
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Attributes, Instrument, Measurement
from otel_logger_exporters.upkeep import Upkeep

__all__ = ["Heartbeat"]

LOOK_BACK: Final = 300.0
"""Seconds that Prometheus looks back for the value of a series."""

LASTING_INTERVAL: Final = 240.0
"""Seconds between repetitions of what does not change, where that is so often that none is missing."""

PATIENCE: Final = 1.0
"""Seconds for which the end waits for a beat that is under way."""


class Heartbeat:
    """Records measurements when it starts and then every `interval` seconds, in a thread of its own.

    So it goes on when the training hangs. `measure` returns those of each beat, `lasting` those that seldom change,
    which are recorded every `LASTING_INTERVAL` seconds; `put` records measurements with their time. Thread-safe.
    """

    def __init__(
        self,
        measure: Callable[[], list[Measurement]],
        lasting: Callable[[], list[Measurement]],
        put: Callable[[Iterable[Measurement], int], None],
        clock: Clock,
        ledger: Ledger,
        interval: float,
    ) -> None:
        self._measure = measure
        self._lasting = lasting
        self._put = put
        self._clock = clock
        self._ledger = ledger
        self._interval = interval
        self._stamper = Stamper(clock.time_ns)
        self._stamped_ns = 0
        self._renewals: deque[list[Measurement]] = deque()
        self._series: dict[Instrument, dict[Attributes, float | int]] = {}
        # Reentrant: a signal handler may close the logger within.
        self._lock = threading.RLock()
        self._is_beating = False
        self._lasting_at: float | None = None
        self._upkeep = Upkeep(self.beat, interval=interval)

    def open(self) -> None:
        """Start the thread, ahead of time: to start one takes longer than what else `start` does."""
        self._upkeep.start()

    def start(self) -> None:
        """Begin, with a beat as soon as the thread comes to it: the caller is the training's first call."""
        self._is_beating = True
        self._upkeep.wake()

    def beat(self) -> None:
        """Record what is known now, unless the heartbeat has not begun or has ended; never raises."""
        with self._lock:
            if not self._is_beating:
                return
            now = self._clock.monotonic()
            try:
                while self._renewals:
                    self._lasting_at = now
                    self._record(self._renewals.popleft())
                # At this beat, where the next would be too late for it.
                wait = min(LASTING_INTERVAL, LOOK_BACK - self._interval)
                is_due = self._lasting_at is None or now - self._lasting_at >= wait
                self._record(self._measure() + (self._lasting() if is_due else []))
            except Exception as error:
                # What is measured reads a trainer's state while the trainer changes it.
                self._ledger.warn("heartbeat", f"A heartbeat failed inside otel_logger: {error!r}")
            else:
                self._lasting_at = now if is_due else self._lasting_at

    def renew(self, ended: Iterable[Measurement] = ()) -> None:
        """Have what lasts recorded anew soon, because it has changed, and that `ended` is over.

        By the thread: a beat may be under way, and what it measures wait for a lock that the caller holds.
        """
        if self._is_beating:
            self._renewals.append([*ended, *self._lasting()])
            self._upkeep.wake()

    def end(self) -> None:
        """Record what is known a last time, and the end of every series; then the heart beats no more."""
        # A trainer's state may hang whoever measures, and at the exit of the interpreter threads vanish with locks.
        lock = self._lock
        if not lock.acquire(timeout=PATIENCE):
            self._is_beating = False
            return
        try:
            if self._is_beating:
                self.beat()
                self._is_beating = False
                ended = [Measurement(i, points, has_ended=True) for i, points in self._series.items()]
                self._put(ended, self._stamp())
        finally:
            lock.release()

    def stop(self) -> None:
        """Let the thread end."""
        self._upkeep.stop()

    def abandon(self) -> None:
        """Beat no more in the child of a fork, where the parent's lock may be held for ever."""
        self._lock = threading.RLock()
        self._is_beating = False

    def _record(self, measurements: list[Measurement]) -> None:
        if not self._is_beating:
            # It has ended while this was measured.
            return
        for measurement in measurements:
            series = self._series.setdefault(measurement.instrument, {})
            if measurement.has_ended:
                for attributes in measurement.points:
                    series.pop(attributes, None)
            else:
                series.update(measurement.points)
        self._put(measurements, self._stamp())

    def _stamp(self) -> int:
        # Later than the last one also where the clock has been set back by more than a stamper makes up for: points of
        # a series that share a time are refused.
        self._stamped_ns = max(self._stamper.stamp(), self._stamped_ns + 1_000_000)
        return self._stamped_ns
