"""Masks as users pass them: which label image belongs to which image, and the names of its labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from otel_logger.host_arrays import Array, HostArray, host_array, items_of
from otel_logger.values import key_text

__all__ = ["Fault", "MaskSources", "label_names", "mask_sources", "one_mask"]

MaskSources: TypeAlias = dict[str, list[HostArray | ValueError]]
"""For each named mask one for each image, in their order."""

LARGEST_NAMES = 100_000
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """What is lost of a call beside its images: how many things, and why."""

    count: int
    reason: str


def mask_sources(masks: object, images: int) -> tuple[MaskSources, list[Fault]]:
    """Return the named masks of `images` images, as they lie in the caller's memory, and what is wrong beside them.

    `masks` is a mapping of names. A mask of two dimensions is that of the first image; of more, or a sequence, it has
    one for each image. With fewer than there are images the rest have none; with more, the surplus is a fault.
    """
    if masks is None:
        return {}, []
    if not isinstance(masks, Mapping):
        return {}, [Fault(1, f"masks must be a mapping of names to label images, not {type(masks).__name__}")]
    found: MaskSources = {}
    faults = []
    # Copied in one step: another thread may change it meanwhile.
    for key, value in dict(masks).items():
        name = key_text(key)[:LONGEST_NAME]
        parts = list(_parts(value))
        if name in found:
            faults.append(Fault(len(parts), f"two masks are named {name!r}, the second is lost"))
            continue
        if len(parts) > images:
            surplus = len(parts) - images
            faults.append(Fault(surplus, f"mask {name!r} is {len(parts)} label images for {images} images, {surplus}"))
        found[name] = parts[:images]
    return found, faults


def one_mask(labels: Array) -> Array:
    """Show a label image in its two dimensions, dropping those of length 1; ValueError when it has not two."""
    shaped = labels
    while shaped.ndim > 2 and shaped.shape[0] == 1:
        shaped = shaped[0]
    if shaped.ndim > 2:
        shaped = shaped.squeeze()
    if shaped.ndim != 2 or shaped.size == 0:
        msg = f"not a mask: shape {labels.shape}; use (height, width), or (images, height, width)"
        raise ValueError(msg)
    return shaped


def label_names(labels: object) -> tuple[dict[int, str], list[Fault]]:
    """Return the names of labels as text by whole numbers, and what is wrong with the rest.

    Keys may be integers, floats without a fraction, and text of an integer; names may be anything.
    """
    if labels is None:
        return {}, []
    if not isinstance(labels, Mapping):
        return {}, [Fault(1, f"names of labels must be a mapping of integers to text, not {type(labels).__name__}")]
    names: dict[int, str] = {}
    wrong = []
    entries = dict(labels)
    for key, name in islice(entries.items(), LARGEST_NAMES):
        number = _label(key)
        if number is None:
            wrong.append(key_text(key)[:LONGEST_NAME])
        else:
            names[number] = key_text(name)[:LONGEST_NAME]
    faults = [Fault(len(wrong), f"labels are integers, not {wrong[0]!r}")] if wrong else []
    if len(entries) > LARGEST_NAMES:
        faults.append(Fault(len(entries) - LARGEST_NAMES, f"more than {LARGEST_NAMES} names of labels"))
    return names, faults


def _parts(mask: Any) -> Iterator[HostArray | ValueError]:
    try:
        items = items_of(mask)
        if items is not None:
            for item in items:
                yield _part(item)
            return
        whole = mask if isinstance(mask, ValueError) else host_array(mask)
    except ValueError as error:
        yield error
        return
    if isinstance(whole, ValueError) or whole.array.ndim <= 2:
        yield whole
        return
    for part in whole.array:
        yield HostArray(part, whole.is_bfloat16)


def _part(item: object) -> HostArray | ValueError:
    try:
        return item if isinstance(item, ValueError) else host_array(item)
    except ValueError as error:
        return error.with_traceback(None)


def _label(key: Any) -> int | None:
    # A tensor is not asked: it may be on a device, and reading it wait for that.
    if isinstance(key, (bool, int, float, np.bool_, np.integer, np.floating)):
        return int(key) if key == key // 1 else None
    try:
        return int(key) if isinstance(key, str) else None
    except ValueError:
        return None
