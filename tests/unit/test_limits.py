"""Limits cut what is too much, from the end, count it, and leave everything alone where none is set."""

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.limits import Limits, limits_from_environ


def attributes(count):
    """Return so many attributes, `k0` to the last, each of the text `value`."""
    return [KeyValue(key=f"k{number}", value=AnyValue(string_value="value")) for number in range(count)]


def scope_spans():
    """Return a span with three attributes, and three events and links with three attributes each."""
    events = [Span.Event(name=f"e{number}", attributes=attributes(3)) for number in range(3)]
    links = [Span.Link(span_id=bytes([number] * 8), attributes=attributes(3)) for number in range(3)]
    return ScopeSpans(spans=[Span(name="s", attributes=attributes(3), events=events, links=links)])


def scope_logs():
    """Return a log record with three attributes and a body."""
    return ScopeLogs(log_records=[LogRecord(body=AnyValue(string_value="value"), attributes=attributes(3))])


def test_without_limits_nothing_is_cut():
    """By default, and where a limit is not reached."""
    for limits in (Limits(), Limits(3, 3, 3, 3, 5, 5, 3, 3)):
        spans, logs = scope_spans(), scope_logs()
        limits.fit_spans(spans)
        limits.fit_logs(logs)
        assert (scope_spans(), scope_logs()) == (spans, logs)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_attributes_of_a_span_are_bounded(limit):
    """The first ones stay and the others are counted; events and links are not concerned."""
    expected = scope_spans()
    del expected.spans[0].attributes[limit:]
    expected.spans[0].dropped_attributes_count = 3 - limit
    spans = scope_spans()
    Limits(span_attributes=limit).fit_spans(spans)
    assert expected == spans


@pytest.mark.parametrize(("field", "limit"), [("events", 0), ("events", 2), ("links", 0), ("links", 1)])
def test_events_and_links_are_bounded(field, limit):
    """The first ones stay and the others are counted."""
    expected = scope_spans()
    del getattr(expected.spans[0], field)[limit:]
    setattr(expected.spans[0], f"dropped_{field}_count", 3 - limit)
    spans = scope_spans()
    Limits(**{field: limit}).fit_spans(spans)
    assert expected == spans


@pytest.mark.parametrize(
    ("limits", "field"), [(Limits(event_attributes=1), "events"), (Limits(link_attributes=1), "links")]
)
def test_attributes_of_events_and_links_are_bounded(limits, field):
    """Each event or link for itself."""
    expected = scope_spans()
    for part in getattr(expected.spans[0], field):
        del part.attributes[1:]
        part.dropped_attributes_count = 2
    spans = scope_spans()
    limits.fit_spans(spans)
    assert expected == spans


def test_attributes_of_log_records_are_bounded():
    """The first ones stay and the others are counted."""
    logs = scope_logs()
    Limits(log_attributes=2).fit_logs(logs)
    (record,) = logs.log_records
    assert (["k0", "k1"], 1) == ([attribute.key for attribute in record.attributes], record.dropped_attributes_count)


def test_values_of_spans_are_cut():
    """Those of its events and links too; a cut value is not a dropped one."""
    spans = scope_spans()
    Limits(span_value_length=3).fit_spans(spans)
    (span,) = spans.spans
    owners = [span, *span.events, *span.links]
    assert {"val"} == {attribute.value.string_value for owner in owners for attribute in owner.attributes}
    assert {0} == {owner.dropped_attributes_count for owner in owners}


def test_values_of_log_records_are_cut_but_not_the_body():
    """The body is no attribute."""
    logs = scope_logs()
    Limits(log_value_length=3).fit_logs(logs)
    (record,) = logs.log_records
    assert {"val"} == {attribute.value.string_value for attribute in record.attributes}
    assert "value" == record.body.string_value


def test_a_value_is_cut_wherever_it_has_text():
    """Characters of strings and bytes of byte strings count, in arrays and maps too; other types have no length."""
    text, binary, number = AnyValue(string_value="äöüß"), AnyValue(bytes_value=b"1234"), AnyValue(int_value=12345)
    nested = AnyValue(
        array_value=ArrayValue(
            values=[text, binary, number, AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="key", value=text)]))]
        )
    )
    logs = ScopeLogs(log_records=[LogRecord(attributes=[KeyValue(key="a", value=nested)])])
    Limits(log_value_length=2).fit_logs(logs)
    values = logs.log_records[0].attributes[0].value.array_value.values
    assert ("äö", b"12", 12345) == (values[0].string_value, values[1].bytes_value, values[2].int_value)
    (pair,) = values[3].kvlist_value.values
    assert ("key", "äö") == (pair.key, pair.value.string_value)


def test_no_limit_is_set_by_default():
    """The specification's 128 would drop data that nobody asked to be dropped; empty is unset."""
    assert Limits() == limits_from_environ({}) == limits_from_environ({"OTEL_ATTRIBUTE_COUNT_LIMIT": ""})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OTEL_ATTRIBUTE_COUNT_LIMIT": "9"}, Limits(9, 9, 9, 9)),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "9"}, Limits(span_value_length=9, log_value_length=9)),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0"}, Limits(span_attributes=0)),
        ({"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "1"}, Limits(event_attributes=1)),
        ({"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "2"}, Limits(link_attributes=2)),
        ({"OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": "3"}, Limits(log_attributes=3)),
        ({"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "4"}, Limits(span_value_length=4)),
        ({"OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT": "5"}, Limits(log_value_length=5)),
        ({"OTEL_SPAN_EVENT_COUNT_LIMIT": "6"}, Limits(events=6)),
        ({"OTEL_SPAN_LINK_COUNT_LIMIT": "7"}, Limits(links=7)),
        ({"OTEL_ATTRIBUTE_COUNT_LIMIT": "9", "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "1"}, Limits(9, 1, 9, 9)),
    ],
)
def test_each_limit_has_its_variable(environ, expected):
    """The general ones hold where that of a kind of data is not set."""
    assert expected == limits_from_environ(environ)


@pytest.mark.parametrize("value", ["-1", "none", "1.5"])
def test_a_limit_that_is_no_number_is_refused(value):
    """The message names the variable, quotes its value and says what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        limits_from_environ({"OTEL_SPAN_EVENT_COUNT_LIMIT": value})
    assert f"OTEL_SPAN_EVENT_COUNT_LIMIT={value!r} is not understood: give a whole number, from 0 to 2147483647" == str(
        caught.value
    )
