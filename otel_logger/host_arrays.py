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

__all__ = ["Array", "HostArray", "copy_all", "describe", "host_array", "items_of"]

Array: TypeAlias = npt.NDArray[Any]
"""An array of numbers, of any width."""

_NUMBERS = "biuf"
# Each array begins where any type and any vector instruction may.
_ALIGNMENT = 64
_PILLOW_MODES = ("1", "L", "RGB", "RGBA", "I", "F")


@dataclass(frozen=True, slots=True)
class HostArray:
    """Numbers in the caller's memory, or the bits of bfloat16, which NumPy lacks and which become float32."""

    array: Array
    is_bfloat16: bool = False

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


def host_array(value: object) -> HostArray:
    """Return the numbers of an array, tensor, Pillow image or nested list; ValueError when it holds none.

    PyTorch tensors are detached and brought to the host, which waits for the device if they are on one. Floats that
    NumPy lacks become float32.
    """
    kind = type(value).__name__
    if value is None or isinstance(value, (str, bytes, bytearray, dict)):
        msg = f"not an image: {kind}"
        raise ValueError(msg)
    try:
        found = _found(value)
    except Exception as error:
        # Not chained: a traceback holds the frames, and they the caller's memory.
        raise describe(f"not an image: {kind}", error) from None
    if found.array.dtype.kind not in _NUMBERS:
        msg = f"not an image: {kind} of {found.array.dtype}; use booleans, integers or floats"
        raise ValueError(msg)
    return found


def items_of(value: object) -> list[object] | None:
    """Return the items of a sequence of arrays, or None when it is one array itself: also as nested lists of numbers.

    ValueError when they cannot be read.
    """
    if getattr(getattr(value, "dtype", None), "kind", None) == "O" and getattr(value, "ndim", None) == 1:
        return list(cast(Any, value))
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        return None
    try:
        items = [value[index] for index in range(len(value))]
    except Exception as error:
        raise describe(f"not images: {type(value).__name__} that cannot be read", error) from None
    return None if items and _depth(items) <= 2 else items


def copy_all(arrays: Sequence[HostArray], memory: RecycledMemory) -> list[Array]:
    """Copy all into one piece of memory, so that it is had once for many small arrays."""
    ends = []
    end = 0
    for array in arrays:
        end = -(-end // _ALIGNMENT) * _ALIGNMENT + array.nbytes
        ends.append(end)
    lent = memory.lend(end)
    return [array.copy(lent[end - array.nbytes : end]) for array, end in zip(arrays, ends, strict=True)]


def describe(what: str, error: Exception) -> ValueError:
    """Return `what` is wrong, with the error that says so, and without the memory that its traceback holds."""
    return ValueError(f"{what} ({type(error).__name__}: {error})"[:500])


def _depth(items: Sequence[object]) -> int:
    """Return how deeply numbers are nested, or a depth beyond any array when the first thing inside is none."""
    depth, first = 1, items[0]
    while isinstance(first, (list, tuple)) and first and depth < 4:
        depth, first = depth + 1, first[0]
    return depth if isinstance(first, (Number, np.generic)) else 99


def _found(value: Any) -> HostArray:
    if all(callable(getattr(value, method, None)) for method in ("detach", "cpu", "numpy")):
        return _tensor(value.detach().cpu())
    if callable(getattr(value, "getbands", None)) and value.mode not in _PILLOW_MODES:
        # A palette's numbers are no colours, and other modes have other channels.
        if not value.mode.startswith("I;16"):
            value = value.convert("RGBA" if value.mode in ("LA", "PA", "La", "RGBa") else "RGB")
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
