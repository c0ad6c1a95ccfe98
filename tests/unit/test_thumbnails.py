"""Thumbnails and galleries: small enough for a log record, whatever they show."""

import base64
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from otel_logger import pillow
from otel_logger.galleries import gallery, gallery_indices
from otel_logger.thumbnails import LONGEST_URI, data_uri, sheet

NOISE = np.random.default_rng(0).integers(0, 256, (300, 450, 4), np.uint8)


def opened(uri: str) -> Image.Image:
    """The picture that a data URI holds, of the type that it says."""
    head, _, data = uri.partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
    assert f"data:{image.get_format_mimetype()};base64" == head
    image.load()
    return image


def test_a_small_picture_is_exact() -> None:
    """What fits is PNG, with the pixels as they are, also when it is given."""
    pixels = NOISE[:20, :30]
    uri = data_uri(pixels)
    np.testing.assert_array_equal(pixels, np.asarray(opened(uri)))
    assert data_uri(NOISE, base64.b64decode(uri.partition(",")[2])) == uri


@pytest.mark.parametrize("channels", [None, 3, 4], ids=["gray", "RGB", "RGBA"])
def test_any_picture_becomes_small_enough(channels: int | None) -> None:
    """Noise, of which no file is small, loses detail and size, and keeps its proportions."""
    pixels = NOISE[:, :, 0] if channels is None else NOISE[:, :, :channels]
    uri = data_uri(pixels)
    assert len(uri) <= LONGEST_URI
    width, height = opened(uri).size
    assert abs(width / height - 1.5) < 0.05
    assert width >= 64


def test_without_webp_there_is_jpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow may have been built without WebP: thumbnails are JPEG then, and there is no WebP without loss."""
    real = Image.Image.save

    def save(image: Image.Image, file: object, kind: str, **parameters: object) -> None:
        if kind == "WEBP":
            raise KeyError(kind)
        real(image, file, kind, **parameters)

    monkeypatch.setattr(Image.Image, "save", save)
    assert "image/jpeg" == opened(data_uri(NOISE)).get_format_mimetype()
    assert None is pillow.lossless_webp(NOISE)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 300))
def test_a_smaller_picture_has_the_proportions_of_the_large(height: int, width: int, side: int) -> None:
    """No side is longer than it should be, none is lost, and a picture that is small already stays as it is."""
    pixels = np.full((height, width), 9, np.uint8)
    small = pillow.resized(pixels, side)
    if max(height, width) <= side:
        assert small is pixels
        return
    assert side == max(small.shape)
    assert max(1, round(min(height, width) * side / max(height, width))) == min(small.shape)
    assert {9} == set(small.ravel().tolist())


def test_a_sheet_shows_each_panel_whole() -> None:
    """Pictures of any sizes and channels stand in the middle of their cells, row by row."""
    panels = [np.full((2, 4), 1, np.uint8), np.full((4, 2, 3), 2, np.uint8), np.full((1, 1, 4), 255, np.uint8)]
    whole = sheet(panels, 2)
    assert (4 + 4 + 4, 4 + 4 + 4, 3) == whole.shape
    assert ([1] * 12, [2] * 12) == (
        whole[1:3, :4, 0].ravel().tolist()[:8] + [1] * 4,
        whole[:4, 9:11, :].ravel().tolist()[:12],
    )
    assert [255, 255, 255] == whole[9, 1].tolist()


def test_a_gallery_shows_at_most_sixteen_from_first_to_last() -> None:
    """All where there are few; of many, the first, the last, and those in even steps between."""
    assert [list(range(n)) for n in (0, 1, 16)] == [gallery_indices(n) for n in (0, 1, 16)]
    many = gallery_indices(1000)
    assert (16, 0, 999, [66, 67]) == (
        len(many),
        many[0],
        many[-1],
        sorted({b - a for a, b in pairwise(many)}),
    )


@pytest.mark.parametrize(
    ("count", "shape", "columns", "rows"),
    [(1, (128, 128), 1, 1), (16, (128, 128), 4, 4), (40, (128, 128), 4, 4), (5, (64, 128), 2, 3), (3, (128, 16), 3, 1)],
)
def test_a_gallery_is_about_as_wide_as_high(count: int, shape: tuple[int, int], columns: int, rows: int) -> None:
    """Tiles stand in rows, in a small picture that any browser shows."""
    tile = np.zeros(shape, np.uint8)
    size = opened(gallery([tile] * count)).size
    assert (columns * (shape[1] + 4) - 4, rows * (shape[0] + 4) - 4) == size


def test_a_gallery_of_noise_is_small_enough() -> None:
    """Sixteen tiles that do not compress fit a log record."""
    uri = gallery([NOISE[:128, :128]] * 16)
    assert len(uri) <= LONGEST_URI
    assert min(opened(uri).size) >= 200


def test_a_gallery_needs_a_tile() -> None:
    """Nothing cannot be shown."""
    with pytest.raises(ValueError, match="without tiles"):
        gallery([])
