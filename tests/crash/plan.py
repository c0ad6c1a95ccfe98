"""What the children of the crash tests record: enough to fill several segments of each signal."""

STEPS = 40
LOSSES = [1 / (step + 1) for step in range(STEPS)]
"""Distinct, so that a value says which step it is of."""

TRACES = range(1, STEPS, 3)
SPANS = range(2, STEPS, 3)
FLUSHES = (15, 30)

UPLOADS = 3
LATEST = "latest.pt"


def once(number: int) -> str:
    """The name of a file that is uploaded once."""
    return f"checkpoints/ep{number}.pt"


def content(name: str, number: int) -> bytes:
    """What a file holds: all of one name are of one size, as checkpoints are."""
    return f"{name} {number:03d}".encode()
