"""Reading a run's folder back as tables."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_logger import conventions as names
from otel_logger.folders import WriterFile, own_writers, runs_below
from otel_logger.tabular import Table
from otel_logger.values import flatten
from otel_logger_exporters.decoding import decode_events, decode_resource, decode_spans
from otel_logger_exporters.payloads import Frame, ResourceRecord, unpack_hyperparameters
from otel_logger_exporters.records import Kind, Record
from otel_logger_exporters.rows import RowReader
from otel_logger_exporters.segments import HEADER_SIZE, read_segment, segments_of
from otel_logger_exporters.signals import Signal

__all__ = ["Run", "Table", "read_run"]

_METRICS = ("key", "step", "time", "value", "attempt", "rank")
_HYPERPARAMETERS = ("key", "value", "time", "attempt", "rank")
_EVENTS = ("name", "time", "step", "body", "attributes", "severity", "trace_id", "span_id", "scope", "attempt", "rank")
_SPANS = (
    "name",
    "start",
    "end",
    "trace_id",
    "span_id",
    "parent_span_id",
    "attributes",
    "events",
    "links",
    "error",
    "attempt",
    "rank",
)
_BLOBS = ("kind", "name", "step", "time", "uri", "digest", "size", "media_type", "outcome", "attempt", "rank")
_WRITERS = ("attempt", "rank", "started", "ended", "outcome", "folder")
_DAMAGE = ("segment", "bytes")
_BLOB_EVENTS = {names.EVENT_IMAGE: "image", names.EVENT_TABLE: "table", names.EVENT_FILE: "file"}


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its folder holds it, all ranks and attempts together; times are nanoseconds since the Unix epoch.

    metrics: every recorded value in the order of recording: key, step (None: none), time, value (float, or int where
        float64 cannot hold it), attempt, rank.
    hyperparameters: key (nested keys joined with dots), value, time of its first logging, attempt, rank; a value that
        is changed later has a row of its own; secrets read `[redacted]`.
    events: log records: name, time, step, body, attributes, severity, trace_id, span_id (hex or ""), scope, attempt,
        rank; those of the program have no name, and as their scope that of their logger.
    spans: name, start, end, ids (hex), attributes, events, links (lists of dicts), error (None: none), attempt, rank.
    blobs: images, tables and files: kind, name, step, time, uri, digest (`sha256:<hex>`), size (bytes), media_type,
        outcome, attempt, rank.
    writers: one for each opening of a logger: attempt, rank, started, ended (None: not), outcome, folder.
    resources: for each (attempt, rank), the resource attributes that its metrics are sent with.
    damage: segments with bytes that could not be read, and how many.

    What an endpoint has acknowledged is deleted from the folder, and then not in these tables; images, tables and files
    stay in the blob store.
    """

    run_id: str | None
    run_name: str | None
    metrics: Table
    hyperparameters: Table
    events: Table
    spans: Table
    blobs: Table
    writers: Table
    resources: dict[tuple[int, int], dict[str, Any]]
    damage: Table


def read_run(path: str | Path) -> Run:
    """Read a run's folder (or one writer's folder in it) as tables; also while the run goes on.

    Raises:
        FileNotFoundError: there is no run at `path`; the message names runs that are near.
    """
    folder = Path(path)
    writers = own_writers(folder)
    if not writers:
        raise FileNotFoundError(_no_run(folder))
    read = _Reading()
    for writer_folder, writer in writers:
        read.take(writer_folder, writer)
    last = writers[-1][1]
    return Run(
        run_id=last.run_id,
        run_name=last.run_name,
        metrics=Table.of(_METRICS, read.metrics),
        hyperparameters=Table.of(_HYPERPARAMETERS, read.hyperparameters),
        events=Table.of(_EVENTS, read.events),
        spans=Table.of(_SPANS, read.spans),
        blobs=Table.of(_BLOBS, map(_blob, filter(_is_blob, read.events))),
        writers=Table.of(_WRITERS, map(_writer_row, writers)),
        resources=read.resources,
        damage=Table.of(_DAMAGE, read.damage),
    )


class _Reading:
    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.hyperparameters: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.resources: dict[tuple[int, int], dict[str, Any]] = {}
        self.damage: list[dict[str, Any]] = []

    def take(self, folder: Path, writer: WriterFile) -> None:
        place = {"attempt": writer.attempt, "rank": writer.rank}
        self._take_metrics(folder, place)
        for event in self._items(folder, Signal.LOGS, decode_events):
            self.events.append({**event, **place, "step": event["attributes"].get(names.STEP)})
        self.spans += ({**span, **place} for span in self._items(folder, Signal.TRACES, decode_spans))

    def _take_metrics(self, folder: Path, place: dict[str, int]) -> None:
        # Each record holds all that were known then, and the last is repeated at the head of each segment.
        seen: dict[str, str] = {}
        bound = False
        for records in self._segments(folder, Signal.METRICS):
            rows = RowReader()
            for record in records:
                if record.kind == Kind.RESOURCE:
                    # Here and below: what is whole and yet makes no sense is passed over, as by RowReader.
                    with suppress(ValueError):
                        resource = ResourceRecord.unpack(record.payload)
                        if resource.bound or not bound:
                            self.resources[place["attempt"], place["rank"]] = decode_resource(resource.message)
                            bound = resource.bound
                elif record.kind == Kind.HYPERPARAMETERS:
                    with suppress(ValueError):
                        nested, time = unpack_hyperparameters(record.payload)
                        for key, value in flatten(nested):
                            if seen.get(key) != repr(value):
                                seen[key] = repr(value)
                                self.hyperparameters.append({"key": key, "value": value, "time": time, **place})
                elif (row := rows.take(record)) is not None:
                    for key, value in zip(row.keys, row.values, strict=True):
                        self.metrics.append(
                            {"key": key, "step": row.step, "time": row.time_ns, "value": value, **place}
                        )

    def _items(
        self, folder: Path, signal: Signal, decode: Callable[[bytes], Iterator[dict[str, Any]]]
    ) -> Iterator[dict[str, Any]]:
        for records in self._segments(folder, signal):
            for record in records:
                if record.kind == Kind.OTLP:
                    with suppress(ValueError):
                        yield from decode(Frame.unpack(record.payload).body)

    def _segments(self, folder: Path, signal: Signal) -> Iterator[tuple[Record, ...]]:
        for _, path in segments_of(folder, signal):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                # Of a run that goes on: its sender was done with the segment.
                continue
            if not any(data[:HEADER_SIZE]):
                # Prepared for later.
                continue
            segment = read_segment(data)
            cut = len(data) if segment is None else segment.cut
            if cut or (segment is not None and segment.damaged):
                self.damage.append({"segment": str(path), "bytes": cut})
            if segment is not None:
                yield segment.records


def _is_blob(event: dict[str, Any]) -> bool:
    return event["name"] in _BLOB_EVENTS


def _blob(event: dict[str, Any]) -> dict[str, Any]:
    attributes = event["attributes"]
    return {
        "kind": _BLOB_EVENTS[event["name"]],
        "name": attributes.get(names.NAME),
        "uri": attributes.get(names.BLOB_URI),
        "digest": attributes.get(names.BLOB_DIGEST),
        "size": attributes.get(names.BLOB_SIZE),
        "media_type": attributes.get(names.BLOB_MEDIA_TYPE),
        "outcome": attributes.get(names.BLOB_OUTCOME),
        **{name: event[name] for name in ("step", "time", "attempt", "rank")},
    }


def _writer_row(item: tuple[Path, WriterFile]) -> dict[str, Any]:
    folder, writer = item
    return {
        "attempt": writer.attempt,
        "rank": writer.rank,
        "started": writer.started_ns,
        "ended": writer.ended_ns,
        "outcome": writer.outcome,
        "folder": str(folder),
    }


def _no_run(folder: Path) -> str:
    if not folder.exists():
        return f"there is no folder {str(folder)!r}"
    runs = [run.name for run, _ in runs_below(folder)]
    if runs:
        return f"{str(folder)!r} is a folder of runs, not a run: read one of {', '.join(runs[:10])}"
    return f"{str(folder)!r} holds no run: give the folder of one, as `OTelLogger.run_dir` names it"
