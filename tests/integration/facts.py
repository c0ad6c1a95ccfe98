"""What a run left behind, in one form, whether a Collector received it or `read_run` read it from a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from received import MetricPoint, Received

from otel_logger import Run
from otel_logger import conventions as names

__all__ = ["Facts", "RecordFact", "SpanFact", "ValueFact", "facts_of_folder", "facts_received"]

Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ValueFact:
    """One logged number with its step."""

    key: str
    step: int | None
    time_ns: int
    value: float | int | None


@dataclass(frozen=True, slots=True)
class SpanFact:
    """One span; `events` are (name, time, attributes), `links` are (trace id, span id)."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    events: tuple[tuple[str, int, Attributes], ...]
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RecordFact:
    """One log record."""

    name: str
    time_ns: int
    body: Any
    attributes: Attributes
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Facts:
    """A whole run. `resources` are all that its metrics and spans came with, each once."""

    values: tuple[ValueFact, ...]
    spans: tuple[SpanFact, ...]
    records: tuple[RecordFact, ...]
    resources: tuple[Attributes, ...]

    def spans_named(self, name: str) -> list[SpanFact]:
        """The spans of a name, in the order of their starts."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_ns)

    def records_named(self, name: str) -> list[RecordFact]:
        """The log records of a name, in the order of their times."""
        return sorted((record for record in self.records if record.name == name), key=lambda record: record.time_ns)


def facts_received(received: Received) -> Facts:
    """The facts in what a Collector wrote; asserts that each value has its companion, and each companion its value."""
    return Facts(
        values=paired(received.metrics),
        spans=tuple(
            SpanFact(
                name=span.name,
                trace_id=span.trace_id,
                span_id=span.span_id,
                parent_span_id=span.parent_span_id,
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                attributes=span.attributes,
                events=tuple((event.name, event.time_ns, event.attributes) for event in span.events),
                links=tuple((link.trace_id, link.span_id) for link in span.links),
            )
            for span in received.spans
        ),
        records=tuple(
            RecordFact(
                name=record.event_name,
                time_ns=record.time_ns,
                body=record.body,
                attributes=record.attributes,
                trace_id=record.trace_id,
                span_id=record.span_id,
            )
            for record in received.logs
        ),
        resources=distinct([without_process(each.resource) for each in (*received.metrics, *received.spans)]),
    )


def without_process(resource: Attributes) -> Attributes:
    """A resource without the process id, which that of spans has besides what is on metrics too."""
    return {key: value for key, value in resource.items() if key != names.PROCESS_PID}


def facts_of_folder(run: Run) -> Facts:
    """The facts in a run's folder; asserts that all of it could be read."""
    assert [] == list(run.damage)
    return Facts(
        values=tuple(ValueFact(row["key"], row["step"], row["time"], row["value"]) for row in run.metrics),
        spans=tuple(
            SpanFact(
                name=row["name"],
                trace_id=row["trace_id"],
                span_id=row["span_id"],
                parent_span_id=row["parent_span_id"],
                start_ns=row["start"],
                end_ns=row["end"],
                attributes=row["attributes"],
                events=tuple((event["name"], event["time"], event["attributes"]) for event in row["events"]),
                links=tuple((link["trace_id"], link["span_id"]) for link in row["links"]),
            )
            for row in run.spans
        ),
        records=tuple(
            RecordFact(
                name=row["name"],
                time_ns=row["time"],
                body=row["body"],
                attributes=row["attributes"],
                trace_id=row["trace_id"],
                span_id=row["span_id"],
            )
            for row in run.events
        ),
        resources=distinct(list(run.resources.values())),
    )


def paired(points: tuple[MetricPoint, ...]) -> tuple[ValueFact, ...]:
    """Each value with the step of its companion: the point of `training.step` with the same key and time.

    What otel_logger says of itself and of the run is left out, and the end of each series.
    """
    points = tuple(point for point in points if names.METRIC_KEY in point.attributes and point.value is not None)
    steps: dict[tuple[str, int], Any] = {}
    for point in points:
        if point.name == names.STEP:
            place = (point.attributes[names.METRIC_KEY], point.time_ns)
            assert place not in steps, f"two companions of one point: {place}"
            assert type(point.value) is int
            steps[place] = point.value
    values = []
    for point in points:
        assert {names.METRIC_KEY} == set(point.attributes)
        assert "gauge" == point.kind
        if point.name != names.STEP:
            key = point.attributes[names.METRIC_KEY]
            assert names.metric_name(key) == point.name
            values.append(ValueFact(key, steps.pop((key, point.time_ns), None), point.time_ns, point.value))
    assert {} == steps, "companions without a value"
    return tuple(values)


def distinct(attributes: list[Attributes]) -> tuple[Attributes, ...]:
    """Each of several sets of attributes once."""
    return tuple({repr(sorted(each.items())): each for each in attributes}.values())
