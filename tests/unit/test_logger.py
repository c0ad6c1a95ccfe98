"""OTelLogger as a user calls it, in local mode, read back with `read_run`."""

import math
import pickle
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otel_logger import ConfigurationError, OTelLogger, read_run


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., OTelLogger]:
    """Return a constructor of loggers in a folder of the test's own."""

    def construct(run_name: str | None = "run", run_id: str | None = None, **environ: str) -> OTelLogger:
        return OTelLogger(
            run_name=run_name, run_id=run_id, environ={"OTEL_LOGGER_DIR": str(tmp_path / "logs"), **environ}
        )

    return construct


def trainer_state(name: str = "run", batch: int = 0, epoch: int = 0) -> Any:
    """Return what of Composer's state the logger reads."""
    timestamp = SimpleNamespace(batch=SimpleNamespace(value=batch), epoch=SimpleNamespace(value=epoch))
    return SimpleNamespace(run_name=name, timestamp=timestamp, dataloader_label="eval")


def points(log: OTelLogger) -> list[tuple[str, int | None, float]]:
    """Return the (key, step, value) of everything recorded, in order."""
    assert log.run_dir is not None
    return [(row["key"], row["step"], row["value"]) for row in read_run(log.run_dir).metrics]


def events(log: OTelLogger, name: str) -> list[dict[str, Any]]:
    """Return the log records of an event name."""
    assert log.run_dir is not None
    return [row for row in read_run(log.run_dir).events if row["name"] == name]


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
    assert 3 == log.stats().dropped["internal"]
    assert {"step": 1} == log.stats().adjusted


def test_calls_after_close_are_counted_and_change_nothing(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """After the end nothing raises, nothing is recorded, everything is counted; downloads still work."""
    source = tmp_path / "model.bin"
    source.write_bytes(b"weights")
    log = make()
    log.log_metrics({"loss": 1.0})
    log.upload_file(None, "model.bin", source)
    log.close()
    log.close()
    log.post_close()

    log.log_metrics({"a": 1.0, "b": 2.0})
    log.log_hyperparameters({"lr": 1})
    log.log_images(np.zeros((3, 4, 4)))
    log.upload_file(None, "other.bin", source)
    with log.span("late"):
        log.log_traces({"t": 1})
    log.download_file("model.bin", str(tmp_path / "back.bin"))

    assert b"weights" == (tmp_path / "back.bin").read_bytes()
    assert {"closed": 7} == log.stats().dropped
    assert [("loss", None, 1.0)] == points(log)


def test_others_may_log_until_post_close(make: Callable[..., OTelLogger]) -> None:
    """`close(state, logger)` leaves the end to `post_close`: other callbacks are closed in between, and log."""
    state = trainer_state()
    log = make(run_name=None)
    log.init(state, None)
    log.log_metrics({"loss": 1.0}, 1)
    log.close(state, None)
    log.log_metrics({"late": 2.0}, 2)
    log.post_close()

    assert [("loss", 1, 1.0), ("late", 2, 2.0)] == points(log)
    (end,) = events(log, "training.run.end")
    assert "finished" == end["attributes"]["training.run.outcome"]


def test_a_logger_that_is_never_used_leaves_nothing_behind(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """A destination given only to load checkpoints from is no run."""
    log = make(run_name=None)
    log.close()

    assert [".gitignore"] == [path.name for path in (tmp_path / "logs").iterdir()]


def test_init_after_the_end_is_the_next_attempt_at_the_same_run(make: Callable[..., OTelLogger]) -> None:
    """Composer may use one logger in several trainers: the same name is the same run, another name another."""
    log = make(run_name=None)
    found = []
    for name in ("first", "first", "second"):
        log.init(trainer_state(name), None)
        log.log_metrics({"loss": 1.0}, 1)
        log.post_close()
        found.append((log.run_id, log.state_dict()["attempt"]))

    assert [1, 2, 1] == [attempt for _, attempt in found]
    assert found[0][0] == found[1][0] != found[2][0]


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


def test_traces_beyond_what_a_span_should_hold_become_log_records(make: Callable[..., OTelLogger]) -> None:
    """A span is sent in one piece: a thousand events, and the rest, all of it, as log records."""
    with make() as log, log.span("work"):
        for number in range(1200):
            log.log_traces({"trace": number})

    assert log.run_dir is not None
    work = next(span for span in read_run(log.run_dir).spans if span["name"] == "work")
    on_span = [event["attributes"]["training.trace.value"] for event in work["events"]]
    assert (1000, list(range(1200))) == (
        len(on_span),
        on_span + [event["body"] for event in events(log, "training.trace")],
    )


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


def test_images_tables_and_files_are_stored_and_linked(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """One record for each, whose blob exists with the size and digest that the record states."""
    import hashlib

    source = tmp_path / "checkpoint.pt"
    source.write_bytes(b"\x00" * 1000)
    with make() as log:
        log.log_images(np.zeros((2, 3, 8, 8)), name="digits", step=1)
        log.log_table(["a", "b"], [[1, "x"], [2, "y"]], name="mistakes", step=2)
        log.upload_file(None, "../up/ep0.pt", source)
        source.unlink()

    assert log.run_dir is not None
    blobs = list(read_run(log.run_dir).blobs)
    assert ["image", "image", "table", "file"] == [blob["kind"] for blob in blobs]
    assert ["digits", "digits", "mistakes", "../up/ep0.pt"] == [blob["name"] for blob in blobs]
    for blob in blobs:
        path = Path(blob["uri"].removeprefix("file://"))
        assert log.run_dir.resolve() in path.resolve().parents
        data = path.read_bytes()
        assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (blob["size"], blob["digest"])


def test_upload_refuses_missing_files_and_taken_names(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """The two errors that the contract asks for, and no other."""
    source = tmp_path / "a.txt"
    source.write_text("one")
    with make() as log:
        with pytest.raises(FileNotFoundError, match="nowhere"):
            log.upload_file(None, "a.txt", tmp_path / "nowhere")
        log.upload_file(None, "a.txt", source)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            log.upload_file(None, "a.txt", source)
        assert log.flush()
        with pytest.raises(FileExistsError, match="overwrite=True"):
            log.upload_file(None, "a.txt", source)
        source.write_text("two")
        log.upload_file(None, "a.txt", source, overwrite=True)
        log.download_file("a.txt", str(tmp_path / "back.txt"))
        with pytest.raises(FileExistsError, match=r"back\.txt"):
            log.download_file("a.txt", str(tmp_path / "back.txt"))
        with pytest.raises(FileNotFoundError, match="missing"):
            log.download_file("missing", str(tmp_path / "missing.txt"))

    assert "two" == (tmp_path / "back.txt").read_text()
    assert not (tmp_path / "missing.txt").exists()


def test_the_next_attempt_may_replace_what_the_last_one_stored(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """A resumed run writes its checkpoints again; another run of the store may not replace them."""
    source = tmp_path / "a.pt"
    source.write_text("first")
    store = (tmp_path / "store").as_uri()
    with make(run_id="r", OTEL_LOGGER_BLOB_STORE=store) as log:
        log.upload_file(None, "a.pt", source)
    source.write_text("second")
    with make(run_id="r", OTEL_LOGGER_BLOB_STORE=store) as log:
        log.upload_file(None, "a.pt", source)
    with make(run_id="other", OTEL_LOGGER_BLOB_STORE=store) as log, pytest.raises(FileExistsError):
        log.upload_file(None, "a.pt", source)

    assert "second" == (tmp_path / "store" / "files" / "a.pt").read_text()


def test_a_download_before_init_finds_the_newest_run_of_the_folder(
    make: Callable[..., OTelLogger], tmp_path: Path
) -> None:
    """A logger that is only there to load from has no run of its own: it looks through those of its folder."""
    source = tmp_path / "a.pt"
    for content in ("old", "new"):
        source.write_text(content)
        with make() as log:
            log.upload_file(None, "latest.pt", source)
    loader = make(run_name=None)
    loader.download_file("latest.pt", str(tmp_path / "loaded.pt"), progress_bar=False)

    assert "new" == (tmp_path / "loaded.pt").read_text()


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


def test_threads_log_at_once_and_nothing_is_lost(make: Callable[..., OTelLogger]) -> None:
    """Rows of several threads are whole, and each thread's are in its order."""
    with make() as log:

        def work(number: int) -> None:
            for step in range(200):
                log.log_metrics({f"thread-{number}": float(step)}, step)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = points(log)
    for number in range(4):
        assert [float(step) for step in range(200)] == [v for key, _, v in found if key == f"thread-{number}"]


def test_a_failed_block_makes_a_failed_run(make: Callable[..., OTelLogger]) -> None:
    """The exception that ends the block is the reason in the end event, and goes on."""
    with pytest.raises(ZeroDivisionError), make() as log, log.span("work"):
        _ = 1 / 0

    (end,) = events(log, "training.run.end")
    assert ("failed", "ZeroDivisionError: division by zero", "ERROR") == (
        end["attributes"]["training.run.outcome"],
        end["attributes"]["training.run.reason"],
        end["severity"],
    )
    assert log.run_dir is not None
    work = next(span for span in read_run(log.run_dir).spans if span["name"] == "work")
    assert ["exception"] == [event["name"] for event in work["events"]]


def test_a_run_that_died_is_gone_on_with(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """A process that is killed leaves every row it wrote, and the next of its name is the next attempt at its run."""
    program = f"""
        import os, signal
        from otel_logger import OTelLogger
        log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path / "logs")!r}}})
        for step in range(100):
            log.log_metrics({{"loss": float(step)}}, step)
        print(log.run_id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    with make() as log:
        log.log_metrics({"loss": -1.0}, 100)

    assert done.stdout.strip() == log.run_id
    assert [float(step) for step in range(100)] + [-1.0] == [value for _, _, value in points(log)]
    assert log.run_dir is not None
    assert [(1, None), (2, "finished")] == [(w["attempt"], w["outcome"]) for w in read_run(log.run_dir).writers]


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [("", "finished"), ("raise ValueError('boom')", "failed"), ("import sys; sys.exit(3)", "finished")],
)
def test_a_program_that_never_closes_its_logger_is_flushed_at_exit(tmp_path: Path, ending: str, outcome: str) -> None:
    """The exit hook ends the run, with the exception that ended the program where there was one."""
    program = f"""
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path)!r}}})
log.log_metrics({{"loss": 1.0}}, 1)
log.log_table(["a"], [[1]])
print(log.run_dir)
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    run = read_run(done.stdout.strip())
    assert [outcome] == run.writers["outcome"]
    assert ["table"] == run.blobs["kind"]


def test_a_forked_child_records_nothing_and_says_so_once(tmp_path: Path) -> None:
    """The parent owns the files: a child's calls are counted there, and the parent's run is untouched by its exit."""
    program = f"""
import os, sys
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path)!r}}})
log.log_metrics({{"loss": 1.0}}, 1)
sys.stdout.flush()
if (pid := os.fork()) == 0:
    for step in range(10):
        log.log_metrics({{"loss": 2.0}}, step)
    log.close()
    sys.exit(0 if log.stats().dropped == {{"fork": 10}} else 1)
_, status = os.waitpid(pid, 0)
log.log_metrics({{"loss": 3.0}}, 3)
log.close()
print(status, log.run_dir)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)

    status, folder = done.stdout.split()
    assert "0" == status, done.stderr
    assert [1.0, 3.0] == read_run(folder).metrics["value"]
    assert 1 == done.stderr.count("forked process records nothing")
    assert 1 == read_run(folder).events["name"].count("training.run.end")


def test_an_unpickled_logger_is_a_writer_of_its_own_in_the_same_run(make: Callable[..., OTelLogger]) -> None:
    """A spawned process gets a copy: same run, opened by its first call."""
    log = make()
    log.log_metrics({"loss": 1.0}, 1)
    copy = pickle.loads(pickle.dumps(log))
    copy.log_metrics({"loss": 2.0}, 2)
    copy.close()
    log.close()

    assert log.run_id == copy.run_id
    assert [1.0, 2.0] == sorted(value for _, _, value in points(log))


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its working directory does not take its run along."""
    monkeypatch.chdir(tmp_path)
    log = OTelLogger(run_name=None, environ={"OTEL_LOGGER_DIR": "logs"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.log_metrics({"loss": 1.0})
    log.close()

    assert log.run_dir is not None
    assert tmp_path / "logs" == log.run_dir.parent


def test_folders_and_files_are_private(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """Telemetry may hold what is not for everyone: folders are 0700, files 0600."""
    with make() as log:
        log.log_metrics({"loss": 1.0})
        log.log_images(np.zeros((4, 4)))

    for path in (tmp_path / "logs").rglob("*"):
        forbidden = 0o077 if path.name not in (".gitignore", "writer.json") else 0
        assert 0 == path.stat().st_mode & forbidden, path


def test_disabled_by_the_sdk_switch_nothing_is_written(
    make: Callable[..., OTelLogger], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OTEL_SDK_DISABLED is said in one line; every call does nothing, a download finds nothing."""
    with make(OTEL_SDK_DISABLED="true") as log:
        log.init(trainer_state(), None)
        log.log_metrics({"loss": 1.0})
        log.upload_file(None, "a", __file__)
        with log.span("work"):
            log.log_traces({"t": 1})
        with pytest.raises(FileNotFoundError, match="OTEL_SDK_DISABLED"):
            log.download_file("a", str(tmp_path / "a"))

    assert "OTEL_SDK_DISABLED=true: nothing is recorded" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()
    assert log.stats().is_complete


@pytest.mark.parametrize("signal", ["METRICS", "LOGS", "TRACES"])
def test_a_signal_set_to_none_is_not_recorded(make: Callable[..., OTelLogger], signal: str) -> None:
    """`none` means not recorded at all, whatever the other signals do."""
    with make(**{f"OTEL_{signal}_EXPORTER": "none"}) as log:
        log.log_hyperparameters({"lr": 1})
        log.log_metrics({"loss": 1.0})
        with log.span("work"):
            log.log_traces({"t": 1})

    assert log.run_dir is not None
    run = read_run(log.run_dir)
    kept = {"METRICS": len(run.metrics), "LOGS": len(run.events), "TRACES": len(run.spans)}
    assert {name: name != signal for name in kept} == {name: bool(count) for name, count in kept.items()}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("OTEL_LOGGER_RANKS", "one", "zero or node or all"),
        ("OTEL_LOGGER_FLUSH_INTERVAL", "1s", "whole milliseconds"),
        ("OTEL_LOGGER_BLOB_STORE", "s3://bucket", "file:///"),
        ("OTEL_METRICS_EXPORTER", "prometheus", "otlp"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector", "http://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "http/protobuf"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team", "key=value"),
        ("RANK", "first", "whole number"),
    ],
)
def test_a_bad_setting_is_an_error_at_construction(
    make: Callable[..., OTelLogger], name: str, value: str, remedy: str
) -> None:
    """The message names the variable, quotes its value and says what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        make(**{name: value})

    message = str(caught.value)
    assert name in message
    assert value in message
    assert remedy in message


def test_an_unwritable_folder_is_an_error_at_construction(tmp_path: Path) -> None:
    """The message names OTEL_LOGGER_DIR and what the system said."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"OTEL_LOGGER_DIR=.*cannot be written"):
        OTelLogger(run_name="x", environ={"OTEL_LOGGER_DIR": str(tmp_path / "file" / "logs")})


def test_an_unknown_setting_is_one_warning_with_the_nearest(
    make: Callable[..., OTelLogger], caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt variable has no effect; that is said, and which one was meant."""
    make(OTEL_LOGGER_RANK="all").close()

    assert ["OTEL_LOGGER_RANK is not a setting of otel_logger and has no effect; did you mean OTEL_LOGGER_RANKS?"] == [
        record.getMessage() for record in caplog.records
    ]


def test_start_and_end_are_one_line_each(
    make: Callable[..., OTelLogger], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first says where the data goes, the last what became of it."""
    with make() as log:
        log.log_metrics({"loss": 1.0})

    assert log.run_dir is not None
    first, last = capsys.readouterr().err.splitlines()
    assert f"run {log.run_id}, attempt 1: metrics, logs, traces kept in {log.run_dir}" in first
    assert f"run {log.run_id} ended: 1 value, 2 log records, 1 span kept in " in last


def test_only_the_first_process_of_a_node_speaks(
    make: Callable[..., OTelLogger], capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight processes do not write eight lines."""
    with make(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2", MASTER_PORT="1", OTEL_LOGGER_RANKS="all") as log:
        log.log_metrics({"loss": 1.0})

    assert "" == capsys.readouterr().err


def test_interval_durability_keeps_the_same_rows(make: Callable[..., OTelLogger]) -> None:
    """`interval` buffers rows and writes them in the background; at the end they are all there."""
    with make(OTEL_LOGGER_DURABILITY="interval") as log:
        for step in range(1000):
            log.log_metrics({"loss": float(step)}, step)

    assert [float(step) for step in range(1000)] == [value for _, _, value in points(log)]
