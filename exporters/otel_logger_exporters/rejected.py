"""The folder of what an endpoint refused: the request as it was, with the reason beside it."""

import json
from pathlib import Path

from otel_logger_exporters.signals import Signal

__all__ = ["RejectedFolder"]


class RejectedFolder:
    """Keeps refused requests as `<signal>-<time>-<n>.otlp` (the protobuf body) with `.json` (the reason) beside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.size = 0
        """Bytes that this process has put here."""

    def move(self, folder: Path) -> None:
        """Go on in `folder`, to which the caller has renamed the present one."""
        self._folder = folder

    def put(self, signal: Signal, bodies: tuple[bytes, ...], reason: str, time_ns: int) -> Path:
        """Keep `bodies`, refused for `reason` at `time_ns`, and return the folder."""
        # Not its parents: what is renamed meanwhile must not come back as another folder.
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for body in bodies:
            self._count += 1
            self.size += len(body)
            path = self._folder / f"{signal.value}-{time_ns}-{self._count}.otlp"
            path.write_bytes(body)
            path.with_suffix(".json").write_text(json.dumps({"reason": reason, "time_ns": time_ns, "size": len(body)}))
        return self._folder
