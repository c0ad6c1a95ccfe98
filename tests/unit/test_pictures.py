"""Pictures: what is stored of an image is its pixels, and what is shown shows its masks."""

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from otel_logger.images import Taken, take_images
from otel_logger.label_images import GRAY8, INT32, decode_labels
from otel_logger.overlays import overlay
from otel_logger.pictures import MOST_LABELS, Label, encode_picture
from otel_logger.pixels import to_pixels

NOISE = np.random.default_rng(0).integers(0, 256, (300, 500, 3), np.uint8)


def decoded(data: bytes) -> np.ndarray:
    """The pixels of a picture file."""
    return np.asarray(Image.open(io.BytesIO(data)))


def shown(uri: str) -> np.ndarray:
    """The pixels of a data URI."""
    return decoded(base64.b64decode(uri.partition(",")[2]))


def one(image: object, masks: object = None) -> Taken:
    """The one image that there is."""
    (taken,) = take_images(image, masks, channels_last=True).images
    return taken


@settings(max_examples=60, deadline=None)
@given(
    npst.arrays(
        st.one_of(npst.boolean_dtypes(), npst.integer_dtypes(), npst.unsigned_integer_dtypes(), npst.floating_dtypes()),
        st.one_of(
            npst.array_shapes(min_dims=2, max_dims=2, max_side=9),
            st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3, 4])),
        ),
    ),
    st.sampled_from(["png", "webp"]),
)
def test_any_image_is_stored_without_loss(array: np.ndarray, image_format: str) -> None:
    """Of every type and range, the file holds the pixels of the documented rule; WebP holds gray as RGB."""
    taken = one(array)
    picture = encode_picture(taken, image_format)
    expected = to_pixels(taken.pixels)
    seen = decoded(picture.data)
    if seen.ndim > expected.ndim:
        expected = np.repeat(expected[:, :, None], 3, axis=2)
    if image_format == "webp" and expected.shape[2] == 4 and seen.shape[2] == 3:
        # WebP has no alpha where all is opaque.
        assert {255} == set(expected[:, :, 3].ravel().tolist())
        expected = expected[:, :, :3]
    np.testing.assert_array_equal(expected, seen)
    assert (array.shape[1], array.shape[0]) == (picture.width, picture.height)
    assert (f"image/{image_format}", image_format) == (picture.media_type, picture.extension)


def test_an_image_too_long_for_webp_is_png() -> None:
    """WebP ends at 16,383 pixels; what is longer is stored all the same."""
    picture = encode_picture(one(np.zeros((2, 16_384), np.uint8)), "webp")
    assert ("image/png", "png", 16_384) == (picture.media_type, picture.extension, picture.width)


def test_a_small_image_is_its_own_thumbnail() -> None:
    """The thumbnail of what is small already is the file itself; the tile its pixels."""
    picture = encode_picture(one(NOISE[:50, :60]))
    assert "data:image/png;base64," + base64.b64encode(picture.data).decode() == picture.thumbnail
    np.testing.assert_array_equal(NOISE[:50, :60], picture.tile)


def test_a_large_image_has_a_small_thumbnail_and_a_smaller_tile() -> None:
    """Both keep its proportions."""
    picture = encode_picture(one(NOISE))
    assert (154, 256, 3) == shown(picture.thumbnail).shape
    assert (77, 128, 3) == picture.tile.shape
    # Also where the file itself would be small enough.
    assert (256, 256) == shown(encode_picture(one(np.zeros((600, 600), np.uint8))).thumbnail).shape


def test_masks_are_stored_exactly_and_shown_beside_the_image() -> None:
    """Each mask is a label image of exact values and an overlay; the thumbnail has the image and the overlays."""
    image = NOISE[:60, :50]
    classes = (np.arange(3000).reshape(60, 50) // 700).astype(np.int64)
    instances = np.where(classes > 2, -7, 70_000)[::3, ::5]
    picture = encode_picture(one(image, {"classes": classes, "instances": instances}), names={1: "road", 9: "unseen"})
    first, second = picture.masks
    assert ("classes", GRAY8, 50, 60, 5) == (first.name, first.encoding, first.width, first.height, first.label_count)
    assert ("instances", INT32, 10, 20, 2) == (
        second.name,
        second.encoding,
        second.width,
        second.height,
        second.label_count,
    )
    np.testing.assert_array_equal(classes, decode_labels(first.data))
    np.testing.assert_array_equal(instances, decode_labels(second.data))
    assert Label(1, "road", "#ff3c2d") == first.labels[1]
    assert {"0": {"colour": "#a596d2"}, "1": {"colour": "#ff3c2d", "name": "road"}} == dict(
        list(first.legend.items())[:2]
    )
    np.testing.assert_array_equal(overlay(image, classes.astype(np.uint8)), decoded(first.overlay))
    assert ("image/png", "png") == (first.overlay_media_type, first.overlay_extension)
    beside = shown(picture.thumbnail)
    assert (60, 50 * 3 + 2 * 4, 3) == beside.shape
    np.testing.assert_array_equal(image, beside[:, :50])
    np.testing.assert_array_equal(decoded(first.overlay), beside[:, 54:104])
    np.testing.assert_array_equal(decoded(second.overlay), beside[:, 108:])
    np.testing.assert_array_equal(beside, picture.tile)


def test_a_background_that_has_a_name_is_shown() -> None:
    """Label 0 has its colour in the overlay when it is named, and none when it is not."""
    labels = np.zeros((4, 4), np.uint8)
    taken = one(NOISE[:4, :4], {"m": labels})
    for names in ({}, {0: "sky"}):
        (mask,) = encode_picture(taken, names=names).masks
        np.testing.assert_array_equal(overlay(NOISE[:4, :4], labels, names), decoded(mask.overlay))


def test_a_bad_mask_costs_only_itself() -> None:
    """What is no label image is told, and the image and its other masks are stored."""
    masks = {"bad": np.full((4, 4), 0.5), "flat": np.zeros(3), "good": np.ones((4, 4), bool)}
    picture = encode_picture(one(NOISE[:4, :4], masks))
    assert ["good"] == [mask.name for mask in picture.masks]
    bad, flat = picture.faults
    assert "mask 'bad': not a mask: labels are whole numbers, these have fractions, NaN or infinities" == bad
    assert flat.startswith("mask 'flat': not a mask: shape (3,)")


def test_only_the_first_of_very_many_labels_are_told() -> None:
    """A record has no room for thousands of labels: the lowest are told, and how many there are."""
    (mask,) = encode_picture(one(NOISE[:40, :40], {"m": np.arange(1600).reshape(40, 40)})).masks
    assert (MOST_LABELS, 1600, MOST_LABELS - 1) == (len(mask.labels), mask.label_count, mask.labels[-1].number)


def test_many_masks_are_all_stored_and_some_shown() -> None:
    """The thumbnail has room for seven overlays."""
    masks = {str(number): np.full((4, 4), number) for number in range(12)}
    picture = encode_picture(one(NOISE[:4, :4], masks))
    assert 12 == len(picture.masks)
    assert (2 * 8 - 4, 4 * 8 - 4, 3) == shown(picture.thumbnail).shape


def test_what_is_no_image_is_refused() -> None:
    """The reason is that of the taking."""
    with pytest.raises(ValueError, match="not an image: NoneType"):
        encode_picture(one(None))


def test_the_same_image_becomes_the_same_bytes() -> None:
    """Nothing is drawn by chance: what is sent twice can be recognised."""
    first, second = (encode_picture(one(NOISE, {"m": NOISE[:, :, 0] // 9}), form) for form in ("png", "png"))
    assert (first.data, first.thumbnail, first.masks) == (second.data, second.thumbnail, second.masks)
