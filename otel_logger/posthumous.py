"""Posthumous records: what another process tells of a writer that is dead, at the end of the writer's own journal."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger import conventions as names
from otel_logger.folders import WriterFile
from otel_logger_exporters.adoption import read_legacy
from otel_logger_exporters.items import Event, encode_event
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.postscript import add_postscript
from otel_logger_exporters.segments import newest_segments
from otel_logger_exporters.signals import Signal

__all__ = ["add_records", "whose"]

_SCOPE = InstrumentationScope(names.SCOPE_NAME, names.SCOPE_VERSION, names.SCHEMA_URL)


def whose(writer: WriterFile) -> dict[str, Any]:
    """Return the attributes by which a writer's records say whose they are; None for what is not known."""
    return {
        names.RANK: writer.rank,
        names.RUN_ID: writer.run_id,
        names.RUN_NAME: writer.run_name,
        names.RUN_ATTEMPT: writer.attempt if writer.run_id is not None else None,
    }


def add_records(folder: Path, events: Sequence[Event], limits: Limits) -> None:
    """Add log records to a dead writer's journal, under its resource; attributes that are None are left out.

    Nothing is added where there is no journal: log records were not wanted, or it died before it wrote any. Raises
    OSError for what the folder does not take. The caller owns the folder.
    """
    segment = next(newest_segments(folder, Signal.LOGS), None)
    if segment is None or not events:
        return
    add_postscript(
        folder,
        Signal.LOGS,
        [encode_event(_without_none(event), _SCOPE, limits) for event in events],
        read_legacy(folder, Signal.LOGS).resource,
        writer=segment.header.writer,
        time_ns=segment.header.created_ns,
    )


def _without_none(event: Event) -> Event:
    return replace(event, attributes={name: value for name, value in event.attributes.items() if value is not None})
