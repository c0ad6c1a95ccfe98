"""The space that a writer may take on the disk: a bound on what is unsent, a floor of what stays free for others."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from otel_logger_exporters.filesystems import free_bytes

__all__ = ["Class", "OverLimitError", "Space"]

LARGEST_FLOOR = 2**30
FLOOR_SHARE = 0.05
"""The floor where none is set is the smaller of the two: bytes, and the share of the file system."""


REJECTED_SHARE = 0.1
"""The share of the bound on what is unsent that may be taken by what an endpoint has refused, and is kept."""


class OverLimitError(OSError):
    """So much is unsent that this is not taken any more."""


class Class(Enum):
    """What is recorded, in the order in which it is given up as the bound comes near; the value is the share of it."""

    MINOR = 0.80
    SPANS = 0.85
    RANK_METRICS = 0.90
    METRICS = 0.95
    EVENTS = 1.0


@dataclass(frozen=True, slots=True)
class Space:
    """What may be taken: `max_unsent` bytes that wait for an endpoint (None: any), and never the last `min_free` bytes.

    `min_free` None is the smaller of 1 GiB and 5 % of the file system. `free` tells of a folder's file system how many
    bytes are free and how many there are.
    """

    max_unsent: int | None = None
    min_free: int | None = None
    free: Callable[[Path], tuple[int, int]] = free_bytes

    @property
    def max_rejected(self) -> int | None:
        """Bytes that refused requests may take; None: any."""
        return None if self.max_unsent is None else int(self.max_unsent * REJECTED_SHARE)

    def floor(self, total: int) -> int:
        """Return the bytes of a file system of `total` bytes that are to stay free."""
        return min(LARGEST_FLOOR, int(total * FLOOR_SHARE)) if self.min_free is None else self.min_free

    def make_room(self, folder: Path, size: int) -> None:
        """Raise OSError if a file of `size` bytes in `folder` would leave less than the floor."""
        free, total = self.free(folder)
        floor = self.floor(total)
        # Where the file system does not say how large it is, nothing can be said of what is free.
        if total and free - size < floor:
            msg = (
                f"{free} bytes are free, and {floor} are to stay so (OTEL_LOGGER_MIN_FREE_BYTES): "
                "free some, or name another folder in OTEL_LOGGER_DIR"
            )
            raise OSError(errno.ENOSPC, msg)

    def refusals(self, unsent: int) -> dict[Class, str]:
        """Return which classes are not taken while `unsent` bytes wait, with the reason."""
        limit = self.max_unsent
        if limit is None:
            return {}
        reason = (
            f"{unsent} bytes wait for the endpoint, and OTEL_LOGGER_JOURNAL_MAX_BYTES={limit} is nearly reached; "
            "given up in this order: batch spans and program logs, other spans, metrics of ranks but zero, metrics, "
            "events"
        )
        return {what: reason for what in Class if unsent >= limit * what.value}
