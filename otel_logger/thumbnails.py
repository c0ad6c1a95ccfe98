"""Thumbnails: small pictures as data URIs, which Grafana shows out of a log record."""

import base64
from collections.abc import Sequence

import numpy as np

from otel_logger.pillow import flattened, lossy, resized
from otel_logger.pixels import Pixels
from otel_logger.png import to_png

__all__ = ["LONGEST_URI", "data_uri", "sheet"]

LONGEST_URI = 100_000
"""Characters of a data URI: Loki refuses a line above 256 KiB."""

_LARGEST = LONGEST_URI * 3 // 4 - 50
_QUALITIES = (90, 75, 50)
_GAP = 4
_GRAY = 127


def data_uri(pixels: Pixels, png: bytes | None = None) -> str:
    """Return pixels as a data URI of at most 100,000 characters.

    As PNG (which `png` is, where there is one already) if that is small enough; else, as much as it takes, with less
    detail and smaller.
    """
    if (uri := _fitting(png if png is not None else to_png(pixels), "image/png")) is not None:
        return uri
    side = max(pixels.shape[:2])
    while True:
        small = resized(pixels, side)
        for quality in _QUALITIES:
            data, media_type = lossy(small, quality)
            if (uri := _fitting(data, media_type)) is not None:
                return uri
        # About as many pixels less as the bytes are too many: noise would take many steps.
        side = max(1, int(side * min(0.8, (_LARGEST / len(data)) ** 0.5)))


def sheet(panels: Sequence[Pixels], columns: int) -> Pixels:
    """Return pictures beside and below each other, in RGB, each in the middle of a cell as large as the largest."""
    height = max(panel.shape[0] for panel in panels)
    width = max(panel.shape[1] for panel in panels)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    whole: Pixels = np.full((rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3), _GRAY, np.uint8)
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        top = row * (height + _GAP) + (height - panel.shape[0]) // 2
        left = column * (width + _GAP) + (width - panel.shape[1]) // 2
        whole[top : top + panel.shape[0], left : left + panel.shape[1]] = flattened(panel)
    return whole


def _fitting(data: bytes, media_type: str) -> str | None:
    if len(data) > _LARGEST:
        return None
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"
