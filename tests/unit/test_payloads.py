"""Payloads of records that are not rows survive the way to bytes and back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.payloads import Frame, ResourceRecord, pack_hyperparameters, unpack_hyperparameters

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

quick = settings(deadline=None, max_examples=50)


@quick
@given(st.integers(0, 2**32 - 1), st.binary())
def test_frames_come_back(items, body):
    """A frame keeps its count and its bytes."""
    frame = Frame(items, body)
    assert frame == Frame.unpack(memoryview(frame.pack()))


@quick
@given(st.binary(), st.booleans())
def test_resources_come_back(message, bound):
    """A resource keeps its message and whether it is bound."""
    record = ResourceRecord(message, bound)
    assert record == ResourceRecord.unpack(memoryview(record.pack()))


@quick
@given(st.dictionaries(st.text(), PLAIN, max_size=4), st.integers(0, 2**63))
def test_hyperparameters_come_back(nested, time_ns):
    """What a call logged comes back with its time, whatever characters it holds."""
    assert (nested, time_ns) == unpack_hyperparameters(memoryview(pack_hyperparameters(nested, time_ns)))


def test_infinities_come_back_and_other_objects_as_text():
    """JSON's literals for what JSON has no number for are written and read; what is no data is its text."""
    nested = {"a": float("inf"), "b": [float("-inf")], "c": {1, 2} - {2}}
    expected = {"a": float("inf"), "b": [float("-inf")], "c": "{1}"}
    assert (expected, 5) == unpack_hyperparameters(memoryview(pack_hyperparameters(nested, 5)))


def test_a_resource_with_unknown_flags_is_read():
    """Only the lowest bit says bound; the others are left for later versions."""
    assert ResourceRecord(b"m", True) == ResourceRecord.unpack(memoryview(b"\xff\xff\xff\xffm"))
    assert ResourceRecord(b"m", False) == ResourceRecord.unpack(memoryview(b"\xfe\xff\xff\xffm"))
