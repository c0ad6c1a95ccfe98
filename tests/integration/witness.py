"""Runs `examples/composer_digits.py` beside witnesses that note all it logs: what a test compares with what arrived.

As a program it is a run of its own, with the environment it is given and the exit that Composer makes of it:

    python witness.py <file for the notes> <seconds between construction and fit>
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from composer.loggers import InMemoryLogger, LoggerDestination

from otel_logger.composer import OTelLogger

__all__ = ["EXAMPLE", "Doorman", "Witness", "run_digits"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "composer_digits.py"

ODD_VALUES = {"odd/nan": math.nan, "odd/below": -math.inf, "odd/whole": 2**62 + 1, "odd/word": "text"}
"""Logged after `fit`: numbers that JSON or float64 cannot hold, and what is no number."""


class Doorman(LoggerDestination):
    """Stands before the logger under test, and notes when each call of `log_metrics` came."""

    def __init__(self) -> None:
        self.started_ns = time.time_ns()
        self.came_ns = 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Note the time."""
        self.came_ns = time.time_ns()


class Witness(InMemoryLogger):
    """Stands behind the logger under test, and notes each call; written as JSON when the trainer has closed it."""

    def __init__(self, doorman: Doorman, path: Path) -> None:
        super().__init__()
        self._doorman = doorman
        self._path = path
        self.calls: list[dict[str, Any]] = []
        self.traces: list[tuple[str, Any, int]] = []
        self.images: list[tuple[str, int, int]] = []
        self.logged_tables: list[tuple[str, int, list[str], list[list[Any]]]] = []
        self.files: list[tuple[str, int, str, int]] = []

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Note the values, and between which times they were logged."""
        super().log_metrics(metrics, step)
        self.calls.append({"keys": list(metrics), "came_ns": self._doorman.came_ns, "left_ns": time.time_ns()})

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Note each trace and its step."""
        self.traces += [(key, value, self._step()) for key, value in traces.items()]

    def log_images(self, images: Any, name: str = "Images", *arguments: Any, **options: Any) -> None:
        """Note how many images there are, and their step."""
        self.images.append((name, self._step(), len(images)))

    def log_table(
        self, columns: list[str], rows: list[list[Any]], name: str = "Table", step: int | None = None
    ) -> None:
        """Note a table and its step; Composer's own needs pandas."""
        self.logged_tables.append((name, self._step(), columns, [list(row) for row in rows]))

    def upload_file(self, state: Any, remote_file_name: str, file_path: Path, *, overwrite: bool = False) -> None:
        """Note what the file holds now."""
        content = Path(file_path).read_bytes()
        self.files.append((remote_file_name, self._step(), hashlib.sha256(content).hexdigest(), len(content)))

    def post_close(self) -> None:
        """Write the notes."""
        notes = {
            "started_ns": self._doorman.started_ns,
            "ended_ns": time.time_ns(),
            "calls": self.calls,
            # As InMemoryLogger has them: for each key the values in the order of the calls, with their steps.
            "metrics": {
                key: [
                    (timestamp.batch.value, getattr(value, "item", lambda value=value: value)())
                    for timestamp, value in of_key
                ]
                for key, of_key in self.data.items()
            },
            "hyperparameters": self.hyperparameters,
            "traces": self.traces,
            "images": self.images,
            "tables": self.logged_tables,
            "files": self.files,
        }
        self._path.write_text(json.dumps(notes), "utf-8")

    def _step(self) -> int:
        assert self.state is not None
        return self.state.timestamp.batch.value


def as_json(value: Any) -> Any:
    """A value as JSON knows it: of a tensor its number."""
    return value.item() if isinstance(value, torch.Tensor) else value


def load_example() -> ModuleType:
    """The example as a module; it is no part of any package."""
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_digits(notes: Path, *, pause: float, environ: Mapping[str, str] | None = None) -> Any:
    """Do what the example's `main` does, beside witnesses; return the trainer, which is not closed yet."""
    example = load_example()
    doorman = Doorman()
    trainer = example.build_trainer([doorman, OTelLogger(environ=environ), Witness(doorman, notes)])
    trainer.logger.log_hyperparameters(example.HYPERPARAMETERS)
    time.sleep(pause)
    trainer.fit()
    trainer.logger.log_metrics(ODD_VALUES)
    return trainer


if __name__ == "__main__":
    run_digits(Path(sys.argv[1]), pause=float(sys.argv[2]))
