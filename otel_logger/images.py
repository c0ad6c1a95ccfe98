"""Images and masks as users pass them, taken out of the caller's hands.

Taking is all that the training waits for: each image is looked at, and copied. What becomes of the copies, on another
thread, is in `pictures`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from otel_logger.host_arrays import Array, HostArray, copy_all, describe, host_array, items_of
from otel_logger.masks import Fault, mask_sources, one_mask
from otel_logger.pixels import oriented
from otel_logger.recycled import RecycledMemory

__all__ = ["Taken", "Taking", "take_images"]

_MEMORY = RecycledMemory()

_Place: TypeAlias = tuple[int, int | None]
"""Which of the copies an image is, or which item of which."""


@dataclass(slots=True)
class Taken:
    """One image and its masks, in memory of our own.

    `pixels` has the shape (height, width) or (height, width, 3 or 4), of any type of boolean, integer or float, and
    each mask (height, width); a ValueError in the place of either says why it is none.
    """

    index: int
    pixels: Array | ValueError
    masks: dict[str, Array | ValueError] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Return the bytes that it holds."""
        arrays = [self.pixels, *self.masks.values()]
        return sum(array.nbytes for array in arrays if not isinstance(array, ValueError))


@dataclass(frozen=True, slots=True)
class Taking:
    """What one call has passed: its images in their order, and what is lost beside them."""

    images: list[Taken]
    faults: list[Fault]


def take_images(images: object, masks: object = None, channels_last: bool = False) -> Taking:
    """Copy images and their masks into memory of our own. Never raises, and changes and keeps nothing of the caller's.

    A list or tuple, or an array of arrays, is a sequence of images; anything else of at most three dimensions is one
    image, and of more a batch along the first. Arrays, PyTorch tensors, Pillow images and nested lists of numbers are
    taken; see `oriented` in `pixels` for their shapes, and `mask_sources` and `one_mask` in `masks` for those of
    masks. What is no image, or holds nothing, is an item with a ValueError. Tensors that are on a device are waited
    for; see `hold_images`.
    """
    try:
        sources, places = _image_sources(images, channels_last)
        labels, faults = mask_sources(masks, len(places))
    except Exception as error:  # of classes of the caller's
        return Taking([Taken(0, describe("not images", error))], [])
    placed: list[tuple[str, list[int | ValueError]]] = []
    for name, parts in labels.items():
        placed.append((name, [_added(part, sources) for part in parts]))
    try:
        copies = copy_all(sources, _MEMORY)
    except Exception as error:
        lost = describe("cannot be copied", error)
        return Taking([Taken(index, lost) for index in range(len(places))], faults)
    taken = [Taken(index, _pixels(copies, place, channels_last)) for index, place in enumerate(places)]
    for name, masks_of_name in placed:
        for image, mask in zip(taken, masks_of_name, strict=False):
            image.masks[name] = mask if isinstance(mask, ValueError) else one_mask(copies[mask])
    return Taking(taken, faults)


def _image_sources(images: object, channels_last: bool) -> tuple[list[HostArray], list[_Place | ValueError]]:
    """Return what to copy, and for each image where it will be among the copies."""
    sources: list[HostArray] = []
    try:
        items = items_of(images)
        if items is None:
            items = [images]
            whole = images if isinstance(images, ValueError) else host_array(images)
            if isinstance(whole, HostArray) and whole.array.ndim > 3:
                return _batch(whole, channels_last)
            return [whole]
    except ValueError as error:
        return [], [error.with_traceback(None)]
    return sources, []
