"""Items: log records and spans as framed OTLP, resources as OTLP bytes.

The only module that imports the encoders of OpenTelemetry's own OTLP exporters; the path of the log encoder has an
underscore, so tests/contracts/test_items.py holds what we need of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as sdk_encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from otel_logger_exporters.detectors import without_detectors
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.payloads import Frame

with without_detectors():
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.sdk._logs import ReadableLogRecord

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
    """Return the frame of one log record, a ScopeLogs message without its resource; what is beyond `limits` is cut."""
    record = LogRecord(
        timestamp=event.time_ns,
        observed_timestamp=event.time_ns,
        context=set_span_in_context(NonRecordingSpan(event.span)) if event.span else set_span_in_context(_NO_SPAN),
        severity_number=event.severity,
        severity_text=event.severity_text or event.severity.name,
        body=event.body,
        attributes=dict(event.attributes),
        event_name=event.name or None,
    )
    request = encode_logs([ReadableLogRecord(record, _NO_RESOURCE, scope)])
    (scope_logs,) = request.resource_logs[0].scope_logs
    if limits is not None:
        limits.fit_logs(scope_logs)
    return Frame(1, scope_logs.SerializeToString())


def encode_spans(spans: Sequence[ReadableSpan], limits: Limits | None = None) -> Frame:
    """Return the frame of ended spans of one scope, a ScopeSpans message without its resource; cut to `limits`."""
    request = sdk_encode_spans(spans)
    (scope_spans,) = request.resource_spans[0].scope_spans
    if limits is not None:
        limits.fit_spans(scope_spans)
    return Frame(len(spans), scope_spans.SerializeToString())


def encode_resource(attributes: Mapping[str, Any]) -> bytes:
    """Return the OTLP Resource message of plain attributes."""
    record = ReadableLogRecord(LogRecord(timestamp=0), Resource(dict(attributes)), _NO_SCOPE)
    message: bytes = encode_logs([record]).resource_logs[0].resource.SerializeToString()
    return message


_NO_RESOURCE = Resource.get_empty()
_NO_SCOPE = InstrumentationScope("")
_NO_SPAN = NonRecordingSpan(SpanContext(0, 0, is_remote=False))
