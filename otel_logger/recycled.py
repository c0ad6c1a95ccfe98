"""Recycled memory: where large copies go, so that they are made at the speed of memory that is already there.

Fresh memory costs a page fault for every 4 KiB, which takes ten times as long as the copy itself.
"""

import mmap
import weakref
from collections import deque
from itertools import count

import numpy as np
import numpy.typing as npt

__all__ = ["RecycledMemory"]

SMALLEST = 256 * 1024
"""Bytes from which on memory is recycled; less is quickly had anew."""

KEPT = 64 * 2**20
"""Bytes of unused memory that are kept for later at most."""

_ROUND = 64 * 1024
# Linux alone can have all pages made at once, which takes a quarter of the time that one after another does.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)


class RecycledMemory:
    """Lends memory that comes back by itself when no array is left that shows it.

    Safe in any thread, and free of locks: memory may come back in the middle of anything, by a collection of garbage.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._numbers = count()
        self._lent: dict[int, tuple[weakref.ref[npt.NDArray[np.uint8]], mmap.mmap]] = {}
        self._unused: deque[mmap.mmap] = deque()

    def lend(self, size: int) -> npt.NDArray[np.uint8]:
        """Return `size` bytes of any content; MemoryError when there are none."""
        if size < SMALLEST:
            return np.empty(size, np.uint8)
        memory = self._fitting(size) or _fresh(size)
        lent = np.frombuffer(memory, np.uint8, count=size)
        number = next(self._numbers)
        self._lent[number] = weakref.ref(lent, lambda _: self._take_back(number)), memory
        return lent

    @property
    def unused(self) -> int:
        """Return the bytes that are kept for later."""
        return sum(len(memory) for memory in tuple(self._unused))

    def _fitting(self, size: int) -> mmap.mmap | None:
        for _ in range(len(self._unused)):
            try:
                memory = self._unused.popleft()
            except IndexError:
                break
            # Not a large one for a small need: the next large need would be without.
            if size <= len(memory) <= 2 * size + _ROUND:
                return memory
            self._unused.append(memory)
        return None

    def _take_back(self, number: int) -> None:
        _, memory = self._lent.pop(number)
        self._unused.append(memory)
        while self.unused > self._kept:
            try:
                self._unused.popleft()
            except IndexError:
                break


def _fresh(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, -(-size // _ROUND) * _ROUND, flags=_FLAGS)
    except OSError as error:
        msg = f"no memory for a copy of {size} bytes: {error}"
        raise MemoryError(msg) from None
