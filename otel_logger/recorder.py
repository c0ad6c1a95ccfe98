"""The recorder, what the training thread pays for `log_metrics`: one row, one time, and it returns.

Values that are no numbers, and tensors whose content is on a device, are handed on; nothing here waits for either.
"""

import operator
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from otel_logger.latest import LatestValues
from otel_logger.stamps import Stamper
from otel_logger.values import NotANumber, as_number, is_device_tensor, key_text
from otel_logger_exporters.journal import Journal, journal_refusal
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rows import NO_STEP, Schema
from otel_logger_exporters.signals import Signal

__all__ = ["Leftover", "Recorder", "as_step"]

_FLOATS = frozenset({float})
_INT64 = range(-(2**63) + 1, 2**63)

SCHEMA_LIMIT = 1024
"""Schemas remembered per segment. Keys that change at each call would otherwise hold memory for each call made."""


MOST_SERIES = 2**16
"""Keys whose series are ended with the run, at about 100 bytes of memory each: of more only the first are."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What of a call was no number here and now: `others` for a log record, `device` tensors to be copied first."""

    time_ns: int
    step: int | None
    others: Mapping[str, Any]
    device: Mapping[str, Any]


class Recorder:
    """Writes calls as rows. Thread-safe: calls of several threads get rows in the order of their times.

    What is recorded is shown in `latest` too, where there is one, also when the disk does not take it.
    """

    def __init__(
        self,
        journal: Journal,
        stamper: Stamper,
        ledger: Ledger,
        *,
        exclude: tuple[str, ...] = (),
        latest: LatestValues | None = None,
    ) -> None:
        self._journal = journal
        self._stamper = stamper
        self._ledger = ledger
        self._exclude = exclude
        self._latest = latest
        # Reentrant: a signal handler that logs must not wait for the very call it interrupts.
        self._lock = threading.RLock()
        self._rows: deque[tuple[tuple[Any, ...], str, tuple[float | int, ...], int, int]] = deque()
        self._is_writing = False
        self._schemas: dict[tuple[tuple[Any, ...], str], Schema] = {}
        self._generation = -1
        self.last_step: int | None = None
        self.last_step_ns: int | None = None
        self._keys: set[str] = set()

    def record(self, metrics: Mapping[Any, Any], step: Any) -> tuple[bool, Leftover | None]:
        """Record one call; return whether it held a number, and what of it is left for others to do.

        Never raises. A number that the disk does not take is counted as lost.
        """
        number = self._step(step)
        values = tuple(metrics.values())
        if not self._exclude and set(map(type, values)) == _FLOATS:
            with self._lock:
                self._write(tuple(metrics), "d" * len(values), values, self._stamper.stamp(), number)
            return True, None
        return self._record_mixed(metrics, number)

    def record_late(self, metrics: Mapping[str, float | int], time_ns: int, step: int | None) -> None:
        """Record numbers of an earlier call, read from a device since, with that call's time and step."""
        kinds = "".join("q" if isinstance(value, int) else "d" for value in metrics.values())
        with self._lock:
            self._write(tuple(metrics), kinds, tuple(metrics.values()), time_ns, NO_STEP if step is None else step)

    def end(self) -> tuple[int, frozenset[str]]:
        """Return a time after everything recorded, and the keys of it, `MOST_SERIES` at most."""
        with self._lock:
            return self._stamper.stamp(), frozenset(self._keys)

    def _record_mixed(self, metrics: Mapping[Any, Any], step: int) -> tuple[bool, Leftover | None]:
        keys: list[Any] = []
        kinds: list[str] = []
        values: list[float | int] = []
        others: dict[str, Any] = {}
        device: dict[str, Any] = {}
        for key, value in metrics.items():
            name = key_text(key)
            if any(fnmatchcase(name, pattern) for pattern in self._exclude):
                self._ledger.adjust("excluded", 1)
                continue
            try:
                if is_device_tensor(value) and value.numel() == 1:
                    device[name] = value
                    continue
                number = as_number(value, self._overflowed)
            except NotANumber:
                others[name] = value
                continue
            except Exception:
                # __float__ and its like are the caller's code; whatever they raise costs this value alone.
                others[name] = value
                continue
            keys.append(key)
            values.append(number)
            kinds.append("q" if isinstance(number, int) else "d")
        with self._lock:
            time_ns = self._stamper.stamp()
            if values:
                self._write(tuple(keys), "".join(kinds), tuple(values), time_ns, step)
        if not others and not device:
            return bool(values), None
        return bool(values or device), Leftover(time_ns, None if step == NO_STEP else step, others, device)

    def _write(
        self, keys: tuple[Any, ...], kinds: str, values: tuple[float | int, ...], time_ns: int, step: int
    ) -> None:
        self._rows.append((keys, kinds, values, time_ns, step))
        # A signal handler that logs within leaves its row to the call that it interrupts: written between that call's
        # schema and its row, it would take the schema's number, and the rows would be read under each other's keys.
        while self._rows and not self._is_writing:
            self._is_writing = True
            try:
                while self._rows:
                    self._write_row(*self._rows.popleft())
            finally:
                self._is_writing = False

    def _write_row(
        self, keys: tuple[Any, ...], kinds: str, values: tuple[float | int, ...], time_ns: int, step: int
    ) -> None:
        shown: tuple[str, ...] = ()
        try:
            appended = False
            while not appended:
                generation = self._journal.generation
                schema, is_known = self._schema(keys, kinds, generation)
                shown = schema.keys
                row = (Kind.ROW, schema.pack_row(time_ns, step, values))
                # Together, so that no segment has a row without its schema.
                records = (row,) if is_known else ((Kind.SCHEMA, schema.pack()), row)
                appended = self._journal.append(*records, items=len(values), generation=generation)
            if not is_known:
                if len(self._keys) < MOST_SERIES:
                    self._keys.update(schema.keys)
                if _are_texts(keys):
                    self._schemas[keys, kinds] = schema
        except OSError as error:
            reason, explanation = journal_refusal(Signal.METRICS, error)
            self._ledger.drop(reason, len(values), explanation)
        else:
            self._ledger.record(Signal.METRICS, len(values))
        # Where the training is does not depend on the disk; and what was read from a device late is not the last.
        if step != NO_STEP and time_ns >= (self.last_step_ns or 0):
            self.last_step, self.last_step_ns = step, time_ns
        if self._latest is not None and shown:
            self._latest.note(shown, time_ns, step, values)

    def _schema(self, keys: tuple[Any, ...], kinds: str, generation: int) -> tuple[Schema, bool]:
        """Return the schema of a call, and whether the segment has it already."""
        if generation != self._generation or len(self._schemas) >= SCHEMA_LIMIT:
            self._schemas.clear()
            self._generation = generation
        schema = self._schemas.get((keys, kinds))
        if schema is not None:
            return schema, True
        # Keys that are equal but not the same text, as 1 and True, must not share a schema.
        return Schema(len(self._schemas), tuple(map(key_text, keys)), kinds), False

    def _step(self, step: Any) -> int:
        if type(step) is int and step in _INT64:
            return step
        number = as_step(step, self._ledger)
        return NO_STEP if number is None else number

    def _overflowed(self) -> None:
        self._ledger.adjust("overflow", 1, "An int beyond 64 bits is recorded as the nearest float64")


def as_step(step: Any, ledger: Ledger) -> int | None:
    """Return a step as the integer that it is, or None; what is neither is none too, and counted. Never raises."""
    if step is None or (type(step) is int and step in _INT64):
        return step
    try:
        # Only NumPy's integers besides int: the __index__ of a tensor would wait for its device.
        if type(step) is not bool and type(step).__module__ == "numpy" and operator.index(step) in _INT64:
            return operator.index(step)
    except Exception:
        # An array of several, or of no integers; or a __index__ that is not NumPy's.
        pass
    ledger.adjust("step", 1, f"A step that is no 64-bit integer is recorded as none: {type(step).__name__}")
    return None


def _are_texts(keys: tuple[Any, ...]) -> bool:
    return all(type(key) is str for key in keys)
