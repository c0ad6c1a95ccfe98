"""An outbox over a real server on the loopback interface: what is recorded arrives once, and nothing is lost before."""

import logging
import resource
import socket
import threading
from collections import Counter
from contextlib import contextmanager

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.payloads import Frame, unpack_hyperparameters
from otel_logger_exporters.records import Kind
from otel_logger_exporters.requests import MetricVocabulary
from otel_logger_exporters.routes import routes_from_environ
from otel_logger_exporters.rows import Schema
from otel_logger_exporters.segments import read_segment, segments_of
from otel_logger_exporters.signals import Signal
from tests.otlp_server import REQUESTS, OtlpServer, Reply

PROTOCOLS = ("http/protobuf", "grpc")
PATIENCE = 10.0
SCHEMA = Schema(0, ["loss"], "d")
VOCABULARY = MetricVocabulary(str, "key", None, "", InstrumentationScope(name="s"))
FIELDS = {Signal.LOGS: ("resource_logs", "scope_logs"), Signal.TRACES: ("resource_spans", "scope_spans")}


class _Box:
    """An outbox with its ledger, and the numbers that were put into it."""

    def __init__(self, folder, environ, **options):
        self.ledger = Ledger(SystemClock(), logging.getLogger("outbox"))
        self.generations = {}
        folder.mkdir(exist_ok=True)
        settings = {"buffered": False, "interval": 60.0, "housekeeping": lambda: None, **options}
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
        self.outbox.start()

    def put(self, numbers, signals=tuple(Signal)):
        """Record each number once in each signal."""
        for number in numbers:
            for signal in signals:
                if signal is not Signal.METRICS:
                    self.outbox.put(signal, Frame(1, _scope(signal, number)))
                elif (journal := self.outbox.journal(signal)) is not None:
                    self._put_row(journal, number)

    def _put_row(self, journal, number):
        appended = False
        while not appended:
            generation = journal.generation
            journal.append(Kind.SCHEMA, SCHEMA.pack(), generation=generation)
            payload = SCHEMA.pack_row(number, number, [float(number)])
            appended = journal.append(Kind.ROW, payload, generation=generation)
        self.ledger.record(Signal.METRICS, 1)

    def ready(self, signals=tuple(Signal)):
        """Give the signals an empty resource that is ready."""
        for signal in signals:
            self.outbox.set_resource(signal, b"", bound=True, ready=True)

    def stats(self):
        """Return the ledger's counts."""
        return self.ledger.stats(self.outbox.sent)


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


@pytest.mark.parametrize("buffered", [False, True], ids=["direct", "buffered"])
def test_everything_arrives_once(make, protocol, buffered):
    """Each signal's data is at the server once, in order, after the flush that says so; closing leaves no journal."""
    with OtlpServer(protocol) as server:
        box = make(_environ(server.endpoint, protocol), buffered=buffered)
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
        box = make(_environ(server.endpoint, "http/protobuf"), interval=0.01, buffered=True)
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
        box = make(_environ(server.endpoint, "http/protobuf"), interval=0.001)
        for signal in Signal:
            box.outbox.journal(signal)._segment_size = 400
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
    box = make({}, buffered=True)
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
    box = make({})
    box.outbox.keep_hyperparameters({"lr": 0.1}, 5)
    box.outbox.keep_hyperparameters({"lr": 0.1, "layers": [1, 2]}, 6)
    box.outbox.journal(Signal.METRICS)._segment_size = 100
    box.put(range(20), [Signal.METRICS])
    paths = [path for _, path in segments_of(box.outbox.folder, Signal.METRICS)]
    assert len(paths) > 2
    found = [
        [unpack_hyperparameters(record.payload) for record in read_segment(path.read_bytes()).records[:2]]
        for path in paths[:1]
    ]
    found += [[unpack_hyperparameters(read_segment(path.read_bytes()).records[0].payload)] for path in paths[1:]]
    last = {"lr": 0.1, "layers": [1, 2]}, 6
    assert [[({"lr": 0.1}, 5), last], *[[last]] * (len(paths) - 1)] == found


@contextmanager
def _full_disk(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_the_disk_refuses_is_counted_as_lost(make):
    """Recording goes on without raising; what is lost is in the counts, and what comes after it is kept."""
    box = make({})
    box.ready([Signal.LOGS])
    box.put(range(2), [Signal.LOGS])
    with _full_disk(200):
        box.put(range(2, 12), [Signal.LOGS])
    box.put([12], [Signal.LOGS])
    stats = box.stats()
    assert 10 == stats.dropped["disk"] + stats.recorded["logs"] - 3
    assert stats.dropped["disk"] > 5
    segment = read_segment((box.outbox.folder / "logs-00000001.seg").read_bytes())
    assert stats.recorded["logs"] == sum(record.kind == Kind.OTLP for record in segment.records)
    assert "logs are lost, the disk does not take them" in stats.last_error


def test_threads_and_rotations_lose_and_double_nothing(make):
    """Several threads record while segments end and data goes out: each item arrives once, and the counts agree."""
    with OtlpServer("http/protobuf") as server:
        box = make(_environ(server.endpoint, "http/protobuf"), interval=0.001)
        box.outbox.journal(Signal.LOGS)._segment_size = 300
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


def test_a_failing_housekeeping_does_not_keep_buffers_from_the_disk(make, caplog):
    """What is buffered is written whatever else fails in the thread."""

    def fail():
        raise RuntimeError("ouch")

    box = make({}, buffered=True, housekeeping=fail)
    box.put(range(3), [Signal.LOGS])
    assert not box.outbox.flush(PATIENCE)
    records = read_segment((box.outbox.folder / "logs-00000001.seg").read_bytes()).records
    assert 3 == sum(record.kind == Kind.OTLP for record in records)
    assert "RuntimeError('ouch')" in caplog.text


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
