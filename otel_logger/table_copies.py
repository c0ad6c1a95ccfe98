"""Private copies of cells, made on the caller's thread: shallow where nobody can change a value, without any wait."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from itertools import chain
from typing import Any

from otel_logger.forms import fields_of
from otel_logger.table_cells import ATOMS, json_text, text_of
from otel_logger.table_images import image_cell, is_image
from otel_logger.table_tensors import DeviceCell, Keep, unread
from otel_logger.values import is_tensor

__all__ = ["CellCopies", "unique"]

_DEPTH = 32
_SIMPLE_DTYPES = frozenset("?bBhHiIlLqQefdSU")
_UNCHANGEABLE = frozenset(ATOMS)

_Copy = Callable[[Any, tuple[int, ...]], object]


class CellCopies:
    """Copies the cells of one table; counts what they hold."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of arrays, tensors and images that were copied."""
        self._device: list[DeviceCell] = []
        self._ways: dict[type, _Copy] = {}

    def column(self, cells: Sequence[Any]) -> Sequence[object]:
        """Copy the cells of a column, or part of it; at once where all are alike."""
        kinds = set(map(type, cells))
        if kinds <= _UNCHANGEABLE:
            return cells
        if kinds <= {list, tuple} and _are_atoms(chain.from_iterable(cells)):
            # Tuples, since the garbage collector would visit each list.
            return list(map(tuple, cells))
        if kinds == {dict} and _are_atoms(chain.from_iterable(map(dict.values, cells))) and _are_strings(cells):
            return list(map(dict.copy, cells))
        if len(kinds) == 1 and _is_scalar(kind := next(iter(kinds))):
            # Its module is loaded where its numbers are. A tenth of what asking each takes.
            import numpy as np

            plain: list[object] = np.fromiter(cells, kind, len(cells)).tolist()
            return plain
        return [cell if type(cell) in _UNCHANGEABLE else self.cell(cell) for cell in cells]

    def cell(self, value: Any, within: tuple[int, ...] = ()) -> object:
        """Copy a value. What contains itself, or is nested more than 32 deep, ends in "..."."""
        kind = type(value)
        if kind in _UNCHANGEABLE:
            return value
        try:
            way = self._ways.get(kind)
            if way is None:
                way = self._ways[kind] = self._way(kind)
            return way(value, within)
        except Exception as error:  # user code runs here: properties, iterators, __str__
            # The text of a tensor is its values, for which a device would be waited for.
            return unread(value, error) if is_tensor(value) else text_of(value)

    def keep_on_device(self, keep: Keep) -> None:
        """Have all tensors that are on a device copied there; nothing is waited for."""
        if not self._device:
            return
        try:
            copies, wait = keep([cell.tensor for cell in self._device])
        except Exception as error:  # a device without memory left
            for cell in self._device:
                cell.fail(error)
            return
        once = functools.cache(wait)
        for cell, copy in zip(self._device, copies, strict=True):
            cell.hold(copy, once)

    def _way(self, kind: type) -> _Copy:
        for known, way in _SIMPLE:
            if issubclass(kind, known):
                return way
        if kind.__module__.startswith("pandas.") and kind.__name__ == "NAType":
            return lambda value, within: None
        if is_image(kind):
            return self._image
        if _is_a(kind, "torch", "Tensor"):
            return self._tensor
        if _is_scalar(kind):
            return lambda value, within: value.item()
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            return self._ndarray
        if callable(getattr(kind, "tolist", None)):
            return self._array
        for known, nested in ((Mapping, self._mapping), ((list, tuple), self._list), (AbstractSet, self._set)):
            if issubclass(kind, known):
                return functools.partial(self._nested, nested)
        return functools.partial(self._nested, self._object)

    def _nested(self, way: _Copy, value: Any, within: tuple[int, ...]) -> object:
        if id(value) in within or len(within) >= _DEPTH:
            return "..."
        return way(value, (*within, id(value)))

    def _list(self, value: Any, within: tuple[int, ...]) -> object:
        if _are_atoms(value):
            return tuple(value)
        return tuple([self.cell(cell, within) for cell in value])

    def _mapping(self, value: Any, within: tuple[int, ...]) -> object:
        keys = unique([text_of(key) for key in value])
        return dict(zip(keys, [self.cell(cell, within) for cell in value.values()], strict=True))

    def _set(self, value: Any, within: tuple[int, ...]) -> object:
        on_device = len(self._device)
        cells = [self.cell(cell, within) for cell in value]
        # To sort tensors their device would have to be waited for.
        return tuple(sorted(cells, key=json_text) if len(self._device) == on_device else cells)

    def _object(self, value: Any, within: tuple[int, ...]) -> object:
        fields = fields_of(value)
        return text_of(value) if fields is None else self._mapping(fields, within)

    def _image(self, value: Any, within: tuple[int, ...]) -> object:
        found = image_cell(value)
        if found is None:
            return text_of(value)
        cell, size = found
        self.size += size
        return cell

    def _tensor(self, value: Any, within: tuple[int, ...]) -> object:
        tensor = value.detach()
        if tensor.device.type != "cpu":
            cell = DeviceCell(tensor)
            self._device.append(cell)
            self.size += tensor.numel() * tensor.element_size()
            return cell
        if not tuple(tensor.shape):
            return self.cell(tensor.item(), within)
        self.size += tensor.numel() * tensor.element_size()
        return tensor.clone()

    def _ndarray(self, value: Any, within: tuple[int, ...]) -> object:
        if value.dtype.char not in _SIMPLE_DTYPES or not value.ndim:
            return self._array(value, within)
        self.size += value.nbytes
        return value.copy()

    def _array(self, value: Any, within: tuple[int, ...]) -> object:
        if callable(getattr(value, "to_numpy", None)):  # a column of pandas or its kin
            value = value.to_numpy()
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        kind = getattr(dtype, "kind", "")
        if shape == () and kind in ("M", "m"):
            return _moment(value)
        if dtype is None or not shape or kind in ("O", "V"):
            plain = value.tolist()
            # A long double is a list of itself.
            return float(plain) if type(plain) is type(value) else self.cell(plain, (*within, id(value)))
        copy = value.astype("f8") if kind == "f" and dtype.itemsize > 8 else value.copy()
        self.size += int(copy.nbytes)
        return copy


def unique(names: list[str], reserved: frozenset[str] = frozenset()) -> list[str]:
    """Return names that are distinct, and none that is reserved.

    Of equal names the first keeps it, each other gets the first of `name_2`, `name_3`... that no other has.
    """
    taken = {*names, *reserved}
    if len(taken) == len(names) + len(reserved):
        return names
    result: list[str] = []
    uses = dict.fromkeys(reserved, 1)
    for name in names:
        uses[name] = uses.get(name, 0) + 1
        candidate = name
        while uses[name] > 1 and candidate in taken:
            candidate = f"{name}_{uses[name]}"
            uses[name] += candidate in taken
        taken.add(candidate)
        result.append(candidate)
    return result


def _is_a(kind: type, package: str, *names: str) -> bool:
    """Tell whether a class descends from one of these, which are not imported to ask."""
    return any(base.__module__ == package and base.__name__ in names for base in kind.__mro__)


def _is_scalar(kind: type) -> bool:
    """Tell whether this is a class of NumPy's numbers whose values Python has too."""
    return _is_a(kind, "numpy", "bool", "bool_", "integer", "floating") and kind.__name__ not in (
        "longdouble",
        "timedelta64",
    )


def _are_strings(keys: Iterable[Iterable[object]]) -> bool:
    return {str}.issuperset(map(type, chain.from_iterable(keys)))


def _are_atoms(cells: Iterable[object]) -> bool:
    return _UNCHANGEABLE.issuperset(map(type, cells))


def _moment(value: Any) -> object:
    """Return a moment of NumPy's as Python has it, or if it is finer or of another age, as text."""
    plain = value.item()
    if plain is None or isinstance(plain, date):
        return plain
    if value.dtype.kind == "M":
        coarse = value.astype("M8[us]")
        if coarse == value and isinstance(coarse.item(), date):
            return coarse.item()
    return str(value)


def _datetime(value: datetime, within: tuple[int, ...]) -> object:
    text = value.isoformat()
    if text == "NaT":  # what pandas has for none
        return None
    return text if getattr(value, "nanosecond", 0) else datetime.fromisoformat(text)


_SIMPLE: tuple[tuple[Any, _Copy], ...] = (
    (str, lambda value, within: str.__str__(value)),
    (int, lambda value, within: int(value)),
    (float, lambda value, within: float(value)),
    ((bytes, bytearray, memoryview), lambda value, within: bytes(value)),
    (datetime, _datetime),
    (date, lambda value, within: date.fromisoformat(value.isoformat())),
    (time, lambda value, within: time.fromisoformat(value.isoformat())),
)
