"""Segments: a header that proves itself, records up to a tear, and a seal that shows what is missing."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.rows import RowReader, Schema
from otel_logger_exporters.segments import (
    HEADER_SIZE,
    SEAL_SIZE,
    SegmentHeader,
    is_begun,
    pack_seal,
    read_segment,
    segment_name,
    segments_of,
)
from otel_logger_exporters.signals import Signal

HEADER = SegmentHeader(Signal.METRICS, 3, 1_700_000_000_000_000_000, bytes(range(16)))

quick = settings(deadline=None, max_examples=60)


def _rows_segment():
    narrow, wide = Schema(0, ["loss"], "d"), Schema(1, ["loss", "epoch", ""], "dqd")
    parts = [(Kind.RESOURCE, b"\0\0\0\0resource"), (Kind.SCHEMA, narrow.pack())]
    parts += [(Kind.ROW, narrow.pack_row(time, time, [time / 3])) for time in range(3)]
    parts += [(Kind.SCHEMA, wide.pack()), (Kind.ROW, wide.pack_row(4, 4, [float("nan"), 2**63 - 1, -0.0]))]
    return parts


def _frames_segment():
    return [(Kind.RESOURCE, b"\1\0\0\0r")] + [(Kind.OTLP, Frame(n, bytes(n * 5)).pack()) for n in range(1, 5)]


def _packed(parts, header=HEADER):
    return header.pack() + b"".join(pack_record(kind, payload) for kind, payload in parts)


def _sealed(parts):
    data = _packed(parts)
    return data + pack_seal(len(parts), zlib.crc32(data[HEADER_SIZE:]))


def _parts(segment):
    return [(record.kind, bytes(record.payload)) for record in segment.records]


@quick
@given(
    st.sampled_from(Signal),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(min_size=16, max_size=16),
)
def test_headers_come_back(signal, sequence, created_ns, writer):
    """A header is read as it was written, in 64 bytes."""
    header = SegmentHeader(signal, sequence, created_ns, writer)
    assert 64 == HEADER_SIZE == len(header.pack())
    assert header == SegmentHeader.unpack(header.pack())


def test_a_damaged_or_short_header_makes_no_segment():
    """Cut anywhere, or with any one bit flipped, a header is none."""
    packed = HEADER.pack()
    for size in range(len(packed)):
        assert read_segment(packed[:size]) is None
    for bit in range(8 * len(packed)):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        assert read_segment(bytes(flipped)) is None


@pytest.mark.parametrize("change", [(0, b"otlp-sag"), (8, b"\2\0"), (10, b"\4")], ids=["magic", "version", "signal"])
def test_a_segment_of_another_format_is_not_read(change):
    """Another magic, version or signal, although its checksum is right, is for another reader."""
    place, content = change
    head = bytearray(HEADER.pack()[:60])
    head[place : place + len(content)] = content
    assert read_segment(bytes(head) + zlib.crc32(head).to_bytes(4, "little")) is None


@pytest.mark.parametrize("parts", [_rows_segment(), _frames_segment(), []], ids=["rows", "frames", "empty"])
def test_a_cut_at_any_byte_leaves_the_whole_records_before_it(parts):
    """Truncated anywhere, a segment reads as a prefix of its records; what is torn is counted, nothing is raised."""
    whole = _sealed(parts)
    ends = [HEADER_SIZE]
    for kind, payload in parts:
        ends.append(ends[-1] + len(pack_record(kind, payload)))
    for size in range(HEADER_SIZE, len(whole)):
        segment = read_segment(whole[:size])
        complete = sum(end <= size for end in ends) - 1
        assert parts[:complete] == _parts(segment)
        assert len(whole[ends[complete] : size].rstrip(b"\0")) == segment.cut
        assert (False, False) == (segment.sealed, segment.damaged)
        assert all(row.keys for row in RowReader().rows(segment.records))
    segment = read_segment(whole)
    assert (parts, True, False, 0) == (_parts(segment), segment.sealed, segment.damaged, segment.cut)


@quick
@given(st.sampled_from([_rows_segment(), _frames_segment()]), st.data())
def test_a_damaged_byte_leaves_a_prefix(parts, data):
    """With any bits of any byte behind the header flipped, a prefix is read, and the damage shows."""
    whole = bytearray(_sealed(parts))
    whole[data.draw(st.integers(HEADER_SIZE, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    segment = read_segment(bytes(whole))
    found = _parts(segment)
    assert parts[: len(found)] == found
    assert segment.cut > 0
    assert not segment.sealed
    assert len(list(RowReader().rows(segment.records))) <= sum(kind == Kind.ROW for kind, _ in parts)


@quick
@given(st.binary(max_size=200))
def test_any_bytes_behind_a_header_can_be_read(noise):
    """What is no record is counted, and not raised."""
    segment = read_segment(HEADER.pack() + noise)
    assert (HEADER, ()) == (segment.header, segment.records)
    assert len(noise.rstrip(b"\0")) == segment.cut


def test_a_seal_shows_a_missing_record():
    """A record that is gone without a trace is seen by its seal; the others are read."""
    parts = _frames_segment()
    data = _packed(parts)
    seal = pack_seal(len(parts), zlib.crc32(data[HEADER_SIZE:]))
    segment = read_segment(_packed(parts[:2] + parts[3:]) + seal)
    assert (parts[:2] + parts[3:], True, True) == (_parts(segment), segment.sealed, segment.damaged)


def test_a_seal_shows_an_exchanged_record():
    """As many records as there were, but not the same, are seen too."""
    parts = _frames_segment()
    seal = pack_seal(len(parts), zlib.crc32(_packed(parts)[HEADER_SIZE:]))
    assert read_segment(_packed(parts[::-1]) + seal).damaged


def test_a_seal_of_another_size_is_damage():
    """A seal that cannot be understood promises nothing."""
    segment = read_segment(_packed([]) + pack_record(Kind.SEAL, b"short"))
    assert (True, True) == (segment.sealed, segment.damaged)


@pytest.mark.parametrize("zeros", [1, SEAL_SIZE, 4096])
def test_zeros_behind_records_or_a_seal_are_nothing(zeros):
    """A mapped file has them to its end while it is written to, and after the death of its writer."""
    parts = _rows_segment()
    segment = read_segment(_packed(parts) + bytes(zeros))
    assert (parts, False, False, 0) == (_parts(segment), segment.sealed, segment.damaged, segment.cut)
    segment = read_segment(_sealed(parts) + bytes(zeros))
    assert (parts, True, False, 0) == (_parts(segment), segment.sealed, segment.damaged, segment.cut)


def test_what_lies_behind_zeros_is_counted():
    """A row of which only the last part was copied when its writer was killed is no record, and shows."""
    segment = read_segment(_packed(_frames_segment()) + bytes(50) + b"torn" + bytes(50))
    assert (_frames_segment(), False, 54) == (_parts(segment), segment.sealed, segment.cut)


def test_a_seal_has_the_size_that_is_set_aside_for_it():
    """Whatever is in it."""
    assert {SEAL_SIZE} == {len(pack_seal(count, count)) for count in (0, 1, 2**32 - 1)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, False),
        (b"", False),
        (bytes(3), False),
        (bytes(4096), False),
        (HEADER.pack(), True),
        (HEADER.pack()[:1], True),
        (b"no segment", True),
    ],
    ids=["absent", "empty", "short", "zeros", "header", "torn", "other"],
)
def test_a_segment_is_begun_when_something_is_in_it(tmp_path, content, expected):
    """One that is prepared for later, or just being made, is not: those before it are still written to."""
    path = tmp_path / "metrics-00000001.seg"
    if content is not None:
        path.write_bytes(content)
    assert expected == is_begun(path)


def test_segments_are_found_by_signal_and_in_order(tmp_path):
    """Other signals, other files and leftovers are not taken for segments; the oldest comes first."""
    for name in [segment_name(Signal.METRICS, n) for n in (10, 2, 1)] + [
        segment_name(Signal.LOGS, 1),
        "metrics-1.seg",
        "metrics-00000003.seg.tmp",
        "metrics.ack",
        "writer.json",
    ]:
        (tmp_path / name).touch()
    expected = [(n, tmp_path / f"metrics-{n:08d}.seg") for n in (1, 2, 10)]
    assert expected == segments_of(tmp_path, Signal.METRICS)
    assert [] == segments_of(tmp_path, Signal.TRACES)
    assert [] == segments_of(tmp_path / "absent", Signal.METRICS)
