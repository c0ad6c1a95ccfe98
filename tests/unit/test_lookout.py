"""A question to the disk is answered in the background, once, and never waited for longer than is said."""

import threading

import pytest

from otel_logger.lookout import Lookout


def test_the_answer_is_there_when_it_is_wanted():
    """It is asked once, in another thread."""
    askers = []
    lookout = Lookout(lambda: askers.append(threading.current_thread()) or 7)
    assert (7, 7) == (lookout.answer(10), lookout.answer(10))
    assert 1 == len(askers)
    assert threading.current_thread() not in askers


def test_an_answer_that_does_not_come_is_not_waited_for():
    """A file server that hangs does not hold the caller for longer than is said."""
    asked = threading.Event()
    lookout = Lookout(lambda: asked.wait(10))
    assert lookout.answer(0.01) is None
    asked.set()
    assert lookout.answer(10)


def test_what_fails_is_asked_again_by_who_waits():
    """The error is the caller's, who knows what to do about it."""
    calls = []

    def look():
        calls.append(1)
        if len(calls) == 1:
            raise OSError
        return 5

    assert 5 == Lookout(look).answer(10)

    def fail():
        raise PermissionError

    with pytest.raises(PermissionError):
        Lookout(fail).answer(10)
