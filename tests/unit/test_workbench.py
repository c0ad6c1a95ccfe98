"""Jobs are done one after another in the background, within bounds, and a failing one costs itself."""

import gc
import logging
import threading
import weakref

import pytest

from otel_logger import workbench
from otel_logger.workbench import Workbench
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.errors import quoted
from otel_logger_exporters.ledger import Ledger

LONG = 10.0
"""Seconds that nothing here takes unless it hangs."""


class _Case:
    def __init__(self):
        self.done = []
        self.clock = SystemClock()
        self.ledger = Ledger(self.clock, logging.getLogger("test"))
        self.bench = Workbench(self.clock, self.ledger)

    def job(self, name):
        return lambda: self.done.append(name)

    @property
    def dropped(self):
        return self.ledger.stats(frozenset()).dropped


@pytest.fixture
def case():
    """A bench that is stopped in the end."""
    made = _Case()
    yield made
    made.bench.stop()


class _Gate:
    """A job that is under way until it is let go."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.entered.set()
        assert self.opened.wait(LONG)


def test_jobs_are_done_in_order_on_a_thread_of_their_own(case):
    """Every job is done once, in the order of putting, and not by the caller."""
    threads = []
    for name in range(50):
        assert case.bench.put(case.job(name))
        assert case.bench.put(lambda: threads.append(threading.current_thread()))
    assert 0 == case.bench.drain(LONG)
    assert list(range(50)) == case.done
    (thread,) = set(threads)
    assert ("otel_logger encoder", True) == (thread.name, thread.daemon)


def test_a_bench_without_jobs_has_no_thread(case):
    """A logger that stores nothing starts nothing, and has nothing to wait for."""
    before = threading.active_count()
    assert 0 == case.bench.drain(LONG)
    assert before == threading.active_count()


def test_what_waits_is_bounded_in_bytes(case, monkeypatch):
    """A job that would exceed the bound is refused, unless it is alone; jobs without bytes are not."""
    monkeypatch.setattr(workbench, "LARGEST_QUEUE", 100)
    gate = _Gate()
    assert case.bench.put(gate, 60)
    assert gate.entered.wait(LONG)
    assert not case.bench.put(case.job("too much"), 41)
    assert case.bench.put(case.job("fits"), 40)
    assert not case.bench.put(case.job("one more"), 1)
    assert case.bench.put(case.job("a file"))
    gate.opened.set()
    assert 0 == case.bench.drain(LONG)
    assert case.bench.put(case.job("alone"), 101)
    assert 0 == case.bench.drain(LONG)
    assert ["fits", "a file", "alone"] == case.done


def test_what_a_job_makes_of_what_it_holds_finds_room(case, monkeypatch):
    """Images that come from a device are held twice for a moment, and are not lost by that; others wait as before."""
    monkeypatch.setattr(workbench, "LARGEST_QUEUE", 100)
    gate = _Gate()
    answers = []

    def fetch():
        gate()
        answers.extend(case.bench.put(case.job(name), 60) for name in "ab")

    assert case.bench.put(fetch, 120)
    assert gate.entered.wait(LONG)
    assert not case.bench.put(case.job("another's"), 1)
    gate.opened.set()
    assert (0, [True, True], ["a", "b"]) == (case.bench.drain(LONG), answers, case.done)


def test_a_drain_ends_at_its_deadline(case):
    """A job that does not end is waited for no longer than told, and counted with those behind it."""
    gate = _Gate()
    case.bench.put(gate)
    case.bench.put(case.job("next"))
    assert gate.entered.wait(LONG)
    before = case.clock.monotonic()
    assert 2 == case.bench.drain(0.05)
    assert 2 == case.bench.drain(0.0)
    assert case.clock.monotonic() - before < LONG / 2
    gate.opened.set()
    assert (0, ["next"]) == (case.bench.drain(LONG), case.done)


class Panic(BaseException):
    """What a panic of Rust code derives from."""


class Unspeakable(Exception):
    """What an object of the user's may raise, of which no text can be had."""

    def __repr__(self):
        raise self


@pytest.mark.parametrize(
    "error", [ValueError("bad"), OSError(28, "full"), SystemExit(1), Panic("poisoned"), Unspeakable()]
)
def test_a_failing_job_is_counted_and_the_next_is_done(case, caplog, error):
    """Whatever a job raises costs that job, counted and told."""

    def fail():
        raise error

    case.bench.put(fail, 10)
    case.bench.put(case.job("next"))
    assert (0, ["next"], {"blob": 1}) == (case.bench.drain(LONG), case.done, case.dropped)
    assert quoted(error) in caplog.text


def test_a_job_may_put_another(case):
    """What a job puts is done behind what waits already."""
    case.bench.put(lambda: case.bench.put(case.job("inner")))
    case.bench.put(case.job("outer"))
    assert 0 == case.bench.drain(LONG)
    assert {"inner", "outer"} == set(case.done)


def test_after_stop_nothing_is_taken_or_begun(case):
    """The job under way ends, those behind it stay, and no more are taken."""
    gate = _Gate()
    case.bench.put(gate)
    case.bench.put(case.job("left"))
    assert gate.entered.wait(LONG)
    case.bench.stop()
    assert not case.bench.put(case.job("late"))
    gate.opened.set()
    assert 1 == case.bench.drain(LONG)
    assert [] == case.done


def test_a_job_is_let_go_when_it_is_done(case):
    """The memory of a snapshot is free as soon as its job is done, not when the next one comes."""

    class Snapshot:
        pass

    snapshot = Snapshot()
    seen = weakref.ref(snapshot)
    case.bench.put(lambda held=snapshot: None)
    del snapshot
    assert 0 == case.bench.drain(LONG)
    gc.collect()
    assert seen() is None


def test_jobs_of_several_threads(case):
    """Each thread's jobs are done in its order, and none is lost."""

    def put(thread):
        for number in range(100):
            case.bench.put(case.job((thread, number)))

    threads = [threading.Thread(target=put, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 == case.bench.drain(LONG)
    for thread in range(4):
        assert list(range(100)) == [number for by, number in case.done if by == thread]
