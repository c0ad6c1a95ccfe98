"""Values: what of anything a caller may log is a number, and what everything else looks like in a log record.

Neither NumPy nor torch is imported: their values are known by the module of their type.
"""

import math
import numbers
import re
from collections import UserString
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any

from otel_logger.forms import fields_of, form_of, stable_text

__all__ = ["NotANumber", "as_number", "flatten", "is_device_tensor", "is_tensor", "key_text", "plain", "text"]

_INT64 = range(-(2**63), 2**63)

LONGEST_TEXT = 8192
"""Characters of one string in a log record: Loki cuts or refuses lines far above this."""

LARGEST_ARRAY = 1024
"""Elements of an array or sequence that are written out; a larger one is described by its shape."""

DEEPEST = 16
"""Levels of nesting that are followed; beyond it, or in a cycle, a value is described."""

LARGEST_VALUE = 2**18
"""Characters of one value in all, an item counted as 16; strings of 48 stay even beyond it. A list that holds itself
ten times would otherwise have 10^16 leaves, and Loki's default refuses a line above 256 KB."""

_ITEM_SIZE = 16
_SHORT = 48
_LONGEST_TYPE = 20
_CUT = re.compile(r"… \(\d+ characters\)\Z")

_TENSOR_MODULES = ("torch", "torch.nn.parameter")
"""Where classes of tensors are whose content is theirs alone."""


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


def plain(value: Any, on_cut: Callable[[], None] = lambda: None) -> Any:
    """Return `value` as data that an OTLP attribute or body can hold: never raises, never waits for a device.

    Strings, numbers, booleans, None and bytes stay; mappings, sequences and sets are followed (keys become strings,
    sets are sorted); arrays and CPU tensors of at most 1,024 elements become lists; enums become their value. Objects
    with fields become mappings, and functions, classes and modules their names (`otel_logger.forms`); anything else its
    `str` without addresses in memory, cut at 8,192 characters. An int beyond 64 bits becomes its digits. What is too
    large, nested too deep, or a container in itself, is described by its type and size; `on_cut` is called for each
    value that is.
    """
    kind = type(value)
    if kind is float or kind is bool or value is None:
        return value
    return _plain(value, DEEPEST, _Allowance(on_cut))


class _Allowance:
    """What is left of a value's size, and the containers that what is looked at stands in."""

    __slots__ = ("_left", "inside", "on_cut")

    def __init__(self, on_cut: Callable[[], None]) -> None:
        self._left = LARGEST_VALUE
        self.inside: set[int] = set()
        self.on_cut = on_cut

    def takes(self, items: int) -> bool:
        return self._spend(items * _ITEM_SIZE, always=False)

    def takes_text(self, size: int) -> bool:
        # Short ones always: what describes a value must stay when it is looked at again.
        return self._spend(min(size, LONGEST_TEXT), always=size <= _SHORT)

    def takes_bytes(self, size: int) -> bool:
        return self._spend(size, always=False)

    def _spend(self, size: int, *, always: bool) -> bool:
        if size > self._left and not always:
            return False
        self._left -= size
        return True


def _plain(value: Any, depth: int, allowance: _Allowance) -> Any:
    try:
        return _convert(value, depth, allowance)
    except Exception as error:
        # A __str__, __iter__ or item() of the caller's may raise anything; it costs this value alone.
        return _cut(f"<{type(value).__name__}: {type(error).__name__}>", allowance)


def _convert(value: Any, depth: int, allowance: _Allowance) -> Any:
    kind = type(value)
    if kind is str:
        return _cut(value, allowance)
    if kind is float or kind is bool or value is None:
        return value
    if kind is dict or kind is list or kind is tuple:
        return _follow(value, value, depth, allowance)
    if isinstance(value, bytes):
        return value if allowance.takes_bytes(len(value)) else _told(f"{len(value)} bytes", allowance)
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
        return _convert_tensor(value, depth, allowance)
    if _module(value) == "numpy" and hasattr(value, "tolist"):
        if value.size > LARGEST_ARRAY:
            return _cut(f"array of shape {value.shape}, dtype {value.dtype}", allowance)
        # longdouble has no Python counterpart: its tolist() is itself.
        if type(listed := value.tolist()) is not kind:
            return _plain(listed, depth, allowance)
    return _convert_object(value, depth, allowance)


def _convert_tensor(value: Any, depth: int, allowance: _Allowance) -> Any:
    # Of a class of its own, a tensor may be shared out to other processes, and reading it wait for them.
    is_local = type(value).__module__ in _TENSOR_MODULES and value.device.type == "cpu"
    if is_local and value.numel() <= LARGEST_ARRAY:
        # Sparse ones, or such as have shapes alone, cannot be listed.
        with suppress(RuntimeError, NotImplementedError):
            return _plain(value.detach().tolist(), depth, allowance)
    return _cut(f"tensor of shape {tuple(value.shape)}, dtype {value.dtype}, device {value.device}", allowance)


def _convert_object(value: Any, depth: int, allowance: _Allowance) -> Any:
    if not isinstance(value, type) and (named := fields_of(value)) is not None:
        return _follow(value, named, depth, allowance)
    if (form := form_of(value)) is not None:
        return _cut(form, allowance) if isinstance(form, str) else _follow(value, form, depth, allowance)
    if isinstance(value, (Mapping, Sequence, Set)) and not isinstance(value, UserString):
        return _follow(value, value, depth, allowance)
    if isinstance(value, (numbers.Real, Decimal)):
        try:
            return float(value)
        except (OverflowError, ValueError):
            # A fraction beyond float64, a signalling NaN: their text says more.
            pass
    return _cut(stable_text(value), allowance)


def _follow(value: Any, content: Any, depth: int, allowance: _Allowance) -> Any:
    """Return the items of `content`, which are those of `value`, made plain; or what describes it."""
    size = len(content)
    place = id(value)
    if place in allowance.inside:
        return _told(f"{type(value).__name__[:_LONGEST_TYPE]} of {size} items, in itself", allowance)
    if depth <= 0 or size > LARGEST_ARRAY or not allowance.takes(size):
        return _told(f"{type(value).__name__[:_LONGEST_TYPE]} of {size} items", allowance)
    allowance.inside.add(place)
    try:
        # A dict that another thread changes meanwhile cannot be gone through; its copy is made in one step.
        content = content.copy() if type(content) in (dict, set) else content
        # islice: an __iter__ of the caller's need not end where its __len__ says.
        if isinstance(content, Mapping):
            return {
                _cut(key_text(key), allowance): _plain(item, depth - 1, allowance)
                for key, item in islice(content.items(), size)
            }
        items = [_plain(item, depth - 1, allowance) for item in islice(content, size)]
    finally:
        allowance.inside.discard(place)
    # The order of a set is another one in each process.
    return sorted(items, key=_order) if isinstance(content, (set, frozenset)) else items


def _order(item: Any) -> tuple[bool, float, str]:
    is_number = isinstance(item, (int, float)) and item == item
    return not is_number, item if is_number else 0.0, repr(item)


def _told(description: str, allowance: _Allowance) -> str:
    allowance.on_cut()
    allowance.takes_text(len(description))
    return description


def _cut(value: str, allowance: _Allowance) -> str:
    size = len(value)
    written = value if value.isascii() else text(value[: LONGEST_TEXT + _SHORT])
    if not allowance.takes_text(len(written)):
        return _told(f"{size} characters", allowance)
    if len(written) <= LONGEST_TEXT:
        return written
    if max(size, len(written)) <= LONGEST_TEXT + _SHORT and _CUT.search(written, LONGEST_TEXT):
        # It was cut before.
        return written
    allowance.on_cut()
    return f"{written[:LONGEST_TEXT]}… ({size} characters)"


def flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings with their keys joined by dots; an empty mapping is a leaf."""
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping) and value:
            yield from flatten(value, name)
        else:
            yield name, value
