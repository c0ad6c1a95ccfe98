"""Trainer events: a method for each event that means something here, by the name that Composer's engine calls it by.

All lead to one place. Events that mean nothing here have no method (in a Composer trainer, its empty one).
"""

from abc import ABC, abstractmethod
from typing import Any, Final

__all__ = ["EVENTS", "TrainerEvents"]


class TrainerEvents(ABC):
    """What a trainer calls: `run_event` with any event, or the method of the event's name."""

    @abstractmethod
    def _follow(self, event: str, state: Any) -> None:
        """Take note of an event."""

    def run_event(self, event: Any, state: Any, logger: Any) -> None:
        """Call the method of this event's name, where there is one."""
        name = getattr(event, "value", event)
        if isinstance(name, str) and name in EVENTS and (method := getattr(self, name, None)) is not None:
            method(state, logger)

    def after_load(self, state: Any, logger: Any) -> None:
        """Take note that a checkpoint is loaded, for which a trainer may have asked for the state that it replaces."""
        self._follow("after_load", state)

    def fit_start(self, state: Any, logger: Any) -> None:
        """Bind the resource, and begin the span of the fit."""
        self._follow("fit_start", state)

    def fit_end(self, state: Any, logger: Any) -> None:
        """End the span of the fit."""
        self._follow("fit_end", state)

    def epoch_start(self, state: Any, logger: Any) -> None:
        """Begin the span of the epoch, in a trace of its own."""
        self._follow("epoch_start", state)

    def epoch_end(self, state: Any, logger: Any) -> None:
        """End the span of the epoch."""
        self._follow("epoch_end", state)

    def before_dataloader(self, state: Any, logger: Any) -> None:
        """Begin the span of the loading of a batch, where OTEL_LOGGER_BATCH_SPANS grants the batch one."""
        self._follow("before_dataloader", state)

    def after_dataloader(self, state: Any, logger: Any) -> None:
        """End the span of the loading of a batch."""
        self._follow("after_dataloader", state)

    def batch_start(self, state: Any, logger: Any) -> None:
        """Begin the span of the batch, where OTEL_LOGGER_BATCH_SPANS grants one."""
        self._follow("batch_start", state)

    def batch_end(self, state: Any, logger: Any) -> None:
        """End the span of the batch."""
        self._follow("batch_end", state)

    def before_forward(self, state: Any, logger: Any) -> None:
        """Begin the span of a forward pass, in a batch that has one."""
        self._follow("before_forward", state)

    def after_forward(self, state: Any, logger: Any) -> None:
        """End the span of a forward pass."""
        self._follow("after_forward", state)

    def before_backward(self, state: Any, logger: Any) -> None:
        """Begin the span of a backward pass, in a batch that has one."""
        self._follow("before_backward", state)

    def after_backward(self, state: Any, logger: Any) -> None:
        """End the span of a backward pass."""
        self._follow("after_backward", state)

    def batch_checkpoint(self, state: Any, logger: Any) -> None:
        """End the span of a checkpoint."""
        self._follow("batch_checkpoint", state)

    def epoch_checkpoint(self, state: Any, logger: Any) -> None:
        """End the span of a checkpoint."""
        self._follow("epoch_checkpoint", state)

    def iteration_checkpoint(self, state: Any, logger: Any) -> None:
        """End the span of a checkpoint."""
        self._follow("iteration_checkpoint", state)

    def eval_before_all(self, state: Any, logger: Any) -> None:
        """Take note that evaluations begin within a fit."""
        self._follow("eval_before_all", state)

    def eval_after_all(self, state: Any, logger: Any) -> None:
        """Take note that evaluations within a fit are over."""
        self._follow("eval_after_all", state)

    def eval_standalone_start(self, state: Any, logger: Any) -> None:
        """Bind the resource, and take note that evaluations begin outside a fit."""
        self._follow("eval_standalone_start", state)

    def eval_standalone_end(self, state: Any, logger: Any) -> None:
        """Take note that evaluations outside a fit are over."""
        self._follow("eval_standalone_end", state)

    def eval_start(self, state: Any, logger: Any) -> None:
        """Begin the span of an evaluation."""
        self._follow("eval_start", state)

    def eval_end(self, state: Any, logger: Any) -> None:
        """End the span of an evaluation."""
        self._follow("eval_end", state)

    def predict_start(self, state: Any, logger: Any) -> None:
        """Bind the resource, and begin the span of a prediction."""
        self._follow("predict_start", state)

    def predict_end(self, state: Any, logger: Any) -> None:
        """End the span of a prediction."""
        self._follow("predict_end", state)


_OF_STAGES = ("start", "batch_start", "before_forward", "after_forward", "batch_end", "end")

EVENTS: Final = frozenset(
    {"init", "before_load", "after_load", "fit_start", "fit_end"}
    | {f"{unit}_{point}" for unit in ("iteration", "epoch", "batch") for point in ("start", "end", "checkpoint")}
    | {f"{side}_{part}" for side in ("before", "after") for part in ("dataloader", "train_batch", "forward", "loss")}
    | {"before_backward", "after_backward"}
    | {f"{stage}_{point}" for stage in ("eval", "predict") for point in _OF_STAGES}
    | {"eval_before_all", "eval_after_all", "eval_standalone_start", "eval_standalone_end"}
)
"""Every event of Composer's engine. Other names are no events, also where a method is called so."""
