"""What is sent to the console is printed, one readable line each, and a broken console harms nothing."""

import io
import os
import sys
from contextlib import contextmanager

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.console import ConsoleTransport, lines_of, standard_output
from otel_logger_exporters.endpoints import endpoint_from_environ
from otel_logger_exporters.route_transports import SILENCE, PrintedTransport, open_route
from otel_logger_exporters.routes import Destination, Route
from otel_logger_exporters.signals import Signal

NOON = 1_700_000_000_123_000_000


def metrics():
    """Return a request with values of three kinds."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    point = scope.metrics.add(name="loss").gauge.data_points.add(time_unix_nano=NOON, as_double=0.25)
    point.attributes.add(key="training.metric.key").value.string_value = "loss"
    scope.metrics.add(name="items", unit="{item}").sum.data_points.add(time_unix_nano=NOON, as_int=3)
    scope.metrics.add(name="loss").gauge.data_points.add(time_unix_nano=NOON, flags=1)
    return request.SerializeToString()


def test_values_of_metrics_are_lines():
    """Time, name, value, unit, attributes; a series that has ended has no value."""
    assert [
        "2023-11-14T22:13:20.123Z metric loss 0.25 training.metric.key=loss",
        "2023-11-14T22:13:20.123Z metric items 3 {item}",
        "2023-11-14T22:13:20.123Z metric loss ended",
    ] == list(lines_of(Signal.METRICS, metrics()))


def test_log_records_are_lines():
    """Time, event, body, attributes; whatever they hold, each is one line, and obeyed by no terminal."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    first = records.add(time_unix_nano=NOON, event_name="training.run.start")
    first.attributes.add(key="training.run.name").value.string_value = 'my "run"\n\x1b[2J\x9b'
    second = records.add(observed_time_unix_nano=NOON, severity_text="ERROR")
    second.body.kvlist_value.values.add(key="lr").value.double_value = 0.1

    assert [
        '2023-11-14T22:13:20.123Z log training.run.start training.run.name="my \\"run\\"\\n\\u001b[2J\\u009b"',
        '2023-11-14T22:13:20.123Z log ERROR {"lr": 0.1}',
    ] == list(lines_of(Signal.LOGS, request.SerializeToString()))


def test_spans_are_lines():
    """Start, name, duration, what failed; their events follow."""
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(name="training.fit", start_time_unix_nano=NOON, end_time_unix_nano=NOON + 1_500_000)
    )
    span.status.code, span.status.message = 2, "out of memory"
    span.events.add(name="note", time_unix_nano=NOON)

    assert [
        '2023-11-14T22:13:20.123Z span training.fit 1.500 ms error: "out of memory"',
        "2023-11-14T22:13:20.123Z event note in training.fit",
    ] == list(lines_of(Signal.TRACES, request.SerializeToString()))


def test_what_is_printed_is_delivered(capsys):
    """On standard output as it is when that happens."""
    answer = ConsoleTransport(Signal.METRICS, standard_output).send(metrics(), 1.0)

    assert Verdict.ACCEPTED is answer.verdict
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["metric"] * 3


def failing(error):
    """Return a console that raises an error."""

    def write(text, timeout):
        raise error

    return ConsoleTransport(Signal.METRICS, write)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (BrokenPipeError("broken"), Verdict.CONFIGURATION),
        (ValueError("I/O operation on closed file"), Verdict.CONFIGURATION),
        (RuntimeError("whatever"), Verdict.CONFIGURATION),
        (TimeoutError(), Verdict.RETRY),
    ],
)
def test_what_cannot_be_printed_is_kept(error, verdict):
    """Nothing raises, and what waits on disk is printed or sent later."""
    assert verdict is failing(error).send(metrics(), 1.0).verdict


def test_what_cannot_be_read_is_refused():
    """As a server would."""
    assert Verdict.REFUSED is failing(OSError()).send(b"\xff", 1.0).verdict


def test_a_program_without_standard_output_harms_nothing(monkeypatch):
    """As under pythonw, or with it closed."""
    monkeypatch.setattr(sys, "stdout", None)
    answer = ConsoleTransport(Signal.METRICS, standard_output).send(metrics(), 1.0)

    assert Verdict.CONFIGURATION is answer.verdict
    assert "standard output cannot be written (there is none)" in answer.message


@contextmanager
def piped():
    """Make a pipe the program's own standard output; give its end for reading."""
    reading, writing = os.pipe()
    # pytest replaces it between a fixture and its test.
    with open(writing, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "__stdout__", stream)
        yield reading
    os.close(reading)


def test_a_pipe_gets_the_lines_at_once():
    """Past the buffer of Python's stream."""
    with piped() as pipe:
        standard_output("é\n", 1.0)

        assert "é\n" == os.read(pipe, 100).decode()


def test_a_reader_that_hangs_is_not_waited_for():
    """A full pipe takes nothing more, and neither the sender nor the end of the program hangs."""
    with piped(), pytest.raises(TimeoutError):
        standard_output("x" * 2**20, 0.01)


class _Accepting:
    """A transport that answers as it is told to."""

    def __init__(self, *verdicts):
        self.verdicts = list(verdicts)
        self.sent = 0
        self.is_closed = False

    def send(self, body, timeout):
        self.sent += 1
        return Answer(self.verdicts.pop(0) if self.verdicts else Verdict.ACCEPTED, "x")

    def close(self):
        self.is_closed = True


class _Clock:
    now = 0.0

    def monotonic(self):
        return self.now

    def time_ns(self):
        return 0


def test_what_is_sent_and_printed_is_printed_once_when_it_is_taken():
    """What is to be sent again is not printed yet."""
    transport, console = _Accepting(Verdict.RETRY, Verdict.ACCEPTED), _Accepting()
    both = PrintedTransport(transport, console, _Clock())

    assert [Verdict.RETRY, Verdict.ACCEPTED] == [both.send(b"", 1.0).verdict for _ in range(2)]
    assert 1 == console.sent
    both.close()
    assert transport.is_closed


def test_a_broken_console_holds_up_nothing_that_is_sent():
    """After it did not take something it is left alone for a minute."""
    clock, console = _Clock(), _Accepting(Verdict.RETRY)
    both = PrintedTransport(_Accepting(), console, clock)

    assert {Verdict.ACCEPTED} == {both.send(b"", 1.0).verdict for _ in range(3)}
    assert 1 == console.sent
    clock.now = SILENCE
    both.send(b"", 1.0)
    assert 2 == console.sent


@pytest.mark.parametrize(
    ("is_sent", "is_printed", "kind"),
    [(True, True, "PrintedTransport"), (True, False, "HttpTransport"), (False, True, "ConsoleTransport")],
)
def test_a_route_has_the_transport_of_its_exporters(is_sent, is_printed, kind):
    """`otlp`, `console`, or both."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    endpoint = endpoint_from_environ(environ, Signal.LOGS)[0] if is_sent else None
    transport = open_route(Route(Signal.LOGS, Destination.SEND, endpoint, is_printed=is_printed), "x")

    assert kind == type(transport).__name__
    transport.close()


def test_a_stream_of_a_notebook_is_written_as_such(monkeypatch):
    """What stands in the place of the program's own standard output is no file."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    standard_output("é\n", 1.0)

    assert "é\n" == stream.getvalue()
