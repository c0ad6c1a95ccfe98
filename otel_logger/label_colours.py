"""The colours of labels: functions of their numbers alone, the same in every image, run and process.

Labels 0 to 31 have the colours of a table, in which any two are far apart to the eye (0.13 and more in OKLab, where
black and white are 1 apart). All others, negative ones too, have colours that are mixed from their numbers, and may be
much alike.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TABLE", "colour_of", "colours_of"]

_RGB = [
    0xA596D2,
    0xFF3C2D,
    0x0000FF,
    0x00FF00,
    0x006900,
    0x00B4FF,
    0xB400D2,
    0x78000F,
    0xFFE1A5,
    0xFFA5FF,
    0x966987,
    0x0FD296,
    0x005A78,
    0x2D9687,
    0xFF9678,
    0xA57800,
    0x3C69D2,
    0xB42D00,
    0x69FFE1,
    0x2D0FA5,
    0x00A500,
    0xFF00E1,
    0xC30078,
    0xC3B43C,
    0x7800FF,
    0xA5D2FF,
    0xD2F02D,
    0x9669FF,
    0x4B2D5A,
    0xF069A5,
    0x694B0F,
    0x7800A5,
]

TABLE = np.array([[rgb >> 16, rgb >> 8 & 0xFF, rgb & 0xFF] for rgb in _RGB], np.uint8)
"""Red, green and blue of the first labels."""


def colours_of(labels: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint8]:
    """Return the red, green and blue of each label of an array, in a last dimension."""
    # Signed and unsigned numbers of any width are mixed as one: each by its last 32 bits.
    mixed = labels.astype(np.int64).astype(np.uint32)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x45D9F3B)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x45D9F3B)
    mixed ^= mixed >> np.uint32(16)
    channels = np.stack([mixed >> np.uint32(shift) & np.uint32(0xFF) for shift in (0, 8, 16)], axis=-1)
    # Not too dark to be seen on a dark image.
    colours: npt.NDArray[np.uint8] = (channels * 3 // 4 + 64).astype(np.uint8)
    is_first = (labels >= 0) & (labels < len(TABLE))
    colours[is_first] = TABLE[labels[is_first].astype(np.intp)]
    return colours


def colour_of(label: int) -> str:
    """Return the colour of a label as `#rrggbb`."""
    return "#" + colours_of(np.array([label], np.int64)).tobytes().hex()
