"""Compression that nobody asked for never keeps data from a server that cannot read it."""

import pytest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.transports import TentativelyCompressed

TAKEN = Answer(Verdict.ACCEPTED, "200")
BUSY = Answer(Verdict.RETRY, "503")
REFUSED = Answer(Verdict.REFUSED, "400")
PATIENCE = 10.0


class _Clock:
    """A clock that is set."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def time_ns(self):
        return 0


class _Transport:
    """Gives answers in turn, the last for ever, and notes what it was asked."""

    def __init__(self, *answers, clock=None, seconds=0.0):
        self.answers = list(answers)
        self.timeouts = []
        self.closed = 0
        self._clock = clock
        self._seconds = seconds

    def send(self, body, timeout):
        self.timeouts.append(timeout)
        if self._clock:
            self._clock.now += self._seconds
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("code", ["400", "415", "500", "501", "UNIMPLEMENTED", "INVALID_ARGUMENT", "INTERNAL"])
def test_what_may_be_refused_for_its_compression_is_sent_without(code):
    """The same request is sent again at once; when it is taken, all later ones go without compression."""
    compressed, plain = _Transport(Answer(Verdict.REFUSED, code)), _Transport(TAKEN)
    transport = TentativelyCompressed(compressed, lambda: plain)

    assert [TAKEN] * 3 == [transport.send(b"x", PATIENCE) for _ in range(3)]
    assert (1, 3) == (len(compressed.timeouts), len(plain.timeouts))
    assert (1, 0) == (compressed.closed, plain.closed)
    transport.close()
    assert 1 == plain.closed


def test_what_is_refused_plain_is_refused():
    """Once requests go without compression a refusal is about the data."""
    plain = iter([_Transport(TAKEN, REFUSED)])
    transport = TentativelyCompressed(_Transport(REFUSED), lambda: next(plain))

    assert [TAKEN, REFUSED, REFUSED] == [transport.send(b"x", PATIENCE) for _ in range(3)]


def test_a_server_that_has_taken_one_can_read_all():
    """Once a compressed request is accepted, a refusal is about the data."""
    transport = TentativelyCompressed(_Transport(TAKEN, REFUSED), _no_more)

    assert [TAKEN, REFUSED] == [transport.send(b"x", PATIENCE) for _ in range(2)]


@pytest.mark.parametrize("answer", [BUSY, Answer(Verdict.CONFIGURATION, "401"), Answer(Verdict.RETRY, "CONNECTION")])
def test_what_has_another_reason_is_not_sent_twice(answer):
    """A server that is busy, absent or wants credentials has not looked at the request."""
    transport = TentativelyCompressed(_Transport(answer), _no_more)

    assert answer == transport.send(b"x", PATIENCE)


def test_data_that_is_refused_both_ways_is_refused():
    """The answer to the plain request counts, which is about the data; compression is tried again."""
    compressed, plain = _Transport(REFUSED), _Transport(Answer(Verdict.REFUSED, "400", "bad name"))
    transport = TentativelyCompressed(compressed, lambda: plain)

    assert ["bad name"] * 2 == [transport.send(b"x", PATIENCE).message for _ in range(2)]
    assert (2, 2, 0) == (len(compressed.timeouts), plain.closed, compressed.closed)


def test_both_requests_share_the_time():
    """The second has what the first left; without any it is left for the next attempt."""
    clock = _Clock()
    plain = _Transport(TAKEN)
    transport = TentativelyCompressed(_Transport(REFUSED, clock=clock, seconds=4.0), lambda: plain, clock)

    assert REFUSED == transport.send(b"x", 4.0)
    assert TAKEN == transport.send(b"x", 10.0)
    assert [6.0] == plain.timeouts


def _no_more():
    pytest.fail("there is no reason to send without compression")
