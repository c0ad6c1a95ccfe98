"""Hyperparameters are kept nested for the event, and flat, in order and within bounds for the resource."""

import json
import logging
import re
import sys
import threading
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope as Scope
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger.conventions import (
    HPARAM_INFO,
    HPARAM_KEY,
    HPARAM_PREFIX,
    HPARAM_VALUE,
    HPARAMS_COUNT,
    HPARAMS_EVENT_ONLY,
    HPARAMS_PARTS,
    HPARAMS_PREVIOUS,
    HPARAMS_REDACTED,
)
from otel_logger.hyperparameter_events import hyperparameter_events
from otel_logger.hyperparameters import (
    INFO_LIMIT,
    LARGEST_SET,
    LONGEST_VALUE,
    RESOURCE_LIMIT,
    HyperparameterSet,
    Remembered,
)
from otel_logger.redaction import REDACTED, Redactor
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.items import Event, encode_event, encode_resource
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import encode_measurements
from otel_logger_exporters.payloads import pack_hyperparameters, unpack_hyperparameters


def named(value: object) -> str:
    """Return the repr of a test's argument without its address, which differs from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class Optimizer(Enum):
    """A choice with a name."""

    ADAM = "adam"


class Raising:
    """An object that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.fixture
def ledger():
    """A ledger of the test's own."""
    return Ledger(SystemClock(), logging.getLogger("otel_logger"))


@pytest.fixture
def hyperparameters(ledger):
    """A set without patterns of the user's own."""
    return HyperparameterSet(Redactor(), ledger)


def flat(hyperparameters):
    """The resource attributes without their prefix, in order."""
    return [(key.removeprefix(HPARAM_PREFIX), value) for key, value in hyperparameters.attributes().items()]


def test_what_another_thread_changes_meanwhile_is_not_lost(hyperparameters, ledger):
    """A dict is taken as it is at one moment."""
    content, is_over = {f"k{number}": number for number in range(600)}, threading.Event()

    def change():
        while not is_over.is_set():
            content.update(dict.fromkeys(map(str, range(50))))
            for number in range(50):
                del content[str(number)]

    changing = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        changing.start()
        for _ in range(50):
            hyperparameters.add(content)
    finally:
        is_over.set()
        changing.join()
        sys.setswitchinterval(interval)
    assert {} == ledger.stats(frozenset()).dropped


def test_nested_keys_are_joined_with_dots(hyperparameters):
    """The resource has one attribute per leaf, in the order of logging."""
    hyperparameters.add({"lr": 0.1, "optimizer": {"name": Optimizer.ADAM, "betas": [0.9, 0.95], "x": {"y": 1}}, "n": 2})
    assert [
        ("lr", 0.1),
        ("optimizer.name", "adam"),
        ("optimizer.betas", [0.9, 0.95]),
        ("optimizer.x.y", 1),
        ("n", 2),
    ] == flat(hyperparameters)
    assert len(hyperparameters) == 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "None"),
        (True, True),
        (7, 7),
        (2**70, str(2**70)),
        (0.5, 0.5),
        (Decimal("0.5"), 0.5),
        ("a", "a"),
        ("", ""),
        ([], "[]"),
        ({}, "{}"),
        ([1, 2], [1, 2]),
        ((True, False), [True, False]),
        (["a"], ["a"]),
        ([1, 2.5], "[1, 2.5]"),
        ([1, True], "[1, true]"),
        ([1, None], "[1, null]"),
        ([None], "[null]"),
        ([{"a": 1}], '[{"a": 1}]'),
        ([[1]], "[[1]]"),
        (Raising(), "<Raising: RuntimeError>"),
    ],
    ids=named,
)
def test_leaves_are_what_a_resource_can_carry(hyperparameters, value, expected):
    """Scalars and lists of scalars of one type stay, other lists become JSON, None becomes "None"."""
    hyperparameters.add({"k": value})
    assert [("k", expected)] == flat(hyperparameters)
    assert encode_resource(hyperparameters.attributes())


def test_the_event_keeps_everything_as_it_was(hyperparameters):
    """The nested set has None, mixed lists and empty mappings as they were logged."""
    logged = {"a": None, "b": {"c": [1, None, {"d": 2}], "e": {}}}
    assert logged == hyperparameters.add(logged) == hyperparameters.nested()


def test_a_key_logged_again_takes_the_later_value_at_its_place(hyperparameters):
    """The order is that of first logging, the value that of the last."""
    hyperparameters.add({"a": 1, "b": 2})
    assert {"a": {"x": 3}} == hyperparameters.add({"a": {"x": 3}})
    assert [("a.x", 3), ("b", 2)] == flat(hyperparameters)


def test_the_resource_takes_the_first_sixty(hyperparameters):
    """Beyond 60 flat hyperparameters the resource has no more, the event has all."""
    hyperparameters.add({"first": 1, "nested": {str(number): number for number in range(70)}, "last": 2})
    attributes = flat(hyperparameters)
    assert RESOURCE_LIMIT == len(attributes) == 60
    assert [("first", 1), ("nested.0", 0), ("nested.58", 58)] == [attributes[0], attributes[1], attributes[-1]]
    assert len(hyperparameters) == 72
    assert len(hyperparameters.nested()["nested"]) == 70


def test_secrets_are_nowhere(hyperparameters):
    """What is returned, kept and put on the resource has no secret in it."""
    added = hyperparameters.add({"api_key": "k1", "db": {"url": "x://u:k2@h"}, "l": [{"token": "k3"}], "n": 1})
    assert {"api_key": REDACTED, "db": {"url": REDACTED}, "l": [{"token": REDACTED}], "n": 1} == added
    everything = json.dumps([added, hyperparameters.nested(), hyperparameters.attributes()])
    assert [] == [secret for secret in ("k1", "k2", "k3") if secret in everything]


def test_keys_are_text(hyperparameters):
    """Keys that are no strings, or cannot be printed, cost nothing beside them."""
    added = hyperparameters.add({1: "a", None: "b", "\ud800": "c", Raising(): "d", "": "e", "é": {2: 3}})
    assert {
        "1": "a",
        "None": "b",
        "\\ud800": "c",
        "<Raising: RuntimeError>": "d",
        "": "e",
        "é": {"2": 3},
    } == added
    assert encode_resource(hyperparameters.attributes())


def test_the_callers_dict_is_neither_kept_nor_changed(hyperparameters):
    """What the caller does to the dict afterwards does not show."""
    logged = {"a": {"b": [1]}}
    hyperparameters.add(logged)
    logged["a"]["b"].append(2)
    logged["c"] = 1
    assert {"a": {"b": [1]}} == hyperparameters.nested()


def test_what_was_added_can_be_recorded(hyperparameters):
    """The plain form of anything is a record that reads back as it is."""
    added = hyperparameters.add({"a": {1, 2}, "b": object, "c": Raising(), "d": ["\ud800", None], "e": 2**80})
    assert (added, 5) == unpack_hyperparameters(memoryview(pack_hyperparameters(added, 5)))


def test_nothing_logged_is_nothing(hyperparameters):
    """Composer logs an empty dict too."""
    assert {} == hyperparameters.add({})
    assert {} == hyperparameters.attributes() == hyperparameters.nested()
    assert len(hyperparameters) == 0


@dataclass
class Config:
    """A configuration as people write them."""

    lr: float = 0.1


class Hostile(Mapping):
    """A mapping that cannot be read."""

    def __getitem__(self, key):
        raise RuntimeError("no")

    __iter__ = __len__ = __getitem__


@pytest.mark.parametrize("logged", [Namespace(lr=0.1), Config(), {"lr": 0.1}])
def test_an_object_with_fields_is_a_mapping_of_them(hyperparameters, logged):
    """A namespace or a dataclass is logged as the dict that it stands for."""
    assert {"lr": 0.1} == hyperparameters.add(logged)


@pytest.mark.parametrize("logged", [3, "lr=0.1", None, [("lr", 0.1)], Config, Hostile()], ids=named)
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_keys_is_counted(hyperparameters, ledger, logged):
    """Anything else is lost, counted and told, and raises nothing."""
    assert {} == hyperparameters.add(logged)
    assert {"hyperparameters": 1} == ledger.stats(frozenset()).dropped


def test_what_is_long_is_not_on_the_resource(hyperparameters):
    """A key or a value of over 256 characters gives its place to the next; the event has it."""
    fitting, long = "x" * LONGEST_VALUE, "x" * (LONGEST_VALUE + 1)
    hyperparameters.add({"a": long, "b": fitting, long: 1, "c": list(range(200)), fitting: 2, "d": {"e": 3}})
    assert [("b", fitting), (fitting, 2), ("d.e", 3)] == flat(hyperparameters)
    assert 3 == hyperparameters.count_event_only()
    assert 6 == len(hyperparameters.nested())


def test_what_is_logged_when_the_resource_is_bound_is_in_the_event_only(hyperparameters):
    """The resource keeps what it was bound with; a value that is changed later stays on it as it was."""
    hyperparameters.add({"a": 1, "b": 2})
    bound = hyperparameters.bind()
    hyperparameters.add({"a": 3, "c": {"d": 4, "e": 5}})
    assert {f"{HPARAM_PREFIX}a": 1, f"{HPARAM_PREFIX}b": 2} == bound
    assert 2 == hyperparameters.count_event_only()
    assert ("c",) == hyperparameters.late()


def test_what_was_late_before_is_there_from_the_start(hyperparameters):
    """The next attempt takes over what the last logged too late for its resource, behind what it logs itself."""
    hyperparameters.add({"lr": 0.2, "batch": 8})
    earlier = Remembered(1, {"lr": 0.1, "gone": 1, "batch": 4, "workers": {"n": 2}}, ("batch", "workers", "nonsense"))
    assert hyperparameters.carry(earlier)
    assert [("lr", 0.2), ("batch", 8), ("workers.n", 2)] == flat(hyperparameters)
    assert ("workers",) == hyperparameters.late()
    assert not hyperparameters.carry(earlier)


def points(measurement):
    """The keys and values of a measurement of hyperparameters."""
    assert HPARAM_INFO == measurement.instrument.name
    assert {1} >= set(measurement.points.values())
    found = [dict(attributes) for attributes in measurement.points]
    return {(attributes[HPARAM_KEY], attributes[HPARAM_VALUE]) for attributes in found}


def test_each_hyperparameter_is_a_point(hyperparameters):
    """Tables are made of points with key and value as text."""
    hyperparameters.add({"s": "a", "f": 1e-5, "n": None, "b": True, "l": [1, None], "x": {"y": 2}, "token": "t"})
    assert {
        ("s", "a"),
        ("f", "1e-05"),
        ("n", "None"),
        ("b", "true"),
        ("l", "[1, null]"),
        ("x.y", "2"),
        ("token", REDACTED),
    } == points(hyperparameters.measure())


def test_a_changed_value_ends_its_series_once(hyperparameters):
    """The old point ends when there is a new one; what was never shown has nothing to end."""
    hyperparameters.add({"a": 1})
    hyperparameters.add({"a": 2, "b": 3})
    assert set() == points(hyperparameters.take_ended())
    hyperparameters.measure()
    hyperparameters.add({"a": 4})
    ended = hyperparameters.take_ended()
    assert ended.has_ended
    assert {("a", "2")} == points(ended)
    assert set() == points(hyperparameters.take_ended())
    assert {("a", "4"), ("b", "3")} == points(hyperparameters.measure())


def test_points_are_bounded(hyperparameters, ledger):
    """500 points, none with more than 256 characters; what has none is counted."""
    long = "x" * (LONGEST_VALUE + 1)
    hyperparameters.add({long: 1, "long": long} | {str(number): number for number in range(600)})
    found = points(hyperparameters.measure())
    assert INFO_LIMIT == len(found)
    assert ("long", "x" * (LONGEST_VALUE - 1) + "…") in found
    hyperparameters.add({"more": 1})
    assert {"info": 603 - INFO_LIMIT} == ledger.stats(frozenset()).adjusted


@pytest.mark.filterwarnings("ignore")
def test_a_huge_set_is_bounded_as_a_whole(hyperparameters, ledger):
    """Values of a megabyte are cut; beyond a megabyte in all, what comes is counted, and the earlier value stays."""
    hyperparameters.add({"first": 1} | {f"k{number}": "x" * 2**20 for number in range(140)})
    stats = ledger.stats(frozenset())
    kept = len(hyperparameters)
    assert len(json.dumps(hyperparameters.nested())) <= LARGEST_SET
    assert {"hyperparameters": 141 - kept} == stats.dropped
    assert 140 == stats.adjusted["cut"]
    hyperparameters.add({"first": "x" * 8000})
    assert 1 == hyperparameters.nested()["first"]


def test_ten_thousand_hyperparameters_are_taken(hyperparameters, ledger):
    """As many small ones fit, in the order of logging."""
    logged = {f"key_{number}": number for number in range(10_000)}
    assert logged == hyperparameters.add(logged)
    assert {} == ledger.stats(frozenset()).dropped
    assert 10_000 - RESOURCE_LIMIT == hyperparameters.count_event_only()


things = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=400)
    | st.binary()
    | st.sampled_from([Config(), Namespace(a={1}), Config, Optimizer.ADAM, print, "x://u:p@h", 10**400]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters()) | st.integers(), inner, max_size=3)
        | inner.map(lambda item: Namespace(item=item, token=item))
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(things, max_size=3))
@pytest.mark.filterwarnings("ignore")
def test_anything_can_be_logged(drawn):
    """Whatever is logged, early or late: nothing raises, and all that is recorded can be sent."""
    hyperparameters = HyperparameterSet(Redactor(), Ledger(SystemClock(), logging.getLogger("otel_logger")))
    for number, logged in enumerate(drawn):
        if number == 1:
            assert encode_resource(hyperparameters.bind()) is not None
        hyperparameters.add(logged)
        hyperparameters.add({"key": logged})
    earlier = Remembered.from_state({"values": {"key": 1}}, 1)
    for attributes, body in hyperparameter_events(hyperparameters, earlier):
        assert encode_event(Event("e", 1, attributes, body), InstrumentationScope("test")).body
    assert encode_measurements(
        [hyperparameters.measure(), hyperparameters.take_ended()], time_ns=1, start_ns=0, scope=Scope(name="test")
    )
    state = json.loads(json.dumps(Remembered(1, hyperparameters.nested()).as_state(), default=str))
    again = Remembered.from_state(state, 1)
    ((told, _), *_) = hyperparameter_events(hyperparameters, again)
    assert {HPARAMS_COUNT, HPARAMS_EVENT_ONLY, HPARAMS_PREVIOUS, HPARAMS_REDACTED} >= told.keys() - {HPARAMS_PARTS}


@pytest.mark.parametrize(
    "state",
    [None, 3, {}, {"values": [1]}, {"late": ["a"]}, {"values": "x", "late": None}],
    ids=named,
)
def test_a_checkpoint_that_makes_no_sense_is_passed_over(state):
    """What another version has left, or nobody, is no hyperparameters."""
    assert Remembered.from_state(state, 1) is None


def test_what_is_remembered_is_plain_data():
    """What goes into a checkpoint comes back, and objects in one do no harm."""
    remembered = Remembered(2, {"a": {"b": [1, None]}}, ("a",))
    state = remembered.as_state()
    assert {"values": {"a": {"b": [1, None]}}, "late": ["a"]} == json.loads(json.dumps(state))
    assert remembered == Remembered.from_state(state, 2)
    odd = Remembered.from_state({"values": {1: Raising()}, "late": [2, "1"]}, 3)
    assert Remembered(3, {"1": "<Raising: RuntimeError>"}, ("1",)) == odd
