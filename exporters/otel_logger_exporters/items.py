"""Items: log records and spans as framed OTLP, resources as OTLP bytes.

The only module that imports an encoder of OpenTelemetry's own OTLP exporters, that of spans;
tests/contracts/test_items.py holds what is needed of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as sdk_encode_spans
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope as Scope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_logger_exporters.any_values import any_value, key_values
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.payloads import Frame

if TYPE_CHECKING:
    from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber as ProtoSeverity

__all__ = ["Event", "Severity", "encode_event", "encode_resource", "encode_spans"]

Severity = SeverityNumber


@dataclass(frozen=True, slots=True)
class Event:
    """A log record: its event name, if any, time (ns), body and attributes as plain data, the span it belongs to.

    `severity_text` is the level's name at its source, where that is not OpenTelemetry's.
    """

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    severity: SeverityNumber = SeverityNumber.INFO
    span: SpanContext | None = None
    severity_text: str = ""


def encode_event(event: Event, scope: InstrumentationScope, limits: Limits | None = None) -> Frame:
    """Return the frame of one log record, a ScopeLogs message without its resource; what is beyond `limits` is cut.

    Raises TypeError or ValueError for a body that is no plain data.
    """
    # Not by the SDK's encoder: its way over three records of its own takes twice as long, in the caller's thread.
    record = LogRecord(
        time_unix_nano=event.time_ns,
        observed_time_unix_nano=event.time_ns,
        severity_number=cast("ProtoSeverity.ValueType", event.severity.value),
        severity_text=event.severity_text or event.severity.name,
        attributes=key_values(event.attributes),
        event_name=event.name,
    )
    if event.body is not None:
        record.body.CopyFrom(any_value(event.body))
    if (span := event.span) is not None and span.is_valid:
        record.trace_id = span.trace_id.to_bytes(16, "big")
        record.span_id = span.span_id.to_bytes(8, "big")
        record.flags = int(span.trace_flags)
    message = ScopeLogs(
        scope=Scope(name=scope.name, version=scope.version or ""),
        log_records=[record],
        schema_url=scope.schema_url or "",
    )
    if limits is not None:
        limits.fit_logs(message)
    return Frame(1, message.SerializeToString())


def encode_spans(spans: Sequence[ReadableSpan], limits: Limits | None = None) -> Frame:
    """Return the frame of ended spans of one scope, a ScopeSpans message without its resource; cut to `limits`."""
    request = sdk_encode_spans(spans)
    (scope_spans,) = request.resource_spans[0].scope_spans
    if limits is not None:
        limits.fit_spans(scope_spans)
    return Frame(len(spans), scope_spans.SerializeToString())


def encode_resource(attributes: Mapping[str, Any]) -> bytes:
    """Return the OTLP Resource message of plain attributes; one that is no plain data is left out."""
    message: bytes = Resource(attributes=key_values(attributes)).SerializeToString()
    return message
