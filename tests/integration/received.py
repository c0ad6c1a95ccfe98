"""What a Collector wrote to its files, as plain values that tests compare.

The files hold OTLP as JSON, one export request per line. OTLP's JSON differs from protobuf's own: identifiers are hex,
64-bit integers are strings, and a double that JSON has no number for is "NaN", "Infinity" or "-Infinity".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from otel_logger import conventions as names

__all__ = [
    "Attributes",
    "LogRecord",
    "MetricPoint",
    "Received",
    "Span",
    "SpanEvent",
    "SpanLink",
    "by_identity",
    "decode_value",
    "identity",
    "log_records",
    "metric_points",
    "read",
    "spans",
]

Attributes: TypeAlias = dict[str, Any]
Json: TypeAlias = Mapping[str, Any]

# The code of a span's status by which OTLP says that what it stands for has failed.
FAILED = 2

# The bit of a point's flags by which OTLP says that there is no value at this time.
NO_RECORDED_VALUE = 1


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One point of a gauge or a sum."""

    name: str
    attributes: Attributes
    time_ns: int
    value: int | float | None
    """`int` where the sender sent an integer, `float` where it sent a double, `None` for "no recorded value"."""
    resource: Attributes
    scope: str
    unit: str
    kind: str
    """`gauge` or `sum`."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """One event of a span."""

    name: str
    time_ns: int
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanLink:
    """One link of a span."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span; ids are hex, and empty where there is none."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    links: tuple[SpanLink, ...]
    start_ns: int
    end_ns: int
    resource: Attributes
    scope: str
    error: str | None = None
    """The description of a status that is an error, which may be empty; `None` where nothing has failed."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One log record; ids are hex, and empty where there is none."""

    event_name: str
    body: Any
    attributes: Attributes
    time_ns: int
    observed_time_ns: int
    severity: int
    trace_id: str
    span_id: str
    resource: Attributes
    scope: str


@dataclass(frozen=True, slots=True)
class Received:
    """Everything a Collector wrote, each signal in the order of arrival."""

    metrics: tuple[MetricPoint, ...]
    spans: tuple[Span, ...]
    logs: tuple[LogRecord, ...]


Item = TypeVar("Item", MetricPoint, Span, LogRecord)


def read(folder: Path) -> Received:
    """Reads the files that `collector-config/base.yaml` writes into a folder."""
    return Received(
        metrics=tuple(point for request in requests(folder / "metrics.jsonl") for point in metric_points(request)),
        spans=tuple(span for request in requests(folder / "traces.jsonl") for span in spans(request)),
        logs=tuple(record for request in requests(folder / "logs.jsonl") for record in log_records(request)),
    )


def requests(path: Path) -> Iterator[Json]:
    """The export requests of one file; a last line that is still being written is left out.

    A file that is not there, while its folder is, holds none: some configurations create it with the first request.
    """
    if not path.exists() and path.parent.is_dir():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line, parse_int=whole_number)


def whole_number(text: str) -> int | float:
    """The number of a JSON integer; the double -0.0 is written as one, and Python's integers have no such zero."""
    return -0.0 if text == "-0" else int(text)


def identity(item: MetricPoint | Span | LogRecord) -> Hashable:
    """What makes two received items one that was sent twice, for each signal.

    A metric point is its series (resource, name, attributes) and its time; a span its trace id and span id; a log
    record its `log.record.uid`.
    """
    if isinstance(item, MetricPoint):
        return frozen(item.resource), item.name, frozen(item.attributes), item.time_ns
    if isinstance(item, Span):
        return item.trace_id, item.span_id
    return str(item.attributes[names.LOG_RECORD_UID])


def by_identity(items: Iterable[Item]) -> dict[Hashable, list[Item]]:
    """The items, gathered by their identity; each entry holds those that were received as one and the same."""
    found: dict[Hashable, list[Item]] = {}
    for item in items:
        found.setdefault(identity(item), []).append(item)
    return found


def frozen(value: Any) -> Hashable:
    """A decoded value as something to compare and look up by."""
    if isinstance(value, dict):
        return frozenset((key, frozen(each)) for key, each in value.items())
    return tuple(frozen(each) for each in value) if isinstance(value, list) else value


def metric_points(request: Json) -> Iterator[MetricPoint]:
    """The points of one metrics request; raises `ValueError` for a kind of metric that has no single value."""
    for resource, scope, metric in members(request, "resourceMetrics", "scopeMetrics", "metrics"):
        kind = next((kind for kind in ("gauge", "sum") if kind in metric), None)
        if kind is None:
            msg = f"metric {metric['name']!r} is no gauge and no sum but has {sorted(metric)}; extend {__name__}"
            raise ValueError(msg)
        for point in metric[kind].get("dataPoints", ()):
            yield MetricPoint(
                name=metric["name"],
                attributes=decode_attributes(point),
                time_ns=int(point.get("timeUnixNano", 0)),
                value=decode_number(point),
                resource=resource,
                scope=scope,
                unit=metric.get("unit", ""),
                kind=kind,
            )


def spans(request: Json) -> Iterator[Span]:
    """The spans of one traces request."""
    for resource, scope, span in members(request, "resourceSpans", "scopeSpans", "spans"):
        yield Span(
            name=span.get("name", ""),
            trace_id=span.get("traceId", ""),
            span_id=span.get("spanId", ""),
            parent_span_id=span.get("parentSpanId", ""),
            attributes=decode_attributes(span),
            events=tuple(
                SpanEvent(event.get("name", ""), int(event.get("timeUnixNano", 0)), decode_attributes(event))
                for event in span.get("events", ())
            ),
            links=tuple(
                SpanLink(link.get("traceId", ""), link.get("spanId", ""), decode_attributes(link))
                for link in span.get("links", ())
            ),
            start_ns=int(span.get("startTimeUnixNano", 0)),
            end_ns=int(span.get("endTimeUnixNano", 0)),
            resource=resource,
            scope=scope,
            error=span["status"].get("message", "") if span.get("status", {}).get("code") == FAILED else None,
        )


def log_records(request: Json) -> Iterator[LogRecord]:
    """The records of one logs request."""
    for resource, scope, record in members(request, "resourceLogs", "scopeLogs", "logRecords"):
        yield LogRecord(
            event_name=record.get("eventName", ""),
            body=decode_value(record.get("body", {})),
            attributes=decode_attributes(record),
            time_ns=int(record.get("timeUnixNano", 0)),
            observed_time_ns=int(record.get("observedTimeUnixNano", 0)),
            severity=record.get("severityNumber", 0),
            trace_id=record.get("traceId", ""),
            span_id=record.get("spanId", ""),
            resource=resource,
            scope=scope,
        )


def members(request: Json, resources: str, scopes: str, items: str) -> Iterator[tuple[Attributes, str, Json]]:
    """What a request holds, each with its resource's attributes and its scope's name."""
    for of_resource in request.get(resources, ()):
        resource = decode_attributes(of_resource.get("resource", {}))
        for of_scope in of_resource.get(scopes, ()):
            scope = of_scope.get("scope", {}).get("name", "")
            for item in of_scope.get(items, ()):
                yield resource, scope, item


def decode_attributes(holder: Json) -> Attributes:
    """The attributes of anything that has some."""
    return {entry["key"]: decode_value(entry.get("value", {})) for entry in holder.get("attributes", ())}


def decode_value(value: Json) -> Any:
    """The Python value of an OTLP `AnyValue`; the empty one is `None`."""
    match dict(value):
        case {"stringValue": text}:
            return text
        case {"boolValue": truth}:
            return truth
        case {"intValue": number}:
            return int(number)
        case {"doubleValue": number}:
            return float(number)
        case {"arrayValue": array}:
            return [decode_value(item) for item in array.get("values", ())]
        case {"kvlistValue": entries}:
            return {entry["key"]: decode_value(entry.get("value", {})) for entry in entries.get("values", ())}
        case {"bytesValue": encoded}:
            return base64.b64decode(encoded, validate=True)
        case empty if not empty:
            return None
    msg = f"{value!r} is no OTLP value"
    raise ValueError(msg)


def decode_number(point: Json) -> int | float | None:
    """The number of a point, of the type it was sent as."""
    if point.get("flags", 0) & NO_RECORDED_VALUE:
        return None
    # float() because JSON writes the double 1.0 as 1, and takes "NaN" as it comes.
    return int(point["asInt"]) if "asInt" in point else float(point["asDouble"])
