"""Measurements of our own: as OTLP, whole or ended, and divided into parts that fit."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

from otel_logger_exporters.measurements import Instrument, Measurement, divide, encode_measurements

SCOPE = InstrumentationScope(name="s", version="1")
SIZE = Instrument("size", "By")
TIME = Instrument("time", "s", is_sum=True)


def decoded(*measurements: Measurement) -> ScopeMetrics:
    """Return what measurements are in OTLP."""
    encoded = encode_measurements(
        measurements, time_ns=1_234_567, start_ns=17, scope=SCOPE, schema_url="https://example.org/1"
    )
    return ScopeMetrics.FromString(encoded)


def test_integers_floats_and_attributes_keep_their_types() -> None:
    """An int stays an int, in values and in attributes, under the scope with its version and schema."""
    message = decoded(Measurement(SIZE, {(("a", "x"), ("b", 2)): 3, (): 0.5}))
    (metric,) = message.metrics
    first, second = metric.gauge.data_points
    assert (SCOPE, "https://example.org/1") == (message.scope, message.schema_url)
    assert ("size", "By", 3, 0.5) == (metric.name, metric.unit, first.as_int, second.as_double)
    assert ["x", 2] == [first.attributes[0].value.string_value, first.attributes[1].value.int_value]
    assert {1_000_000} == {point.time_unix_nano for point in metric.gauge.data_points}


def test_what_has_ended_has_no_value_but_says_so() -> None:
    """OTLP has a flag for it; sums keep their kind and start, by which a backend knows the series."""
    (metric,) = decoded(Measurement(TIME, {(): 2.5}, has_ended=True)).metrics
    (point,) = metric.sum.data_points
    assert (None, 1, 17) == (point.WhichOneof("value"), point.flags, point.start_time_unix_nano)
    assert metric.sum.is_monotonic


def test_a_measurement_without_points_is_left_out() -> None:
    """What is not known has no series."""
    assert not decoded(Measurement(SIZE, {})).metrics


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 10))
def test_parts_are_full_and_together_the_whole(sizes: list[int], most: int) -> None:
    """No part has more points than are asked for, none but the last has fewer, and none is lost, added or reordered."""
    whole = [Measurement(Instrument(f"m{n}"), {(("i", i),): i for i in range(size)}) for n, size in enumerate(sizes)]
    parts = list(divide(whole, most))
    counts = [sum(len(measurement.points) for measurement in part) for part in parts]
    assert [most] * (len(counts) - 1) == counts[:-1]
    assert all(0 < count <= most for count in counts)
    assert [(m.instrument.name, a) for m in whole for a in m.points] == [
        (m.instrument.name, a) for part in parts for m in part for a in m.points
    ]
