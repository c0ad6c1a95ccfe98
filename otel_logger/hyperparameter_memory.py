"""The memory of hyperparameters: what one attempt at a run leaves for the next, in its folder and in checkpoints."""

import json
import os
from pathlib import Path
from typing import Final

from otel_logger.folders import writers_of
from otel_logger.hyperparameters import Remembered
from otel_logger_exporters.ledger import Ledger

__all__ = ["HyperparameterFile", "recall"]

FILE_NAME: Final = "hyperparameters.json"

LARGEST_FILE: Final = 2**24
"""Bytes of a file that is read: no writer makes one as large."""


class HyperparameterFile:
    """Keeps `hyperparameters.json` of a writer's folder, where it stays when all else there is delivered.

    `note` only takes note, for a training thread; `write` touches the disk, for one of the background. Neither raises.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pending: Remembered | None = None

    def note(self, remembered: Remembered) -> None:
        """Take note of what is to be written, instead of what was to be before."""
        self._pending = remembered

    def write(self, folder: Path) -> None:
        """Write what was noted, if it was not yet, replacing what was there in one step."""
        if (pending := self._pending) is None:
            return
        temporary = folder / f"{FILE_NAME}.tmp"
        try:
            temporary.write_text(json.dumps(pending.as_state(), default=str) + "\n", "utf-8")
            os.replace(temporary, folder / FILE_NAME)
        except OSError as error:
            # It stays pending: the folder may be on its way to another name.
            self._ledger.warn("folder", f"The run's folder does not take {FILE_NAME} for now: {error}")
            return
        if self._pending is pending:
            self._pending = None


def recall(folder: Path, attempt: int, rank: int, checkpoint: Remembered | None) -> Remembered | None:
    """Return what the newest attempt before `attempt` has left in the folder of the run, or in a checkpoint of it.

    Of several writers of that attempt the one of the same rank counts, else the lowest. The folder wins over a
    checkpoint of the same attempt. None when there is nothing, or nothing that can be read.
    """
    try:
        writers = [(path, writer) for path, writer in writers_of(folder) if writer.attempt < attempt]
    except OSError:
        writers = []
    writers.sort(key=lambda item: (-item[1].attempt, item[1].rank != rank, item[1].rank, -item[1].started_ns))
    for path, writer in writers:
        if checkpoint is not None and writer.attempt < checkpoint.attempt < attempt:
            break
        if (found := Remembered.from_state(_read(path / FILE_NAME), writer.attempt)) is not None:
            return found
    return checkpoint if checkpoint is not None and checkpoint.attempt < attempt else None


def _read(path: Path) -> object:
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None
        content: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content
