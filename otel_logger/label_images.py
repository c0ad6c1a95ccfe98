"""Label images: masks as PNG files that hold the exact labels.

Labels from 0 to 255 are a gray PNG of 8 bits, to 65,535 one of 16. Others are four bytes each, the signed 32-bit
integer with its most significant byte first, as the red, green, blue and alpha of a PNG that says so in a tEXt chunk:
it looks like nothing, and is exact.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from otel_logger.host_arrays import Array
from otel_logger.pillow import decoded
from otel_logger.pixels import bands
from otel_logger.png import to_png

__all__ = ["GRAY8", "GRAY16", "INT32", "Labels", "decode_labels", "encode_labels", "to_labels"]

Labels = npt.NDArray[np.integer[Any]]
"""A label image: uint8, uint16 or int32, of shape (height, width)."""

GRAY8 = "gray8"
GRAY16 = "gray16"
INT32 = "int32-rgba"
_TEXT = {"labels": "int32, big-endian, in RGBA"}


def to_labels(mask: Array) -> Labels:
    """Return a mask in the smallest type of labels; ValueError when a value is none.

    Booleans are 0 and 1. Floats must be whole numbers. All must be within 32 bits, signed.
    """
    low, high = 0, 0
    for rows in bands(mask):
        band = mask[rows]
        if mask.dtype.kind == "f" and not (np.isfinite(band).all() and (np.rint(band) == band).all()):
            msg = "not a mask: labels are whole numbers, these have fractions, NaN or infinities"
            raise ValueError(msg)
        low, high = min(low, int(band.min())), max(high, int(band.max()))
    if low < -(2**31) or high >= 2**31:
        msg = f"not a mask: labels from {low} to {high} are beyond 32 bits"
        raise ValueError(msg)
    if low < 0 or high > 65_535:
        return mask.astype(np.int32, order="C")
    return mask.astype(np.uint8 if high <= 255 else np.uint16, order="C")


def encode_labels(labels: Labels) -> tuple[bytes, str]:
    """Return labels as a PNG file, and how it holds them: GRAY8, GRAY16 or INT32."""
    if labels.dtype == np.int32:
        channels = np.ascontiguousarray(labels, ">i4").view(np.uint8).reshape(*labels.shape, 4)
        return to_png(channels, _TEXT), INT32
    return to_png(labels), GRAY8 if labels.dtype == np.uint8 else GRAY16


def decode_labels(png: bytes) -> Labels:
    """Return the labels of a PNG file of `encode_labels`, as uint8, uint16 or int32."""
    image, text = decoded(png)
    if image.ndim == 3 and text.items() >= _TEXT.items():
        return np.ascontiguousarray(image).view(">i4")[:, :, 0].astype(np.int32)
    if image.ndim == 3:
        msg = f"not a label image: {image.shape[2]} channels"
        raise ValueError(msg)
    # Older versions of Pillow read 16 bits as 32.
    return image if image.dtype == np.uint8 else image.astype(np.uint16)
