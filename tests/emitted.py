"""What was sent, held against the glossary: every name in OTLP requests that nobody has documented."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from otel_logger import conventions as names
from otel_logger.attribute_glossary import ATTRIBUTES
from otel_logger.glossary import (
    EVENTS,
    EVERY_EVENT,
    EVERY_SPAN,
    METRICS,
    PROGRAM_LOG,
    RESOURCE,
    SPAN_EVENTS,
    SPANS,
    Kind,
)
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer

__all__ = ["Users", "seen", "seen_attributes", "strangers"]

_METRICS = {entry.name: entry for entry in METRICS}
_EVENTS = {entry.name: entry for entry in EVENTS}
_SPANS = {entry.name: entry for entry in SPANS}
_SPAN_EVENTS = {entry.name: entry for entry in SPAN_EVENTS}
_VALUES = {entry.name: entry.values for entry in ATTRIBUTES if entry.values}
_TRACE = (names.TRACE_VALUE, names.STEP)


@dataclass(frozen=True)
class Users:
    """Names that are the user's own: keys, spans with their attributes, loggers, `extra`, and resource attributes.

    Keys None are any.
    """

    keys: frozenset[str] | None = frozenset()
    traces: frozenset[str] = frozenset()
    spans: dict[str, frozenset[str]] = field(default_factory=dict)
    loggers: frozenset[str] = frozenset()
    extra: frozenset[str] = frozenset()
    resource: frozenset[str] = frozenset()


def strangers(server: OtlpServer, users: Users) -> list[str]:
    """Return what a server was sent that is neither in the glossary nor the user's, each once, with what is wrong."""
    found = [*_of_metrics(server, users), *_of_logs(server, users), *_of_traces(server, users)]
    return sorted(set(found))


def seen(server: OtlpServer) -> set[str]:
    """Return the names of all metrics, events and spans of our own, and of span events, that a server was sent."""
    logs = {r.event_name for _, scope in _scopes(server, Signal.LOGS) for r in scope.log_records}
    spans = [span for _, scope in _scopes(server, Signal.TRACES) for span in scope.spans]
    metrics = {metric.name for _, scope in _scopes(server, Signal.METRICS) for metric in scope.metrics}
    return logs | metrics | {span.name for span in spans} | {event.name for span in spans for event in span.events}


def seen_attributes(server: OtlpServer) -> set[str]:
    """Return the names of all attributes that a server was sent, of resources, records, points, spans and events."""
    owners: list[Any] = []
    for signal in Signal:
        for resource, scope in _scopes(server, signal):
            owners.append(resource)
            if signal is Signal.LOGS:
                owners += scope.log_records
            elif signal is Signal.METRICS:
                owners += (p for m in scope.metrics for p in (*m.gauge.data_points, *m.sum.data_points))
            else:
                owners += (one for span in scope.spans for one in (span, *span.events))
    return {attribute.key for owner in owners for attribute in owner.attributes}


def _of_metrics(server: OtlpServer, users: Users) -> Iterator[str]:
    for resource, scope in _scopes(server, Signal.METRICS):
        yield from _of_resource(resource, users)
        yield from _of_scope(scope, "metrics")
        for metric in scope.metrics:
            entry = _METRICS.get(metric.name)
            kind = Kind.SUM if metric.HasField("sum") and metric.sum.is_monotonic else Kind.GAUGE
            points = [*metric.gauge.data_points, *metric.sum.data_points]
            if entry is None:
                keys = {attribute.value.string_value for point in points for attribute in point.attributes}
                is_known = users.keys is None or keys <= users.keys
                if not is_known or {names.metric_name(key) for key in keys} != {metric.name}:
                    yield f"metric {metric.name}"
                allowed: tuple[str, ...] = (names.METRIC_KEY,)
            else:
                allowed = entry.carries
                if (entry.unit, entry.kind) != (metric.unit, kind):
                    yield f"metric {metric.name}: {kind.value} in {metric.unit!r}"
            for point in points:
                yield from _of_attributes(f"metric {metric.name}", point.attributes, allowed)


def _of_logs(server: OtlpServer, users: Users) -> Iterator[str]:
    for resource, scope in _scopes(server, Signal.LOGS):
        yield from _of_resource(resource, users)
        is_program = scope.scope.name in users.loggers
        if not is_program:
            yield from _of_scope(scope, "logs")
        for record in scope.log_records:
            if is_program:
                allowed = (*EVERY_EVENT, *PROGRAM_LOG, *users.extra)
                where = f"log record of {scope.scope.name}"
                if record.event_name:
                    yield f"{where}: event name {record.event_name}"
            else:
                entry = _EVENTS.get(record.event_name)
                where = f"event {record.event_name}"
                if entry is None:
                    yield where
                    continue
                allowed = (*EVERY_EVENT, *entry.carries)
            yield from _of_attributes(where, record.attributes, allowed)


def _of_traces(server: OtlpServer, users: Users) -> Iterator[str]:
    for resource, scope in _scopes(server, Signal.TRACES):
        yield from _of_resource(resource, users)
        yield from _of_scope(scope, "traces")
        for span in scope.spans:
            entry = _SPANS.get(span.name)
            allowed = entry.carries if entry is not None else users.spans.get(span.name)
            if allowed is None:
                yield f"span {span.name}"
                continue
            yield from _of_attributes(f"span {span.name}", span.attributes, (*allowed, *EVERY_SPAN))
            for event in span.events:
                own = _SPAN_EVENTS.get(event.name)
                if own is None and event.name not in users.traces:
                    yield f"span event {event.name}"
                yield from _of_attributes(
                    f"span event {event.name}", event.attributes, own.carries if own is not None else _TRACE
                )
            for link in span.links:
                yield from _of_attributes(f"link of span {span.name}", link.attributes, ())


def _of_resource(resource: Any, users: Users) -> Iterator[str]:
    for attribute in resource.attributes:
        is_hyperparameter = attribute.key.startswith(names.HPARAM_PREFIX)
        if attribute.key not in RESOURCE and attribute.key not in users.resource and not is_hyperparameter:
            yield f"resource attribute {attribute.key}"


def _of_scope(scope: Any, signal: str) -> Iterator[str]:
    found = (scope.scope.name, scope.scope.version, scope.schema_url)
    if found != (names.SCOPE_NAME, names.SCOPE_VERSION, names.SCHEMA_URL):
        yield f"scope of {signal}: {found}"


def _of_attributes(where: str, attributes: Iterable[Any], allowed: Iterable[str]) -> Iterator[str]:
    allowed = tuple(allowed)
    for attribute in attributes:
        if attribute.key not in allowed:
            yield f"{where}: attribute {attribute.key}"
        elif (values := _VALUES.get(attribute.key)) and attribute.value.string_value not in values:
            yield f"{where}: {attribute.key}={attribute.value.string_value}"


def _scopes(server: OtlpServer, signal: Signal) -> Iterator[tuple[Any, Any]]:
    for request in server.requests(signal):
        for resource in getattr(request, f"resource_{'spans' if signal is Signal.TRACES else signal.value}"):
            scopes = getattr(resource, f"scope_{'spans' if signal is Signal.TRACES else signal.value}")
            yield from ((resource.resource, scope) for scope in scopes)
