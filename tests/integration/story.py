"""The story of a run as a text for people: what a Collector has received of it, without what differs each time.

Ids, times and durations are left out or named after what they belong to: a span is `training.batch 3`, the third of its
name, and a link or a log record that refers to it says so by this label. What is there and in which order, what lies in
what, and every attribute is told.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar
from urllib.parse import quote

from received import LogRecord, MetricPoint, Received, Span, by_identity

from otel_logger import conventions as names

__all__ = ["tell"]

HIDDEN = "…"
"""Stands for what differs from run to run or from machine to machine."""

# A writer's own, which is told once, above what it wrote.
WHO = (names.RUN_ID, names.RUN_NAME, names.RUN_ATTEMPT, names.RANK)

# Attributes that differ each time: only that they are there is told.
VOLATILE = frozenset(
    {
        names.LOG_RECORD_UID,
        names.PROCESS_PID,
        names.RUN_DURATION,
        names.WRITER_ID,
        names.BLOB_DIGEST,
        names.BLOB_SIZE,
        names.BLOB_DURATION,
        names.FILE_SIZE,
        "code.line.number",
        "host.id",
        "host.name",
        "telemetry.sdk.version",
    }
    | {f"{names.HPARAM_PREFIX}{key}" for key in ("composer_version", "composer_commit_hash", "node_name")}
)

# The same in the body of an event of hyperparameters.
VOLATILE_PARAMETERS = frozenset({"composer_version", "composer_commit_hash", "node_name"})

# Of these the last value is told.
POSITIONS = (names.POSITION_EPOCH, names.POSITION_STEP, names.PROGRESS)

# The name of a run's folder ends in digests.
RUN_FOLDER = re.compile(r"(/otel_logs/)[^/]+")

Item = TypeVar("Item", MetricPoint, Span, LogRecord)
Normalise = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """One process in one attempt at a run, by its order: the attempt, then the rank."""

    attempt: int
    rank: int
    identifier: str


def tell(received: Received, run_name: str, folder: str) -> str:
    """Tells the story of all runs of a name, each by its attempts and ranks; `folder` is where they ran."""
    runs: dict[str, set[Writer]] = defaultdict(set)
    ids = {
        item.resource[names.WRITER_ID]: item.resource[names.RUN_ID]
        for item in (*received.metrics, *received.spans, *received.logs)
        if item.resource.get(names.RUN_NAME) == run_name and names.RUN_ID in item.resource
    }
    for item in (*received.metrics, *received.spans, *received.logs):
        resource = item.resource
        if resource.get(names.RUN_NAME) == run_name and names.RUN_ID in resource:
            writer = Writer(resource[names.RUN_ATTEMPT], resource[names.RANK], resource[names.WRITER_ID])
            runs[resource[names.RUN_ID]].add(writer)
    assert len(ids) == sum(map(len, runs.values())), "each writer is of one run, and has one attempt and rank"
    lines: list[str] = []
    for number, (run_id, writers) in enumerate(
        sorted(runs.items(), key=lambda entry: first_time(received, entry[0])), 1
    ):
        labels = name_spans(mine(received.spans, {writer.identifier for writer in writers}))
        for writer in sorted(writers):
            lines += [f"run {number}, attempt {writer.attempt}, rank {writer.rank}"]
            normalise = normaliser(run_id, number, writer, folder)
            lines += [f"  {line}".rstrip() for line in of_writer(received, writer, labels, normalise)]
            lines += [""]
    return "\n".join(lines)


def of_writer(
    received: Received, writer: Writer, labels: Mapping[tuple[str, str], str], normalise: Normalise
) -> Iterator[str]:
    """What one writer wrote; asserts that it says who it is alike everywhere."""
    metrics = mine(received.metrics, {writer.identifier})
    for item in (*metrics, *mine(received.spans, {writer.identifier}), *mine(received.logs, {writer.identifier})):
        said = {key: item.attributes[key] for key in WHO if key in item.attributes and key in item.resource}
        assert said == {key: item.resource[key] for key in said}
    yield "resource"
    yield from (f"  {line}" for line in of_resource(received, writer, normalise))
    yield "states"
    yield f"  {', '.join(states(metrics))}"
    yield from of_metrics(metrics, normalise)
    yield "events"
    for record in sorted(distinct(mine(received.logs, {writer.identifier})), key=lambda record: record.time_ns):
        yield from (f"  {line}" for line in of_record(record, labels, normalise))
    yield "spans"
    yield from (f"  {line}" for line in of_spans(mine(received.spans, {writer.identifier}), labels, normalise))


def mine(items: Iterable[Item], writers: set[str]) -> list[Item]:
    """The items that these writers wrote."""
    return [item for item in items if item.resource.get(names.WRITER_ID) in writers]


def distinct(items: Iterable[Item]) -> list[Item]:
    """The items, each once, also where one was sent twice."""
    return [group[0] for group in by_identity(items).values()]


def first_time(received: Received, run_id: str) -> int:
    """When the first log record of a run was made."""
    return min(record.time_ns for record in received.logs if record.resource.get(names.RUN_ID) == run_id)


def normaliser(run_id: str, number: int, writer: Writer, folder: str) -> Normalise:
    """Returns what takes out of a value what differs each time."""
    replaced = {run_id: f"<run {number}>", writer.identifier: "<writer>", folder: "<folder>", quote(folder): "<folder>"}
    pattern = re.compile("|".join(re.escape(text) for text in sorted(replaced, key=len, reverse=True)))

    def normalise(value: Any) -> Any:
        if isinstance(value, str):
            return RUN_FOLDER.sub(r"\1<run>", pattern.sub(lambda match: replaced[match[0]], value))
        if isinstance(value, dict):
            return {key: HIDDEN if key in VOLATILE_PARAMETERS else normalise(each) for key, each in value.items()}
        return [normalise(each) for each in value] if isinstance(value, list) else value

    return normalise


def of_resource(received: Received, writer: Writer, normalise: Normalise) -> Iterator[str]:
    """The resource of metrics, then what that of spans and of log records has more or less; each has one."""
    kinds = {
        "metrics": mine(received.metrics, {writer.identifier}),
        "spans": mine(received.spans, {writer.identifier}),
        # Those from before the run was known are named after the writer alone.
        "log records": [each for each in mine(received.logs, {writer.identifier}) if names.RUN_ID in each.resource],
    }
    base: set[str] = set()
    for kind, items in kinds.items():
        resources = {json.dumps(item.resource, sort_keys=True): item.resource for item in items}
        for resource in resources.values():
            lines = set(of_attributes(resource, normalise))
            parameters = {line for line in base if line.startswith(names.HPARAM_PREFIX)}
            missing = base - lines
            if parameters and parameters <= missing:
                missing = missing - parameters | {f"{names.HPARAM_PREFIX}*"}
            yield from (sorted(lines) if kind == "metrics" else ())
            if kind != "metrics" and base:
                yield from (f"of {kind} also {line}" for line in sorted(lines - base))
                yield from (f"of {kind} without {line}" for line in sorted(missing))
            base = base or lines
        if len(resources) > 1:
            yield f"of {kind} there are {len(resources)}"


def of_attributes(attributes: Mapping[str, Any], normalise: Normalise, but: Iterable[str] = ()) -> Iterator[str]:
    """A line for each attribute, in the order of their names."""
    for key in sorted(set(attributes) - set(but)):
        yield f"{key}: {HIDDEN if key in VOLATILE else shown(normalise(attributes[key]))}"


def shown(value: Any) -> str:
    """A value on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def states(metrics: Sequence[MetricPoint]) -> list[str]:
    """The states in the order in which they were told, each once in a row; asserts that there is one at a time."""
    told = sorted((point for point in metrics if point.name == names.STATE), key=lambda point: point.time_ns)
    found: list[str] = []
    for _, points in groupby(told, key=lambda point: point.time_ns):
        values = {point.attributes[names.STATE]: point.value for point in points}
        if None in values.values():
            assert {None} == set(values.values())
            present = "(ended)"
        else:
            assert Counter(values.values())[1] == 1, values
            (present,) = (state for state, value in values.items() if value == 1)
        if found[-1:] != [present]:
            found.append(present)
    return found


def of_metrics(metrics: Sequence[MetricPoint], normalise: Normalise) -> Iterator[str]:
    """What is told of the run by numbers: logged values by their steps, then what is known of the run itself."""
    series: dict[tuple[str, str], list[MetricPoint]] = defaultdict(list)
    for point in sorted(distinct(metrics), key=lambda point: point.time_ns):
        if not point.name.startswith("otel_logger."):
            series[point.name, json.dumps(point.attributes, sort_keys=True)].append(point)
    values = [points for points in series.values() if names.METRIC_KEY in points[0].attributes]
    steps = {points[0].attributes[names.METRIC_KEY]: points for points in values if points[0].name == names.STEP}
    logged = {points[0].attributes[names.METRIC_KEY]: points for points in values if points[0].name != names.STEP}
    if logged:
        yield "values, by step"
    for key, points in sorted(logged.items()):
        step_at = {point.time_ns: point.value for point in steps.get(key, ())}
        yield f"  {key}: {spelled([step_at.get(point.time_ns) for point in points if point.value is not None])}"
    yield "of itself"
    own = [points for _, points in sorted(series.items()) if names.METRIC_KEY not in points[0].attributes]
    resource = metrics[0].resource if metrics else {}
    yield from (f"  {line}" for line in of_itself(own, resource, normalise))
    endless = Counter(points[-1].name for points in series.values() if points[-1].value is not None)
    if endless.total() == len(series):
        yield f"none of its {len(series)} series has an end"
    else:
        yield f"{len(series)} series, {f'without an end: {dict(endless)}' if endless else 'each with its end'}"


def of_itself(own: Sequence[Sequence[MetricPoint]], resource: Mapping[str, Any], normalise: Normalise) -> Iterator[str]:
    """What is known of the run: where it is in the end, and where the time went."""
    spent: dict[bool, list[str]] = {True: [], False: []}
    parameters = []
    for points in own:
        name, attributes = points[0].name, points[0].attributes
        known = [point.value for point in points if point.value is not None]
        if name == names.PHASE_TIME:
            spent[max(known) > 0].append(attributes[names.PHASE])
        elif name == names.HPARAM_INFO:
            parameters.append((attributes[names.HPARAM_KEY], attributes[names.HPARAM_VALUE]))
        elif name in POSITIONS:
            yield f"{name}: {known[-1]}"
        elif name != names.STATE:
            where = {key: value for key, value in attributes.items() if key not in WHO}
            text = ", ".join(of_attributes(where, normalise))
            yield f"{name}{f' ({text})' if text else ''}"
    yield f"{names.PHASE_TIME}: some for {', '.join(spent[True])}; none for {', '.join(spent[False]) or 'no other'}"
    others = {f"{key}: {value}" for key, value in parameters} - {
        f"{key.removeprefix(names.HPARAM_PREFIX)}: {shown(value)}" for key, value in resource.items()
    }
    if parameters:
        yield f"{names.HPARAM_INFO}: {len(parameters)}"
        yield from (f"  not in the resource: {each}" for each in sorted(others))


def spelled(steps: Sequence[Any]) -> str:
    """Steps in the order of their times, those that follow each other as a range."""
    parts: list[list[Any]] = []
    for step in steps:
        if parts and isinstance(step, int) and parts[-1][-1] == step - 1:
            parts[-1].append(step)
        else:
            parts.append([step])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def of_record(record: LogRecord, labels: Mapping[tuple[str, str], str], normalise: Normalise) -> Iterator[str]:
    """A log record: its name, where it happened, its attributes and body."""
    where = labels.get((record.trace_id, record.span_id), "a span that did not arrive" if record.span_id else "")
    severity = "" if record.severity == 9 else f", severity {record.severity}"
    who = {key: record.attributes[key] for key in WHO if key in record.attributes}
    known = "" if set(who) == set(WHO) else ", before the run was known"
    yield f"{record.event_name or '(no event)'}{f', in {where}' if where else ''}{severity}{known}"
    but = (*WHO, names.LOG_RECORD_UID, names.PROCESS_PID)
    yield from (f"  {line}" for line in of_long_attributes(record.attributes, normalise, but))
    if record.body is not None:
        yield from (f"  {line}" for line in of_body(record, normalise))


def of_body(record: LogRecord, normalise: Normalise) -> Iterator[str]:
    """The body of a record: a map by its keys."""
    body = normalise(record.body)
    if not isinstance(body, dict):
        yield f"body: {shown(body)}"
        return
    yield "body:"
    for key, value in sorted(body.items()):
        yield f"  {key}: {shown(value)}"


def of_long_attributes(attributes: Mapping[str, Any], normalise: Normalise, but: Iterable[str] = ()) -> Iterator[str]:
    """The same as `of_attributes`, with stack traces cut to who failed in the end."""
    short = dict(attributes)
    if stack := short.get(names.EXCEPTION_STACKTRACE):
        lines = str(stack).strip().splitlines()
        short[names.EXCEPTION_STACKTRACE] = f"{lines[0]} {HIDDEN} {lines[-1]}"
    yield from of_attributes(short, normalise, but)


def name_spans(spans: Iterable[Span]) -> dict[tuple[str, str], str]:
    """A label for each span: its name, and its number among those of that name."""
    counts: Counter[str] = Counter()
    labels = {}
    for span in sorted(distinct(spans), key=lambda span: (span.start_ns, span.end_ns)):
        counts[span.name] += 1
        labels[span.trace_id, span.span_id] = f"{span.name} {counts[span.name]}"
    return labels


def of_spans(spans: Iterable[Span], labels: Mapping[tuple[str, str], str], normalise: Normalise) -> Iterator[str]:
    """The trees of spans, a trace after the other, children below what they are in, each by its start.

    Asserts that nothing is longer than what it is in, but for what is in the run's span, which is short, and for
    uploads, which are done in the background.
    """
    ordered = sorted(distinct(spans), key=lambda span: (span.start_ns, -span.end_ns))
    ids = {(span.trace_id, span.span_id) for span in ordered}
    children: dict[tuple[str, str], list[Span]] = defaultdict(list)
    roots = []
    for span in ordered:
        parent = (span.trace_id, span.parent_span_id)
        if parent in ids:
            children[parent].append(span)
        else:
            roots.append(span)

    def tree(span: Span, depth: int) -> Iterator[str]:
        indent = "  " * depth
        label = labels[span.trace_id, span.span_id]
        parent = labels.get((span.trace_id, span.parent_span_id), "a span that did not arrive")
        below = f", below {parent}" if not depth and span.parent_span_id else ""
        failed = "" if span.error is None else f", failed: {normalise(span.error)}"
        links = [labels.get((link.trace_id, link.span_id), "a span that did not arrive") for link in span.links]
        linked = f", linked to {', '.join(links)}" if links else ""
        text = ", ".join(of_attributes(span.attributes, normalise, but=WHO))
        yield f"{indent}{label}{f' ({text})' if text else ''}{below}{linked}{failed}"
        for event in span.events:
            yield f"{indent}  event {event.name}"
            yield from (f"{indent}    {line}" for line in of_long_attributes(event.attributes, normalise))
        for child in children[span.trace_id, span.span_id]:
            assert span.start_ns <= child.start_ns <= child.end_ns
            assert child.end_ns <= span.end_ns or span.name == names.SPAN_RUN or child.name == names.SPAN_UPLOAD
            yield from tree(child, depth + 1)

    for root in roots:
        yield from tree(root, 0)
