"""otel_logger's own metrics say in OTLP what `stats()` says, and arrive where the run's metrics go."""

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, ScopeMetrics

from otel_logger import conventions as names
from otel_logger.self_metrics import measure_delivery
from otel_logger_exporters.blob_counts import BlobStats
from otel_logger_exporters.ledger import Stats
from otel_logger_exporters.measurements import encode_measurements

COUNTS = {"metrics": 5, "logs": 0, "traces": 2}
MS = 1_000_000


def encoded(**fields):
    """Return the metrics for some counts, by name."""
    counts = dict.fromkeys(("recorded", "delivered", "refused", "waiting", "kept"), COUNTS)
    measurements = measure_delivery(Stats(**{**counts, **fields}))
    message = ScopeMetrics.FromString(
        encode_measurements(measurements, time_ns=7 * MS + 123, start_ns=3 * MS, scope=InstrumentationScope(name="s"))
    )
    return {metric.name: metric for metric in message.metrics}


def points(metric):
    """Return the values of a metric by their one attribute."""
    data = metric.sum if metric.HasField("sum") else metric.gauge
    return {
        point.attributes[0].value.string_value if point.attributes else "": point.as_int or point.as_double
        for point in data.data_points
    }


@pytest.mark.parametrize("name", [names.SELF_RECORDED, names.SELF_DELIVERED, names.SELF_REFUSED])
def test_counts_are_cumulative_sums_by_signal(name):
    """What only grows is a monotonic sum since the writer's start, with a point for each signal."""
    metric = encoded()[name]
    assert COUNTS == points(metric)
    assert AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE == metric.sum.aggregation_temporality
    assert metric.sum.is_monotonic
    assert {(3 * MS, 7 * MS)} == {(p.start_time_unix_nano, p.time_unix_nano) for p in metric.sum.data_points}
    assert {names.SELF_SIGNAL} == {attribute.key for p in metric.sum.data_points for attribute in p.attributes}


def test_what_goes_up_and_down_is_a_gauge():
    """What waits, its size and its age are the values of now."""
    found = encoded(bytes_on_disk=4096, oldest=2.5)
    assert COUNTS == points(found[names.SELF_WAITING])
    assert {"": 4096} == points(found[names.SELF_SIZE])
    assert {"": 2.5} == points(found[names.SELF_AGE])
    assert {"By", "s"} == {found[names.SELF_SIZE].unit, found[names.SELF_AGE].unit}
    assert {"": 0.0} == points(encoded(oldest=None)[names.SELF_AGE])


def test_losses_are_there_by_reason_once_there_are_some():
    """A metric without points is left out, as nothing can be said of reasons that have not occurred."""
    assert not {names.SELF_DROPPED, names.SELF_ADJUSTED} & set(encoded())
    found = encoded(dropped={"disk": 3, "limit": 1}, adjusted={"memory": 8})
    assert {"disk": 3, "limit": 1} == points(found[names.SELF_DROPPED])
    assert {"memory": 8} == points(found[names.SELF_ADJUSTED])
    assert {names.SELF_REASON} == {a.key for p in found[names.SELF_DROPPED].sum.data_points for a in p.attributes}


def test_blobs_are_counted_with_what_waits():
    """What is stored, has failed or was tried again only grows; what waits on disk is the value of now."""
    blobs = BlobStats(stored=4, failed=1, waiting=2, bytes_stored=400, bytes_waiting=200, retries=3, oldest=7.5)
    found = encoded(blobs=blobs)
    sums = (names.SELF_BLOB_STORED, names.SELF_BLOB_SIZE, names.SELF_BLOB_FAILED, names.SELF_BLOB_RETRIES)
    gauges = (names.SELF_BLOB_WAITING, names.SELF_BLOB_WAITING_SIZE, names.SELF_BLOB_AGE)
    assert [4, 400, 1, 3] == [points(found[name])[""] for name in sums]
    assert [2, 200, 7.5] == [points(found[name])[""] for name in gauges]
    assert [True] * 4 == [found[name].sum.is_monotonic for name in sums]
    assert [True] * 3 == [found[name].HasField("gauge") for name in gauges]
