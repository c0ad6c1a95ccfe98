"""What is concluded from the figures of benchmarks/blobs.py: medians, ratios of rounds, and whether a target is met."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Stall", "Target", "larger", "percentile", "ratio", "smaller", "table"]


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest time in which a thread did not run, in ms.

    `longest` is by the clock, `waiting` without what the thread waited for a processor: what is left is the time for
    which it was kept from running by others of its process, also while these waited for a processor themselves.
    `working` is what of that they can have worked, at most. `quiet` is `longest` just before, with nothing to do.
    """

    longest: float
    waiting: float
    working: float
    quiet: float


@dataclass(frozen=True, slots=True)
class Target:
    """What was aimed at, and what came out."""

    name: str
    found: str
    is_met: bool

    def __str__(self) -> str:
        """Return a line of the report."""
        return f"{'met' if self.is_met else 'MISSED':6}  {self.name}: {self.found}"


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` of all samples do not exceed."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def ratio(samples: Sequence[float], base: Sequence[float]) -> float:
    """Return the median of the ratios of two series measured in turn: what slows a round down slows both."""
    return statistics.median(one / other for one, other in zip(samples, base, strict=True))


def smaller(name: str, found: float, limit: float, unit: str) -> Target:
    """Return a target that a figure must not exceed."""
    return Target(f"{name}, at most {limit:g}{unit}", f"{found:.2f}{unit}", found <= limit)


def larger(name: str, found: float, limit: float, unit: str) -> Target:
    """Return a target that a figure must reach."""
    return Target(f"{name}, at least {limit:g}{unit}", f"{found:.2f}{unit}", found >= limit)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
