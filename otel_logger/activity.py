"""The activity: what a training does at the moment, its phase and state, and how long each phase has taken in all."""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from otel_logger.conventions import (
    OUTCOME_FAILED,
    OUTCOME_FINISHED,
    OUTCOME_INTERRUPTED,
    OUTCOME_PREEMPTED,
    PHASE_CHECKPOINT,
    PHASE_COMPUTE,
    PHASE_DATA,
    PHASE_EVAL,
    PHASE_OTHER,
    STATE_CHECKPOINTING,
    STATE_EVALUATING,
    STATE_STARTING,
    STATE_TRAINING,
)
from otel_logger_exporters.clock import Clock

__all__ = ["CHECKPOINT_START", "PHASES", "STATES", "Activity"]

PHASES: Final = (PHASE_DATA, PHASE_COMPUTE, PHASE_EVAL, PHASE_CHECKPOINT, PHASE_OTHER)

STATES: Final = (
    *(STATE_STARTING, STATE_TRAINING, STATE_EVALUATING, STATE_CHECKPOINTING),
    *(OUTCOME_FINISHED, OUTCOME_FAILED, OUTCOME_INTERRUPTED, OUTCOME_PREEMPTED),
)

CHECKPOINT_START: Final = "checkpoint_start"
"""What stands for the moment at which a trainer asks for the state to be saved; Composer has no event for it."""

_EVENT_PHASES: Final[Mapping[str, str]] = {
    # To load a sharded checkpoint a trainer asks for the state, too.
    "after_load": PHASE_OTHER,
    "fit_start": PHASE_OTHER,
    "before_dataloader": PHASE_DATA,
    "after_dataloader": PHASE_OTHER,
    "batch_start": PHASE_COMPUTE,
    "batch_end": PHASE_OTHER,
    "epoch_start": PHASE_OTHER,
    "epoch_end": PHASE_OTHER,
    "fit_end": PHASE_OTHER,
    "eval_start": PHASE_EVAL,
    "eval_end": PHASE_OTHER,
    "predict_start": PHASE_EVAL,
    "predict_end": PHASE_OTHER,
    CHECKPOINT_START: PHASE_CHECKPOINT,
    "batch_checkpoint": PHASE_OTHER,
    "epoch_checkpoint": PHASE_OTHER,
    "iteration_checkpoint": PHASE_OTHER,
}
"""The phase that begins with each event; the others change none. One phase at a time, so that an end which a trainer
skips makes the next event end it."""

_STATES_OF_PHASES: Final = {PHASE_EVAL: STATE_EVALUATING, PHASE_CHECKPOINT: STATE_CHECKPOINTING}


class Activity:
    """Follows a trainer's events, and spans that name a phase, from its construction to `end`. Thread-safe.

    Phases: `data` (waiting for the data loader), `compute` (a batch), `eval` (evaluation and prediction),
    `checkpoint`, and `other`, which is everything else since the logger was opened: together they are the time that
    has passed. States: `starting` (not in a fit: setting up, or between two), `training`, `evaluating`,
    `checkpointing`, and the outcome once the run has ended.
    """

    def __init__(self, clock: Clock) -> None:
        self.batch_end_ns: int | None = None
        """When the trainer was last done with a batch."""
        self._clock = clock
        # Reentrant: a signal handler may log, and so look here, within an event.
        self._lock = threading.RLock()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase = self._phase_of_events = PHASE_OTHER
        self._blocks: list[tuple[str, object]] = []
        self._thread: int | None = None
        self._since = clock.monotonic()
        self._is_fitting = False
        self._outcome: str | None = None

    @property
    def state(self) -> str:
        """The present state."""
        with self._lock:
            around = STATE_TRAINING if self._is_fitting else STATE_STARTING
            return self._outcome or _STATES_OF_PHASES.get(self._phase, around)

    def follow(self, event: str) -> None:
        """Take note of a trainer's event."""
        if (phase := _EVENT_PHASES.get(event)) is None:
            return
        with self._lock:
            if event == "fit_start":
                self._is_fitting = True
            elif event == "fit_end":
                self._is_fitting = False
            elif event == "batch_end":
                self.batch_end_ns = self._clock.time_ns()
            self._phase_of_events = phase
            self._switch()

    def note_training(self) -> None:
        """Take note that a program without a trainer trains: it logs metrics."""
        self._is_fitting = True

    def enter(self, phase: str) -> Callable[[], None]:
        """Count the time to `phase` from here on, whatever events say, until what is returned is called.

        The phase entered last counts. Only the thread that was the first to enter one can: in another one a phase
        passes beside what the training does.
        """
        block = (phase, object())
        with self._lock:
            thread = threading.get_ident()
            self._thread = thread if self._thread is None else self._thread
            if self._thread == thread:
                self._blocks.append(block)
                self._switch()

        def leave() -> None:
            with self._lock:
                if block in self._blocks:
                    self._blocks.remove(block)
                    self._switch()

        return leave

    def end(self, outcome: str) -> None:
        """Take the outcome of the run for its state from here on; what is done after it counts to no phase."""
        with self._lock:
            self._switch()
            self._outcome = outcome

    def seconds(self) -> dict[str, float]:
        """Return how long each phase has taken so far, the present one included."""
        with self._lock:
            self._switch()
            return dict(self._seconds)

    def abandon(self) -> None:
        """Take a new lock in the child of a fork, where the parent's may be held for ever."""
        self._lock = threading.RLock()

    def _switch(self) -> None:
        """Count the time since the last call to the phase that it was, and go on with the one that it is now."""
        if self._outcome is not None:
            return
        now = self._clock.monotonic()
        self._seconds[self._phase] += max(0.0, now - self._since)
        self._phase = self._blocks[-1][0] if self._blocks else self._phase_of_events
        self._since = now
