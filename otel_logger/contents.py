"""The contents of a run's folder, summed up: each key, event, span and blob by name, with how often and the last."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_logger import conventions as names
from otel_logger.overview import RunOverview, overview_of
from otel_logger.reading import Run, read_run

__all__ = ["Blobs", "Contents", "Damage", "Events", "Hyperparameter", "Metric", "Rejected", "Spans", "contents_of"]

_LONGEST_TEXT = 200
"""Characters at most of what an event tells: the body of a table or a text may be long."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One key, all ranks and attempts together: how many values, and the first and the last recorded."""

    key: str
    count: int
    first_step: int | None
    last_step: int | None
    first_value: float | int
    last_value: float | int


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """One key with its last value, and the different ones that it had before."""

    key: str
    value: Any
    earlier: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one name: how many, when the last was, and what it tells."""

    name: str
    count: int
    last_time_ns: int
    last_step: int | None
    last_text: str


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans of one name: how many, the time of all and of the longest (ns), and how many ended in an error."""

    name: str
    count: int
    total_ns: int
    longest_ns: int
    errors: int


@dataclass(frozen=True, slots=True)
class Blobs:
    """Images, tables or files of one name: how many, their bytes, the last step and URI, how many were not stored."""

    kind: str
    name: str
    count: int
    size_bytes: int
    last_step: int | None
    last_uri: str | None
    not_stored: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A segment with bytes that cannot be read, and how many; 0 for one whose checksum alone is wrong."""

    segment: Path
    unreadable_bytes: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """Requests that an endpoint refused for one reason, in one folder."""

    folder: Path
    signal: str
    reason: str
    requests: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a run's folder."""

    run: RunOverview
    metrics: tuple[Metric, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    events: tuple[Events, ...]
    spans: tuple[Spans, ...]
    blobs: tuple[Blobs, ...]
    damage: tuple[Damage, ...]
    rejected: tuple[Rejected, ...]


def contents_of(folder: Path, now_ns: int) -> Contents:
    """Return what is in the folder of a run or of one writer; FileNotFoundError when it is none."""
    overview, run = overview_of(folder, now_ns), read_run(folder)
    return Contents(
        run=overview,
        metrics=tuple(_metrics(run)),
        hyperparameters=tuple(_hyperparameters(run)),
        events=tuple(_events(run)),
        spans=tuple(_spans(run)),
        blobs=tuple(_blobs(run)),
        damage=tuple(Damage(Path(row["segment"]), row["bytes"]) for row in run.damage),
        rejected=tuple(_rejected(writer.folder / "rejected" for writer in overview.writers)),
    )


def _metrics(run: Run) -> Iterable[Metric]:
    # By time, not by place: ranks stand one after the other in the table.
    found: dict[str, list[Any]] = {}
    columns = (run.metrics[name] for name in ("key", "time", "step", "value"))
    for key, *point in zip(*columns, strict=True):
        seen = found.setdefault(key, [0, point, point])
        seen[0] += 1
        if point[0] < seen[1][0]:
            seen[1] = point
        if point[0] >= seen[2][0]:
            seen[2] = point
    for key, (count, first, last) in sorted(found.items()):
        yield Metric(key, count, first[1], last[1], first[2], last[2])


def _hyperparameters(run: Run) -> Iterable[Hyperparameter]:
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(run.hyperparameters, key=lambda row: row["time"]):
        # By what is seen of it: NaN is not equal to itself. Put anew, so that the last stands last.
        values = found.setdefault(row["key"], {})
        values.pop(repr(row["value"]), None)
        values[repr(row["value"])] = row["value"]
    for key, values in sorted(found.items()):
        *earlier, last = values.values()
        yield Hyperparameter(key, last, tuple(earlier))


def _events(run: Run) -> Iterable[Events]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in run.events:
        found.setdefault(row["name"] or row["scope"], []).append(row)
    for name, rows in sorted(found.items()):
        last = max(rows, key=lambda row: row["time"])
        yield Events(name, len(rows), last["time"], last["step"], _told(last))


def _told(event: Mapping[str, Any]) -> str:
    """Return what an event tells beside its name, in one line."""
    attributes, body = event["attributes"], event["body"]
    parts = [attributes.get(key) for key in (names.NAME, names.TRACE_NAME, names.RUN_OUTCOME, names.RUN_REASON)]
    is_told = event["name"] == names.EVENT_HYPERPARAMETERS or names.BLOB_URI in attributes
    if not is_told and body not in (None, ""):
        # Hyperparameters have a table of their own, and a blob's body is a preview, which is no text to read here.
        parts.append(body if isinstance(body, str) else json.dumps(body, default=str))
    text = " ".join(": ".join(str(part) for part in parts if part is not None).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def _spans(run: Run) -> Iterable[Spans]:
    found: dict[str, list[int]] = {}
    for row in run.spans:
        seen = found.setdefault(row["name"], [0, 0, 0, 0])
        duration = max(0, row["end"] - row["start"])
        seen[0] += 1
        seen[1] += duration
        seen[2] = max(seen[2], duration)
        seen[3] += row["error"] is not None
    for name, counts in sorted(found.items(), key=lambda item: -item[1][1]):
        yield Spans(name, *counts)


def _blobs(run: Run) -> Iterable[Blobs]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in run.blobs:
        found.setdefault((row["kind"], str(row["name"])), []).append(row)
    for (kind, name), rows in sorted(found.items()):
        last = max(rows, key=lambda row: row["time"])
        size = sum(row["size"] or 0 for row in rows)
        lacking = sum(row["outcome"] in (names.OUTCOME_FAILED, names.OUTCOME_CONFLICT) for row in rows)
        yield Blobs(kind, name, len(rows), size, last["step"], last["uri"], lacking)


def _rejected(folders: Iterable[Path]) -> Iterable[Rejected]:
    for folder in folders:
        found: dict[tuple[str, str], list[int]] = {}
        for path in sorted(folder.glob("*.otlp")):
            seen = found.setdefault((path.name.partition("-")[0], _reason(path.with_suffix(".json"))), [0, 0])
            seen[0] += 1
            try:
                seen[1] += os.stat(path).st_size
            except OSError:
                continue
        for (signal, reason), (requests, size) in found.items():
            yield Rejected(folder, signal, reason, requests, size)


def _reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text("utf-8"))["reason"])
    except (OSError, ValueError, TypeError, KeyError):
        return f"not known: {path.name} cannot be read"
