"""`otel-logger sync`: what ended runs left on disk arrives at a real OTLP server, once."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_logger import OTelLogger, read_run
from otel_logger.cli import app
from otel_logger_exporters.journal_reader import end_of_segment
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer, Reply

PROTOCOLS = ["grpc", "http/protobuf"]


@pytest.fixture
def sync(tmp_path: Path) -> Callable[..., tuple[int, list[dict[str, Any]], str]]:
    """Return the command, run on the test's folder of runs: its exit code, what it printed as JSON, and its errors."""

    def run(endpoint: str, *arguments: str, **environ: str) -> tuple[int, list[dict[str, Any]], str]:
        result = CliRunner().invoke(
            app,
            ["sync", *(arguments or [str(tmp_path / "logs")]), "--json", "--timeout", "2"],
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **environ},
        )
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    return run


def make_run(tmp_path: Path, steps: int = 50, **environ: str) -> OTelLogger:
    """Record a run, in local mode unless `environ` says otherwise."""
    log = OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path / "logs"), **environ})
    log.log_hyperparameters({"lr": 0.1})
    for step in range(steps):
        log.log_metrics({"loss": float(step)}, step)
    log.log_table(["a"], [[1]])
    log.close()
    return log


def losses(server: OtlpServer) -> list[tuple[int, float]]:
    """Return (time, value) of each loss that arrived, in order of arrival."""
    return [(point.time_unix_nano, point.as_double) for metric, point in server.values() if metric.name == "loss"]


def resource_keys(server: OtlpServer) -> set[str]:
    """Return the resource attributes that metrics arrived with."""
    return {
        pair.key
        for request in server.requests(Signal.METRICS)
        for part in request.resource_metrics
        for pair in part.resource.attributes
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_local_run_is_sent_whole_and_only_once(tmp_path: Path, sync: Any, protocol: str) -> None:
    """Times, values and resource are those of the recording; a second call sends nothing, and nothing is deleted."""
    log = make_run(tmp_path)
    assert log.run_dir is not None
    before = read_run(log.run_dir)
    with OtlpServer(protocol) as server:
        first = sync(server.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        second = sync(server.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
        arrived = losses(server)
        keys = resource_keys(server)

    assert (0, {"metrics": 50, "logs": 4, "traces": 1}, None) == (first[0], first[1][0]["sent"], first[1][0]["reason"])
    assert (0, {}) == (second[0], second[1][0]["sent"])
    recorded = before.metrics.where(key="loss")
    assert list(zip(recorded["time"], recorded["value"], strict=True)) == arrived
    assert {"training.hparam.lr", "training.run.id", "service.instance.id"} <= keys
    assert before.metrics.columns == read_run(log.run_dir).metrics.columns


def test_what_an_outage_left_is_sent_by_a_later_process(tmp_path: Path, sync: Any) -> None:
    """The last line of a run names the command, and the command sends what waits."""
    with OtlpServer("http/protobuf") as server:
        closed = server.endpoint
    log = make_run(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=closed, OTEL_LOGGER_SHUTDOWN_TIMEOUT="300")
    assert 50 == log.stats().waiting["metrics"]
    with OtlpServer("http/protobuf") as server:
        code, results, _ = sync(server.endpoint)
        arrived = losses(server)

    assert (0, 50) == (code, len(arrived))
    assert log.run_id == results[0]["run_id"]


def test_a_killed_run_is_bound_by_the_hyperparameters_it_recorded(tmp_path: Path, sync: Any) -> None:
    """A run that died before its resource was known is sent under what it had recorded of it."""
    program = f"""
import os, signal
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path / "logs")!r}}})
log.log_hyperparameters({{"lr": 0.1}})
with log.span("set-up"):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    with OtlpServer("http/protobuf") as server:
        code, results, _ = sync(server.endpoint)
        keys = {
            pair.key
            for request in server.requests(Signal.TRACES)
            for part in request.resource_spans
            for pair in part.resource.attributes
        }

    assert (0, 1) == (code, results[0]["sent"]["traces"])
    assert "training.hparam.lr" in keys


def test_a_live_run_is_refused(tmp_path: Path, sync: Any) -> None:
    """A run that is still going on sends by itself; two senders of one journal would send twice."""
    log = OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path / "logs")})
    log.log_metrics({"loss": 1.0})
    with OtlpServer("http/protobuf") as server:
        code, results, _ = sync(server.endpoint)
        arrived = losses(server)
    log.close()

    assert (1, []) == (code, arrived)
    assert "alive" in results[0]["reason"]


def test_an_interrupted_sync_goes_on_where_it_was(tmp_path: Path, sync: Any) -> None:
    """What the endpoint took the first time is not sent the second time."""
    make_run(tmp_path, steps=20_000)
    with OtlpServer("http/protobuf") as server:
        server.answer_with(Reply(), *[Reply(http=401, message="who are you?")] * 9)
        code, results, _ = sync(server.endpoint)
        first = len(server.requests(Signal.METRICS))
    taken = results[0]["sent"]["metrics"]
    with OtlpServer("http/protobuf") as server:
        again = sync(server.endpoint)
        rest = losses(server)

    assert 1 == code
    assert first > 1
    assert 0 < taken < 20_000
    assert (0, 20_000 - taken) == (again[0], len(rest))


def test_what_stays_is_said_with_its_reason(tmp_path: Path, sync: Any) -> None:
    """An endpoint that is down leaves everything where it is, and the exit code says so."""
    make_run(tmp_path)
    with OtlpServer("http/protobuf") as server:
        closed = server.endpoint
    code, results, _ = sync(closed)

    assert 1 == code
    assert results[0]["left_bytes"] > 0
    assert "CONNECTION" in results[0]["reason"]


def test_without_an_endpoint_or_a_run_the_command_says_what_is_missing(tmp_path: Path, sync: Any) -> None:
    """Misuse is exit code 2, with the remedy."""
    make_run(tmp_path)
    no_endpoint = sync("")
    no_run = sync("http://localhost:4318", str(tmp_path / "nowhere"))

    assert (2, 2) == (no_endpoint[0], no_run[0])
    assert "set it to where the data is to go" in no_endpoint[2]
    assert "give the folder of a run" in no_run[2]


def test_a_folder_of_runs_is_synced_with_all_its_runs(tmp_path: Path, sync: Any) -> None:
    """Each run, attempt and rank has a row of its own; a run's folder alone can be named too."""
    logs = [make_run(tmp_path, steps=3) for _ in range(2)]
    with OtlpServer("http/protobuf") as server:
        one = sync(server.endpoint, str(logs[0].run_dir))
        all_of_them = sync(server.endpoint)
        arrived = losses(server)

    assert [logs[0].run_id] == [result["run_id"] for result in one[1]]
    assert {log.run_id for log in logs} == {result["run_id"] for result in all_of_them[1]}
    assert 6 == len(arrived) == len(set(arrived))


def test_a_restart_sends_what_the_attempt_before_it_left(tmp_path: Path) -> None:
    """A killed run's journal is adopted by the next attempt at it, under its own resource, and is empty afterwards."""
    program = f"""
import os, signal
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{
    "OTEL_LOGGER_DIR": {str(tmp_path / "logs")!r}, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
}})
for step in range(50):
    log.log_metrics({{"loss": float(step)}}, step)
print(log.run_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    with OtlpServer("http/protobuf") as server:
        environ = {"OTEL_LOGGER_DIR": str(tmp_path / "logs"), "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        with OTelLogger(run_name="run", environ=environ) as log:
            log.log_metrics({"loss": 50.0}, 50)
        arrived = losses(server)
        instances = {
            pair.value.string_value.rsplit("/", 2)[1]
            for request in server.requests(Signal.METRICS)
            for part in request.resource_metrics
            for pair in part.resource.attributes
            if pair.key == "service.instance.id"
        }

    assert killed.stdout.strip() == log.run_id
    assert [float(step) for step in range(51)] == sorted(value for _, value in arrived)
    assert {"1", "2"} == instances
    assert log.run_dir is not None
    assert [] == list(log.run_dir.rglob("*.seg"))


def die_after(action: str, tmp_path: Path, endpoint: str) -> Path:
    """Have another process record ten values, do something, and be killed; return its journal of metrics."""
    program = f"""
import os, signal
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{
    "OTEL_LOGGER_DIR": {str(tmp_path / "logs")!r}, "OTEL_EXPORTER_OTLP_ENDPOINT": {endpoint!r},
}})
for step in range(10):
    log.log_metrics({{"loss": float(step)}}, step)
{action}
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    (path,) = (tmp_path / "logs").rglob("metrics-*.seg")
    return path


def test_a_restart_gives_back_what_a_delivered_attempt_holds_of_the_disk(tmp_path: Path) -> None:
    """A killed run whose data had all arrived leaves files of eight megabytes: the next attempt deletes them."""
    with OtlpServer("http/protobuf") as server:
        left = die_after("assert log.flush()", tmp_path, server.endpoint)
        assert left.stat().st_size > 2**20
        environ = {"OTEL_LOGGER_DIR": str(tmp_path / "logs"), "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        with OTelLogger(run_name="run", environ=environ) as log:
            log.log_metrics({"loss": 10.0}, 10)
        arrived = losses(server)

    assert [float(step) for step in range(11)] == [value for _, value in arrived]
    assert [] == list((tmp_path / "logs").rglob("*.seg"))


def test_what_cannot_be_read_of_a_dead_run_is_told(tmp_path: Path, sync: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A page that the machine lost hides what is behind it: the rest is sent, and how much is not is said."""
    path = die_after("", tmp_path, "http://127.0.0.1:9")
    end = end_of_segment(path)
    data = path.read_bytes()
    path.write_bytes(data[: end - 300] + bytes(100) + data[end - 200 :])
    with OtlpServer("http/protobuf") as server:
        code, _, _ = sync(server.endpoint)
        arrived = losses(server)

    assert 0 < len(arrived) < 10
    assert 0 == code
    assert re.search(r"\d\d\d bytes of recorded metrics are damaged on disk and are not sent", caplog.text)


def test_what_may_have_a_live_writer_on_another_machine_is_adopted_when_its_lease_is_over(tmp_path: Path) -> None:
    """A job that is moved within a minute finds its last attempt as if alive; it is sent later, not never."""
    environ = {"OTEL_LOGGER_RUN_ID": "r"}
    left = make_run(tmp_path, steps=3, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", **environ)
    assert left.run_dir is not None
    (lock,) = left.run_dir.glob("*/owner.lock")
    lock.write_text(json.dumps({"host": "elsewhere", "boot_id": "another", "pid": 7, "ended": False}))
    with OtlpServer("http/protobuf") as server:
        code = CliRunner().invoke(
            app, ["sync", str(tmp_path / "logs"), "--json"], env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        )
        (result,) = [json.loads(line) for line in code.stdout.splitlines()]
        os.utime(lock, (time.time() - 58, time.time() - 58))
        environ |= {"OTEL_LOGGER_DIR": str(tmp_path / "logs"), "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        with OTelLogger(run_name="run", environ=environ) as log:
            log.log_metrics({"loss": 3.0}, 3)
            deadline = time.monotonic() + 20
            while len(losses(server)) < 4 and time.monotonic() < deadline:
                time.sleep(0.05)
        arrived = losses(server)

    assert (1, "its writer (process 7 on elsewhere) may be alive") == (code.exit_code, result["reason"].split(":")[0])
    assert 0 < result["retry_in"] <= 60
    assert [0.0, 1.0, 2.0, 3.0] == sorted(value for _, value in arrived)


def test_a_run_that_is_first_known_at_exit_is_recorded_whole(tmp_path: Path) -> None:
    """No thread starts at the exit of newer interpreters; adoption then waits, and the run's own end does not."""
    program = f"""
import atexit
from otel_logger import OTelLogger
log = OTelLogger(environ={{"OTEL_LOGGER_DIR": {str(tmp_path)!r}, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
                          "OTEL_LOGGER_SHUTDOWN_TIMEOUT": "300"}})
log.log_hyperparameters({{"lr": 0.1}})
atexit.register(lambda: print(log.run_dir, flush=True))
atexit.register(log.close)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert "training.run.end" in read_run(done.stdout.strip()).events["name"], done.stderr


def test_a_close_does_not_wait_for_adoption_before_an_endpoint_that_is_down(tmp_path: Path) -> None:
    """What an earlier attempt left must not hold the end of this one."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_LOGGER_RUN_ID": "r"}
    make_run(tmp_path, steps=3, **environ)
    started = time.monotonic()
    log = make_run(tmp_path, steps=3, **environ)
    took = time.monotonic() - started

    assert took < 5.0
    assert 3 == log.stats().waiting["metrics"]


def test_people_read_a_table(tmp_path: Path) -> None:
    """Without --json a table says what was sent, and where to."""
    make_run(tmp_path, steps=3)
    with OtlpServer("http/protobuf") as server:
        result = CliRunner().invoke(
            app, ["sync", str(tmp_path / "logs")], env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        )

    assert 0 == result.exit_code
    assert "3 metrics, 4 logs, 1 traces" in result.stdout
    assert f"to 127.0.0.1:{server.port} (http/protobuf)" in result.stdout


def test_a_reason_is_printed_as_it_is(tmp_path: Path) -> None:
    """A server's words may look like the markup of the table's library, and are none."""
    make_run(tmp_path, steps=3)
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=401, message="[/red] who [bold]are[/bold] you")] * 3)
        result = CliRunner().invoke(
            app, ["sync", str(tmp_path / "logs")], env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        )

    assert 1 == result.exit_code
    assert "[/red] who [bold]are[/bold] you" in result.stdout


def ends(server: OtlpServer) -> list[tuple[int, str, str]]:
    """Return the attempt, the outcome and the uid of each end of a run that arrived, in order of arrival."""
    found = []
    for request in server.requests(Signal.LOGS):
        for part in request.resource_logs:
            for scope in part.scope_logs:
                for record in scope.log_records:
                    if record.event_name == "training.run.end":
                        own = {pair.key: pair.value for pair in record.attributes}
                        resource = {pair.key: pair.value for pair in part.resource.attributes}
                        assert own["training.run.attempt"].int_value == resource["training.run.attempt"].int_value
                        found.append(
                            (
                                own["training.run.attempt"].int_value,
                                own["training.run.outcome"].string_value,
                                own["log.record.uid"].string_value,
                            )
                        )
    return found


@pytest.mark.parametrize("action", ["", "assert log.flush()"], ids=["with data", "delivered"])
def test_a_sudden_death_is_told_by_the_next_attempt(tmp_path: Path, action: str) -> None:
    """The run's end arrives under the resource of the attempt that died, once, also where all else had arrived."""
    with OtlpServer("http/protobuf") as server:
        die_after(action, tmp_path, server.endpoint)
        environ = {"OTEL_LOGGER_DIR": str(tmp_path / "logs"), "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        for _ in range(2):
            with OTelLogger(run_name="run", environ=environ | {"OTEL_LOGGER_RUN_ID": run_id_in(tmp_path)}) as log:
                log.log_metrics({"loss": 10.0}, 10)
        arrived = sorted((attempt, outcome) for attempt, outcome, _ in ends(server))

    assert [(1, "lost"), (2, "finished"), (3, "finished")] == arrived


def run_id_in(tmp_path: Path) -> str:
    """Return the id of the only run."""
    return str(json.loads(next((tmp_path / "logs").glob("*/*/writer.json")).read_text())["run_id"])


def test_a_sudden_death_is_told_by_sync(tmp_path: Path, sync: Any) -> None:
    """Once, however often it is called; the overview goes on to say that the run was lost."""
    die_after("", tmp_path, "http://127.0.0.1:9")
    with OtlpServer("http/protobuf") as server:
        first, second = sync(server.endpoint), sync(server.endpoint)
        (end,) = ends(server)
    shown = CliRunner().invoke(app, ["runs", str(tmp_path / "logs"), "--json"])

    assert (0, 0, 2) == (first[0], second[0], first[1][0]["sent"]["logs"])
    assert (1, "lost") == end[:2]
    assert "lost" == json.loads(shown.stdout.splitlines()[0])["state"]


def test_a_sudden_death_of_a_local_run_is_told_by_the_next_attempt(tmp_path: Path, sync: Any) -> None:
    """Without an endpoint the end is in the run's folder, and a later `sync` sends it with the rest, in order."""
    program = f"""
import os, signal
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path / "logs")!r}}})
log.log_metrics({{"loss": 0.0}}, 7)
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    with OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path / "logs")}) as log:
        log.log_metrics({"loss": 1.0}, 8)
    assert log.run_dir is not None
    found = read_run(log.run_dir).events
    with OtlpServer("http/protobuf") as server:
        code, _, _ = sync(server.endpoint)
        arrived = [(attempt, outcome) for attempt, outcome, _ in ends(server)]

    told = [
        (event["attributes"]["training.run.attempt"], event["attributes"]["training.run.outcome"])
        for event in found
        if event["name"] == "training.run.end"
    ]
    assert [(1, "lost"), (2, "finished")] == sorted(told)
    assert (0, [(1, "lost"), (2, "finished")]) == (code, arrived)
