"""Images and their masks on their way into the blob store: one by one, or as a gallery."""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_logger import conventions as names
from otel_logger.deposits import Deposits, Moment
from otel_logger.staging import Content
from otel_logger_exporters.consignments import UNLISTED

if TYPE_CHECKING:
    from otel_logger.images import Taken, Taking
    from otel_logger.pictures import MaskPicture, Picture

__all__ = ["log_images"]

LEGEND_BYTES = 8192
"""Of the labels of masks, with their names and colours, in a record, and of masks' names in that of a gallery; an index
of images has all of them."""

MOST_MASKS = 32
"""Of an image, whose record lists them; one with more has an index. Loki refuses records with 64 KB of attributes."""


def log_images(
    deposits: Deposits,
    images: Any,
    name: str,
    channels_last: bool,
    step: int | None,
    masks: Any,
    labels: Any,
    use_table: bool,
) -> None:
    """Copy images and masks now, and store them in the background; raises only what the caller's flags raise."""
    from otel_logger.held_images import hold_images
    from otel_logger.images import take_images

    # An array has no truth, and raises: here that costs the call.
    channels_last, use_table = bool(channels_last), bool(use_table)
    moment = deposits.moment(step)
    call = _Call(deposits, name, labels, use_table, moment)
    # Copied where they are: to fetch them here would make the training wait for its device.
    held = hold_images(images, masks, channels_last)
    if held is None:
        call.put(take_images(images, masks, channels_last))
    elif not deposits.bench.put(lambda: call.put(held.take()), size=held.nbytes):
        deposits.lose("image", held.count, f"Images {name!r} are lost: {deposits.no_room}")


class _Call:
    """The images of one call on their way."""

    def __init__(self, deposits: Deposits, name: str, labels: Any, use_table: bool, moment: Moment) -> None:
        from otel_logger.masks import label_names

        self._deposits = deposits
        self._name = name
        self._use_table = use_table
        self._moment = moment
        self._labels, self._faults = label_names(labels)

    def put(self, taking: "Taking") -> None:
        """Have images encoded, those of a gallery together."""
        for fault in (*self._faults, *taking.faults):
            self._deposits.lose("mask", fault.count, f"Masks of {self._name!r}: {fault.reason}")
        for one in taking.images:
            if isinstance(one.pixels, ValueError):
                self._lose(one.index, one.pixels)
        good = [one for one in taking.images if not isinstance(one.pixels, ValueError)]
        groups = [good] if self._use_table and len(good) > 1 else [[one] for one in good]
        for group in groups:
            job = partial(self._store, group, len(taking.images))
            if not self._deposits.bench.put(job, size=sum(one.nbytes for one in group)):
                self._deposits.lose("image", len(group), f"Images {self._name!r} are lost: {self._deposits.no_room}")

    def _store(self, group: "list[Taken]", count: int) -> None:
        pictures = [(one.index, picture) for one in group if (picture := self._encoded(one)) is not None]
        if len(group) > 1 and pictures:
            self._keep_gallery([picture for _, picture in pictures], count)
            return
        for index, picture in pictures:
            self._keep_one(picture, index, count)

    def _encoded(self, one: "Taken") -> "Picture | None":
        from otel_logger.pictures import encode_picture

        try:
            picture = encode_picture(one, self._deposits.settings.image_format, self._labels)
        except ValueError as error:
            self._lose(one.index, error)
            return None
        for fault in picture.faults:
            self._deposits.lose("mask", 1, f"Image {one.index} of {self._name!r}, {fault}")
        return picture

    def _keep_one(self, picture: "Picture", index: int, count: int) -> None:
        contents = [_content(picture.data, picture.media_type, picture.extension)]
        attributes: dict[str, Any] = {
            names.IMAGE_INDEX: index,
            names.IMAGE_COUNT: count,
            names.IMAGE_WIDTH: picture.width,
            names.IMAGE_HEIGHT: picture.height,
        }
        if len(picture.masks) > MOST_MASKS:
            self._keep_index([picture], attributes, picture.thumbnail)
            return
        if picture.masks:
            attributes[names.MASK_NAMES] = [mask.name for mask in picture.masks]
            attributes[names.MASK_ENCODINGS] = [mask.encoding for mask in picture.masks]
            attributes[names.MASK_LABELS] = _legend(picture.masks)
            for mask in picture.masks:
                contents.append(_content(mask.data, "image/png", "png", names.MASK_URIS))
                contents.append(
                    _content(mask.overlay, mask.overlay_media_type, mask.overlay_extension, names.OVERLAY_URIS)
                )
        self._keep(contents, attributes, picture.thumbnail, 1)

    def _keep_gallery(self, pictures: "list[Picture]", count: int) -> None:
        from otel_logger.galleries import gallery

        self._keep_index(pictures, {names.IMAGE_COUNT: count}, gallery([picture.tile for picture in pictures]))

    def _keep_index(self, pictures: "list[Picture]", attributes: dict[str, Any], body: str) -> None:
        from otel_logger.galleries import gallery_indices

        contents: list[Content] = []
        entries: list[dict[str, Any]] = []
        shown = set(gallery_indices(len(pictures)))
        for place, picture in enumerate(pictures):
            role = names.IMAGE_URIS if place in shown else UNLISTED
            entry = _stored(picture.data, picture.media_type, picture.extension, role, contents)
            entry |= {"width": picture.width, "height": picture.height, "masks": []}
            for mask in picture.masks:
                overlay = _stored(mask.overlay, mask.overlay_media_type, mask.overlay_extension, UNLISTED, contents)
                exact = _stored(mask.data, "image/png", "png", UNLISTED, contents)
                entry["masks"].append(
                    {"name": mask.name, "encoding": mask.encoding, "labels": mask.legend, **exact, "overlay": overlay}
                )
            entries.append(entry)
        index = json.dumps({"version": 1, "name": self._name, "images": entries}, ensure_ascii=True).encode("ascii")
        if masks := [mask for picture in pictures for mask in picture.masks]:
            attributes[names.MASK_NAMES] = _first_names(masks)
            attributes[names.MASK_LABELS] = _legend(masks)
        self._keep([_content(index, "application/json", "json"), *contents], attributes, body, len(pictures))

    def _keep(self, contents: list[Content], attributes: dict[str, Any], body: str, images: int) -> None:
        self._deposits.keep(names.EVENT_IMAGE, self._name, contents, attributes, body, self._moment, images)

    def _lose(self, index: int, error: Exception) -> None:
        self._deposits.lose("image", 1, f"Image {index} of {self._name!r} is lost: {error}")


def _stored(data: bytes, media_type: str, extension: str, role: str, contents: list[Content]) -> dict[str, Any]:
    """Add a blob to `contents`, and return how an index names it."""
    digest = hashlib.sha256(data).hexdigest()
    contents.append(Content(lambda file: file.write(data), media_type, extension, role, digest))
    return {
        "path": f"sha256/{digest[:2]}/{digest}.{extension}",
        "digest": f"sha256:{digest}",
        "size": len(data),
        "media_type": media_type,
    }


def _content(data: bytes, media_type: str, extension: str, role: str = "") -> Content:
    return Content(lambda file: file.write(data), media_type, extension, role, hashlib.sha256(data).hexdigest())


def _first_names(masks: "Sequence[MaskPicture]") -> list[str]:
    """The names of masks, each once, as many as there is room for."""
    named: list[str] = []
    size = 0
    for name in dict.fromkeys(mask.name for mask in masks):
        size += len(name.encode()) + 4
        if size > LEGEND_BYTES:
            break
        named.append(name)
    return named


def _legend(masks: "Sequence[MaskPicture]") -> str:
    """The labels of masks by the mask's name, as JSON, as many as there is room for."""
    legend: dict[str, dict[str, Any]] = {}
    size = 2
    for mask in masks:
        for label, described in mask.legend.items():
            size += len(json.dumps({mask.name: {label: described}}))
            if size > LEGEND_BYTES:
                return json.dumps(legend, ensure_ascii=False)
            legend.setdefault(mask.name, {})[label] = described
    return json.dumps(legend, ensure_ascii=False)
