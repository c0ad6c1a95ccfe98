"""OTelLogger as a user calls it: what each call records, in local mode, read back with `read_run`."""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from otel_logger import OTelLogger, read_run
from tests.runs import events, points, trainer_state


def test_every_value_of_every_step_is_kept(make: Callable[..., OTelLogger]) -> None:
    """A run read back has each (key, step, value) once, in order."""
    with make() as log:
        for step in range(50):
            log.log_metrics({"loss": 1 / (step + 1), "accuracy": step / 50}, step=step)

    expected = [pair for s in range(50) for pair in (("loss", s, 1 / (s + 1)), ("accuracy", s, s / 50))]
    assert expected == points(log)


def test_a_bad_value_costs_nothing_but_itself(make: Callable[..., OTelLogger]) -> None:
    """Numbers arrive as numbers under their full key; what is none arrives in one log record."""
    long = "k" * 400
    metrics: dict[Any, Any] = {
        "float": 0.5,
        "text": "hello",
        "none": None,
        "object": object(),
        "bool": True,
        "nan": math.nan,
        "inf": math.inf,
        "huge": 2**80,
        "exact": 2**53 + 1,
        "zero-d": np.array(3.5),
        "one": np.array([[2.5]]),
        "many": np.array([1.0, 2.0]),
        "nested": {"a": {"b": 1}},
        7: 7.0,
        "": 8.0,
        long: 9.0,
        "größe/Ünï ☃": 10.0,
        "last": 11,
    }
    with make() as log:
        log.log_metrics(metrics, step=3)

    found = {key: value for key, step, value in points(log)}
    assert math.isnan(found.pop("nan"))
    assert {
        "float": 0.5,
        "bool": 1.0,
        "inf": math.inf,
        "huge": float(2**80),
        "exact": 2**53 + 1,
        "zero-d": 3.5,
        "one": 2.5,
        "7": 7.0,
        "": 8.0,
        long: 9.0,
        "größe/Ünï ☃": 10.0,
        "last": 11.0,
    } == found
    (record,) = events(log, "training.values")
    assert ["text", "none", "object", "many", "nested"] == list(record["body"])
    assert ("hello", None, [1.0, 2.0], {"a": {"b": 1}}) == (
        record["body"]["text"],
        record["body"]["none"],
        record["body"]["many"],
        record["body"]["nested"],
    )
    assert 3 == record["step"]
    assert {"overflow": 1} == log.stats().adjusted


def test_what_is_no_dict_is_counted_and_not_raised(make: Callable[..., OTelLogger]) -> None:
    """Nonsense in place of a dict, a name or rows costs that call."""
    log = make()
    log.log_metrics(None)  # type: ignore[arg-type]
    log.log_traces(3)  # type: ignore[arg-type]
    log.log_hyperparameters("x")  # type: ignore[arg-type]
    log.log_images(object())
    log.log_table(None, 5, name=None)  # type: ignore[arg-type]
    log.log_metrics({"loss": 1.0}, step="three")  # type: ignore[arg-type]
    log.close()

    assert [("loss", None, 1.0)] == points(log)
    assert 2 == log.stats().dropped["internal"]
    assert 1 == log.stats().dropped["hyperparameters"]
    assert {"step": 1} == log.stats().adjusted


def test_flags_without_a_truth_cost_their_call(make: Callable[..., OTelLogger]) -> None:
    """An array in the place of a flag raises when it is asked, and not at the caller's."""
    log = make()
    log.log_images([[1]], channels_last=np.array([True, False]))  # type: ignore[arg-type]
    log.log_images([[1]], use_table=np.array([True, False]))  # type: ignore[arg-type]
    log.close()

    assert {"internal": 2} == log.stats().dropped


class _Unspeakable(Exception):
    """What no text can be had of."""

    def __repr__(self) -> str:
        raise self

    __str__ = __repr__


class _Hostile:
    """Raises it whatever is asked."""

    def _raise(self, *arguments: object, **more: object) -> Any:
        raise _Unspeakable

    __array__ = __bool__ = __iter__ = __len__ = __repr__ = __str__ = __fspath__ = _raise


def test_an_exception_that_cannot_tell_of_itself_is_not_raised(make: Callable[..., OTelLogger]) -> None:
    """Objects of the user's may raise what cannot even be shown; that costs their calls."""
    log, hostile = make(), cast(Any, _Hostile())
    log.log_images(hostile)
    log.log_images([[1]], channels_last=hostile)
    log.log_images([[1]], masks={"m": hostile})
    log.log_table(hostile, [[1]])
    log.log_table(["a"], hostile)
    log.upload_file(None, hostile, __file__)
    log.upload_file(None, "a", hostile)
    log.log_traces(hostile)
    log.close()

    dropped = log.stats().dropped
    assert {"internal", "file"} >= dropped.keys()
    assert 2 == dropped["file"]
    assert dropped["internal"] >= 4


def test_hyperparameters_before_the_first_value_are_on_the_resource(make: Callable[..., OTelLogger]) -> None:
    """The resource is bound by the first value: what comes before is on it, what comes after is an event."""
    with make(run_name=None) as log:
        log.init(trainer_state(), None)
        log.log_hyperparameters({"lr": 0.1, "optimizer": {"name": "sgd", "betas": [0.9, 0.99]}})
        log.log_hyperparameters({"api_key": "hunter2", "pad_token": "<pad>"})
        log.log_metrics({"not a number": "x"})
        log.log_metrics({})
        log.log_hyperparameters({"enabled": True})
        log.log_metrics({"loss": 1.0})
        log.log_hyperparameters({"late": None})

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    prefix = "training.hparam."
    on_resource = {k.removeprefix(prefix): v for k, v in run.resources[1, 0].items() if k.startswith(prefix)}
    assert {
        "lr": 0.1,
        "optimizer.name": "sgd",
        "optimizer.betas": [0.9, 0.99],
        "api_key": "[redacted]",
        "pad_token": "<pad>",
        "enabled": True,
    } == on_resource
    bodies = [event["body"] for event in events(log, "training.hyperparameters")]
    assert [False, True] == ["late" in body for body in bodies]
    assert "hunter2" not in repr(run)
    assert [*on_resource, "late"] == run.hyperparameters["key"]


def test_hyperparameters_that_are_logged_again_unchanged_are_not_recorded_again(
    make: Callable[..., OTelLogger],
) -> None:
    """A call at each step with the same values costs no record each time."""
    with make() as log:
        log.log_metrics({"loss": 1.0})
        for _ in range(10):
            log.log_hyperparameters({"lr": math.nan, "name": "x"})
        log.log_hyperparameters({"lr": 0.5})

    assert [math.nan, 0.5] == pytest.approx(
        [event["body"]["lr"] for event in events(log, "training.hyperparameters")], nan_ok=True
    )


def test_every_record_says_who_when_and_where(make: Callable[..., OTelLogger]) -> None:
    """Log records carry run, attempt, rank, a unique id, the step where there is one, and the current span."""
    with make() as log, log.span("work") as span:
        log.log_table(["a"], [[1]], step=5)
        log.log_metrics({"x": "no number"}, step=6)

    table, values = events(log, "training.table")[0], events(log, "training.values")[0]
    assert (5, 6) == (table["step"], values["step"])
    assert f"{span.get_span_context().span_id:016x}" == values["span_id"]
    for record in (table, values):
        attributes = record["attributes"]
        assert (log.run_id, "run", 1, 0) == tuple(
            attributes[f"training.{name}"] for name in ("run.id", "run.name", "run.attempt", "rank")
        )
    assert 2 == len({record["attributes"]["log.record.uid"] for record in (table, values)})


def test_traces_are_events_of_the_current_span_or_log_records(make: Callable[..., OTelLogger]) -> None:
    """A trace belongs to the span it happened in; without one, or by setting, it is a log record. None is lost."""
    state = trainer_state()
    log = make(run_name=None)
    log.init(state, None)
    log.log_traces({"before": 1})
    for event in ("fit_start", "epoch_start", "batch_start"):
        log.run_event(event, state, None)
    log.log_traces({"algorithm/Event.BEFORE_LOSS": 1})
    for event in ("batch_end", "batch_start"):
        log.run_event(event, state, None)
    log.log_traces({"in a batch without a span": [1, "two"]})
    log.post_close()

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    batch = next(span for span in run.spans if span["name"] == "training.batch")
    epoch = next(span for span in run.spans if span["name"] == "training.epoch")
    assert ["algorithm/Event.BEFORE_LOSS"] == [event["name"] for event in batch["events"]]
    assert epoch["span_id"] == batch["parent_span_id"]
    records = {e["attributes"]["training.trace.name"]: e["body"] for e in events(log, "training.trace")}
    assert {"before": 1, "in a batch without a span": [1, "two"]} == records


@pytest.mark.parametrize(("mode", "on_span", "in_log"), [("span", 1, 0), ("log", 0, 1), ("both", 1, 1)])
def test_trace_events_go_where_the_setting_says(
    make: Callable[..., OTelLogger], mode: str, on_span: int, in_log: int
) -> None:
    """OTEL_LOGGER_TRACE_EVENTS chooses span events, log records, or both."""
    with make(OTEL_LOGGER_TRACE_EVENTS=mode) as log, log.span("work"):
        log.log_traces({"trace": 1})

    assert log.run_dir is not None
    work = next(span for span in read_run(log.run_dir).spans if span["name"] == "work")
    assert (on_span, in_log) == (len(work["events"]), len(events(log, "training.trace")))
