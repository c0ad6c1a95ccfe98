"""`otel-logger runs`: each run with its state, whatever became of it."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_logger import OTelLogger, readable
from otel_logger.cli import app
from otel_logger.folders import STARTING, WriterFile, run_folder
from otel_logger.overview import runs_in
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.owner import Owner
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind
from otel_logger_exporters.signals import Signal
from tests.journals import journal_in

SECOND = 10**9
NOW = 1_700_000_000 * SECOND


def record(directory: Path, name: str = "run", error: BaseException | None = None) -> OTelLogger:
    """Record a run without an endpoint and end it, with `error` where there is one."""
    log = OTelLogger(run_name=name, environ={"OTEL_LOGGER_DIR": str(directory)})
    with contextlib.suppress(ValueError, KeyboardInterrupt), log:
        log.log_metrics({"loss": 1.0}, step=1)
        if error is not None:
            raise error
    return log


def make_writer(directory: Path, run_id: str = "run", **fields: Any) -> Path:
    """Make the folder of a writer that is dead."""
    writer = WriterFile("abcdef", NOW, run_id=run_id, run_name=run_id, **fields)
    folder = run_folder(directory, run_id) / f"{writer.rank}-{writer.attempt}-abcdef"
    folder.mkdir(parents=True)
    writer.write(folder)
    Owner(folder).release()
    os.utime(folder / "writer.json", ns=(NOW + 3 * SECOND, NOW + 3 * SECOND))
    return folder


def runs(directory: Path) -> list[dict[str, Any]]:
    """Return what the command prints as JSON."""
    result = CliRunner().invoke(app, ["runs", str(directory), "--json"])
    assert 0 == result.exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def acknowledge_all(folder: Path) -> None:
    """Mark everything in a writer's folder as taken by an endpoint, and delete nothing."""
    for signal in Signal:
        reader = JournalReader(folder, signal, keep=True)
        while (batch := reader.next_batch(10**6)) is not None:
            reader.acknowledge(batch)


@pytest.mark.parametrize(
    ("error", "state"),
    [(None, "finished"), (ValueError("x"), "failed"), (KeyboardInterrupt(), "interrupted")],
)
def test_a_run_that_ended_says_how(tmp_path: Path, error: BaseException | None, state: str) -> None:
    """Finished, failed and interrupted are told apart, with the run's name and its place."""
    log = record(tmp_path, error=error)

    (run,) = runs(tmp_path)

    assert (log.run_id, "run", state, 1, 1) == tuple(
        run[name] for name in ("run_id", "run_name", "state", "attempts", "ranks")
    )
    assert str(log.run_dir) == run["folder"]


def test_a_run_that_goes_on_is_running(tmp_path: Path) -> None:
    """A live owner makes a run a running one, until it is closed."""
    log = OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path)})
    log.log_metrics({"loss": 1.0}, step=1)
    during = runs(tmp_path)
    log.close()

    assert ["running", "finished"] == [during[0]["state"], runs(tmp_path)[0]["state"]]


def test_a_run_that_died_without_an_end_is_lost(tmp_path: Path) -> None:
    """Nobody owns the folder and nobody wrote an end; its last sign of life is how long it took."""
    make_writer(tmp_path)

    (run,) = runs(tmp_path)

    assert ("lost", 3 * SECOND) == (run["state"], run["duration_ns"])


def test_a_lost_run_stays_lost_while_what_it_left_is_sent(tmp_path: Path) -> None:
    """The process that sends it holds the folder, and is not the run."""
    folder = make_writer(tmp_path)
    folder.chmod(0o700)
    adopter = Owner.claim(folder)
    (run,) = runs(tmp_path)
    adopter.release()

    assert "lost" == run["state"]


def test_a_run_is_summed_over_its_attempts_and_ranks(tmp_path: Path) -> None:
    """The state is the last attempt's, the duration that of both, without the pause between them."""
    make_writer(tmp_path, rank=0, attempt=1)
    make_writer(tmp_path, rank=1, attempt=1, ended_ns=NOW + 5 * SECOND, outcome="failed")
    make_writer(tmp_path, rank=0, attempt=2, ended_ns=NOW + 7 * SECOND, outcome="finished")

    (run,) = runs(tmp_path)

    assert ("finished", 2, 2, 12 * SECOND) == tuple(run[k] for k in ("state", "attempts", "ranks", "duration_ns"))


def test_the_state_of_ranks_is_that_of_the_one_that_says_most(tmp_path: Path) -> None:
    """A rank that failed says more than one that died with it, and that more than one that finished."""
    make_writer(tmp_path, rank=0, ended_ns=NOW, outcome="finished")
    make_writer(tmp_path, rank=1)
    lost = runs(tmp_path)[0]["state"]
    make_writer(tmp_path, rank=2, ended_ns=NOW, outcome="failed")

    assert ("lost", "failed") == (lost, runs(tmp_path)[0]["state"])


def test_what_is_recorded_is_unsent_until_it_is_acknowledged(tmp_path: Path) -> None:
    """Seals and heads, which are sent with nothing, do not count."""
    log = record(tmp_path)
    assert log.run_dir is not None
    before = runs(tmp_path)[0]["unsent_bytes"]
    for folder in (path for path in log.run_dir.iterdir() if path.is_dir()):
        acknowledge_all(folder)

    assert before > 0
    assert 0 == runs(tmp_path)[0]["unsent_bytes"]


def test_a_record_behind_a_large_head_waits(tmp_path: Path) -> None:
    """Whether anything waits is found however much stands before it, and a seal alone is nothing."""
    journal = journal_in(tmp_path, Signal.LOGS)
    journal.keep("hyperparameters", Kind.HYPERPARAMETERS, bytes(100_000))
    journal.tend()
    reader = JournalReader(tmp_path, Signal.LOGS, keep=True)
    head = reader.unread
    journal.append((Kind.OTLP, Frame(1, b"x").pack()))
    record = reader.unread
    journal.close()
    batch = reader.next_batch(1)
    assert batch is not None
    reader.acknowledge(batch)

    assert (0, 0) == (head, reader.unread)
    assert record > 100_000


def test_size_counts_blobs_and_unsent_does_not(tmp_path: Path) -> None:
    """The folder's size is that of all files in it."""
    folder = make_writer(tmp_path, ended_ns=NOW, outcome="finished")
    before = runs(tmp_path)[0]["size_bytes"]
    blobs = folder.parent / "blobs" / "files"
    blobs.mkdir(parents=True)
    (blobs / "x.pt").write_bytes(bytes(12_345))

    (run,) = runs(tmp_path)

    assert (12_345, 0) == (run["size_bytes"] - before, run["unsent_bytes"])


def test_a_writer_whose_run_is_not_known_is_a_run_of_its_own(tmp_path: Path) -> None:
    """What died while it was starting is listed by its folder."""
    for name in ("aaaa", "bbbb"):
        (tmp_path / STARTING / name).mkdir(parents=True)
        WriterFile("abcdef", NOW).write(tmp_path / STARTING / name)

    assert [("aaaa", None), ("bbbb", None)] == [(Path(run["folder"]).name, run["run_id"]) for run in runs(tmp_path)]
    assert "its run is not known" in CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout


def test_the_newest_run_is_the_last(tmp_path: Path) -> None:
    """Runs stand in the order of their start, and what is no run is passed over."""
    (tmp_path / "aa").mkdir()
    (tmp_path / "file").write_text("no run")
    ids = [record(tmp_path, name).run_id for name in ("zeta", "alpha")]

    assert ids == [run["run_id"] for run in runs(tmp_path)]


def test_people_read_a_table_of_80_columns(tmp_path: Path) -> None:
    """OTEL_LOGGER_DIR is the default; no line is wider than the terminal, and no id brings an escape into it."""
    record(tmp_path)
    make_writer(tmp_path, "a-very-long-name-" * 9 + "\x1b[31m", ended_ns=NOW, outcome="failed")
    result = CliRunner().invoke(app, ["runs"], env={"OTEL_LOGGER_DIR": str(tmp_path), "COLUMNS": "80"})
    table = result.stdout.split("\n\n")[0]

    assert 0 == result.exit_code
    assert all(word in table for word in ("finished", "failed", "unsent", "kB"))
    assert max(map(len, table.splitlines())) <= 80
    assert "\x1b" not in result.stdout
    assert "otel-logger show RUN" in result.stdout
    assert "`otel-logger sync` sends what is unsent" in result.stdout


@pytest.mark.parametrize(("name", "said"), [("nowhere", "is no folder"), ("empty", "holds no run")])
def test_without_a_run_the_command_says_what_to_give(tmp_path: Path, name: str, said: str) -> None:
    """Misuse is exit code 2, with the remedy."""
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(app, ["runs", str(tmp_path / name)])

    assert 2 == result.exit_code
    assert said in result.stderr
    assert "OTEL_LOGGER_DIR" in result.stderr


def test_a_runs_own_folder_is_a_list_of_one(tmp_path: Path) -> None:
    """The path may be that of one run."""
    folder = make_writer(tmp_path)
    make_writer(tmp_path, "other")

    assert ["run"] == [run.run_id for run in runs_in(folder.parent, NOW)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0"), (999, "999 B"), (1000, "1.00 kB"), (999_499, "999 kB"), (999_600, "1.00 MB"), (12_345_678, "12.3 MB")],
)
def test_sizes_have_three_digits(count: int, expected: str) -> None:
    """A size is read at a glance."""
    assert expected == readable.size(count)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.12, "120ms"), (0.9999, "1.0s"), (35.2, "35.2s"), (59.99, "1m 00s"), (3725, "1h 02m"), (90000, "1d 01h")],
)
def test_durations_have_their_largest_units(seconds: float, expected: str) -> None:
    """A duration is read at a glance."""
    assert expected == readable.duration(round(seconds * SECOND))
