"""`otel-logger show`: what is in a run's folder, and how the run is found."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_logger import OTelLogger
from otel_logger.cli import app
from otel_logger.folders import WriterFile
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.segments import segments_of
from otel_logger_exporters.signals import Signal


def invoke(directory: Path, name: str, *options: str) -> Any:
    """Call the command with `directory` as the folder of runs."""
    return CliRunner().invoke(app, ["show", name, *options], env={"OTEL_LOGGER_DIR": str(directory), "COLUMNS": "80"})


def show(directory: Path, name: str) -> dict[str, Any]:
    """Return what the command prints as JSON."""
    result = invoke(directory, name, "--json")
    assert 0 == result.exit_code, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def record(directory: Path, name: str = "run") -> OTelLogger:
    """Record a run that has something of each kind, without an endpoint."""
    with OTelLogger(run_name=name, environ={"OTEL_LOGGER_DIR": str(directory)}) as log:
        log.log_hyperparameters({"lr": 0.1, "api_key": "sk-0123456789abcdef", "net": {"depth": 3}})
        for step in range(5):
            log.log_metrics({"loss": 1 / (step + 1), "nan": float("nan")}, step=step)
        log.log_hyperparameters({"lr": 0.01})
        log.log_metrics({"note": "text\x1b[31m"}, step=7)
        log.log_table(["a"], [[1]], "rows", step=2)
        with log.span("work"):
            pass
        with log.span("work"):
            log.log_metrics({"late": 2.0})
    return log


def only_writer(log: OTelLogger) -> Path:
    """Return the folder of a run's one writer."""
    assert log.run_dir is not None
    return next(path for path in log.run_dir.iterdir() if WriterFile.read(path) is not None)


def test_what_was_recorded_is_summed_up(tmp_path: Path) -> None:
    """Metrics, hyperparameters, events, spans and blobs are each told by name; secrets stay redacted."""
    log = record(tmp_path)
    content = show(tmp_path, str(log.run_dir))
    metrics = {row.pop("key"): row for row in content["metrics"]}
    hyperparameters = {row["key"]: (row["value"], row["earlier"]) for row in content["hyperparameters"]}
    events = {row["name"]: (row["count"], row["last_step"], row["last_text"]) for row in content["events"]}

    assert (log.run_id, "run", "finished") == (content["run_id"], content["run_name"], content["state"])
    assert {"count": 5, "first_step": 0, "last_step": 4, "first_value": 1.0, "last_value": 0.2} == metrics["loss"]
    assert ("NaN", None) == (metrics["nan"]["first_value"], metrics["late"]["last_step"])
    assert {"lr": (0.01, [0.1]), "api_key": ("[redacted]", []), "net.depth": (3, [])} == hyperparameters
    assert (1, 4, "finished") == events["training.run.end"]
    assert (1, 2, "rows") == events["training.table"]
    assert 2 == {row["name"]: row["count"] for row in content["spans"]}["work"]
    assert [("table", "rows", 1, 0)] == [
        tuple(b[k] for k in ("kind", "name", "count", "not_stored")) for b in content["blobs"]
    ]
    assert ([], []) == (content["damage"], content["rejected"])
    assert [(1, 0, "finished")] == [tuple(w[k] for k in ("attempt", "rank", "state")) for w in content["writers"]]


def test_people_read_tables_of_80_columns(tmp_path: Path) -> None:
    """Every kind has its table, no line is wider than the terminal, and no text brings an escape into it."""
    log = record(tmp_path)
    result = invoke(tmp_path, str(log.run_id))
    tables = result.stdout.split("\n\n")[1:]

    assert 0 == result.exit_code
    titles = ["Writers", "Metrics", "Hyperparameters", "Events", "Spans", "Images, tables, files"]
    assert titles == [table.splitlines()[0] for table in tables]
    assert max(len(line) for table in tables for line in table.splitlines()) <= 80
    assert "0.1 -> 0.01" in result.stdout
    assert "sk-0123" not in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("part", ["id", "folder", "beginning", "path", "writer"])
def test_a_run_is_found_by_what_it_is_called(tmp_path: Path, part: str) -> None:
    """The id, the folder's name, the beginning of either, the path, and the path of one writer lead to it."""
    log = record(tmp_path, "one")
    record(tmp_path, "two")
    assert log.run_id is not None
    assert log.run_dir is not None
    name = {
        "id": log.run_id,
        "folder": log.run_dir.name,
        "beginning": "on",
        "path": str(log.run_dir),
        "writer": str(only_writer(log)),
    }[part]

    assert log.run_id == show(tmp_path, name)["run_id"]


def test_an_id_that_is_the_beginning_of_another_is_that_run(tmp_path: Path) -> None:
    """What is a run's id is no beginning."""
    for run_id in ("run", "run-2"):
        OTelLogger(run_id=run_id, run_name="x", environ={"OTEL_LOGGER_DIR": str(tmp_path)}).close()

    assert "run" == show(tmp_path, "run")["run_id"]


def test_an_ambiguous_beginning_lists_the_candidates(tmp_path: Path) -> None:
    """Exit code 2, and the folders of those that it may be."""
    logs = [record(tmp_path, "run") for _ in range(2)]
    result = invoke(tmp_path, "run")

    assert 2 == result.exit_code
    assert "'run' is the beginning of 2 runs" in result.stderr
    assert all(log.run_dir is not None and log.run_dir.name in result.stderr for log in logs)


@pytest.mark.parametrize(
    ("name", "said"),
    [("nothing", "`otel-logger runs` lists those that there are"), (".", "a folder of runs, not a run")],
)
def test_what_is_no_run_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    """Exit code 2, for a name that nothing has and for the folder of runs itself."""
    record(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = invoke(tmp_path, name)

    assert 2 == result.exit_code
    assert said in result.stderr


def test_a_run_that_never_had_an_id_is_found_by_what_is_said(tmp_path: Path) -> None:
    """The path that is given for an example of a run is one that can be shown, a level deeper too."""
    folder = tmp_path / ".starting" / "a1"
    folder.mkdir(parents=True)
    WriterFile("abcdef", 5).write(folder)
    result = invoke(tmp_path, str(tmp_path))

    assert str(folder) in "".join(result.stderr.split())
    assert 0 == invoke(tmp_path, str(folder)).exit_code


def test_damage_is_told_with_its_bytes(tmp_path: Path) -> None:
    """A segment that cannot be read to its end is named."""
    folder = only_writer(record(tmp_path))
    ((_, segment),) = segments_of(folder, Signal.LOGS)
    data = segment.read_bytes()[:-40]
    segment.write_bytes(data[:-8] + b"\xff" * 8)
    (damage,) = show(tmp_path, "run")["damage"]

    assert str(segment) == damage["segment"]
    assert damage["unreadable_bytes"] > 0
    assert "Damage\n" in invoke(tmp_path, "run").stdout


def test_what_was_refused_is_told_with_the_reason(tmp_path: Path) -> None:
    """Requests in `rejected/` are counted for each reason; one whose reason cannot be read is there too."""
    folder = only_writer(record(tmp_path)) / "rejected"
    rejected = RejectedFolder(folder)
    for time in range(2):
        rejected.put(Signal.METRICS, (b"xyz",), "400: too sharp", time)
    rejected.put(Signal.LOGS, (b"x",), "", 5)
    (folder / "logs-5-3.json").write_text("{")
    found = [(r["signal"], r["requests"], r["size_bytes"], r["reason"]) for r in show(tmp_path, "run")["rejected"]]
    people = invoke(tmp_path, "run").stdout

    assert [
        ("logs", 1, 1, "not known: logs-5-3.json cannot be read"),
        ("metrics", 2, 6, "400: too sharp"),
    ] == found
    assert "Refused by the endpoint" in people
    assert "400: too sharp" in people


def test_what_an_endpoint_was_to_take_is_said(tmp_path: Path) -> None:
    """Of a run with an endpoint the folder has only what is left, and the reader is told so."""
    folder = tmp_path / "run-1" / "0-1-abcdef"
    folder.mkdir(parents=True)
    WriterFile("abcdef", 1, run_id="run", ended_ns=2, outcome="finished", kept=("logs",)).write(folder)

    assert "Sent to an endpoint: metrics, traces." in invoke(tmp_path, "run").stdout


def test_a_run_that_goes_on_can_be_shown(tmp_path: Path) -> None:
    """What is recorded is shown at once, by the state of its writer a running one."""
    log = OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path)})
    log.log_metrics({"loss": 3.0}, step=1)
    content = show(tmp_path, "run")
    log.close()

    assert ("running", 3.0) == (content["state"], content["metrics"][0]["last_value"])
