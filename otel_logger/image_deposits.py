"""Images and their masks on their way into the blob store: one by one, or as a gallery."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from otel_logger import conventions as names
from otel_logger.deposits import Deposits, Moment
from otel_logger.staging import Content
from otel_logger_exporters.consignments import UNLISTED

if TYPE_CHECKING:
    from otel_logger.images import Taken
    from otel_logger.pictures import MaskPicture, Picture

__all__ = ["GALLERY_LINKS", "log_images"]

GALLERY_LINKS = 16
"""Images of a gallery that its record links to, those that it shows; its index has all."""


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
    """Copy images and masks now, and store them in the background. Never raises."""
    from otel_logger.images import on_device, take_images

    work = _Work(deposits, name, channels_last, dict(labels) if isinstance(labels, Mapping) else {}, use_table)
    moment = deposits.moment(step)
    held = on_device(images, masks)
    if held is None:
        work.put(take_images(images, masks, channels_last), moment)
        return

    # Copied where they are: to fetch them here would make the training wait for its device.
    def fetch() -> None:
        held.wait()
        work.put(take_images(held.images, held.masks, channels_last), moment)

    if not deposits.bench.put(fetch, size=held.nbytes):
        deposits.lose("image", held.count, f"Images {name!r} are lost: {deposits.no_room}")


class _Work:
    """One call: its images under one name, in one form."""

    def __init__(
        self, deposits: Deposits, name: str, channels_last: bool, labels: Mapping[Any, Any], use_table: bool
    ) -> None:
        self._deposits = deposits
        self._name = name
        self._channels_last = channels_last
        self._labels = labels
        self._use_table = use_table

    def put(self, taken: "Sequence[Taken]", moment: Moment) -> None:
        """Have images encoded, those of a gallery together."""
        for one in taken:
            if isinstance(one.pixels, Exception):
                self._lose(one.index, one.pixels)
        good = [one for one in taken if not isinstance(one.pixels, Exception)]
        groups = [good] if self._use_table and len(good) > 1 else [[one] for one in good]
        for group in groups:
            size = sum(one.nbytes for one in group)
            if not self._deposits.bench.put(_bound(self._store, group, len(taken), moment), size=size):
                self._deposits.lose("image", len(group), f"Images {self._name!r} are lost: {self._deposits.no_room}")

    def _store(self, group: "list[Taken]", count: int, moment: Moment) -> None:
        pictures = [(one.index, picture) for one in group if (picture := self._encoded(one)) is not None]
        if len(group) > 1 and pictures:
            self._keep_gallery([picture for _, picture in pictures], count, moment)
            return
        for index, picture in pictures:
            self._keep_one(picture, index, count, moment)

    def _encoded(self, one: "Taken") -> "Picture | None":
        from otel_logger.pictures import encode_picture

        try:
            picture = encode_picture(one, self._channels_last, self._deposits.settings.image_format, self._labels)
        except ValueError as error:
            self._lose(one.index, error)
            return None
        for fault in picture.faults:
            self._deposits.lose("mask", 1, f"A mask of image {one.index} of {self._name!r} is lost: {fault}")
        return picture

    def _keep_one(self, picture: "Picture", index: int, count: int, moment: Moment) -> None:
        contents = [_content(picture.data, picture.media_type, picture.extension)]
        attributes: dict[str, Any] = {
            names.IMAGE_INDEX: index,
            names.IMAGE_COUNT: count,
            names.IMAGE_WIDTH: picture.width,
            names.IMAGE_HEIGHT: picture.height,
        }
        if picture.masks:
            attributes[names.MASK_NAMES] = [mask.name for mask in picture.masks]
            attributes[names.MASK_ENCODINGS] = [mask.encoding for mask in picture.masks]
            attributes[names.MASK_LABELS] = _legend(picture.masks)
            for mask in picture.masks:
                contents.append(_content(mask.data, "image/png", "png", names.MASK_URIS))
                contents.append(
                    _content(mask.overlay, mask.overlay_media_type, mask.overlay_extension, names.OVERLAY_URIS)
                )
        self._keep(contents, attributes, picture.thumbnail, moment, 1)

    def _keep_gallery(self, pictures: "list[Picture]", count: int, moment: Moment) -> None:
        from otel_logger.galleries import gallery

        contents: list[Content] = []
        entries: list[dict[str, Any]] = []
        for picture in pictures:
            role = names.IMAGE_URIS if len(entries) < GALLERY_LINKS else UNLISTED
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
        attributes: dict[str, Any] = {names.IMAGE_COUNT: count}
        if named := list(dict.fromkeys(mask.name for picture in pictures for mask in picture.masks)):
            attributes[names.MASK_NAMES] = named
            attributes[names.MASK_LABELS] = _legend([mask for picture in pictures for mask in picture.masks])
        body = gallery([picture.tile for picture in pictures])
        self._keep([_content(index, "application/json", "json"), *contents], attributes, body, moment, len(pictures))

    def _keep(
        self, contents: list[Content], attributes: dict[str, Any], body: str, moment: Moment, images: int
    ) -> None:
        try:
            self._deposits.keep(names.EVENT_IMAGE, self._name, contents, attributes, body, moment)
        except OSError as error:
            self._deposits.lose("image", images, f"Images {self._name!r} are lost: {error}")

    def _lose(self, index: int, error: Exception) -> None:
        self._deposits.lose("image", 1, f"Image {index} of {self._name!r} is lost: {error}")


def _stored(data: bytes, media_type: str, extension: str, role: str, contents: list[Content]) -> dict[str, Any]:
    """Add a blob to `contents`, and return how an index names it."""
    contents.append(_content(data, media_type, extension, role))
    digest = hashlib.sha256(data).hexdigest()
    return {
        "path": f"sha256/{digest[:2]}/{digest}.{extension}",
        "digest": f"sha256:{digest}",
        "size": len(data),
        "media_type": media_type,
    }


def _content(data: bytes, media_type: str, extension: str, role: str = "") -> Content:
    return Content(lambda file: file.write(data), media_type, extension, role)


def _legend(masks: "Sequence[MaskPicture]") -> str:
    """The labels of masks, by the mask's name, as JSON."""
    legend: dict[str, dict[str, Any]] = {}
    for mask in masks:
        legend.setdefault(mask.name, {}).update(mask.legend)
    return json.dumps(legend, ensure_ascii=False)


def _bound(function: Any, *arguments: Any) -> Any:
    return lambda: function(*arguments)
