"""Galleries: several images of one call in one small picture."""

from collections.abc import Sequence

from otel_logger.pixels import Pixels
from otel_logger.thumbnails import data_uri, sheet

__all__ = ["MOST_TILES", "gallery", "gallery_indices"]

MOST_TILES = 16


def gallery_indices(count: int) -> list[int]:
    """Return which of `count` images a gallery shows: all of 16, of more 16 in even steps from first to last."""
    if count <= MOST_TILES:
        return list(range(count))
    return [round(place * (count - 1) / (MOST_TILES - 1)) for place in range(MOST_TILES)]


def gallery(tiles: Sequence[Pixels]) -> str:
    """Return tiles of pictures as one data URI of at most 100,000 characters, about as wide as high, row by row.

    At most 16 are shown, see `gallery_indices`; ValueError when there is none.
    """
    shown = [tiles[index] for index in gallery_indices(len(tiles))]
    if not shown:
        msg = "a gallery without tiles"
        raise ValueError(msg)
    height = max(tile.shape[0] for tile in shown)
    width = max(tile.shape[1] for tile in shown)
    columns = max(1, round((len(shown) * height / width) ** 0.5))
    return data_uri(sheet(shown, columns))
