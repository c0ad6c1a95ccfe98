"""Counts of blobs: what is stored, what waits for the store, and what failed."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BlobCounts", "BlobStats"]


@dataclass(frozen=True, slots=True)
class BlobStats:
    """What became of a writer's images, tables and files.

    `stored` of them, `bytes_stored` in all, are in the blob store with their records; `waiting` of them,
    `bytes_waiting` in all, are on disk to be stored, the oldest for `oldest` seconds (None: none waits); `failed` will
    never be stored under their names, each told by a record with the reason. `retries` counts attempts that failed and
    are made again.
    """

    stored: int = 0
    failed: int = 0
    waiting: int = 0
    bytes_stored: int = 0
    bytes_waiting: int = 0
    retries: int = 0
    oldest: float | None = None


class BlobCounts:
    """Counts for one writer. Thread-safe; never raises."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # Reentrant: a collection of garbage within may log an image.
        self._lock = threading.RLock()
        self._stored = self._failed = self._bytes_stored = self._retries = 0
        self._waiting: dict[str, tuple[float, int]] = {}
        self._bytes_waiting = 0

    def stage(self, uid: str, size: int) -> None:
        """Count what begins to wait."""
        with self._lock:
            self._take(uid)
            self._waiting[uid] = self._monotonic(), size
            self._bytes_waiting += size

    def unstage(self, uid: str) -> None:
        """Count no more what was to wait, and does not after all."""
        with self._lock:
            self._take(uid)

    def store(self, uid: str) -> None:
        """Count what waited and is stored."""
        with self._lock:
            self._stored += 1
            self._bytes_stored += self._take(uid)

    def fail(self, uid: str | None = None) -> None:
        """Count what will not be stored, whether it waited or never could."""
        with self._lock:
            self._take(uid or "")
            self._failed += 1

    def retry(self) -> None:
        """Count an attempt that failed for now."""
        with self._lock:
            self._retries += 1

    @property
    def bytes_waiting(self) -> int:
        """Bytes on disk that wait for the store."""
        with self._lock:
            return self._bytes_waiting

    def abandon(self) -> None:
        """Take a new lock in the child of a fork, where the parent's may be held for ever."""
        self._lock = threading.RLock()

    def stats(self) -> BlobStats:
        """Return the counts."""
        with self._lock:
            since = next(iter(self._waiting.values()), None)
            return BlobStats(
                stored=self._stored,
                failed=self._failed,
                waiting=len(self._waiting),
                bytes_stored=self._bytes_stored,
                bytes_waiting=self._bytes_waiting,
                retries=self._retries,
                oldest=self._monotonic() - since[0] if since is not None else None,
            )

    def _take(self, uid: str) -> int:
        """Return the bytes of what waits no more."""
        _, size = self._waiting.pop(uid, (0.0, 0))
        self._bytes_waiting -= size
        return size
