"""Values: what of anything a caller may log is a number, and what everything else looks like in a log record.

Neither NumPy nor torch is imported: their values are known by the module of their type.
"""

import math
import numbers
from collections import UserString
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any

__all__ = ["NotANumber", "as_number", "flatten", "is_device_tensor", "is_tensor", "key_text", "plain", "text"]

_INT64 = range(-(2**63), 2**63)

LONGEST_TEXT = 8192
"""Characters of one string in a log record: Loki cuts or refuses lines far above this."""

LARGEST_ARRAY = 1024
"""Elements of an array or sequence that are written out; a larger one is described by its shape."""

DEEPEST = 16
"""Levels of nesting that are followed; beyond it, or in a cycle, a value is described."""

LARGEST_VALUE = 2**18
"""Characters of one value in all, an item counted as 16. A list that holds itself ten times would otherwise have 10^16
leaves, and Loki's default refuses a line above 256 KB."""

_ITEM_SIZE = 16


class NotANumber(TypeError):
    """A value that stands for no single real number."""


def text(value: str) -> str:
    """Return `value` as UTF-8 can carry it: a lone surrogate becomes its escape."""
    return str.encode(value, "utf-8", "backslashreplace").decode()


def key_text(key: object) -> str:
    """Return a key of a mapping as text: never raises, whatever the key's `__str__` does."""
    if type(key) is str and key.isascii():
        return key
    try:
        return text(str(key))
    except Exception as error:
        return f"<{type(key).__name__}: {type(error).__name__}>"


def _module(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def is_tensor(value: object) -> bool:
    """Tell whether `value` is a torch tensor (or parameter), without importing torch."""
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(value).__mro__)


def is_device_tensor(value: Any) -> bool:
    """Tell whether `value` is a torch tensor whose content is on a device, where reading it waits for the device."""
    return is_tensor(value) and value.device.type != "cpu"


def as_number(value: Any, on_overflow: Callable[[], None] = lambda: None) -> float | int:
    """Return the number that `value` stands for: a float, or an int where float64 cannot hold it; else NotANumber.

    Numbers are floats (NaN and infinities too), ints, bools (0 or 1), NumPy scalars, `Decimal`, `Fraction`, and arrays
    and CPU tensors of one element of any dtype but complex. An int beyond 64 bits becomes the nearest float64, and
    `on_overflow` is called.
    """
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return _integer(int(value), on_overflow)
    if is_tensor(value):
        if value.numel() != 1 or value.is_complex():
            msg = f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype} is not one real number"
            raise NotANumber(msg)
        return as_number(value.detach().item(), on_overflow)
    if _module(value) == "numpy":
        return _from_numpy(value, on_overflow)
    if isinstance(value, numbers.Integral):
        return _integer(int(value), on_overflow)
    if isinstance(value, (numbers.Real, Decimal)):
        return _real(value)
    msg = f"{type(value).__name__} is not a number"
    raise NotANumber(msg)


def _real(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, ValueError) as error:
        msg = f"{type(value).__name__} is not one real number: {error}"
        raise NotANumber(msg) from error


def _integer(value: int, on_overflow: Callable[[], None]) -> float | int:
    if value in _INT64:
        as_float = float(value)
        return as_float if int(as_float) == value else value
    on_overflow()
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _from_numpy(value: Any, on_overflow: Callable[[], None]) -> float | int:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if getattr(value, "size", 0) != 1 or kind not in "biufO":
        msg = f"numpy {type(value).__name__} of shape {getattr(value, 'shape', ())} is not one real number"
        raise NotANumber(msg)
    if getattr(value, "mask", False):
        msg = "a masked value is not a number"
        raise NotANumber(msg)
    item = value.item()
    # longdouble has no Python counterpart: its item() is itself.
    return as_number(float(item) if kind == "f" else item, on_overflow)


def plain(value: Any) -> Any:
    """Return `value` as data that an OTLP attribute or body can hold: never raises, never waits for a device.

    Strings, numbers, booleans, None and bytes stay; mappings, sequences and sets are followed (keys become strings);
    arrays and CPU tensors of at most 1,024 elements become lists; enums become their value; anything else its `str`,
    cut at 8,192 characters. An int beyond 64 bits becomes its digits. What is too large, or nested too deep, is
    described by its type and size.
    """
    return _plain(value, DEEPEST, _Allowance())


class _Allowance:
    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = LARGEST_VALUE

    def takes(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True


def _plain(value: Any, depth: int, allowance: _Allowance) -> Any:
    try:
        return _convert(value, depth, allowance)
    except Exception as error:
        # A __str__, __iter__ or item() of the caller's may raise anything; it costs this value alone.
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _convert(value: Any, depth: int, allowance: _Allowance) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return value if allowance.takes(len(value)) else f"{len(value)} bytes"
    if isinstance(value, Enum):
        return _plain(value.value, depth - 1, allowance)
    if isinstance(value, str):
        return _cut(value, allowance)
    if isinstance(value, int):
        # int first: a range looks for an int of a subclass by going through all its members.
        number = int(value)
        return number if number in _INT64 else _cut(str(number), allowance)
    if isinstance(value, float):
        return float(value)
    if is_tensor(value):
        if value.device.type != "cpu" or value.numel() > LARGEST_ARRAY:
            return f"tensor of shape {tuple(value.shape)}, dtype {value.dtype}, device {value.device}"
        return _plain(value.detach().tolist(), depth, allowance)
    if _module(value) == "numpy" and hasattr(value, "tolist"):
        if value.size > LARGEST_ARRAY:
            return f"array of shape {value.shape}, dtype {value.dtype}"
        # longdouble has no Python counterpart: its tolist() is itself.
        if type(listed := value.tolist()) is not type(value):
            return _plain(listed, depth, allowance)
    if isinstance(value, (Mapping, Sequence, Set)) and not isinstance(value, UserString):
        size = len(value)
        if depth <= 0 or size > LARGEST_ARRAY or not allowance.takes(size * _ITEM_SIZE):
            return f"{type(value).__name__} of {size} items"
        # islice: an __iter__ of the caller's need not end where its __len__ says.
        if isinstance(value, Mapping):
            return {
                _cut(key_text(key), allowance): _plain(item, depth - 1, allowance)
                for key, item in islice(value.items(), size)
            }
        return [_plain(item, depth - 1, allowance) for item in islice(value, size)]
    if isinstance(value, (numbers.Real, Decimal)):
        try:
            return float(value)
        except (OverflowError, ValueError):
            # A fraction beyond float64, a signalling NaN: their text says more.
            pass
    return _cut(str(value), allowance)


def _cut(value: str, allowance: _Allowance) -> str:
    size = len(value)
    if not allowance.takes(min(size, LONGEST_TEXT)):
        return f"{size} characters"
    return text(value) if size <= LONGEST_TEXT else f"{text(value[:LONGEST_TEXT])}… ({size} characters)"


def flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings with their keys joined by dots; an empty mapping is a leaf."""
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping) and value:
            yield from flatten(value, name)
        else:
            yield name, value
