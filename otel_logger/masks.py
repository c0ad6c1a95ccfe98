"""Masks as users pass them: which label image belongs to which image, and the names of its labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from otel_logger.host_arrays import Array, Part, described, parts_of
from otel_logger.values import key_text

__all__ = ["Fault", "label_names", "mask_parts", "one_mask"]

_MOST_NAMES = 100_000
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """What is lost of a call beside its images: how many things, and why."""

    count: int
    reason: str


def mask_parts(masks: object, images: int) -> tuple[dict[str, list[Part | ValueError]], list[Fault]]:
    """Return the named masks of `images` images, and what is lost beside them.

    `masks` is a mapping of names. A mask of two dimensions is that of the first image; of more, or a sequence, it has
    one for each image. With fewer than there are images the rest have none; with more, the surplus is lost.
    """
    if masks is None:
        return {}, []
    if not isinstance(masks, Mapping):
        return {}, [Fault(1, f"masks must be a mapping of names to label images, not {type(masks).__name__}")]
    found: dict[str, list[Part | ValueError]] = {}
    faults = []
    # Copied in one step: another thread may change it meanwhile.
    for key, value in dict(masks).items():
        name = key_text(key)[:_LONGEST_NAME]
        parts = parts_of(value, "a mask", 2)
        if name in found:
            faults.append(Fault(len(parts), f"a second mask is named {name!r}"))
            continue
        if len(parts) > images:
            surplus = len(parts) - images
            faults.append(
                Fault(surplus, f"mask {name!r} has {len(parts)} label images where there are {images} images")
            )
        found[name] = parts[:images]
    return found, faults


def one_mask(labels: Array) -> Array:
    """Show a label image in its two dimensions, without those of length 1; ValueError when it has not two."""
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
    """Return the names of labels as text by whole numbers, and what is wrong with the rest. Never raises.

    Keys may be integers, floats without a fraction, and text of an integer; names may be anything.
    """
    if labels is None:
        return {}, []
    if not isinstance(labels, Mapping):
        return {}, [Fault(1, f"names of labels must be a mapping of integers to text, not {type(labels).__name__}")]
    try:
        entries = dict(labels)
    except Exception as error:
        return {}, [Fault(1, str(described("names of labels cannot be read", error)))]
    names: dict[int, str] = {}
    wrong = []
    for key, name in islice(entries.items(), _MOST_NAMES):
        number = _label(key)
        if number is None:
            wrong.append(key_text(key)[:_LONGEST_NAME])
        else:
            names[number] = key_text(name)[:_LONGEST_NAME]
    faults = [Fault(len(wrong), f"labels are integers, not {wrong[0]!r}")] if wrong else []
    if len(entries) > _MOST_NAMES:
        faults.append(Fault(len(entries) - _MOST_NAMES, f"more than {_MOST_NAMES} names of labels"))
    return names, faults


def _label(key: Any) -> int | None:
    # A tensor is not asked: it may be on a device, and reading it would wait for that.
    try:
        if isinstance(key, str):
            return int(key)
        if isinstance(key, (int, float, np.bool_, np.integer, np.floating)):
            return int(key) if key == int(key) else None
    except (ValueError, OverflowError):
        pass
    return None
