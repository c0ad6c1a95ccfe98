"""Requests: the bytes of an OTLP export, made from rows or from recorded frames.

A pure function of its arguments: encoding the same batch again gives the same bytes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint, ScopeMetrics

from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.rows import Row

__all__ = ["REQUEST_BYTES", "MetricRequests", "MetricVocabulary", "frame_requests", "join_requests", "metric_requests"]

REQUEST_BYTES = 3 * 2**20
"""Bytes aimed at per request: gRPC servers refuse over 4 MiB by default; what is added last may be over, hence room."""

POINTS_AT_ONCE = 256
"""Points of a series that are added before the size is looked at: 100 KiB or less, unless keys are very long."""


@dataclass(frozen=True, slots=True)
class MetricVocabulary:
    """How keys become OTLP metrics.

    `name_of` maps a key to the metric's name, `key_attribute` is the point attribute that carries the key as it is.
    `step_metric` is the name of the companion that carries the step of each point, None for no companions. With
    `nanoseconds`, points of one series that share a time are set apart by one nanosecond each instead of coalesced.
    """

    name_of: Callable[[str], str]
    key_attribute: str
    step_metric: str | None
    step_unit: str
    scope: InstrumentationScope
    schema_url: str = ""
    nanoseconds: bool = False


@dataclass(frozen=True, slots=True)
class MetricRequests:
    """The requests of a batch, and how many values gave way to a later one of the same series and time."""

    bodies: tuple[bytes, ...]
    coalesced: int


_Series = dict[str, dict[int, tuple[int | None, float | int]]]
"""For each key, the points by time: (step, value)."""

_Points = dict[str, list[bytes]]
"""For each metric's name, the encoded data points."""


def metric_requests(rows: Iterable[Row], resource: bytes, vocabulary: MetricVocabulary) -> MetricRequests:
    """Return the requests that carry `rows`: for each value a gauge point, and beside it its step companion.

    `resource` is an encoded OTLP Resource. Each request stays near REQUEST_BYTES; a longer series is divided in time.
    """
    series, coalesced = _series(rows, vocabulary.nanoseconds)
    bodies: list[bytes] = []
    metrics: _Points = {}
    size = 0
    for key, by_time in series.items():
        points = sorted(by_time.items())
        for start in range(0, len(points), POINTS_AT_ONCE):
            size += _add_points(metrics, key, points[start : start + POINTS_AT_ONCE], vocabulary)
            if size >= REQUEST_BYTES:
                bodies.append(_metrics_body(metrics, resource, vocabulary))
                metrics, size = {}, 0
    if metrics:
        bodies.append(_metrics_body(metrics, resource, vocabulary))
    return MetricRequests(tuple(bodies), coalesced)


def _series(rows: Iterable[Row], nanoseconds: bool) -> tuple[_Series, int]:
    series: _Series = {}
    coalesced = 0
    for row in rows:
        for key, value in zip(row.keys, row.values, strict=True):
            points = series.setdefault(key, {})
            time_ns = row.time_ns
            if time_ns in points:
                if nanoseconds:
                    while time_ns in points:
                        time_ns += 1
                else:
                    # Prometheus refuses a whole request for two values of one series and millisecond.
                    coalesced += 1
            points[time_ns] = (row.step, value)
    return series, coalesced


def _add_points(
    metrics: _Points,
    key: str,
    points: Iterable[tuple[int, tuple[int | None, float | int]]],
    vocabulary: MetricVocabulary,
) -> int:
    name = vocabulary.name_of(key)
    size = len(name)
    for time_ns, (step, value) in points:
        size += _add_point(metrics, name, time_ns, value, key, vocabulary)
        if step is not None and vocabulary.step_metric is not None:
            size += _add_point(metrics, vocabulary.step_metric, time_ns, step, key, vocabulary)
    return size


def _add_point(
    metrics: _Points, name: str, time_ns: int, value: float | int, key: str, vocabulary: MetricVocabulary
) -> int:
    point = NumberDataPoint(time_unix_nano=time_ns)
    if isinstance(value, int):
        point.as_int = value
    else:
        point.as_double = value
    point.attributes.add(key=vocabulary.key_attribute).value.string_value = key
    # Each by itself, and joined as bytes: to put messages of megabytes into each other, or to encode them, takes 20 ms
    # a time, in which no other thread runs.
    encoded = _field(1, point.SerializeToString())
    metrics.setdefault(name, []).append(encoded)
    return len(encoded)


def _metrics_body(metrics: _Points, resource: bytes, vocabulary: MetricVocabulary) -> bytes:
    parts = [ScopeMetrics(scope=vocabulary.scope).SerializeToString()]
    for name, points in metrics.items():
        unit = vocabulary.step_unit if name == vocabulary.step_metric else ""
        parts.append(_field(2, Metric(name=name, unit=unit).SerializeToString() + _field(5, b"".join(points))))
    # The fields of a message may come in parts.
    parts.append(ScopeMetrics(schema_url=vocabulary.schema_url).SerializeToString())
    return _field(1, _field(1, resource) + _field(2, b"".join(parts)))


def frame_requests(frames: Iterable[Frame], resource: bytes) -> tuple[bytes, ...]:
    """Return the requests that carry recorded frames, all under one `resource`.

    ExportLogsServiceRequest and ExportTraceServiceRequest have the same shape: field 1 is a Resource* message, whose
    field 1 is the resource and whose field 2 are Scope* messages, which is what a frame holds. So frames are joined
    without being parsed, as protobuf's encoding of repeated fields allows.
    """
    head = _field(1, resource)
    bodies: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for frame in frames:
        if parts and size + len(frame.body) > REQUEST_BYTES:
            bodies.append(_field(1, head + b"".join(parts)))
            parts, size = [], 0
        parts.append(_field(2, frame.body))
        size += len(parts[-1])
    if parts:
        bodies.append(_field(1, head + b"".join(parts)))
    return tuple(bodies)


def join_requests(bodies: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return requests of one signal as few as REQUEST_BYTES allows: messages put one behind the other are one."""
    joined: list[bytes] = []
    for body in bodies:
        if joined and len(joined[-1]) + len(body) <= REQUEST_BYTES:
            joined[-1] += body
        else:
            joined.append(body)
    return tuple(joined)


def _field(number: int, payload: bytes) -> bytes:
    size, length = len(payload), bytearray()
    while True:
        byte = size & 0x7F
        size >>= 7
        length.append(byte | (0x80 if size else 0))
        if not size:
            return bytes([number << 3 | 2]) + bytes(length) + payload
