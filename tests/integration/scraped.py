"""A training that Prometheus scrapes while it goes on: the program that `test_prometheus.py` starts with `torchrun`.

Each process says by a file how far it is, and waits for a file where it is to wait:

    listening-<rank>   the fit has begun; it goes on when there is `train`
    trained-<rank>     the fit is over but for its end; what was logged last of each key; it goes on when there is `end`
    ended-<rank>       the trainer is closed; the process goes on, and ends when there is `exit`
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from composer import Callback
from composer.loggers import LoggerDestination
from composer.utils import dist
from tiny import tiny_trainer

from otel_logger.composer import OTelLogger

__all__ = ["ALIKE", "ODD"]

PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.01

ALIKE = ("same/name", "same.name", "same_name", "same__name", "Same/Name", "same name")
"""Keys that are one name, or nearly one, to Prometheus."""

ODD = {
    "odd/nan": math.nan,
    "odd/inf": math.inf,
    "odd/-inf": -math.inf,
    "odd/negative zero": -0.0,
    "odd/least": 5e-324,
    "odd/tenth": 0.1,
    "odd/large": 2**53 + 1,
    "": 1.5,
    "up": 2.5,
    "scrape_duration_seconds": 3.5,
    "target_info": 4.5,
    'quote " and \\ and\nline': 5.5,
    "schön/λ": 6.5,
}
"""Values, and keys, that a text format may stumble over."""


class Memory(LoggerDestination):
    """Remembers what was logged last under each key, and at which step."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[float, int | None]] = {}

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Remember."""
        self.last.update({key: (float(value), step) for key, value in metrics.items()})


class Acting(Callback):
    """Logs what is hard to tell apart or to write, and waits where it is to wait."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def epoch_start(self, state: Any, logger: Any) -> None:
        """Wait for the scraper."""
        say("listening")
        wait_for("train")

    def batch_end(self, state: Any, logger: Any) -> None:
        """Log."""
        batch = state.timestamp.batch.value
        logger.log_metrics({key: 100.0 * number + batch for number, key in enumerate(ALIKE)} | ODD)
        logger.log_metrics({"rank/batch": 1000 * dist.get_global_rank() + batch})

    def fit_end(self, state: Any, logger: Any) -> None:
        """Wait, with all logged that is to be."""
        # As text: JSON has no number for some of them.
        say("trained", {key: [repr(value), step] for key, (value, step) in self._memory.last.items()})
        wait_for("end")


def say(what: str, content: object = None) -> None:
    """Writes a file of this rank, which is there whole or not at all."""
    path = Path(f"{what}-{dist.get_global_rank()}")
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content), "utf-8")
    beside.rename(path)


def wait_for(name: str) -> None:
    """Waits for a file."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Path(name).exists():
        assert time.monotonic() < deadline, f"there is no {name}"
        time.sleep(POLL_SECONDS)


def main() -> None:
    """Trains for one epoch, closes the trainer, and stays."""
    memory = Memory()
    trainer = tiny_trainer([OTelLogger(), memory], run_name="scraped", callbacks=[Acting(memory)], dist_timeout=120)
    trainer.fit()
    trainer.close()
    say("ended")
    wait_for("exit")


if __name__ == "__main__":
    main()
