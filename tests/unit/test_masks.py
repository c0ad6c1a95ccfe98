"""Masks: each label image finds its image, and what cannot be one says why."""

import types

import numpy as np
import pytest

from otel_logger.images import Taken, take_images
from otel_logger.masks import Fault, label_names

IMAGES = np.zeros((2, 3, 4, 5), np.uint8)
FIRST = np.arange(20).reshape(4, 5)
SECOND = FIRST + 1000


def masks_of(images: list[Taken]) -> list[dict[str, list]]:
    """The masks of each image, as lists of rows, and the errors as text."""
    return [
        {name: str(mask) if isinstance(mask, ValueError) else mask.tolist() for name, mask in image.masks.items()}
        for image in images
    ]


@pytest.mark.parametrize(
    "mask",
    [
        np.stack([FIRST, SECOND]),
        np.stack([FIRST, SECOND])[:, None],
        np.stack([FIRST, SECOND])[:, :, :, None],
        [FIRST, SECOND],
        (FIRST[None], SECOND[None, None].astype(np.float64)),
        [FIRST.tolist(), SECOND],
    ],
    ids=["NHW", "N1HW", "NHW1", "list", "tuple", "nested list"],
)
def test_each_mask_finds_its_image(mask: object) -> None:
    """A batch or a sequence of masks has one for each image, in their order; dimensions of one are dropped."""
    taking = take_images(IMAGES, {"mask": mask})
    assert [{"mask": FIRST.tolist()}, {"mask": SECOND.tolist()}] == masks_of(taking.images)
    assert [] == taking.faults


def test_a_mask_of_two_dimensions_is_that_of_the_first_image() -> None:
    """It is a batch of one, and the other images have none; so are those that a shorter list does not reach."""
    for mask in (FIRST, FIRST[None], [FIRST], FIRST.tolist()):
        assert [{"mask": FIRST.tolist()}, {}] == masks_of(take_images(IMAGES, {"mask": mask}).images)


def test_an_image_may_have_several_masks_of_any_sizes() -> None:
    """Names are kept in their order, whatever they are, and sizes and types are those of each mask."""
    masks = {"b": FIRST, "a": np.ones((2, 2), bool), 7: np.full((1, 9), -(2**40)), "": [[3]]}
    (one, _) = take_images(IMAGES, types.MappingProxyType(masks)).images
    assert [("b", (4, 5)), ("a", (2, 2)), ("7", (1, 9)), ("", (1, 1))] == [
        (name, mask.shape) for name, mask in one.masks.items()
    ]


def test_masks_that_have_no_image_are_told() -> None:
    """More masks than images cost the surplus, and masks without names all of themselves; the images arrive."""
    taking = take_images(IMAGES[:1], {"mask": [FIRST, SECOND, SECOND], "fine": FIRST})
    assert [{"mask": FIRST.tolist(), "fine": FIRST.tolist()}] == masks_of(taking.images)
    assert [Fault(2, "mask 'mask' has 3 label images where there are 1 images")] == taking.faults

    taking = take_images(IMAGES, [FIRST])
    assert [Fault(1, "masks must be a mapping of names to label images, not list")] == taking.faults
    assert [{}, {}] == masks_of(taking.images)

    taking = take_images(IMAGES, {1: FIRST, "1": [FIRST, SECOND]})
    assert [Fault(2, "a second mask is named '1'")] == taking.faults


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.zeros(4), "not a mask: shape (4,); use (height, width), or (images, height, width)"),
        ([np.zeros((3, 4, 5))], "not a mask: shape (3, 4, 5)"),
        (np.zeros((0, 5)), "not a mask: shape (0, 5)"),
        (np.zeros((0, 4, 5)), "not a mask: shape (0, 4, 5)"),
        (np.zeros((4, 5), complex), "not a mask: ndarray of complex128; use booleans, integers or floats"),
        (None, "not a mask: NoneType"),
        ("mask.png", "not a mask: str"),
        ([], "not a mask: an empty list"),
        (object(), "not a mask: object of object"),
    ],
    ids=["1d", "channels", "empty", "no items", "complex", "none", "text", "empty list", "object"],
)
def test_what_is_no_mask_says_why_and_costs_only_itself(mask: object, problem: str) -> None:
    """The error is in the place of the mask; its image and the other masks arrive."""
    (first, second) = take_images(IMAGES, {"bad": mask, "good": FIRST}).images
    assert isinstance(first.masks["bad"], ValueError)
    assert problem in str(first.masks["bad"])
    assert FIRST.tolist() == first.masks["good"].tolist()
    assert (4, 5, 3) == first.pixels.shape == second.pixels.shape


def test_names_of_labels_are_taken_from_what_stands_for_integers() -> None:
    """Integers of any kind, whole floats and text of integers are labels; names are text, whatever they were."""
    names, faults = label_names({1: "road", "2": "car", 3.0: 5, np.int64(-1): None, 2**40: "x" * 500})
    assert {1: "road", 2: "car", 3: "5", -1: "None", 2**40: "x" * 200} == names
    assert [] == faults


def test_names_of_what_is_no_label_are_told() -> None:
    """Other keys cost their names; what is no mapping costs all."""
    names, faults = label_names({"sky": 1, 0.5: "a", float("nan"): "b", float("inf"): "c", None: "d", 4: "tree"})
    assert ({4: "tree"}, [Fault(5, "labels are integers, not 'sky'")]) == (names, faults)
    assert ({}, [Fault(1, "names of labels must be a mapping of integers to text, not list")]) == label_names(["sky"])
    assert ({}, []) == label_names(None)
