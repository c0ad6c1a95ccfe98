"""Trainings that are killed and resumed: the programs of `test_checkpoints.py`, each a small training by real Composer.

As a program it imports Composer once and forks a child for each `Attempt` that it reads, one JSON object a line. It
answers twice: with the child's process id, and when that is dead with its exit status as `os.waitpid` gives it. A child
ends as any program does: with Composer's hooks at exit, and with an uncaught exception where there is one.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from composer.loggers import LoggerDestination
from composer.utils.collect_env import get_cpu_model
from tiny import BATCHES, tiny_trainer

from otel_logger.composer import OTelLogger

__all__ = ["BATCHES_IN_ALL", "EVERY", "LATEST", "REACH", "RUN_NAME", "Attempt"]

RUN_NAME = "tiny"
EPOCHS = 8
EVERY = 2
"""Batches from one checkpoint to the next."""

BATCHES_IN_ALL = EPOCHS * BATCHES

REACH = 3 * EVERY
"""Batches that a doomed process trains at most."""

FOLDER = "checkpoints/{run_name}"
LATEST = f"checkpoints/{RUN_NAME}/latest-rank0.pt"


@dataclass(frozen=True)
class Attempt:
    """How a process trains: in which folder, with which environment, and what it waits for.

    It goes on from the newest checkpoint that its logger has (`autoresume`), or from that which another logger, of no
    trainer, has under the name `load_path`. One that `is_doomed` trains at most `REACH` batches, and waits for its
    death. With `halt_after` it waits before its first checkpoint for the FIFO `word` to be opened, and for its death
    when it has uploaded so many files. Its checkpoints have `ballast` bytes more than they need.
    """

    folder: str
    environ: dict[str, str] = field(default_factory=dict)
    load_path: str | None = None
    is_doomed: bool = False
    halt_after: int | None = None
    ballast: int = 0

    @property
    def notes(self) -> Path:
        """The file in which the process notes what it does, line by line as it does it."""
        return Path(self.folder) / "notes.txt"

    @property
    def word(self) -> Path:
        """The FIFO that it waits to be opened."""
        return Path(self.folder) / "word"

    def to_json(self) -> str:
        """The attempt as one line."""
        return json.dumps(asdict(self))


class Notes(LoggerDestination):
    """Notes what happens, and waits where the attempt says so. Given after the logger, it is called after that."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._file = os.open(attempt.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._loaded = 0
        self._left = attempt.halt_after or -1

    def note(self, *words: object) -> None:
        """Write a line, in one piece: it is there when this returns, whatever becomes of the process."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def state_dict(self) -> dict[str, Any]:
        """Make a checkpoint heavy."""
        return {"ballast": torch.zeros(self._attempt.ballast, dtype=torch.uint8)}

    def after_load(self, state: Any, logger: Any) -> None:
        """Note where the training goes on."""
        self._loaded = state.timestamp.batch.value
        self.note("loaded", self._loaded)

    def batch_start(self, state: Any, logger: Any) -> None:
        """Wait for death, if it has not come yet."""
        if self._attempt.is_doomed and state.timestamp.batch.value == self._loaded + REACH:
            self._halt()

    def batch_end(self, state: Any, logger: Any) -> None:
        """Note the loss, and wait for the word."""
        batch = state.timestamp.batch.value
        self.note("batch", batch, digest(state.loss))
        if self._attempt.halt_after and batch == self._loaded + EVERY:
            self.note("holds")
            self._attempt.word.read_bytes()

    def upload_file(self, state: Any, remote_file_name: str, file_path: Path, *, overwrite: bool = False) -> None:
        """Note that the logger has taken a file."""
        self.note("uploaded", state.timestamp.batch.value, remote_file_name)
        self._left -= 1
        if self._left == 0:
            self._halt()

    def _halt(self) -> None:
        self.note("halts")
        while True:
            signal.pause()


def digest(*tensors: torch.Tensor) -> str:
    """What tells tensors apart to the bit."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()


def train(attempt: Attempt) -> None:
    """Train, from wherever the last attempt came to, and note what came of it."""
    log, notes = OTelLogger(), Notes(attempt)
    resuming: dict[str, Any] = {"autoresume": True}
    if attempt.load_path is not None:
        resuming = {"load_path": attempt.load_path, "load_object_store": OTelLogger(), "load_progress_bar": False}
    trainer = tiny_trainer(
        [log, notes],
        run_name=RUN_NAME,
        max_duration=f"{EPOCHS}ep",
        save_folder=FOLDER,
        save_interval=f"{EVERY}ba",
        **resuming,
    )
    trainer.fit()
    weights = trainer.state.model.state_dict()
    trainer.close()
    notes.note("weights", digest(*weights.values()))
    stats = log.stats()
    notes.note("complete" if stats.is_complete else f"incomplete {stats}")


def main() -> None:
    """Carry out attempts, one after the other, in children."""
    # Asked by each checkpoint; for a second and a half by the first of a process.
    get_cpu_model()
    for line in sys.stdin:
        attempt = Attempt(**json.loads(line))
        child = os.fork()
        if child == 0:
            os.environ.update(attempt.environ)
            os.chdir(attempt.folder)
            # What the child prints is not an answer.
            os.dup2(os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
            os.dup2(1, 2)
            train(attempt)
            return
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
