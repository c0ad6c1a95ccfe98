"""Measurements: what instruments of our own read at a moment, for OTLP and for a scrape alike."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    NumberDataPoint,
    ScopeMetrics,
)

from otel_logger_exporters.any_values import any_value

__all__ = ["Attributes", "Instrument", "Measurement", "divide", "encode_measurements"]

Attributes = tuple[tuple[str, str | int], ...]
"""Attributes of a point, in an order of their own."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """What is measured: its name, unit (UCUM), and whether it is a sum that only grows, or else a gauge."""

    name: str
    unit: str = ""
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an instrument reads: a value for each set of attributes; one that has ended has no values any more."""

    instrument: Instrument
    points: Mapping[Attributes, float | int]
    has_ended: bool = False


def divide(measurements: Iterable[Measurement], most: int) -> Iterator[list[Measurement]]:
    """Yield measurements in lists of at most `most` points, cutting those that have more."""
    part: list[Measurement] = []
    room = most
    for measurement in measurements:
        points = list(measurement.points.items())
        while points:
            part.append(replace(measurement, points=dict(points[:room])))
            points, room = points[room:], room - len(part[-1].points)
            if not room:
                yield part
                part, room = [], most
    if part:
        yield part


def encode_measurements(
    measurements: Iterable[Measurement],
    *,
    time_ns: int,
    start_ns: int,
    scope: InstrumentationScope,
    schema_url: str = "",
) -> bytes:
    """Return measurements of one time as an encoded OTLP ScopeMetrics; sums are cumulative since `start_ns`.

    A measurement without points is left out. The points of one that has ended say so ("no recorded value" of the OTLP
    specification), upon which a backend ends the series instead of showing its last value on.
    """
    # Whole milliseconds, which is what Prometheus keeps.
    time_ns = time_ns // 1_000_000 * 1_000_000
    metrics = [_metric(measurement, time_ns, start_ns) for measurement in measurements if measurement.points]
    message = ScopeMetrics(scope=scope, metrics=metrics, schema_url=schema_url)
    encoded: bytes = message.SerializeToString()
    return encoded


def _metric(measurement: Measurement, time_ns: int, start_ns: int) -> Metric:
    instrument = measurement.instrument
    metric = Metric(name=instrument.name, unit=instrument.unit)
    points = [_point(attributes, value, time_ns) for attributes, value in measurement.points.items()]
    if measurement.has_ended:
        for point in points:
            point.ClearField("value")
            point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    if instrument.is_sum:
        for point in points:
            point.start_time_unix_nano = start_ns
        metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
        metric.sum.data_points.extend(points)
    else:
        metric.gauge.data_points.extend(points)
    return metric


def _point(attributes: Attributes, value: float | int, time_ns: int) -> NumberDataPoint:
    point = NumberDataPoint(time_unix_nano=time_ns)
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    for key, content in attributes:
        point.attributes.add(key=key, value=any_value(content))
    return point
