"""Who a logger's run is: names, checkpoints, ranks, and nothing drawn from the training's generators."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from otel_logger import OTelLogger, read_run
from tests.runs import events, trainer_state


def test_identity_is_unknown_until_the_trainer_fits(make: Callable[..., OTelLogger]) -> None:
    """Under a trainer the name comes in `init` and a checkpoint's identity after it; `fit_start` settles both."""
    log = make(run_name=None)
    log.init(trainer_state("digits"), None)
    assert log.run_id is None
    log.load_state_dict({"run_id": "digits-abc123", "run_name": "digits", "attempt": 4})
    log.run_event(SimpleNamespace(value="fit_start"), trainer_state("digits"), None)

    assert "digits-abc123" == log.run_id
    assert {"run_id": "digits-abc123", "run_name": "digits", "attempt": 5} == log.state_dict()
    log.close()
    # Said at once for a run that hangs in its set-up, and again when it is known whose start it was.
    assert [None, "digits-abc123"] == [
        e["attributes"].get("training.run.id") for e in events(log, "training.run.start")
    ]


def test_a_named_logger_under_a_trainer_waits_for_its_checkpoint(tmp_path: Path) -> None:
    """A name given by the user does not settle the run before the trainer has loaded what it resumes from."""

    class TrainersLogger(OTelLogger):
        _has_trainer = True

    log = TrainersLogger(run_name="digits", environ={"OTEL_LOGGER_DIR": str(tmp_path)})
    log.init(trainer_state("named otherwise"), None)
    before = log.run_id
    log.load_state_dict({"run_id": "digits-abc123", "run_name": "digits", "attempt": 1})
    log.fit_start(trainer_state("named otherwise"), None)
    log.close()

    assert before is None
    assert ("digits-abc123", 2) == (log.run_id, log.state_dict()["attempt"])


@pytest.mark.parametrize("name", ["..", "a/b/../../c", " ", "x" * 300, "ünï ☃", "../../etc/passwd"])
def test_any_run_name_has_a_folder_below_the_folder_of_runs(
    make: Callable[..., OTelLogger], tmp_path: Path, name: str
) -> None:
    """A run's name is text, never a path."""
    with make(run_name=name) as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    assert (tmp_path / "logs").resolve() == log.run_dir.resolve().parent
    assert name == read_run(log.run_dir).run_name


def test_global_generators_are_not_touched(make: Callable[..., OTelLogger]) -> None:
    """`random` and NumPy draw the same with and without the logger."""

    def draw(log: OTelLogger | None) -> list[float]:
        random.seed(1)
        np.random.seed(1)
        drawn = []
        for step in range(5):
            if log is not None:
                with log.span("work"):
                    log.log_metrics({"loss": 0.5, "s": "x"}, step)
                    log.log_traces({"t": 1})
                    log.log_images(np.zeros((4, 4)))
            drawn += [random.random(), float(np.random.random())]
        return drawn

    with make() as log:
        with_logger = draw(log)

    assert draw(None) == with_logger


def test_two_runs_of_one_program_have_ids_of_their_own(make: Callable[..., OTelLogger]) -> None:
    """Equal seeds do not give equal runs, traces or records."""
    found = []
    for _ in range(2):
        random.seed(0)
        with make() as log, log.span("work"):
            log.log_metrics({"x": "text"})
        assert log.run_dir is not None
        run = read_run(log.run_dir)
        found.append((run.run_id, run.spans["trace_id"][0], run.events["attributes"][0]["log.record.uid"]))

    assert all(first != second for first, second in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("ranks", "rank", "local_rank", "sends"),
    [("zero", 0, 0, True), ("zero", 2, 0, False), ("node", 2, 0, True), ("node", 3, 1, False), ("all", 3, 1, True)],
)
def test_ranks_send_what_the_setting_says(
    make: Callable[..., OTelLogger], tmp_path: Path, ranks: str, rank: int, local_rank: int, sends: bool
) -> None:
    """Metrics, hyperparameters, traces, images and tables come from chosen ranks; files, start and end from all."""
    source = tmp_path / "shard"
    source.write_text("x")
    environ = {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    with make(OTEL_LOGGER_RANKS=ranks, TORCHELASTIC_RUN_ID="job", **environ) as log:
        log.log_metrics({"loss": 1.0})
        log.log_hyperparameters({"lr": 1})
        log.log_table(["a"], [[1]])
        with log.span("work"):
            log.log_traces({"t": 1})
        log.upload_file(None, f"shard-{rank}", source)

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    assert sends == bool(len(run.metrics)) == bool(len(run.hyperparameters)) == bool(len(run.spans))
    assert (["table"] if sends else []) + ["file"] == run.blobs["kind"]
    assert {"training.run.start", "training.run.end"} <= set(run.events["name"])


def test_ranks_agree_on_the_run_and_share_its_folder(make: Callable[..., OTelLogger]) -> None:
    """Ranks of one launch find one id without talking, and each writes in a folder of its own."""
    launch = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    logs = [make(RANK=str(rank), LOCAL_RANK=str(rank), OTEL_LOGGER_RANKS="all", **launch) for rank in range(3)]
    for rank, log in enumerate(logs):
        log.log_metrics({"loss": float(rank)})
    for log in logs:
        log.close()

    assert 1 == len({log.run_id for log in logs})
    assert logs[0].run_dir is not None
    run = read_run(logs[0].run_dir)
    assert [(0, 1, 0.0), (1, 1, 1.0), (2, 1, 2.0)] == sorted(
        (row["rank"], row["attempt"], row["value"]) for row in run.metrics
    )


def test_only_the_first_process_of_a_node_speaks(
    make: Callable[..., OTelLogger], capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight processes do not write eight lines."""
    with make(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", MASTER_PORT="1", OTEL_LOGGER_RANKS="all") as log:
        log.log_metrics({"loss": 1.0})

    assert "" == capsys.readouterr().err
