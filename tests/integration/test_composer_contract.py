"""What Composer's trainer demands of a logger beyond a run that goes well: real Composer, and the run's folder."""

from __future__ import annotations

import inspect
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_logger import ConfigurationError, Run, read_run
from otel_logger import conventions as names

pytest.importorskip("composer", reason="mosaicml is not installed: `make test-all` installs it")

import numpy as np
import torch
from composer import Callback, Trainer
from composer.callbacks import (
    CheckpointSaver,
    ExportForInferenceCallback,
    ImageVisualizer,
    LRMonitor,
    OptimizerMonitor,
    RuntimeEstimator,
    SpeedMonitor,
)
from composer.loggers import FileLogger, InMemoryLogger, LoggerDestination
from composer.models import ComposerClassifier
from tiny import BATCHES, tiny_data, tiny_loader, tiny_trainer
from torch.utils.data import Dataset, TensorDataset

import otel_logger
from otel_logger.composer import OTelLogger

pytestmark = pytest.mark.composer

CHECKPOINTS = {"save_folder": "checkpoints/{run_name}", "save_interval": "1ep"}

PROGRAM_SECONDS = 150


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which Composer's relative paths and our runs are in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_a_logger_destination_of_composer() -> None:
    """It is one for `isinstance`, may be hashed and referred to weakly, and takes each call as theirs do."""
    log = OTelLogger()

    assert isinstance(log, LoggerDestination)
    assert {log: 1} == {log: 1}
    assert log is weakref.ref(log)()
    methods = [name for name in vars(LoggerDestination) if not name.startswith("_")]
    assert {"log_metrics", "log_images", "log_table", "upload_file", "download_file"} < set(methods)
    for name in methods:
        theirs, ours = parameters(getattr(LoggerDestination, name)), parameters(getattr(OTelLogger, name))
        assert [(each.name, each.kind) for each in theirs] == [(each.name, each.kind) for each in ours], name
        for one, other in zip(theirs, ours, strict=True):
            assert one.default in (inspect.Parameter.empty, other.default), (name, one.name)
    log.close()
    assert [] == writers(), "a logger that nobody used leaves nothing"


def test_a_logger_used_by_two_trainers_goes_on_with_its_run() -> None:
    """Closed with one trainer and given to a second of the same name it reopens: same run, next attempt, all there."""
    log, memory = OTelLogger(), InMemoryLogger()
    finish(tiny_trainer([log, memory]))
    first = log.run_id

    finish(tiny_trainer([log, memory]))

    run = read_run(only_run())
    assert first == log.run_id == run.run_id
    assert [(1, "finished"), (2, "finished")] == list(zip(run.writers["attempt"], run.writers["outcome"], strict=True))
    assert {"tiny"} == {resource[names.RUN_NAME] for resource in run.resources.values()}
    assert logged(memory) == recorded(run)
    assert {1, 2} == set(run.metrics["attempt"])


def test_a_logger_given_to_a_trainer_of_another_name_begins_another_run() -> None:
    """Reopened under another run name it is a run of its own, at its first attempt."""
    log = OTelLogger()
    finish(tiny_trainer([log]))

    finish(tiny_trainer([log], run_name="other"))

    assert {("tiny", 1), ("other", 1)} == {(read_run(path).run_name, attempt) for path, attempt in writers()}


def test_what_others_log_while_they_close_arrives() -> None:
    """Callbacks that log metrics and upload files in `close`, after ours and up to `post_close`, lose nothing."""

    class LastWords(Callback):
        def close(self, state: Any, logger: Any) -> None:
            Path("last.txt").write_text("words", "utf-8")
            logger.log_metrics({"last": 1.5})
            logger.log_table(["a"], [[1]], name="last")
            logger.upload_file("last.txt", Path("last.txt"))

    log = OTelLogger()

    finish(tiny_trainer([log], callbacks=[LastWords()]))

    run = read_run(only_run())
    assert [(BATCHES, 1.5)] == [(row["step"], row["value"]) for row in run.metrics.where(key="last")]
    assert ["file", "table"] == sorted(run.blobs["kind"])
    assert log.stats().is_complete


def test_closing_again_changes_nothing() -> None:
    """Composer's hook at exit closes once more what was closed by hand: there is one end, and nothing is lost."""
    log = OTelLogger()
    trainer = tiny_trainer([log])
    finish(trainer)
    before = (log.stats(), run_files())

    trainer.engine._close(trainer.state, trainer.logger)
    log.close()

    assert before == (log.stats(), run_files())
    assert [names.OUTCOME_FINISHED] == ends(read_run(only_run()))


def test_a_program_that_closes_one_trainer_of_two_ends_well() -> None:
    """Closed by hand, used again, and left to Composer's hooks at exit: two ends, and last words in both attempts."""
    done = run_program("""
class LastWords(Callback):
    def close(self, state, logger):
        logger.log_metrics({"last": 1.5})
log = OTelLogger()
first = tiny_trainer([log], callbacks=[LastWords()])
first.fit()
first.close()
second = tiny_trainer([log], callbacks=[LastWords()])
second.fit()
""")

    assert (0, False) == (done.returncode, "rror" in done.stderr), done.stderr
    run = read_run(only_run())
    assert [names.OUTCOME_FINISHED] * 2 == ends(run)
    assert [1, 2] == run.metrics.where(key="last")["attempt"]


def test_fitting_twice_records_both() -> None:
    """A second fit() that starts from step 0 again is a second span, and its values stand beside those of the first."""
    log, memory = OTelLogger(), InMemoryLogger()
    trainer = tiny_trainer([log, memory])
    trainer.fit()
    trainer.fit(reset_time=True)
    trainer.close()

    run = read_run(only_run())
    assert logged(memory) == recorded(run)
    losses = run.metrics.where(key="loss/train/total")
    assert [*range(BATCHES), *range(BATCHES)] == losses["step"]
    assert 2 == len(run.spans.where(name=names.SPAN_FIT))
    assert [names.OUTCOME_FINISHED] == ends(run)


def test_evaluating_without_training() -> None:
    """A trainer that only evaluates, without a duration or data to train on, leaves its metrics and its span."""
    log, memory = OTelLogger(), InMemoryLogger()
    trainer = tiny_trainer([log, memory], train_dataloader=None, max_duration=None)
    trainer.eval(eval_dataloader=tiny_loader())
    trainer.close()

    run = read_run(only_run())
    assert "metrics/eval/MulticlassAccuracy" in run.metrics["key"]
    assert logged(memory) == recorded(run)
    assert ["eval"] == [
        attributes[names.EVALUATOR] for attributes in run.spans.where(name=names.SPAN_EVAL)["attributes"]
    ]
    assert [names.OUTCOME_FINISHED] == ends(run)


@pytest.mark.parametrize(
    ("ending", "step"),
    [
        pytest.param("trainer.state.callbacks.append(Failing())\ntrainer.fit()", 1, id="in fit"),
        pytest.param('trainer.fit()\nraise RuntimeError("no more power")', BATCHES, id="after fit"),
    ],
)
def test_an_exception_that_ends_the_program_is_the_reason(ending: str, step: int) -> None:
    """A program that dies of an exception, in a fit or after it, leaves a failed run with the exception's words."""
    done = run_program(f"""
class Failing(Callback):
    def batch_end(self, state, logger):
        raise RuntimeError("no more power")
trainer = tiny_trainer([OTelLogger()])
{ending}
""")

    assert (1, True) == (done.returncode, "RuntimeError: no more power" in done.stderr), done.stderr
    run = read_run(only_run())
    (end,) = run.events.where(name=names.EVENT_RUN_END)
    assert ("failed", "RuntimeError: no more power") == (
        end["attributes"][names.RUN_OUTCOME],
        end["attributes"][names.RUN_REASON],
    )
    assert (step, "ERROR") == (end["step"], end["severity"])
    assert ["failed"] == run.writers["outcome"]


def test_sigterm_in_the_middle_of_a_fit_preempts_the_run() -> None:
    """It ends the program as Composer has it, and the run in order; workers of a loader keep Composer's handler."""
    program = start_program(
        """
import os, signal
from tiny import tiny_data, tiny_loader
from torch.utils.data import TensorDataset

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Telling(TensorDataset):
    def __getitem__(self, index):
        say("worker", signal.getsignal(signal.SIGTERM).__qualname__)
        return super().__getitem__(index)

class Counting(Callback):
    def batch_end(self, state, logger):
        logger.log_metrics({"told": float(state.timestamp.batch.value)})
        say("told", state.timestamp.batch.value)

loader = tiny_loader(Telling(*tiny_data().tensors), num_workers=2, persistent_workers=True)
trainer = tiny_trainer([OTelLogger()], callbacks=[Counting()], train_dataloader=loader, max_duration="10000ep")
trainer.fit()
""",
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    said = []
    for line in program.stdout:
        said.append(line.split())
        if ["told", "20"] == said[-1]:
            program.send_signal(signal.SIGTERM)
    _, stderr = program.communicate(timeout=PROGRAM_SECONDS)

    assert 143 == program.returncode, stderr
    assert {"sigterm_handler"} == {name for word, name in said if word == "worker"}
    told = [float(number) for word, number in said if word == "told"]
    run = read_run(only_run())
    recorded = run.metrics.where(key="told")
    # Between a value that is logged and its being told there is a step.
    assert told == recorded["value"][: len(told)]
    assert len(recorded) - len(told) <= 1
    assert list(recorded["value"]) == [float(step) for step in recorded["step"]]
    (end,) = run.events.where(name=names.EVENT_RUN_END)
    assert ("preempted", "SIGTERM") == (end["attributes"][names.RUN_OUTCOME], end["attributes"][names.RUN_REASON])
    assert ["preempted"] == run.writers["outcome"]
    assert [] == list(run.damage)


def test_a_run_is_resumed_from_its_store_alone() -> None:
    """With local checkpoints gone, autoresume finds them in the store, goes on with the run, and ends as if whole."""
    whole = finish(tiny_trainer([], max_duration="2ep"))
    interrupted = tiny_trainer([OTelLogger()], max_duration="2ep", **CHECKPOINTS)
    interrupted.fit(duration="1ep")
    interrupted.close()
    shutil.rmtree("checkpoints")

    log = OTelLogger()
    resumed = tiny_trainer([log], max_duration="2ep", autoresume=True, **CHECKPOINTS)
    assert BATCHES == resumed.state.timestamp.batch.value
    finish(resumed)

    assert_same_weights(whole, resumed)
    run = read_run(only_run())
    assert [1, 2] == run.writers["attempt"]
    assert list(range(2 * BATCHES)) == run.metrics.where(key="loss/train/total")["step"]
    assert {2} == set(read_run(run.writers["folder"][1]).metrics["attempt"])


def test_autoresume_without_a_checkpoint_starts_from_the_beginning() -> None:
    """A store that has nothing under the name says so as Composer expects: the first run with autoresume trains."""
    finish(tiny_trainer([OTelLogger()], autoresume=True, **CHECKPOINTS))

    assert list(range(BATCHES)) == read_run(only_run()).metrics.where(key="loss/train/total")["step"]


def test_a_checkpoint_is_loaded_through_a_logger_of_no_trainer() -> None:
    """As `load_object_store` a logger that no trainer has initialised or will close finds the file in earlier runs."""
    saved = finish(tiny_trainer([OTelLogger()], **CHECKPOINTS))
    shutil.rmtree("checkpoints")

    with OTelLogger() as store:
        loaded = tiny_trainer([], load_path="checkpoints/tiny/ep1-ba4-rank0.pt", load_object_store=store)

    assert BATCHES == loaded.state.timestamp.batch.value
    assert_same_weights(saved, loaded)
    loaded.close()
    assert 1 == len(writers()), "who only reads leaves no run"


def test_a_run_from_the_checkpoint_of_another_names_its_parent() -> None:
    """A run of another name that loads a checkpoint is a new run, with the checkpoint's as its parent."""
    parent = OTelLogger()
    finish(tiny_trainer([parent], **CHECKPOINTS))
    child = OTelLogger()

    finish(tiny_trainer([child], run_name="fine", max_duration="2ep", load_path="checkpoints/tiny/ep1-ba4-rank0.pt"))

    assert child.run_dir is not None
    run = read_run(child.run_dir)
    assert ("fine", parent.run_id) == (run.run_name, run.resources[1, 0][names.RUN_PARENT_ID])


def test_a_checkpoint_of_another_run_is_not_overwritten() -> None:
    """In a store that runs share, a second run may not write over the first one's checkpoint unless it is told to."""
    environ = {"OTEL_LOGGER_BLOB_STORE": Path("store").absolute().as_uri()}
    finish(tiny_trainer([OTelLogger(environ=environ)], save_folder="shared"))
    shutil.rmtree("shared")
    second = tiny_trainer([OTelLogger(environ=environ)], save_folder="shared", run_name="second")

    with pytest.raises(FileExistsError, match=r"ep1-ba4-rank0\.pt.*already.*save_overwrite"):
        second.fit()

    second.close()
    shutil.rmtree("shared")
    finish(tiny_trainer([OTelLogger(environ=environ)], save_folder="shared", run_name="third", save_overwrite=True))


def test_random_numbers_are_the_same_with_and_without() -> None:
    """A run with the logger, images, tables and checkpoints ends with the generators and weights of one without."""

    class Everything(Callback):
        def batch_end(self, state: Any, logger: Any) -> None:
            logger.log_images(torch.zeros(2, 3, 4, 4), name="zeros")
            logger.log_table(["a"], [[1.0]], name="table")
            logger.log_traces({"trace": 1})
            logger.log_metrics({"draws": random.random() + np.random.random() + torch.rand(1).item()})

    def train(loggers: list[LoggerDestination]) -> tuple[Trainer, tuple[Any, ...]]:
        trainer = finish(tiny_trainer(loggers, callbacks=[Everything()], save_overwrite=True, **CHECKPOINTS))
        state = np.random.get_state()
        return trainer, (random.getstate(), state[1].tolist(), state[2:], torch.get_rng_state().tolist())

    without, states_without = train([])
    with_logger, states_with = train([OTelLogger()])

    assert states_without == states_with
    assert_same_weights(without, with_logger)


def test_workers_of_a_data_loader_disturb_nothing() -> None:
    """Forked workers that hold the logger, and even log, lose and double nothing of what the trainer logs."""
    log, memory = OTelLogger(), InMemoryLogger()

    class Logging(Dataset[Any]):
        data = tiny_data()

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int) -> Any:
            log.log_metrics({"worker": 1.0})
            return self.data[index]

    loader = tiny_loader(Logging(), num_workers=2, multiprocessing_context="fork")
    finish(tiny_trainer([log, memory], train_dataloader=loader, max_duration="2ep", **CHECKPOINTS))

    run = read_run(only_run())
    assert logged(memory) == recorded(run)
    assert "worker" not in run.metrics["key"]
    assert [] == list(run.damage)
    assert log.stats().is_complete


def test_of_two_ranks_one_sends_metrics_and_both_their_events() -> None:
    """Two processes that train together are one run: metrics once, from rank 0, and the start and end of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    programs = [
        start_program(
            f"trainer = tiny_trainer([OTelLogger()], dist_timeout=60, **{CHECKPOINTS!r})\ntrainer.fit()\n",
            shared | {"MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]

    for program in programs:
        _, stderr = program.communicate(timeout=PROGRAM_SECONDS)
        assert 0 == program.returncode, stderr

    run = read_run(only_run())
    assert [0, 1] == sorted(run.writers["rank"])
    assert [1, 1] == run.writers["attempt"]
    assert {0} == set(run.metrics["rank"])
    assert list(range(BATCHES)) == run.metrics.where(key="loss/train/total")["step"]
    assert {0} == set(run.hyperparameters["rank"]) == set(run.spans["rank"])
    for event in (names.EVENT_RUN_START, names.EVENT_RUN_END):
        of_event = run.events.where(name=event)
        assert {0, 1} == set(of_event["rank"])
    assert [names.OUTCOME_FINISHED] * 2 == ends(run)
    assert {run.run_id} == {
        attributes[names.RUN_ID] for attributes in run.events["attributes"] if names.RUN_ID in attributes
    }
    assert ["checkpoints/tiny/ep1-ba4-rank0.pt", "checkpoints/tiny/latest-rank0.pt.symlink"] == run.blobs["name"]


def test_callbacks_and_loggers_of_composer_log_all_they_have() -> None:
    """What Composer's own monitors, its image visualizer and its file logger beside us log and upload is there."""
    log, memory = OTelLogger(), InMemoryLogger()
    pictures = TensorDataset(torch.rand(32, 3, 6, 6, generator=torch.Generator().manual_seed(3)), torch.arange(32) % 2)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 2))
    model = ComposerClassifier(module, num_classes=2)
    trainer = tiny_trainer(
        [log, FileLogger("{run_name}/logs-rank{rank}.txt", "{run_name}/logs-rank{rank}.txt"), memory],
        model=model,
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        train_dataloader=tiny_loader(pictures),
        callbacks=[
            SpeedMonitor(window_size=1),
            LRMonitor(),
            OptimizerMonitor(batch_log_interval=1),
            RuntimeEstimator(),
            ImageVisualizer(interval="2ba", num_images=3),
        ],
        auto_log_hparams=True,
        **CHECKPOINTS,
    )
    finish(trainer)

    run = read_run(only_run())
    assert logged(memory) == recorded(run)
    assert {"l2_norm/grad/global", "throughput/batches_per_sec", "lr-SGD/group0"} < set(run.metrics["key"])
    kinds = Counter(run.blobs["kind"])
    assert 2 == kinds["image"], "three each second batch, together"
    assert "tiny/logs-rank0.txt" in run.blobs["name"]
    assert {"stored"} == set(run.blobs["outcome"])
    assert any(key.startswith("model") for key in run.hyperparameters["key"]), "auto_log_hparams"
    assert log.stats().is_complete


def test_an_exported_model_is_stored_from_a_folder_that_vanishes() -> None:
    """Composer exports into a temporary folder and deletes that at once; the model that was trained is stored."""
    log = OTelLogger()
    inputs, targets = tiny_data()[:8]
    exported = ExportForInferenceCallback("torchscript", "exports/model.pt", sample_input=(inputs, targets))
    trainer = finish(tiny_trainer([log], callbacks=[exported]))

    log.download_file("exports/model.pt", "model.pt", progress_bar=False)

    with torch.no_grad():
        expected = trainer.state.model.eval()((inputs, targets))
        assert torch.equal(expected, torch.jit.load("model.pt")((inputs, targets)))
    (blob,) = read_run(only_run()).blobs
    assert ("exports/model.pt", names.OUTCOME_STORED) == (blob["name"], blob["outcome"])
    assert not Path("exports").exists(), "nowhere else"


def test_what_a_symbolic_link_points_to_is_stored() -> None:
    """Composer's own `latest` checkpoint is a link: uploaded, it is the file of that moment."""

    class Linking(Callback):
        def batch_checkpoint(self, state: Any, logger: Any) -> None:
            batch = state.timestamp.batch.value
            logger.upload_file(f"copies/{batch}.pt", Path("checkpoints/tiny/latest-rank0.pt"))
            logger.upload_file("copies/latest.pt", "checkpoints/tiny/latest-rank0.pt", overwrite=True)

    log = OTelLogger()
    saver = CheckpointSaver("checkpoints/{run_name}", save_interval="1ba", num_checkpoints_to_keep=1)
    finish(tiny_trainer([log], callbacks=[saver, Linking()]))

    link = Path("checkpoints/tiny/latest-rank0.pt")
    assert link.is_symlink()
    copies = {f"copies/{batch}.pt": batch for batch in range(1, BATCHES + 1)}
    for name, batch in {**copies, "copies/latest.pt": BATCHES}.items():
        log.download_file(name, "copy.pt", overwrite=True, progress_bar=False)
        assert not Path("copy.pt").is_symlink()
        saved = torch.load("copy.pt", weights_only=False)["state"]["timestamp"]["Timestamp"]["batch"]
        assert batch == saved, name
    assert link.read_bytes() == Path("copy.pt").read_bytes()


def test_numbers_in_tensors_are_numbers_and_the_rest_is_a_record() -> None:
    """Of one dict with tensors of all kinds, each of one element is a number and none costs its neighbours."""
    odd = {
        "plain": 0.5,
        "0-d": torch.tensor(1.5),
        "one element": torch.tensor([[2.5]]),
        "requires grad": torch.tensor(3.5, requires_grad=True) * 1,
        "bfloat16": torch.tensor(4.5, dtype=torch.bfloat16),
        "bool": torch.tensor(True),
        "int64": torch.tensor(2**62 + 1),
        "nan": torch.tensor(math.nan),
        "several": torch.tensor([1.0, 2.0]),
        "none": torch.tensor([]),
        "word": "text",
    }
    trainer = tiny_trainer([OTelLogger()])
    trainer.logger.log_metrics(odd, step=7)
    trainer.close()

    run = read_run(only_run())
    values = dict(zip(run.metrics["key"], run.metrics["value"], strict=True))
    assert math.isnan(values.pop("nan"))
    assert {
        "plain": 0.5,
        "0-d": 1.5,
        "one element": 2.5,
        "requires grad": 3.5,
        "bfloat16": 4.5,
        "bool": 1.0,
        "int64": 2**62 + 1,
    } == values
    assert {7} == set(run.metrics["step"])
    (record,) = run.events.where(name=names.EVENT_VALUES)
    assert ({"several": [1.0, 2.0], "none": [], "word": "text"}, 7) == (record["body"], record["step"])
    assert 11 == len(odd), "the caller's dict is as it was"


def test_the_plain_logger_in_a_trainer_says_which_one_to_import() -> None:
    """Constructing a trainer with the logger that is no Composer's fails with the import that is right."""
    log = otel_logger.OTelLogger()

    with pytest.raises(ConfigurationError, match=r"from otel_logger\.composer import OTelLogger"):
        tiny_trainer([log])

    log.close()
    assert [] == writers()


def finish(trainer: Trainer) -> Trainer:
    """Fits and closes a trainer."""
    trainer.fit()
    trainer.close()
    return trainer


def writers() -> list[tuple[Path, int]]:
    """For each writer that left a folder, the run's folder and its attempt."""
    return [
        (folder, attempt)
        for folder in sorted(Path("otel_logs").glob("[!.]*"))
        for attempt in read_run(folder).writers["attempt"]
    ]


def only_run() -> Path:
    """The folder of the one run there is."""
    (folder,) = {folder for folder, _ in writers()}
    return folder


def run_files() -> dict[Path, bytes]:
    """All files of the one run, with what they hold."""
    return {path: path.read_bytes() for path in only_run().glob("**/*") if path.is_file()}


def ends(run: Run) -> list[str]:
    """The outcomes that the end events of a run tell."""
    return [attributes[names.RUN_OUTCOME] for attributes in run.events.where(name=names.EVENT_RUN_END)["attributes"]]


def recorded(run: Run) -> Counter[tuple[str, int, float]]:
    """How often each (key, step, value) is in a run."""
    return Counter((row["key"], row["step"], row["value"]) for row in run.metrics)


def logged(memory: InMemoryLogger) -> Counter[tuple[str, int, float]]:
    """How often Composer's own logger has each (key, step, value)."""
    return Counter(
        (key, timestamp.batch.value, float(value)) for key, of_key in memory.data.items() for timestamp, value in of_key
    )


def assert_same_weights(one: Trainer, other: Trainer) -> None:
    """Asserts that two trained models are equal to the last bit."""
    weights, others = one.state.model.state_dict(), other.state.model.state_dict()
    assert list(weights) == list(others)
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name


def parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a method, in their order."""
    return list(inspect.signature(method).parameters.values())


def start_program(
    text: str, environ: dict[str, str] | None = None, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Starts a Python program that has the names of this module's helpers."""
    head = (
        "from composer import Callback, Event\n"
        "from otel_logger.composer import OTelLogger\n"
        "from tiny import tiny_trainer\n"
    )
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", head + text],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | (environ or {}),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program to its end."""
    with start_program(text) as program:
        _, stderr = program.communicate(timeout=PROGRAM_SECONDS)
    return subprocess.CompletedProcess(program.args, program.returncode, stderr=stderr)
