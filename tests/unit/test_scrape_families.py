"""Every value that is measured is on the page, under labels of its own, whatever the names; no page is broken."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from otel_logger.conventions import METRIC_KEY, STEP
from otel_logger.latest import LatestValues
from otel_logger_exporters.measurements import Instrument, Measurement
from otel_logger_exporters.rows import NO_STEP
from otel_logger_exporters.scrape_families import Family, FamilyKind, Sample, families_of, target_labels
from otel_logger_exporters.scrape_page import ScrapePage

KEY = "training_metric_key"
FORMATS = {
    "text/plain;version=0.0.4": parse_text,
    "text/plain;version=1.0.0;escaping=allow-utf-8": parse_text,
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8": parse_openmetrics,
    "application/openmetrics-text;version=1.0.0;escaping=dots": parse_openmetrics,
}

KEYS = st.one_of(
    st.text(alphabet=st.sampled_from("ab_./-:0 "), max_size=4),
    st.sampled_from(["target", "x_total", "x_created", "x_bucket", "x_info", "x_count", "x_sum", "up", "le", "m_", ""]),
    st.text(max_size=8),
)
NUMBERS = st.one_of(st.floats(), st.integers(-(2**53), 2**53))


def page(measurements, resource, accept):
    """Return a page as text."""
    return ScrapePage(lambda: measurements, lambda: resource).render(accept=accept).body.decode()


def series(text, parse):
    """Return (name, labels) and value of every sample that a parser finds, none twice."""
    found = [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in parse(text)
        for sample in family.samples
    ]
    assert len(found) == len(dict(found))
    return dict(found)


def same(expected, actual):
    """Tell whether two mappings are equal, NaN being itself."""
    return expected.keys() == actual.keys() and all(
        value == actual[key] or (math.isnan(value) and math.isnan(actual[key])) for key, value in expected.items()
    )


@settings(max_examples=30, deadline=None)
@example({"a/b": 1.0, "a.b": 2.0, "a_b": 3.0, "A_b": math.nan, "a b": -math.inf})
@example({"target": 1.0, "target_info": 2.0, "x": 1.0, "x_total": 2.0, "x_created": 3.0})
@given(st.dictionaries(KEYS, NUMBERS, min_size=1, max_size=8))
def test_every_key_is_found_again_with_its_value(values):
    """In each format, by the parser of that format: keys that get one name are told apart by the key itself."""
    latest = LatestValues()
    latest.note(tuple(values), 1, 7, tuple(values.values()))
    for accept, parse in FORMATS.items():
        found = series(page(latest.measure(), {"service.name": "x"}, accept), parse)
        keys = {
            dict(labels)[KEY]: value
            for (name, labels), value in found.items()
            if name != "training_step" and KEY in dict(labels)
        }
        steps = {dict(labels)[KEY]: value for (name, labels), value in found.items() if name == "training_step"}
        assert same(values, keys)
        assert dict.fromkeys(values, 7) == steps


INSTRUMENTS = st.builds(
    Instrument,
    st.sampled_from(["a.b", "a/b", "a_b_total", "a.b.created", "a.b.total", "target", "b", "b.info", "1"]),
    st.sampled_from(["", "s", "1", "{x}"]),
    st.booleans(),
)
ATTRIBUTES = st.lists(
    st.tuples(st.sampled_from(["a.b", "a_b", "c", "__name__", "le"]), st.sampled_from(["1", "2", "1;2", 1])),
    max_size=2,
    unique_by=lambda pair: pair[0],
).map(tuple)
MEASUREMENTS = st.lists(
    st.builds(Measurement, INSTRUMENTS, st.dictionaries(ATTRIBUTES, NUMBERS, max_size=3)),
    max_size=5,
    unique_by=lambda measurement: measurement.instrument,
)


@settings(max_examples=40, deadline=None)
@given(MEASUREMENTS)
@example([Measurement(Instrument(name, "", is_sum=True), {(): 0.0}) for name in ("a.b", "a.b.created")])
def test_no_mixture_of_kinds_and_names_loses_a_value_or_breaks_the_page(measurements):
    """As many values come out as went in, the same ones, whatever metrics share a name or a label."""
    recorded = sorted(repr(float(value)) for m in measurements for value in m.points.values())
    for accept, parse in FORMATS.items():
        assert recorded == sorted(map(repr, map(float, series(page(measurements, {}, accept), parse).values())))


def gauge(name, unit="", /, **points):
    """Return a measurement of a gauge."""
    return Measurement(Instrument(name, unit), {((key, "x"),): value for key, value in points.items()})


def total(name, unit="", /, **points):
    """Return a measurement of a sum."""
    return Measurement(Instrument(name, unit, is_sum=True), {((key, "x"),): value for key, value in points.items()})


def test_metrics_of_one_name_share_a_family():
    """Its samples keep the labels that tell them apart, and it says of which metrics it is."""
    samples = (Sample((("a", "x"),), 1), Sample((("b", "x"),), 2))
    expected = [Family("x_y", FamilyKind.GAUGE, samples, ("x/y", "x.y"))]
    assert expected == families_of([gauge("x/y", a=1), gauge("x.y", b=2)])


def test_series_that_are_the_same_in_all_labels_are_told_apart_by_one_more():
    """No value takes another's place, and which is which can be read."""
    (family,) = families_of([gauge("x/y", a=1), gauge("x.y", a=2)])
    assert [
        ((("a", "x"), ("otel_series", "x/y [] gauge (('a', 'x'),)")), 1),
        ((("a", "x"), ("otel_series", "x.y [] gauge (('a', 'x'),)")), 2),
    ] == [(sample.labels, sample.value) for sample in family.samples]


@pytest.mark.parametrize(
    ("measurements", "kinds"),
    [
        ([total("x", a=1)], {"x_total": FamilyKind.COUNTER}),
        ([total("x", a=1), gauge("x.total", b=1)], {"x_total": FamilyKind.UNKNOWN}),
        ([total("x", a=1), gauge("x", a=1)], {"x_total": FamilyKind.UNKNOWN, "x": FamilyKind.GAUGE}),
        ([total("x", a=1), gauge("x.created", a=1)], {"x_total": FamilyKind.UNKNOWN, "x_created": FamilyKind.GAUGE}),
        ([total("target", a=1)], {"target_total": FamilyKind.UNKNOWN}),
        ([total("x", a=math.nan)], {"x_total": FamilyKind.UNKNOWN}),
        ([total("x", a=-1)], {"x_total": FamilyKind.UNKNOWN}),
        ([gauge("x.total", a=1)], {"x_total": FamilyKind.GAUGE}),
    ],
)
def test_what_openmetrics_would_misread_is_of_unknown_kind(measurements, kinds):
    """A counter has names that another family may have; the name of its series stays as it is."""
    assert kinds == {family.name: family.kind for family in families_of(measurements)}


def test_what_has_ended_is_not_shown():
    """A series that is not on the page any more ends by that."""
    ended = Measurement(Instrument("x"), {(): 1.0}, has_ended=True)
    assert [] == families_of([ended, Measurement(Instrument("y"), {})])


def test_the_resource_is_told_whole():
    """What identifies the service too: `job` and `instance` of a scrape are the scraper's own."""
    resource = {
        "service.name": "training",
        "service.instance.id": "r/0/1",
        "training.hparam.lr": 1e-4,
        "a.b": 1,
        "a_b": 2,
    }
    assert (
        ("a_b", "1;2"),
        ("service_instance_id", "r/0/1"),
        ("service_name", "training"),
        ("training_hparam_lr", "0.0001"),
    ) == target_labels(resource)


def test_an_int_that_float64_cannot_hold_becomes_the_nearest():
    """As it does in Prometheus, which knows no others."""
    latest = LatestValues()
    latest.note(("n",), 1, NO_STEP, (2**53 + 1,))
    assert {("n", ((KEY, "n"),)): 2.0**53} == series(page(latest.measure(), {}, ""), parse_text)


def test_the_key_is_the_label_that_dashboards_know():
    """Names of labels come of the conventions."""
    assert [KEY, "training_step"] == [METRIC_KEY.replace(".", "_"), STEP.replace(".", "_")]
