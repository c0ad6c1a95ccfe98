"""Watermarks: how much had been recorded at which time, from which the age of the oldest that is left can be told."""

__all__ = ["Watermarks"]

MOST = 1024
"""Marks kept. When there are more, every second one goes: the age of what has waited for days need not be exact."""


class Watermarks:
    """Tells the age of the oldest item of a queue that is first in, first out, from counts alone.

    Ages are as exact as the marks are close, and rather too great than too small.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []

    def note(self, now: float, recorded: int, done: int) -> None:
        """Note at the time `now` (s) that `recorded` items have come so far, and that `done` of them have gone."""
        # Of those that have gone, the last mark alone still says from when on the next may be.
        first = sum(count <= done for _, count in self._marks)
        self._marks = self._marks[max(0, first - 1) :] or [(now, done)]
        if self._marks[-1][1] == recorded:
            # Nothing came since: what comes next is younger.
            self._marks[-1] = now, recorded
            return
        self._marks.append((now, recorded))
        if len(self._marks) > MOST:
            self._marks = self._marks[:1] + self._marks[2::2]

    def age(self, now: float, recorded: int, done: int) -> float | None:
        """Return the age (s) of the oldest item that has not gone, None when all have."""
        if recorded <= done:
            return None
        began = [time for time, count in self._marks if count <= done]
        return now - (began[-1] if began else self._marks[0][0] if self._marks else now)
