"""Self-metrics: what became of a writer's data, as OTLP metrics of otel_logger's own."""

from collections.abc import Mapping

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint, ScopeMetrics

from otel_logger import conventions as names
from otel_logger_exporters.ledger import Stats

__all__ = ["encode_self_metrics"]

_ITEMS = "{item}"


def encode_self_metrics(stats: Stats, *, time_ns: int, start_ns: int) -> bytes:
    """Return `stats` as an encoded OTLP ScopeMetrics, of which counts are cumulative sums since `start_ns`."""
    encoder = _Encoder(time_ns, start_ns)
    signal, reason = names.SELF_SIGNAL, names.SELF_REASON
    metrics = [
        encoder.sum(names.SELF_RECORDED, _ITEMS, signal, stats.recorded),
        encoder.sum(names.SELF_DELIVERED, _ITEMS, signal, stats.delivered),
        encoder.sum(names.SELF_REFUSED, _ITEMS, signal, stats.refused),
        encoder.gauge(names.SELF_WAITING, _ITEMS, signal, stats.waiting),
        encoder.sum(names.SELF_DROPPED, _ITEMS, reason, stats.dropped),
        encoder.sum(names.SELF_ADJUSTED, _ITEMS, reason, stats.adjusted),
        encoder.sum(names.SELF_COALESCED, _ITEMS, None, {"": stats.coalesced}),
        encoder.sum(names.SELF_BLOBS, "{blob}", None, {"": stats.blobs}),
        encoder.gauge(names.SELF_SIZE, "By", None, {"": stats.bytes_on_disk}),
        encoder.gauge(names.SELF_AGE, "s", None, {"": stats.oldest or 0.0}),
    ]
    scope = InstrumentationScope(name=names.SCOPE_NAME, version=names.SCOPE_VERSION)
    # A metric without points is none: nothing was dropped yet.
    message = ScopeMetrics(scope=scope, metrics=[m for m in metrics if m.gauge.data_points or m.sum.data_points])
    encoded: bytes = message.SerializeToString()
    return encoded


class _Encoder:
    def __init__(self, time_ns: int, start_ns: int) -> None:
        # Whole milliseconds, which is what Prometheus keeps.
        self._time_ns = time_ns // 1_000_000 * 1_000_000
        self._start_ns = start_ns

    def gauge(self, name: str, unit: str, attribute: str | None, values: Mapping[str, float]) -> Metric:
        metric = Metric(name=name, unit=unit)
        metric.gauge.data_points.extend(self._points(attribute, values))
        return metric

    def sum(self, name: str, unit: str, attribute: str | None, values: Mapping[str, float]) -> Metric:
        metric = Metric(name=name, unit=unit)
        metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
        metric.sum.data_points.extend(self._points(attribute, values))
        for point in metric.sum.data_points:
            point.start_time_unix_nano = self._start_ns
        return metric

    def _points(self, attribute: str | None, values: Mapping[str, float]) -> list[NumberDataPoint]:
        points = []
        for value_of, value in values.items():
            point = NumberDataPoint(time_unix_nano=self._time_ns)
            if isinstance(value, int):
                point.as_int = value
            else:
                point.as_double = value
            if attribute is not None:
                point.attributes.add(key=attribute).value.string_value = value_of
            points.append(point)
        return points
