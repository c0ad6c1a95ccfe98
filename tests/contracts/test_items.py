"""What is recorded as OTLP, and what items.py needs of the encoder of spans of OpenTelemetry's own OTLP exporters.

The expected messages are written down here by hand, so that a release that encodes otherwise is seen.
"""

import logging
import math

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace import Status as ApiStatus

from otel_logger_exporters.decoding import decode_events
from otel_logger_exporters.items import Event, Severity, encode_event, encode_resource, encode_spans

SCOPE = InstrumentationScope("otel_logger", "1.2.3")
TRACE_ID, SPAN_ID, PARENT_ID = 0x0102030405060708090A0B0C0D0E0F10, 0x1112131415161718, 0x2122232425262728
CONTEXT = SpanContext(TRACE_ID, SPAN_ID, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
TIME = 1_700_000_000_123_456_789

SCALARS = [
    pytest.param("text", AnyValue(string_value="text"), id="str"),
    pytest.param("", AnyValue(string_value=""), id="empty str"),
    pytest.param("é\n\0\U0001f600", AnyValue(string_value="é\n\0\U0001f600"), id="any str"),
    pytest.param(True, AnyValue(bool_value=True), id="true"),
    pytest.param(False, AnyValue(bool_value=False), id="false, not 0"),
    pytest.param(0, AnyValue(int_value=0), id="zero"),
    pytest.param(2**63 - 1, AnyValue(int_value=2**63 - 1), id="largest int"),
    pytest.param(-(2**63), AnyValue(int_value=-(2**63)), id="smallest int"),
    pytest.param(0.1, AnyValue(double_value=0.1), id="float"),
    pytest.param(2.0, AnyValue(double_value=2.0), id="whole float"),
    pytest.param(math.inf, AnyValue(double_value=math.inf), id="infinity"),
]

NESTED = [
    pytest.param([], AnyValue(array_value=ArrayValue()), id="empty list"),
    pytest.param({}, AnyValue(kvlist_value=KeyValueList()), id="empty dict"),
    pytest.param(
        [1, "a", None, [2.5]],
        AnyValue(
            array_value=ArrayValue(
                values=[
                    AnyValue(int_value=1),
                    AnyValue(string_value="a"),
                    AnyValue(),
                    AnyValue(array_value=ArrayValue(values=[AnyValue(double_value=2.5)])),
                ]
            )
        ),
        id="mixed list",
    ),
    pytest.param(
        {"a": {"b": 1}, "": b"\0\xff"},
        AnyValue(
            kvlist_value=KeyValueList(
                values=[
                    KeyValue(
                        key="a",
                        value=AnyValue(
                            kvlist_value=KeyValueList(values=[KeyValue(key="b", value=AnyValue(int_value=1))])
                        ),
                    ),
                    KeyValue(key="", value=AnyValue(bytes_value=b"\0\xff")),
                ]
            )
        ),
        id="nested dict",
    ),
    pytest.param(b"\0\xff", AnyValue(bytes_value=b"\0\xff"), id="bytes"),
]


def _log_record(**fields):
    frame = encode_event(Event(**{"name": "training.event", "time_ns": TIME, **fields}), SCOPE)
    assert 1 == frame.items
    scope_logs = ScopeLogs.FromString(frame.body)
    assert ("otel_logger", "1.2.3") == (scope_logs.scope.name, scope_logs.scope.version)
    (record,) = scope_logs.log_records
    return record


def _pairs(message):
    return {pair.key: pair.value for pair in message.attributes}


def test_an_event_has_its_name_time_and_severity():
    """The event name is the field of its own, and both times are that of the call."""
    record = _log_record(severity=Severity.ERROR)
    assert "training.event" == record.event_name
    assert (TIME, TIME) == (record.time_unix_nano, record.observed_time_unix_nano)
    assert (17, "ERROR") == (record.severity_number, record.severity_text)
    assert 9 == _log_record().severity_number


def test_an_event_belongs_to_its_span():
    """Ids are 16 and 8 bytes, big endian, with the span's flags."""
    record = _log_record(span=CONTEXT)
    assert (bytes(range(1, 17)), bytes(range(0x11, 0x19))) == (record.trace_id, record.span_id)
    assert 1 == record.flags & 0xFF


def test_an_event_without_a_span_has_no_ids():
    """Also none of a span that happens to be current: no id, or one of zeros, which OTLP reads as none."""
    record = _log_record()
    assert not any(record.trace_id)
    assert not any(record.span_id)
    assert 0 == record.flags


@pytest.mark.parametrize(("body", "expected"), [*SCALARS, *NESTED])
def test_bodies_of_plain_data(body, expected):
    """A body keeps its types and its nesting, with None, bytes and the whole range of int64."""
    assert expected == _log_record(body=body).body


def test_none_in_a_body_reads_as_none():
    """Encoded as an empty value or as none at all, as releases differ, a key or a place without a value is kept."""
    body = {"a": {"b": None}, "c": [None, 1]}
    (event,) = decode_events(encode_event(Event("e", TIME, body=body), SCOPE).body)
    assert body == event["body"]


def test_nan_is_a_body():
    """NaN equals nothing, and is encoded as what it is."""
    assert math.isnan(_log_record(body=math.nan).body.double_value)


def test_no_body_is_none():
    """A record without a body has none: no empty string or map."""
    assert _log_record().body.WhichOneof("value") is None


@pytest.mark.parametrize("body", [2**63, -(2**63) - 1, object(), {"a": [2**64]}, {1, 2}, "\ud800"])
def test_what_is_no_data_raises(body):
    """The caller counts such a record as lost; it is never encoded as something else in silence."""
    with pytest.raises(Exception, match=r".+"):
        _log_record(body=body)


@pytest.mark.parametrize(("value", "expected"), SCALARS)
def test_attributes_of_events(value, expected):
    """Scalars are encoded as they are."""
    assert {"k": expected} == _pairs(_log_record(attributes={"k": value}))


def test_lists_and_many_attributes_are_kept():
    """No attribute is dropped for its number, and lists stay lists."""
    attributes = {f"k{n}": n for n in range(300)} | {"list": [1, 2]}
    record = _log_record(attributes=attributes)
    pairs = _pairs(record)
    assert 301 == len(pairs)
    assert [1, 2] == [item.int_value for item in pairs["list"].array_value.values]
    assert 0 == record.dropped_attributes_count


def test_equal_events_are_equal_bytes():
    """What is fixed when the call is recorded is all that the bytes depend on."""
    event = Event("e", TIME, {"b": 1, "a": "x"}, {"n": [1, None]}, span=CONTEXT)
    assert encode_event(event, SCOPE) == encode_event(event, SCOPE)


class _Span(ReadableSpan):
    """A span that ended, made without a tracer."""

    def __init__(self, **fields):
        super().__init__(**{"context": CONTEXT, "instrumentation_scope": SCOPE, **fields})


def _span(**fields):
    frame = encode_spans([_Span(**{"name": "fit", **fields})])
    assert 1 == frame.items
    scope_spans = ScopeSpans.FromString(frame.body)
    assert ("otel_logger", "1.2.3") == (scope_spans.scope.name, scope_spans.scope.version)
    (span,) = scope_spans.spans
    return span


def test_a_span_has_its_name_times_and_kind():
    """Times are nanoseconds; an internal span says so."""
    span = _span(kind=SpanKind.INTERNAL, start_time=TIME, end_time=TIME + 5)
    assert ("fit", TIME, TIME + 5) == (span.name, span.start_time_unix_nano, span.end_time_unix_nano)
    assert Span.SPAN_KIND_INTERNAL == span.kind


def test_a_span_has_its_ids():
    """A root has no parent id; a child has that of its parent."""
    root = _span()
    assert (bytes(range(1, 17)), bytes(range(0x11, 0x19)), b"") == (root.trace_id, root.span_id, root.parent_span_id)
    child = _span(parent=SpanContext(TRACE_ID, PARENT_ID, is_remote=True))
    assert bytes(range(0x21, 0x29)) == child.parent_span_id


@pytest.mark.parametrize(("value", "expected"), SCALARS)
def test_attributes_of_spans(value, expected):
    """Scalars are encoded as they are."""
    assert {"k": expected} == _pairs(_span(attributes={"k": value}))


def test_a_span_has_its_events():
    """Events keep name, time, attributes and order."""
    from opentelemetry.sdk.trace import Event as SpanEvent

    events = [SpanEvent("loss", {"training.step": 7}, TIME), SpanEvent("", {}, TIME + 1)]
    span = _span(events=events)
    assert [("loss", TIME), ("", TIME + 1)] == [(event.name, event.time_unix_nano) for event in span.events]
    assert {"training.step": AnyValue(int_value=7)} == _pairs(span.events[0])


def test_a_span_has_its_links():
    """A link names trace and span."""
    (link,) = _span(links=[Link(SpanContext(TRACE_ID + 1, PARENT_ID, is_remote=False), {"k": 1})]).links
    assert ((TRACE_ID + 1).to_bytes(16, "big"), PARENT_ID.to_bytes(8, "big")) == (link.trace_id, link.span_id)
    assert {"k": AnyValue(int_value=1)} == _pairs(link)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (ApiStatus(), Status(code=Status.STATUS_CODE_UNSET)),
        (ApiStatus(StatusCode.OK), Status(code=Status.STATUS_CODE_OK)),
        (ApiStatus(StatusCode.ERROR, "CUDA out of memory"), Status(code=2, message="CUDA out of memory")),
    ],
    ids=["unset", "ok", "error"],
)
def test_a_span_has_its_status(status, expected):
    """An error carries its description."""
    assert expected == _span(status=status).status


def test_spans_of_one_scope_are_one_message():
    """Several spans are one frame, which counts them, in their order."""
    frame = encode_spans([_Span(name=name) for name in "abc"])
    assert 3 == frame.items
    assert ["a", "b", "c"] == [span.name for span in ScopeSpans.FromString(frame.body).spans]


@pytest.mark.parametrize(("value", "expected"), SCALARS)
def test_attributes_of_resources(value, expected):
    """Scalars are encoded as they are, and nothing is added that was not given."""
    assert {"k": expected} == _pairs(Resource.FromString(encode_resource({"k": value})))


def test_a_resource_keeps_lists_and_order():
    """Lists of one type stay lists, and attributes stand in the order in which they were given."""
    resource = Resource.FromString(encode_resource({"z": [1, 2], "a": ["x"], "m": [True, False]}))
    assert ["z", "a", "m"] == [pair.key for pair in resource.attributes]
    pairs = _pairs(resource)
    assert [1, 2] == [item.int_value for item in pairs["z"].array_value.values]
    assert ["x"] == [item.string_value for item in pairs["a"].array_value.values]


def test_a_resource_of_many_attributes_is_whole():
    """The limits on attributes of spans do not hold for resources."""
    assert 500 == len(Resource.FromString(encode_resource({f"k{n}": n for n in range(500)})).attributes)


def test_an_empty_resource_is_no_bytes():
    """Nothing is detected or merged."""
    assert b"" == encode_resource({})


def test_an_attribute_that_is_no_data_costs_itself(caplog):
    """The rest of a resource is kept when one of its attributes cannot be encoded."""
    with caplog.at_level(logging.CRITICAL):
        resource = Resource.FromString(encode_resource({"a": 1, "large": 2**70, "b": 2}))
    assert {"a", "b"} == set(_pairs(resource))
