"""Loads are carried in the background, those of one key in order, and again for as long as the store fails."""

import logging
import threading

import pytest

from otel_logger_exporters.backoff import CONFIGURATION_INTERVAL
from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.courier import WORKERS, Courier, Load
from otel_logger_exporters.errors import quoted
from otel_logger_exporters.ledger import Ledger

LONG = 10.0
"""Seconds that nothing here takes unless it hangs."""


class _Clock:
    def __init__(self):
        self.now = 100.0

    def time_ns(self):
        return 0

    def monotonic(self):
        return self.now


class _Case:
    def __init__(self, clock):
        self.open = True
        self.clock = clock
        self.done = []
        self.ledger = Ledger(clock, logging.getLogger("test"))
        self.courier = Courier(lambda: self.open, clock, self.ledger, jitter=lambda: 1.0)

    def put(self, name, *errors, key=None, follows=False):
        """Put a load that fails with errors first, which it notes as it notes what is done."""
        left = list(errors)

        def carry():
            if left:
                self.done.append(f"{name} fails")
                raise left.pop(0)
            self.done.append(name)

        self.courier.put(Load(key or name, carry, follows))

    def stats(self):
        return self.ledger.stats(frozenset())


@pytest.fixture
def case():
    """A courier with threads of its own, stopped in the end."""
    made = _Case(SystemClock())
    yield made
    made.courier.stop()


@pytest.fixture
def alone(monkeypatch):
    """A courier that can start no thread, and carries in `drain`, by a clock that stands."""

    def refuse(thread):
        msg = f"can't create new thread at interpreter shutdown: {thread.name}"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return _Case(_Clock())


class _Gate:
    """A load that is under way until it is let go."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.entered.set()
        assert self.opened.wait(LONG)


DOWN = BlobUnavailableError(5, "the store is down")
DENIED = BlobForbiddenError(13, "access denied")


def test_loads_of_a_key_are_carried_in_their_order(case):
    """The last upload of a name is stored last, whatever happens beside it."""
    for number in range(50):
        for key in "abc":
            case.put((key, number), key=key)
    assert 0 == case.courier.drain(LONG)
    for key in "abc":
        assert list(range(50)) == [number for found, number in case.done if found == key]


def test_several_are_carried_at_a_time(case):
    """A checkpoint that takes minutes does not keep images waiting; there are so many threads and no more."""
    gates = [_Gate() for _ in range(WORKERS + 1)]
    for number, gate in enumerate(gates):
        case.courier.put(Load(str(number), gate))
    assert all(gate.entered.wait(LONG) for gate in gates[:WORKERS])
    assert not gates[WORKERS].entered.wait(0.05)
    for gate in gates:
        gate.opened.set()
    assert 0 == case.courier.drain(LONG)


def test_threads_are_daemons_with_names_of_ours(case):
    """They keep no program from ending, and what is logged in them is known as ours."""
    gate = _Gate()
    case.courier.put(Load("a", gate))
    assert gate.entered.wait(LONG)
    found = [thread for thread in threading.enumerate() if thread.name.startswith("otel_logger uploads")]
    assert [True] == [thread.daemon for thread in found]
    gate.opened.set()


def test_nothing_is_carried_before_it_may_be(case):
    """Until the run is known there is no store; a drain does not wait for what cannot come."""
    case.open = False
    case.put("a")
    assert (1, []) == (case.courier.drain(LONG), case.done)
    case.open = True
    case.courier.wake()
    assert (0, ["a"]) == (case.courier.drain(LONG), case.done)


def test_after_stop_nothing_is_begun(case):
    """What is under way ends, what waits stays, and nothing more is taken."""
    gate = _Gate()
    case.courier.put(Load("a", gate))
    assert gate.entered.wait(LONG)
    case.put("b", key="a")
    assert 2 == case.courier.stop()
    case.put("c")
    gate.opened.set()
    assert (1, []) == (case.courier.drain(LONG), case.done)


def test_a_drain_ends_at_its_deadline(case):
    """What is carried is waited for no longer than told."""
    gate = _Gate()
    case.courier.put(Load("a", gate))
    assert gate.entered.wait(LONG)
    assert (1, 1) == (case.courier.drain(0.02), case.courier.drain(0.0))
    gate.opened.set()
    assert 0 == case.courier.drain(LONG)


def test_where_no_thread_can_be_started_a_drain_carries(alone):
    """As at the exit of the interpreter; once, and in order."""
    for name in "abc":
        alone.put(name)
    assert (0, ["a", "b", "c"]) == (alone.courier.drain(LONG), alone.done)


def test_an_outage_is_waited_for_longer_and_longer(alone):
    """The pause is doubled from a second to a minute, and begins anew after a success."""
    alone.put("a", *[DOWN] * 9)
    pauses = []
    for _ in range(9):
        # Without what a drain adds, an attempt at once.
        alone.courier._carry_next()
        pauses.append(alone.courier._retry_at - alone.clock.now)
        alone.clock.now += pauses[-1] - 0.001
        assert not alone.courier._carry_next()
        alone.clock.now += 0.001
    assert [1, 2, 4, 8, 16, 32, 60, 60, 60] == pytest.approx(pauses)
    assert alone.courier._carry_next()
    alone.put("b", DOWN)
    alone.courier._carry_next()
    assert 1.0 == pytest.approx(alone.courier._retry_at - alone.clock.now)
    assert 10 == alone.stats().blobs.retries


def test_a_wrong_configuration_is_tried_once_a_minute(alone, caplog):
    """It has to be mended by somebody, who is told."""
    alone.put("a", DENIED)
    assert 1 == alone.courier.drain(1.0)
    assert CONFIGURATION_INTERVAL == alone.courier._retry_at - alone.clock.now
    assert "The blob store does not take what it is given: access denied. Nothing is lost" in caplog.text


def test_a_drain_tries_at_once(alone, caplog):
    """`flush` and `close` make one attempt whatever pause was due."""
    alone.put("a", DOWN, DOWN)
    assert (1, ["a fails"]) == (alone.courier.drain(0.5), alone.done)
    assert (1, ["a fails"] * 2) == (alone.courier.drain(0.5), alone.done)
    assert (0, ["a fails", "a fails", "a"]) == (alone.courier.drain(0.5), alone.done)
    assert "Storing fails for now: the store is down" in caplog.text


def test_several_that_fail_in_one_outage_do_not_make_it_longer(alone):
    """Their pause is that of one failure."""

    def carry():
        alone.courier._carry_next()
        raise DOWN

    alone.courier.put(Load("a", carry))
    alone.put("b", DOWN)
    alone.courier._carry_next()
    assert (["b fails"], 1.0) == (alone.done, pytest.approx(alone.courier._retry_at - alone.clock.now))


def test_one_that_always_fails_keeps_no_other_waiting(alone):
    """Those that wait come first, but for its own key, which keeps its order."""
    alone.put("a", *[DOWN] * 100)
    alone.put("a2", key="a")
    for name in "bcd":
        alone.put(name)
    for _ in range(5):
        alone.courier.drain(0.5)
    assert ["b", "c", "d"] == [name for name in alone.done if "fails" not in name]


def test_while_one_is_tried_again_the_others_do_not_spin(case, monkeypatch):
    """A retry of a large file takes minutes, in which the other threads wait for its end."""
    gates = [_Gate(), _Gate()]
    case.courier.put(Load("a", gates[0]))
    case.courier.put(Load("b", gates[1]))
    assert all(gate.entered.wait(LONG) for gate in gates)
    gates[1].opened.set()
    looks = []
    next_load = case.courier._next
    monkeypatch.setattr(case.courier, "_next", lambda: (looks.append(1), next_load())[1])
    # As it stands while what was held for a while is tried again.
    case.courier._retry_at = case.clock.monotonic() - 1
    case.put("c", key="a")
    case.put("d", key="a")
    case.courier.wake()
    assert not gates[0].opened.wait(0.1)
    assert len(looks) < 20
    gates[0].opened.set()
    monkeypatch.undo()
    assert 0 == case.courier.drain(LONG)


class Panic(BaseException):
    """What a panic of Rust code derives from."""


class Unspeakable(Exception):
    """What an object of the user's may raise, of which no text can be had."""

    def __repr__(self):
        raise self


@pytest.mark.parametrize(
    "error", [ValueError("bad"), OSError(28, "full"), SystemExit(1), Panic("poisoned"), Unspeakable()]
)
def test_any_other_error_costs_its_load_alone(case, caplog, error):
    """It is told, and is not tried again; those behind it are carried."""
    case.put("a", error)
    case.put("b", key="a")
    assert (0, ["a fails", "b"]) == (case.courier.drain(LONG), case.done)
    assert f"is not stored by this process, it stays on disk: {quoted(error)}" in caplog.text
    assert {} == case.stats().dropped


def test_one_that_follows_comes_after_all_before_it(alone):
    """A link to the newest checkpoint is not stored before that is, nor does it keep what comes after it."""
    alone.put("checkpoint", DOWN)
    alone.put("link", follows=True)
    alone.put("image")
    assert (3, ["checkpoint fails"]) == (alone.courier.drain(0.5), alone.done)
    assert 0 == alone.courier.drain(0.5)
    assert ["checkpoint fails", "image", "checkpoint", "link"] == alone.done


def test_exclusive_waits_for_what_is_carried_and_keeps_the_key(case):
    """An adopter and the writer do not store one name at one time."""
    gate = _Gate()
    case.courier.put(Load("a", gate))
    assert gate.entered.wait(LONG)
    entered, let_go = threading.Event(), threading.Event()

    def adopt():
        with case.courier.exclusive("a"):
            entered.set()
            assert let_go.wait(LONG)

    adopter = threading.Thread(target=adopt)
    adopter.start()
    assert not entered.wait(0.05)
    gate.opened.set()
    assert entered.wait(LONG)
    case.put("a")
    case.put("b")
    while "b" not in case.done:
        case.courier.drain(0.01)
    assert ["b"] == case.done
    let_go.set()
    adopter.join(LONG)
    assert (0, ["b", "a"]) == (case.courier.drain(LONG), case.done)


def test_exclusive_of_another_key_does_not_keep_a_drain(alone):
    """Where nothing is carried, there is nothing to wait for."""
    alone.put("a", DENIED)
    with alone.courier.exclusive("b"):
        assert 1 == alone.courier.drain(LONG)


def test_a_load_may_put_another_and_close(case):
    """A collection of garbage in the midst of one may log a file, or close the logger."""
    left = []

    def carry():
        case.put("inner")
        left.append(case.courier.drain(LONG))
        left.append(case.courier.stop())

    case.courier.put(Load("outer", carry))
    case.courier.drain(LONG)
    # The one that is carried, and the other where no further thread was faster.
    assert left in ([1, 1], [1, 2], [2, 1], [2, 2])


def test_ten_thousand_uploads_of_one_name(case):
    """Looking for what is next takes no longer where much waits."""
    for number in range(10_000):
        case.put(number, key="a")
    assert 0 == case.courier.drain(LONG)
    assert list(range(10_000)) == case.done
