"""The ledger adds up, and says each thing once a minute."""

import logging
import threading

import pytest

from otel_logger_exporters.blob_counts import BlobStats
from otel_logger_exporters.ledger import Ledger, warn
from otel_logger_exporters.signals import Signal

METRICS, LOGS, TRACES = Signal.METRICS, Signal.LOGS, Signal.TRACES


class _Clock:
    def __init__(self):
        self.now = 5.0

    def time_ns(self):
        return 0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock():
    """Give a clock that is set by hand."""
    return _Clock()


@pytest.fixture
def ledger(clock):
    """Give an empty ledger."""
    return Ledger(clock, logging.getLogger("ledger"))


def test_an_empty_ledger_is_complete(ledger):
    """Without records there is nothing that could be missing, and every signal is named."""
    stats = ledger.stats(frozenset(Signal))
    nothing = {"metrics": 0, "logs": 0, "traces": 0}
    assert [nothing] * 5 == [stats.recorded, stats.delivered, stats.refused, stats.waiting, stats.kept]
    assert stats.is_complete
    assert stats.last_error is None


def test_recorded_is_delivered_refused_or_waiting(ledger):
    """For a signal that is sent, the three add up to what was recorded."""
    ledger.record(METRICS, 10)
    ledger.deliver(METRICS, 6, refused=2)
    stats = ledger.stats(frozenset({METRICS}))
    assert (10, 4, 2, 4, 0) == tuple(
        counts["metrics"] for counts in (stats.recorded, stats.delivered, stats.refused, stats.waiting, stats.kept)
    )
    assert not stats.is_complete


def test_what_was_delivered_was_recorded(ledger):
    """A call that a signal handler's exception has ended behind its record, and before its count, is counted here."""
    ledger.record(METRICS, 10)
    ledger.deliver(METRICS, 11)
    stats = ledger.stats(frozenset({METRICS}))
    assert (11, 11, 0) == tuple(counts["metrics"] for counts in (stats.recorded, stats.delivered, stats.waiting))
    assert stats.is_complete


def test_what_is_not_sent_is_kept(ledger):
    """A local signal waits for nobody and is complete."""
    ledger.record(LOGS, 3)
    stats = ledger.stats(frozenset({METRICS}))
    assert (3, 0) == (stats.kept["logs"], stats.waiting["logs"])
    assert stats.is_complete


def test_more_refused_than_sent_is_all_of_it(ledger):
    """A server that counts otherwise makes no count negative."""
    ledger.record(TRACES, 3)
    ledger.deliver(TRACES, 3, refused=8)
    stats = ledger.stats(frozenset(Signal))
    assert (0, 3, 0) == (stats.delivered["traces"], stats.refused["traces"], stats.waiting["traces"])


def test_losses_are_counted_by_reason(ledger, caplog):
    """Each loss is in the counts, its explanation and total in the log, and nothing is complete any more."""
    ledger.drop("disk", 2, "The disk is full")
    ledger.drop("disk", 3, "The disk is full")
    ledger.drop("blob", 1, "An image is lost")
    stats = ledger.stats(frozenset())
    assert {"disk": 5, "blob": 1} == stats.dropped
    assert not stats.is_complete
    assert ["The disk is full (2 so far)", "An image is lost (1 so far)"] == caplog.messages
    assert "An image is lost (1 so far)" == stats.last_error


def test_what_was_recorded_and_is_lost_nevertheless_waits_no_more(ledger, caplog):
    """It is among the losses by its reason, and neither waiting nor kept."""
    ledger.record(METRICS, 10)
    ledger.record(LOGS, 5)
    ledger.deliver(METRICS, 3)
    ledger.lose(METRICS, 4, "deleted", "The folder is gone")
    ledger.lose(LOGS, 1, "disk", "The disk was full")
    stats = ledger.stats(frozenset({METRICS}))
    assert (3, 4) == (ledger.outstanding(METRICS), ledger.outstanding(LOGS))
    assert (10, 3, 3, 4) == (
        stats.recorded["metrics"],
        stats.delivered["metrics"],
        stats.waiting["metrics"],
        stats.kept["logs"],
    )
    assert {"deleted": 4, "disk": 1} == stats.dropped
    assert ["The folder is gone (4 so far)", "The disk was full (1 so far)"] == caplog.messages


def test_adjustments_and_others_are_no_losses(ledger, caplog):
    """What is recorded otherwise than given, coalesced or stored leaves a run complete; only explained is told."""
    ledger.adjust("excluded", 2)
    ledger.adjust("overflow", 1, "An int was too large")
    ledger.coalesce(4)
    ledger.blobs.stage("a", 10)
    ledger.blobs.store("a")
    ledger.blobs.retry()
    stats = ledger.stats(frozenset())
    assert ({"excluded": 2, "overflow": 1}, 4) == (stats.adjusted, stats.coalesced)
    assert BlobStats(stored=1, bytes_stored=10, retries=1) == stats.blobs
    assert stats.is_complete
    assert ["An int was too large"] == caplog.messages


def test_blobs_that_wait_or_fail_leave_a_run_incomplete(ledger, clock):
    """Each is counted with its bytes until it is stored or given up, the age is that of the oldest."""
    ledger.blobs.stage("a", 10)
    clock.now += 5
    ledger.blobs.stage("b", 7)
    ledger.blobs.stage("b", 8)
    assert BlobStats(waiting=2, bytes_waiting=18, oldest=5.0) == ledger.stats(frozenset()).blobs
    assert not ledger.stats(frozenset()).is_complete
    ledger.blobs.store("a")
    ledger.blobs.fail("b")
    ledger.blobs.fail()
    assert BlobStats(stored=1, failed=2, bytes_stored=10) == ledger.stats(frozenset()).blobs
    assert not ledger.stats(frozenset()).is_complete


def test_warnings_come_once_a_minute_for_each_kind(ledger, clock, caplog):
    """A second of one kind within the minute is not written, one of another kind is; the last error is always kept."""
    ledger.warn("a", "first")
    clock.now += 59.9
    ledger.warn("a", "silent")
    ledger.warn("b", "other")
    assert "other" == ledger.stats(frozenset()).last_error
    clock.now += 0.1
    ledger.warn("a", "a minute later")
    ledger.warn("a", "silent again")
    assert ["first", "other", "a minute later"] == caplog.messages
    assert "silent again" == ledger.stats(frozenset()).last_error


def test_a_warning_near_the_start_of_the_clock_is_written(ledger, clock, caplog):
    """A machine that has just been started has seen no warning yet."""
    clock.now = 0.0
    ledger.warn("a", "first")
    assert ["first"] == caplog.messages


def test_percent_signs_in_messages_are_text(ledger, caplog):
    """What a server or a user wrote is no format."""
    ledger.warn("a", "100 %s of %d")
    assert ["100 %s of %d"] == caplog.messages


def test_stats_are_a_picture_of_their_moment(ledger):
    """What is counted later does not change what was asked before."""
    before = ledger.stats(frozenset(Signal))
    ledger.record(METRICS, 1)
    ledger.drop("disk", 1, "full")
    assert (0, {}) == (before.recorded["metrics"], before.dropped)


def test_a_ledger_counts_on_in_the_child_of_a_fork(ledger):
    """After `abandon` a lock that the parent held is no obstacle."""
    holder = threading.Thread(target=ledger._lock.acquire)
    holder.start()
    holder.join()
    ledger.abandon()
    ledger.record(METRICS, 1)
    assert 1 == ledger.stats(frozenset()).recorded["metrics"]


def test_a_warning_says_who_speaks_where_the_program_has_no_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    """Python prints the bare message then, and nobody knows whose it is."""
    warn(logging.Logger("otel_logger"), "the disk is full")

    assert "otel_logger: the disk is full\n" == capsys.readouterr().err
