"""The heartbeat records what is known at regular times, and ends every series that it began."""

import logging
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from otel_logger import heartbeat
from otel_logger.heartbeat import LASTING_INTERVAL, LOOK_BACK, Heartbeat
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Instrument, Measurement

STEP = Instrument("step")
INFO = Instrument("info")


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100_000.0
        self.lag = 0.0

    def monotonic(self) -> float:
        """Return the seconds of the clock."""
        return self.now

    def time_ns(self) -> int:
        """Return the time in nanoseconds."""
        return round((self.now - self.lag) * 1e9)


class Body:
    """A heartbeat with what it measures and what it has recorded: per record its time and points by instrument."""

    def __init__(self, interval: float = 3600.0) -> None:
        self.clock = Clock()
        self.ledger = Ledger(self.clock, logging.getLogger("otel_logger"))
        self.step: int | None = 1
        self.info = "a"
        self.meanwhile: Callable[[], object] = lambda: None
        self.records: list[tuple[int, dict[str, dict]]] = []
        self.ends: list[set] = []
        self.heartbeat = Heartbeat(self.measure, self.lasting, self.put, self.clock, self.ledger, interval)

    def measure(self) -> list[Measurement]:
        """Return the step; there is none at times, and 0 stands for a fault."""
        self.meanwhile()
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


def started(interval: float = 15.0) -> Body:
    """Return a body whose heart has beaten once; its thread has not begun."""
    body = Body(interval)
    body.heartbeat.start()
    body.heartbeat.beat()
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


@pytest.mark.parametrize("interval", [15.0, 61.0, 200.0, 300.0, 3600.0])
def test_what_lasts_is_never_missing_for_longer_than_it_must(interval: float) -> None:
    """A backend has forgotten it after `LOOK_BACK` seconds, also where the heart beats slowly."""
    body = started(interval)
    for _ in range(round(3600 / interval)):
        body.clock.now += interval
        body.heartbeat.beat()
    times = [time_ns / 1e9 for time_ns, points in body.records if "info" in points]
    assert max(after - before for before, after in pairwise(times)) <= max(LOOK_BACK, interval)


def test_no_two_records_share_a_time_when_the_clock_is_set_back() -> None:
    """Prometheus refuses a request with two values of one series and millisecond."""
    body = started()
    body.clock.lag = 3000.0
    for _ in range(3):
        body.clock.now += 15.0
        body.heartbeat.beat()
    body.heartbeat.end()
    times = [time_ns // 1_000_000 for time_ns, _ in body.records]
    assert 6 == len(times)
    assert sorted(set(times)) == times


def test_what_has_changed_is_recorded_by_the_thread() -> None:
    """Who logs a hyperparameter waits for no beat; every value that there was is recorded, and its end."""
    body = started()
    for info in "bcb":
        before, body.info = body.info, info
        body.heartbeat.renew([Measurement(INFO, {(("key", before),): 1}, has_ended=True)])
    assert 1 == len(body.records)
    body.heartbeat.beat()
    of_info = [points["info"] for points in body.told if "info" in points]
    assert [{(("key", info),): 1} for info in "abcb"] == of_info
    assert [{("info", (("key", info),))} for info in "abc"] == [ends for ends in body.ends if ends]


def test_a_measurement_that_hangs_does_not_keep_the_end_waiting(monkeypatch) -> None:
    """Nor who has something to be recorded anew; what it measures at last is recorded no more."""
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.01)
    body = started()
    begun, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        goes_on.wait(10.0)

    body.meanwhile = hang
    thread = threading.Thread(target=body.heartbeat.beat)
    thread.start()
    begun.wait(10.0)
    body.heartbeat.renew()
    body.heartbeat.end()
    goes_on.set()
    thread.join()
    assert 1 == len(body.records)


def test_an_end_within_a_beat_is_the_last_record() -> None:
    """A collection of garbage may close the logger while the heart beats."""
    body = started()

    def close() -> None:
        body.meanwhile = lambda: None
        body.heartbeat.end()

    body.meanwhile = close
    body.heartbeat.beat()
    assert body.ends[-1]


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
