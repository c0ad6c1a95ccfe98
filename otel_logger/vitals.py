"""The vital signs of a writer: what the run does and where it is, recorded at each heartbeat until its end."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from otel_logger.activity import Activity
from otel_logger.conventions import SCHEMA_URL
from otel_logger.heartbeat import Heartbeat
from otel_logger.identity import Identity
from otel_logger.liveness import measure_liveness
from otel_logger.recorder import Recorder
from otel_logger.self_metrics import measure_delivery
from otel_logger.settings import Settings
from otel_logger.trainer import Position
from otel_logger.vocabulary import SCOPE, ended_values
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.ledger import Ledger, Stats
from otel_logger_exporters.measurements import Measurement, divide, encode_measurements
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.signals import Signal

__all__ = ["Vitals"]

MOST_POINTS = 1000
"""Points of measurements in one frame, of about 100 bytes each: a frame is sent in one piece."""


class Vitals:
    """Puts measurements of one writer into its journal of metrics, from `start`, when the resource is bound, to `end`.

    `lasting` returns measurements that seldom change; `recorder` is None for a rank whose metrics are not recorded.
    Thread-safe.
    """

    def __init__(
        self,
        outbox: Outbox,
        recorder: Recorder | None,
        position: Position,
        lasting: Callable[[], list[Measurement]],
        clock: Clock,
        ledger: Ledger,
        settings: Settings,
    ) -> None:
        self.activity = Activity(clock)
        self._outbox = outbox
        self._recorder = recorder
        self._position = position
        self._lasting = lasting
        self._clock = clock
        self._ledger = ledger
        self._settings = settings
        self._started_ns = clock.time_ns()
        self._identity: Identity | None = None
        self._noted: tuple[int | None, int | None] = (None, None)
        self._heartbeat = Heartbeat(
            self._measure, lasting, self._put, clock, ledger, settings.heartbeat_interval / 1000
        )

    def open(self) -> None:
        """Start the thread that tells it."""
        self._heartbeat.open()

    def start(self, identity: Identity) -> None:
        """Begin to tell that the run of this identity lives."""
        self._identity = identity
        self._heartbeat.start()

    def note_values(self) -> None:
        """Take note that metrics are logged: without a trainer, this is how a training is known."""
        if not self._position.has_trainer:
            self.activity.note_training()

    def note_step(self, step: int) -> None:
        """Take note of the step of a call whose values are not recorded."""
        self._noted = step, self._clock.time_ns()

    def last_step(self) -> tuple[int | None, int | None]:
        """Return the trainer's step, or the last that was logged, and when it was over (ns); None for none."""
        if self._position.has_trainer:
            return self._position.step(), self.activity.batch_end_ns
        if self._recorder is not None:
            return self._recorder.last_step, self._recorder.last_step_ns
        return self._noted

    def renew(self, ended: Measurement) -> None:
        """Record anew what lasts, because it has changed, and the end of what is not so any more."""
        self._heartbeat.renew([ended])

    def measure(self) -> list[Measurement]:
        """Return everything of this moment, for a scrape; nothing before `start`."""
        if self._identity is None:
            return []
        return [*self._measure(), *self._lasting(), *measure_delivery(self._ledger.stats(self._outbox.sent))]

    def end(self) -> None:
        """Record the end of every series: a backend would show the last value of each on, as if it were of now."""
        for end in (self._heartbeat.end, self._end_values):
            try:
                end()
            except Exception as error:
                # What is recorded is still to be sent.
                self._ledger.warn("series", f"The end of series failed inside otel_logger: {error!r}")

    def stop(self) -> None:
        """Let the thread end."""
        self._heartbeat.stop()

    def abandon(self) -> None:
        """Tell nothing more in the child of a fork, whose parent goes on to."""
        self.activity.abandon()
        self._heartbeat.abandon()

    def encode_delivery(self, stats: Stats, is_last: bool) -> bytes:
        """Return what became of the data as an encoded ScopeMetrics; the last also ends its series."""
        measurements, now = measure_delivery(stats), self._clock.time_ns()
        encoded = self._encode(measurements, now)
        if is_last:
            ended = [replace(measurement, has_ended=True) for measurement in measurements]
            # Messages of protobuf put one behind the other are one.
            encoded += self._encode(ended, now + 1_000_000)
        return encoded

    def _end_values(self) -> None:
        if self._recorder is not None:
            time_ns, keys = self._recorder.end()
            with_steps = self._recorder.last_step is not None
            # Stamps may be nanoseconds, of which measurements keep the milliseconds.
            self._put(ended_values(keys, self._settings, with_steps=with_steps), time_ns + 1_000_000)

    def _measure(self) -> list[Measurement]:
        if self._identity is None:
            return []
        return measure_liveness(self._identity, self.activity, self._position, *self.last_step())

    def _put(self, measurements: Iterable[Measurement], time_ns: int) -> None:
        for part in divide(measurements, MOST_POINTS):
            # No items of anybody's: the counts of metrics are those of the values that were logged.
            self._outbox.put(Signal.METRICS, Frame(0, self._encode(part, time_ns)))

    def _encode(self, measurements: Iterable[Measurement], time_ns: int) -> bytes:
        return encode_measurements(
            measurements, time_ns=time_ns, start_ns=self._started_ns, scope=SCOPE, schema_url=SCHEMA_URL
        )
