"""The age of the oldest in a queue is told from counts: never too small, and exact where the marks are."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from otel_logger_exporters.watermarks import MOST, Watermarks


def test_what_has_gone_has_no_age():
    """Nothing waits when as much has gone as has come, also before anything came."""
    marks = Watermarks()
    assert marks.age(5.0, 0, 0) is None
    marks.note(6.0, 10, 10)
    assert marks.age(7.0, 10, 10) is None


def test_the_age_is_that_of_the_first_that_has_not_gone():
    """With a mark each second, what came between two of them is taken for as old as the earlier."""
    marks = Watermarks()
    for second, recorded in enumerate([0, 10, 20, 30]):
        marks.note(float(second), recorded, 0)
    assert [3.0, 3.0, 2.0, 1.0] == [marks.age(3.0, 30, done) for done in (0, 9, 10, 20)]


def test_an_idle_time_makes_nothing_older():
    """What comes after a pause is as old as the end of the pause."""
    marks = Watermarks()
    marks.note(0.0, 5, 5)
    marks.note(100.0, 5, 5)
    assert 1.0 == marks.age(101.0, 6, 5)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=60))
def test_the_age_is_never_too_small_nor_much_too_great(turns):
    """Against a queue that knows each item's time: at least its age, at most that and the time between marks."""
    marks, queue, recorded, done = Watermarks(), deque(), 0, 0
    marks.note(-1.0, 0, 0)
    for second, (comes, goes) in enumerate(turns):
        recorded += comes
        # They come half a second before the mark.
        queue.extend([second - 0.5] * comes)
        for _ in range(min(goes, len(queue))):
            queue.popleft()
            done += 1
        marks.note(float(second), recorded, done)
        age = marks.age(float(second), recorded, done)
        if queue:
            assert second - queue[0] <= age + 0.5
            assert age <= second - queue[0] + 1.0
        else:
            assert age is None


def test_a_long_outage_does_not_hold_a_mark_for_each_second():
    """After days the age is still about right, from a bounded number of marks."""
    marks = Watermarks()
    for second in range(10 * MOST):
        marks.note(float(second), second, 0)
    assert MOST >= len(marks._marks)
    assert 10 * MOST - 1.0 == marks.age(10 * MOST - 1.0, 10 * MOST, 0)
    assert 64.0 > abs(marks.age(10 * MOST - 1.0, 10 * MOST, 5 * MOST) - 5 * MOST)
