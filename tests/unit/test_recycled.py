"""Recycled memory: it comes back by itself, and never while anything shows it."""

import gc
import threading

import numpy as np

from otel_logger.recycled import KEPT, SMALLEST, RecycledMemory


def address(array: np.ndarray) -> int:
    """Where an array lies."""
    return int(array.__array_interface__["data"][0])


def test_memory_is_lent_again_when_nothing_shows_it() -> None:
    """It comes back with the last array that shows any part of it, and goes to the next who needs as much."""
    memory = RecycledMemory()
    lent = memory.lend(SMALLEST + 5000)
    place = address(lent)
    view = lent[64:128].view(np.float32).reshape(4, 4).T
    del lent
    other = memory.lend(SMALLEST)
    assert (True, 0) == (address(other) != place, memory.unused)
    del view
    assert place == address(memory.lend(SMALLEST + 1000))


def test_what_is_shown_is_never_lent() -> None:
    """Many threads that write and hold what they are lent find it as they left it."""
    memory = RecycledMemory()
    wrong: list[int] = []

    def use(number: int) -> None:
        held: list[np.ndarray] = []
        for turn in range(60):
            lent = memory.lend(SMALLEST + 1000 * (turn % 3))
            lent[::4096] = number
            held.append(lent[4096 * (turn % 7) :])
            if len(held) > 3:
                wrong.extend(int(value) for value in held.pop(0)[:1] if value not in (number,))
            wrong.extend(number for array in held if int(array[-1 - (len(array) - 1) % 4096]) != number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


def test_little_memory_is_kept() -> None:
    """What comes back beyond the bound is given back to the system, the oldest first."""
    memory = RecycledMemory(kept=3 * SMALLEST)
    for _ in range(2):
        lent = [memory.lend(SMALLEST) for _ in range(5)]
        del lent
        gc.collect()
        assert 3 * SMALLEST == memory.unused
    assert KEPT >= 2 * 8 * 3 * 256 * 256 * 4


def test_a_large_piece_is_not_wasted_on_a_small_need() -> None:
    """Who needs far less gets memory of its own, and the next large need finds the large piece."""
    memory = RecycledMemory()
    large = memory.lend(10 * SMALLEST)
    place = address(large)
    del large
    small = memory.lend(SMALLEST)
    assert place != address(small)
    assert place == address(memory.lend(10 * SMALLEST))


def test_small_memory_is_not_recycled() -> None:
    """What costs little to have is had anew, also nothing at all."""
    memory = RecycledMemory()
    for size in (0, 1, SMALLEST - 1):
        assert size == len(memory.lend(size))
    assert 0 == memory.unused
