"""The hyperparameters of a run: the nested set for the event, the flat part of it for the resource."""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from otel_logger.conventions import HPARAM_PREFIX
from otel_logger.redaction import Redactor
from otel_logger.values import flatten, key_text, plain

__all__ = ["RESOURCE_LIMIT", "HyperparameterSet", "attribute", "resource_part"]

RESOURCE_LIMIT = 60
"""Hyperparameters on the resource at most: Loki accepts 128 attributes of structured metadata, resource and record
together, and Prometheus makes a label of `target_info` of each."""

_SCALARS = (str, bool, int, float)


class HyperparameterSet:
    """Collects what is logged, redacted; a key logged again takes the later value."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._nested: dict[str, Any] = {}

    def __len__(self) -> int:
        """Return the number of flat hyperparameters."""
        return sum(1 for _ in flatten(self._nested))

    def add(self, hyperparameters: Mapping[Any, Any]) -> dict[str, Any]:
        """Take what a call logged; return what of it is new or changed, as recorded: plain, with secrets replaced."""
        logged = {key_text(key): plain(value) for key, value in hyperparameters.items()}
        recorded: dict[str, Any] = self._redactor.redact("", logged)
        # By their text, since NaN differs from itself.
        new = {k: v for k, v in recorded.items() if k not in self._nested or repr(v) != repr(self._nested[k])}
        self._nested.update(new)
        return new

    def nested(self) -> dict[str, Any]:
        """Return the full set as logged."""
        return dict(self._nested)

    def attributes(self) -> dict[str, Any]:
        """Return the resource attributes: the first 60 flat hyperparameters in the order of their first logging.

        Nested keys are joined with dots. A list of scalars of one type stays a list, other lists become JSON, None
        becomes "None".
        """
        return resource_part(self._nested)


def resource_part(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resource attributes of nested hyperparameters; see `HyperparameterSet.attributes`."""
    return {HPARAM_PREFIX + key: attribute(value) for key, value in islice(flatten(nested), RESOURCE_LIMIT)}


def attribute(value: Any) -> Any:
    """Return plain data as an attribute that every backend takes: a scalar, a list of one type of them, or JSON."""
    if isinstance(value, _SCALARS):
        return value
    if value is None:
        return "None"
    if isinstance(value, list) and len({type(item) for item in value}) == 1 and isinstance(value[0], _SCALARS):
        return value
    return json.dumps(value, default=str)
