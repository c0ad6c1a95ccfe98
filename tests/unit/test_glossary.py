"""The glossary has every name of the conventions, follows OpenTelemetry's rules of naming, and is the page's tables."""

import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating import attributes, metrics

from otel_logger import conventions
from otel_logger import conventions as names
from otel_logger.attribute_glossary import ATTRIBUTES
from otel_logger.glossary import (
    EVENTS,
    EVERY_EVENT,
    EVERY_SPAN,
    METRICS,
    PROGRAM_LOG,
    RESOURCE,
    SPAN_EVENTS,
    SPANS,
    Kind,
    places,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conventions.md"
GENERATOR = ROOT / "tools" / "conventions_page.py"

ENTRIES = (*METRICS, *EVENTS, *SPANS, *SPAN_EVENTS, *ATTRIBUTES)
KINDS = {"metrics": METRICS, "events": EVENTS, "spans": SPANS, "span events": SPAN_EVENTS, "attributes": ATTRIBUTES}

NOT_NAMES = {"LONGEST_NAME", "SCHEMA_URL", "SCOPE_NAME", "SCOPE_VERSION", "STEP_UNIT", "metric_name"}
"""What the conventions hold beside the names of data."""

METRIC_SYNTAX = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]{0,254}", re.ASCII)
NAME_SYNTAX = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)*(\.\*)?", re.ASCII)
"""OpenTelemetry's: namespaces and words of small letters, joined with dots and underscores."""

LABEL = "k8s.pod.label."
"""What follows is a label of Kubernetes, in a syntax of its own."""

UCUM = re.compile(r"|1|s|By|\{[a-z]+\}")
"""The units that are used here: none, a ratio, seconds, bytes, and counts of things, which UCUM calls annotations."""

OTHERS = ("service.", "host.", "telemetry.sdk.", "process.", "log.", "code.", "thread.", "exception", "k8s.")
"""The namespaces of OpenTelemetry's that names are taken from."""


def named() -> set[str]:
    """Return every name and value that the glossary has."""
    return {entry.name.removesuffix("*") for entry in ENTRIES} | {value for e in ENTRIES for value in e.values}


@pytest.mark.parametrize("constant", sorted(set(conventions.__all__) - NOT_NAMES))
def test_each_name_of_the_conventions_is_in_the_glossary(constant: str) -> None:
    """A name that data is given has an entry that says what it is."""
    assert getattr(conventions, constant) in named()


def test_each_name_of_the_glossary_is_one_of_the_conventions() -> None:
    """Names of ours are written once, in the conventions; others are OpenTelemetry's."""
    constants = {getattr(conventions, constant) for constant in conventions.__all__}
    signals = {"metrics", "logs", "traces"}

    assert set() == {name for name in named() - constants - signals if not name.startswith(OTHERS)}


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_is_the_namespace_of_another(kind: str) -> None:
    """A name that others of its kind begin with would be a namespace too, which OpenTelemetry forbids."""
    found = [entry.name for entry in KINDS[kind]]

    assert len(found) == len(set(found))
    assert [] == [(one, other) for one in found for other in found if other.startswith(f"{one}.")]


def test_every_name_follows_opentelemetry_s_syntax() -> None:
    """Metrics follow the instrument name syntax, and all names the rules of naming attributes."""
    assert [] == [entry.name for entry in METRICS if METRIC_SYNTAX.fullmatch(entry.name) is None]
    assert [] == [
        entry.name
        for entry in ENTRIES
        if not entry.name.startswith(LABEL) and NAME_SYNTAX.fullmatch(entry.name) is None
    ]


def test_units_are_those_of_ucum() -> None:
    """Units are UCUM, in the form that OpenTelemetry asks for, and none stands in a metric's name."""
    assert [] == [(entry.name, entry.unit) for entry in ENTRIES if UCUM.fullmatch(entry.unit) is None]
    assert [] == [e.name for e in METRICS if e.name.endswith(("_seconds", "_bytes", "_total", "_ratio"))]


def in_opentelemetry() -> set[str]:
    """Return the names of attributes and metrics in OpenTelemetry's conventions, as installed."""
    found = set()
    for package in (attributes, metrics):
        for module in pkgutil.iter_modules(package.__path__):
            constants = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
            found |= {value for name, value in constants.items() if name.isupper() and isinstance(value, str)}
    return found


def test_what_is_said_to_be_opentelemetry_s_is() -> None:
    """Names that are not of our namespaces, and those that ours are compared with, are in its conventions."""
    ours = ("training.", "otel_logger.")
    others = {entry.name for entry in ATTRIBUTES if not entry.name.startswith((*ours, LABEL))}
    compared = {word for entry in ENTRIES for word in re.findall(r"`([a-z_.]+)`", entry.synonym) if "." in word}
    nvidia = {word for word in compared if word.startswith(("nv.dl.", "nemo.", "dl.", "slurm."))}

    assert set() == (others | compared - nvidia) - in_opentelemetry()


def test_what_a_name_carries_is_an_attribute_and_every_attribute_is_carried() -> None:
    """Each attribute has an entry, and each entry of an attribute says what carries it."""
    groups = {*RESOURCE, *EVERY_EVENT, *PROGRAM_LOG, *EVERY_SPAN}
    carried = {name for entry in ENTRIES for name in entry.carries} | groups

    assert set() == carried - {entry.name for entry in ATTRIBUTES}
    assert [] == [entry.name for entry in ATTRIBUTES if not places(entry.name)]


def test_no_metric_carries_what_grows_without_bound() -> None:
    """A step, an epoch or a value as a metric's attribute would be a series each."""
    assert set() == {name for entry in METRICS for name in entry.carries} & {names.STEP, names.EPOCH, names.TRACE_VALUE}


def test_every_metric_says_how_many_series_it_has() -> None:
    """The cardinality of a metric is on the page."""
    assert [] == [entry.name for entry in METRICS if not entry.cardinality]


def test_kinds_are_told_apart() -> None:
    """Each table has entries of its kind alone."""
    kinds = [{entry.kind for entry in table} for table in KINDS.values()]

    assert [{Kind.GAUGE, Kind.SUM}, {Kind.EVENT}, {Kind.SPAN}, {Kind.SPAN_EVENT}, {Kind.ATTRIBUTE}] == kinds


def test_the_page_is_up_to_date() -> None:
    """docs/conventions.md is what tools/conventions_page.py writes; run it when this fails."""
    page = PAGE.read_text("utf-8")

    assert page == runpy.run_path(str(GENERATOR))["with_tables"](page)


def test_a_page_that_has_lost_a_mark_is_not_overwritten() -> None:
    """The text around the tables is people's: without the marks it cannot be told from them."""
    page = PAGE.read_text("utf-8").replace("conventions_page.py: spans -->", "")

    with pytest.raises(ValueError, match="has lost"):
        runpy.run_path(str(GENERATOR))["with_tables"](page)
