"""Liveness: what a run that says nothing else tells of itself, in a plain loop and under a trainer."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

from otel_logger import OTelLogger
from otel_logger import conventions as names
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind
from otel_logger_exporters.segments import read_segment, segments_of
from otel_logger_exporters.signals import Signal


def beats(folder: Path) -> list[dict[tuple, float | int | None]]:
    """Return what each frame of a run's metrics says: its value (None: the end) by name and attributes."""
    found = []
    for writer in folder.iterdir():
        for _, path in segments_of(writer, Signal.METRICS):
            segment = read_segment(path.read_bytes())
            frames = [r for r in (segment.records if segment is not None else ()) if r.kind == Kind.OTLP]
            found += [values(ScopeMetrics.FromString(Frame.unpack(frame.payload).body)) for frame in frames]
    return found


def first_beat(log: OTelLogger) -> dict[tuple, float | int | None]:
    """Return the first beat, once it has come: soon, and not with the interval."""
    deadline = time.monotonic() + 5
    while not (found := beats(log.run_dir)):
        assert time.monotonic() < deadline, "no heartbeat has come"
        time.sleep(0.002)
    return found[0]


def values(message: ScopeMetrics) -> dict[tuple, float | int | None]:
    """Return the points of a message by name and attributes."""
    found = {}
    for metric in message.metrics:
        for point in (*metric.gauge.data_points, *metric.sum.data_points):
            attributes = tuple(a.value.string_value or a.value.int_value for a in point.attributes)
            kind = point.WhichOneof("value")
            found[(metric.name, *attributes)] = None if point.flags else getattr(point, kind)
    return found


def logger(folder: Path, **environ: str) -> OTelLogger:
    """Return a local logger of a named run."""
    return OTelLogger(run_name="r", run_id="r1", environ={"OTEL_LOGGER_DIR": str(folder), **environ})


def test_a_plain_loop_tells_its_step_and_when_it_came(tmp_path: Path) -> None:
    """The first value begins the training; the last step stands in the last beat."""
    before = time.time()
    with logger(tmp_path) as log:
        log.log_metrics({"loss": 0.5}, step=0)
        first = first_beat(log)
        for step in range(1, 5):
            log.log_metrics({"loss": 0.5}, step=step)
        run = log.run_dir
    *_, last, _, _ = beats(run)
    assert 1 == first[names.STATE, "training"]
    assert 0 == first[names.POSITION_STEP,]
    assert 4 == last[names.POSITION_STEP,]
    assert before - 1 <= last[names.LAST_STEP_TIMESTAMP,] <= time.time() + 1
    assert 1 == last[names.RUN_INFO, "r1", "r", 1, 0, 1]
    assert (names.POSITION_EPOCH,) not in last
    assert (names.PROGRESS,) not in last


@pytest.mark.parametrize(("error", "outcome"), [(None, "finished"), (ValueError, "failed"), (SystemExit, "finished")])
def test_the_last_beat_tells_the_outcome_and_then_every_series_ends(tmp_path: Path, error, outcome: str) -> None:
    """A backend shows no value of a run on that is over: neither of liveness nor of what was logged."""
    log = logger(tmp_path)
    with pytest.raises(error) if error else log:
        if error:
            with log:
                log.log_metrics({"loss": 0.5, "Loss": 1.0}, step=1)
                raise error
        log.log_metrics({"loss": 0.5, "Loss": 1.0}, step=1)
    *_, last, liveness, logged = beats(log.run_dir)
    assert {outcome: 1} == {key[1]: value for key, value in last.items() if key[0] == names.STATE and value}
    assert {key: None for key in last} == {key: value for key, value in liveness.items() if key in last}
    assert {
        ("loss", "loss"): None,
        ("Loss", "Loss"): None,
        (names.STEP, "loss"): None,
        (names.STEP, "Loss"): None,
    } == logged


def test_values_without_steps_end_without_steps(tmp_path: Path) -> None:
    """No series is begun by its end."""
    with logger(tmp_path) as log:
        log.log_metrics({"loss": 0.5})
    assert {("loss", "loss"): None} == beats(log.run_dir)[-1]


def test_a_trainer_tells_epoch_progress_and_phase(tmp_path: Path) -> None:
    """Position is the trainer's own, not the step of the last value."""
    timestamp = SimpleNamespace(batch=SimpleNamespace(value=8), epoch=SimpleNamespace(value=2))
    state = SimpleNamespace(run_name="r", timestamp=timestamp, get_elapsed_duration=lambda: SimpleNamespace(value=0.25))
    log = logger(tmp_path)
    log.init(state, None)
    log.run_event("fit_start", state, None)
    first = first_beat(log)
    log.run_event("batch_end", state, None)
    log.log_metrics({"loss": 0.5}, step=3)
    log.close()
    *_, last, _, _ = beats(log.run_dir)
    assert 1 == first[names.STATE, "training"]
    assert (names.LAST_STEP_TIMESTAMP,) not in first
    assert (8, 2, 0.25) == tuple(last[n,] for n in (names.POSITION_STEP, names.POSITION_EPOCH, names.PROGRESS))
    assert last[names.LAST_STEP_TIMESTAMP,] > 0
    assert 1 == last[names.STATE, "interrupted"]


def test_every_rank_tells_that_it_lives(tmp_path: Path) -> None:
    """Also one whose metrics are not recorded; the values it was given are not."""
    with logger(tmp_path, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1") as log:
        log.log_metrics({"loss": 0.5}, step=6)
        run = log.run_dir
    *_, last, _ = beats(run)
    assert 1 == last[names.RUN_INFO, "r1", "r", 1, 1, 2]
    assert 6 == last[names.POSITION_STEP,]
    assert {"metrics": 0} == {"metrics": log.stats().recorded["metrics"]}


def test_nothing_is_told_before_the_resource_is_bound(tmp_path: Path) -> None:
    """Who has not said yet which run it is has no series."""
    log = logger(tmp_path)
    log.log_hyperparameters({"lr": 0.1})
    run = log.run_dir
    assert [] == beats(run)
    log.close()
    assert beats(run)


def test_spans_that_name_a_phase_count_to_it(tmp_path: Path) -> None:
    """A plain loop has no events; a phase that is none counts to no other."""
    log = logger(tmp_path)
    with log.span("validate", **{names.PHASE: "eval"}):
        log.log_metrics({"loss": 0.5}, step=0)
        first = first_beat(log)
        with log.span("inner", **{names.PHASE: "no such phase"}):
            pass
    log.close()
    *_, last, _, _ = beats(log.run_dir)
    assert 1 == first[names.STATE, "evaluating"]
    assert 0 < first[names.PHASE_TIME, "eval"] < last[names.PHASE_TIME, "eval"]
    assert {0.0} == {last[names.PHASE_TIME, phase] for phase in ("data", "compute", "checkpoint")}


def test_what_cannot_be_encoded_costs_neither_the_other_series_nor_the_end(tmp_path: Path, caplog) -> None:
    """A count beyond 64 bits is no number of OTLP; it is told, and everything recorded is stored and sent as ever."""
    timestamp = SimpleNamespace(batch=SimpleNamespace(value=1), epoch=SimpleNamespace(value=2**70))
    log = logger(tmp_path)
    log.init(SimpleNamespace(run_name="r", timestamp=timestamp), None)
    log.log_metrics({"loss": 0.5})
    log.close()
    assert None is beats(log.run_dir)[-1]["loss", "loss"]
    assert {} == log.stats().dropped
    assert any("The end of series failed inside otel_logger" in message for message in caplog.messages)
