"""The sender steps its lanes in time, answers a flush truthfully, and lets no lane hold up another."""

import logging
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.lane import Progress
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.sender import Sender
from otel_logger_exporters.signals import Signal

EMPTY, DELIVERED, HELD = Progress.EMPTY, Progress.DELIVERED, Progress.HELD

SOON = 0.05
"""Seconds of a deadline that is meant to pass."""

PATIENCE = 10.0
"""Seconds of a deadline that is not."""


class _Lane:
    """Does what it is told: gives results in turn, then EMPTY; a result may be a function of the timeout."""

    signal = Signal.METRICS
    has_caught_up = False

    def __init__(self, *results, interval=None):
        self.results = list(results)
        self.interval = interval
        self.retry_at = 0.0
        self.timeouts = []
        self.closed = threading.Event()
        self.stepped = threading.Event()

    def step(self, timeout=None):
        self.timeouts.append(timeout)
        self.stepped.set()
        result = self.results.pop(0) if self.results else EMPTY
        return result(timeout) if callable(result) else result

    def close(self):
        self.closed.set()


class _Endless(_Lane):
    """Has always more to send."""

    def step(self, timeout=None):
        super().step(timeout)
        time.sleep(0)
        return DELIVERED


@pytest.fixture
def start():
    """Give a function that starts a sender of lanes; in the end all are stopped."""
    senders = []

    def start_sender(*lanes, interval=60.0, prepare=lambda: None):
        ledger = Ledger(SystemClock(), logging.getLogger("sender"))
        sender = Sender(lanes, interval=interval, clock=SystemClock(), ledger=ledger, prepare=prepare)
        sender.start()
        senders.append(sender)
        return sender

    yield start_sender
    for sender in senders:
        sender.stop(PATIENCE)
        assert not sender.is_alive


@pytest.fixture
def hanging():
    """Give a step that hangs until the test ends, and says that it has begun."""
    begun, release = threading.Event(), threading.Event()

    def step(_timeout):
        begun.set()
        release.wait(PATIENCE)
        return HELD

    step.begun, step.release = begun, release
    yield step
    release.set()


@pytest.fixture
def beside():
    """Give an executor for what goes on beside the test; it is asked for before `start`, so that it ends after it."""
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_a_flush_steps_every_lane_until_it_is_empty(start):
    """A flush returns True when nothing is left anywhere."""
    lanes = _Lane(DELIVERED, DELIVERED), _Lane(), _Lane(DELIVERED)
    assert start(*lanes).flush(PATIENCE)
    assert [3, 1, 2] == [len(lane.timeouts) for lane in lanes]
    assert all(0 < timeout <= PATIENCE for lane in lanes for timeout in lane.timeouts)


def test_a_flush_without_lanes_prepares(start):
    """When all signals are local, a flush is done when what was buffered is written."""
    prepared = []
    assert start(prepare=lambda: prepared.append(1)).flush(PATIENCE)
    assert prepared


def test_a_flush_attempts_whatever_the_back_off(start):
    """A lane that waits for its next attempt makes one now; whether it was taken is what the flush returns."""
    lane = _Lane(HELD)
    lane.retry_at = math.inf
    sender = start(lane)
    assert not sender.flush(PATIENCE)
    assert 1 == len(lane.timeouts)
    assert sender.flush(PATIENCE)
    assert 2 == len(lane.timeouts)


@pytest.mark.parametrize("held", [0, 1, 2])
def test_a_flush_is_true_only_if_all_lanes_are_empty(start, held):
    """One lane that must wait makes it False, whichever it is; the others are emptied."""
    lanes = [_Lane(DELIVERED) for _ in range(3)]
    lanes[held] = _Lane(HELD)
    assert not start(*lanes).flush(PATIENCE)
    assert [1 if n == held else 2 for n in range(3)] == [len(lane.timeouts) for lane in lanes]


def test_the_thread_sends_without_being_asked(start):
    """Every interval, without a deadline."""
    lane = _Lane()
    start(lane, interval=0.001)
    assert lane.stepped.wait(PATIENCE)
    assert lane.timeouts[0] is None


def test_the_thread_respects_the_back_off(start):
    """A lane in back-off is left alone while others are stepped."""
    waiting, other = _Lane(), _Lane()
    waiting.retry_at = math.inf
    rounds = threading.Semaphore(0)
    start(waiting, other, interval=0.001, prepare=rounds.release)
    for _ in range(5):
        assert rounds.acquire(timeout=PATIENCE)
    assert other.stepped.wait(PATIENCE)
    assert [] == waiting.timeouts


def test_a_lane_with_an_interval_of_its_own_is_stepped_by_that(start):
    """One that is shorter than the sender's is stepped more often, one that is longer not with the others."""
    quick, usual, rare = _Lane(interval=0.001), _Lane(), _Lane(interval=60.0)
    prepared = threading.Semaphore(0)
    sender = start(quick, usual, rare, interval=0.02, prepare=prepared.release)
    assert usual.stepped.wait(PATIENCE)
    while len(usual.timeouts) < 3:
        assert prepared.acquire(timeout=PATIENCE)
    assert len(quick.timeouts) > len(usual.timeouts)
    assert [] == rare.timeouts
    assert sender.flush(PATIENCE)
    assert 1 == len(rare.timeouts)


def test_what_is_buffered_does_not_wait_for_a_long_interval_of_a_lane(start):
    """The preparation goes on by the sender's interval."""
    prepared = threading.Semaphore(0)
    start(_Lane(interval=60.0), interval=0.001, prepare=prepared.release)
    for _ in range(5):
        assert prepared.acquire(timeout=PATIENCE)


def test_a_retry_does_not_wait_for_the_interval(start):
    """A lane whose attempt failed is stepped when its back-off is over, however long its interval and the sender's."""
    retried = threading.Event()

    def fail(_timeout):
        lane.retry_at = time.monotonic() + SOON
        return HELD

    def succeed(_timeout):
        retried.set()
        return EMPTY

    lane = _Lane(fail, succeed, interval=60.0)
    assert not start(lane).flush(PATIENCE)
    assert retried.wait(PATIENCE)
    assert time.monotonic() >= lane.retry_at


def test_a_hanging_lane_does_not_outlast_the_deadline(start, hanging):
    """A flush returns False when its time is over, wherever the thread is then."""
    sender = start(_Lane(hanging))
    begun = time.monotonic()
    assert not sender.flush(SOON)
    assert SOON <= time.monotonic() - begun < PATIENCE / 2
    hanging.release.set()


def test_a_flush_does_not_wait_for_a_hanging_attempt_of_the_thread(start, hanging):
    """Also when the thread was at it before the flush came; the flush after it is answered truly."""
    sender = start(_Lane(hanging), interval=0.001)
    assert hanging.begun.wait(PATIENCE)
    assert not sender.flush(SOON)
    hanging.release.set()
    assert sender.flush(PATIENCE)


def test_a_lane_that_fails_does_not_stop_the_others(start, caplog):
    """A fault of ours costs the lane this round, is told, and the thread lives on."""

    def fail(_timeout):
        raise RuntimeError("ouch")

    lanes = _Lane(DELIVERED), _Lane(fail), _Lane(DELIVERED)
    sender = start(*lanes)
    assert not sender.flush(PATIENCE)
    assert [2, 1, 2] == [len(lane.timeouts) for lane in lanes]
    assert "Sending metrics failed inside otel_logger: RuntimeError('ouch')" in caplog.text
    assert sender.flush(PATIENCE)


def test_a_preparation_that_fails_does_not_stop_the_lanes(start, caplog):
    """What is on disk already goes out; the flush is not True, since something could not be written."""

    def fail():
        raise OSError("disk full")

    lane = _Lane(DELIVERED)
    assert not start(lane, prepare=fail).flush(PATIENCE)
    assert 2 == len(lane.timeouts)
    assert "Writing what is buffered failed: OSError('disk full')" in caplog.text


def test_a_backlog_of_one_lane_does_not_starve_another(start):
    """Lanes are stepped in turn: behind one without an end the others are emptied all the same."""
    endless, behind = _Endless(), _Lane(DELIVERED, DELIVERED)
    assert not start(endless, behind).flush(SOON)
    assert 3 == len(behind.timeouts)
    assert len(endless.timeouts) > 3


def test_a_round_without_deadline_gives_way_to_a_flush(start):
    """A backlog that takes hours does not keep a flush from its own attempt."""
    endless = _Endless()
    sender = start(endless, interval=0.001)
    assert endless.stepped.wait(PATIENCE)
    assert not sender.flush(SOON)
    assert None in endless.timeouts
    assert any(timeout is not None for timeout in endless.timeouts)


def test_buffers_are_written_between_the_steps_of_a_backlog(start):
    """What is recorded meanwhile does not stay in memory until the backlog is gone."""
    prepared = threading.Semaphore(0)
    start(_Endless(), interval=0.001, prepare=prepared.release)
    for _ in range(10):
        assert prepared.acquire(timeout=PATIENCE)


def test_an_impatient_flush_does_not_cut_a_patient_one_short(beside, start, hanging):
    """Of two that wait at once each has its own time."""
    lane = _Lane(hanging)
    sender = start(lane, interval=0.001)
    assert hanging.begun.wait(PATIENCE)
    patient = beside.submit(sender.flush, PATIENCE)
    with sender._changed:
        assert sender._changed.wait_for(lambda: sender._asked == 1, PATIENCE)
    assert not sender.flush(SOON)
    hanging.release.set()
    assert patient.result(PATIENCE)
    assert lane.timeouts[-1] > 1


def test_the_end_releases_who_waits(beside, start, hanging):
    """A flush under way is answered with False when the sender is stopped, long before its own deadline."""
    sender = start(_Lane(hanging), interval=0.001)
    assert hanging.begun.wait(PATIENCE)
    flush = beside.submit(sender.flush, 1000)
    with sender._changed:
        assert sender._changed.wait_for(lambda: sender._asked == 1, PATIENCE)
    sender.stop(0.0)
    assert not flush.result(PATIENCE)
    assert sender.is_alive
    hanging.release.set()


def test_the_end_does_not_wait_for_a_backlog(start):
    """Stopping ends the thread after the step that it is at, and closes every lane."""
    lanes = _Endless(), _Lane()
    sender = start(*lanes, interval=0.001)
    assert lanes[0].stepped.wait(PATIENCE)
    sender.stop(PATIENCE)
    assert not sender.is_alive
    assert all(lane.closed.is_set() for lane in lanes)


def test_a_flush_without_a_thread_returns_at_once(start):
    """Before the start and after the end there is nobody to wait for."""
    sender = Sender(
        [_Lane()], interval=1, clock=SystemClock(), ledger=Ledger(SystemClock(), logging.getLogger()), prepare=print
    )
    assert not sender.flush(1000)
    stopped = start(_Lane())
    stopped.stop(PATIENCE)
    assert not stopped.flush(1000)


def test_flushes_of_several_threads_are_all_answered(beside, start):
    """However they meet, each gets its answer."""
    sender = start(_Lane(), interval=0.001)

    def flush_often():
        return [sender.flush(PATIENCE) for _ in range(200)]

    assert [[True] * 200] * 2 == [future.result() for future in [beside.submit(flush_often) for _ in range(2)]]


def test_a_lane_that_has_caught_up_is_done_for_the_turn(start):
    """While the training goes on something more has always come: it is sent together at the next turn."""
    lane = _Endless()
    lane.has_caught_up = True
    sender = start(lane)
    for count in (1, 2, 3):
        assert sender.flush(PATIENCE)
        assert count == len(lane.timeouts)
