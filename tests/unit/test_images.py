"""Images: whatever form users pass them in, each is taken as it is, and one bad image costs only itself."""

import copy
import gc
import subprocess
import sys
import weakref
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from otel_logger.images import Taken, take_images
from otel_logger.pixels import oriented

GRAY = np.arange(6, dtype=np.uint8).reshape(2, 3)
RGB_FIRST = np.arange(18, dtype=np.uint8).reshape(3, 2, 3)
RGB_LAST = np.ascontiguousarray(np.moveaxis(RGB_FIRST, 0, 2))
RGBA_LAST = np.concatenate([RGB_LAST, np.full((2, 3, 1), 200, np.uint8)], axis=2)


class Tensor:
    """What this package uses of a torch tensor; `numpy` refuses like torch where a step was forgotten."""

    def __init__(
        self, array: np.ndarray, dtype: str = "torch.float32", graph: bool = True, device: str = "cuda"
    ) -> None:
        self.array, self.dtype, self.graph, self.device = array, dtype, graph, device
        self.ndim = array.ndim

    def _with(self, **changes: Any) -> "Tensor":
        return type(self)(**{**{k: getattr(self, k) for k in ("array", "dtype", "graph", "device")}, **changes})

    def detach(self) -> "Tensor":
        """Leave the graph."""
        return self._with(graph=False)

    def cpu(self) -> "Tensor":
        """Come to the host."""
        return self._with(device="cpu")

    def float(self) -> "Tensor":
        """Become float32."""
        return self._with(dtype="torch.float32")

    def numpy(self) -> np.ndarray:
        """The memory itself, not a copy."""
        if self.graph or self.device != "cpu" or self.dtype in ("torch.bfloat16", "torch.float8_e5m2"):
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


class Bits(Tensor):
    """A tensor of bfloat16, which is 16 bits of a float32."""

    def new_empty(self, shape: tuple[int, ...]) -> "Bits":
        """Another of its type."""
        return self._with(array=np.empty(shape, np.int16))

    def short(self) -> "Bits":
        """Become int16."""
        return self._with(dtype="torch.int16")

    def view(self, dtype: str) -> "Bits":
        """The same memory in another type."""
        return self._with(dtype=dtype)


def taken(image: object, channels_last: bool = False) -> np.ndarray:
    """The one image that there is, as it is taken."""
    (one,) = take_images(image, channels_last=channels_last).images
    assert isinstance(one.pixels, np.ndarray), one.pixels
    return one.pixels


def errors(found: list[Taken]) -> list[str]:
    """What is wrong with each image."""
    return [str(one.pixels) for one in found if isinstance(one.pixels, ValueError)]


@pytest.mark.parametrize(
    ("image", "channels_last", "expected"),
    [
        (GRAY, False, GRAY),
        (GRAY, True, GRAY),
        (GRAY[None], False, GRAY),
        (GRAY[:, :, None], True, GRAY),
        (GRAY[:, :, None], False, GRAY),
        (RGB_FIRST, False, RGB_LAST),
        (RGB_LAST, True, RGB_LAST),
        (RGBA_LAST, True, RGBA_LAST),
        (RGB_FIRST[None], False, RGB_LAST),
        ([RGB_FIRST[None, None]], False, RGB_LAST),
        (np.stack([GRAY] * 4), False, np.stack([GRAY] * 4, 2)),
        (RGB_FIRST[:, :, :1], False, RGB_LAST[:, :1]),
        ([RGB_FIRST[None, None, :, :, :1]], False, RGB_LAST[:, :1]),
        (RGB_FIRST[:, :1, :1], False, RGB_LAST[:1, :1]),
        (GRAY[:1], False, GRAY[:1]),
        (GRAY.tolist(), False, GRAY),
        ([GRAY.tolist()], False, GRAY),
        ([RGB_FIRST.tolist()], False, RGB_LAST),
        (GRAY.view(np.matrix), False, GRAY),
        (memoryview(GRAY), False, GRAY),
        (RGB_FIRST[:, ::-1, ::2], False, RGB_LAST[::-1, ::2]),
        (Image.fromarray(GRAY), False, GRAY),
        (Image.fromarray(RGB_LAST), False, RGB_LAST),
        (Image.fromarray(RGB_LAST), True, RGB_LAST),
        (Image.fromarray(RGBA_LAST), False, RGBA_LAST),
        (Image.fromarray(GRAY).convert("P"), False, np.stack([GRAY] * 3, 2)),
        (Image.fromarray(GRAY).convert("LA"), False, np.stack([*[GRAY] * 3, np.full_like(GRAY, 255)], 2)),
        (Image.fromarray(GRAY > 2), False, GRAY > 2),
        (Image.fromarray(GRAY.astype(np.float32)), False, GRAY),
    ],
)
def test_shapes_become_rows_columns_and_channels(image: object, channels_last: bool, expected: np.ndarray) -> None:
    """Two dimensions are gray, three have channels on the side that was said, dimensions of one are dropped."""
    np.testing.assert_array_equal(expected, taken(image, channels_last), strict=False)


@pytest.mark.parametrize(
    "images",
    [
        np.stack([RGB_FIRST] * 2),
        [RGB_FIRST] * 2,
        (RGB_FIRST, Tensor(RGB_FIRST)),
        deque([RGB_FIRST, RGB_FIRST]),
        Tensor(np.stack([RGB_FIRST] * 2)),
        [RGB_FIRST.astype(np.float64), Image.fromarray(RGB_LAST)],
        np.array([RGB_FIRST, None], dtype=object),
    ],
    ids=["batch", "list", "tuple", "deque", "tensor", "mixed", "array of objects"],
)
def test_several_images_are_taken_in_their_order(images: Any) -> None:
    """A batch, and any sequence, are as many images as they have items."""
    if isinstance(images, np.ndarray) and images.dtype == object:
        images[1] = GRAY
    found = take_images(images).images
    assert [0, 1] == [one.index for one in found]
    np.testing.assert_array_equal(RGB_LAST, found[0].pixels)
    assert (2, 3) == found[1].pixels.shape[:2]


def test_images_of_a_sequence_may_differ() -> None:
    """Sizes, types and channels are those of each image."""
    found = take_images([GRAY, RGB_FIRST.astype(np.float16), np.ones((5, 7), bool)]).images
    assert [((2, 3), "uint8"), ((2, 3, 3), "float16"), ((5, 7), "bool")] == [
        (one.pixels.shape, one.pixels.dtype.name) for one in found
    ]


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16", "torch.float32", "torch.float8_e5m2"])
def test_tensors_are_detached_and_brought_to_the_host(dtype: str) -> None:
    """A tensor on a device, with a graph, of a type that NumPy lacks, is an image like any other."""
    tensor = Tensor(np.array([[0.0, 1.0]], np.float32), dtype)
    assert [[0.0, 1.0]] == taken(tensor).tolist()
    assert (True, "cuda") == (tensor.graph, tensor.device)


def test_bfloat16_becomes_float32_bit_by_bit() -> None:
    """Each value, the smallest and not-a-number among them, is what its bits say."""
    values = np.array([[0.0, -1.5, 3.0e38, 1e-40, np.inf, np.nan]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    pixels = taken(Bits(bits.view(np.int16), "torch.bfloat16"))
    np.testing.assert_array_equal(expected, pixels)
    assert np.float32 == pixels.dtype


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (np.zeros(5), "shape (5,); use (height, width)"),
        (np.float32(1), "shape ()"),
        (np.zeros((0, 3)), "shape (0, 3)"),
        (np.zeros((3, 0, 2)), "shape (3, 0, 2)"),
        (np.zeros((0, 3, 2, 2)), "shape (0, 3, 2, 2)"),
        (np.zeros((2, 4, 5)), "shape (2, 4, 5); use (height, width), or with 1, 3 or 4 channels"),
        (np.zeros((2, 2, 3, 4, 5))[:1], "shape (2, 3, 4, 5)"),
        (np.array([[1 + 2j]]), "ndarray of complex128; use booleans, integers or floats"),
        (np.array([["a"]]), "ndarray of <U1"),
        (np.array([[None]]), "ndarray of object"),
        (np.array([["2024-01-01"]], "M8[s]"), "ndarray of datetime64"),
        (object(), "object of object"),
        (None, "not an image: NoneType"),
        ("cat.png", "not an image: str"),
        (b"cat", "not an image: bytes"),
        ({"a": GRAY}, "not an image: dict"),
        (5.0, "shape ()"),
        ([], "not an image: an empty list"),
        ([1.0, 2.0], "shape (2,)"),
        ([[[1, 2], [3]]], "not an image: list"),
        ([[GRAY, object()]], "not an image: list"),
    ],
)
def test_what_is_no_image_says_why(image: object, problem: str) -> None:
    """The error of each thing that is no image names its shape, type or value type, and what would be right."""
    (one,) = take_images(image).images
    assert 0 == one.index
    assert isinstance(one.pixels, ValueError)
    assert problem in str(one.pixels)


def test_wrong_channels_are_found_whatever_their_side() -> None:
    """The same array is an image or none, depending on where its channels are said to be."""
    image = RGB_FIRST.repeat(4, 1).repeat(3, 2)
    assert "shape (3, 8, 9)" in errors(take_images(image, channels_last=True).images)[0]
    assert (8, 9, 3) == taken(image).shape


def test_one_bad_image_costs_only_itself() -> None:
    """Neighbours of a broken image keep their place and their pixels."""

    class Broken(Tensor):
        def detach(self) -> Tensor:
            raise RuntimeError("CUDA error: device-side assert triggered")

    found = take_images([GRAY, Broken(GRAY), np.zeros(3), GRAY]).images
    assert [0, 1, 2, 3] == [one.index for one in found]
    np.testing.assert_array_equal(GRAY, found[0].pixels)
    np.testing.assert_array_equal(GRAY, found[3].pixels)
    first, second = errors(found)
    assert "not an image: Broken (RuntimeError: CUDA error: device-side assert triggered)" == first
    assert second.startswith("not an image: shape (3,)")


class Hostile:
    """A class whose every attribute raises."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError("no")


class Unreadable(deque):
    """A sequence whose second item cannot be read."""

    def __getitem__(self, index: Any) -> Any:
        if index == 1:
            raise OSError("gone")
        return super().__getitem__(index)


def test_nothing_that_a_class_does_gets_out() -> None:
    """Objects that raise wherever they are touched are an error in the place of an image."""
    for images in (Hostile(), [Hostile()], Unreadable([GRAY, GRAY])):
        assert 1 == len(errors(take_images(images, {"mask": Hostile()}).images))
    np.testing.assert_array_equal(GRAY, take_images([Hostile(), GRAY]).images[1].pixels)
    assert ["cannot be read (OSError: gone)"] == errors(take_images(Unreadable([GRAY, GRAY])).images)


def test_images_are_copied_and_nothing_of_the_caller_is_kept() -> None:
    """Later changes do not reach them, and the caller's memory can be freed, even that of a broken image."""

    class Broken:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise ValueError("no")

    image, shared, broken, mask = GRAY.copy(), GRAY.copy(), Broken(), GRAY.copy()
    masks = {"mask": [mask]}
    before = copy.deepcopy(masks)
    found = take_images([image, Tensor(shared), broken], masks).images
    assert before["mask"][0].tolist() == masks["mask"][0].tolist()
    for array in (image, shared, mask):
        array[:] = 9
    for array in (found[0].pixels, found[1].pixels, found[0].masks["mask"]):
        np.testing.assert_array_equal(GRAY, array)
    gone = [weakref.ref(thing) for thing in (image, shared, broken, mask)]
    del image, shared, broken, mask, masks, array
    gc.collect()
    assert [None] * 4 == [ref() for ref in gone]


def test_a_read_only_image_is_taken() -> None:
    """An array that cannot be written is an image like any other."""
    image = GRAY.copy()
    image.flags.writeable = False
    np.testing.assert_array_equal(GRAY, taken(image))


def test_a_batch_is_copied_as_one() -> None:
    """All images of a batch share one piece of memory, and together hold as much as the batch."""
    found = take_images(np.ones((8, 3, 64, 64), np.float32), {"mask": np.ones((8, 64, 64), np.uint8)}).images
    assert 8 * (3 * 4 + 1) * 64 * 64 == sum(one.nbytes for one in found)
    places = [one.pixels.__array_interface__["data"][0] for one in found]
    assert [3 * 64 * 64 * 4] * 7 == [after - before for before, after in pairwise(places)]


@settings(max_examples=100, deadline=None)
@given(
    npst.arrays(
        st.one_of(npst.boolean_dtypes(), npst.integer_dtypes(), npst.unsigned_integer_dtypes(), npst.floating_dtypes()),
        npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5),
    ),
    st.booleans(),
)
def test_any_array_of_numbers_is_taken_as_it_is(array: np.ndarray, channels_last: bool) -> None:
    """Whatever its shape and values, each item keeps them, in the order of rows, columns and channels."""
    items = list(array) if array.ndim > 3 else [array]
    found = take_images(array, channels_last=channels_last).images
    assert max(1, len(items)) == len(found)
    for one, item in zip(found, items, strict=False):
        if isinstance(one.pixels, ValueError):
            with pytest.raises(ValueError, match="not an image: shape"):
                oriented(item, channels_last)
        else:
            np.testing.assert_array_equal(oriented(item, channels_last), one.pixels, strict=True)


def test_pillow_is_not_loaded_by_taking() -> None:
    """Neither importing the module nor taking images loads Pillow or torch."""
    code = (
        "import otel_logger.images as i, sys; i.take_images([[1]]); sys.exit(bool({'PIL', 'torch'} & set(sys.modules)))"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
