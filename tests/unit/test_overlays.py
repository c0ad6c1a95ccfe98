"""Overlays: the image shows through the colours of its labels."""

import numpy as np
import pytest

from otel_logger.label_colours import colours_of
from otel_logger.overlays import distinct, overlay

GRAY = np.full((4, 6), 100, np.uint8)
LABELS = np.array([[0, 1, 2], [3, 0, 300]])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_labels_are_scaled_to_the_image_and_half_transparent(dtype: type) -> None:
    """Each pixel is the mean of the image and the colour of its nearest label; the background is the image."""
    large = LABELS.repeat(2, 0).repeat(2, 1)
    expected = (100 + colours_of(large).astype(int)) // 2
    expected[large == 0] = 100
    np.testing.assert_array_equal(expected, overlay(GRAY, LABELS.astype(dtype)))


def test_a_large_image_is_one_picture() -> None:
    """Though it is blended in bands, each row has the colours of its own labels."""
    labels = (np.arange(900)[:, None] // 5).repeat(300, 1).astype(np.uint8)
    expected = colours_of(labels) // 2
    expected[labels == 0] = 0
    np.testing.assert_array_equal(expected, overlay(np.zeros((900, 300), np.uint8), labels))


def test_a_background_with_a_name_is_a_label_like_others() -> None:
    """Label 0 has a colour where it is named."""
    labels = np.zeros((4, 6), np.uint8)
    np.testing.assert_array_equal(np.full((4, 6, 3), 100), overlay(GRAY, labels, {1: "car"}))
    expected = (100 + colours_of(labels).astype(int)) // 2
    np.testing.assert_array_equal(expected, overlay(GRAY, labels, {0: "sky"}))


def test_what_is_transparent_lies_on_white() -> None:
    """An image with an alpha channel is seen as on a white page."""
    rgba = np.array([[[0, 0, 0, 0], [0, 0, 0, 255], [10, 20, 30, 127]]], np.uint8)
    seen = overlay(rgba, np.zeros((1, 3), np.uint8))
    assert [[255, 255, 255], [0, 0, 0], [133, 138, 143]] == seen[0].tolist()


def test_a_smaller_image_shows_some_of_the_labels() -> None:
    """A mask larger than its image is thinned evenly."""
    labels = np.arange(1, 10, dtype=np.uint8).reshape(1, 9).repeat(9, 0)
    seen = overlay(np.zeros((3, 3), np.uint8), labels)
    np.testing.assert_array_equal(colours_of(np.array([[2, 5, 8]] * 3)) // 2, seen)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_labels_that_occur_are_found_once(dtype: type) -> None:
    """In a large mask too, each label is told once, in order."""
    labels = np.zeros((3000, 100), dtype)
    labels[0, 0], labels[-1, -1], labels[5:9] = 7, 200, 3
    assert [0, 3, 7, 200] == distinct(labels).tolist()
    assert [-5, 0] == distinct(np.array([[0, -5, 0]], np.int32)).tolist()
