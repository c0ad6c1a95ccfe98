"""The heartbeat records what is known at regular times, and ends every series that it began."""

import logging

from otel_logger.heartbeat import LASTING_INTERVAL, Heartbeat
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Instrument, Measurement

STEP = Instrument("step")
INFO = Instrument("info")


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Return the seconds of the clock."""
        return self.now

    def time_ns(self) -> int:
        """Return the time in nanoseconds."""
        return round(self.now * 1e9)


class Body:
    """A heartbeat with what it measures and what it has recorded: per record its time and points by instrument."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.ledger = Ledger(self.clock, logging.getLogger("otel_logger"))
        self.step: int | None = 1
        self.info = "a"
        self.records: list[tuple[int, dict[str, dict]]] = []
        self.ends: list[set] = []
        self.heartbeat = Heartbeat(self.measure, self.lasting, self.put, self.clock, self.ledger, 3600.0)

    def measure(self) -> list[Measurement]:
        """Return the step; there is none at times, and 0 stands for a fault."""
        if self.step == 0:
            raise RuntimeError("the state changes meanwhile")
        return [Measurement(STEP, {} if self.step is None else {(): self.step})]

    def lasting(self) -> list[Measurement]:
        """Return what does not change."""
        return [Measurement(INFO, {(("key", self.info),): 1})]

    def put(self, measurements, time_ns: int) -> None:
        """Keep what is recorded."""
        measurements = list(measurements)
        self.records.append((time_ns, {m.instrument.name: dict(m.points) for m in measurements if not m.has_ended}))
        self.ends.append({(m.instrument.name, a) for m in measurements if m.has_ended for a in m.points})

    @property
    def told(self) -> list[dict]:
        """Return the points of each record."""
        return [points for _, points in self.records]


def started() -> Body:
    """Return a body whose heartbeat has begun; its thread has not."""
    body = Body()
    body.heartbeat.start()
    return body


def test_it_beats_at_once_and_repeats_seldom_what_lasts() -> None:
    """What does not change is told again before a backend takes it for gone."""
    body = started()
    body.clock.now += LASTING_INTERVAL - 1
    body.heartbeat.beat()
    body.clock.now += 1
    body.heartbeat.beat()
    whole = {"step": {(): 1}, "info": {(("key", "a"),): 1}}
    assert [whole, {"step": {(): 1}}, whole] == body.told


def test_nothing_is_recorded_before_it_starts_and_after_it_has_ended() -> None:
    """No metric comes before the resource is bound, nor after the end of its series."""
    body = Body()
    body.heartbeat.beat()
    body.heartbeat.renew()
    body.heartbeat.end()
    assert [] == body.records
    body = started()
    body.heartbeat.end()
    count = len(body.records)
    body.heartbeat.beat()
    body.heartbeat.renew()
    body.heartbeat.end()
    assert count == len(body.records)


def test_the_end_is_told_of_every_series_once_and_after_the_last_value() -> None:
    """A value that has vanished in between has a series all the same; one that has ended already has none."""
    body = started()
    body.info = "b"
    body.heartbeat.renew([Measurement(INFO, {(("key", "a"),): 1}, has_ended=True)])
    body.step = None
    body.heartbeat.end()
    assert {("step", ()), ("info", (("key", "b"),))} == body.ends[-1]
    times = [time_ns for time_ns, _ in body.records]
    assert sorted(set(times)) == times
    assert all(time_ns % 1_000_000 == 0 for time_ns in times)


def test_a_failing_measurement_costs_one_beat(caplog) -> None:
    """A trainer's state is read while it changes; the next beat comes all the same."""
    body = started()
    body.step = 0
    body.heartbeat.beat()
    body.step = 7
    body.heartbeat.beat()
    assert [{(): 1}, {(): 7}] == [points["step"] for points in body.told]
    assert ["A heartbeat failed inside otel_logger: RuntimeError('the state changes meanwhile')"] == caplog.messages


def test_a_forked_child_beats_no_more() -> None:
    """The parent's series are the parent's."""
    body = started()
    body.heartbeat.abandon()
    body.heartbeat.beat()
    body.heartbeat.end()
    assert 1 == len(body.records)
