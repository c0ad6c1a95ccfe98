"""Every call has a time of its own where the clock allows, and time never goes backwards."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from otel_logger.stamps import LONGEST_LEAD, Stamper

MS = 1_000_000
NOW = 1_700_000_000_000


class _Clock:
    """A clock that shows what the test sets."""

    def __init__(self, milliseconds=NOW):
        self.ns = milliseconds * MS

    def time_ns(self):
        return self.ns


jumps = st.lists(st.integers(-120_000, 120_000) | st.sampled_from([0, 0, 0, 1, -1]), max_size=200)


@given(jumps, st.integers(0, MS - 1))
def test_the_formula_holds_for_any_clock(steps, fraction):
    """t = max(last, min(max(now, last + 1), now + 60 000)) in whole milliseconds, however the clock jumps."""
    clock, last = _Clock(), 0
    stamper = Stamper(clock.time_ns)
    for step in steps:
        clock.ns += step * MS + fraction
        now = clock.ns // MS
        expected = max(last, min(max(now, last + 1), now + LONGEST_LEAD))
        assert expected * MS == stamper.stamp()
        last = expected


@given(jumps)
def test_what_follows_from_it(steps):
    """Times never go backwards, run at most a minute ahead unless the clock was set back, and are equal only then."""
    clock = _Clock()
    stamper = Stamper(clock.time_ns)
    times, nows = [], []
    for step in steps:
        clock.ns += step * MS
        times.append(stamper.stamp() // MS)
        nows.append(clock.ns // MS)
    assert times == sorted(times)
    for before, after, now in zip(times, times[1:], nows[1:], strict=False):
        assert after >= now
        assert after - now <= LONGEST_LEAD or after == before
        assert after > before or before >= now + LONGEST_LEAD


def test_a_burst_runs_a_minute_ahead_and_then_shares():
    """60,001 calls in one millisecond have times of their own, the rest the last of these, until the clock is there."""
    clock = _Clock()
    stamper = Stamper(clock.time_ns)
    times = [stamper.stamp() // MS for _ in range(60_005)]
    assert times[:60_001] == list(range(NOW, NOW + 60_001))
    assert times[60_001:] == [NOW + 60_000] * 4
    clock.ns += MS
    assert stamper.stamp() // MS == NOW + 60_001


def test_a_slow_caller_has_the_time_of_the_clock():
    """Calls further apart than a millisecond have the clock's time, cut to milliseconds."""
    clock = _Clock()
    stamper = Stamper(clock.time_ns)
    found = []
    for _ in range(3):
        clock.ns += 5 * MS + 7
        found.append(stamper.stamp())
    assert found == [(NOW + 5 * n) * MS for n in (1, 2, 3)]


def test_nanoseconds():
    """With nanoseconds the clock's own time is kept, a nanosecond apart."""
    clock = _Clock()
    stamper = Stamper(clock.time_ns, nanoseconds=True)
    clock.ns += 7
    assert [clock.ns + n for n in range(3)] == [stamper.stamp() for _ in range(3)]
    burst = [stamper.stamp() for _ in range(70_000)]
    assert max(burst) == clock.ns + LONGEST_LEAD
    assert all(before <= after for before, after in itertools.pairwise(burst))
