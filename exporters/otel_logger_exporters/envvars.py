"""Typed reading of environment variables from a mapping that is passed in.

An empty value counts as unset and surrounding blanks are ignored, as the specification of OpenTelemetry's variables
has it. A value that cannot be read raises ConfigurationError; the specification would have it warned about and
ignored, which sends a run's data somewhere else than where its author meant.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from otel_logger_exporters.errors import ConfigurationError

__all__ = ["read_bool", "read_choice", "read_int", "read_list", "read_path", "read_ratio", "read_text"]

T = TypeVar("T")

UNITS = {"ms": "whole milliseconds", "bytes": "whole bytes", "": "a whole number"}
"""How a message names what a number is written in; a unit that is not here is named as it is."""


def read_text(environ: Mapping[str, str], name: str, default: T) -> str | T:
    """Return the variable's value without surrounding blanks, or `default` when it is unset or empty."""
    return environ.get(name, "").strip() or default


def read_int(
    environ: Mapping[str, str],
    name: str,
    default: T,
    *,
    unit: str = "",
    minimum: int = 0,
    maximum: int | None = None,
) -> int | T:
    """Return the variable's value as a whole number between `minimum` and `maximum`, both included."""
    text = read_text(environ, name, None)
    if text is None:
        return default
    # int() alone would also take `1_000`, `+5` and digits of other scripts.
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None
    if number is None or number < minimum or (maximum is not None and number > maximum):
        bounds = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
        msg = f"{name}={text!r} is not understood: give {UNITS.get(unit, f'whole {unit}')}, {bounds}"
        raise ConfigurationError(msg)
    return number


def read_ratio(environ: Mapping[str, str], name: str, default: T) -> float | T:
    """Return the variable's value as a number from 0 to 1, both included."""
    text = read_text(environ, name, None)
    if text is None:
        return default
    # float() alone would also take `nan`, `1_0` and digits of other scripts; the pattern takes no more than it does.
    ratio = float(text) if re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e-?[0-9]+)?", text, re.IGNORECASE) else None
    if ratio is None or ratio > 1:
        msg = f"{name}={text!r} is not understood: give a number from 0 to 1"
        raise ConfigurationError(msg)
    return ratio


def read_bool(environ: Mapping[str, str], name: str, default: T) -> bool | T:
    """Return the variable's value as a truth value: `true` or `false` in any case."""
    text = read_text(environ, name, None)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        msg = f"{name}={text!r} is not understood: give true or false"
        raise ConfigurationError(msg)
    return text.lower() == "true"


def read_choice(environ: Mapping[str, str], name: str, default: T, choices: Collection[str]) -> str | T:
    """Return the variable's value in lower case, which must be one of `choices`."""
    text = read_text(environ, name, None)
    if text is None:
        return default
    if text.lower() not in choices:
        msg = f"{name}={text!r} is not understood: give {' or '.join(choices)}"
        raise ConfigurationError(msg)
    return text.lower()


def read_path(environ: Mapping[str, str], name: str, default: T) -> Path | T:
    """Return the variable's value as a path with `~` expanded; nothing is looked up."""
    text = read_text(environ, name, None)
    if text is None:
        return default
    try:
        return Path(text).expanduser()
    except RuntimeError:
        msg = f"{name}={text!r} is not understood: there is no such home folder, write the whole path"
        raise ConfigurationError(msg) from None


def read_list(environ: Mapping[str, str], name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the variable's comma-separated items without surrounding blanks; empty items are left out."""
    items = tuple(item.strip() for item in environ.get(name, "").split(",") if item.strip())
    return items or default
