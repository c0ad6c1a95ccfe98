"""Images in cells of tables: PNG in a `data:` URI, which browsers, Grafana and notebooks show as it is."""

import base64
import io
from typing import Any

from otel_logger.table_cells import Deferred, text_of

__all__ = ["LARGEST_IMAGE", "ImageCell", "image_cell", "is_image"]

LARGEST_IMAGE = 2**20
"""Bytes of the PNG of an image in a cell at most; what is larger is made smaller, for a table is read whole. Images of
any size are for `log_images`."""

_HEAD = "data:image/png;base64,"
_COMPRESSION = 3


class ImageCell(Deferred):
    """A private copy of an image, encoded when the table is written."""

    __slots__ = ("_image",)

    hint = f"{_HEAD}…"

    def __init__(self, image: Any) -> None:
        self._image = image

    @property
    def kind(self) -> str:
        """Images are not encoded only to say that they are."""
        return "image"

    def resolve(self) -> str:
        """Return the data URI; the text of the image if it cannot be encoded."""
        try:
            png = self._image if isinstance(self._image, bytes) else _bounded_png(self._image)
        except Exception as error:
            return f"{text_of(self._image)} ({type(error).__name__}: {error})"
        return _HEAD + base64.b64encode(png).decode("ascii")


def is_image(kind: type) -> bool:
    """Tell whether objects of this class are images: Pillow's, or what shows itself in notebooks as PNG."""
    return _is_pillow(kind) or callable(getattr(kind, "_repr_png_", None))


def image_cell(value: Any) -> tuple[ImageCell, int] | None:
    """Return a copy of an image for a cell, and how many bytes it holds; None when it has no PNG that is small enough.

    An image of Pillow's is copied, and encoded later. Anything else is asked for its PNG now, since nothing tells how
    to copy it.
    """
    if _is_pillow(type(value)):
        copy = value.copy()
        return ImageCell(copy), copy.width * copy.height * len(copy.getbands())
    png = value._repr_png_()
    if isinstance(png, tuple):  # with its metadata
        png = png[0]
    if not isinstance(png, bytes) or len(png) > LARGEST_IMAGE:
        return None
    return ImageCell(png), len(png)


def _is_pillow(kind: type) -> bool:
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in kind.__mro__)


def _bounded_png(image: Any) -> bytes:
    while True:
        png = _png(image)
        if len(png) <= LARGEST_IMAGE:
            return png
        image = image.resize((max(1, image.width * 3 // 4), max(1, image.height * 3 // 4)))


def _png(image: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        image.save(buffer, "PNG", compress_level=_COMPRESSION)
    except OSError:  # colours that PNG does not know, CMYK among them
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", compress_level=_COMPRESSION)
    return buffer.getvalue()
