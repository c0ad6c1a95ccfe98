"""Rows and schemas survive the way to bytes and back, each number to the bit."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.records import Kind, pack_record, read_records
from otel_logger_exporters.rows import NO_STEP, Row, RowReader, Schema

INT64 = st.integers(-(2**63), 2**63 - 1)
STEP = st.none() | st.integers(-(2**63) + 1, 2**63 - 1)
KEY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COLUMN = st.tuples(KEY, st.floats(width=64) | INT64)

quick = settings(deadline=None, max_examples=60)


def bits(value):
    """Return what tells values apart to the bit, and ints from floats."""
    return value if isinstance(value, int) else struct.pack("<d", value)


def _schema(identifier, columns):
    kinds = "".join("q" if isinstance(value, int) else "d" for _, value in columns)
    return Schema(identifier, [key for key, _ in columns], kinds)


def _records(*parts):
    return read_records(b"".join(pack_record(kind, payload) for kind, payload in parts))


@quick
@given(st.integers(0, 2**32 - 1), st.lists(COLUMN, max_size=12), st.integers(0, 2**63 - 1), STEP)
def test_rows_come_back_to_the_bit(identifier, columns, time_ns, step):
    """Any keys, floats (NaN with its payload, infinities, -0.0) and int64 are read as they were written."""
    schema = _schema(identifier, columns)
    payload = schema.pack_row(time_ns, NO_STEP if step is None else step, [value for _, value in columns])
    (row,) = RowReader().rows(_records((Kind.SCHEMA, schema.pack()), (Kind.ROW, payload)))
    assert (tuple(key for key, _ in columns), time_ns, step) == (row.keys, row.time_ns, row.step)
    assert [bits(value) for _, value in columns] == [bits(value) for value in row.values]


@quick
@given(st.lists(st.lists(COLUMN, max_size=3), min_size=1, max_size=5), st.data())
def test_schemas_of_a_segment_do_not_mix(schemas, data):
    """Rows of several schemas in any order are each read by their own."""
    order = data.draw(st.lists(st.integers(0, len(schemas) - 1), max_size=10))
    made = [_schema(index, columns) for index, columns in enumerate(schemas)]
    parts = [(Kind.SCHEMA, schema.pack()) for schema in made]
    parts += [(Kind.ROW, made[i].pack_row(7, i, [value for _, value in schemas[i]])) for i in order]
    rows = list(RowReader().rows(_records(*parts)))
    assert [tuple(key for key, _ in schemas[i]) for i in order] == [row.keys for row in rows]
    assert order == [row.step for row in rows]


def test_a_later_schema_of_the_same_identifier_counts_from_there():
    """Identifiers may be used again: rows before the second schema keep the first."""
    first, second = Schema(0, ["a"], "d"), Schema(0, ["b", "c"], "qd")
    reader = RowReader()
    rows = list(
        reader.rows(
            _records(
                (Kind.SCHEMA, first.pack()),
                (Kind.ROW, first.pack_row(1, 2, [0.5])),
                (Kind.SCHEMA, second.pack()),
                (Kind.ROW, second.pack_row(3, NO_STEP, [4, 5.0])),
            )
        )
    )
    assert [Row(("a",), (0.5,), 1, 2), Row(("b", "c"), (4, 5.0), 3, None)] == rows


def test_a_copy_of_a_reader_goes_its_own_way():
    """What the copy reads changes nothing for the reader it was made of."""
    schema = Schema(0, ["a"], "d")
    (row_record,) = _records((Kind.ROW, schema.pack_row(1, 2, [0.5])))
    reader = RowReader()
    copy = reader.copy()
    assert [] == list(copy.rows(_records((Kind.SCHEMA, schema.pack()))))
    assert Row(("a",), (0.5,), 1, 2) == copy.take(row_record)
    assert reader.take(row_record) is None


@pytest.mark.parametrize("kind", [Kind.RESOURCE, Kind.HYPERPARAMETERS, Kind.OTLP, Kind.SEAL, 99])
def test_other_records_hold_no_row(kind):
    """Records of other kinds, also of kinds that do not exist yet, are passed over."""
    assert [] == list(RowReader().rows(_records((kind, b"anything"))))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 0.5])
def test_what_is_no_int64_cannot_stand_in_an_integer_column(value):
    """The packer refuses it aloud; nothing is cut to 64 bits in silence."""
    with pytest.raises(struct.error):
        Schema(0, ["a"], "q").pack_row(1, 2, [value])
