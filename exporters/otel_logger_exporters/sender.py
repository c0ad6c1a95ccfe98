"""The sender, one background thread that steps the lanes of a writer."""

import sys
import threading
from collections.abc import Callable, Sequence

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.lane import Lane, Progress
from otel_logger_exporters.ledger import Ledger

__all__ = ["Sender"]


class Sender:
    """Steps each lane every `interval` seconds until it is empty or must wait; a flush does so at once.

    `prepare` is called before each round (to write what is buffered). The thread is a daemon: it never keeps a
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
    ) -> None:
        self._lanes = tuple(lanes)
        self._interval = interval
        self._clock = clock
        self._ledger = ledger
        self._prepare = prepare
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
        """Start the thread."""
        self._thread.start()

    def flush(self, timeout: float) -> bool:
        """Attempt at once, whatever the back-off, to send everything recorded so far; return whether all was taken."""
        deadline = self._clock.monotonic() + timeout
        # At interpreter exit daemon threads are gone, and waiting for one would be for ever.
        if not self._thread.is_alive() or sys.is_finalizing():
            return False
        with self._changed:
            self._asked += 1
            ticket = self._asked
            self._deadline = deadline
            self._changed.notify_all()
            while self._answered < ticket and self._thread.is_alive():
                remaining = deadline - self._clock.monotonic()
                if remaining <= 0:
                    return False
                self._changed.wait(remaining)
            return self._answered >= ticket and self._empty

    def stop(self, timeout: float) -> None:
        """Let the thread end, waiting for it at most `timeout` seconds."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive() and not sys.is_finalizing():
            self._thread.join(max(0.0, timeout))

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._asked == self._answered and not self._stopped:
                    self._changed.wait(self._interval)
                if self._stopped:
                    break
                ticket, deadline = self._asked, self._deadline if self._asked > self._answered else None
            empty = self._round(deadline)
            with self._changed:
                self._answered, self._empty = ticket, empty
                self._changed.notify_all()
        for lane in self._lanes:
            lane.close()

    def _round(self, deadline: float | None) -> bool:
        empty = True
        try:
            self._prepare()
        except Exception as error:
            self._ledger.warn("sender", f"Writing what is buffered failed: {error!r}")
            empty = False
        for lane in self._lanes:
            try:
                empty &= self._drain(lane, deadline)
            except Exception as error:
                # A full disk or a fault of ours in one lane must end neither the thread nor the other lanes.
                self._ledger.warn("sender", f"Sending {lane.signal.value} failed inside otel_logger: {error!r}")
                empty = False
        return empty

    def _drain(self, lane: Lane, deadline: float | None) -> bool:
        """Return whether the lane is empty now."""
        if deadline is None and self._clock.monotonic() < lane.retry_at:
            return False
        while not self._stopped:
            timeout = None if deadline is None else deadline - self._clock.monotonic()
            if timeout is not None and timeout <= 0:
                return False
            progress = lane.step(timeout)
            if progress is not Progress.DELIVERED:
                return progress is Progress.EMPTY
        return False
