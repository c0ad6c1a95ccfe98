"""Images: what users pass becomes pixels and PNG, and one bad image costs only itself."""

import gc
import io
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from otel_logger.images import THUMBNAIL_BYTES, THUMBNAIL_SIDE, encode_png, snapshot, to_images

GRAY = np.arange(6, dtype=np.uint8).reshape(2, 3)
RGB_FIRST = np.arange(18, dtype=np.uint8).reshape(3, 2, 3)
RGB_LAST = np.ascontiguousarray(np.moveaxis(RGB_FIRST, 0, 2))


class Tensor:
    """What this package uses of a torch tensor; `numpy` refuses like torch where a step was forgotten."""

    def __init__(
        self, array: np.ndarray, dtype: str = "torch.float32", graph: bool = True, device: str = "cuda"
    ) -> None:
        self.array, self.dtype, self.graph, self.device = array, dtype, graph, device
        self.ndim = array.ndim

    def _with(self, **changes: Any) -> "Tensor":
        return Tensor(**{**{k: getattr(self, k) for k in ("array", "dtype", "graph", "device")}, **changes})

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
        if self.graph or self.device != "cpu" or self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


def one(image: object, channels_last: bool = False) -> np.ndarray:
    """The one image that there is, as pixels."""
    (pixels,) = to_images(image, channels_last=channels_last)
    assert isinstance(pixels, np.ndarray), pixels
    assert np.uint8 == pixels.dtype
    return pixels


def decoded(png: bytes) -> np.ndarray:
    """The pixels of a PNG."""
    return np.asarray(Image.open(io.BytesIO(png)))


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
        (RGB_FIRST[None], False, RGB_LAST),
        ([RGB_FIRST[None, None]], False, RGB_LAST),
        (np.stack([GRAY] * 4), False, np.stack([GRAY] * 4, 2)),
        (RGB_FIRST[:, :, :1], False, RGB_LAST[:, :1]),
        (RGB_FIRST[:, :1, :1], False, RGB_LAST[:1, :1]),
        (GRAY[:1], False, GRAY[:1]),
        ([GRAY.tolist()], False, GRAY),
    ],
)
def test_shapes_become_rows_columns_and_channels(image: object, channels_last: bool, expected: np.ndarray) -> None:
    """Two dimensions are gray, three have channels on the side that was said, dimensions of one are dropped."""
    np.testing.assert_array_equal(expected, one(image, channels_last))


def test_four_dimensions_are_a_batch_and_a_list_is_a_sequence() -> None:
    """A batch, a list and a tuple are as many images as they have items."""
    for images in (np.stack([RGB_FIRST] * 2), [RGB_FIRST] * 2, (RGB_FIRST, Tensor(RGB_FIRST))):
        pixels = to_images(images)
        assert 2 == len(pixels)
        for each in pixels:
            np.testing.assert_array_equal(RGB_LAST, each)
    assert [] == to_images([]) == to_images(np.zeros((0, 3, 2, 2)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[False, True]]), [0, 255]),
        (np.array([[0, 255]], np.int64), [0, 255]),
        (np.array([[0, 1]], np.int8), [0, 1]),
        (np.array([[-128, 127]], np.int8), [0, 255]),
        (np.array([[0, 65535]], np.uint16), [0, 255]),
        (np.array([[-(2**63), 0, 2**63 - 1]]), [0, 128, 255]),
        (np.array([[0, 2**64 - 1]], np.uint64), [0, 255]),
        (np.array([[0.0, 0.5, 1.0]]), [0, 128, 255]),
        (np.array([[0.0, 1.0]], np.float16), [0, 255]),
        (np.array([[0.0, 1.4, 200.6]]), [0, 1, 201]),
        (np.array([[-1.0, 0.0, 1.0]]), [0, 128, 255]),
        (np.array([[0.0, 510.0]], np.float32), [0, 255]),
        (np.array([[-1.7e308, 0.0, 1.7e308]]), [0, 128, 255]),
        (np.array([[-5e-324, 0.0]]), [0, 0]),
        (np.array([[-3.0, -3.0]]), [0, 0]),
        (np.array([[300.0, 300.0]]), [255, 255]),
        (np.array([[1000, 1000]]), [255, 255]),
        (np.array([[0.0, np.nan, 1.0]]), [0, 0, 255]),
        (np.array([[-1.0, np.nan, 1.0]]), [0, 0, 255]),
        (np.array([[-np.inf, 0.25, 0.5, np.inf]]), [64, 64, 128, 128]),
        (np.array([[np.nan, np.inf]]), [0, 0]),
        (np.array([[0.0, 1.0]], np.longdouble), [0, 255]),
        (np.array([[1, 2]], ">i4"), [1, 2]),
    ],
)
def test_values_become_bytes_by_the_documented_rule(values: np.ndarray, expected: list[int]) -> None:
    """Booleans, every integer and float, infinities, NaN and constants have their place in 0 to 255."""
    assert expected == one(values)[0].tolist()


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16", "torch.float32"])
def test_tensors_are_detached_and_brought_to_the_host(dtype: str) -> None:
    """A tensor on a device, with a graph, of a type that NumPy lacks, is an image like any other."""
    tensor = Tensor(np.array([[0.0, 1.0]], np.float32), dtype)
    assert [0, 255] == one(tensor)[0].tolist()
    assert (True, "cuda") == (tensor.graph, tensor.device)


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (np.zeros(5), r"shape \(5,\); use \(height, width\)"),
        (np.float32(1), r"shape \(\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.zeros((3, 0, 2)), r"shape \(3, 0, 2\)"),
        (np.zeros((2, 4, 5)), r"shape \(2, 4, 5\); .* 1, 3 or 4 channels"),
        (np.zeros((2, 2, 3, 4, 5))[:1], r"shape \(2, 3, 4, 5\)"),
        (np.array([[1 + 2j]]), "ndarray of complex128; use booleans, integers or floats"),
        (np.array([["a"]]), "ndarray of <U1"),
        (np.array([[None]]), "ndarray of object"),
        (np.array([["2024-01-01"]], "M8[s]"), "datetime64"),
        (object(), "object of object"),
        (None, "NoneType"),
        ("cat.png", "not an image: str"),
        ({"a": GRAY}, "not an image: dict"),
        (5.0, r"shape \(\)"),
        ([[[1, 2], [3]]], "not an image: list"),
    ],
)
def test_what_is_no_image_says_why(image: object, problem: str) -> None:
    """The error of each thing that is no image names its shape, type or value type, and what would be right."""
    ((index, error),) = snapshot(image)
    assert 0 == index
    if isinstance(error, np.ndarray):
        with pytest.raises(ValueError, match=problem):
            encode_png(error)
        (error,) = to_images(image)
    assert isinstance(error, ValueError)
    with pytest.raises(ValueError, match=problem):
        raise error


def test_wrong_channels_are_found_whatever_their_side() -> None:
    """The same array is an image or none, depending on where its channels are said to be."""
    with pytest.raises(ValueError, match=r"shape \(3, 8, 9\)"):
        encode_png(RGB_FIRST.repeat(4, 1).repeat(3, 2), channels_last=True)
    assert 9 == encode_png(RGB_FIRST.repeat(4, 1).repeat(3, 2)).width


def test_one_bad_image_costs_only_itself() -> None:
    """Neighbours of a broken image keep their place and their pixels."""

    class Broken(Tensor):
        def detach(self) -> Tensor:
            raise RuntimeError("CUDA error: device-side assert triggered")

    (first, good), (second, bad), (third, flat), (fourth, fine) = snapshot([GRAY, Broken(GRAY), np.zeros(3), GRAY])
    assert [0, 1, 2, 3] == [first, second, third, fourth]
    np.testing.assert_array_equal(GRAY, good)
    np.testing.assert_array_equal(GRAY, fine)
    assert isinstance(flat, ValueError)
    assert "not an image: Broken (RuntimeError: CUDA error: device-side assert triggered)" == str(bad)


def test_a_snapshot_is_a_copy_and_keeps_nothing_of_the_caller() -> None:
    """Later changes do not reach it, and the caller's memory can be freed, even that of a broken image."""

    class Broken:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise ValueError("no")

    image, shared, broken = GRAY.copy(), GRAY.copy(), Broken()
    taken = snapshot([image, Tensor(shared), broken])
    image[:] = 9
    shared[:] = 9
    np.testing.assert_array_equal(GRAY, taken[0][1])
    np.testing.assert_array_equal(GRAY, taken[1][1])
    gone = [weakref.ref(image), weakref.ref(shared), weakref.ref(broken)]
    del image, shared, broken
    gc.collect()
    assert [None] * 3 == [ref() for ref in gone]


@pytest.mark.parametrize("image", [GRAY, RGB_FIRST, np.stack([GRAY] * 4)])
def test_a_picture_is_a_png_of_the_pixels(image: np.ndarray) -> None:
    """The PNG holds the very pixels; a small image is its own thumbnail."""
    picture = encode_png(image)
    np.testing.assert_array_equal(one(image), decoded(picture.png))
    assert (3, 2) == (picture.width, picture.height)
    assert picture.png == picture.thumbnail


@pytest.mark.parametrize("shape", [(300, 700, 3), (3, 2000), (257, 256, 4), (256, 256, 4)])
def test_a_thumbnail_is_small_in_pixels_and_bytes(shape: tuple[int, ...]) -> None:
    """Even of noise, the thumbnail keeps both bounds and the image's proportions."""
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    picture = encode_png(noise, channels_last=True)
    height, width, *_ = decoded(picture.thumbnail).shape
    assert max(width, height) <= THUMBNAIL_SIDE
    assert len(picture.thumbnail) <= THUMBNAIL_BYTES
    assert abs(height - max(1, width * shape[0] / shape[1])) <= 1
    np.testing.assert_array_equal(noise, decoded(picture.png))


@settings(max_examples=100, deadline=None)
@given(
    npst.arrays(
        st.one_of(npst.boolean_dtypes(), npst.integer_dtypes(), npst.unsigned_integer_dtypes(), npst.floating_dtypes()),
        npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5),
    ),
    st.booleans(),
)
def test_any_array_of_numbers_is_pictures_or_errors(array: np.ndarray, channels_last: bool) -> None:
    """Whatever the shape and the values, each item is an encoded picture of its pixels or a ValueError."""
    expected = to_images(array, channels_last=channels_last)
    for (_, item), pixels in zip(snapshot(array), expected, strict=True):
        if isinstance(pixels, ValueError):
            continue
        np.testing.assert_array_equal(pixels, decoded(encode_png(item, channels_last).png))


def test_pillow_is_loaded_by_the_first_encoding_only() -> None:
    """Importing the module and taking snapshots does not load Pillow."""
    code = "import otel_logger.images as i, sys; i.snapshot([[1]]); sys.exit('PIL' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
