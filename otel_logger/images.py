"""Images and masks as users pass them, taken out of the caller's hands.

Taking is all that the training waits for: each image is looked at, and copied. What becomes of the copies, on another
thread, is in `pictures`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from otel_logger.host_arrays import Array, Part, copy_all, described, parts_of
from otel_logger.masks import Fault, mask_parts, one_mask
from otel_logger.pixels import oriented
from otel_logger.recycled import RecycledMemory

__all__ = ["Taken", "Taking", "take_images"]

_MEMORY = RecycledMemory()

_Shape: TypeAlias = Callable[[Part, Array], Array]
"""Shows a part of an array, or of its copy, in the shape of an image or a mask; ValueError when it has none."""


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
        arrays = (self.pixels, *self.masks.values())
        return sum(array.nbytes for array in arrays if not isinstance(array, ValueError))


@dataclass(frozen=True, slots=True)
class Taking:
    """What one call has passed: its images in their order, and what is lost beside them."""

    images: list[Taken]
    faults: list[Fault]


def take_images(images: object, masks: object = None, channels_last: bool = False) -> Taking:
    """Copy images and their masks into memory of our own. Never raises, and keeps nothing of the caller's.

    A list or tuple is a sequence of images; anything else of at most three dimensions is one image, and of more a batch
    along the first. Arrays, PyTorch tensors, Pillow images and nested lists of numbers are taken: `oriented` in
    `pixels` says which shapes, `mask_parts` and `one_mask` in `masks` those of masks. What is no image, or holds
    nothing, is an item with a ValueError. Tensors on a device are waited for; see `hold_images`.
    """
    try:
        return _taken(images, masks, channels_last)
    except Exception as error:
        # Classes of the caller's may do anything, and memory may be short.
        return Taking([Taken(0, described("images cannot be taken", error))], [])


def _taken(images: object, masks: object, channels_last: bool) -> Taking:
    def as_image(part: Part, array: Array) -> Array:
        return oriented(part.of(array), channels_last or part.whole.channels_last)

    def as_mask(part: Part, array: Array) -> Array:
        return one_mask(part.of(array))

    parts = _judged(parts_of(images, "an image", 3), as_image)
    named, faults = mask_parts(masks, len(parts))
    masked = {name: _judged(of_name, as_mask) for name, of_name in named.items()}
    try:
        copies = copy_all(
            [part for row in (parts, *masked.values()) for part in row if isinstance(part, Part)], _MEMORY
        )
    except Exception as error:
        # There is no memory.
        lost = described("cannot be copied", error)
        return Taking([Taken(index, lost) for index in range(len(parts))], faults)
    taken = [Taken(index, image) for index, image in enumerate(_copied(parts, copies, as_image))]
    for name, of_name in masked.items():
        for image, mask in zip(taken, _copied(of_name, copies, as_mask), strict=False):
            image.masks[name] = mask
    return Taking(taken, faults)


def _judged(parts: list[Part | ValueError], shape: _Shape) -> list[Part | ValueError]:
    """Return the parts with what has no possible shape made an error, before it is copied."""
    judged: list[Part | ValueError] = []
    for part in parts:
        try:
            if isinstance(part, Part):
                shape(part, part.whole.array)
            judged.append(part)
        except ValueError as error:
            judged.append(error.with_traceback(None))
    return judged


def _copied(parts: list[Part | ValueError], copies: dict[int, Array], shape: _Shape) -> list[Array | ValueError]:
    return [shape(part, copies[id(part.whole)]) if isinstance(part, Part) else part for part in parts]
