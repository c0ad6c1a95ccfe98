"""The console exporter: prints what is sent to standard output, one readable line for each value, record and span."""

import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags, NumberDataPoint

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.decoding import plain_attributes, plain_value
from otel_logger_exporters.signals import Signal

__all__ = ["ConsoleTransport", "lines_of", "standard_output"]

CHUNK = 4096
"""Bytes that are written at a time: as many as a pipe takes without making its writer wait, when it takes any."""


class ConsoleTransport:
    """Prints requests of a signal by `write`, which is given the text and the seconds it may take.

    What is printed is delivered. Where standard output is closed, or nobody reads it any more, that is an answer of
    class CONFIGURATION, and where its reader hangs one of class RETRY: data stays on disk, and nothing waits for it.
    """

    def __init__(self, signal: Signal, write: Callable[[str, float], None]) -> None:
        self._signal = signal
        self._write = write

    def send(self, body: bytes, timeout: float) -> Answer:
        """Print one serialised export request within `timeout` seconds; never raises."""
        try:
            text = "".join(f"{line}\n" for line in lines_of(self._signal, body))
        except (DecodeError, ValueError) as error:
            return Answer(Verdict.REFUSED, "CONSOLE", f"the request cannot be read: {error}")
        try:
            self._write(text, timeout)
        except TimeoutError:
            return Answer(Verdict.RETRY, "CONSOLE", "standard output takes no more, its reader hangs")
        except Exception as error:
            # Whatever the program has put in the place of standard output may raise anything.
            message = f"standard output cannot be written ({error}): leave console out of OTEL_*_EXPORTER"
            return Answer(Verdict.CONFIGURATION, "CONSOLE", message)
        return Answer(Verdict.ACCEPTED, "CONSOLE")

    def close(self) -> None:
        """Do nothing: standard output is the program's."""


def standard_output(text: str, timeout: float) -> None:
    """Write to standard output as it is now; TimeoutError when it takes nothing more for so long."""
    stream, own = sys.stdout, sys.__stdout__
    if stream is None:
        msg = "there is none"
        raise OSError(msg)
    if own is None or stream is not own:
        # A notebook's, or a test's.
        stream.write(text)
        stream.flush()
        return
    # Past the stream's buffer: a daemon thread that hangs with the lock of that would abort the interpreter at exit.
    descriptor, left = own.fileno(), text.encode(own.encoding or "utf-8", "backslashreplace")
    clock = SystemClock()
    deadline = clock.monotonic() + timeout
    while left:
        _, ready, _ = select.select([], [descriptor], [], max(0.0, deadline - clock.monotonic()))
        if not ready:
            raise TimeoutError
        left = left[os.write(descriptor, left[:CHUNK]) :]


def lines_of(signal: Signal, body: bytes) -> Iterator[str]:
    """Yield the lines of one serialised export request."""
    if signal is Signal.METRICS:
        yield from _metrics(ExportMetricsServiceRequest.FromString(body))
    elif signal is Signal.LOGS:
        yield from _logs(ExportLogsServiceRequest.FromString(body))
    else:
        yield from _spans(ExportTraceServiceRequest.FromString(body))


def _metrics(request: ExportMetricsServiceRequest) -> Iterator[str]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in (*metric.gauge.data_points, *metric.sum.data_points):
                    unit = f" {metric.unit}" if metric.unit else ""
                    yield _line(
                        point.time_unix_nano, "metric", metric.name, f"{_number(point)}{unit}", point.attributes
                    )


def _number(point: NumberDataPoint) -> str:
    if point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
        return "ended"
    return str(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)


def _logs(request: ExportLogsServiceRequest) -> Iterator[str]:
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                body = plain_value(record.body)
                moment = record.time_unix_nano or record.observed_time_unix_nano
                name = record.event_name or record.severity_text or "-"
                yield _line(moment, "log", name, "" if body is None else _text(body), record.attributes)


def _spans(request: ExportTraceServiceRequest) -> Iterator[str]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                taken = f"{(span.end_time_unix_nano - span.start_time_unix_nano) / 1e6:.3f} ms"
                failed = f" error: {_text(span.status.message)}" if span.status.code == 2 else ""
                yield _line(span.start_time_unix_nano, "span", span.name, taken + failed, span.attributes)
                for event in span.events:
                    yield _line(event.time_unix_nano, "event", event.name, f"in {_text(span.name)}", event.attributes)


def _line(time_ns: int, kind: str, name: str, what: str, attributes: Iterable[Any]) -> str:
    seconds, nanoseconds = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    pairs = (f"{_text(key)}={_text(value)}" for key, value in plain_attributes(attributes).items())
    return " ".join(filter(None, (f"{moment}.{nanoseconds // 10**6:03}Z", kind, _text(name), what, *pairs)))


def _text(value: Any) -> str:
    """Return a value in one line: words as they are, all else as JSON."""
    if isinstance(value, str) and value.isprintable() and value and not set(' "={}[],') & set(value):
        return value
    return json.dumps(value, ensure_ascii=not _is_printable(value), default=str)


def _is_printable(value: Any) -> bool:
    # JSON escapes ASCII's control characters alone; a terminal obeys others too.
    return str(value).replace("\n", "").replace("\t", "").isprintable()
