"""Images and masks on a device, copied there, so that the training does not wait for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from otel_logger.devices import keep_on_device
from otel_logger.host_arrays import HostArray, described, is_sequence, own_copy
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
    try:
        named = dict(masks) if isinstance(masks, Mapping) else {}
        tensors = [leaf for value in (images, *named.values()) for leaf in _leaves(value) if is_device_tensor(leaf)]
    except Exception:  # of classes of the caller's: `take_images` says what is wrong
        return None
    if not tensors:
        return None
    copies, wait = _kept(tensors, keep)
    # By identity: tensors are compared by their values, on the device.
    by_id = dict(zip(map(id, tensors), copies, strict=True))
    held_images = _held(images, "an image", by_id)
    held_masks = {name: _held(value, "a mask", by_id) for name, value in named.items()}
    nbytes = sum(_size(leaf) for value in (held_images, *held_masks.values()) for leaf in _leaves(value))

    def take() -> Taking:
        try:
            wait()
        except Exception as error:
            failure = described("the device has failed", error)
            return take_images([failure for _ in _leaves(held_images)])
        return take_images(held_images, held_masks if isinstance(masks, Mapping) else masks, channels_last)

    return HeldImages(take, nbytes, len(_leaves(held_images)))


def _leaves(value: object) -> list[object]:
    return list(value) if is_sequence(value) else [value]


def _kept(tensors: list[Any], keep: Keep) -> tuple[list[Any], Callable[[], None]]:
    try:
        return keep(tensors)
    except Exception as error:
        return [described("cannot be copied on its device", error)] * len(tensors), lambda: None


def _held(value: object, noun: str, copies: Mapping[int, Any]) -> object:
    if is_sequence(value):
        return [copies[id(item)] if id(item) in copies else own_copy(item, noun, _MEMORY) for item in value]
    return copies[id(value)] if id(value) in copies else own_copy(value, noun, _MEMORY)


def _size(leaf: Any) -> int:
    if isinstance(leaf, HostArray):
        return leaf.nbytes
    return 0 if isinstance(leaf, ValueError) else int(leaf.numel() * leaf.element_size())
