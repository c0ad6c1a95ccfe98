"""The upkeep carries its action out at intervals, and soon when it is woken, from wherever that is done."""

import threading

import pytest

from otel_logger_exporters.upkeep import Upkeep

PATIENCE = 10.0
NEVER = 3600.0


class _Action:
    """Counts how often it is carried out, and does what it is told meanwhile."""

    def __init__(self, then=lambda: None):
        self.count = 0
        self.then = then
        self._changed = threading.Condition()

    def __call__(self):
        self.then()
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait_for(self, count):
        """Wait until it was carried out so often."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, PATIENCE)


@pytest.fixture
def start():
    """Give a function that starts an upkeep; in the end it ends."""
    started = []

    def start_upkeep(action, interval=NEVER):
        upkeep = Upkeep(action, interval=interval)
        started.append(upkeep)
        upkeep.start()
        return upkeep

    yield start_upkeep
    for upkeep in started:
        upkeep.stop(PATIENCE)
        assert not upkeep._thread.is_alive()


def test_the_action_is_carried_out_at_intervals(start):
    """Nobody has to ask."""
    action = _Action()
    start(action, interval=0.001)
    assert action.wait_for(3)


def test_the_action_is_carried_out_soon_when_woken(start):
    """Each time, however long the interval is."""
    action = _Action()
    upkeep = start(action)
    for count in (1, 2, 3):
        upkeep.wake()
        assert action.wait_for(count)


def test_waking_before_the_start_counts():
    """What was asked for is done when there is a thread."""
    action = _Action()
    upkeep = Upkeep(action, interval=NEVER)
    upkeep.wake()
    upkeep.start()
    assert action.wait_for(1)
    upkeep.stop(PATIENCE)
    assert not upkeep._thread.is_alive()


def test_waking_often_before_the_action_is_waking_once():
    """A thousand rows that wait are one reason to look at the disk."""
    action = _Action()
    upkeep = Upkeep(action, interval=NEVER)
    for _ in range(1000):
        upkeep.wake()
    assert 1 == upkeep._calls.qsize()


def test_waking_during_the_action_has_it_carried_out_again(start):
    """What came too late for one look is not left to the interval."""
    upkeep = None
    action = _Action(lambda: upkeep.wake() if action.count == 0 else None)
    upkeep = start(action)
    upkeep.wake()
    assert action.wait_for(2)


def test_many_threads_may_wake(start):
    """Whoever wakes, the action comes after it."""
    seen = []
    due = []
    action = _Action(lambda: seen.append(len(due)))
    upkeep = start(action)

    def ask():
        for _ in range(100):
            due.append(1)
            upkeep.wake()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    upkeep.stop(PATIENCE)
    assert 400 == seen[-1]


def test_what_was_asked_for_is_done_before_it_ends(start):
    """Stopping lets the present action end, and those asked for before; later ones come to nothing."""
    begun, released = threading.Event(), threading.Event()

    def hold():
        begun.set()
        released.wait(PATIENCE)

    action = _Action(hold)
    upkeep = start(action)
    upkeep.wake()
    assert begun.wait(PATIENCE)
    upkeep.wake()
    upkeep.stop(0.0)
    assert upkeep._thread.is_alive()
    upkeep.wake()
    upkeep.stop(-1.0)
    released.set()
    upkeep.stop(PATIENCE)
    assert (2, False) == (action.count, upkeep._thread.is_alive())


def test_stopping_from_the_action_is_no_deadlock(start):
    """Garbage that is collected on the thread may close what it works for."""
    upkeep = None
    action = _Action(lambda: upkeep.stop(PATIENCE))
    upkeep = start(action)
    upkeep.wake()
    upkeep._thread.join(PATIENCE)
    assert (1, False) == (action.count, upkeep._thread.is_alive())


def test_the_thread_keeps_no_process_alive(start):
    """It is a daemon, and says whose it is."""
    upkeep = start(_Action())
    assert (True, "otel_logger upkeep") == (upkeep._thread.daemon, upkeep._thread.name)
