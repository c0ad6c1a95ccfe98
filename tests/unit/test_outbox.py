"""An outbox over a real server on the loopback interface: what is recorded arrives once, and nothing is lost before."""

import logging
import shutil
import socket
import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_logger.recorder import Recorder
from otel_logger.stamps import Stamper
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.payloads import Frame, unpack_hyperparameters
from otel_logger_exporters.records import Kind
from otel_logger_exporters.requests import MetricVocabulary
from otel_logger_exporters.routes import routes_from_environ
from otel_logger_exporters.rows import Schema
from otel_logger_exporters.segments import is_begun, read_segment
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Space
from tests.journals import disk_with, files, payloads, segments
from tests.otlp_server import REQUESTS, OtlpServer, Reply

PROTOCOLS = ("http/protobuf", "grpc")
PATIENCE = 10.0
SCHEMA = Schema(0, ["loss"], "d")
VOCABULARY = MetricVocabulary(str, "key", None, "", InstrumentationScope(name="s"))
FIELDS = {Signal.LOGS: ("resource_logs", "scope_logs"), Signal.TRACES: ("resource_spans", "scope_spans")}


class _Box:
    """An outbox with its ledger, and the numbers that were put into it."""

    def __init__(self, folder, environ, *, segment_size=2**16, **options):
        self.ledger = Ledger(SystemClock(), logging.getLogger("outbox"))
        self.generations = {}
        folder.mkdir(exist_ok=True)
        settings = {"mapped": True, "interval": 60.0, "housekeeping": lambda: None, **options}
        self.outbox = Outbox(
            folder,
            routes_from_environ(environ),
            writer=bytes(16),
            clock=SystemClock(),
            ledger=self.ledger,
            vocabulary=VOCABULARY,
            user_agent="test",
            **settings,
        )
        for signal in Signal:
            if (journal := self.outbox.journal(signal)) is not None:
                journal._segment_size = segment_size
        self.outbox.start()

    def tend(self):
        """Do what the upkeep does."""
        self.outbox._tend()

    def delete_folder(self):
        """Delete the folder with all that is in it, in a moment when nobody makes files there."""
        with ExitStack() as stack:
            for signal in Signal:
                stack.enter_context(self.outbox.journal(signal).disk)
            shutil.rmtree(self.outbox.folder)

    def put(self, numbers, signals=tuple(Signal)):
        """Record each number once in each signal."""
        for number in numbers:
            for signal in signals:
                if signal is not Signal.METRICS:
                    self.outbox.put(signal, frame_of(signal, number))
                elif (journal := self.outbox.journal(signal)) is not None:
                    self._put_row(journal, number)

    def _put_row(self, journal, number):
        row = (Kind.ROW, SCHEMA.pack_row(number, number, [float(number)]))
        journal.append((Kind.SCHEMA, SCHEMA.pack()), row, items=1)
        self.ledger.record(Signal.METRICS, 1)

    def ready(self, signals=tuple(Signal)):
        """Give the signals an empty resource that is ready."""
        for signal in signals:
            self.outbox.set_resource(signal, b"", bound=True, ready=True)

    def stats(self):
        """Return the ledger's counts."""
        return self.ledger.stats(self.outbox.sent)

    def on_disk(self, signal=Signal.LOGS):
        """Return the numbers in a signal's journal."""
        frames = payloads(self.outbox.folder, signal=signal)
        return [int(decode(signal, Frame.unpack(memoryview(frame)).body).schema_url) for frame in frames]


def frame_of(signal, number):
    """Return a frame of one item."""
    return Frame(1, _scope(signal, number))


def decode(signal, body):
    """Return the message of a frame's body."""
    message = getattr(getattr(REQUESTS[signal](), FIELDS[signal][0]).add(), FIELDS[signal][1]).add()
    message.ParseFromString(body)
    return message


def _scope(signal, number):
    message = REQUESTS[signal]()
    scope = getattr(getattr(message, FIELDS[signal][0]).add(), FIELDS[signal][1]).add()
    scope.schema_url = f"{number}"
    return scope.SerializeToString()


def _numbers(signal, requests):
    """Return the numbers that requests carry, in order."""
    if signal is Signal.METRICS:
        scopes = [s for r in requests for rm in r.resource_metrics for s in rm.scope_metrics]
        return [int(p.as_double) for s in scopes for m in s.metrics for p in m.gauge.data_points]
    first, second = FIELDS[signal]
    return [int(s.schema_url) for r in requests for resource in getattr(r, first) for s in getattr(resource, second)]


def _arrived(server):
    return {signal: _numbers(signal, server.requests(signal)) for signal in Signal}


def _environ(url, protocol):
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _everywhere(numbers):
    return {signal: list(numbers) for signal in Signal}


@pytest.fixture
def make(tmp_path):
    """Give a function that makes outboxes; in the end all are stopped."""
    made = []

    def make_box(environ, folder=tmp_path / "writer", **options):
        made.append(_Box(folder, environ, **options))
        return made[-1]

    yield make_box
    for box in made:
        box.outbox.close(PATIENCE)


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    """Give each of the protocols."""
    return request.param


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_everything_arrives_once(make, protocol, mapped):
    """Each signal's data is at the server once, in order, after the flush that says so; closing leaves no journal."""
    with OtlpServer(protocol) as server:
        box = make(_environ(server.endpoint, protocol), mapped=mapped)
        box.ready()
        box.put(range(50))
        assert box.outbox.flush(PATIENCE)
        box.put(range(50, 60))
        assert box.outbox.flush(PATIENCE)
        box.outbox.close(PATIENCE)
        assert _everywhere(range(60)) == _arrived(server)
    counts = dict.fromkeys(("metrics", "logs", "traces"), 60)
    assert counts == box.stats().recorded == box.stats().delivered
    assert box.stats().is_complete
    assert [] == _names(box.outbox.folder)


def test_the_thread_sends_by_itself(make):
    """Without a flush data goes out at the interval."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"), interval=0.01, mapped=False)
        box.ready()
        box.put([7])
        for signal in Signal:
            assert [7] == _numbers(signal, server.wait_for(signal, 1))


def test_a_signal_waits_for_its_resource(make):
    """Signals whose resource is not ready stay on disk while the others go; then they follow."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"))
        box.outbox.set_resource(Signal.METRICS, b"", bound=False, ready=False)
        box.ready([Signal.LOGS])
        box.put(range(3))
        assert not box.outbox.flush(PATIENCE)
        assert {Signal.METRICS: [], Signal.LOGS: [0, 1, 2], Signal.TRACES: []} == _arrived(server)
        assert {"metrics": 3, "logs": 0, "traces": 3} == box.stats().waiting
        box.ready()
        assert box.outbox.flush(PATIENCE)
        assert _everywhere(range(3)) == _arrived(server)


def test_an_outage_loses_nothing(make, protocol):
    """A server that goes away and comes back has everything in the end, and what it took before only once."""
    with OtlpServer(protocol) as first:
        box = make(_environ(first.endpoint, protocol))
        box.ready()
        box.put(range(10))
        assert box.outbox.flush(PATIENCE)
    box.put(range(10, 20))
    assert not box.outbox.flush(PATIENCE)
    assert {"metrics": 10, "logs": 10, "traces": 10} == box.stats().waiting
    with OtlpServer(protocol, port=first.port) as second:
        box.put(range(20, 30))
        assert box.outbox.flush(PATIENCE)
        assert _everywhere(range(10)) == _arrived(first)
        assert _everywhere(range(10, 30)) == _arrived(second)
    assert box.stats().is_complete


def test_failures_in_between_lose_and_double_nothing(make, protocol):
    """Of what a server answers with failures, each item is taken once."""
    busy = Reply(grpc="UNAVAILABLE", http=503, message="busy")
    with OtlpServer(protocol) as server:
        box = make(_environ(server.endpoint, protocol))
        box.ready()
        for start in range(0, 30, 10):
            box.put(range(start, start + 10))
            server.answer_with(busy, busy, busy)
            assert not box.outbox.flush(PATIENCE)
        assert box.outbox.flush(PATIENCE)
        taken = {signal: server.requests(signal)[-1:] for signal in Signal}
        assert _everywhere(range(30)) == {signal: _numbers(signal, requests) for signal, requests in taken.items()}


def test_undelivered_data_stays_and_delivered_goes(make):
    """Closing deletes the journals that are delivered to their end, and keeps one that is not, whole and sealed."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"))
        box.ready([Signal.LOGS, Signal.TRACES])
        box.put(range(5))
        assert not box.outbox.flush(PATIENCE)
        box.outbox.close(PATIENCE)
    assert ["metrics-00000001.seg"] == _names(box.outbox.folder)
    segment = read_segment((box.outbox.folder / "metrics-00000001.seg").read_bytes())
    assert segment.sealed
    assert 5 == sum(record.kind == Kind.ROW for record in segment.records)
    assert {"metrics": 5, "logs": 0, "traces": 0} == box.stats().waiting


def test_what_comes_as_the_journals_are_closed_is_counted_as_such(make):
    """A call of another thread may be under way then; nothing is wrong with the disk."""
    box = make({})
    box.outbox.close(PATIENCE)
    box.outbox.put(Signal.LOGS, frame_of(Signal.LOGS, 1))
    Recorder(box.outbox.journal(Signal.METRICS), Stamper(SystemClock.time_ns), box.ledger).record({"loss": 1.0}, 1)
    assert {"closed": 2} == box.stats().dropped
    assert "Metrics that come as the logger closes are lost (2 so far)" == box.stats().last_error


def test_closing_does_not_outlast_its_time(make):
    """An endpoint that does not answer keeps neither flush nor close beyond what they were given; data stays."""
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(silent=True)] * 9)
        box = make(_environ(server.endpoint, "http/protobuf"))
        box.ready()
        box.put(range(3))
        begun = SystemClock.monotonic()
        assert not box.outbox.flush(0.2)
        box.outbox.close(0.0)
        assert SystemClock.monotonic() - begun < 5
        assert {"metrics", "logs", "traces"} <= {name.split("-")[0] for name in _names(box.outbox.folder)}
        assert 9 == sum(box.stats().waiting.values())


def test_a_folder_is_renamed_while_sending(make, tmp_path):
    """Recording, rotating and sending go on over renames of the folder: all arrives once, nothing stays behind."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"), interval=0.001, segment_size=400)
        box.ready()
        moves = threading.Thread(target=lambda: [box.outbox.relocate(tmp_path / f"to{n}" / "writer") for n in range(9)])
        moves.start()
        box.put(range(150))
        moves.join()
        assert box.outbox.flush(PATIENCE)
        box.outbox.close(PATIENCE)
        assert _everywhere(range(150)) == _arrived(server)
    assert box.stats().is_complete
    assert tmp_path / "to8" / "writer" == box.outbox.folder
    assert [] == _names(box.outbox.folder)
    assert not any((tmp_path / f"to{n}" / "writer").exists() for n in range(8))


def test_a_folder_that_cannot_be_renamed_stays_in_use(make, tmp_path):
    """The caller is told, and everything goes on where it was."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"))
        (tmp_path / "taken" / "full").mkdir(parents=True)
        with pytest.raises(OSError, match="not empty"):
            box.outbox.relocate(tmp_path / "taken")
        box.ready()
        box.put([1])
        assert box.outbox.flush(PATIENCE)
        assert _everywhere([1]) == _arrived(server)
    assert tmp_path / "writer" == box.outbox.folder


def test_refused_data_lies_in_the_folder_where_it_now_is(make, tmp_path):
    """What the endpoint refuses is set aside in the renamed folder, and the old one does not come back."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"))
        box.ready()
        box.outbox.relocate(tmp_path / "new")
        server.answer_with(Reply(http=400, message="bad"))
        box.put([1], [Signal.LOGS])
        assert box.outbox.flush(PATIENCE)
    assert 2 == len(_names(tmp_path / "new" / "rejected"))
    assert not (tmp_path / "writer").exists()
    assert {"metrics": 0, "logs": 1, "traces": 0} == box.stats().refused
    box.outbox.close(PATIENCE)
    assert ["rejected"] == _names(tmp_path / "new")


def test_local_signals_are_kept(make):
    """Without an endpoint a flush is done when everything is on disk, and closing deletes nothing."""
    box = make({}, mapped=False)
    box.ready()
    box.put(range(4))
    assert box.outbox.flush(PATIENCE)
    assert frozenset() == box.outbox.sent
    box.outbox.close(PATIENCE)
    assert {"metrics": 4, "logs": 4, "traces": 4} == box.stats().kept
    assert 3 == len(_names(box.outbox.folder))


def test_a_signal_that_is_not_recorded_has_no_journal(make):
    """With `none` nothing of a signal is written or counted, and the others are not touched."""
    box = make({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"})
    box.ready()
    box.put(range(4))
    box.outbox.keep_hyperparameters({"a": 1}, 5)
    assert box.outbox.journal(Signal.TRACES) is None
    assert {"metrics": 0, "logs": 4, "traces": 0} == box.stats().recorded
    assert ["logs-00000001.seg"] == _names(box.outbox.folder)


def test_hyperparameters_are_in_every_segment(make):
    """What is known at last is repeated at the head of later segments, so that any of them explains itself."""
    box = make({}, segment_size=512)
    box.outbox.keep_hyperparameters({"lr": 0.1}, 5)
    box.outbox.keep_hyperparameters({"lr": 0.1, "layers": [1, 2]}, 6)
    box.put(range(20), [Signal.METRICS])
    box.tend()
    found = [
        [unpack_hyperparameters(r.payload) for r in segment.records if r.kind == Kind.HYPERPARAMETERS]
        for segment in segments(box.outbox.folder)
    ]
    last = {"lr": 0.1, "layers": [1, 2]}, 6
    assert len(found) > 2
    assert [[({"lr": 0.1}, 5), last], *[[last]] * (len(found) - 1)] == found


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_what_the_disk_refuses_is_counted_as_lost(make, mapped):
    """Recording goes on without raising; what is lost is in the counts, and what comes after it is kept."""
    box = make({}, mapped=mapped, segment_size=512)
    box.ready([Signal.LOGS])
    box.outbox.journal(Signal.LOGS)._memory_size = 1000
    with disk_with(200):
        box.put(range(100), [Signal.LOGS])
        box.tend()
        stats = box.stats()
        assert 100 == stats.recorded["logs"] + stats.dropped["disk"]
        assert stats.dropped["disk"] > 30
        assert "A few megabytes wait in memory" in stats.last_error
        box.put([100], [Signal.LOGS])
        assert "Logs are lost, the disk does not take them" in box.stats().last_error
    box.tend()
    box.put([101], [Signal.LOGS])
    box.tend()
    found = box.on_disk()
    assert box.stats().recorded["logs"] == len(found)
    assert [*range(len(found) - 1), 101] == found
    assert box.stats().kept["logs"] == len(found)


def test_what_went_by_way_of_memory_is_counted(make):
    """It is no loss: recording was faster than the disk for a moment."""
    box = make({}, segment_size=512)
    with box.outbox.journal(Signal.LOGS).disk:
        box.put(range(50), [Signal.LOGS])
    box.tend()
    stats = box.stats()
    assert list(range(50)) == box.on_disk()
    assert 0 < stats.adjusted["memory"] < 50
    assert stats.is_complete


def restoring(folder):
    """Return what makes a folder again, and a list of when it was asked to."""
    calls = []

    def restore():
        calls.append(folder.is_dir())
        folder.mkdir(exist_ok=True)

    return restore, calls


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_a_deleted_folder_is_made_again(make, tmp_path, mapped, caplog):
    """What was in it is counted once as deleted, also what waited for its files; what comes after is kept."""
    restore, calls = restoring(tmp_path / "writer")
    box = make({}, mapped=mapped, restore=restore)
    box.put(range(30))
    box.tend()
    box.put(range(30, 33))
    box.delete_folder()
    box.tend()
    stats = box.stats()
    assert {"deleted": 99} == stats.dropped
    assert dict.fromkeys(stats.kept, 0) == stats.kept
    assert False in calls
    box.put(range(33, 40))
    box.tend()
    box.put(range(40, 43))
    box.tend()
    assert list(range(33, 43)) == box.on_disk()
    box.outbox.close(PATIENCE)
    assert {"deleted": 99} == box.stats().dropped
    assert dict.fromkeys(stats.kept, 10) == box.stats().kept
    assert list(range(33, 43)) == box.on_disk(Signal.TRACES)
    assert f"Somebody deleted or renamed {tmp_path / 'writer'} with the " in caplog.text


def test_what_comes_after_a_deletion_is_sent(make, tmp_path):
    """The sender goes on with what there is; what was delivered before is none of the loss."""
    restore, _ = restoring(tmp_path / "writer")
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"), restore=restore)
        box.ready()
        box.put(range(3), [Signal.LOGS])
        assert box.outbox.flush(PATIENCE)
        box.put(range(3, 5), [Signal.LOGS])
        box.delete_folder()
        box.tend()
        box.put(range(5, 9), [Signal.LOGS])
        assert box.outbox.flush(PATIENCE)
        assert [*range(3), *range(5, 9)] == _arrived(server)[Signal.LOGS]
    stats = box.stats()
    assert {"deleted": 2} == stats.dropped
    assert (9, 7, 0) == (stats.recorded["logs"], stats.delivered["logs"], stats.waiting["logs"])


def test_a_single_file_that_is_deleted_is_the_only_loss(make):
    """What other segments hold is still there."""
    box = make({}, segment_size=512)
    box.put(range(30), [Signal.LOGS])
    box.tend()
    last = next(path for path in reversed(files(box.outbox.folder, Signal.LOGS)) if is_begun(path))
    count = len(read_segment(last.read_bytes()).records)
    last.unlink()
    box.tend()
    assert {"deleted": count} == box.stats().dropped
    assert 30 - count == box.stats().kept["logs"] == len(box.on_disk())


def test_closing_after_the_folder_was_deleted_counts_what_was_in_it(make):
    """Nobody is told that what is gone is kept."""
    box = make({})
    box.put(range(3))
    # So that it is not found by this thread before.
    box.outbox._upkeep.stop(PATIENCE)
    box.delete_folder()
    box.outbox.close(PATIENCE)
    assert {"deleted": 9} == box.stats().dropped
    assert 0 == sum(box.stats().kept.values())


def test_closing_waits_for_what_is_just_found_out(make):
    """What the upkeep is at when it is stopped is done, and counted, when closing returns."""
    held, released, done = threading.Event(), threading.Event(), []

    def restore():
        held.set()
        released.wait(PATIENCE)
        done.append(True)

    box = make({}, restore=restore)
    box.put(range(3), [Signal.LOGS])
    box.delete_folder()
    box.outbox._upkeep.wake()
    assert held.wait(PATIENCE)
    threading.Timer(0.02, released.set).start()
    box.outbox.close(PATIENCE)
    assert done
    assert {"deleted": 3} == box.stats().dropped


class _Unsent:
    """An outbox whose endpoint is down, and whose bound on what is unsent comes near."""

    LIMIT = 200_000
    BATCH_SPAN, SPAN, METRIC, EVENT = range(4)

    def __init__(self, make, environ, **options):
        self.box = make(environ, space=Space(self.LIMIT, 0), **options)
        self.box.ready()

    def fill(self, share):
        """Put log records until so much of what is allowed waits."""
        while self.size() < share * self.LIMIT:
            self.box.outbox.put(Signal.LOGS, frame_of(Signal.LOGS, f"{7:01000d}"))

    def size(self):
        """Return what waits, as the outbox weighs it."""
        self.box.tend()
        return self.box.stats().bytes_on_disk

    def taken(self):
        """Record one of each class; return which were taken."""
        before = sum(self.box.stats().dropped.values())
        found = []
        for what in (self.BATCH_SPAN, self.SPAN, self.METRIC, self.EVENT):
            self._record(what)
            after = sum(self.box.stats().dropped.values())
            if after == before:
                found.append(what)
            before = after
        return found

    def _record(self, what):
        if what == self.METRIC:
            recorder = Recorder(self.box.outbox.journal(Signal.METRICS), Stamper(SystemClock.time_ns), self.box.ledger)
            recorder.record({"loss": 1.0}, 1)
        elif what == self.EVENT:
            self.box.put([1], [Signal.LOGS])
        else:
            self.box.outbox.put(Signal.TRACES, frame_of(Signal.TRACES, 1), is_minor=what == self.BATCH_SPAN)


@pytest.mark.parametrize("is_first", [True, False])
def test_near_the_bound_of_unsent_data_the_least_important_is_given_up_first(make, is_first):
    """Batch spans, other spans, metrics of ranks but zero, metrics, events; each is counted; delivery ends it."""
    with OtlpServer("http/protobuf") as server:
        port = server.port
    unsent = _Unsent(make, _environ(f"http://127.0.0.1:{port}", "http/protobuf"), is_first=is_first)
    everything = [unsent.BATCH_SPAN, unsent.SPAN, unsent.METRIC, unsent.EVENT]
    shares = {0.79: 0, 0.81: 1, 0.86: 2, 0.91: 2 if is_first else 3, 0.96: 3, 1.0: 4}
    lost = 0
    for share, given_up in shares.items():
        unsent.fill(share)
        assert everything[given_up:] == unsent.taken()
        lost += given_up
        assert unsent.box.stats().dropped == ({"limit": lost} if lost else {})
    assert unsent.size() < 1.02 * unsent.LIMIT
    assert f"OTEL_LOGGER_JOURNAL_MAX_BYTES={unsent.LIMIT} is nearly reached" in unsent.box.stats().last_error
    with OtlpServer("http/protobuf", port=port):
        assert unsent.box.outbox.flush(PATIENCE)
    unsent.box.tend()
    assert everything == unsent.taken()
    assert lost == unsent.box.stats().dropped["limit"]


def test_what_is_minor_is_given_up_of_each_signal_that_is_sent(make):
    """Program logs as batch spans; those of a signal that is kept are bound by nothing."""
    with OtlpServer("http/protobuf") as server:
        environ = {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"http://127.0.0.1:{server.port}/v1/logs"}
    unsent = _Unsent(make, environ)
    unsent.fill(0.81)
    for signal in (Signal.LOGS, Signal.TRACES):
        unsent.box.outbox.put(signal, frame_of(signal, 1), is_minor=True)
    assert {"limit": 1} == unsent.box.stats().dropped
    assert 1 == unsent.box.stats().kept["traces"]
    unsent.box.outbox.put(Signal.LOGS, frame_of(Signal.LOGS, 1))
    assert {"limit": 1} == unsent.box.stats().dropped


def test_refused_data_alone_does_not_reach_the_bound(make):
    """An endpoint that refuses everything must not end the recording for one that takes it."""
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=400, message="bad")] * 100)
        unsent = _Unsent(make, _environ(server.endpoint, "http/protobuf"))
        unsent.box.put(range(50), [Signal.LOGS])
        unsent.box.outbox.flush(PATIENCE)
        assert unsent.LIMIT * 0.05 < unsent.size() < unsent.LIMIT * 0.15
        assert 4 == len(unsent.taken())


def test_what_is_kept_locally_has_no_bound(make):
    """Nothing waits for an endpoint there; only the floor of free disk stands before it."""
    unsent = _Unsent(make, {})
    unsent.fill(1.2)
    assert 4 == len(unsent.taken())
    assert unsent.box.stats().is_complete


def test_a_floor_of_free_disk_is_left_to_others(make):
    """Below it nothing is allocated: what memory holds is kept until there is room, and the remedy is told."""
    free = [10**9]
    box = make({}, segment_size=512, space=Space(None, 10**8, lambda folder: (free[0], 10**10)))
    box.put(range(3), [Signal.LOGS])
    free[0] = 10**8
    box.put(range(3, 100), [Signal.LOGS])
    box.tend()
    count = len(box.on_disk())
    assert count < 50
    assert "free some, or name another folder in OTEL_LOGGER_DIR" in box.stats().last_error
    free[0] = 10**9
    box.tend()
    assert list(range(100)) == box.on_disk()
    assert {} == box.stats().dropped


def test_everything_recorded_is_somewhere(make, tmp_path):
    """Delivered, refused, waiting and lost add up to what was recorded, whatever became of it."""
    restore, _ = restoring(tmp_path / "writer")
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"), restore=restore)
        box.ready([Signal.LOGS])
        box.put(range(5))
        server.answer_with(Reply(http=400, message="bad"))
        box.outbox.flush(PATIENCE)
        box.put(range(5, 9))
        box.outbox.flush(PATIENCE)
        box.put(range(9, 12))
        box.delete_folder()
        box.tend()
        box.put(range(12, 14))
    box.outbox.close(PATIENCE)
    stats = box.stats()
    for signal in ("metrics", "logs", "traces"):
        assert 14 == stats.recorded[signal]
        lost = {"logs": 3}.get(signal, 12)
        assert 14 - lost == stats.delivered[signal] + stats.refused[signal] + stats.waiting[signal]
    assert {"deleted": 27} == stats.dropped
    assert 2 == stats.waiting["logs"]


def test_a_fault_in_one_journal_stops_neither_the_thread_nor_the_others(make, monkeypatch):
    """It is told, and tried again."""
    box = make({})

    def fail():
        raise RuntimeError("ouch")

    monkeypatch.setattr(box.outbox.journal(Signal.METRICS), "tend", fail)
    with box.outbox.journal(Signal.LOGS).disk:
        box.put(range(3), [Signal.LOGS])
    box.tend()
    assert "Writing metrics failed inside otel_logger: RuntimeError('ouch')" == box.stats().last_error
    assert list(range(3)) == box.on_disk()
    monkeypatch.undo()


def test_threads_and_rotations_lose_and_double_nothing(make):
    """Several threads record while segments end and data goes out: each item arrives once, and the counts agree."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"), interval=0.001, segment_size=300)
        box.ready()
        threads = [
            threading.Thread(target=box.put, args=(range(n * 100, n * 100 + 100), [Signal.LOGS])) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert box.outbox.flush(PATIENCE)
        assert Counter(range(400)) == Counter(_arrived(server)[Signal.LOGS])
    assert 400 == box.stats().delivered["logs"]
    # A reader that is ahead of the writer deletes what that has not sealed yet, which is no loss.
    assert {} == box.stats().dropped


def test_a_failing_housekeeping_does_not_keep_buffers_from_the_disk(make, caplog):
    """What is buffered is written whatever else fails in the thread."""

    def fail():
        raise RuntimeError("ouch")

    box = make({}, mapped=False, housekeeping=fail)
    box.put(range(3), [Signal.LOGS])
    assert not box.outbox.flush(PATIENCE)
    records = read_segment((box.outbox.folder / "logs-00000001.seg").read_bytes()).records
    assert 3 == sum(record.kind == Kind.OTLP for record in records)
    assert "RuntimeError('ouch')" in caplog.text


def test_a_flush_without_threads_writes_what_is_in_memory(make):
    """Where none can be started, as under a limit of processes, what is recorded is not kept in memory to the end."""
    box = make({}, mapped=False)
    box.outbox._sender.stop(PATIENCE)
    box.outbox._upkeep.stop(PATIENCE)
    box.put(range(3), [Signal.LOGS])
    assert not box.outbox.flush(PATIENCE)
    assert list(range(3)) == box.on_disk()


def test_nobody_listens(make, protocol):
    """Without a server a flush fails soon and truthfully, and all of it waits on disk."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    box = make(_environ(f"http://127.0.0.1:{port}", protocol))
    box.ready()
    box.put(range(2))
    assert not box.outbox.flush(PATIENCE)
    box.outbox.close(PATIENCE)
    assert {"metrics": 2, "logs": 2, "traces": 2} == box.stats().waiting
    assert 3 == len(_names(box.outbox.folder))
