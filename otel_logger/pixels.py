"""Pixels: an array of numbers as the 8-bit image that it stands for."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from otel_logger.host_arrays import Array

__all__ = ["Pixels", "bands", "oriented", "to_pixels"]

Pixels = npt.NDArray[np.uint8]
"""An 8-bit image: height by width, or height by width by 3 (RGB) or 4 (RGBA)."""

_CHANNELS = (1, 3, 4)
# Small enough for the cache, and for another thread to have the interpreter in between.
_BAND = 128 * 1024


def oriented(array: Array, channels_last: bool = False) -> Array:
    """Show an image with its rows first and its channels last, without a copy; ValueError when it is none.

    Two dimensions are a gray image. Three are an image if the dimension of the channels (the first, or with
    `channels_last` the last) is 1 (gray), 3 (RGB) or 4 (RGBA); otherwise dimensions of length 1 are dropped and the
    rest is judged again. Leading dimensions of length 1 are dropped from more than three.
    """
    for shaped in _readings(array):
        if shaped.size == 0:
            break
        if shaped.ndim == 2:
            return shaped
        if shaped.ndim == 3 and shaped.shape[2 if channels_last else 0] in _CHANNELS:
            rows_first = shaped if channels_last else np.moveaxis(shaped, 0, 2)
            return rows_first[:, :, 0] if rows_first.shape[2] == 1 else rows_first
    msg = (
        f"not an image: shape {array.shape}; use (height, width), or with 1, 3 or 4 channels (channels, height, width)"
        ", or (height, width, channels) and channels_last=True"
    )
    raise ValueError(msg)


def to_pixels(image: Array) -> Pixels:
    """Return an image of `oriented` in 8 bits.

    The values are judged over the whole image: booleans are black and white. Integers within 0 to 255 are kept. Floats
    within 0 to 1 are scaled by 255, within 0 to 255 rounded. Anything else is stretched, its smallest value to 0 and
    its largest to 255, or if it has but one value, clipped. NaN is 0, infinities are the extremes of the finite values.
    """
    if image.dtype == np.uint8:
        return np.ascontiguousarray(image)
    pixels: Pixels = np.empty(image.shape, np.uint8)
    if image.dtype.kind == "b":
        np.multiply(image, np.uint8(255), out=pixels, casting="unsafe")
        return pixels
    # float32 holds every integer of 16 bits; a large image of float64 would be eight times its pixels.
    is_exact = image.dtype.itemsize <= (4 if image.dtype.kind == "f" else 2)
    work = np.float32 if is_exact else np.float64
    with np.errstate(all="ignore"):
        low, high, is_finite = _extremes(image, work)
        if image.dtype.kind in "iu" and low >= 0 and high <= 255:
            np.copyto(pixels, image, casting="unsafe")
            return pixels
        for rows in bands(image):
            pixels[rows] = _scaled(image[rows].astype(work), low, high, is_finite)
    return pixels


def bands(image: Array, size: int = _BAND) -> Iterator[slice]:
    """Yield the rows of an image in bands of about `size` elements: what is done to a whole one holds up others."""
    height = image.shape[0]
    step = max(1, size * height // max(1, image.size))
    for start in range(0, height, step):
        yield slice(start, min(start + step, height))


def _readings(array: Array) -> Iterator[Array]:
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    yield array
    # Composer's destinations squeeze first; that would make gray of an RGB image one pixel wide.
    yield array.squeeze()


def _extremes(image: Array, work: type) -> tuple[np.floating, np.floating, bool]:
    """Return the smallest and the largest finite value, and whether there is no other."""
    low, high, is_finite = work(np.inf), work(-np.inf), True
    for rows in bands(image):
        band: Array = image[rows].astype(work)
        least, most = band.min(), band.max()
        if not (np.isfinite(least) and np.isfinite(most)):
            is_finite = False
            finite = np.isfinite(band)
            least = band.min(where=finite, initial=np.inf)
            most = band.max(where=finite, initial=-np.inf)
        low, high = min(low, least), max(high, most)
    return low, high, is_finite


def _scaled(values: Array, low: np.floating, high: np.floating, is_finite: bool) -> Array:
    """Return a band of floats as values from 0 to 255; it is overwritten."""
    if low > high:
        return np.zeros_like(values)
    missing = None
    if not is_finite:
        missing = np.isnan(values)
        np.clip(values, low, high, out=values)
    if low < 0 or high > 255:
        # Halved, since the distance of the extremes of a type is beyond it.
        span = high / 2 - low / 2
        if span > 0:
            values *= 0.5
            values -= low / 2
            values /= span
            values *= 255
    elif high <= 1:
        values *= 255
    if missing is not None:
        values[missing] = 0
    np.rint(values, out=values)
    return np.clip(values, 0, 255, out=values)
