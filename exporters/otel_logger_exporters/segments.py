"""Segments, the files of a journal: name, header and seal.

The format is described in docs/segment-format.md.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from otel_logger_exporters.records import Kind, Record, end_of_content, pack_record, read_records
from otel_logger_exporters.signals import Signal

__all__ = [
    "HEADER_SIZE",
    "SEAL_SIZE",
    "Segment",
    "SegmentHeader",
    "is_begun",
    "newest_segments",
    "pack_seal",
    "read_segment",
    "segment_name",
    "segments_of",
]

MAGIC = b"otlp-seg"
VERSION = 1

_HEADER = struct.Struct("<8sHBxQq16s16x")
_MARK = struct.Struct("<I")
_SEAL = struct.Struct("<QI")

HEADER_SIZE = _HEADER.size + _MARK.size
"""Bytes before the first record: a multiple of eight, so that records are aligned."""

_NAME = re.compile(r"^(metrics|logs|traces)-(\d{8})\.seg$")


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the head of a segment says: signal, place in the journal, time of creation (ns), the writer's 16 bytes."""

    signal: Signal
    sequence: int
    created_ns: int
    writer: bytes

    def pack(self) -> bytes:
        """Return the header's bytes."""
        head = _HEADER.pack(MAGIC, VERSION, self.signal.index, self.sequence, self.created_ns, self.writer)
        return head + _MARK.pack(zlib.crc32(head))

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> "SegmentHeader | None":
        """Return the header of a segment, or None when it is short, damaged, or of another format or version."""
        if len(data) < HEADER_SIZE or zlib.crc32(data[: _HEADER.size]) != _MARK.unpack_from(data, _HEADER.size)[0]:
            return None
        magic, version, index, sequence, created_ns, writer = _HEADER.unpack_from(data)
        signal = next((signal for signal in Signal if signal.index == index), None)
        if magic != MAGIC or version != VERSION or signal is None:
            return None
        return cls(signal, sequence, created_ns, writer)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment's readable part: its header, its records, and how many bytes after them could not be read.

    `cut` counts what lies behind the last good record, zeros apart: a torn record, or damage. A sealed segment
    whose checksum fails has `damaged` set: its records passed their own checks, but some may be missing.
    """

    header: SegmentHeader
    records: tuple[Record, ...]
    sealed: bool
    damaged: bool
    cut: int


def segment_name(signal: Signal, sequence: int) -> str:
    """Return the file name of a segment: sorting by name is sorting by age."""
    return f"{signal.value}-{sequence:08d}.seg"


def segments_of(folder: Path, signal: Signal) -> list[tuple[int, Path]]:
    """Return the (sequence, path) of a signal's segments in `folder`, oldest first."""
    names = ((path, _NAME.match(path.name)) for path in (folder.iterdir() if folder.is_dir() else ()))
    return sorted((int(match[2]), path) for path, match in names if match and match[1] == signal.value)


def pack_seal(count: int, checksum: int) -> bytes:
    """Return the seal of a segment of `count` records whose bytes after the header have the CRC-32 `checksum`."""
    return pack_record(Kind.SEAL, _SEAL.pack(count, checksum))


SEAL_SIZE = len(pack_seal(0, 0))
"""Bytes of a seal."""


def is_begun(path: Path) -> bool:
    """Tell whether a segment's file is in use: one that is prepared for later is empty at first, and then holds zeros.

    False if there is none.
    """
    try:
        with path.open("rb") as file:
            return any(file.read(len(MAGIC)))
    except FileNotFoundError:
        return False


def read_segment(data: bytes | memoryview) -> Segment | None:
    """Return the readable prefix of a segment, or None when not even its header can be read. Never raises."""
    view = memoryview(data)
    header = SegmentHeader.unpack(view)
    if header is None:
        return None
    records: list[Record] = []
    end = HEADER_SIZE
    for record in read_records(view, HEADER_SIZE):
        if record.kind == Kind.SEAL:
            count, checksum = _SEAL.unpack(record.payload) if len(record.payload) == _SEAL.size else (-1, -1)
            damaged = count != len(records) or checksum != zlib.crc32(view[HEADER_SIZE:end])
            return Segment(header, tuple(records), sealed=True, damaged=damaged, cut=0)
        records.append(record)
        end = record.end
    cut = end_of_content(bytes(view[end:]))
    return Segment(header, tuple(records), sealed=False, damaged=False, cut=cut)


def newest_segments(folder: Path, signal: Signal) -> Iterator[Segment]:
    """Yield the segments of a journal that can be read, the newest first. Raises OSError."""
    for _, path in reversed(segments_of(folder, signal)):
        segment = read_segment(path.read_bytes())
        if segment is not None:
            yield segment
