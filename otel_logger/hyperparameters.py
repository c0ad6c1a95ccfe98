"""The hyperparameters of a run: the nested set for the event, the flat part of it for the resource and for tables."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from otel_logger.conventions import HPARAM_INFO, HPARAM_KEY, HPARAM_PREFIX, HPARAM_VALUE
from otel_logger.forms import fields_of
from otel_logger.redaction import Redactor
from otel_logger.values import flatten, key_text, plain
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Attributes, Instrument, Measurement

__all__ = [
    "INFO_LIMIT",
    "LARGEST_SET",
    "LONGEST_VALUE",
    "RESOURCE_LIMIT",
    "HyperparameterSet",
    "Remembered",
    "attribute",
    "json_text",
    "resource_part",
    "value_text",
]

RESOURCE_LIMIT: Final = 60
"""Hyperparameters on the resource at most: Loki accepts 128 attributes of structured metadata, resource and record
together, and Prometheus makes a label of `target_info` of each."""

LONGEST_VALUE: Final = 256
"""Characters of a key, and of a value as text, on the resource and in points: each becomes a label, and some backends
repeat the resource on every series."""

INFO_LIMIT: Final = 500
"""Points of `training.hparam.info` at most: each is a series of its own."""

LARGEST_SET: Final = 2**20
"""Bytes of all hyperparameters as JSON: the head of each segment repeats them, and a checkpoint carries them."""

_INFO: Final = Instrument(HPARAM_INFO)
_SCALARS = (str, bool, int, float)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The redacted hyperparameters of an attempt; `late` names those that came when its resource was bound."""

    attempt: int
    nested: Mapping[str, Any]
    late: tuple[str, ...] = ()

    def as_state(self) -> dict[str, Any]:
        """Return what a checkpoint or the file holds, as plain data."""
        return {"values": dict(self.nested), "late": list(self.late)}

    @classmethod
    def from_state(cls, state: object, attempt: int) -> "Remembered | None":
        """Return what a checkpoint or the file holds, or None for what makes no sense."""
        # Of a class of its own it might raise at whatever it is asked.
        if type(state) is not dict:
            return None
        nested, late = state.get("values"), state.get("late")
        if type(nested) is not dict:
            return None
        keys = tuple(key for key in late if isinstance(key, str)) if isinstance(late, (list, tuple)) else ()
        return cls(attempt, {plain(key_text(key)): plain(value) for key, value in nested.items()}, keys)


class HyperparameterSet:
    """Collects what is logged, redacted; a key logged again takes the later value. Thread-safe, and never raises.

    What does not fit is counted: in `dropped["hyperparameters"]` what came when the set had `LARGEST_SET` bytes, or has
    no keys; in `adjusted["cut"]` values that `plain` cuts or describes; in `adjusted["info"]` those without a point.
    """

    def __init__(self, redactor: Redactor, ledger: Ledger) -> None:
        self._redactor = redactor
        self._ledger = ledger
        # Reentrant: a signal handler that interrupts a method may log too.
        self._lock = threading.RLock()
        self._nested: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._late: dict[str, None] = {}
        self._bound: frozenset[str] | None = None
        self._shown: set[Attributes] = set()
        self._without_point = 0

    def __len__(self) -> int:
        """Return the number of flat hyperparameters."""
        with self._lock:
            return sum(1 for _ in flatten(self._nested))

    def add(self, hyperparameters: Any) -> dict[str, Any]:
        """Take what a call logged; return what of it is new or changed, as recorded: plain, with secrets replaced.

        It is a mapping or an object with fields (`otel_logger.forms.fields_of`).
        """
        if (items := _items(hyperparameters)) is None:
            kind = type(hyperparameters).__name__
            self._ledger.drop(
                "hyperparameters",
                1,
                f"Hyperparameters come as a dict, a namespace or a dataclass: one of type {kind} is lost",
            )
            return {}
        cut: list[None] = []
        logged = {
            plain(key_text(key), lambda: cut.append(None)): plain(value, lambda: cut.append(None))
            for key, value in items
        }
        if cut:
            self._ledger.adjust("cut", len(cut), "Values of hyperparameters are cut, they are too large or too deep")
        recorded: dict[str, Any] = self._redactor.redact("", logged)
        lost: dict[str, Any] = {}
        with self._lock:
            new = {key: value for key, value in recorded.items() if self._take(key, value, lost)}
            # Not by the points themselves, which take ten times as long: a program may log each value by itself.
            fitting = [len(flat_key) <= LONGEST_VALUE for flat_key, _ in flatten(self._nested)]
            lacking = len(fitting) - min(INFO_LIMIT, sum(fitting))
            more, self._without_point = max(0, lacking - self._without_point), max(lacking, self._without_point)
        if more:
            self._ledger.adjust("info", more)
        if lost:
            self._ledger.drop(
                "hyperparameters",
                sum(1 for _ in flatten(lost)),
                f"Hyperparameters are lost, all together have over {LARGEST_SET:,} bytes",
            )
        return new

    def carry(self, earlier: Remembered) -> bool:
        """Take over what an earlier attempt logged only when its resource was bound; return whether there is any.

        What this attempt has logged itself stays.
        """
        with self._lock:
            late = [key for key in earlier.late if key in earlier.nested and key not in self._nested]
        added = self.add({key: earlier.nested[key] for key in late})
        with self._lock:
            self._late |= dict.fromkeys(added)
        return bool(added)

    def nested(self) -> dict[str, Any]:
        """Return the full set as logged."""
        with self._lock:
            return dict(self._nested)

    def late(self) -> tuple[str, ...]:
        """Return the keys that were first logged when the resource was bound, in this attempt or an earlier one."""
        with self._lock:
            return tuple(self._late)

    def attributes(self) -> dict[str, Any]:
        """Return the resource attributes: the first 60 flat hyperparameters that fit, in the order of first logging.

        Nested keys are joined with dots. A list of scalars of one type stays a list, other lists become JSON, None
        becomes "None". What has more than 256 characters, as key or as value, does not fit.
        """
        return resource_part(self.nested())

    def bind(self) -> dict[str, Any]:
        """Return the resource attributes; what is logged from here on is not among them."""
        with self._lock:
            attributes = self.attributes()
            self._bound = frozenset(attributes)
        return attributes

    def count_event_only(self) -> int:
        """Return how many flat hyperparameters the event has and the resource has not."""
        with self._lock:
            bound = frozenset(self.attributes()) if self._bound is None else self._bound
            keys = [HPARAM_PREFIX + key for key, _ in flatten(self._nested)]
            return len(keys) - len(bound.intersection(keys))

    def measure(self) -> Measurement:
        """Return a point of `training.hparam.info` for each of the first 500 flat hyperparameters, cut to 256."""
        with self._lock:
            points = self._points()
            self._shown |= points
        return Measurement(_INFO, dict.fromkeys(sorted(points), 1))

    def take_ended(self) -> Measurement:
        """Return, once, the points that were measured before and whose hyperparameter has another value now."""
        with self._lock:
            ended = self._shown - self._points()
            self._shown -= ended
        return Measurement(_INFO, dict.fromkeys(sorted(ended), 1), has_ended=True)

    def abandon(self) -> None:
        """Take a new lock in the child of a fork, where the parent's may be held for ever."""
        self._lock = threading.RLock()

    def _take(self, key: str, value: Any, lost: dict[str, Any]) -> bool:
        # By their text, since NaN differs from itself.
        if key in self._nested and repr(value) == repr(self._nested[key]):
            return False
        size = len(json_text({key: value}))
        total = self._size - self._sizes.get(key, 0) + size
        if total > LARGEST_SET:
            lost[key] = value
            return False
        if self._bound is not None and key not in self._nested:
            self._late[key] = None
        self._nested[key], self._sizes[key], self._size = value, size, total
        return True

    def _points(self) -> set[Attributes]:
        fitting = ((key, value) for key, value in flatten(self._nested) if len(key) <= LONGEST_VALUE)
        return {
            ((HPARAM_KEY, key), (HPARAM_VALUE, _shorten(value_text(value))))
            for key, value in islice(fitting, INFO_LIMIT)
        }


def resource_part(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resource attributes of nested hyperparameters; see `HyperparameterSet.attributes`."""
    return {HPARAM_PREFIX + key: attribute(value) for key, value in islice(_fitting(nested), RESOURCE_LIMIT)}


def _items(hyperparameters: Any) -> list[tuple[Any, Any]] | None:
    try:
        # First: what an omegaconf refers to is to be looked up.
        named = fields_of(hyperparameters)
        if named is None and isinstance(hyperparameters, Mapping):
            named = hyperparameters
        # A dict that another thread changes meanwhile cannot be gone through; its copy is made in one step.
        named = named.copy() if type(named) is dict else named
        return None if named is None else [(key, value) for key, value in named.items()]
    except Exception:
        # An __iter__ or __getattr__ of the caller's may raise anything.
        return None


def _fitting(nested: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in flatten(nested):
        if len(key) <= LONGEST_VALUE and len(value_text(value)) <= LONGEST_VALUE:
            yield key, value


def attribute(value: Any) -> Any:
    """Return plain data as an attribute that every backend takes: a scalar, a list of one type of them, or JSON."""
    if isinstance(value, _SCALARS):
        return value
    if value is None:
        return "None"
    if isinstance(value, list) and len({type(item) for item in value}) == 1 and isinstance(value[0], _SCALARS):
        return value
    return json_text(value)


def value_text(value: Any) -> str:
    """Return plain data as a text for people: a string as it is, "None", or JSON."""
    if isinstance(value, str):
        return value
    return "None" if value is None else json_text(value)


def json_text(value: Any) -> str:
    """Return plain data as JSON; bytes are their Python text."""
    return json.dumps(value, default=str)


def _shorten(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 1]}…"
