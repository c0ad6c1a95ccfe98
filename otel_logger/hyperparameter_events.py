"""Events of hyperparameters: what one says of the set, and of the difference to an earlier attempt at the run."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_logger import conventions as names
from otel_logger.hyperparameters import HyperparameterSet, Remembered, json_text, value_text
from otel_logger.redaction import REDACTED
from otel_logger.values import flatten

__all__ = ["EVENT_BYTES", "hyperparameter_events"]

EVENT_BYTES: Final = 2**17
"""Bytes of hyperparameters, as JSON, that one event aims at: Loki's default refuses a line above 256 KB."""

MOST_CHANGES: Final = 40
"""Entries of each list of changes: Loki's default refuses a record with over 64 KB of attributes."""

_LONGEST_KEY = 120
_LONGEST_VALUE = 60

_Path = tuple[str, ...]


def hyperparameter_events(
    hyperparameters: HyperparameterSet, earlier: Remembered | None
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the attributes and the body of each event that tells the whole set: one, or several where it is large.

    The first says in which the set differs from what an `earlier` attempt had.
    """
    nested = hyperparameters.nested()
    counts = {names.HPARAMS_COUNT: len(hyperparameters), names.HPARAMS_EVENT_ONLY: hyperparameters.count_event_only()}
    difference = _difference(earlier, nested) if earlier is not None else {}
    parts = _parts(nested)
    for number, part in enumerate(parts, 1):
        place = {names.HPARAMS_PART: number, names.HPARAMS_PARTS: len(parts)} if len(parts) > 1 else {}
        yield {**counts, **place, **(difference if number == 1 else {})}, part


def _difference(earlier: Remembered, nested: Mapping[str, Any]) -> dict[str, Any]:
    old, new = dict(flatten(earlier.nested)), dict(flatten(nested))
    changed, unknown = [], []
    for key in new.keys() & old.keys():
        before, now = json_text(old[key]), json_text(new[key])
        if before != now:
            changed.append((key, f"{_key(key)}: {_value(old[key])} -> {_value(new[key])}"))
        elif REDACTED in now:
            unknown.append((key, _key(key)))
    lists = {
        names.HPARAMS_ADDED: [(key, f"{_key(key)}: {_value(new[key])}") for key in new.keys() - old.keys()],
        names.HPARAMS_REMOVED: [(key, f"{_key(key)}: {_value(old[key])}") for key in old.keys() - new.keys()],
        names.HPARAMS_CHANGED: changed,
        names.HPARAMS_REDACTED: unknown,
    }
    told = {name: _some([text for _, text in sorted(entries)]) for name, entries in lists.items() if entries}
    return {names.HPARAMS_PREVIOUS: earlier.attempt, **told}


def _some(entries: list[str]) -> list[str]:
    if len(entries) <= MOST_CHANGES:
        return entries
    return [*entries[:MOST_CHANGES], f"… and {len(entries) - MOST_CHANGES} more"]


def _key(key: str) -> str:
    return _shorten(key, _LONGEST_KEY)


def _value(value: Any) -> str:
    return _shorten(value_text(value), _LONGEST_VALUE)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _parts(nested: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the set divided between its leaves so that no part is much above `EVENT_BYTES`."""
    if len(json_text(nested)) <= EVENT_BYTES:
        return [nested]
    parts: list[dict[str, Any]] = [{}]
    size = 0
    for path, value in _leaves(nested, ()):
        # With what stands between: a colon, a comma, blanks, braces.
        added = len(json_text(value)) + sum(len(json_text(key)) + 4 for key in path)
        if size and size + added > EVENT_BYTES:
            parts.append({})
            size = 0
        _put(parts[-1], path, value)
        size += added
    return parts


def _leaves(nested: Mapping[str, Any], path: _Path) -> Iterator[tuple[_Path, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _put(part: dict[str, Any], path: _Path, value: Any) -> None:
    for key in path[:-1]:
        part = part.setdefault(key, {})
    part[path[-1]] = value
