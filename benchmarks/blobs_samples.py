"""What benchmarks/blobs.py logs: images with masks, tables, and a file, the same in each run."""

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["CLASSES", "batch", "columns", "large_images", "make_file", "mixed_rows", "plain_rows", "still_images"]

CLASSES = {number: f"class {number}" for number in range(10)}

_WRITTEN = 16 * 2**20


def still_images(edge: int = 512) -> dict[str, Any]:
    """Return arrays of uint8, height by width by 3: two photographs, noise, and one colour."""
    photos = _photos()
    noise = np.random.default_rng(0).integers(0, 256, (edge, edge, 3), np.uint8)
    flat = np.full((edge, edge, 3), (70, 130, 180), np.uint8)
    return {"photo of a building": photos[0], "photo of a flower": photos[1], "noise": noise, "one colour": flat}


def batch(number: int, count: int = 8, edge: int = 256) -> "tuple[torch.Tensor, dict[str, torch.Tensor]]":
    """Return images of float32 within 0 to 1, count by 3 by edge by edge, cut from photographs, and two masks each."""
    import torch

    draw = np.random.default_rng(number)
    cut = np.stack([_cut(photo, edge, draw) for photo in (_photos() * count)[:count]])
    images = torch.from_numpy(np.ascontiguousarray(cut.transpose(0, 3, 1, 2))).float() / 255
    truth = torch.from_numpy(cut[..., 0] // 26).long()
    return images, {"truth": truth, "prediction": torch.from_numpy(cut[..., 1] // 26).long()}


def large_images(count: int = 64, edge: int = 1024) -> "list[torch.Tensor]":
    """Return images of uint8, 3 by edge by edge, made of photographs."""
    import torch

    draw = np.random.default_rng(1)
    photos = [np.tile(photo, (3, 2, 1)) for photo in _photos()]
    cut = (_cut(photos[number % len(photos)], edge, draw) for number in range(count))
    return [torch.from_numpy(np.ascontiguousarray(one.transpose(2, 0, 1))) for one in cut]


def columns(count: int) -> list[str]:
    """Return names of columns."""
    return [f"column {number}" for number in range(count)]


def mixed_rows(count: int) -> list[list[Any]]:
    """Return rows of ten cells: numbers, strings, None, lists, dictionaries, times and NumPy scalars."""
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return [
        [
            number,
            number / 7,
            f"example {number}",
            None if number % 3 else "now and then",
            number % 2 == 0,
            [number, number + 1],
            {"score": number / 3},
            begin + datetime.timedelta(seconds=number),
            np.float32(number),
            "a longer text, as a prompt or an answer would be " * 2,
        ]
        for number in range(count)
    ]


def plain_rows(count: int, times: int = 0) -> list[list[Any]]:
    """Return rows of four cells: an integer, a float, a string and a boolean; `times` adds three more of them."""
    return [
        [
            *(number, number / 7, f"example {number}", number % 2 == 0),
            *(cell for more in range(times) for cell in (number + more, number / (more + 1), f"text {number} {more}")),
        ]
        for number in range(count)
    ]


def make_file(path: Path, size: int) -> None:
    """Write a file that no compression makes smaller, and wait until it is on the disk."""
    piece = np.random.default_rng(2).bytes(_WRITTEN)
    with path.open("wb") as file:
        for start in range(0, size, _WRITTEN):
            file.write(piece[: size - start])
        file.flush()
        os.fsync(file.fileno())


def _photos() -> list[Any]:
    from sklearn.datasets import load_sample_images

    return list(load_sample_images().images)


def _cut(photo: Any, edge: int, draw: np.random.Generator) -> Any:
    top, left = (draw.integers(0, length - edge + 1) for length in photo.shape[:2])
    return photo[top : top + edge, left : left + edge]
