"""The rate and the size of PNG files, ours beside Pillow's, for benchmarks/blobs.py."""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from blobs_figures import ratio
from blobs_samples import still_images
from PIL import Image

from otel_logger.png import to_png

__all__ = ["ENCODERS", "Encoding", "measure"]


def _pillow(level: int) -> Callable[[Any], bytes]:
    def encode(image: Any) -> bytes:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG", compress_level=level)
        return file.getvalue()

    return encode


ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "otel_logger": to_png,
    "Pillow, level 1": _pillow(1),
    "Pillow, level 6": _pillow(6),
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoder on an image: `rate` in MB of pixels per second, `share` of the size of its pixels.

    `faster` and `larger` are of otel_logger against this one.
    """

    image: str
    encoder: str
    rate: float
    share: float
    faster: float
    larger: float


def measure(rounds: int) -> list[Encoding]:
    """Return the medians of processor time of encoders that take turns."""
    found = []
    for name, image in still_images().items():
        times: dict[str, list[float]] = {encoder: [] for encoder in ENCODERS}
        sizes = {}
        for _ in range(rounds):
            for encoder, encode in ENCODERS.items():
                begin = time.process_time_ns()
                sizes[encoder] = len(encode(image))
                times[encoder].append((time.process_time_ns() - begin) / 1e9)
        ours = next(iter(ENCODERS))
        for encoder, seconds in times.items():
            median = sorted(seconds)[len(seconds) // 2]
            found.append(
                Encoding(
                    image=name,
                    encoder=encoder,
                    rate=image.nbytes / median / 1e6,
                    share=sizes[encoder] / image.nbytes,
                    faster=ratio(seconds, times[ours]),
                    larger=sizes[ours] / sizes[encoder],
                )
            )
    return found
