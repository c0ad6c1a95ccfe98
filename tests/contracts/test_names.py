"""Every name that whole sessions send is in the glossary, which is the page that users build their queries on."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_logger import OTelLogger
from otel_logger import conventions as names
from otel_logger.attribute_glossary import ATTRIBUTES
from otel_logger.glossary import EVENTS, METRICS, SPAN_EVENTS, SPANS
from otel_logger_exporters.signals import Signal
from tests.emitted import Users, seen, seen_attributes, strangers
from tests.otlp_server import OtlpServer
from tests.runs import trainer_state

USERS = Users(
    keys=frozenset({"loss", "größe/x", "training/loss", "huge"}),
    traces=frozenset({"batch/tokens", "note"}),
    spans={"work": frozenset({"size", "training.mine"}), "inner": frozenset()},
    resource=frozenset({"team"}),
    loggers=frozenset({"tests.names", "py.warnings"}),
    extra=frozenset({"fold", "user.training.rank"}),
)

Make = Callable[..., OTelLogger]


@pytest.fixture
def collector() -> Iterator[OtlpServer]:
    """Give an endpoint that takes everything."""
    with OtlpServer("http/protobuf") as running:
        yield running


@pytest.fixture
def make(tmp_path: Path, collector: OtlpServer) -> Make:
    """Return a constructor of loggers that send to the collector."""

    def construct(run_name: str | None = "run", **environ: str) -> OTelLogger:
        settings = {
            "OTEL_LOGGER_DIR": str(tmp_path / "logs"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_RESOURCE_ATTRIBUTES": "team=vision,k8s.pod.name=trainer-0",
            "OTEL_LOGGER_HEARTBEAT_INTERVAL": "100",
            "TORCHELASTIC_RESTART_COUNT": "1",
            "OTEL_LOGGER_PROGRAM_LOGS": "info",
            "SLURM_CLUSTER_NAME": "cluster",
            **{f"SLURM_JOB_{name}": "1" for name in ("ID", "NAME", "PARTITION", "NODELIST")},
            **{f"SLURM_{name}": "1" for name in ("STEP_ID", "RESTART_COUNT", "ARRAY_JOB_ID", "ARRAY_TASK_ID")},
            **{f"K8S_{name}": "1" for name in ("POD_UID", "NAMESPACE_NAME", "NODE_NAME", "JOB_NAME", "JOB_UID")},
            "JOB_COMPLETION_INDEX": "0",
        }
        return OTelLogger(run_name=run_name, environ={**settings, **environ})

    return construct


def call_everything(log: OTelLogger, folder: Path) -> None:
    """Make every call that records something, in a plain loop."""
    log.log_hyperparameters({"lr": 0.1, "model": {"width": 8, "names": ["a", "b"]}, "api_key": "sk-none"})
    log.log_traces({"note": "before any span"})
    log.log_metrics({"loss": 0.5, "größe/x": 1.0, "training/loss": 2.0, "huge": 2**80, "word": "text"}, step=1)
    log.log_hyperparameters({"later": True})
    with log.span("work", size=3, **{"training.mine": 1}):
        log.log_traces({"batch/tokens": [1, 2, 3], "note": "in a span"})
        with suppress(KeyError), log.span("inner"):
            raise KeyError("gone")
    log.log_traces({"note": "x"})
    program = logging.getLogger("tests.names")
    program.warning("at %d", 1, extra={"fold": 2, "training.rank": 3}, stack_info=True)
    try:
        raise ValueError("bad")
    except ValueError:
        program.exception("failed")
    with log.span("work"):
        for number in range(1100):
            log.log_traces({"batch/tokens": number})
    log.log_images(np.zeros((3, 8, 8), np.uint8), name="picture", step=2, masks={"mask": np.zeros((8, 8))})
    log.log_images(np.arange(384).reshape(2, 3, 8, 8), name="pictures", step=2)
    # What is no image is counted as lost.
    log.log_images(np.zeros((2, 2, 2, 2, 2)), name="none", step=2)
    log.log_table(["a", "b"], [[1, "x"], [2, "y"]], name="table", step=2)
    source = folder / "model.bin"
    source.write_bytes(b"weights")
    log.upload_file(None, "checkpoints/model.bin", source)


def train(log: OTelLogger, *, until: str | None = None) -> None:
    """Call a logger as a trainer does, through every event that means something; stop before `until`."""
    state = trainer_state("run")
    state.get_elapsed_duration = lambda: 0.5
    inside = ("before_dataloader", "after_dataloader", "batch_start", "before_forward", "after_forward")
    rest = ("before_backward", "after_backward", "batch_end", "batch_checkpoint")
    evaluation = ("eval_start", "eval_batch_start", "eval_batch_end", "eval_end")
    log.init(state, None)
    for event in ("fit_start", "epoch_start", *inside, *rest, *evaluation, "epoch_end", "epoch_checkpoint", "fit_end"):
        if event == until:
            return
        state.timestamp = trainer_state(batch=3, epoch=1).timestamp
        log.run_event(event, state, None)
        if event == "after_forward":
            log.log_traces({"batch/tokens": 512})
            log.log_metrics({"loss": 0.25})
        if event == "batch_end":
            log.state_dict()
    for event in ("predict_start", "predict_batch_start", "predict_batch_end", "predict_end"):
        log.run_event(event, state, None)


def test_every_call_sends_documented_names_alone(make: Make, collector: OtlpServer, tmp_path: Path) -> None:
    """A plain loop that makes every call there is."""
    with make(OTEL_LOGGER_TRACE_EVENTS="both", OTEL_LOGGER_BLOB_URL="https://blobs.example/{name}") as log:
        call_everything(log, tmp_path)

    assert [] == strangers(collector, USERS)
    assert {entry.name for entry in EVENTS} <= seen(collector)


def test_what_cannot_be_stored_is_told_in_documented_names_alone(
    make: Make, collector: OtlpServer, tmp_path: Path
) -> None:
    """Images, tables and files whose folders in the store are files."""
    store = tmp_path / "store"
    store.mkdir()
    for folder in ("files", "sha256"):
        (store / folder).write_bytes(b"")
    with make(OTEL_LOGGER_BLOB_STORE=store.as_uri()) as log:
        call_everything(log, tmp_path)

    assert {"blob": 3, "file": 1, "image": 2} == log.stats().dropped
    assert names.BLOB_REASON in seen_attributes(collector)
    assert [] == strangers(collector, USERS)


def test_a_trainer_s_events_send_documented_names_alone(make: Make, collector: OtlpServer, tmp_path: Path) -> None:
    """A fit with a batch, an evaluation, a checkpoint and a prediction, and an upload in it."""
    log = make(run_name=None, OTEL_LOGGER_BATCH_SPANS="1000")
    train(log, until="epoch_end")
    call_everything(log, tmp_path)
    train(log)
    log.close()

    assert [] == strangers(collector, USERS)
    assert {names.SPAN_RUN, names.SPAN_FIT, names.SPAN_EPOCH, names.SPAN_BATCH, names.SPAN_EVAL} <= seen(collector)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("CUDA out of memory"), names.OUTCOME_FAILED),
        (SystemExit(143), names.OUTCOME_PREEMPTED),
        (KeyboardInterrupt(), names.OUTCOME_INTERRUPTED),
    ],
)
def test_a_run_that_ends_badly_sends_documented_names_alone(
    make: Make, collector: OtlpServer, error: BaseException, outcome: str
) -> None:
    """The end says outcome and reason, and where an exception ended the run that exception."""
    with suppress(type(error)), make() as log:
        train(log, until="batch_end")
        raise error

    assert [] == strangers(collector, USERS)
    assert outcome in outcomes(collector)


def outcomes(collector: OtlpServer) -> set[str]:
    """Return the outcomes that a server was told."""
    return {
        attribute.value.string_value
        for request in collector.requests(Signal.LOGS)
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        for attribute in record.attributes
        if attribute.key == names.RUN_OUTCOME
    }


def test_what_is_told_of_a_run_that_died_is_documented(tmp_path: Path, collector: OtlpServer) -> None:
    """The next attempt says that the last was lost, and how its hyperparameters differ."""
    environ = {"OTEL_LOGGER_DIR": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    program = (
        "import os; from otel_logger import OTelLogger; log = OTelLogger(run_name='run'); "
        "log.log_hyperparameters({'lr': 0.1, 'old': 1}); log.log_metrics({'loss': 0.5}, step=1); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program], env=environ, check=False)
    with OTelLogger(run_name="run", environ=environ) as log:
        log.log_hyperparameters({"lr": 0.2, "new": 1})
        log.log_metrics({"loss": 0.5}, step=2)
        log.flush(5)

    assert [] == strangers(collector, USERS)
    assert {names.OUTCOME_LOST, names.OUTCOME_FINISHED} == outcomes(collector)


def test_every_documented_name_is_sent_by_something(make: Make, collector: OtlpServer, tmp_path: Path) -> None:
    """The glossary has nothing that a preempted attempt, a second one that fails, and a fork do not bring forth."""
    rest = {
        "OTEL_LOGGER_BATCH_SPANS": "1000",
        "OTEL_LOGGER_TRACE_EVENTS": "both",
        "K8S_CLUSTER_NAME": "k",
        "K8S_CONTAINER_NAME": "c",
    }
    links = {"OTEL_LOGGER_BLOB_URL": "https://blobs.example/{name}"}
    with suppress(SystemExit), make(**rest) as log:
        log.log_hyperparameters({"old": 1, "lr": 0.2, "token": "a"})
        log.log_metrics({"loss": 1.0}, step=1)
        (tmp_path / "model").write_bytes(b"weights")
        # The next attempt uploads it again.
        log.upload_file(None, "checkpoints/model.bin", tmp_path / "model")
        raise SystemExit(143)
    with suppress(RuntimeError), make(**rest, **links) as log:
        log.log_hyperparameters({f"layer_{number}": "x" * 8000 for number in range(40)} | {"token": "b"})
        call_everything(log, tmp_path)
        train(log)
        log.flush(5)
        raise RuntimeError("CUDA out of memory")
    with make("fork", **rest, OTEL_LOGGER_PARENT_RUN_ID="earlier") as log:
        log.log_metrics({"loss": 1.0}, step=1)

    documented: set[Any] = {entry.name for table in (METRICS, EVENTS, SPANS, SPAN_EVENTS) for entry in table}
    assert set() == documented - seen(collector)
    told = {entry.name for entry in ATTRIBUTES if not entry.name.endswith("*")}
    # A store that fails is needed for the reason of a failed upload.
    assert {names.BLOB_REASON} == told - seen_attributes(collector)
    assert [] == strangers(collector, USERS)
