"""Host arrays: anything that holds numbers, seen as NumPy's array without a copy, and copied once.

Neither torch nor Pillow is imported: their objects are known by their methods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from otel_logger.recycled import RecycledMemory

__all__ = ["Array", "HostArray", "Part", "copy_all", "described", "items_of", "own_copy", "parts_of"]

Array: TypeAlias = npt.NDArray[Any]
"""An array of numbers, of any width."""

_NUMBERS = "biuf"
# Each array begins where any type and any vector instruction may.
_ALIGNMENT = 64
_PILLOW_MODES = ("1", "L", "RGB", "RGBA", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")


@dataclass(frozen=True, slots=True)
class HostArray:
    """Numbers in the caller's memory.

    With `is_bfloat16` they are the bits of that type, which NumPy lacks and which becomes float32; with `channels_last`
    they are an image whose channels are last whatever the caller says of others.
    """

    array: Array
    is_bfloat16: bool = False
    channels_last: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of a copy."""
        return np.dtype(np.float32) if self.is_bfloat16 else self.array.dtype

    @property
    def nbytes(self) -> int:
        """Return the size of a copy."""
        return self.array.size * self.dtype.itemsize

    def copy(self, memory: npt.NDArray[np.uint8]) -> Array:
        """Copy into `memory`, which is as large as a copy."""
        copy: Array = memory.view(self.dtype).reshape(self.array.shape)
        if self.is_bfloat16:
            np.left_shift(self.array, 16, out=copy.view(np.uint32), dtype=np.uint32)
        else:
            np.copyto(copy, self.array)
        return copy


@dataclass(frozen=True, slots=True)
class Part:
    """One array: a whole, or one item of a batch, which is copied as a whole."""

    whole: HostArray
    index: int | None = None

    def of(self, array: Array) -> Array:
        """Show this part of the whole, or of a copy of it."""
        return array if self.index is None else array[self.index]


def parts_of(value: object, noun: str, dimensions: int) -> list[Part | ValueError]:
    """Return the arrays of a call, or what is wrong with each: `noun` says what they should be.

    Sequences, and arrays of objects, have as many as they have items. Anything else is one, or if it has more than
    `dimensions`, a batch along the first. Nested lists of numbers alone are arrays themselves. PyTorch tensors are
    detached and brought to the host, which waits for the device if they are on one.
    """
    try:
        items = items_of(value)
    except Exception as error:
        return [described(f"not {noun}: {type(value).__name__} that cannot be read", error)]
    if items is not None:
        parts = [_part(item, noun) for item in items]
        return parts or [ValueError(f"not {noun}: an empty {type(value).__name__}")]
    whole = _part(value, noun)
    if isinstance(whole, ValueError) or whole.whole.array.ndim <= dimensions:
        return [whole]
    count = len(whole.whole.array)
    return [Part(whole.whole, index) for index in range(count)] or [
        ValueError(f"not {noun}: shape {whole.whole.array.shape}")
    ]


def copy_all(parts: Sequence[Part], memory: RecycledMemory) -> dict[int, Array]:
    """Copy all into one piece of memory, which is had at once, and each batch as a whole; return them by `id`."""
    wholes = {id(part.whole): part.whole for part in parts}
    starts = {}
    end = 0
    for key, whole in wholes.items():
        starts[key] = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = starts[key] + whole.nbytes
    lent = memory.lend(end)
    return {key: whole.copy(lent[starts[key] : starts[key] + whole.nbytes]) for key, whole in wholes.items()}


def items_of(value: object) -> list[object] | None:
    """Return the items of a sequence, or of an array of objects; None for one array itself, also as nested numbers.

    Characters and bytes are no sequences. An item that cannot be read is a ValueError.
    """
    is_objects = isinstance(value, np.ndarray) and value.dtype.kind == "O" and value.ndim == 1
    if not is_objects and (not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview))):
        return None
    values = cast(Sequence[object], value)
    items = [_item(values, index) for index in range(len(values))]
    return None if items and _depth(items) <= 2 else items


def own_copy(value: object, memory: RecycledMemory) -> HostArray | ValueError:
    """Return a copy of one image, mask or batch of them, or what is wrong with it; `parts_of` takes either."""
    part = _part(value, "an image")
    if isinstance(part, ValueError):
        return part
    try:
        (copy,) = copy_all([part], memory).values()
    except Exception as error:
        return described("cannot be copied", error)
    return HostArray(copy, channels_last=part.whole.channels_last)


def described(what: str, error: Exception) -> ValueError:
    """Return `what` is wrong, with the error that says so, and without the memory that its traceback holds."""
    return ValueError(f"{what} ({type(error).__name__}: {error})"[:500])


def _part(value: object, noun: str) -> Part | ValueError:
    kind = type(value).__name__
    try:
        if isinstance(value, ValueError):
            return value
        if value is None or isinstance(value, (str, bytes, bytearray, dict)):
            return ValueError(f"not {noun}: {kind}")
        found = value if isinstance(value, HostArray) else _host_array(value)
    except Exception as error:
        return described(f"not {noun}: {kind}", error)
    if found.array.dtype.kind not in _NUMBERS:
        return ValueError(f"not {noun}: {kind} of {found.array.dtype}; use booleans, integers or floats")
    return Part(found)


def _item(values: Sequence[object], index: int) -> object:
    try:
        return values[index]
    except Exception as error:
        return described("cannot be read", error)


def _depth(items: Sequence[Any]) -> int:
    """Return how deeply numbers are nested, or a depth beyond any array when the first thing inside is none."""
    # By their types: an object of the caller's may raise when it is asked for its class.
    depth, first = 1, items[0]
    while issubclass(type(first), (list, tuple)) and first and depth < 4:
        depth, first = depth + 1, first[0]
    return depth if issubclass(type(first), (Number, np.generic)) else 99


def _host_array(value: Any) -> HostArray:
    if all(callable(getattr(value, method, None)) for method in ("detach", "cpu", "numpy")):
        return _tensor(value.detach().cpu())
    if callable(getattr(value, "getbands", None)) and callable(getattr(value, "convert", None)):
        if value.mode not in _PILLOW_MODES:
            # A palette's numbers are no colours, and other modes have other channels.
            value = value.convert("RGBA" if value.has_transparency_data else "RGB")
        return HostArray(np.asarray(value), channels_last=True)
    return HostArray(np.asarray(value))


def _tensor(tensor: Any) -> HostArray:
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16" and callable(getattr(tensor, "view", None)):
        # The type of its bits by a method, since torch is not imported here.
        bits = tensor.view(tensor.new_empty((0,)).short().dtype).numpy()
        return HostArray(bits.view(np.uint16), is_bfloat16=True)
    if name.startswith(("bfloat16", "float8")):
        tensor = tensor.float()
    return HostArray(np.asarray(tensor.numpy()))
