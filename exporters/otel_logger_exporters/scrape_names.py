"""Prometheus' names: what its OTLP receiver calls a metric, an attribute and a value; a scrape is to call them so too.

The rules are those of its default translation, UnderscoreEscapingWithSuffixes: runs of characters that Prometheus'
classic names have not become one `_`, units and kinds become suffixes. Several metrics may get one name.
"""

import json
import math
import re
from decimal import Decimal

from otel_logger_exporters.measurements import Instrument

__all__ = ["label_name", "label_value", "prometheus_name"]

UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
"""Units of UCUM that have a name of their own; others are suffixes as they are."""

RATES = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
"""What stands after the `/` of a unit."""

_WORD = re.compile(r"[A-Za-z0-9:]+")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_]")


def prometheus_name(instrument: Instrument) -> str:
    """Return the name of an instrument's series: `loss/train` is `loss_train`, a sum of seconds `x_seconds_total`."""
    words = _WORD.findall(instrument.name)
    unit, _, rate = (part.strip() for part in instrument.unit.partition("/"))
    for suffix in (_suffix(unit, UNITS, ""), _suffix(rate, RATES, "per_")):
        if suffix and suffix not in words:
            words.append(suffix)
    last = "total" if instrument.is_sum else "ratio" if instrument.unit == "1" else None
    if last is not None:
        words = [word for word in words if word != last] + [last]
    name = "_".join(words) or "unnamed"
    return f"_{name}" if name[0].isdigit() else name


def _suffix(unit: str, known: dict[str, str], before: str) -> str:
    # An annotation, such as {step}, says what is counted and is no unit.
    if not unit or "{" in unit or "}" in unit:
        return ""
    suffix = "_".join(_WORD.findall(known.get(unit, unit)))
    return before + suffix if suffix else ""


def label_name(attribute: str) -> str:
    """Return the name of an attribute's label: `training.metric.key` is `training_metric_key`."""
    name = _NOT_IN_LABELS.sub("_", attribute)
    if not name or name[0].isdigit():
        return f"key_{name}"
    # Prometheus keeps two underscores at the beginning, which in a scrape are for labels of its own.
    return f"key{name}" if name.startswith("_") else name


def label_value(value: object) -> str:
    """Return an attribute's value as a label's, written as Prometheus writes those that come by OTLP."""
    if isinstance(value, str):
        # A lone surrogate would make all of a page unreadable.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, (list, tuple)):
        return label_value(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
    return label_value(str(value))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value and not 1e-6 <= abs(value) < 1e21:
        # The digits are Python's own, the shortest; of the exponent's a leading zero is left out.
        return repr(value).replace("e-0", "e-")
    return format(Decimal(repr(value)), "f").removesuffix(".0")
