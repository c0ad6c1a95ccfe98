"""Back-off: how long to wait before something that failed is tried again."""

import random
from collections.abc import Callable

__all__ = ["CONFIGURATION_INTERVAL", "FIRST_BACKOFF", "LONGEST_BACKOFF", "Backoff"]

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 60.0
"""Seconds between attempts: doubled from the first to the longest, as the OTLP specification's exponential backoff."""

CONFIGURATION_INTERVAL = 60.0
"""Seconds between attempts while the answer is that the configuration is wrong."""


class Backoff:
    """Seconds that grow with each failure, half of them by chance, so that many processes do not return at once."""

    def __init__(self, jitter: Callable[[], float] | None = None) -> None:
        # Not the module's functions: they share the global generator, whose draws belong to the training.
        self._jitter = jitter or random.SystemRandom().random
        self._longest = FIRST_BACKOFF

    def next(self) -> float:
        """Return how long to wait after one more failure."""
        delay = self._longest * (0.5 + 0.5 * self._jitter())
        self._longest = min(LONGEST_BACKOFF, self._longest * 2)
        return delay

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._longest = FIRST_BACKOFF
