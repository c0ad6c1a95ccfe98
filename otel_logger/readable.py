"""Readable forms of what commands print: sizes, times, numbers, and text that does a terminal no harm."""

import json
import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

__all__ = ["STATE_STYLES", "as_json", "duration", "moment", "number", "size", "text"]

STATE_STYLES = {"running": "green", "failed": "red", "interrupted": "yellow", "preempted": "yellow", "lost": "red"}
"""The colours of a run's states; `finished` is as it should be and needs none."""

_SECOND = 1_000_000_000
_UNITS = ("kB", "MB", "GB", "TB", "PB")


def size(count: int) -> str:
    """Return bytes in three digits and a decimal unit: `512 B`, `1.23 MB`; nothing is `0`."""
    if count < 1000:
        return f"{count} B" if count else "0"
    amount = float(count)
    for unit in _UNITS:
        amount /= 1000
        # What rounds up to four digits belongs to the next unit.
        if amount < 999.5 or unit == _UNITS[-1]:
            break
    decimals = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
    return f"{amount:.{decimals}f} {unit}"


def duration(time_ns: int) -> str:
    """Return a time span in its two largest units, below a minute in one: `1h 02m`, `35.2s`, `120ms`."""
    if time_ns < _SECOND:
        return f"{time_ns / 1e6:.3g}ms" if time_ns < 0.9995 * _SECOND else "1.0s"
    seconds = round(time_ns / _SECOND)
    if time_ns < 59.95 * _SECOND:
        return f"{time_ns / _SECOND:.1f}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    minutes = seconds // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h {minutes % 60:02}m"
    return f"{minutes // 1440}d {minutes // 60 % 24:02}h"


def moment(time_ns: int) -> str:
    """Return a point in time as this machine's clock shows it, to the minute."""
    try:
        return datetime.fromtimestamp(time_ns / _SECOND).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return str(time_ns)


def number(value: Any) -> str:
    """Return a value that was logged in few digits; a whole number whole."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.5g}" if isinstance(value, float) else text(value)


def text(value: Any) -> str:
    """Return a value in one line; what is not printable, such as an escape, is written as Python writes it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(value))


def as_json(value: Any) -> str:
    """Return dataclasses, paths and plain data as JSON in one line; NaN and infinities are strings, as in OTLP's."""
    return json.dumps(_plain(value), default=str)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if isinstance(value, Path) else value
