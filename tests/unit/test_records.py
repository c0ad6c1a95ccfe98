"""Records survive the way to bytes and back; of what is torn or damaged, the records before it are read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.records import (
    RECORD_OVERHEAD,
    Kind,
    end_of_content,
    end_of_records,
    is_written,
    pack_record,
    read_records,
)

RECORDS = st.lists(st.tuples(st.integers(1, 255), st.binary(max_size=70)), max_size=8)

quick = settings(deadline=None, max_examples=60)


def _packed(records):
    return b"".join(pack_record(kind, payload) for kind, payload in records)


def _read(data, start=0):
    return [(record.kind, bytes(record.payload)) for record in read_records(data, start)]


@quick
@given(RECORDS)
def test_records_come_back_as_they_were(records):
    """What is packed is read: kinds and payloads, in order."""
    assert records == _read(_packed(records))


@pytest.mark.parametrize("zeros", [0, 1, 2**16 - 1, 2**16, 2**16 + 1, 3 * 2**16 + 5])
@pytest.mark.parametrize("content", [b"", b"x", b"x\0y", b"x" + bytes(70_000) + b"y"])
def test_the_end_of_content_is_behind_its_last_byte_that_is_not_zero(content, zeros):
    """However many zeros are behind it or in it."""
    assert len(content) == end_of_content(content + bytes(zeros))


@quick
@given(RECORDS)
def test_records_are_aligned_and_say_where_they_end(records):
    """Each record begins at a multiple of eight, and reading goes on from the end of any of them."""
    data = _packed(records)
    for index, record in enumerate(read_records(data)):
        assert 0 == record.end % 8
        assert records[index + 1 :] == _read(data, record.end)


@quick
@given(RECORDS)
def test_a_cut_at_any_byte_leaves_the_whole_records_before_it(records):
    """Truncated anywhere, the data holds exactly the records that end before the cut, and nothing is raised."""
    data = _packed(records)
    ends = [record.end for record in read_records(data)]
    for size in range(len(data) + 1):
        assert records[: sum(end <= size for end in ends)] == _read(data[:size])


@quick
@given(RECORDS.filter(bool), st.data())
def test_a_damaged_byte_ends_the_reading_at_its_record(records, data):
    """With any bits of any byte flipped, exactly the records before that byte are read."""
    packed = bytearray(_packed(records))
    place = data.draw(st.integers(0, len(packed) - 1))
    ends = [record.end for record in read_records(bytes(packed))]
    packed[place] ^= data.draw(st.integers(1, 255))
    assert records[: sum(end <= place for end in ends)] == _read(packed)


@quick
@given(st.binary(max_size=300), st.integers(0, 310))
def test_any_bytes_can_be_read(data, start):
    """Whatever the bytes are, and wherever reading begins, nothing is raised."""
    for record in read_records(data, start):
        assert record.end <= len(data)


def test_zeros_are_no_records():
    """A file that was made longer than what is written in it ends where the zeros begin."""
    records = [(Kind.OTLP, b""), (Kind.ROW, b"x")]
    assert records == _read(_packed(records) + bytes(4096))


@quick
@given(RECORDS, st.sampled_from([b"", bytes(7), bytes(100), b"\1torn"]))
def test_the_end_of_records_is_behind_the_last_that_is_whole(records, tail):
    """What follows the records is not theirs; without any the end is where they would begin."""
    data = _packed(records)
    assert len(data) == end_of_records(data + tail)
    assert 16 + len(data) == end_of_records(bytes(16) + data + tail, 16)


@quick
@given(RECORDS.filter(bool), st.integers(0, 100))
def test_a_place_is_written_where_a_record_begins_or_may(records, zeros):
    """Zeros have never been written, unless there are too few of them to tell."""
    data = _packed(records)
    assert is_written(data, 0)
    assert (zeros < 8) == is_written(data + bytes(zeros), len(data))
    assert (zeros < 8) == is_written(bytes(zeros), 0)


def test_the_overhead_of_a_record():
    """Framing adds twelve bytes, and what fills the record up to a multiple of eight."""
    assert 12 == RECORD_OVERHEAD
    assert [16, 16, 24] == [len(pack_record(Kind.OTLP, bytes(size))) for size in (0, 4, 5)]


def test_the_bytes_of_a_record():
    """The bytes are those of the example in docs/segment-format.md."""
    expected = bytes.fromhex("09000000 05 000000 010000006162636465 000000 a1b1d7f8")
    assert expected == pack_record(Kind.OTLP, b"\1\0\0\0abcde")
