"""The trainer as seen from its events: where it is, and which span each event begins or ends.

The order of events is the one of Composer's engine (contract sections 2 and 5); nothing here imports Composer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_logger.activity import CHECKPOINT_START
from otel_logger.conventions import (
    EPOCH,
    EVALUATOR,
    SPAN_BACKWARD,
    SPAN_BATCH,
    SPAN_CHECKPOINT,
    SPAN_DATA,
    SPAN_EPOCH,
    SPAN_EVAL,
    SPAN_FIT,
    SPAN_FORWARD,
    SPAN_PREDICT,
    STEP,
)
from otel_logger.spans import Spans
from otel_logger.values import plain

__all__ = ["EVENT_SPANS", "Position", "follow"]


class Position:
    """Where a trainer is: its step (batches done) and epoch, read from the state that `init` gave."""

    def __init__(self) -> None:
        self._state: Any = None

    def attach(self, state: Any) -> None:
        """Follow `state`, whose `timestamp` is replaced as training goes on."""
        self._state = state

    @property
    def has_trainer(self) -> bool:
        """Whether a trainer has shown its state."""
        return self._state is not None

    def step(self) -> int | None:
        """Return the number of batches done, or None without a trainer."""
        return self._count("batch")

    def epoch(self) -> int | None:
        """Return the number of epochs done, or None without a trainer."""
        return self._count("epoch")

    def progress(self) -> float | None:
        """Return which part of the training is done, 0 to 1; None without a trainer, or one that says no end."""
        elapsed = getattr(self._state, "get_elapsed_duration", None)
        try:
            # A Time of the unit "duration", or None; what it is computed from changes while the training goes on.
            duration = elapsed() if callable(elapsed) else None
            return None if duration is None else min(1.0, max(0.0, float(getattr(duration, "value", duration))))
        except Exception:
            return None

    def evaluator(self) -> str | None:
        """Return the name of the data being evaluated, or None."""
        label = getattr(self._state, "dataloader_label", None)
        return str(label) if label is not None else None

    def _count(self, name: str) -> int | None:
        count = getattr(getattr(self._state, "timestamp", None), name, None)
        value = getattr(count, "value", count)
        return value if type(value) is int else None


def _place(position: Position) -> Mapping[str, Any]:
    return {EPOCH: position.epoch(), STEP: position.step()}


def _evaluation(position: Position) -> Mapping[str, Any]:
    return {EVALUATOR: position.evaluator(), STEP: position.step()}


EVENT_SPANS: Final[Mapping[str, tuple[str, bool, Callable[[Position], Mapping[str, Any]]]]] = {
    "fit_start": (SPAN_FIT, True, _place),
    "fit_end": (SPAN_FIT, False, _place),
    "epoch_start": (SPAN_EPOCH, True, _place),
    "epoch_end": (SPAN_EPOCH, False, _place),
    "before_dataloader": (SPAN_DATA, True, _place),
    "after_dataloader": (SPAN_DATA, False, _place),
    "batch_start": (SPAN_BATCH, True, _place),
    "batch_end": (SPAN_BATCH, False, _place),
    "before_forward": (SPAN_FORWARD, True, _place),
    "after_forward": (SPAN_FORWARD, False, _place),
    "before_backward": (SPAN_BACKWARD, True, _place),
    "after_backward": (SPAN_BACKWARD, False, _place),
    "eval_start": (SPAN_EVAL, True, _evaluation),
    "eval_end": (SPAN_EVAL, False, _evaluation),
    "predict_start": (SPAN_PREDICT, True, _evaluation),
    "predict_end": (SPAN_PREDICT, False, _evaluation),
    CHECKPOINT_START: (SPAN_CHECKPOINT, True, _place),
    "batch_checkpoint": (SPAN_CHECKPOINT, False, _place),
    "epoch_checkpoint": (SPAN_CHECKPOINT, False, _place),
    "iteration_checkpoint": (SPAN_CHECKPOINT, False, _place),
}
"""For each event with a span: its name, whether it begins, and the attributes of its beginning."""


def follow(event: str, spans: Spans, position: Position) -> None:
    """Begin or end the span of an event; events without one do nothing, but that any of them ends a checkpoint."""
    if spans.innermost == SPAN_CHECKPOINT:
        # A callback may make one at another event than those of checkpoints, and nothing tells that it is done.
        spans.end(SPAN_CHECKPOINT)
    if (entry := EVENT_SPANS.get(event)) is None:
        return
    name, begins, describe = entry
    if begins:
        spans.begin(name, lambda: {key: plain(value) for key, value in describe(position).items() if value is not None})
    else:
        spans.end(name)
