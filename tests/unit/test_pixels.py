"""Pixels: every type and range of numbers becomes 8 bits by one documented rule."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from otel_logger.pixels import bands, oriented, to_pixels


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
    assert expected == to_pixels(values)[0].tolist()


def by_the_rule(values: list) -> list[tuple[float, float]]:
    """Between which two bytes each value may be, by the words of the documentation, in exact arithmetic."""
    finite = [Fraction(value) for value in values if np.isfinite(value)]
    if not finite:
        return [(0, 0)] * len(values)
    low, high = min(finite), max(finite)
    expected = []
    for value in values:
        if np.isnan(value):
            expected.append((0, 0))
            continue
        exact = Fraction(value) if np.isfinite(value) else (high if value > 0 else low)
        is_scaled = True
        if low < 0 or high > 255:
            place = (exact - low) / (high - low) * 255 if high > low else min(max(exact, Fraction(0)), Fraction(255))
        elif high <= 1 and isinstance(value, float):
            place = exact * 255
        else:
            place, is_scaled = exact, False
        # A product of floats may fall on the other side of a half.
        slack = 0.5 + (0.001 if is_scaled else 0)
        expected.append((float(place) - slack, float(place) + slack))
    return expected


@settings(max_examples=150, deadline=None)
@given(
    npst.arrays(
        st.one_of(
            npst.boolean_dtypes(),
            npst.integer_dtypes(),
            npst.unsigned_integer_dtypes(),
            npst.floating_dtypes(sizes=(16, 32, 64)),
        ),
        npst.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6),
    )
)
def test_any_values_become_bytes_by_the_documented_rule(values: np.ndarray) -> None:
    """Each byte is the rounded place of its value, for numbers of every type and size."""
    pixels = to_pixels(values).ravel().tolist()
    if values.dtype == bool:
        assert [255 * value for value in values.ravel().tolist()] == pixels
        return
    wrong = [
        (value, byte, expected)
        for value, byte, expected in zip(
            values.ravel().tolist(), pixels, by_the_rule(values.ravel().tolist()), strict=True
        )
        if not expected[0] <= byte <= expected[1]
    ]
    assert [] == wrong


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint16, bool])
def test_a_large_image_is_judged_as_one(dtype: type) -> None:
    """Though it is converted in bands, its range is that of all, and each pixel is as it were alone."""
    image = (np.arange(3 * 400 * 500).reshape(3, 400, 500) % 3001).astype(dtype)
    pixels = to_pixels(oriented(image))
    assert 1 < len(list(bands(oriented(image))))
    high = float(image.max())
    expected = np.rint(image.astype(np.float64) / high * 255).astype(np.int64)
    assert int(np.abs(np.moveaxis(pixels, 2, 0).astype(np.int64) - expected).max()) <= 1
    assert pixels.flags.c_contiguous


def test_not_a_number_in_one_band_does_not_hide_the_range_of_another() -> None:
    """A band of NaN alone is black, and the range of the others is theirs, wherever they are."""
    for row in (-1, 0):
        image = np.full((3000, 100), np.nan, np.float32)
        image[row] = np.linspace(-2, 2, 100)
        pixels = to_pixels(image)
        assert (0, 0, 255) == (pixels[1:-1].max(), pixels[row, 0], pixels[row, -1])
