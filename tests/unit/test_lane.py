"""What each answer of an endpoint means for what was sent, with a transport and a clock that do as they are told."""

import json
import logging

import pytest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.backoff import CONFIGURATION_INTERVAL, LONGEST_BACKOFF
from otel_logger_exporters.journal_reader import JournalReader, end_of_segment
from otel_logger_exporters.lane import (
    LONGEST_RETRY_AFTER,
    MAX_RECORDS,
    Encoded,
    Lane,
    Progress,
)
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.schedules import Schedule
from otel_logger_exporters.segments import HEADER_SIZE
from otel_logger_exporters.signals import Signal
from tests.journals import journal_in

OK = Answer(Verdict.ACCEPTED, "200")
RETRY = Answer(Verdict.RETRY, "503", "busy")
CONFIGURATION = Answer(Verdict.CONFIGURATION, "401", "who are you")
REFUSED = Answer(Verdict.REFUSED, "400", "bad data")

SENT = frozenset({Signal.LOGS})


class _Clock:
    def __init__(self):
        self.now = 1000.0

    def time_ns(self):
        return int(self.now * 1e9)

    def monotonic(self):
        return self.now


class _Transport:
    """Answers by a function of the body, notes bodies and timeouts."""

    def __init__(self, clock):
        self.answer = lambda body: OK
        self.sent = []
        self.timeouts = []
        self.seconds = 0.0
        self.closed = 0
        self._clock = clock

    def send(self, body, timeout):
        self.sent.append(body)
        self.timeouts.append(timeout)
        self._clock.now += self.seconds
        return self.answer(body)

    def close(self):
        self.closed += 1


class _Bench:
    """A lane over a real journal of log frames, each body of a request being the frames' bodies joined with `|`."""

    def __init__(self, folder, schedule=None):
        self.folder = folder
        self.clock = _Clock()
        self.ledger = Ledger(self.clock, logging.getLogger("test"))
        self.open()
        self.transport = _Transport(self.clock)
        self.connections = 0
        self.ready = True
        self.per_request = None
        self.divide = False
        self.coalesced = 0
        self.jitter = 1.0
        self.lane = Lane(
            JournalReader(folder, Signal.LOGS),
            self._encode,
            self._connect,
            clock=self.clock,
            ledger=self.ledger,
            rejected=RejectedFolder(folder / "rejected"),
            timeout=10.0,
            schedule=schedule,
            jitter=lambda: self.jitter,
        )

    def open(self):
        self.journal = journal_in(self.folder, Signal.LOGS, segment_size=2**20)
        self.journal.tend()

    def put(self, *names, items=1):
        for name in names:
            self.journal.append((Kind.OTLP, Frame(items, name.encode()).pack()))
            self.ledger.record(Signal.LOGS, items)

    def drain(self):
        while (progress := self.lane.step()) is Progress.DELIVERED:
            pass
        return progress

    def answer_in_turn(self, *answers):
        queue = list(answers)
        self.transport.answer = lambda body: queue.pop(0) if queue else OK

    def refuse(self, *names):
        self.transport.answer = lambda body: REFUSED if set(names) & set(body.decode().split("|")) else OK

    def counts(self):
        """Return what is delivered, refused and waiting."""
        stats = self.ledger.stats(SENT)
        return stats.delivered["logs"], stats.refused["logs"], stats.waiting["logs"]

    def rejected(self):
        return {path.read_bytes().decode() for path in (self.folder / "rejected").glob("*.otlp")}

    def _connect(self):
        self.connections += 1
        return self.transport

    def _encode(self, batch):
        if not self.ready:
            return None
        bodies = [frame.body for frame in batch.contents]
        if self.divide:
            return Encoded(tuple(bodies[0].split(b"/")))
        size = self.per_request or len(bodies)
        parts = (bodies[start : start + size] for start in range(0, len(bodies), size))
        return Encoded(tuple(b"|".join(part) for part in parts), self.coalesced)


@pytest.fixture
def bench(tmp_path):
    """Give a lane with everything around it."""
    made = _Bench(tmp_path)
    yield made
    made.journal.close()


def test_an_empty_journal_connects_to_nothing(bench):
    """A lane without data makes no connection."""
    assert Progress.EMPTY is bench.lane.step()
    assert 0 == bench.connections


def test_accepted_data_is_delivered_once(bench):
    """What the endpoint took is counted and not sent again, over one connection."""
    bench.put("a", "b", items=3)
    assert Progress.DELIVERED is bench.lane.step()
    bench.put("c")
    assert Progress.EMPTY is bench.drain()
    assert [b"a|b", b"c"] == bench.transport.sent
    assert (7, 0, 0) == bench.counts()
    assert 1 == bench.connections


def test_data_without_its_resource_waits(bench):
    """While the resource is not known nothing is sent and no connection made; then all of it goes."""
    bench.ready = False
    bench.put("a")
    assert Progress.HELD is bench.lane.step()
    assert (0, 0, 1, 0) == (*bench.counts(), bench.connections)
    assert 0.0 == bench.lane.retry_at
    bench.ready = True
    assert Progress.EMPTY is bench.drain()
    assert [b"a"] == bench.transport.sent


def test_a_retry_sends_the_same_again(bench):
    """Nothing is acknowledged by a failure: the same request goes until it is taken, and newer data waits its turn."""
    bench.answer_in_turn(RETRY, RETRY)
    bench.put("a")
    assert Progress.HELD is bench.lane.step()
    assert Progress.HELD is bench.lane.step()
    assert (0, 0, 1) == bench.counts()
    assert Progress.EMPTY is bench.drain()
    assert [b"a", b"a", b"a"] == bench.transport.sent
    assert (1, 0, 0) == bench.counts()


def test_the_back_off_doubles_up_to_its_cap(bench):
    """Each failure doubles the wait, to a minute at most; a success begins anew."""
    bench.answer_in_turn(*[RETRY] * 9)
    bench.put("a")
    waits = []
    for _ in range(9):
        bench.lane.step()
        waits.append(bench.lane.retry_at - bench.clock.now)
        bench.clock.now = bench.lane.retry_at
    assert [1, 2, 4, 8, 16, 32, 60, 60, 60] == waits
    assert 60 == LONGEST_BACKOFF
    bench.drain()
    assert 0.0 == bench.lane.retry_at
    bench.put("b")
    bench.answer_in_turn(RETRY)
    bench.lane.step()
    assert bench.clock.now + 1 == bench.lane.retry_at


def test_the_back_off_is_jittered_between_half_and_whole(bench):
    """A thousand ranks do not come back in the same moment."""
    bench.jitter = 0.0
    bench.answer_in_turn(RETRY)
    bench.put("a")
    bench.lane.step()
    assert bench.clock.now + 0.5 == bench.lane.retry_at


@pytest.mark.parametrize(("asked", "wait"), [(0.1, 1.0), (5.0, 5.0), (10**6, LONGEST_RETRY_AFTER)])
def test_retry_after_lengthens_the_wait(bench, asked, wait):
    """A server may ask for a longer wait than the back-off, within reason, and not for a shorter one."""
    bench.answer_in_turn(Answer(Verdict.RETRY, "429", retry_after=asked))
    bench.put("a")
    assert Progress.HELD is bench.lane.step()
    assert bench.clock.now + wait == bench.lane.retry_at


def test_a_wrong_configuration_is_tried_once_a_minute(bench, caplog):
    """Everything is kept, the wait does not grow, and the user is told what the endpoint says."""
    bench.answer_in_turn(CONFIGURATION, CONFIGURATION)
    bench.put("a")
    for _ in range(2):
        assert Progress.HELD is bench.lane.step()
        assert bench.clock.now + CONFIGURATION_INTERVAL == bench.lane.retry_at
        bench.clock.now = bench.lane.retry_at
    assert (0, 0, 1) == bench.counts()
    assert "The endpoint does not take logs as configured (401: who are you)." in caplog.messages[0]
    assert Progress.EMPTY is bench.drain()
    assert (1, 0, 0) == bench.counts()


@pytest.mark.parametrize("bad", [(0,), (9,), (3, 4), (0, 5, 9), tuple(range(10))])
def test_refused_data_is_divided_until_it_stands_alone(bench, bad):
    """Whatever the endpoint refuses goes to `rejected/` by itself; all its neighbours are delivered, once, in order."""
    names = [f"r{n}" for n in range(10)]
    bench.refuse(*(names[n] for n in bad))
    bench.put(*names)
    assert Progress.EMPTY is bench.drain()
    taken = [body for body in bench.transport.sent if bench.transport.answer(body) is OK]
    assert [name for n, name in enumerate(names) if n not in bad] == [n for b in taken for n in b.decode().split("|")]
    assert {names[n] for n in bad} == bench.rejected()
    assert (10 - len(bad), len(bad), 0) == bench.counts()


def test_a_refused_record_does_not_slow_the_rest(bench):
    """After the division batches grow back: a thousand records with one bad among them take few requests."""
    bench.refuse("r500")
    bench.put(*(f"r{n}" for n in range(1000)))
    assert Progress.EMPTY is bench.drain()
    assert len(bench.transport.sent) < 50
    assert (999, 1, 0) == bench.counts()


def test_rejected_data_says_why(bench):
    """Beside the request as it was stands the endpoint's reason; items are counted, not requests."""
    bench.refuse("a")
    bench.put("a", items=4)
    assert Progress.EMPTY is bench.drain()
    (reason,) = (bench.folder / "rejected").glob("*.json")
    expected = {"reason": "400: bad data", "time_ns": bench.clock.time_ns(), "size": 1}
    assert expected == json.loads(reason.read_text())
    assert (0, 4, 0) == bench.counts()


def test_rejected_data_is_kept_apart(bench):
    """Requests that are rejected in the same moment do not replace each other."""
    bench.refuse("a", "b", "c")
    bench.put("a", "b", "c")
    assert Progress.EMPTY is bench.drain()
    assert {"a", "b", "c"} == bench.rejected()


def test_what_cannot_be_set_aside_waits(bench):
    """When the disk does not take rejected data, it stays in the journal, and nothing is counted as refused."""
    (bench.folder / "rejected").write_bytes(b"in the way")
    bench.refuse("a")
    bench.put("a")
    with pytest.raises(FileExistsError):
        bench.lane.step()
    assert (0, 0, 1) == bench.counts()


def test_refused_data_beyond_the_bound_of_what_is_kept_is_counted_and_told(bench, caplog):
    """It is not in the way of what follows, for which the bound on unsent data is meant."""
    bench.lane._rejected = RejectedFolder(bench.folder / "rejected", 2 * 4096)
    bench.refuse("a", "b", "d")
    bench.put(*"abcd")
    assert Progress.EMPTY is bench.drain()
    assert {"a"} == bench.rejected()
    assert (1, 3, 0) == bench.counts()
    kept, lost = caplog.messages
    assert f"What it refuses is kept in {bench.folder / 'rejected'}." in kept
    assert "What it refuses is lost from here on: what is kept has a tenth of OTEL_LOGGER_JOURNAL_MAX_BYTES." in lost


def test_a_division_survives_a_failure_in_between(bench):
    """An outage in the midst of the division loses neither the place nor the count."""
    bench.put(*(f"r{n}" for n in range(8)))
    answers = [REFUSED, RETRY, REFUSED, RETRY, OK]
    bench.transport.answer = lambda body: answers.pop(0) if answers else (REFUSED if b"r5" in body else OK)
    for _ in range(50):
        if bench.lane.step() is Progress.EMPTY:
            break
    assert {"r5"} == bench.rejected()
    assert (7, 1, 0) == bench.counts()


def test_a_partial_success_is_counted_and_not_sent_again(bench, caplog):
    """OTLP forbids to send it again: the refused items are counted, with the endpoint's message."""
    bench.answer_in_turn(Answer(Verdict.ACCEPTED, "200", "too many labels", rejected=2))
    bench.put("a", "b", items=3)
    assert Progress.EMPTY is bench.drain()
    assert [b"a|b"] == bench.transport.sent
    assert (4, 2, 0) == bench.counts()
    assert "refused 2 of its logs: too many labels." in caplog.text
    assert not (bench.folder / "rejected").exists()


@pytest.mark.parametrize("message", ["", "a deprecated field"])
def test_a_word_without_rejection_is_a_success(bench, caplog, message):
    """Servers may have something to say to data that they took whole."""
    bench.answer_in_turn(Answer(Verdict.ACCEPTED, "200", message))
    bench.put("a")
    assert Progress.EMPTY is bench.drain()
    assert (1, 0, 0) == bench.counts()
    assert [] == caplog.messages


def test_a_server_that_claims_too_many_rejections_is_believed_up_to_all(bench):
    """Counts stay within what was sent: points have companions, which servers count too."""
    bench.answer_in_turn(Answer(Verdict.ACCEPTED, "200", "no", rejected=99))
    bench.put("a", items=3)
    bench.drain()
    assert (0, 3, 0) == bench.counts()


def test_requests_of_a_batch_that_were_taken_are_not_sent_again(bench):
    """When one of several fails, the next attempt goes on with it, also what was partly refused before is counted."""
    bench.per_request = 2
    bench.put(*"abcdef")
    bench.answer_in_turn(Answer(Verdict.ACCEPTED, "200", "no", rejected=1), RETRY, CONFIGURATION, OK, RETRY, OK)
    for _ in range(3):
        assert Progress.HELD is bench.lane.step()
        assert (0, 0, 6) == bench.counts()
    assert Progress.EMPTY is bench.drain()
    assert [b"a|b", b"c|d", b"c|d", b"c|d", b"e|f", b"e|f"] == bench.transport.sent
    assert (5, 1, 0) == bench.counts()


def test_a_record_of_several_requests_is_set_aside_from_the_refused_one_on(bench):
    """What the endpoint took of it is not among what it refused; all of its items count as refused."""
    bench.divide = True
    bench.refuse("b")
    bench.put("a/b/c", items=3)
    assert Progress.EMPTY is bench.drain()
    assert {"b", "c"} == bench.rejected()
    assert (0, 3, 0) == bench.counts()


def test_coalesced_values_are_counted_when_they_are_delivered(bench):
    """A batch that is tried twice counts once."""
    bench.coalesced = 5
    bench.answer_in_turn(RETRY)
    bench.put("a")
    bench.lane.step()
    assert 0 == bench.ledger.stats(SENT).coalesced
    bench.drain()
    assert 5 == bench.ledger.stats(SENT).coalesced


def test_a_batch_is_bounded(bench):
    """A long backlog goes in several batches."""
    bench.put(*["x"] * (MAX_RECORDS + 1))
    assert Progress.EMPTY is bench.drain()
    assert [MAX_RECORDS, 1] == [len(body.split(b"|")) for body in bench.transport.sent]


@pytest.mark.parametrize(("size", "expected"), [(None, [5]), (2, [2, 2, 1]), (1, [1] * 5), (MAX_RECORDS + 1, [5])])
def test_a_batch_is_no_larger_than_the_user_wants(tmp_path, size, expected):
    """A size of the user's bounds each batch, where it is less than ours."""
    bench = _Bench(tmp_path, Schedule(batch_size=size))
    bench.put(*"abcde")
    assert Progress.EMPTY is bench.drain()
    assert expected == [len(body.split(b"|")) for body in bench.transport.sent]


def test_batches_grow_again_after_a_division_but_not_beyond_the_users_size(tmp_path):
    """What is refused alone halves the batches for a while."""
    bench = _Bench(tmp_path, Schedule(batch_size=2))
    bench.refuse("b")
    bench.put(*"abcdefgh")
    assert Progress.EMPTY is bench.drain()
    assert ["a|b", "a", "b|c", "b", "c|d", "e|f", "g|h"] == [body.decode() for body in bench.transport.sent]


def test_requests_get_the_time_that_is_left(bench):
    """A request has the endpoint's timeout, less when the caller's time ends before; without any none is made."""
    bench.per_request = 1
    bench.transport.seconds = 4.0
    bench.put(*"abcdef")
    assert Progress.HELD is bench.lane.step(15.0)
    assert [10.0, 10.0, 7.0, 3.0] == bench.transport.timeouts
    assert Progress.DELIVERED is bench.lane.step()
    assert [b"a", b"b", b"c", b"d", b"e", b"f"] == bench.transport.sent
    assert [10.0, 10.0] == bench.transport.timeouts[4:]


def test_a_mark_that_cannot_be_written_counts_as_delivered_all_the_same(bench, tmp_path):
    """A full disk neither sends a batch for ever nor leaves it counted as waiting."""
    (tmp_path / "logs.ack.tmp").mkdir()
    bench.put("a")
    with pytest.raises(IsADirectoryError):
        bench.lane.step()
    assert Progress.EMPTY is bench.drain()
    assert [b"a"] == bench.transport.sent
    assert (1, 0, 0) == bench.counts()


def test_damage_is_told(bench, tmp_path, caplog):
    """What cannot be read back is not passed over in silence, and what is behind it is sent."""
    bench.put("a")
    bench.journal.close()
    with (tmp_path / "logs-00000001.seg").open("ab") as file:
        file.write(b"damage")
    bench.open()
    bench.put("b")
    assert Progress.EMPTY is bench.drain()
    assert [b"a", b"b"] == bench.transport.sent
    assert ["6 bytes of recorded logs are damaged on disk and are not sent."] == caplog.messages


def test_damage_at_the_end_of_a_journal_that_is_finished_is_told(bench, tmp_path, caplog):
    """While it was written it might have been a record in the making; behind it nothing can be read."""
    bench.put("a", "b", "c")
    path = tmp_path / "logs-00000001.seg"
    size = (end_of_segment(path) - HEADER_SIZE) // 3
    with path.open("r+b") as file:
        file.seek(HEADER_SIZE + size + size // 2)
        file.write(b"x")
    assert Progress.EMPTY is bench.drain()
    assert [b"a"] == bench.transport.sent
    assert [] == caplog.messages
    bench.lane.finish()
    assert [f"{2 * size} bytes of recorded logs are damaged on disk and are not sent."] == caplog.messages


def test_a_whole_journal_is_finished_without_a_word(bench, caplog):
    """Zeros behind its records, or its seal, are no damage."""
    bench.put("a")
    bench.drain()
    bench.lane.finish()
    bench.journal.close()
    bench.lane.finish()
    assert [] == caplog.messages


def test_a_closed_lane_gives_its_connection_back(bench):
    """Closing closes once, and a lane that never sent has nothing to close."""
    bench.lane.close()
    bench.put("a")
    bench.drain()
    bench.lane.close()
    bench.lane.close()
    assert 1 == bench.transport.closed
