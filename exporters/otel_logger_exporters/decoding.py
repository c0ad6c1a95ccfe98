"""Decoding: recorded OTLP as plain data, for reading a journal back. ValueError for bytes that are none."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

__all__ = ["decode_events", "decode_resource", "decode_spans", "plain_attributes", "plain_value"]

_Message = TypeVar("_Message", bound=Message)


def decode_resource(message: bytes) -> dict[str, Any]:
    """Return the attributes of an encoded Resource."""
    return plain_attributes(_parsed(Resource(), message).attributes)


def decode_events(scope_logs: bytes) -> Iterator[dict[str, Any]]:
    """Yield a ScopeLogs message's records: name, time (ns), severity, body, attributes, ids (hex or ""), scope."""
    message = _parsed(ScopeLogs(), scope_logs)
    for record in message.log_records:
        yield {
            "name": record.event_name,
            "time": record.time_unix_nano,
            "severity": record.severity_text,
            "body": plain_value(record.body),
            "attributes": plain_attributes(record.attributes),
            "trace_id": record.trace_id.hex(),
            "span_id": record.span_id.hex(),
            "scope": message.scope.name,
        }


def decode_spans(scope_spans: bytes) -> Iterator[dict[str, Any]]:
    """Yield a ScopeSpans message's spans: name, ids (hex), start and end (ns), attributes, events, links, error."""
    for span in _parsed(ScopeSpans(), scope_spans).spans:
        yield {
            "name": span.name,
            "trace_id": span.trace_id.hex(),
            "span_id": span.span_id.hex(),
            "parent_span_id": span.parent_span_id.hex(),
            "start": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "attributes": plain_attributes(span.attributes),
            "events": [
                {"name": event.name, "time": event.time_unix_nano, "attributes": plain_attributes(event.attributes)}
                for event in span.events
            ],
            "links": [{"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()} for link in span.links],
            "error": span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else None,
        }


def _parsed(message: _Message, data: bytes) -> _Message:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return message


def plain_attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Return attributes as a dict."""
    return {pair.key: plain_value(pair.value) for pair in pairs}


def plain_value(value: AnyValue) -> Any:
    """Return a value as what it holds: text, number, list, dict, bytes or None."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return plain_attributes(value.kvlist_value.values)
    return getattr(value, kind)
