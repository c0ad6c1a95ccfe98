"""PNG: what is written is exactly what any reader sees, and small for every kind of picture."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from otel_logger.png import to_png

NOISE = np.random.default_rng(0).integers(0, 256, (700, 500, 3), np.uint8)
SMOOTH = np.add.outer(np.arange(256), np.arange(256)).astype(np.uint8)
TEXTURE = np.tile(NOISE[:16, :16], (16, 16, 1))


def decoded(png: bytes) -> np.ndarray:
    """The pixels that Pillow reads."""
    with Image.open(io.BytesIO(png)) as image:
        image.verify()
    return np.asarray(Image.open(io.BytesIO(png)))


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        npst.arrays(np.uint8, npst.array_shapes(min_dims=2, max_dims=2, max_side=40)),
        npst.arrays(np.uint16, npst.array_shapes(min_dims=2, max_dims=2, max_side=40)),
        st.sampled_from([3, 4]).flatmap(
            lambda channels: npst.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40), st.just(channels)))
        ),
    )
)
def test_any_pixels_are_read_back(image: np.ndarray) -> None:
    """Gray of 8 and 16 bits, RGB and RGBA of every size are read as they were written."""
    np.testing.assert_array_equal(image, decoded(to_png(image)))


@pytest.mark.parametrize(
    "image",
    [
        NOISE,
        np.tile(NOISE, (2, 1, 1)),
        NOISE[::-1, ::2],
        np.moveaxis(NOISE, 0, 1),
        SMOOTH.view(">u2"),
        TEXTURE,
        np.zeros((1, 1), np.uint8),
        NOISE[:1].repeat(40, 1),
    ],
    ids=["noise", "large", "strided", "turned", "big-endian", "texture", "pixel", "row"],
)
def test_images_of_every_layout_are_read_back(image: np.ndarray) -> None:
    """Also what is compressed in several portions, and what lies otherwise in memory."""
    np.testing.assert_array_equal(image, decoded(to_png(image)))


def test_texts_are_read_back() -> None:
    """Texts are there for readers to see."""
    with Image.open(io.BytesIO(to_png(SMOOTH, {"Title": "caf\xe9", "b": ""}))) as image:
        assert {"Title": "caf\xe9", "b": ""} == image.text


@pytest.mark.parametrize(
    "image", [NOISE, SMOOTH, TEXTURE, np.zeros((300, 300, 3), np.uint8)], ids=["noise", "gradient", "texture", "flat"]
)
def test_files_are_small(image: np.ndarray) -> None:
    """They are at most a fifth larger than those of Pillow's fastest level, also where an image repeats itself."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    assert len(to_png(image)) <= 1.2 * len(buffer.getvalue()) + 1024


def test_the_same_image_is_the_same_file() -> None:
    """Files are named by their content: nothing in them is of the moment."""
    assert to_png(NOISE) == to_png(NOISE.copy())


def test_an_image_without_pixels_is_refused() -> None:
    """PNG has no empty image."""
    with pytest.raises(ValueError, match="PNG cannot hold 0 x 3 pixels"):
        to_png(np.zeros((3, 0), np.uint8))
