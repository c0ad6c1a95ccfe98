"""Who a logger's run is: names, checkpoints, ranks, and nothing drawn from the training's generators."""

import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otel_logger import ConfigurationError, OTelLogger, Settings, read_run
from otel_logger.folders import writers_of
from otel_logger.writer_folder import WriterFolder
from otel_logger_exporters.adoption import read_legacy
from otel_logger_exporters.decoding import decode_resource
from otel_logger_exporters.signals import Signal
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


def test_no_pattern_of_redaction_hides_who_writes(make: Callable[..., OTelLogger]) -> None:
    """Writers of one `service.instance.id` would overwrite each other's series; what the user said is hidden."""
    with make(OTEL_LOGGER_REDACT="*", OTEL_RESOURCE_ATTRIBUTES="team=a") as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    ((folder, writer),) = writers_of(log.run_dir)
    legacy = read_legacy(folder, Signal.METRICS)
    assert legacy.resource is not None
    resource = decode_resource(legacy.resource.message)
    assert {
        "team": "[redacted]",
        "host.name": "[redacted]",
        "service.instance.id": f"{log.run_id}/0/1/{writer.writer}",
        "training.run.id": log.run_id,
        "training.run.name": "run",
    } == {
        name: resource.get(name)
        for name in ("team", "host.name", "service.instance.id", "training.run.id", "training.run.name")
    }


def test_a_thousand_attributes_of_the_resource_are_taken(make: Callable[..., OTelLogger]) -> None:
    """Each is bounded by itself, not all together."""
    given = {f"key{number}": "v" for number in range(1100)}
    with make(OTEL_RESOURCE_ATTRIBUTES=",".join(f"{key}={value}" for key, value in given.items())) as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    ((folder, _),) = writers_of(log.run_dir)
    legacy = read_legacy(folder, Signal.METRICS)
    assert legacy.resource is not None
    assert given.items() <= decode_resource(legacy.resource.message).items()


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


@pytest.mark.parametrize(("attempt", "expected"), [(10**30, 2**31 + 1), (-7, 1)])
def test_a_checkpoint_that_is_damaged_costs_no_run(
    make: Callable[..., OTelLogger], attempt: int, expected: int
) -> None:
    """The run goes on, and has an attempt that can be sent and read."""
    log = make(run_name=None)
    log.init(trainer_state("digits"), None)
    log.load_state_dict({"run_id": "digits-abc123", "run_name": "digits", "attempt": attempt})
    log.fit_start(trainer_state("digits"), None)
    log.close()

    assert log.run_dir is not None
    assert [expected] == [writer["attempt"] for writer in read_run(log.run_dir).writers]
    assert expected == events(log, "training.run.end")[0]["attributes"]["training.run.attempt"]


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


def test_who_goes_on_with_a_run_by_its_id_alone_keeps_its_name(make: Callable[..., OTelLogger]) -> None:
    """A name of one's own wins; the program's is for a run that nobody has named."""
    names = []
    for run_name in ("named", None, "named anew", None):
        log = make(run_name=run_name, run_id="r")
        names.append(log.state_dict()["run_name"])
        log.log_metrics({"loss": 1.0})
        log.close()
    assert ["named", "named", "named anew", "named anew"] == names


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
    assert ["file"] + (["table"] if sends else []) == sorted(run.blobs["kind"])
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


def resource_of(log: OTelLogger, signal: Signal) -> dict[str, Any]:
    """Return the last resource of the newest journal of a run."""
    assert log.run_dir is not None
    resource = read_legacy(writers_of(log.run_dir)[-1][0], signal).resource
    assert resource is not None
    return decode_resource(resource.message)


def preempted(log: OTelLogger) -> OTelLogger:
    """Record a value, and end as a scheduler ends a run."""
    log.log_metrics({"loss": 1.0})
    log.__exit__(SystemExit, SystemExit(143), None)
    return log


def test_a_fork_of_a_run_is_a_new_run_that_names_its_parent(make: Callable[..., OTelLogger]) -> None:
    """Also of a run that may be gone on with; what restarts the fork goes on with that, said again or not."""
    preempted(make(OTEL_LOGGER_RUN_ID="base-1"))
    fork = {"OTEL_LOGGER_PARENT_RUN_ID": "base-1"}
    logs = [preempted(make(**environ)) for environ in (fork, fork, {})]

    assert 1 == len({log.run_id for log in logs})
    assert "base-1" != logs[0].run_id
    assert [1, 2, 3] == [log.state_dict()["attempt"] for log in logs]
    assert "base-1" == resource_of(logs[0], Signal.LOGS)["training.run.parent.id"]


def test_a_fork_may_load_its_parents_checkpoint(
    make: Callable[..., OTelLogger], caplog: pytest.LogCaptureFixture
) -> None:
    """That is what a fork begins from, and no mistake; another run's checkpoint is told of."""
    with make(OTEL_LOGGER_PARENT_RUN_ID="base-1") as log:
        log.load_state_dict({"run_id": "base-1", "run_name": "run", "attempt": 4})
        told = [record.getMessage() for record in caplog.records]
        log.load_state_dict({"run_id": "other", "run_name": "run", "attempt": 4})

    assert ([], 1) == (told, len(caplog.records))
    assert "belongs to run 'other'" in caplog.text


PARENT = {"OTEL_LOGGER_PARENT_RUN_ID": "r"}


@pytest.mark.parametrize(
    "construct",
    [
        lambda: OTelLogger(run_id="r", environ=PARENT),
        lambda: OTelLogger(environ={**PARENT, "OTEL_LOGGER_RUN_ID": "r"}),
        lambda: OTelLogger(run_id="r", settings=Settings(parent_run_id="r")),
        lambda: Settings(run_id="r", parent_run_id="r"),
    ],
    ids=["argument", "variable", "settings and argument", "settings"],
)
def test_a_run_is_not_its_own_parent(construct: Callable[[], object]) -> None:
    """The message names the variable, the id and the ways out."""
    with pytest.raises(ConfigurationError, match=r"^OTEL_LOGGER_PARENT_RUN_ID='r' is the run's own id: a fork is a"):
        construct()


def test_a_live_process_of_the_same_identity_is_told_of(
    make: Callable[..., OTelLogger], caplog: pytest.LogCaptureFixture
) -> None:
    """The second is the next attempt, and a warning names both; after the first has ended there is none."""
    with make(OTEL_LOGGER_RUN_ID="r") as first, make(OTEL_LOGGER_RUN_ID="r") as second:
        first.log_metrics({"loss": 1.0})
        second.log_metrics({"loss": 1.0})
        told = [record.getMessage() for record in caplog.records]
        attempts = [log.state_dict()["attempt"] for log in (first, second)]
        caplog.clear()
    make(OTEL_LOGGER_RUN_ID="r").close()

    assert [1, 2] == attempts
    (warning,) = told
    assert "Another process writes run 'r' as rank 0 too (attempt 1, writer " in warning
    assert "this one is attempt 2, writer " in warning
    assert [] == caplog.records


def test_a_job_that_slurm_starts_again_is_the_next_attempt_on_any_disk(tmp_path: Path) -> None:
    """The job's id gives the run's, and Slurm's count the attempt, where the folder of the first one is gone."""
    slurm = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    found = []
    for disk, count in (("a", {}), ("b", {"SLURM_RESTART_COUNT": "1"}), ("b", {"SLURM_RESTART_COUNT": "2"})):
        environ = {"OTEL_LOGGER_DIR": str(tmp_path / disk), **slurm, **count}
        with OTelLogger(run_name="exp", environ=environ) as log:
            log.log_metrics({"loss": 1.0})
        found.append((log.run_id, log.state_dict()["attempt"]))

    assert [1, 2, 3] == [attempt for _, attempt in found]
    assert 1 == len({run_id for run_id, _ in found})


def test_the_resource_says_where_the_job_is(make: Callable[..., OTelLogger]) -> None:
    """What Slurm and the user say is on each signal; the number of a process is not on metrics'."""
    variable = {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process"}
    with make(SLURM_JOB_ID="77", SLURM_RESTART_COUNT="4", OTEL_RESOURCE_ATTRIBUTES="host.name=mine", **variable) as log:
        log.log_metrics({"loss": 1.0})
    found = {signal: resource_of(log, signal) for signal in Signal}

    expected = {"training.slurm.job.id": "77", "training.restart_count": 4, "host.name": "mine"}
    for resource in found.values():
        assert expected.items() <= resource.items()
        assert "process.runtime.name" in resource
    assert [os.getpid()] * 2 == [found[signal]["process.pid"] for signal in (Signal.LOGS, Signal.TRACES)]
    assert not {"process.pid", "process.parent_pid"} & set(found[Signal.METRICS])


def test_the_first_metric_does_not_look_through_the_folder_of_runs(
    make: Callable[..., OTelLogger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is done in the background from the start, and finds the run to go on with."""
    log = preempted(make(run_name="exp"))
    lookers = []
    known = WriterFolder.known

    def look(self: WriterFolder) -> Any:
        lookers.append(threading.current_thread())
        return known(self)

    monkeypatch.setattr(WriterFolder, "known", look)
    again = make(run_name=None)
    again.init(trainer_state("exp"), None)
    again.log_metrics({"loss": 1.0})
    again.close()

    assert (log.run_id, 2) == (again.run_id, again.state_dict()["attempt"])
    assert 1 == len(lookers)
    assert threading.main_thread() not in lookers


def test_who_comes_between_is_seen(make: Callable[..., OTelLogger]) -> None:
    """A process that has gone on with the run since the look is not joined: this one is a run of its own."""
    log = preempted(make(run_name="exp"))
    late = make(run_name=None)
    with make(run_name="exp") as quick:
        quick.log_metrics({"loss": 1.0})
        late.init(trainer_state("exp"), None)
        late.log_metrics({"loss": 1.0})
        late.close()

    assert log.run_id == quick.run_id
    assert log.run_id != late.run_id


def test_an_attempt_whose_end_cannot_be_told_is_warned_of(
    make: Callable[..., OTelLogger], caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that is not ours to change stays as it is, and costs the new attempt nothing."""
    log = make(OTEL_LOGGER_RUN_ID="r")
    log.log_metrics({"loss": 1.0})
    log.close()
    assert log.run_dir is not None
    ((folder, writer),) = writers_of(log.run_dir)
    replace(writer, ended_ns=None, outcome=None).write(folder)
    folder.chmod(0o777)
    with make(OTEL_LOGGER_RUN_ID="r") as again:
        again.log_metrics({"loss": 1.0})

    assert 2 == again.state_dict()["attempt"]
    assert f"How the attempt in {folder} ended is not told, it can be written by others (mode 0777)" in caplog.text
    assert [(1, None), (2, "finished")] == [(w["attempt"], w["outcome"]) for w in read_run(log.run_dir).writers]
