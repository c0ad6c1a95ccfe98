"""Child processes that log, collectors of three kinds beside them, and what is left when they are dead.

A child writes to a pipe, unbuffered, each step that `log_metrics` has taken.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from otel_logger import read_run
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer

HEAD = """
import os, signal, sys, threading, time
from otel_logger import OTelLogger

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def work(steps, log=None, name="loss", start=0):
    log = log or globals()["log"]
    for step in range(start, start + steps):
        log.log_metrics({name: float(step)}, step)
        say("step", name, step)

def chatter(name):
    step = 0
    while True:
        log.log_metrics({name: float(step)}, step)
        # After the end, and at the moment of it, a call is counted as lost, and not taken.
        if not log.stats().dropped:
            say("step", name, step)
        step += 1

def wait_for_the_word():
    os.read(0, 1)
    say("end", time.monotonic())
"""

OPEN = """
log = OTelLogger(run_name="run")
say("folder", log.run_dir)
"""

FOREVER = 10**9

ENOUGH = 30
"""Steps that a child has logged before it is killed."""

ALLOWANCE = 2.0
"""Seconds beyond OTEL_LOGGER_SHUTDOWN_TIMEOUT in which a process is gone: what Python itself takes to end, twentyfold,
because a test machine does other things too. The deadlines that are missed here would be of ten seconds and more."""

SHORT = 0.4
"""Seconds of the shutdown timeout where no collector answers, so that it is what the end waits for."""

LONG = 10.0
"""Seconds that anything takes at most before a test gives up on it."""


COLLECTORS = {"up": "http/protobuf", "down": "grpc", "hole": "http/protobuf"}
"""What the end of a process must not depend on, each with a protocol. A test takes all at once, for a child is mostly
its imports."""


class Collector:
    """An endpoint that is `up`, `down` (it refuses connections) or a `hole` (it accepts them and never answers)."""

    def __init__(self, kind: str, protocol: str) -> None:
        self.environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_LOGGER_FLUSH_INTERVAL": "20"}
        self.shutdown = LONG if kind == "up" else SHORT
        self.environ["OTEL_LOGGER_SHUTDOWN_TIMEOUT"] = str(round(self.shutdown * 1000))
        self._server = OtlpServer(protocol) if kind == "up" else None
        self._used = threading.Event()
        self._peers: list[socket.socket] = []
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        if kind == "hole":
            self._socket.listen()
            threading.Thread(target=self._swallow, daemon=True).start()
        elif kind == "down":
            self._used.set()

    def __enter__(self) -> "Collector":
        if self._server is not None:
            self._server.__enter__()
        port = self._server.port if self._server is not None else self._socket.getsockname()[1]
        self.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for peer in [self._socket, *self._peers]:
            peer.close()

    def wait_until_used(self) -> None:
        """Wait until something has come: the sender is at work."""
        if self._server is not None:
            assert self._server.wait_for(Signal.METRICS, 1, LONG)
        else:
            assert self._used.wait(LONG)

    def points(self) -> set[tuple[str, int, float]]:
        """Return (key, time, value) of what has arrived, each once however often it was sent."""
        return {
            (metric.name, point.time_unix_nano, point.as_double)
            for metric, point in (self._server.values() if self._server is not None else [])
            # What otel_logger says of itself and of the run has no key.
            if metric.name != "training.step" and any(pair.key == "training.metric.key" for pair in point.attributes)
        }

    def outcomes(self) -> list[str]:
        """Return the outcomes that the ends of runs tell that have arrived."""
        requests = self._server.requests(Signal.LOGS) if self._server is not None else []
        return [
            pair.value.string_value
            for request in requests
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
            for pair in record.attributes
            if pair.key == "training.run.outcome"
        ]

    def _swallow(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._peers.append(self._socket.accept()[0])
                self._used.set()


class Child:
    """A Python program under way, and what it has said."""

    def __init__(self, program: str, folder: Path, environ: dict[str, str]) -> None:
        # A file, for processes that are spawned import it.
        (folder / "program.py").write_text(program, "utf-8")
        self.status: int | None = None
        self.stderr = ""
        self._lines: dict[str, list[list[str]]] = {}
        self._is_silent = False
        self._said = threading.Condition()
        self._errors = (folder / "stderr").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, str(folder / "program.py")],
            env={**os.environ, "OTEL_LOGGER_DIR": str(folder / "logs"), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # A group of its own, to be killed with whatever children it has left behind.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_all()
        self.wait()
        for stream in (self._errors, self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def said(self, word: str) -> list[list[str]]:
        """Return the rest of the lines that begin with `word`."""
        with self._said:
            return self._lines.get(word, [])[:]

    def wait_for(self, word: str, count: int = 1) -> list[list[str]]:
        """Wait until it has said a word, and return `said`."""
        with self._said:
            self._said.wait_for(lambda: len(self._lines.get(word, ())) >= count or self._is_silent, LONG)
        said = self.said(word)
        if len(said) < count:
            self._kill_all()
            self.wait()
        assert len(said) >= count, self.stderr
        return said

    def tell(self) -> None:
        """Give the word that it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"!")
        self._process.stdin.flush()

    def kill(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self) -> float:
        """Wait until it is dead, and return the time of that."""
        self._process.wait(LONG)
        ended = time.monotonic()
        self._reader.join(LONG)
        self._errors.seek(0)
        self.stderr, self.status = self._errors.read(), self._process.returncode
        return ended

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.decode().split()
            with self._said:
                self._lines.setdefault(word, []).append(rest)
                self._said.notify_all()
        with self._said:
            self._is_silent = True
            self._said.notify_all()


Begin = Callable[..., tuple[Child, Collector]]
"""Begins a program, with a logger, beside a collector of a kind."""


def assert_all_there_once(child: Child, collector: Collector, *, most_unreported: int = 1) -> None:
    """Assert that each step it was told was taken is delivered or in the folder, once, and nothing else is."""
    ((folder,),) = child.said("folder")
    points = collector.points() | {(row["key"], row["time"], row["value"]) for row in read_run(folder).metrics}
    found = Counter((key, value) for key, _, value in points)
    told = {(key, float(step)) for key, step in child.said("step")}
    assert not told - set(found), f"lost: {sorted(told - set(found))[:5]}"
    assert [] == [point for point, count in found.items() if count > 1], "twice"
    # A step may have been taken, and its thread killed before it could tell.
    assert len(set(found) - told) <= most_unreported, f"invented: {sorted(set(found) - told)[:5]}"


def outcomes(child: Child, collector: Collector) -> list[str | None]:
    """Return the outcomes that the run's writers tell; asserts that their ends are delivered or kept."""
    ((folder,),) = child.said("folder")
    run = read_run(folder)
    ends = [row["attributes"]["training.run.outcome"] for row in run.events if row["name"] == "training.run.end"]
    told = run.writers["outcome"]
    assert sorted(filter(None, told)) == sorted(ends + collector.outcomes())
    return list(told)


def noise(stderr: str) -> str:
    """Return what a program has written that is not the logger's."""
    return "".join(line for line in stderr.splitlines(True) if not line.startswith("otel_logger: "))
