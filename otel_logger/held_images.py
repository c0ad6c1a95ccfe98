"""Images and masks on a device, copied there, so that the training does not wait for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from otel_logger.devices import keep_on_device
from otel_logger.host_arrays import HostArray, described, items_of, own_copy
from otel_logger.images import Taking, take_images
from otel_logger.recycled import RecycledMemory
from otel_logger.values import is_device_tensor

__all__ = ["HeldImages", "hold_images"]

Keep: TypeAlias = Callable[[list[Any]], tuple[list[Any], Callable[[], None]]]
"""Copies tensors on their device; returns the copies, and what waits until they are made."""

# Copies on the host live as long as the device takes, and are rare beside those on it.
_MEMORY = RecycledMemory(kept=0)


@dataclass(frozen=True, slots=True)
class HeldImages:
    """Images that are not all on the host yet.

    `take` waits for their device and does what `take_images` does: not on the training's thread. `nbytes` is what they
    hold, on the device and on the host, and `count` about how many images there are.
    """

    take: Callable[[], Taking]
    nbytes: int
    count: int


def hold_images(
    images: object, masks: object = None, channels_last: bool = False, keep: Keep = keep_on_device
) -> HeldImages | None:
    """Copy images and masks where they are, if any is a tensor on a device; None when none is.

    Never raises and never waits for a device. What is on the host is copied there, so that all of a call is of the
    moment of that call.
    """
    named = _named(masks)
    values = [images, *named.values()]
    # Looked at once: a sequence may make its items anew each time.
    rows = [_items(value) for value in values]
    leaves = [leaf for value, row in zip(values, rows, strict=True) for leaf in (row if row is not None else [value])]
    tensors = [leaf for leaf in leaves if _is_on_device(leaf)]
    if not tensors:
        return None
    copies, wait = _kept(tensors, keep)
    # By identity: tensors are compared by their values, on the device.
    on_device = dict(zip(map(id, tensors), copies, strict=True))
    held = [on_device[id(leaf)] if id(leaf) in on_device else own_copy(leaf, _MEMORY) for leaf in leaves]
    rest = iter(held)
    held_images, *held_masks = [next(rest) if row is None else list(islice(rest, len(row))) for row in rows]
    count = 1 if rows[0] is None else len(rows[0])

    def take() -> Taking:
        try:
            wait()
        except Exception as error:
            return take_images([described("the device has failed", error)] * count)
        by_name = dict(zip(named, held_masks, strict=True))
        return take_images(held_images, by_name if named else masks, channels_last)

    return HeldImages(take, sum(map(_size, held)), count)


def _named(masks: object) -> dict[object, object]:
    try:
        return dict(masks) if isinstance(masks, Mapping) else {}
    except Exception:  # of classes of the caller's: `take_images` says what is wrong
        return {}


def _items(value: object) -> list[object] | None:
    try:
        return items_of(value)
    except Exception:
        return None


def _is_on_device(leaf: object) -> bool:
    try:
        return is_device_tensor(leaf)
    except Exception:
        return False


def _kept(tensors: list[Any], keep: Keep) -> tuple[list[Any], Callable[[], None]]:
    try:
        return keep(tensors)
    except Exception as error:
        return [described("cannot be copied on its device", error)] * len(tensors), lambda: None


def _size(leaf: Any) -> int:
    if isinstance(leaf, HostArray):
        return leaf.nbytes
    return 0 if isinstance(leaf, ValueError) else int(leaf.numel() * leaf.element_size())
