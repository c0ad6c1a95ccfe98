"""Liveness: what tells, without a word from the training itself, that a run lives, where it is and who it is."""

from typing import Final

from otel_logger import conventions as names
from otel_logger.activity import STATES, Activity
from otel_logger.identity import Identity
from otel_logger.trainer import Position
from otel_logger_exporters.measurements import Attributes, Instrument, Measurement

__all__ = ["measure_liveness"]

_RUN_INFO: Final = Instrument(names.RUN_INFO)
_STATE: Final = Instrument(names.STATE)
_PHASE_TIME: Final = Instrument(names.PHASE_TIME, "s", is_sum=True)
_STEP: Final = Instrument(names.POSITION_STEP, names.STEP_UNIT)
_EPOCH: Final = Instrument(names.POSITION_EPOCH, "{epoch}")
_PROGRESS: Final = Instrument(names.PROGRESS, "1")
_LAST_STEP: Final = Instrument(names.LAST_STEP_TIMESTAMP, "s")


def measure_liveness(
    identity: Identity, activity: Activity, position: Position, step: int | None, stepped_ns: int | None
) -> list[Measurement]:
    """Return what is known of a run at this moment.

    `step` is the last one and `stepped_ns` when it was over, None for none yet. The state is a set of gauges, one for
    each state with the value 1 for the present one, so that each is a series of its own that can be graphed and
    alerted on.
    """
    state = activity.state
    info: Attributes = (
        (names.RUN_ID, identity.run_id),
        (names.RUN_NAME, identity.run_name),
        (names.RUN_ATTEMPT, identity.attempt),
        (names.RANK, identity.ranks.rank),
        (names.WORLD_SIZE, identity.ranks.world_size),
    )
    return [
        Measurement(_RUN_INFO, {info: 1}),
        Measurement(_STATE, {((names.STATE, name),): int(name == state) for name in STATES}),
        Measurement(_PHASE_TIME, {((names.PHASE, phase),): spent for phase, spent in activity.seconds().items()}),
        _single(_STEP, step),
        _single(_EPOCH, position.epoch()),
        _single(_PROGRESS, position.progress()),
        _single(_LAST_STEP, stepped_ns / 1e9 if stepped_ns is not None else None),
    ]


def _single(instrument: Instrument, value: float | int | None) -> Measurement:
    return Measurement(instrument, {} if value is None else {(): value})
