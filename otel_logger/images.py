"""Images as users pass them, and the pictures that they become.

Two stages, because only the first may cost the training anything: `snapshot` copies on the caller's thread,
`encode_png` does the rest on a background thread. What cannot be an image is a ValueError for the caller to count.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["THUMBNAIL_BYTES", "THUMBNAIL_SIDE", "Picture", "Pixels", "encode_png", "snapshot", "to_images"]

Pixels: TypeAlias = npt.NDArray[Any]
"""An array of numbers, of any width."""

THUMBNAIL_SIDE = 256
# It travels in the body of a log record, as base64: Loki refuses lines over 256 KiB.
THUMBNAIL_BYTES = 100_000

_CHANNELS = (1, 3, 4)
# Level 6 takes two to four times as long for a tenth less.
_COMPRESSION = 3


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded image: PNG, its size in pixels, and a small PNG of it."""

    png: bytes
    width: int
    height: int
    thumbnail: bytes


def snapshot(images: object) -> list[tuple[int, Pixels | ValueError]]:
    """Copy each image into memory of our own: its index, and its array or what is wrong with it.

    A list or tuple is a sequence of images, anything else of at most three dimensions is one image, and of more a batch
    along the first. PyTorch tensors are detached and copied to the host (which waits for the device if they are on
    one); floats that NumPy lacks, such as bfloat16, become float32, and so does float16.
    """
    if isinstance(images, Sequence) and not isinstance(images, (str, bytes, bytearray)):
        return [(index, _copied_item(images, index)) for index in range(len(images))]
    if _dimensions(images) > 3:
        whole = _copied(images)
        return [(0, whole)] if isinstance(whole, ValueError) else [(i, _judged(image)) for i, image in enumerate(whole)]
    copy = _copied(images)
    return [(0, copy if isinstance(copy, ValueError) else _judged(copy))]


def to_images(images: object, *, channels_last: bool = False) -> list[Pixels | ValueError]:
    """All images as 8-bit pixels, height by width or height by width by 3 or 4, or what is wrong with each.

    The shape: two dimensions are a gray image. Three are an image if the dimension of the channels (the first, or with
    `channels_last` the last) is 1 (gray), 3 (RGB) or 4 (RGBA); otherwise dimensions of length 1 are dropped and the
    rest is judged again. Leading dimensions of length 1 are dropped from more than three.

    The values, judged over the whole image: booleans are black and white. Integers within 0 to 255 are kept. Floats
    within 0 to 1 are scaled by 255, within 0 to 255 rounded. Anything else is stretched, its smallest value to 0 and
    its largest to 255, or if it has but one value, clipped. NaN is 0, infinities are the extremes of the finite values.
    """
    return [_attempted(array, channels_last) for _, array in snapshot(images)]


def encode_png(array: Pixels, channels_last: bool = False) -> Picture:
    """Encode one image by the rules of `to_images`; ValueError when it is none.

    The thumbnail is at most 256 pixels wide and high and at most 100,000 bytes long.
    """
    from PIL import Image

    pixels = _pixels(array, channels_last)
    image = Image.fromarray(pixels)
    png = _png(image)
    return Picture(png, image.width, image.height, _thumbnail(image, png))


def _copied_item(images: Sequence[object], index: int) -> Pixels | ValueError:
    try:
        image = images[index]
    except Exception as error:
        return _failure("cannot be read", error)
    copy = _copied(image)
    return copy if isinstance(copy, ValueError) else _judged(copy)


def _dimensions(image: object) -> int:
    try:
        return int(getattr(image, "ndim", 0))
    except Exception:  # whatever it is, it is judged as one image
        return 0


def _copied(image: object) -> Pixels | ValueError:
    if image is None or isinstance(image, (str, bytes, bytearray, dict)):
        return ValueError(f"not an image: {type(image).__name__}")
    try:
        array = np.array(_host_array(image), copy=True, order="C")
    except Exception as error:
        return _failure(f"not an image: {type(image).__name__}", error)
    if array.dtype.kind not in "biuf":
        return ValueError(f"not an image: {type(image).__name__} of {array.dtype}; use booleans, integers or floats")
    return array


def _host_array(image: object) -> object:
    # By its methods, since importing torch to ask for a class costs seconds.
    if not all(callable(getattr(image, method, None)) for method in ("detach", "cpu", "numpy")):
        return image
    tensor = cast(Any, image).detach().cpu()
    if str(tensor.dtype).removeprefix("torch.").startswith(("bfloat16", "float16", "float8", "half")):
        tensor = tensor.float()
    return tensor.numpy()


def _failure(what: str, error: Exception) -> ValueError:
    # Not chained: a traceback holds the frames, and they the caller's memory.
    return ValueError(f"{what} ({type(error).__name__}: {error})"[:500])


def _judged(array: Pixels) -> Pixels | ValueError:
    # What no channel order can make an image of is said at once, and its memory given back.
    rest = [length for length in array.shape if length != 1]
    if array.ndim < 2 or array.size == 0 or len(rest) > 3:
        return _shape_error(array)
    return array


def _shape_error(array: Pixels) -> ValueError:
    return ValueError(
        f"not an image: shape {array.shape}; use (height, width), or with 1, 3 or 4 channels (channels, height, width)"
        ", or (height, width, channels) and channels_last=True"
    )


def _attempted(array: Pixels | ValueError, channels_last: bool) -> Pixels | ValueError:
    if isinstance(array, ValueError):
        return array
    try:
        return _pixels(array, channels_last)
    except ValueError as error:
        return error.with_traceback(None)


def _pixels(array: Pixels, channels_last: bool) -> Pixels:
    return _to_bytes(_oriented(array, channels_last))


def _oriented(array: Pixels, channels_last: bool) -> Pixels:
    for shaped in _readings(array):
        if shaped.size == 0:
            break
        if shaped.ndim == 2:
            return shaped
        if shaped.ndim == 3 and shaped.shape[2 if channels_last else 0] in _CHANNELS:
            rows_first = shaped if channels_last else np.moveaxis(shaped, 0, 2)
            return rows_first[:, :, 0] if rows_first.shape[2] == 1 else rows_first
    raise _shape_error(array)


def _readings(array: Pixels) -> Iterator[Pixels]:
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    yield array
    # Composer's destinations squeeze first; that would make gray of an RGB image one pixel wide.
    yield array.squeeze()


def _to_bytes(array: Pixels) -> Pixels:
    kind = array.dtype.kind
    if kind == "b":
        white: Pixels = array.astype(np.uint8) * np.uint8(255)
        return white
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if kind not in "iuf":
        msg = f"not an image: {array.dtype}; use booleans, integers or floats"
        raise ValueError(msg)
    # float32 holds every integer of 16 bits; a large image of float64 would be eight times its pixels.
    exact = array.dtype.itemsize <= (4 if kind == "f" else 2)
    with np.errstate(all="ignore"):
        values = array.astype(np.float32 if exact else np.float64)
        return _scaled(values, fraction=kind == "f").astype(np.uint8)


def _scaled(values: Pixels, *, fraction: bool) -> Pixels:
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros_like(values)
    low = values.min(where=finite, initial=np.inf)
    high = values.max(where=finite, initial=-np.inf)
    missing = np.isnan(values)
    values = np.clip(values, low, high)
    if low < 0 or high > 255:
        # Halved, since the distance of the extremes of a type is beyond it.
        span = high / 2 - low / 2
        values = (values / 2 - low / 2) / span * 255 if span > 0 else np.clip(values, 0, 255)
    elif fraction and high <= 1:
        values = values * 255
    values[missing] = 0
    return np.clip(np.rint(values), 0, 255)


def _png(image: "Image") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=_COMPRESSION)
    return buffer.getvalue()


def _thumbnail(image: "Image", png: bytes) -> bytes:
    side = THUMBNAIL_SIDE
    if max(image.size) <= side and len(png) <= THUMBNAIL_BYTES:
        return png
    while True:
        small = image.copy()
        small.thumbnail((side, side))
        encoded = _png(small)
        # Noise does not compress: the bound is kept by fewer pixels.
        if len(encoded) <= THUMBNAIL_BYTES:
            return encoded
        side = side * 3 // 4
