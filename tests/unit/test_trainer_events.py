"""A trainer's events, whatever form they come in, reach the logger by their name; others cost nothing."""

from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from otel_logger import OTelLogger, read_run
from otel_logger.trainer import EVENT_SPANS
from otel_logger.trainer_events import EVENTS, TrainerEvents
from tests.runs import trainer_state


class _Noting(TrainerEvents):
    def __init__(self) -> None:
        self.noted: list[str] = []

    def _follow(self, event: str, state: Any) -> None:
        self.noted.append(event)


class _Event(Enum):
    FIT_START = "fit_start"
    BEFORE_LOSS = "before_loss"


def test_an_event_is_known_by_its_value_or_its_name() -> None:
    """Composer's enumeration and plain strings are the same event; what means nothing here does nothing."""
    noting = _Noting()
    for event in (_Event.FIT_START, "fit_start", SimpleNamespace(value="batch_end"), _Event.BEFORE_LOSS, "before_loss"):
        noting.run_event(event, None, None)
    assert ["fit_start", "fit_start", "batch_end"] == noting.noted


@pytest.mark.parametrize("event", ["close", "_follow", "run_event", "noted", "", "unknown", None, 7, object(), ["x"]])
def test_what_is_no_event_does_nothing(event: object) -> None:
    """A name that is no event is no way to call a method."""
    noting = _Noting()
    noting.run_event(event, None, None)
    noting.run_event(SimpleNamespace(value=event), None, None)
    assert [] == noting.noted


@pytest.mark.parametrize("event", sorted(set(EVENT_SPANS) - {"checkpoint_start"}))
def test_events_with_a_span_have_a_method(event: str) -> None:
    """The method of the event's name, which Composer calls, leads to the same place as `run_event`."""
    noting = _Noting()
    getattr(noting, event)(None, None)
    noting.run_event(event, None, None)
    assert event in EVENTS
    assert [event, event] == noting.noted


def test_a_method_that_a_subclass_has_is_called() -> None:
    """Who overrides an event, also one that means nothing here, gets it."""

    class Own(_Noting):
        def before_loss(self, state: Any, logger: Any) -> None:
            self.noted.append(f"own {state} {logger}")

    own = Own()
    own.run_event("before_loss", 1, 2)
    assert ["own 1 2"] == own.noted


def test_a_checkpoint_is_the_time_from_the_asking_for_the_state_to_its_event(make: Callable[..., OTelLogger]) -> None:
    """Composer asks every callback for its state as it begins a checkpoint, and tells loggers last when it is made."""
    state = trainer_state(batch=7)
    log = make(run_name=None)
    for event in ("fit_start", "epoch_start"):
        log.run_event(event, state, None)
    told = log.state_dict()
    log.upload_file(state, "a.pt", __file__)
    log.run_event("batch_checkpoint", state, None)
    log.run_event("epoch_end", state, None)
    log.state_dict()
    log.run_event("eval_start", state, None)
    log.post_close()

    assert log.run_dir is not None
    spans = {span["name"]: span for span in read_run(log.run_dir).spans}
    checkpoints = [span for span in read_run(log.run_dir).spans if span["name"] == "training.checkpoint"]
    assert (
        [spans["training.epoch"]["span_id"], spans["training.fit"]["span_id"]],
        {"run_id", "run_name", "attempt"},
    ) == (
        [span["parent_span_id"] for span in checkpoints],
        set(told),
    )
    assert {"training.step": 7, "training.epoch": 0} == checkpoints[0]["attributes"]
    assert checkpoints[0]["span_id"] == spans["training.upload"]["parent_span_id"]
    assert spans["training.fit"]["span_id"] == spans["training.eval"]["parent_span_id"]


def test_the_state_without_a_trainer_is_no_checkpoint(make: Callable[..., OTelLogger]) -> None:
    """A plain loop may ask for the state when it likes."""
    with make() as log:
        log.log_metrics({"loss": 1.0})
        log.state_dict()

    assert log.run_dir is not None
    assert ["training.run"] == [span["name"] for span in read_run(log.run_dir).spans]


@pytest.mark.parametrize(
    ("events", "name"),
    [
        (("eval_standalone_start", "eval_start"), "training.eval"),
        (("predict_start",), "training.predict"),
    ],
)
def test_an_evaluation_without_a_fit_is_of_a_known_run(
    make: Callable[..., OTelLogger], events: tuple[str, ...], name: str
) -> None:
    """While one goes on, or a prediction, it is known which run that is; its span is in the trace of the run's."""
    state = trainer_state()
    log = make(run_name=None)
    log.init(state, None)
    for event in events:
        log.run_event(event, state, None)
    known = log.run_id
    log.post_close()

    assert log.run_dir is not None
    spans = {span["name"]: span for span in read_run(log.run_dir).spans}
    assert known == log.run_id is not None
    assert spans["training.run"]["span_id"] == spans[name]["parent_span_id"]


@pytest.mark.parametrize("environ", [{"OTEL_TRACES_EXPORTER": "none"}, {"RANK": "1", "WORLD_SIZE": "2"}])
def test_a_log_record_refers_to_no_span_that_is_not_recorded(
    make: Callable[..., OTelLogger], environ: dict[str, str]
) -> None:
    """Where spans are not recorded, by setting or on another rank than zero, log records have no trace and span id."""
    state = trainer_state()
    log = make(run_name=None, **environ)
    log.init(state, None)
    log.run_event("fit_start", state, None)
    log.post_close()

    assert log.run_dir is not None
    events = read_run(log.run_dir).events
    assert {"training.run.start", "training.run.end"} <= set(events["name"])
    assert {""} == set(events["trace_id"]) == set(events["span_id"])
