"""A process that is killed anywhere loses nothing that it was told is recorded, and nothing of it arrives twice.

A child of its own dies at each line of the modules that a record passes through: when it is written, when a segment is
begun, sealed, prepared or deleted, when a batch is read, sent, acknowledged (so also between the server's answer and
our mark), and when another process takes up what it left. Afterwards `otel-logger sync` is called.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_logger import conventions as names
from otel_logger_exporters.filesystems import file_system_of
from otel_logger_exporters.signals import Signal
from tests.crash.plan import LOSSES, SPANS, STEPS, TRACES
from tests.otlp_server import OtlpServer, Reply

PLANNED = {
    *(f"metric {step}" for step in range(STEPS)),
    *(f"trace {step}" for step in TRACES),
    *(f"span {step}" for step in SPANS),
}


class Zygote:
    """The process that forks the children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        )

    def run(self, action: str, environ: dict[str, str], **options: Any) -> int:
        """Run a child and return its exit status, negative for a signal."""
        case = {
            "action": action,
            "environ": environ,
            "accepted": str(self.folder / "accepted"),
            "output": str(self.folder / "output"),
            "kill": None,
            "after": None,
            "reached": None,
            "dies": False,
            "storing": False,
            **options,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return os.waitstatus_to_exitcode(int(self._process.stdout.readline()))

    def reached(self, action: str, environ: dict[str, str], *, storing: bool = False) -> dict[tuple[str, int], int]:
        """Return which lines a child reaches when it is not killed, and how often."""
        path = self.folder / "reached"
        status = self.run(action, environ, reached=str(path), storing=storing)
        assert 0 == status, (self.folder / "output").read_text()
        return {(module, line): count for module, line, count in json.loads(path.read_text())}

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=10)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which what a call has recorded survives the process."""
    if file_system_of(tmp_path).is_mappable:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        yield Path(memory)


@pytest.fixture
def zygote(folder: Path) -> Iterator[Zygote]:
    """A process to fork children from."""
    process = Zygote(folder)
    yield process
    process.close()


def environ_for(folder: Path, server: OtlpServer) -> dict[str, str]:
    """The environment of a child that keeps its runs in a folder and sends them to a server."""
    return {
        "OTEL_LOGGER_DIR": str(folder / "runs"),
        "OTEL_LOGGER_FLUSH_INTERVAL": "10",
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }


def arrived(server: OtlpServer) -> dict[str, set[Any]]:
    """What a server has taken: for each thing of the plan the identities under which it came."""
    found: dict[str, set[Any]] = defaultdict(set)
    steps = {loss: step for step, loss in enumerate(LOSSES)}
    for metric, point in server.values():
        if metric.name == "loss":
            found[f"metric {steps[point.as_double]}"].add(point.time_unix_nano)
    for request in server.requests(Signal.LOGS):
        for record in (e for r in request.resource_logs for s in r.scope_logs for e in s.log_records):
            attributes = {attribute.key: attribute.value.string_value for attribute in record.attributes}
            if record.event_name == names.EVENT_TRACE:
                found[attributes[names.TRACE_NAME]].add(attributes[names.LOG_RECORD_UID])
    for request in server.requests(Signal.TRACES):
        for span in (p for r in request.resource_spans for s in r.scope_spans for p in s.spans):
            if span.name != names.SPAN_RUN:
                found[span.name].add((span.trace_id, span.span_id))
    return found


def assert_complete(folder: Path, server: OtlpServer, case: object) -> None:
    """Check that what the child was told is accepted is there, under one identity each, and nothing is invented."""
    accepted = set((folder / "accepted").read_text().splitlines())
    found = arrived(server)
    assert set() == accepted - set(found), case
    assert set() == set(found) - PLANNED, case
    assert {} == {what: ids for what, ids in found.items() if len(ids) > 1}, case


def renew(folder: Path) -> None:
    """Forget the runs and reports of the case before."""
    for name in ("runs", "accepted", "output"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).unlink(missing_ok=True)


def hits(count: int) -> list[int]:
    """At which times that a line is reached a child dies there: the first, and one in the middle."""
    return sorted({1, (count + 1) // 2})


def sweep_writer(zygote: Zygote, folder: Path, every: int) -> None:
    """Kill a writer at each `every`-th of the places that it reaches, and send what it left."""
    with OtlpServer("http/protobuf") as server:
        reached = zygote.reached("train", environ_for(folder, server))
        assert_complete(folder, server, "not killed")
    cases = [(*place, hit) for place, count in sorted(reached.items()) for hit in hits(count)][::every]
    killed = 0
    for case in cases:
        renew(folder)
        with OtlpServer("http/protobuf") as server:
            killed += -signal.SIGKILL == zygote.run("train", environ_for(folder, server), kill=case)
            sync(zygote, folder, server, case)
            assert_complete(folder, server, case)
    # The order of threads is not the same each time: a few places are not reached as often again.
    assert killed > 0.85 * len(cases) > 20


def sweep_adopter(zygote: Zygote, folder: Path, every: int) -> None:
    """Kill a `sync` at each `every`-th of the places that it reaches, and let another one go on."""
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=503)] * 10_000)
        assert -signal.SIGKILL == zygote.run("train", environ_for(folder, server), dies=True)
    (folder / "runs").rename(folder / "dead")
    shutil.copytree(folder / "dead", folder / "runs")
    with OtlpServer("http/protobuf") as server:
        reached = zygote.reached("sync", environ_for(folder, server))
        assert_complete(folder, server, "not killed")
    cases = [(*place, hit) for place, count in sorted(reached.items()) for hit in hits(count)][::every]
    killed = 0
    for case in cases:
        shutil.rmtree(folder / "runs")
        shutil.copytree(folder / "dead", folder / "runs")
        with OtlpServer("http/protobuf") as server:
            killed += -signal.SIGKILL == zygote.run("sync", environ_for(folder, server), kill=case)
            sync(zygote, folder, server, case)
            assert_complete(folder, server, case)
    assert killed > 0.85 * len(cases) > 5


def sync(zygote: Zygote, folder: Path, server: OtlpServer, case: object) -> None:
    """Send what is left, and check that nothing stays."""
    assert 0 == zygote.run("sync", environ_for(folder, server)), (case, (folder / "output").read_text())


@pytest.mark.timeout(120)
def test_nothing_is_lost_where_a_writer_is_killed(zygote: Zygote, folder: Path) -> None:
    """At some of the lines between a call and the deletion of what was delivered, the accepted records arrive, once."""
    sweep_writer(zygote, folder, every=24)


@pytest.mark.timeout(120)
def test_nothing_is_lost_where_an_adopter_is_killed(zygote: Zygote, folder: Path) -> None:
    """A `sync` that dies at one of some lines is made up for by the next one: everything is there, once."""
    sweep_adopter(zygote, folder, every=12)


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_nothing_is_lost_wherever_a_writer_is_killed(zygote: Zygote, folder: Path) -> None:
    """At each line between a call and the deletion of what was delivered, the accepted records arrive, once."""
    sweep_writer(zygote, folder, every=1)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_nothing_is_lost_wherever_an_adopter_is_killed(zygote: Zygote, folder: Path) -> None:
    """A `sync` that dies at any line is made up for by the next one: everything is there, once."""
    sweep_adopter(zygote, folder, every=1)


@pytest.mark.timeout(120)
def test_nothing_is_lost_whenever_a_writer_is_killed(zygote: Zygote, folder: Path) -> None:
    """At times that nobody chose, with all threads at full speed, the accepted records arrive, once."""
    killed = 0
    for milliseconds in range(15, 95, 2):
        renew(folder)
        with OtlpServer("http/protobuf") as server:
            killed += 0 != zygote.run("train", environ_for(folder, server), after=milliseconds / 1000)
            if list((folder / "runs").rglob("writer.json")):
                sync(zygote, folder, server, milliseconds)
            assert_complete(folder, server, milliseconds)
    assert killed > 20
