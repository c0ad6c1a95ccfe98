"""The folder of what an endpoint refused: the request as it was, with the reason beside it."""

import json
import math
from pathlib import Path

from otel_logger_exporters.signals import Signal

__all__ = ["RejectedFolder"]

_BLOCK = 4096
"""Bytes that a file takes on the disk at least: requests that are refused one by one are small, and may be many."""


class RejectedFolder:
    """Keeps refused requests as `<signal>-<time>-<n>.otlp` (the protobuf body) with `.json` (the reason) beside.

    They take `max_bytes` of the disk at most, None for any; what earlier processes have put there counts too.
    """

    def __init__(self, folder: Path, max_bytes: int | None = None) -> None:
        self._folder = folder
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._count = 0
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Bytes that the folder takes of the disk; 0 before the first request of this process is put there."""
        return self._size or 0

    def move(self, folder: Path) -> None:
        """Go on in `folder`, to which the caller has renamed the present one."""
        self._folder = folder

    def put(self, signal: Signal, bodies: tuple[bytes, ...], reason: str, time_ns: int) -> Path | None:
        """Keep `bodies`, refused for `reason` at `time_ns`, and return the folder; None if they would be too much.

        OSError when the disk does not take them; then none is there, and nothing is counted.
        """
        # Not its parents: what is renamed meanwhile must not come back as another folder.
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if self._size is None:
            self._size = sum(_on_disk(path.stat().st_size) for path in self._folder.iterdir())
        files: dict[Path, bytes] = {}
        for body in bodies:
            self._count += 1
            path = self._folder / f"{signal.value}-{time_ns}-{self._count}.otlp"
            beside = json.dumps({"reason": reason, "time_ns": time_ns, "size": len(body)}).encode("ascii")
            files |= {path: body, path.with_suffix(".json"): beside}
        size = self._size + sum(_on_disk(len(content)) for content in files.values())
        if size > self._max_bytes:
            return None
        try:
            for path, content in files.items():
                path.write_bytes(content)
        except OSError:
            for path in files:
                path.unlink(missing_ok=True)
            raise
        self._size = size
        return self._folder


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
