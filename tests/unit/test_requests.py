"""Requests hold exactly what was recorded: each value a point, each step its companion, each frame as it was."""

import itertools
import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.requests import (
    POINTS_AT_ONCE,
    REQUEST_BYTES,
    MetricVocabulary,
    frame_requests,
    join_requests,
    metric_requests,
)
from otel_logger_exporters.rows import Row

GRPC_LIMIT = 4 * 2**20
SCOPE = InstrumentationScope(name="scope", version="1")

RESOURCE = Resource()
RESOURCE.attributes.add(key="service.name").value.string_value = "training"
RESOURCE_BYTES = RESOURCE.SerializeToString()

quick = settings(deadline=None, max_examples=40)


def _vocabulary(*, name_of=str.lower, step_metric="step", nanoseconds=False):
    return MetricVocabulary(name_of, "key", step_metric, "{step}", SCOPE, "https://schema", nanoseconds)


VOCABULARY = _vocabulary()


def _row(values, time_ns=1_000_000, step=None):
    return Row(tuple(values), tuple(values.values()), time_ns, step)


def _parsed(bodies):
    return [ExportMetricsServiceRequest.FromString(body) for body in bodies]


def _points(bodies):
    """Return (metric, key, time, value) of each point, in order; a float's value as its bits."""
    found = []
    for request in _parsed(bodies):
        (resource_metrics,) = request.resource_metrics
        (scope_metrics,) = resource_metrics.scope_metrics
        assert (RESOURCE, SCOPE, "https://schema") == (
            resource_metrics.resource,
            scope_metrics.scope,
            scope_metrics.schema_url,
        )
        for metric in scope_metrics.metrics:
            for point in metric.gauge.data_points:
                (attribute,) = point.attributes
                assert "key" == attribute.key
                value = getattr(point, point.WhichOneof("value"))
                found.append((metric.name, attribute.value.string_value, point.time_unix_nano, _bits(value)))
    return found


def _bits(value):
    return value if isinstance(value, int) else struct.pack("<d", value)


@pytest.mark.parametrize("step_metric", ["step", None])
def test_a_request_is_encoded_as_protobuf_would_encode_it(step_metric):
    """It is joined from the encodings of its points, and is the same to the byte."""
    rows = [_row({"Loss": 0.0, "n": -3, "": math.nan}, time_ns, step) for time_ns, step in ((0, 0), (7, None), (9, -1))]
    (body,) = metric_requests(rows, RESOURCE_BYTES, _vocabulary(step_metric=step_metric)).bodies
    (request,) = _parsed([body])
    assert request.SerializeToString() == body


def test_each_value_is_a_point_with_its_step_beside_it():
    """The companion has the time and the key of its point, and the step as an int."""
    requests = metric_requests([_row({"Loss": 0.5, "n": 3}, 7, 11)], RESOURCE_BYTES, VOCABULARY)
    expected = [("loss", "Loss", 7, _bits(0.5)), ("n", "n", 7, 3), ("step", "Loss", 7, 11), ("step", "n", 7, 11)]
    assert expected == sorted(_points(requests.bodies))
    assert 0 == requests.coalesced
    (request,) = _parsed(requests.bodies)
    units = {metric.name: metric.unit for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert {"loss": "", "n": "", "step": "{step}"} == units


def test_a_point_without_a_step_has_no_companion():
    """Neither has any when companions are switched off."""
    without = metric_requests([_row({"a": 1.0})], RESOURCE_BYTES, VOCABULARY)
    off = metric_requests([_row({"a": 1.0}, step=5)], RESOURCE_BYTES, _vocabulary(step_metric=None))
    assert [("a", "a", 1_000_000, _bits(1.0))] == _points(without.bodies) == _points(off.bodies)


@pytest.mark.parametrize(
    "value", [0, -(2**63), 2**63 - 1, 2**53 + 1, 0.0, -0.0, 1e-320, math.inf, -math.inf, math.nan, 0.1]
)
def test_values_are_kept_to_the_bit(value):
    """Ints stay ints over their whole range, and floats keep NaN, infinities and the sign of zero."""
    requests = metric_requests([_row({"a": value}, step=0)], RESOURCE_BYTES, VOCABULARY)
    assert [("a", "a", 1_000_000, _bits(value)), ("step", "a", 1_000_000, 0)] == _points(requests.bodies)


def test_keys_with_one_name_share_a_metric():
    """A request holds one metric of each name and one companion, however many keys lead to it."""
    rows = [_row({"Loss": 1.0, "LOSS": 2.0, "loss": 3.0}, time, 1) for time in (1, 2)]
    (request,) = _parsed(metric_requests(rows, RESOURCE_BYTES, VOCABULARY).bodies)
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert ["loss", "step"] == [metric.name for metric in metrics]
    assert [6, 6] == [len(metric.gauge.data_points) for metric in metrics]


def test_points_of_a_series_are_in_the_order_of_their_times():
    """Also when a row was recorded late, as a value that had to be read from a device is."""
    rows = [_row({"a": float(time)}, time, time) for time in (3, 1, 2)]
    points = _points(metric_requests(rows, RESOURCE_BYTES, VOCABULARY).bodies)
    assert [1, 2, 3] * 2 == [time for _, _, time, _ in points]


def test_the_last_value_of_a_time_wins():
    """Values of one series and time are one point, the later one's with its step; those that gave way are counted."""
    rows = [_row({"a": 1.0, "b": 1.0}, 5, 1), _row({"a": 2.0}, 5, 2), _row({"a": 3.0}, 5, 3), _row({"a": 4.0}, 6, 4)]
    requests = metric_requests(rows, RESOURCE_BYTES, VOCABULARY)
    expected = [("a", "a", 5, _bits(3.0)), ("a", "a", 6, _bits(4.0)), ("b", "b", 5, _bits(1.0))]
    expected += [("step", "a", 5, 3), ("step", "a", 6, 4), ("step", "b", 5, 1)]
    assert expected == sorted(_points(requests.bodies))
    assert 2 == requests.coalesced


def test_a_value_without_step_that_wins_takes_the_companion_with_it():
    """No step of a value that is not sent stands beside one that has none."""
    requests = metric_requests([_row({"a": 1.0}, 5, 1), _row({"a": 2.0}, 5)], RESOURCE_BYTES, VOCABULARY)
    assert [("a", "a", 5, _bits(2.0))] == _points(requests.bodies)


def test_nanoseconds_set_values_of_one_time_apart():
    """With that resolution every value is a point of its own, in the order of recording, and none is counted."""
    rows = [_row({"a": 1.0}, 5, 1), _row({"a": 2.0}, 5, 2), _row({"a": 3.0}, 6, 3), _row({"a": 4.0}, 5, 4)]
    requests = metric_requests(rows, RESOURCE_BYTES, _vocabulary(nanoseconds=True))
    points = _points(requests.bodies)
    assert [(5, 1.0), (6, 2.0), (7, 3.0), (8, 4.0)] == [
        (time, struct.unpack("<d", bits)[0]) for name, _, time, bits in points if name == "a"
    ]
    assert [(5, 1), (6, 2), (7, 3), (8, 4)] == [(time, step) for name, _, time, step in points if name == "step"]
    assert 0 == requests.coalesced


@quick
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["a", "A", "b", "é", ""]), st.floats() | st.integers(-9, 9), max_size=4),
            st.integers(0, 5),
            st.none() | st.integers(-5, 5),
        ),
        max_size=10,
    )
)
def test_every_value_is_sent_or_counted(calls):
    """Over any rows: the last value of each series and time is there with its step, the others are counted."""
    rows = [_row(values, time, step) for values, time, step in calls]
    expected, steps = {}, {}
    for values, time, step in calls:
        for key, value in values.items():
            expected[key, time] = _bits(value)
            steps[key, time] = step
    requests = metric_requests(rows, RESOURCE_BYTES, VOCABULARY)
    points = _points(requests.bodies)
    values = [point for point in points if point[0] != "step"]
    assert sorted((key.lower(), key, time, str(v)) for (key, time), v in expected.items()) == sorted(
        (name, key, time, str(v)) for name, key, time, v in values
    )
    companions = {(key, time): step for name, key, time, step in points if name == "step"}
    assert {place: step for place, step in steps.items() if step is not None} == companions
    assert sum(len(values) for values, _, _ in calls) == len(values) + requests.coalesced
    assert requests == metric_requests(rows, RESOURCE_BYTES, VOCABULARY)


def test_a_wide_row_is_divided_and_loses_nothing():
    """A row of 30,000 keys becomes several requests, each under what gRPC servers accept."""
    values = {f"layer.{n}/weight/norm": n / 3 for n in range(30_000)}
    requests = metric_requests([_row(values, 5, 9)], RESOURCE_BYTES, VOCABULARY)
    points = _points(requests.bodies)
    assert len(requests.bodies) > 1
    assert all(len(body) < GRPC_LIMIT for body in requests.bodies)
    assert [(key, key, 5, _bits(value)) for key, value in values.items()] == [p for p in points if p[0] != "step"]
    assert [("step", key, 5, 9) for key in values] == [p for p in points if p[0] == "step"]


def test_long_series_are_divided_in_time():
    """Series whose points alone fill requests are divided too, a point and its companion never from each other."""
    keys = ("some/metric/with/quite/a/long/name/a", "some/metric/with/quite/a/long/name/b")
    rows = [_row(dict.fromkeys(keys, step / 3), step, step) for step in range(16_000)]
    requests = metric_requests(rows, RESOURCE_BYTES, VOCABULARY)
    assert len(requests.bodies) > 1
    assert all(len(body) < GRPC_LIMIT for body in requests.bodies)
    for body in requests.bodies:
        points = _points([body])
        assert {p[1:3] for p in points if p[0] == "step"} == {p[1:3] for p in points if p[0] != "step"}
    assert 2 * 2 * 16_000 == len(_points(requests.bodies))
    assert 16_000 > POINTS_AT_ONCE


def test_nothing_to_send_is_no_request():
    """No rows, or rows without values, are sent as nothing."""
    assert () == metric_requests([], RESOURCE_BYTES, VOCABULARY).bodies
    assert () == metric_requests([_row({})], RESOURCE_BYTES, VOCABULARY).bodies
    assert () == frame_requests([], RESOURCE_BYTES)


def _logs_frame(text):
    scope_logs = ScopeLogs(scope=SCOPE)
    scope_logs.log_records.add(event_name="event").body.string_value = text
    return Frame(1, scope_logs.SerializeToString())


@quick
@given(st.lists(st.text(max_size=300), min_size=1, max_size=5), st.integers(0, 400))
def test_frames_are_one_request_that_parses(texts, size):
    """Under a resource of any size, also an empty one, the frames are in the request as they were recorded."""
    resource = Resource()
    if size:
        resource.attributes.add(key="k").value.string_value = "x" * size
    frames = [_logs_frame(text) for text in texts]
    (body,) = frame_requests(frames, resource.SerializeToString())
    (resource_logs,) = ExportLogsServiceRequest.FromString(body).resource_logs
    assert resource == resource_logs.resource
    assert [frame.body for frame in frames] == [scope.SerializeToString() for scope in resource_logs.scope_logs]


def test_frames_are_what_protobuf_itself_would_write():
    """The joined bytes are those of the message that they parse to, for spans as for log records."""
    scope_spans = ScopeSpans(scope=SCOPE)
    scope_spans.spans.add(name="fit", trace_id=bytes(range(16)), span_id=bytes(range(8)))
    (body,) = frame_requests([Frame(1, scope_spans.SerializeToString())] * 3, RESOURCE_BYTES)
    request = ExportTraceServiceRequest.FromString(body)
    assert [scope_spans] * 3 == list(request.resource_spans[0].scope_spans)
    assert RESOURCE == request.resource_spans[0].resource
    assert body == request.SerializeToString()


def test_frames_are_divided_under_the_limit():
    """Many frames become several requests with the same resource, in order; one that is too large stands alone."""
    frames = [_logs_frame(chr(65 + n) * 700_000) for n in range(10)]
    frames.insert(5, _logs_frame("L" * (REQUEST_BYTES + 1)))
    bodies = frame_requests(frames, RESOURCE_BYTES)
    requests = [ExportLogsServiceRequest.FromString(body).resource_logs[0] for body in bodies]
    assert {RESOURCE_BYTES} == {request.resource.SerializeToString() for request in requests}
    assert [4, 1, 1, 4, 1] == [len(request.scope_logs) for request in requests]
    assert all(len(body) < GRPC_LIMIT for body in bodies)
    assert [f.body for f in frames] == [s.SerializeToString() for r in requests for s in r.scope_logs]


@quick
@given(st.lists(st.integers(1, REQUEST_BYTES // 3), max_size=12))
def test_requests_are_joined_as_far_as_one_may_be_large(sizes):
    """Requests put one behind the other are one with the content of both; none is over the limit that was under it."""
    bodies = [frame_requests([_logs_frame(str(number) + "x" * size)], b"")[0] for number, size in enumerate(sizes)]
    joined = join_requests(bodies)
    requests = [ExportLogsServiceRequest.FromString(body) for body in joined]
    assert [ExportLogsServiceRequest.FromString(body).resource_logs[0] for body in bodies] == [
        resource_logs for request in requests for resource_logs in request.resource_logs
    ]
    assert all(len(body) <= REQUEST_BYTES for body in joined)
    assert all(len(one) + len(other) > REQUEST_BYTES for one, other in itertools.pairwise(joined))
