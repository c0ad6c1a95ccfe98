"""Hyperparameters are kept nested for the event, and flat, in order and within bounds for the resource."""

import json
from decimal import Decimal
from enum import Enum

import pytest

from otel_logger.conventions import HPARAM_PREFIX
from otel_logger.hyperparameters import RESOURCE_LIMIT, HyperparameterSet
from otel_logger.redaction import REDACTED, Redactor
from otel_logger_exporters.items import encode_resource
from otel_logger_exporters.payloads import pack_hyperparameters, unpack_hyperparameters


class Optimizer(Enum):
    """A choice with a name."""

    ADAM = "adam"


class Raising:
    """An object that has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.fixture
def hyperparameters():
    """A set without patterns of the user's own."""
    return HyperparameterSet(Redactor())


def flat(hyperparameters):
    """The resource attributes without their prefix, in order."""
    return [(key.removeprefix(HPARAM_PREFIX), value) for key, value in hyperparameters.attributes().items()]


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
    ids=repr,
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
