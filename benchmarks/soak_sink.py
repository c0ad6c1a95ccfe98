"""Where the soak's values arrive, behind the Collector: each is marked, so that none is missing or counts twice."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receiver import Received, Reply

from otel_logger.conventions import METRIC_KEY, STEP
from otel_logger_exporters.signals import Signal

__all__ = ["Arrivals", "Sink"]


@dataclass(frozen=True)
class Arrivals:
    """How many values arrived, how many of those recorded did not, how many came again, how many nobody recorded."""

    arrived: int
    missing: int
    again: int
    foreign: int

    @property
    def is_exact(self) -> bool:
        """Whether each value arrived once and nothing else did."""
        return not (self.missing or self.again or self.foreign)


class Sink:
    """Takes requests and marks the values and steps of the soak in them: call `n` records the value `n` at step `n`."""

    def __init__(self, keys: list[str], calls: int) -> None:
        self._calls = calls
        self._values = {key: bytearray(calls) for key in keys}
        self._steps = {key: bytearray(calls) for key in keys}
        self._foreign = {"values": 0, "steps": 0}
        self._lock = threading.Lock()
        self.requests = 0
        """How many requests with metrics have come."""

    def handle(self, received: Received) -> Reply:
        """Mark what a request brings, and accept it."""
        if received.signal is Signal.METRICS:
            with self._lock:
                self.requests += 1
                self._take(received.message())
        return Reply()

    def _take(self, message: Any) -> None:
        for resource in message.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == STEP:
                        self._mark("steps", self._steps, metric)
                    elif metric.name in self._values:
                        self._mark("values", self._values, metric)

    def _mark(self, what: str, marks: Mapping[str, bytearray], metric: Any) -> None:
        for point in metric.gauge.data_points:
            if point.flags:
                # The end of a series.
                continue
            key = next(pair.value.string_value for pair in point.attributes if pair.key == METRIC_KEY)
            number = point.as_int if point.HasField("as_int") else int(point.as_double)
            if key not in marks or not 0 <= number < self._calls:
                self._foreign[what] += 1
            elif marks[key][number] < 255:
                marks[key][number] += 1

    def values(self) -> Arrivals:
        """Return what became of the values."""
        return self._arrivals("values", self._values)

    def steps(self) -> Arrivals:
        """Return what became of their steps, each a point of its own."""
        return self._arrivals("steps", self._steps)

    def _arrivals(self, what: str, marks: Mapping[str, bytearray]) -> Arrivals:
        with self._lock:
            missing = sum(mark.count(0) for mark in marks.values())
            once = sum(mark.count(1) for mark in marks.values())
            total = sum(map(sum, marks.values()))
            places = self._calls * len(marks)
            return Arrivals(places - missing, missing, total - once - (places - missing - once), self._foreign[what])
