"""Records, the unit of a segment: framing, checksum, and what a torn tail leaves readable.

The format is described in docs/segment-format.md. Nothing here touches a file.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "RECORD_OVERHEAD",
    "Kind",
    "Record",
    "end_of_content",
    "end_of_records",
    "is_written",
    "pack_record",
    "read_records",
]

_HEAD = struct.Struct("<IB3x")
_MARK = struct.Struct("<I")

RECORD_OVERHEAD = _HEAD.size + _MARK.size
"""Bytes that framing adds to a payload, padding apart."""

_PIECE = 4096
"""Bytes whose checksum is taken at once."""

_ALIGNMENT = 8
"""Records start at multiples of this, so that a row's eight-byte values are aligned in a mapped segment too."""

_ZEROS = bytes(2**16)


class Kind(IntEnum):
    """What a record's payload is."""

    SCHEMA = 1
    ROW = 2
    RESOURCE = 3
    HYPERPARAMETERS = 4
    OTLP = 5
    SEAL = 6


@dataclass(frozen=True, slots=True)
class Record:
    """One record as found in a segment; `end` is the offset of the byte after it."""

    kind: int
    payload: memoryview
    end: int


def _padding(size: int) -> int:
    return -(size + RECORD_OVERHEAD) % _ALIGNMENT


def pack_record(kind: int, payload: bytes) -> bytes:
    """Return the bytes of a record: size and kind, the payload, zeros up to the alignment, the commit mark.

    The mark is the CRC-32 of everything before it. A constant mark would show that the last byte was written; the
    checksum also shows that those in between were, which a plain `write` cut by a full disk does not promise.
    """
    framed = _HEAD.pack(len(payload), kind) + payload + bytes(_padding(len(payload)))
    return framed + _MARK.pack(_checksum(framed))


def _checksum(data: bytes) -> int:
    """Return the CRC-32 of `data` without giving up the GIL, for which a caller who trains would wait for the sender.

    `zlib` gives it up for more than 5 KiB, as 700 metrics take.
    """
    checksum = 0
    with memoryview(data) as view:
        for start in range(0, len(data), _PIECE):
            checksum = zlib.crc32(view[start : start + _PIECE], checksum)
    return checksum


def read_records(data: bytes | memoryview, start: int = 0) -> Iterator[Record]:
    """Yield the committed records of `data` from offset `start` up to the first that is torn, damaged or absent."""
    view = memoryview(data)
    offset = start
    while offset + RECORD_OVERHEAD <= len(view):
        size, kind = _HEAD.unpack_from(view, offset)
        mark = offset + _HEAD.size + size + _padding(size)
        # Kind 0 is what a zero-filled page holds: the end of a mapped segment that was never written.
        if kind == 0 or mark + _MARK.size > len(view):
            return
        if zlib.crc32(view[offset:mark]) != _MARK.unpack_from(view, mark)[0]:
            return
        body = offset + _HEAD.size
        offset = mark + _MARK.size
        yield Record(kind, view[body : body + size], offset)


def end_of_records(data: bytes | memoryview, start: int = 0) -> int:
    """Return the offset behind the last committed record of `data` from offset `start`."""
    end = start
    for record in read_records(data, start):
        end = record.end
    return end


def end_of_content(data: bytes) -> int:
    """Return the offset behind the last byte of `data` that is not zero."""
    end = len(data)
    # `rstrip` by itself takes 20 ms for the zeros of a mapped segment, in which no other thread runs.
    while end > len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    begin = max(0, end - len(_ZEROS))
    return begin + len(data[begin:end].rstrip(b"\0"))


def is_written(data: bytes, offset: int) -> bool:
    """Tell whether a record may begin at `offset`, further bytes given: zeros there have never been written."""
    head = data[offset : offset + _HEAD.size]
    return len(head) < _HEAD.size or any(head)
