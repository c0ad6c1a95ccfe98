"""Families, what a scrape shows: measurements under Prometheus' names, of which none hides another."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from otel_logger_exporters.measurements import Attributes, Instrument, Measurement
from otel_logger_exporters.scrape_names import label_name, label_value, prometheus_name

__all__ = ["TARGET_INFO", "Family", "FamilyKind", "Labels", "Sample", "families_of", "target_labels"]

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, sorted by name, each name once."""

SERIES_LABEL = "otel_series"
"""Label of series that have the same name and labels although they are of different metrics or attributes."""

TARGET_INFO = "target_info"

COUNTER_SUFFIX = "_total"


class FamilyKind(Enum):
    """The kind of a family; UNKNOWN where metrics of several kinds share a name, or where saying it would be wrong."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with its labels, which are no other's in its family."""

    labels: Labels
    value: float | int


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name. `metrics` are the names of those that share it, as they are without translation."""

    name: str
    kind: FamilyKind
    samples: tuple[Sample, ...]
    metrics: tuple[str, ...]


@dataclass(slots=True)
class _Group:
    """The series of one name as they are collected: by their labels, for they may be the same."""

    instruments: dict[Instrument, None] = field(default_factory=dict)
    series: dict[Labels, list[tuple[Instrument, Attributes, float | int]]] = field(default_factory=dict)

    def add(self, instrument: Instrument, points: Mapping[Attributes, float | int]) -> None:
        self.instruments[instrument] = None
        for attributes, value in points.items():
            self.series.setdefault(_labels(attributes), []).append((instrument, attributes, value))

    def samples(self) -> Iterable[Sample]:
        for labels, alike in self.series.items():
            if len(alike) == 1:
                yield Sample(labels, alike[0][2])
                continue
            for instrument, attributes, value in alike:
                yield Sample(_told_apart(labels, instrument, attributes), value)

    def kind(self) -> FamilyKind:
        if len({instrument.is_sum for instrument in self.instruments}) > 1:
            return FamilyKind.UNKNOWN
        if not next(iter(self.instruments)).is_sum:
            return FamilyKind.GAUGE
        # OpenMetrics has no counters that are negative or no number.
        values = (value for alike in self.series.values() for _, _, value in alike)
        return FamilyKind.COUNTER if all(0 <= value < math.inf for value in values) else FamilyKind.UNKNOWN


def families_of(measurements: Iterable[Measurement]) -> list[Family]:
    """Return measurements as families, each name once; what has ended, or has no value, is left out.

    Metrics whose names become the same share a family, where their labels tell them apart (`training_metric_key` of
    those that are logged); series that are the same in all labels get one more. In OpenMetrics a counter `x` has the
    names `x`, `x_total` and `x_created`: where another family has one of them, what would be a counter is of unknown
    kind, under the same name `x_total`.
    """
    groups: dict[str, _Group] = {}
    for measurement in measurements:
        if measurement.points and not measurement.has_ended:
            name = prometheus_name(measurement.instrument)
            groups.setdefault(name, _Group()).add(measurement.instrument, measurement.points)
    # The first of the names of a counter is `x`, also of one `x_created_total`.
    bases = {name.removesuffix(COUNTER_SUFFIX) for name, group in groups.items() if group.kind() is FamilyKind.COUNTER}
    taken = {*groups, TARGET_INFO, TARGET_INFO.removesuffix("_info")}
    families = []
    for name, group in groups.items():
        metrics = tuple(dict.fromkeys(instrument.name for instrument in group.instruments))
        family = Family(name, group.kind(), tuple(group.samples()), metrics)
        base = name.removesuffix(COUNTER_SUFFIX)
        if family.kind is FamilyKind.COUNTER and (taken & {base, f"{base}_created"} or f"{base}_created" in bases):
            family = replace(family, kind=FamilyKind.UNKNOWN)
        families.append(family)
    return families


def target_labels(resource: Mapping[str, Any]) -> Labels:
    """Return the labels of `target_info`, which tells the resource; what identifies the service is among them.

    Prometheus leaves that out of what comes by OTLP, where it becomes `job` and `instance`; those of a scrape are the
    scraper's own.
    """
    return _labels(resource.items())


def _labels(attributes: Iterable[tuple[str, Any]]) -> Labels:
    labels: dict[str, str] = {}
    # In the order of their names, so that those that become one are joined as Prometheus joins them.
    for attribute, value in sorted(attributes, key=lambda pair: pair[0]):
        name, text = label_name(attribute), label_value(value)
        labels[name] = f"{labels[name]};{text}" if name in labels else text
    return tuple(sorted(labels.items()))


def _told_apart(labels: Labels, instrument: Instrument, attributes: Attributes) -> Labels:
    kind = "sum" if instrument.is_sum else "gauge"
    series = label_value(f"{instrument.name} [{instrument.unit}] {kind} {attributes!r}")
    return tuple(sorted({**dict(labels), SERIES_LABEL: series}.items()))
