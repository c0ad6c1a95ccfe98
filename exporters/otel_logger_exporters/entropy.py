"""Entropy: random bytes of the operating system, fetched ahead of time.

Each `os.urandom` lets other threads run, and a thread that encodes what is sent may then keep the interpreter for
milliseconds, in the midst of a call of the training's.
"""

import os
import uuid
from collections import deque

__all__ = ["random_bytes", "random_uid"]

_SIZE = 8
_AT_ONCE = 512

# Each is taken once, whoever interrupts whom: `popleft` is one step of the interpreter.
_pool: deque[bytes] = deque()

# Parent and child must not draw the same.
os.register_at_fork(after_in_child=_pool.clear)


def random_bytes(size: int) -> bytes:
    """Return `size` random bytes, a multiple of 8, for identifiers; not of the generators that a training seeds."""
    return b"".join([_take() for _ in range(size // _SIZE)])


def random_uid() -> str:
    """Return an identity of its own for a record: a UUID of version 4, as 32 hexadecimal digits."""
    return uuid.UUID(bytes=random_bytes(16), version=4).hex


def _take() -> bytes:
    while True:
        try:
            return _pool.popleft()
        except IndexError:
            drawn = os.urandom(_SIZE * _AT_ONCE)
            _pool.extend(drawn[start : start + _SIZE] for start in range(0, len(drawn), _SIZE))
