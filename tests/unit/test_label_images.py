"""Label images: masks decode to the exact labels, by us and by any reader of PNG."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from otel_logger.label_images import GRAY8, GRAY16, INT32, decode_labels, encode_labels, to_labels
from otel_logger.png import to_png

SHAPES = npst.array_shapes(min_dims=2, max_dims=2, max_side=12)


def by_channels(png: bytes) -> np.ndarray:
    """The labels of a file of four channels, by the words of the documentation."""
    red, green, blue, alpha = np.moveaxis(np.asarray(Image.open(io.BytesIO(png))).astype(np.int64), 2, 0)
    unsigned = red << 24 | green << 16 | blue << 8 | alpha
    return np.where(unsigned < 2**31, unsigned, unsigned - 2**32)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        npst.arrays(bool, SHAPES),
        npst.arrays(np.uint8, SHAPES),
        npst.arrays(np.int64, SHAPES, elements=st.integers(0, 70_000)),
        npst.arrays(np.int64, SHAPES, elements=st.integers(-(2**31), 2**31 - 1)),
        npst.arrays(np.float64, SHAPES, elements=st.integers(-(2**31), 2**31 - 1).map(float)),
        npst.arrays(np.uint64, SHAPES, elements=st.integers(0, 2**31 - 1)),
        npst.arrays(">i2", SHAPES),
    )
)
def test_any_labels_are_decoded_exactly(mask: np.ndarray) -> None:
    """Labels of every type come back as they were, also from what another reader sees in the file."""
    png, encoding = encode_labels(to_labels(mask))
    np.testing.assert_array_equal(mask, decode_labels(png))
    seen = by_channels(png) if encoding == INT32 else np.asarray(Image.open(io.BytesIO(png)))
    np.testing.assert_array_equal(mask, seen)


@pytest.mark.parametrize(
    ("labels", "encoding", "dtype"),
    [
        ([0, 255], GRAY8, np.uint8),
        ([0, 256], GRAY16, np.uint16),
        ([0, 65_535], GRAY16, np.uint16),
        ([0, 65_536], INT32, np.int32),
        ([-1, 5], INT32, np.int32),
        ([-(2**31), 2**31 - 1], INT32, np.int32),
    ],
)
def test_the_smallest_encoding_is_taken(labels: list[int], encoding: str, dtype: type) -> None:
    """Gray of 8 bits, of 16, or four channels, by the labels alone and not by the type that they came in."""
    for given_type in (np.int64, np.float64):
        png, found = encode_labels(to_labels(np.array([labels], given_type)))
        assert (encoding, dtype) == (found, decode_labels(png).dtype)


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.array([[0.5]]), "have fractions, NaN or infinities"),
        (np.array([[np.nan, 1]]), "have fractions, NaN or infinities"),
        (np.array([[np.inf]], np.float16), "have fractions, NaN or infinities"),
        (np.array([[0, 2**31]]), "labels from 0 to 2147483648 are beyond 32 bits"),
        (np.array([[-(2**31) - 1]]), "are beyond 32 bits"),
        (np.array([[2**64 - 1]], np.uint64), "are beyond 32 bits"),
        (np.array([[1e300]]), "are beyond 32 bits"),
    ],
)
def test_what_is_no_label_is_refused(mask: np.ndarray, problem: str) -> None:
    """Labels are whole numbers of 32 bits; none is rounded, cut or wrapped."""
    with pytest.raises(ValueError, match=problem):
        to_labels(mask)


def test_a_large_mask_is_judged_as_one() -> None:
    """One high label among many decides on the encoding of all, wherever it is."""
    for row in (0, -1):
        mask = np.ones((2000, 200), np.int64)
        mask[row, 7] = 300
        png, encoding = encode_labels(to_labels(mask))
        assert GRAY16 == encoding
        np.testing.assert_array_equal(mask, decode_labels(png))


def test_a_picture_is_no_label_image() -> None:
    """Colours are not taken for labels."""
    with pytest.raises(ValueError, match="not a label image: 4 channels"):
        decode_labels(to_png(np.zeros((2, 2, 4), np.uint8)))
