"""Postscripts: what whoever has adopted a dead writer's journal adds to its end."""

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.payloads import Frame, ResourceRecord
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.segments import SegmentHeader, pack_seal, segment_name, segments_of
from otel_logger_exporters.signals import Signal

__all__ = ["add_postscript"]


def add_postscript(
    folder: Path,
    signal: Signal,
    frames: Sequence[Frame],
    resource: ResourceRecord | None,
    *,
    writer: bytes,
    time_ns: int,
) -> None:
    """Add a segment of frames behind all others of a journal that nobody writes; whole or not at all, or OSError.

    `writer` are the sixteen bytes of the one whose journal it is, `resource` what the journal says last.
    """
    # What was sent may be deleted, and its number is not used again: whoever goes on behind it would miss this.
    acknowledged = JournalReader(folder, signal, keep=True).position.sequence
    sequence = 1 + max([acknowledged, *(number for number, _ in segments_of(folder, signal))])
    records = [] if resource is None else [pack_record(Kind.RESOURCE, resource.pack())]
    records += [pack_record(Kind.OTLP, frame.pack()) for frame in frames]
    data = b"".join(records)
    header = SegmentHeader(signal, sequence, time_ns, writer).pack()
    temporary = folder / f"{signal.value}-postscript.tmp"
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(header + data + pack_seal(len(records), zlib.crc32(data)))
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, folder / segment_name(signal, sequence))
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
