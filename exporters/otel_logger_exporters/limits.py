"""Limits: the most that a span or a log record may hold, as `OTEL_*_LIMIT` says.

None is set by default: the specification's 128 attributes and events would drop data unasked. They are applied to the
encoded message, not by the SDK, which drops the oldest instead of the newest and logs a line for each.
"""

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

from otel_logger_exporters.envvars import read_int

__all__ = ["Limits", "limits_from_environ"]

MOST = 2**31 - 1
"""The greatest number that the specification asks to be understood."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many attributes, events and links are kept, and how long their values may be; None is no limit.

    The length of values of a span holds for its events and links too. It is in characters, of byte strings in bytes.
    """

    span_attributes: int | None = None
    event_attributes: int | None = None
    link_attributes: int | None = None
    log_attributes: int | None = None
    span_value_length: int | None = None
    log_value_length: int | None = None
    events: int | None = None
    links: int | None = None

    def fit_spans(self, message: ScopeSpans) -> None:
        """Cut what is too much off each span; what is dropped is counted in the span."""
        for span in message.spans:
            if self.events is not None and len(span.events) > self.events:
                span.dropped_events_count += len(span.events) - self.events
                del span.events[self.events :]
            if self.links is not None and len(span.links) > self.links:
                span.dropped_links_count += len(span.links) - self.links
                del span.links[self.links :]
            _fit(span, self.span_attributes, self.span_value_length)
            if self.event_attributes is not None or self.span_value_length is not None:
                for event in span.events:
                    _fit(event, self.event_attributes, self.span_value_length)
            for link in span.links:
                _fit(link, self.link_attributes, self.span_value_length)

    def fit_logs(self, message: ScopeLogs) -> None:
        """Cut what is too much off the attributes of each log record; what is dropped is counted in the record."""
        for record in message.log_records:
            _fit(record, self.log_attributes, self.log_value_length)


def limits_from_environ(environ: Mapping[str, str]) -> Limits:
    """Return the limits that are set, those of a kind of data before the general; ConfigurationError for no number."""

    def read(name: str, default: int | None = None) -> int | None:
        return read_int(environ, name, default, maximum=MOST)

    count, length = read("OTEL_ATTRIBUTE_COUNT_LIMIT"), read("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
    return Limits(
        span_attributes=read("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", count),
        event_attributes=read("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", count),
        link_attributes=read("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", count),
        log_attributes=read("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", count),
        span_value_length=read("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", length),
        log_value_length=read("OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", length),
        events=read("OTEL_SPAN_EVENT_COUNT_LIMIT"),
        links=read("OTEL_SPAN_LINK_COUNT_LIMIT"),
    )


class _Attributed(Protocol):
    dropped_attributes_count: int

    @property
    def attributes(self) -> MutableSequence[KeyValue]: ...


def _fit(owner: _Attributed, count: int | None, length: int | None) -> None:
    if count is not None and len(owner.attributes) > count:
        owner.dropped_attributes_count += len(owner.attributes) - count
        del owner.attributes[count:]
    if length is not None:
        for attribute in owner.attributes:
            _cut(attribute.value, length)


def _cut(value: AnyValue, length: int) -> None:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        value.string_value = value.string_value[:length]
    elif kind == "bytes_value":
        value.bytes_value = value.bytes_value[:length]
    elif kind == "array_value":
        for item in value.array_value.values:
            _cut(item, length)
    elif kind == "kvlist_value":
        for pair in value.kvlist_value.values:
            _cut(pair.value, length)
