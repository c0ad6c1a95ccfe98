"""Deaths: the end of a run whose process did not tell it, told by another one that has adopted what it left."""

import hashlib
import os
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from otel_logger import conventions as names
from otel_logger.folders import WriterFile
from otel_logger.posthumous import add_records, whose
from otel_logger_exporters.decoding import decode_events
from otel_logger_exporters.items import Event, Severity
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.owner_folder import LOCK_NAME, open_file
from otel_logger_exporters.owner_record import OwnerRecord
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rows import time_and_step
from otel_logger_exporters.segments import newest_segments, segments_of
from otel_logger_exporters.signals import Signal

__all__ = ["LastSign", "last_sign", "last_write", "tell_death"]

REASON = (
    "The process ended without telling why: it was killed, perhaps for want of memory, or its machine went down. The "
    "time is that of its last sign of life."
)


@dataclass(frozen=True, slots=True)
class LastSign:
    """When a writer was last seen to live (ns), and the number of its process, where that is known.

    To be taken before the folder is claimed, which makes a lock where there was none.
    """

    time_ns: int
    pid: int | None


def last_write(folder: Path) -> int:
    """Return when a writer last wrote into its folder (ns); 0 when that cannot be told."""
    # Not the other files: a later process that sends what is left touches those.
    return _newest([folder / "writer.json", *(path for signal in Signal for _, path in segments_of(folder, signal))])


def last_sign(folder: Path) -> LastSign:
    """Return the last sign of life of a writer that may be dead; nothing is raised."""
    pid = None
    with suppress(OSError):
        file = open_file(folder / LOCK_NAME, os.O_RDONLY)
        try:
            record = OwnerRecord.read(file)
        finally:
            os.close(file)
        pid = record.pid if record is not None else None
    # An idle writer, too, renews its lease.
    return LastSign(max(last_write(folder), _newest([folder / LOCK_NAME])), pid or None)


def tell_death(folder: Path, writer: WriterFile, sign: LastSign, limits: Limits) -> WriterFile:
    """Record the end of a dead writer in its own journal and in `writer.json`; returns what that says from then on.

    Nothing is done for one that has told its end, or that recorded nothing. Done twice it is done once. Raises OSError
    for what the folder does not take. The caller owns the folder.
    """
    # Somebody else may have told it since it was last read.
    writer = WriterFile.read(folder) or writer
    if writer.ended_ns is not None:
        return writer
    told = _told(folder)
    if told is None:
        time_ns, step = _last_recorded(folder)
        if writer.run_id is None and time_ns == 0:
            # It was opened and not used, and is no run.
            return writer
        told = max(time_ns, sign.time_ns, writer.started_ns), names.OUTCOME_LOST
        add_records(folder, [_end(writer, told[0], step, sign.pid)], limits)
    ended = replace(writer, ended_ns=told[0], outcome=told[1])
    ended.write(folder)
    return ended


def _end(writer: WriterFile, time_ns: int, step: int | None, pid: int | None) -> Event:
    # What tells the writer from all others also tells this record, whoever makes it.
    life = f"{writer.run_id}/{writer.rank}/{writer.attempt}/{writer.writer}/{writer.started_ns}"
    attributes: dict[str, Any] = {
        names.LOG_RECORD_UID: hashlib.sha256(f"{names.EVENT_RUN_END} {life}".encode("utf-8", "replace")).hexdigest()[
            :32
        ],
        names.PROCESS_PID: pid,
        **whose(writer),
        names.STEP: step,
        names.RUN_OUTCOME: names.OUTCOME_LOST,
        names.RUN_DURATION: (time_ns - writer.started_ns) / 1e9,
        names.RUN_REASON: REASON,
    }
    return Event(
        name=names.EVENT_RUN_END,
        time_ns=time_ns,
        attributes=attributes,
        severity=Severity.ERROR,
    )


def _told(folder: Path) -> tuple[int, str] | None:
    """Return when and how a run ended, if its journal says so: its writer, or who told its death, died right after."""
    segment = next(newest_segments(folder, Signal.LOGS), None)
    for record in reversed(segment.records if segment is not None else ()):
        if record.kind != Kind.OTLP or names.EVENT_RUN_END.encode() not in bytes(record.payload):
            continue
        with suppress(ValueError):
            for event in decode_events(Frame.unpack(record.payload).body):
                outcome = event["attributes"].get(names.RUN_OUTCOME)
                if event["name"] == names.EVENT_RUN_END and isinstance(outcome, str):
                    return event["time"], outcome
    return None


def _last_recorded(folder: Path) -> tuple[int, int | None]:
    """Return the time (ns) of the last record of a journal, 0 for none, and the last step."""
    times, step = [0], None
    for segment in newest_segments(folder, Signal.METRICS):
        rows = [record for record in segment.records if record.kind == Kind.ROW]
        if rows:
            with suppress(struct.error):
                time_ns, step = time_and_step(rows[-1])
                times.append(time_ns)
            break
    for segment in newest_segments(folder, Signal.LOGS):
        frames = [record for record in segment.records if record.kind == Kind.OTLP]
        if frames:
            with suppress(ValueError):
                times += [event["time"] for event in decode_events(Frame.unpack(frames[-1].payload).body)]
            break
    return max(times), step


def _newest(paths: list[Path]) -> int:
    times = []
    for path in paths:
        with suppress(OSError):
            times.append(path.stat().st_mtime_ns)
    return max(times, default=0)
