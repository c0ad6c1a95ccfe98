"""Records that are whole and yet make no sense, as those of another version may, are passed over by every reader."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from otel_logger import OTelLogger, read_run
from otel_logger_exporters.adoption import read_legacy
from otel_logger_exporters.decoding import decode_events, decode_resource, decode_spans
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.payloads import Frame, ResourceRecord, unpack_hyperparameters
from otel_logger_exporters.records import Kind, pack_record, read_records
from otel_logger_exporters.rows import RowReader, Schema
from otel_logger_exporters.segments import SegmentHeader, segment_name
from otel_logger_exporters.signals import Signal


@pytest.mark.parametrize("payload", [b"", b"\0\0\0"])
def test_a_payload_that_is_too_short_is_a_value_error(payload: bytes) -> None:
    """A frame and a resource begin with four bytes."""
    with pytest.raises(ValueError, match=f"a payload of {len(payload)} bytes begins with no number"):
        Frame.unpack(memoryview(payload))
    with pytest.raises(ValueError, match=f"a payload of {len(payload)} bytes begins with no number"):
        ResourceRecord.unpack(memoryview(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\0\0\1",
        b"{}",
        b"[]",
        b"null",
        b'{"time_ns": 1, "hyperparameters": [1]}',
        b'{"time_ns": "x", "hyperparameters": {}}',
        b"[" * 100_000,
    ],
)
def test_hyperparameters_that_are_none_are_a_value_error(payload: bytes) -> None:
    """No JSON, JSON of another shape, and JSON that is too deep are one kind of error."""
    with pytest.raises(ValueError, match=r"."):
        unpack_hyperparameters(memoryview(payload))


@pytest.mark.parametrize("decode", [decode_resource, lambda data: [*decode_events(data)], lambda d: [*decode_spans(d)]])
def test_bytes_that_are_no_message_are_a_value_error(decode: object) -> None:
    """A length that goes beyond the end is no protobuf."""
    with pytest.raises(ValueError, match=r"."):
        decode(b"\x0a\xff\xff\xff\xff\x0f")  # type: ignore[operator]


def test_columns_of_unknown_types_have_no_rows() -> None:
    """What `struct` takes for types or numbers are none here: `9d` would be nine columns of one key."""
    payload = struct.pack("<II", 1, 2) + b"9d" + 2 * (struct.pack("<I", 1) + b"k")
    row = Schema(1, ["k"] * 9, "d" * 9).pack_row(1, 1, [0.0] * 9)
    data = pack_record(Kind.SCHEMA, payload) + pack_record(Kind.ROW, row)

    assert [] == list(RowReader().rows(read_records(data)))


def test_a_frame_without_a_number_keeps_nothing_back(tmp_path: Path) -> None:
    """The sender gets what stands before and behind it."""
    frames = [Frame(1, b"a"), Frame(1, b"b")]
    write(tmp_path, (Kind.OTLP, frames[0].pack()), (Kind.OTLP, b"\0"), (Kind.OTLP, frames[1].pack()))
    batch = JournalReader(tmp_path, Signal.LOGS).next_batch(10)

    assert batch is not None
    assert tuple(frames) == batch.contents


def test_an_adopter_takes_the_last_resource_that_makes_sense(tmp_path: Path) -> None:
    """One that makes none does not hide the one before it."""
    resource = ResourceRecord(b"", bound=True)
    write(tmp_path, (Kind.RESOURCE, resource.pack()), (Kind.RESOURCE, b"\0"), (Kind.HYPERPARAMETERS, b"["))

    assert resource == read_legacy(tmp_path, Signal.LOGS).resource


@pytest.mark.parametrize("content", ["1 4294967296", f"1 {2**63}", f"1 {10**30}", "1 63"])
def test_a_mark_outside_its_segment_is_none(tmp_path: Path, content: str) -> None:
    """Reading begins at the beginning, and no memory is taken by what the mark says."""
    frame = Frame(1, b"a")
    write(tmp_path, (Kind.OTLP, frame.pack()))
    (tmp_path / "logs.ack").write_text(content, "ascii")
    reader = JournalReader(tmp_path, Signal.LOGS)
    batch = reader.next_batch(10)

    assert batch is not None
    assert (frame,) == batch.contents
    assert reader.unread > 0


def test_a_run_reads_without_what_makes_no_sense(tmp_path: Path) -> None:
    """Its tables hold everything else."""
    with OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path)}) as log:
        log.log_hyperparameters({"lr": 0.1})
        log.log_metrics({"loss": 1.0}, 1)
    assert log.run_dir is not None
    before = read_run(log.run_dir)
    (folder,) = (Path(row["folder"]) for row in before.writers)
    nonsense = [(Kind.RESOURCE, b"\0"), (Kind.HYPERPARAMETERS, b"{"), (Kind.OTLP, b"\0\0\0\0\xff"), (Kind.SCHEMA, b"")]
    for name in Signal:
        write(folder, *nonsense, name=name, sequence=9)
    after = read_run(log.run_dir)

    assert list(before.metrics) == list(after.metrics)
    assert list(before.events) == list(after.events)
    assert list(before.spans) == list(after.spans)
    assert list(before.hyperparameters) == list(after.hyperparameters)
    assert before.resources == after.resources


def write(folder: Path, *records: tuple[Kind, bytes], name: Signal = Signal.LOGS, sequence: int = 1) -> None:
    """Write a segment that holds some records."""
    data = SegmentHeader(name, sequence, 1, bytes(16)).pack() + b"".join(pack_record(*record) for record in records)
    (folder / segment_name(name, sequence)).write_bytes(data)
