"""Latest values, what a scrape gets of the metrics that are logged: of each key the last value and its step."""

from collections.abc import Callable
from typing import Final

from otel_logger.conventions import METRIC_KEY, STEP, STEP_UNIT, metric_name
from otel_logger_exporters.measurements import Attributes, Instrument, Measurement
from otel_logger_exporters.rows import NO_STEP

__all__ = ["LatestValues"]

MOST_KEYS: Final = 10_000
"""Keys that are shown at most, the last ones: programs that make up keys for ever must not fill memory or a page."""

MOST_ROWS: Final = 256
"""Sets of keys that are held as they came before they are taken apart. Most programs have a few."""

_Row = tuple[int, int, tuple[float | int, ...]]
_Value = tuple[int, int, float | int]
"""Time, step and value of a key."""


class LatestValues:
    """The last value of each key. `note` is for one thread at a time, `measure` for any.

    A call is held whole, so that noting it costs one entry of a dict however many keys it has; who scrapes takes it
    apart. Of two values of a key the one of the later time counts: one that was read from a device late may be older
    than what is there. `on_forgotten` is called with the number of keys that are shown no more.
    """

    def __init__(
        self,
        *,
        with_steps: bool = True,
        most_keys: int = MOST_KEYS,
        on_forgotten: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._with_steps = with_steps
        self._most_keys = most_keys
        self._on_forgotten = on_forgotten
        # Replaced as one, so that who reads it sees each value in one of the two at least.
        self._held: tuple[dict[str, _Value], dict[tuple[str, ...], _Row]] = {}, {}
        self._size = 0

    def note(self, keys: tuple[str, ...], time_ns: int, step: int, values: tuple[float | int, ...]) -> None:
        """Take note of one call; `step` is NO_STEP for none."""
        rows = self._held[1]
        before = rows.get(keys)
        if before is not None and before[0] > time_ns:
            return
        rows[keys] = time_ns, step, values
        if before is None:
            self._size += len(keys)
            if len(rows) > MOST_ROWS or self._size > 2 * self._most_keys:
                self._take_apart()

    def measure(self) -> list[Measurement]:
        """Return the values under the names and attributes by which they are sent, and their steps likewise."""
        points: dict[str, dict[Attributes, float | int]] = {}
        steps: dict[Attributes, float | int] = {}
        for key, (_, step, value) in self._merged()[0].items():
            attributes: Attributes = ((METRIC_KEY, key),)
            points.setdefault(metric_name(key), {})[attributes] = value
            if step != NO_STEP and self._with_steps:
                steps[attributes] = step
        measurements = [Measurement(Instrument(name), of_name) for name, of_name in points.items()]
        return [*measurements, Measurement(Instrument(STEP, STEP_UNIT), steps)] if steps else measurements

    def _take_apart(self) -> None:
        merged, forgotten = self._merged()
        self._held, self._size = (merged, {}), 0
        if forgotten:
            self._on_forgotten(forgotten)

    def _merged(self) -> tuple[dict[str, _Value], int]:
        """Return the last value of each key, and how many keys are too many."""
        base, rows = self._held
        merged = base.copy()
        for keys, (time_ns, step, values) in rows.copy().items():
            for key, value in zip(keys, values, strict=True):
                before = merged.get(key)
                if before is None or before[0] <= time_ns:
                    merged[key] = time_ns, step, value
        forgotten = len(merged) - self._most_keys
        if forgotten > 0:
            newest = sorted(merged.items(), key=lambda item: item[1][0], reverse=True)
            merged = dict(newest[: self._most_keys])
        return merged, max(0, forgotten)
