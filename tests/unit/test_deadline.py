"""A deadline counts down by its clock, and says when the time is up."""

import math

import pytest

from otel_logger_exporters.deadline import Deadline


class _Clock:
    """A clock that is set."""

    now = 100.0

    def monotonic(self):
        return self.now


def test_what_is_left_shrinks_and_ends():
    """Each look tells less; at the end and after it TimeoutError, until the next is set."""
    clock = _Clock()
    deadline = Deadline(clock)
    assert math.inf == deadline.remaining()

    deadline.set(2.0)
    clock.now += 0.5
    assert 1.5 == deadline.remaining()

    for clock.now in (102.0, 103.0):
        with pytest.raises(TimeoutError):
            deadline.remaining()

    deadline.set(1.0)
    assert 1.0 == deadline.remaining()
