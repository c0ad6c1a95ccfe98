"""Pillow, the only module that imports it: files of pictures but our PNG, and smaller pictures of large ones."""

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from otel_logger.pixels import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["LARGEST_WEBP", "decoded", "flattened", "lossless_webp", "lossy", "resized"]

LARGEST_WEBP = 16_383
"""Pixels of a side beyond which there is no WebP."""

_LARGEST_FACTOR = 64
# Rows of a large image that are reduced at once, so that neither it nor the interpreter is held whole.
_STRIPE = 512 * 1024


def decoded(data: bytes) -> tuple[Pixels, dict[str, str]]:
    """Return the pixels of a picture file, of whatever depth it has, and its texts."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.array(image), {str(key): str(value) for key, value in image.info.items()}


def lossless_webp(pixels: Pixels) -> bytes | None:
    """Return a WebP file of exactly these pixels, gray as RGB; None when there is none.

    A side is too long, or Pillow was built without WebP.
    """
    if max(pixels.shape[:2]) > LARGEST_WEBP:
        return None
    # The fastest method loses a few hundredths in size. Exact: also where nothing is seen of a colour.
    return _saved(_image(pixels), "WEBP", lossless=True, method=0, quality=0, exact=True)


def lossy(pixels: Pixels, quality: int) -> tuple[bytes, str]:
    """Return a small file that looks like these pixels, and its media type: WebP, or where there is none JPEG."""
    data = _saved(_image(pixels), "WEBP", quality=quality, method=0)
    if data is not None:
        return data, "image/webp"
    jpeg = _saved(_image(flattened(pixels)), "JPEG", quality=quality)
    assert jpeg is not None
    return jpeg, "image/jpeg"


def flattened(pixels: Pixels) -> Pixels:
    """Return pixels as RGB: gray in three channels, what is transparent on white."""
    if pixels.ndim == 2:
        return np.repeat(pixels[:, :, None], 3, axis=2)
    if pixels.shape[2] == 3:
        return pixels
    colours = pixels[:, :, :3].astype(np.uint16)
    alpha = pixels[:, :, 3:].astype(np.uint16)
    return ((colours * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def resized(pixels: Pixels, side: int) -> Pixels:
    """Return pixels no higher or wider than `side`, in their proportions; smaller ones as they are."""
    height, width = pixels.shape[:2]
    if max(height, width) <= side:
        return pixels
    # Beyond it the mean of Pillow's whole numbers is one too low.
    factor = min(_LARGEST_FACTOR, max(height, width) // (2 * side))
    small = _reduced(pixels, factor) if factor > 1 else pixels
    scale = side / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(_image(small).resize(size))


def _reduced(pixels: Pixels, factor: int) -> Pixels:
    step = max(1, _STRIPE // (pixels[0].nbytes * factor)) * factor
    stripes = (pixels[start : start + step] for start in range(0, len(pixels), step))
    return np.concatenate([np.asarray(_image(stripe).reduce(factor)) for stripe in stripes])


def _image(pixels: Pixels) -> "Image":
    from PIL import Image

    return Image.fromarray(pixels)


def _saved(image: "Image", kind: str, **parameters: Any) -> bytes | None:
    buffer = io.BytesIO()
    try:
        image.save(buffer, kind, **parameters)
    except (KeyError, OSError):
        # Pillow was built without it, or the picture is too large for it.
        return None
    return buffer.getvalue()
