"""Overlays: an image with the colours of a mask's labels over it, to look at."""

from collections.abc import Collection

import numpy as np

from otel_logger.host_arrays import Array
from otel_logger.label_colours import colours_of
from otel_logger.label_images import Labels
from otel_logger.pillow import flattened
from otel_logger.pixels import Pixels, bands

__all__ = ["distinct", "overlay"]


def overlay(pixels: Pixels, labels: Labels, named: Collection[int] = ()) -> Pixels:
    """Return an image in RGB, half of it the colours of its labels; what is transparent in it lies on white.

    Label 0 is the background and leaves the image as it is, unless it is among those `named`. Labels of another size
    than the image are scaled to it, each pixel that of its nearest label.
    """
    height, width = pixels.shape[:2]
    rows = _nearest(height, labels.shape[0])
    columns = _nearest(width, labels.shape[1])
    table = _table(labels)
    blended: Pixels = np.empty((height, width, 3), np.uint8)
    for band in bands(blended):
        shown = labels[rows[band]]
        if labels.shape[1] != width:
            shown = shown[:, columns]
        image = flattened(pixels[band])
        colours = colours_of(shown) if table is None else np.take(table, shown, axis=0)
        # The mean of two bytes without a wider type.
        mixed = (image & colours) + ((image ^ colours) >> 1)
        if 0 not in named:
            np.copyto(mixed, image, where=(shown == 0)[:, :, None])
        blended[band] = mixed
    return blended


def distinct(labels: Labels) -> Array:
    """Return the labels that occur, in ascending order."""
    if labels.dtype != np.int32:
        occurs = np.zeros(np.iinfo(labels.dtype).max + 1, bool)
        for band in bands(labels):
            occurs[labels[band]] = True
        return np.flatnonzero(occurs)
    found: Array = np.empty(0, np.int32)
    for band in bands(labels):
        found = np.union1d(found, labels[band])
    return found


def _table(labels: Labels) -> Pixels | None:
    """Return the colours of all possible labels, where there are few beside the pixels."""
    if labels.dtype == np.uint8:
        return colours_of(np.arange(256))
    return None


def _nearest(length: int, of: int) -> Array:
    return (2 * np.arange(length) + 1) * of // (2 * length)
