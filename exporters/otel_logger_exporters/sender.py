"""The sender, one background thread that steps the lanes of a writer."""

import threading
from collections.abc import Callable, Sequence

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.lane import Lane, Progress
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.threads import can_wait_for

__all__ = ["Sender"]

REPORT_INTERVAL = 15.0
"""Seconds between reports: what Prometheus' users are used to between scrapes."""

REPORT_TIMEOUT = 5.0
"""Seconds that a report may take: it is not worth more, as the next one says the same."""


class Sender:
    """Steps the lanes in turn until each is empty or must wait: every `interval` seconds, those that have an interval
    of their own by that, and for a flush all at once.

    `prepare` is called before each turn (to write what is buffered); `report`, with the seconds it may take and whether
    it is the last, every `REPORT_INTERVAL` seconds and as the last of all. The thread is a daemon: it never keeps a
    process alive, and nothing is lost by its death, because the journals are on disk.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        *,
        interval: float,
        clock: Clock,
        ledger: Ledger,
        prepare: Callable[[], None],
        report: Callable[[float, bool], None] | None = None,
    ) -> None:
        self._lanes = tuple(lanes)
        self._interval = interval
        self._clock = clock
        self._ledger = ledger
        self._prepare = prepare
        self._report = report
        self._report_at = clock.monotonic() + REPORT_INTERVAL
        self._turn_at = 0.0
        self._due: dict[Lane, float] = {}
        self._changed = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._empty = False
        self._deadline: float | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="otel_logger sender", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; where none can be started nothing is sent, and everything stays on disk."""
        try:
            self._thread.start()
        except RuntimeError as error:
            # As at the exit of the interpreter, since Python 3.12.
            if self._lanes:
                self._ledger.warn("sender", f"What is recorded stays on disk, no thread can be started: {error}")

    def flush(self, timeout: float) -> bool:
        """Attempt at once, whatever the back-off, to send everything recorded so far; return whether all was taken."""
        deadline = self._clock.monotonic() + timeout
        if not can_wait_for(self._thread):
            return False
        with self._changed:
            # One round answers all who wait, for as long as the most patient of them does.
            waiting = self._deadline if self._asked > self._answered else None
            self._deadline = deadline if waiting is None else max(deadline, waiting)
            self._asked += 1
            ticket = self._asked
            self._changed.notify_all()
            while self._answered < ticket and not self._stopped and self._thread.is_alive():
                remaining = deadline - self._clock.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(remaining)
            return self._answered >= ticket and self._empty

    def stop(self, timeout: float) -> None:
        """Let the thread end, waiting for it at most `timeout` seconds."""
        with self._changed:
            self._stopped = True
            self._deadline = self._clock.monotonic() + timeout
            self._changed.notify_all()
        if can_wait_for(self._thread):
            self._thread.join(max(0.0, timeout))

    def _run(self) -> None:
        begun = self._clock.monotonic()
        self._turn_at = begun + self._interval
        self._due = {lane: begun + self._interval_of(lane) for lane in self._lanes}
        while True:
            with self._changed:
                if self._asked == self._answered and not self._stopped:
                    self._changed.wait(max(0.0, min([self._turn_at, *self._due.values()]) - self._clock.monotonic()))
                if self._stopped:
                    break
                ticket, deadline = self._asked, self._deadline if self._asked > self._answered else None
            empty = self._round(deadline)
            if empty is None or deadline is None:
                continue
            with self._changed:
                self._answered, self._empty = ticket, empty
                self._changed.notify_all()
        timeout = REPORT_TIMEOUT if self._deadline is None else self._deadline - self._clock.monotonic()
        self._make_report(timeout, is_last=True)
        for lane in self._lanes:
            lane.close()

    def _round(self, deadline: float | None) -> bool | None:
        """Step the lanes that are due, for a flush all of them; return whether these are empty now.

        None when the round gave way to a flush or to the end.
        """
        empty = True
        begun = self._clock.monotonic()
        self._turn_at = begun + self._interval
        lanes = [lane for lane in self._lanes if deadline is not None or self._due[lane] <= begun]
        # In turn, so that the backlog of one signal does not hold up the others.
        while True:
            empty &= self._prepared()
            for lane in tuple(lanes):
                if self._stopped or (deadline is None and self._asked > self._answered):
                    return None
                progress = self._step(lane, deadline)
                if progress is Progress.DELIVERED and lane.has_caught_up:
                    # What has come since is for the next turn: a round that waits until nothing comes any more would
                    # not end while the training goes on, and send it in requests of a few values each.
                    progress = Progress.EMPTY
                if progress is not Progress.DELIVERED:
                    lanes.remove(lane)
                    empty &= progress is Progress.EMPTY
                    self._due[lane] = self._next(lane, progress, begun)
            if not lanes:
                if deadline is None and self._clock.monotonic() >= self._report_at:
                    self._make_report(REPORT_TIMEOUT)
                return empty

    def _interval_of(self, lane: Lane) -> float:
        return self._interval if lane.interval is None else lane.interval

    def _next(self, lane: Lane, progress: Progress, begun: float) -> float:
        """Return when a lane is due after a round that began at `begun`."""
        if progress is Progress.EMPTY:
            return begun + self._interval_of(lane)
        # What is held goes when it may, and does not wait for an interval that was meant for new data.
        return lane.retry_at if lane.retry_at > begun else begun + min(self._interval, self._interval_of(lane))

    def _prepared(self) -> bool:
        try:
            self._prepare()
        except Exception as error:
            self._ledger.warn("sender", f"Writing what is buffered failed: {error!r}")
            return False
        return True

    def _make_report(self, timeout: float, *, is_last: bool = False) -> None:
        self._report_at = self._clock.monotonic() + REPORT_INTERVAL
        if self._report is not None and timeout > 0:
            try:
                self._report(timeout, is_last)
            except Exception as error:
                self._ledger.warn("sender", f"Sending otel_logger's own metrics failed: {error!r}")

    def _step(self, lane: Lane, deadline: float | None) -> Progress:
        timeout = None if deadline is None else deadline - self._clock.monotonic()
        if timeout is None and self._clock.monotonic() < lane.retry_at:
            return Progress.HELD
        if timeout is not None and timeout <= 0:
            return Progress.HELD
        try:
            return lane.step(timeout)
        except Exception as error:
            # A full disk or a fault of ours in one lane must end neither the thread nor the other lanes.
            self._ledger.warn("sender", f"Sending {lane.signal.value} failed inside otel_logger: {error!r}")
            return Progress.HELD
