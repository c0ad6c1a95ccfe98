"""Findings, what `otel-logger doctor` tells: a check, its verdict, one sentence, and a remedy where one is needed."""

from dataclasses import dataclass

__all__ = ["OK", "PROBLEM", "SKIPPED", "WARNING", "Finding", "fine", "problem", "skipped", "warning"]

OK = "ok"
WARNING = "warning"
PROBLEM = "problem"
SKIPPED = "skipped"
"""Verdicts: as it should be; works, but worth a look; does not work; could not or need not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    verdict: str
    found: str
    remedy: str | None = None


def fine(check: str, found: str) -> Finding:
    """Return that a check found everything as it should be."""
    return Finding(check, OK, found)


def skipped(check: str, found: str, remedy: str | None = None) -> Finding:
    """Return why a check was not made, and what would let it be made."""
    return Finding(check, SKIPPED, found, remedy)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return what works but is worth a look, and what to do about it."""
    return Finding(check, WARNING, found, remedy)


def problem(check: str, found: str, remedy: str) -> Finding:
    """Return what does not work, and what to do about it."""
    return Finding(check, PROBLEM, found, remedy)
