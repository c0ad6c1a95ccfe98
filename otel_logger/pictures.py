"""Pictures: images that were taken, as the files that are stored, with their masks and something to look at.

All of it is slow, and for another thread than the training's. Nothing is drawn by chance: the same image becomes the
same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from otel_logger.host_arrays import Array
from otel_logger.images import Taken
from otel_logger.label_colours import colour_of
from otel_logger.label_images import encode_labels, to_labels
from otel_logger.overlays import distinct, overlay
from otel_logger.pillow import lossless_webp, resized
from otel_logger.pixels import Pixels, to_pixels
from otel_logger.png import to_png
from otel_logger.thumbnails import data_uri, sheet

__all__ = ["MOST_LABELS", "Label", "MaskPicture", "Picture", "encode_picture"]

THUMBNAIL_SIDE = 256
TILE_SIDE = 128
MOST_LABELS = 100
"""Labels of a mask that are told of, the lowest first."""

_MOST_PANELS = 8
_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Label:
    """A label that occurs in a mask: its number, its name if it has one, and its colour as `#rrggbb`."""

    number: int
    name: str | None
    colour: str


@dataclass(frozen=True, slots=True)
class MaskPicture:
    """A mask of an image: `data` is a PNG of the exact labels, and `overlay` a picture of them over the image.

    `encoding` says how the PNG holds the labels, see `label_images`; `width` and `height` are its own. `labels` are
    those that occur, at most the lowest 100 of `label_count`.
    """

    name: str
    data: bytes
    encoding: str
    width: int
    height: int
    overlay: bytes
    overlay_media_type: str
    overlay_extension: str
    labels: tuple[Label, ...]
    label_count: int

    @property
    def legend(self) -> dict[str, dict[str, str]]:
        """Return the colour and, where it has one, the name of each of the labels, as JSON holds it."""
        return {
            str(label.number): {"colour": label.colour} | ({} if label.name is None else {"name": label.name})
            for label in self.labels
        }


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as a file without loss, its size in pixels, and its masks.

    `thumbnail` is a data URI of at most 100,000 characters, of the image and beside it its overlays; `tile` is the
    same, smaller, for a gallery. `faults` say for each mask that is lost why.
    """

    data: bytes
    media_type: str
    extension: str
    width: int
    height: int
    thumbnail: str
    tile: Pixels
    masks: tuple[MaskPicture, ...]
    faults: tuple[str, ...]


def encode_picture(taken: Taken, image_format: str = "png", names: Mapping[int, str] | None = None) -> Picture:
    """Encode an image by the rules of `to_pixels`, and its masks with the names of their labels.

    `image_format` is `png`, or `webp`: lossless, and PNG all the same where an image is too large for WebP or Pillow
    was built without it. ValueError when it is no image.
    """
    if isinstance(taken.pixels, ValueError):
        raise taken.pixels
    pixels = to_pixels(taken.pixels)
    data, media_type, extension = _encoded(pixels, image_format)
    panels = [pixels]
    masks = []
    faults = []
    for name, mask in taken.masks.items():
        try:
            picture, blended = _mask(pixels, name, mask, image_format, names or {})
        except ValueError as error:
            faults.append(f"mask {name!r}: {error}")
            continue
        masks.append(picture)
        if len(panels) < _MOST_PANELS:
            panels.append(resized(blended, THUMBNAIL_SIDE))
    panels[0] = resized(pixels, THUMBNAIL_SIDE)
    is_whole = len(panels) == 1 and panels[0] is pixels and extension == "png"
    thumbnail = data_uri(_shown(panels, THUMBNAIL_SIDE), data if is_whole else None)
    height, width = pixels.shape[:2]
    tile = _shown(panels, TILE_SIDE)
    return Picture(data, media_type, extension, width, height, thumbnail, tile, tuple(masks), tuple(faults))


def _shown(panels: list[Pixels], side: int) -> Pixels:
    small = [resized(panel, side) for panel in panels]
    return small[0] if len(small) == 1 else sheet(small, _COLUMNS)


def _encoded(pixels: Pixels, image_format: str) -> tuple[bytes, str, str]:
    if image_format == "webp" and (webp := lossless_webp(pixels)) is not None:
        return webp, "image/webp", "webp"
    return to_png(pixels), "image/png", "png"


def _mask(
    pixels: Pixels, name: str, mask: Array | ValueError, image_format: str, names: Mapping[int, str]
) -> tuple[MaskPicture, Pixels]:
    if isinstance(mask, ValueError):
        raise mask
    labels = to_labels(mask)
    data, encoding = encode_labels(labels)
    found = distinct(labels)
    told = tuple(Label(number, names.get(number), colour_of(number)) for number in found[:MOST_LABELS].tolist())
    blended = overlay(pixels, labels, names.keys())
    height, width = labels.shape
    overlaid = _encoded(blended, image_format)
    return MaskPicture(name, data, encoding, width, height, *overlaid, told, len(found)), blended
