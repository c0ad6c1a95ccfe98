"""Folders of valid segments, and all that disks, crashes and other programs do to them: the inputs of the fuzzer."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from random import Random

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otel_logger_exporters.payloads import Frame, ResourceRecord, pack_hyperparameters
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.rows import NO_STEP, Schema
from otel_logger_exporters.segments import HEADER_SIZE, SegmentHeader, pack_seal, segment_name
from otel_logger_exporters.signals import Signal

__all__ = ["Case", "Damage", "Made", "make_case", "make_segment"]

EXTREMES = (0, 1, 7, 8, 0x7FFF_FFF0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFF0, 0xFFFF_FFF4, 0xFFFF_FFFF)

WRITER = bytes(range(16))


class Damage(IntEnum):
    """What was done to a segment, the worst counts: nothing, bytes, whole records moved, records forged."""

    NONE = 0
    BYTES = 1
    RECORDS = 2
    FORGED = 3


@dataclass(slots=True)
class Made:
    """A segment: its bytes, the records that were written into it, and up to where it is as it was written."""

    signal: Signal
    sequence: int
    data: bytearray
    records: list[tuple[int, bytes]]
    ends: list[int]
    damage: Damage = Damage.NONE
    sound: int = 0

    def harm(self, damage: Damage, offset: int) -> None:
        """Take note of damage from an offset on."""
        self.damage = max(self.damage, damage)
        self.sound = min(self.sound, offset)

    def starts(self) -> list[int]:
        """The offsets of the records as they were written, and of the end."""
        return [HEADER_SIZE, *self.ends]


@dataclass(slots=True)
class Case:
    """An input: segments of all signals, acknowledgements, and all records that may be read from any of them."""

    segments: list[Made] = field(default_factory=list)
    acknowledgements: dict[str, bytes] = field(default_factory=dict)
    pool: set[tuple[int, bytes]] = field(default_factory=set)

    def write(self, folder: Path) -> None:
        """Write it as a writer's folder."""
        folder.mkdir(parents=True)
        (folder / "writer.json").write_text(json.dumps({"writer": WRITER.hex()[:6], "started_ns": 1, "run_id": "fuzz"}))
        for made in self.segments:
            (folder / segment_name(made.signal, made.sequence)).write_bytes(made.data)
        for name, content in self.acknowledgements.items():
            (folder / name).write_bytes(content)


def make_case(random: Random, corpus: Mapping[Signal, Sequence[Made]]) -> Case:
    """Make a folder with valid journals, and damage it."""
    case = Case()
    for name in Signal:
        sequence = random.choice((1, 1, 7))
        for _ in range(random.choice((0, 0, 1, 1, 2))):
            made = copy_of(random.choice(corpus[name]), sequence)
            case.segments.append(made)
            case.pool.update(made.records)
            sequence += random.choice((1, 1, 1, 5))
    if case.segments:
        for _ in range(random.choice((0, *4 * (1,), 2, 2, 5))):
            random.choice(DAMAGES)(random, case, random.choice(case.segments))
    if random.random() < 0.2:
        case.acknowledgements[f"{random.choice(list(Signal)).value}.ack"] = make_acknowledgement(random)
    return case


def copy_of(made: Made, sequence: int) -> Made:
    """A segment as another of the same journal."""
    header = SegmentHeader(made.signal, sequence, sequence, WRITER).pack()
    data = bytearray(header + made.data[HEADER_SIZE:])
    return Made(made.signal, sequence, data, made.records, made.ends, sound=len(data))


def make_segment(random: Random, name: Signal) -> Made:
    """Make a valid segment: a head, records of all its kinds, mostly a seal or zeros."""
    records: list[tuple[int, bytes]] = [(Kind.RESOURCE, ResourceRecord(make_resource(random), True).pack())]
    if name is Signal.METRICS:
        records += make_rows(random)
    else:
        records += [(Kind.OTLP, make_frame(random, name).pack()) for _ in range(make_size(random))]
    made = Made(name, 1, bytearray(SegmentHeader(name, 1, 1, WRITER).pack()), [], [])
    for record in records:
        append(made, *record)
    ending = random.choice(("sealed", "sealed and zeros", "open", "zeros"))
    if ending.startswith("sealed"):
        seal = pack_seal(len(records), zlib.crc32(made.data[HEADER_SIZE:]))
        append(made, Kind.SEAL, seal[8:-4][: struct.calcsize("<QI")])
    if ending.endswith("zeros"):
        made.data += bytes(random.choice((1, 8, 4096, 70_000)))
    return made


def append(made: Made, kind: int, payload: bytes) -> None:
    """Append a record to a segment that is being made."""
    made.data += pack_record(kind, payload)
    made.records.append((kind, payload))
    made.ends.append(len(made.data))


def make_size(random: Random) -> int:
    """A number of records: mostly few, sometimes none, sometimes many."""
    return random.choice((0, 1, 1, 3, 3, 10, 30))


def make_rows(random: Random) -> list[tuple[int, bytes]]:
    """Schemas, rows and hyperparameters, with identifiers that are used again."""
    records: list[tuple[int, bytes]] = []
    for _ in range(random.choice((0, 1, 2, 4))):
        keys = [f"key{random.randrange(100)}" * random.choice((1, 1, 20)) for _ in range(random.choice((1, 3, 10, 60)))]
        kinds = "".join(random.choice("dq") for _ in keys)
        schema = Schema(random.choice((0, 1, 2, 2**32 - 1)), keys, kinds)
        records.append((Kind.SCHEMA, schema.pack()))
        for _ in range(make_size(random)):
            values = [random.getrandbits(63) if kind == "q" else random.uniform(-1e9, 1e9) for kind in kinds]
            step = random.choice((NO_STEP, random.randrange(1000)))
            records.append((Kind.ROW, schema.pack_row(random.getrandbits(62), step, values)))
        if random.random() < 0.3:
            records.append((Kind.HYPERPARAMETERS, pack_hyperparameters({"lr": 0.1, "deep": {"a": [1, "x"]}}, 1)))
    return records


def make_resource(random: Random) -> bytes:
    """An encoded Resource."""
    resource_message = Resource()
    for index in range(random.choice((0, 2, 30))):
        resource_message.attributes.add(key=f"name{index}").value.string_value = "v" * random.randrange(50)
    return resource_message.SerializeToString()


def make_frame(random: Random, name: Signal) -> Frame:
    """A frame of some log records or spans; one in fifty is large."""
    text = "t" * (300_000 if random.random() < 0.02 else random.randrange(200))
    attribute = KeyValue(key="training.step")
    attribute.value.int_value = random.randrange(1000)
    items = random.choice((1, 1, 3))
    if name is Signal.LOGS:
        log = LogRecord(time_unix_nano=random.getrandbits(62), event_name="training.trace", attributes=[attribute])
        log.body.string_value = text
        return Frame(items, ScopeLogs(log_records=[log] * items).SerializeToString())
    span = Span(name=text, trace_id=bytes(16), span_id=bytes(8), attributes=[attribute])
    span.events.add(name="event", time_unix_nano=1)
    return Frame(items, ScopeSpans(spans=[span] * items).SerializeToString())


def make_acknowledgement(random: Random) -> bytes:
    """The content of an `.ack` file, as it should not be."""
    number = partial(random.choice, (0, 1, 7, 63, 64, 65, 1000, 2**31, 2**32 - 1, 2**63, 10**30, -1, -64))
    return random.choice(
        (
            b"",
            b"\0" * 12,
            b"\xff\xfe",
            b"1",
            f"{number()} {number()}\n".encode(),
            f"1 {number()}\n".encode(),
            b"1 64 extra\n",
            b"9" * 5000 + b" 64\n",
            "١ ٦٤\n".encode(),
        )
    )


def place(random: Random, made: Made) -> int:
    """An offset in a segment: anywhere, or near where a record begins, or where the header is."""
    size = len(made.data)
    kind = random.random()
    if kind < 0.5:
        return random.randrange(size + 1)
    near = random.choice(made.starts()) if kind < 0.95 else 0
    return min(size, max(0, near + random.randrange(-8, 9)))


def flip(random: Random, case: Case, made: Made) -> None:
    """Turn over some bits of a byte."""
    if made.data:
        offset = min(len(made.data) - 1, place(random, made))
        made.data[offset] ^= random.randrange(1, 256)
        made.harm(Damage.BYTES, offset)


def overwrite(random: Random, case: Case, made: Made) -> None:
    """Write other bytes over some, as a block that was lost or belongs to another file."""
    offset = place(random, made)
    size = random.choice((1, 4, 8, 512, 4096))
    other = random.choice(case.segments).data[offset : offset + size]
    damage, block = random.choice(
        (
            (Damage.BYTES, bytes(size)),
            (Damage.BYTES, b"\xff" * size),
            (Damage.BYTES, random.randbytes(size)),
            # A whole record may come with it.
            (Damage.RECORDS, bytes(other)),
        )
    )
    made.data[offset : offset + len(block)] = block
    made.harm(damage, offset)


def cut(random: Random, case: Case, made: Made) -> None:
    """Cut the end off."""
    offset = place(random, made)
    del made.data[offset:]
    made.harm(Damage.BYTES, offset)


def insert_zeros(random: Random, case: Case, made: Made) -> None:
    """Push the rest away by zeros."""
    offset = place(random, made)
    made.data[offset:offset] = bytes(random.choice((1, 4, 8, 4096)))
    made.harm(Damage.BYTES, offset)


def claim_length(random: Random, case: Case, made: Made) -> None:
    """Write an extreme number where a record says how large it is."""
    offset = random.choice(made.starts())
    if offset + 4 <= len(made.data):
        near = struct.unpack_from("<I", made.data, offset)[0] + random.choice((-8, -1, 1, 8))
        struct.pack_into("<I", made.data, offset, random.choice((*EXTREMES, near & 0xFFFF_FFFF)))
        made.harm(Damage.BYTES, offset)


def remove(random: Random, case: Case, made: Made) -> None:
    """Take out a piece, or whole records."""
    starts = made.starts()
    first = random.choice((place(random, made), random.choice(starts)))
    last = random.choice((place(random, made), random.choice(starts)))
    del made.data[min(first, last) : max(first, last)]
    made.harm(Damage.RECORDS, min(first, last))


def repeat(random: Random, case: Case, made: Made) -> None:
    """Insert a piece of a segment, or whole records of it, once more or into another."""
    source = random.choice(case.segments)
    starts = source.starts()
    first = random.choice((place(random, source), random.choice(starts)))
    last = random.choice((place(random, source), random.choice(starts)))
    offset = random.choice((place(random, made), random.choice(made.starts())))
    made.data[offset:offset] = source.data[min(first, last) : max(first, last)]
    made.harm(Damage.RECORDS, min(offset, len(made.data)))


def splice(random: Random, case: Case, made: Made) -> None:
    """Put the end of a segment behind the beginning of another."""
    other = random.choice(case.segments)
    offset = random.choice(made.starts())
    made.data[offset:] = other.data[random.choice(other.starts()) :]
    made.harm(Damage.RECORDS, offset)


def shuffle(random: Random, case: Case, made: Made) -> None:
    """Put the records of two segments into any order."""
    other = random.choice(case.segments)
    records = [*made.records, *other.records]
    random.shuffle(records)
    made.data[HEADER_SIZE:] = b"".join(pack_record(*record) for record in records)
    made.harm(Damage.RECORDS, HEADER_SIZE)


def exchange(random: Random, case: Case, made: Made) -> None:
    """Give two segments each other's content, whatever their names say."""
    other = random.choice(case.segments)
    made.data, other.data = other.data, made.data
    for each in (made, other):
        each.harm(Damage.RECORDS, 0)


def forge(random: Random, case: Case, made: Made) -> None:
    """Put a record into a segment whose checksum is right, and whose content is not."""
    if made.records and random.random() < 0.7:
        kind, payload = random.choice(made.records)
        content = bytearray(payload)
        for _ in range(random.choice((1, 3))):
            offset = random.randrange(0, len(content) + 1, random.choice((1, 4)))
            number = random.choice(EXTREMES)
            how = random.randrange(4)
            if how == 0:
                del content[offset:]
            elif how == 1:
                content[offset : offset + 4] = struct.pack("<I", number)
            elif how == 2:
                content[offset : offset + 1] = random.randbytes(1)
            else:
                content += random.randbytes(random.choice((1, 8)))
    else:
        kind, content = random.choice(list(Kind)), bytearray(random.choice(FORGERIES))
    if random.random() < 0.1:
        kind = random.randrange(1, 256)
    record = (kind, bytes(content))
    case.pool.add(record)
    offset = random.choice(made.starts())
    made.data[offset:offset] = pack_record(*record)
    made.harm(Damage.FORGED, offset)


def forge_header(random: Random, case: Case, made: Made) -> None:
    """Give a segment a header of another version, signal or number, with a checksum that is right."""
    if len(made.data) >= HEADER_SIZE:
        header = bytearray(made.data[: HEADER_SIZE - 4])
        offset = random.randrange(len(header))
        header[offset] ^= random.randrange(1, 256)
        made.data[:HEADER_SIZE] = header + struct.pack("<I", zlib.crc32(header))
        made.harm(Damage.FORGED, 0)


FORGERIES = (
    b"",
    b"\0",
    b"\0\0\0",
    bytes(64),
    b"\xff" * 64,
    struct.pack("<II", 0, 0xFFFF_FFFF),
    struct.pack("<II", 0, 1) + b"d" + struct.pack("<I", 0xFFFF_FFFF),
    struct.pack("<II", 0, 1) + b"s" + struct.pack("<I", 1) + b"k",
    struct.pack("<II", 0, 3) + b"9d?" + 3 * (struct.pack("<I", 1) + b"k"),
    struct.pack("<II", 0, 9) + b"999999999" + 9 * (struct.pack("<I", 1) + b"k"),
    struct.pack("<II", 0, 10) + b"999999999d" + 10 * (struct.pack("<I", 1) + b"k"),
    struct.pack("<II", 0, 1) + b"d" + struct.pack("<I", 2) + b"\xff\xfe",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b'{"time_ns": "x", "hyperparameters": 5}',
    b'{"time_ns": 1, "hyperparameters": [1, {"a": NaN}]}',
    b'{"time_ns": 1, "hyperparameters": {"\\ud800": "\\udfff"}}',
    *(b'{"time_ns": 1, "hyperparameters": ' + b'{"a":' * deep + b"1" + b"}" * deep + b"}" for deep in (200, 900, 3000)),
    b"[" * 100_000,
    b'{"time_ns": ' + b"9" * 5000 + b', "hyperparameters": {}}',
    struct.pack("<I", 0xFFFF_FFFF) + b"\x0a\xff\xff\xff\xff\x0f",
    struct.pack("<I", 1) + b"\x12\x80",
    struct.pack("<I", 1) + bytes(100),
)
"""Payloads that make no sense, or too much."""

DAMAGES = (
    *(flip, overwrite, cut, insert_zeros, claim_length) * 2,
    *(remove, repeat, splice, shuffle, exchange),
    *(forge, forge, forge_header),
)
