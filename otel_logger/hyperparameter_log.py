"""The log of hyperparameters: what one writer records of them, and of what an earlier attempt at its run had."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_logger.hyperparameter_events import hyperparameter_events
from otel_logger.hyperparameter_memory import HyperparameterFile, recall
from otel_logger.hyperparameters import HyperparameterSet, Remembered
from otel_logger.identity import Identity
from otel_logger.lookout import LONGEST_LOOK, Lookout
from otel_logger.redaction import Redactor
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Measurement

__all__ = ["HyperparameterLog"]


class HyperparameterLog:
    """Takes hyperparameters for the resource until that is bound, and for events and points from then on.

    `keep` puts the set into the journal, `emit` records an event with its attributes and body. Nothing raises.
    """

    def __init__(
        self,
        redactor: Redactor,
        ledger: Ledger,
        *,
        keep: Callable[[Mapping[str, Any]], None],
        emit: Callable[[Mapping[str, Any], Any], None],
    ) -> None:
        self._redactor = redactor
        self._set = HyperparameterSet(redactor, ledger)
        self._file = HyperparameterFile(ledger)
        self._keep = keep
        self._emit = emit
        self._checkpoint: tuple[str, Remembered] | None = None
        self._earlier: Remembered | None = None

    def resume(self, run_id: str, remembered: Remembered | None) -> None:
        """Take note of what a checkpoint of a run remembers."""
        self._checkpoint = (run_id, remembered) if remembered is not None else None

    def add(self, hyperparameters: Any) -> bool:
        """Take what a call logged; return whether any of it is new or changed."""
        is_changed = bool(self._set.add(hyperparameters))
        if is_changed:
            self._remember()
        return is_changed

    def bind(self, identity: Identity, folder: Path) -> dict[str, Any]:
        """Return the resource attributes, to which nothing is added from here on; `folder` is the run's.

        What an earlier attempt logged too late for its own resource is among them.
        """
        if identity.attempt > 1:
            self._recall(identity, folder)
        return self._set.bind()

    def tell(self) -> None:
        """Record the whole set as an event, if there is any, and how it differs from the earlier attempt's."""
        if len(self._set):
            for attributes, body in hyperparameter_events(self._set, self._earlier):
                self._emit(attributes, body)

    def measure(self) -> Measurement:
        """Return a point for each hyperparameter."""
        return self._set.measure()

    def take_ended(self) -> Measurement:
        """Return, once, the points that are no more."""
        return self._set.take_ended()

    def remembered(self, attempt: int) -> Remembered | None:
        """Return what a later attempt than this one is to know; None when there is nothing."""
        nested = self._set.nested()
        return Remembered(attempt, nested, self._set.late()) if nested else None

    def write(self, folder: Path) -> None:
        """Write what is remembered into the writer's folder, if it has changed; for a thread of the background."""
        self._file.write(folder)

    def abandon(self) -> None:
        """Take new locks in the child of a fork."""
        self._set.abandon()

    def _recall(self, identity: Identity, folder: Path) -> None:
        run_id, checkpointed = self._checkpoint or (None, None)
        known = checkpointed if run_id == identity.run_id else None
        looking = Lookout(lambda: (recall(folder, identity.attempt, identity.ranks.rank, known),))
        # Where the disk does not answer it is not waited for: then there may be nothing to compare with.
        (earlier,) = looking.answer(LONGEST_LOOK) or (known,)
        if earlier is not None:
            # By the rules of today.
            self._earlier = replace(earlier, nested=self._redactor.redact("", earlier.nested))
            if self._set.carry(self._earlier):
                self._remember()

    def _remember(self) -> None:
        nested = self._set.nested()
        self._keep(nested)
        # The attempt is known from the folder.
        self._file.note(Remembered(0, nested, self._set.late()))
