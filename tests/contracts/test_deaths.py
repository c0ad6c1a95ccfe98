"""How a process ends, and what becomes of what it has logged: real child processes, before collectors of three kinds.

A child writes to a pipe, unbuffered, each step that `log_metrics` has taken. Whatever it dies of, each of these is
delivered or in the run's folder, once; it is dead as it would be without a logger, and in time.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
        requests = self._server.requests(Signal.METRICS) if self._server is not None else []
        return {
            (metric.name, point.time_unix_nano, point.as_double)
            for request in requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name != "training.step" and not metric.name.startswith("otel_logger.")
            for point in metric.gauge.data_points
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
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self.wait()

    def said(self, word: str) -> list[list[str]]:
        """Return the rest of the lines that begin with `word`."""
        with self._said:
            return self._lines.get(word, [])[:]

    def wait_for(self, word: str, count: int = 1) -> list[list[str]]:
        """Wait until it has said a word, and return `said`."""
        with self._said:
            self._said.wait_for(lambda: len(self._lines.get(word, ())) >= count or self._is_silent, LONG)
        said = self.said(word)
        assert len(said) >= count, (self.wait(), self.stderr)
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
        if self.status is None:
            self._reader.join(LONG)
            self._errors.seek(0)
            self.stderr, self.status = self._errors.read(), self._process.returncode
            for stream in (self._errors, self._process.stdin, self._process.stdout):
                assert stream is not None
                with contextlib.suppress(OSError):
                    stream.close()
        return ended

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


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Return a function that begins a program, with a logger, beside a collector of its own."""
    with contextlib.ExitStack() as stack:

        def run(
            program: str,
            kind: str = "up",
            protocol: str = "http/protobuf",
            *,
            opening: str = OPEN,
            **environ: str,
        ) -> tuple[Child, Collector]:
            collector = stack.enter_context(Collector(kind, protocol))
            folder = tmp_path / kind
            folder.mkdir()
            text = HEAD + opening + textwrap.dedent(program)
            child = stack.enter_context(Child(text, folder, collector.environ | environ))
            child.wait_for("folder")
            return child, collector

        yield run


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


COLLECTORS = {"up": "http/protobuf", "down": "grpc", "hole": "http/protobuf"}
"""What the end of a process must not depend on, each with a protocol. A test takes all at once, for a child is mostly
its imports."""


@pytest.fixture
def begin_with_each(begin: Begin) -> Callable[..., list[tuple[Child, Collector]]]:
    """Return a function that begins a program beside a collector of each kind, and waits until each has logged."""

    def run(program: str, kinds: Iterable[str] = COLLECTORS) -> list[tuple[Child, Collector]]:
        begun = [begin(program, kind, COLLECTORS[kind]) for kind in kinds]
        for child, collector in begun:
            child.wait_for("step", ENOUGH)
            collector.wait_until_used()
        return begun

    return run


ENDS = [
    pytest.param("", 0, "finished", COLLECTORS, id="end"),
    pytest.param("log.close()", 0, "finished", COLLECTORS, id="close"),
    pytest.param("with log: raise ValueError('boom')", 1, "failed", COLLECTORS, id="with"),
    pytest.param("raise ValueError('boom')", 1, "failed", COLLECTORS, id="exception"),
    pytest.param("sys.exit()", 0, "finished", COLLECTORS, id="exit"),
    pytest.param("sys.exit(3)", 3, "finished", ["down"], id="exit-3"),
    pytest.param("os._exit(7)", 7, None, ["up", "hole"], id="_exit"),
    pytest.param("os.abort()", -signal.SIGABRT, None, ["up", "hole"], id="abort"),
]


@pytest.mark.parametrize(("ending", "status", "told", "kinds"), ENDS)
def test_a_program_ends(begin_with_each: Any, ending: str, status: int, told: str | None, kinds: Iterable[str]) -> None:
    """However a program ends of its own accord: in time, with its own status, and nothing lost."""
    program = f"work({ENOUGH})\nwait_for_the_word()\nlog.log_table(['a'], [[1]])\n{ending}"
    for child, collector in begin_with_each(program, kinds):
        child.tell()
        ended = child.wait()

        assert status == child.status, child.stderr
        assert ended - float(child.said("end")[0][0]) < collector.shutdown + ALLOWANCE
        assert_all_there_once(child, collector)
        assert [told] == outcomes(child, collector)
        tables = list(Path(child.said("folder")[0][0]).glob("blobs/**/*.jsonl"))
        assert told is None or len(tables) == 1


SIGNALS = [
    pytest.param(signal.SIGTERM, 143, "preempted", id="SIGTERM"),
    pytest.param(signal.SIGINT, -signal.SIGINT, "interrupted", id="SIGINT"),
    pytest.param(signal.SIGKILL, -signal.SIGKILL, None, id="SIGKILL"),
]


@pytest.mark.parametrize(("number", "status", "told"), SIGNALS)
def test_a_signal_ends_a_program(begin_with_each: Any, number: int, status: int, told: str | None) -> None:
    """In the middle of logging, at whatever step of a call of ours, the signals that end programs do."""
    program = f"work({ENOUGH})\nwait_for_the_word()\nwork({FOREVER}, start={ENOUGH})"
    for child, collector in begin_with_each(program):
        child.tell()
        child.wait_for("step", 10 * ENOUGH)
        sent = time.monotonic()
        child.kill(number)
        ended = child.wait()

        assert status == child.status, child.stderr
        assert ended - sent < collector.shutdown + ALLOWANCE
        assert_all_there_once(child, collector)
        assert [told] == outcomes(child, collector)


def test_sigterm_ends_a_with_block_and_whatever_stands_in_it(begin: Begin) -> None:
    """The exception of SIGTERM runs the program's own clean-up, then the logger's."""
    child, collector = begin(f"""
        with log:
            try:
                work({FOREVER})
            finally:
                work(5, name="last")
    """)
    child.wait_for("step", ENOUGH)
    child.kill(signal.SIGTERM)
    child.wait()

    assert 143 == child.status, child.stderr
    assert 5 == sum(name == "last" for name, _ in child.said("step"))
    assert ["preempted"] == outcomes(child, collector)


@pytest.mark.parametrize(
    ("before", "protocol"),
    [
        pytest.param("", "grpc", id="default"),
        pytest.param("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))", "http/protobuf", id="as Composer's"),
    ],
)
def test_a_second_sigterm_does_not_break_the_end(begin: Begin, before: str, protocol: str) -> None:
    """Launchers send several, and the scheduler one more: the end goes on, waits for its deadline and is recorded."""
    environ = {"OTEL_LOGGER_SHUTDOWN_TIMEOUT": "1000"}
    child, collector = begin(f"work({FOREVER})", "hole", protocol, opening=f"{before}\n{OPEN}", **environ)
    collector.wait_until_used()
    sent = time.monotonic()
    for _ in range(8):
        child.kill(signal.SIGTERM)
        time.sleep(0.1)
    ended = child.wait()

    assert 143 == child.status, child.stderr
    assert 1.0 < ended - sent < 1.0 + ALLOWANCE
    assert_all_there_once(child, collector)
    assert ["preempted"] == outcomes(child, collector)


ASK_TO_STOP = "stop = []; signal.signal(signal.SIGTERM, lambda *_: stop.append(1))"

HANDLERS = [
    pytest.param(ASK_TO_STOP, "", 0, "preempted", id="before"),
    pytest.param("stop = []", ASK_TO_STOP, 0, "finished", id="instead"),
    pytest.param(
        "stop = []",
        "ours = signal.getsignal(signal.SIGTERM); signal.signal(signal.SIGTERM, lambda *_: (stop.append(1), ours(*_)))",
        143,
        "preempted",
        id="after",
    ),
    pytest.param(
        """
class Preempted(Exception): pass
def leave(*_): raise Preempted
stop = []
signal.signal(signal.SIGTERM, leave)
""",
        "",
        1,
        "preempted",
        id="raising",
    ),
]


@pytest.mark.parametrize(("before", "after", "status", "told"), HANDLERS)
def test_the_programs_own_handler_decides(begin: Begin, before: str, after: str, status: int, told: str) -> None:
    """A handler that asks the training to stop has it stop in its own time, and the run says why all the same."""
    program = f"work({ENOUGH})\nwhile not stop: time.sleep(0.001)\nwork(5, name='last')"
    child, collector = begin(program, opening=f"{before}\n{OPEN}\n{after}\n")
    child.wait_for("step", ENOUGH)
    child.kill(signal.SIGTERM)
    child.wait()

    assert status == child.status, child.stderr
    assert_all_there_once(child, collector)
    assert [told] == outcomes(child, collector)
    assert ENOUGH + (5 if status == 0 else 0) == len(child.said("step"))


IN_A_THREAD = """
def train():
    global log
    log = OTelLogger(run_name="run")
    say("folder", log.run_dir)
    work(10**9)
threading.Thread(target=train).start()
"""

UNHANDLED = [
    pytest.param(f"work({ENOUGH})\nos.read(0, 1)", OPEN, {"OTEL_LOGGER_SIGNALS": "off"}, None, id="off"),
    pytest.param("os.read(0, 1)", IN_A_THREAD, {}, None, id="opened in a thread"),
    pytest.param(
        "threading.Thread(target=lambda: (threading.main_thread().join(), chatter('last'))).start()",
        OPEN,
        {},
        "preempted",
        id="last thread",
    ),
    pytest.param(
        f"work({ENOUGH - 1})\nthread = threading.Thread(target=log.close)\nthread.start()\nthread.join()\n"
        "say('step', 'loss', 0)\nos.read(0, 1)",
        OPEN,
        {},
        "finished",
        id="closed in a thread",
    ),
]


@pytest.mark.parametrize(("program", "opening", "environ", "told"), UNHANDLED)
def test_where_it_is_not_handled_sigterm_kills(
    begin: Begin, program: str, opening: str, environ: dict[str, str], told: str | None
) -> None:
    """By setting, off the main thread, when only threads are waited for, and when nothing is open any more."""
    child, collector = begin(program, opening=opening, **environ)
    child.wait_for("step", ENOUGH)
    child.kill(signal.SIGTERM)
    child.wait()

    assert -signal.SIGTERM == child.status, child.stderr
    assert_all_there_once(child, collector)
    assert [told] == outcomes(child, collector)


def test_an_ignored_sigterm_stays_ignored(begin: Begin) -> None:
    """A program that ignores it ends as it would have, and so does its run."""
    program = f"work({ENOUGH})\nwait_for_the_word()"
    child, collector = begin(program, opening=f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{OPEN}")
    child.wait_for("step", ENOUGH)
    child.kill(signal.SIGTERM)
    child.tell()
    child.wait()

    assert 0 == child.status, child.stderr
    assert ["finished"] == outcomes(child, collector)


def test_forked_children_die_by_sigterm_as_without_a_logger(begin: Begin) -> None:
    """Workers of a data loader are ended by it; the parent goes on, and still ends in order itself."""
    child, collector = begin(f"""
        from multiprocessing import get_context

        def idle(pipe):
            pipe.send(signal.getsignal(signal.SIGTERM))
            time.sleep(60)

        work({ENOUGH})
        fork = get_context("fork")
        here, there = fork.Pipe()
        process = fork.Process(target=idle, args=(there,))
        process.start()
        say("handler", int(here.recv()))
        process.terminate()
        process.join()
        say("child", process.exitcode)
        work({FOREVER}, start={ENOUGH})
    """)
    assert [[str(int(signal.SIG_DFL))]] == child.wait_for("handler")
    assert [[str(-signal.SIGTERM)]] == child.wait_for("child")
    child.wait_for("step", 2 * ENOUGH)
    child.kill(signal.SIGTERM)
    child.wait()

    assert 143 == child.status, child.stderr
    assert_all_there_once(child, collector)
    assert ["preempted"] == outcomes(child, collector)


def test_a_spawned_child_is_a_writer_that_ends_in_order(begin: Begin) -> None:
    """It has opened the logger it was given in its main thread, so that SIGTERM ends its part of the run."""
    opening = """
from multiprocessing import get_context
def train(log):
    work(10**9, log, "spawned")
if __name__ == "__main__":
    log = OTelLogger(run_name="run")
    say("folder", log.run_dir)
"""
    child, collector = begin(
        f"""
        if __name__ == "__main__":
            work({ENOUGH})
            process = get_context("spawn").Process(target=train, args=(log,))
            process.start()
            wait_for_the_word()
            process.terminate()
            process.join()
            say("child", process.exitcode)
        """,
        opening=opening,
    )
    child.wait_for("step", 2 * ENOUGH)
    child.tell()
    child.wait()

    assert (0, [["143"]]) == (child.status, child.said("child")), child.stderr
    assert_all_there_once(child, collector)
    assert ["finished", "preempted"] == sorted(map(str, outcomes(child, collector)))


def test_a_logger_made_in_a_forked_child_ends_with_it(begin: Begin) -> None:
    """It is finished though such a child runs no exit hooks, also when its work has failed or was ended."""
    child, collector = begin(
        """
        from multiprocessing import get_context
        processes = [get_context("fork").Process(target=train, args=(way,)) for way in ("end", "fail", "wait")]
        for process in processes:
            process.start()
        wait_for_the_word()
        processes[-1].terminate()
        for process in processes:
            process.join()
        say("children", *(process.exitcode for process in processes))
        """,
        opening=f"""
def train(way):
    log = OTelLogger(run_name="run", run_id="run")
    work({ENOUGH}, log, way)
    if way == "fail":
        raise ValueError("boom")
    if way == "wait":
        time.sleep(60)
log = OTelLogger(run_name="run", run_id="run")
say("folder", log.run_dir)
""",
    )
    child.wait_for("step", 3 * ENOUGH)
    child.tell()
    child.wait()

    assert (0, [["0", "1", "143"]]) == (child.status, child.said("children")), child.stderr
    assert_all_there_once(child, collector)
    # Since Python 3.13 the exception is over when the exit hooks run.
    failed = "failed" if sys.version_info < (3, 13) else "finished"
    assert sorted([failed, "finished", "finished", "preempted"]) == sorted(map(str, outcomes(child, collector)))


@pytest.mark.parametrize(("kind", "protocol"), [("up", "grpc"), ("hole", "grpc"), ("up", "http/protobuf")])
def test_a_fork_in_the_middle_of_everything(begin: Begin, kind: str, protocol: str) -> None:
    """While rows are written by several threads and sent by another: the child neither hangs nor adds to the run."""
    child, collector = begin(
        f"""
        work({ENOUGH})
        wait_for_the_word()
        done = threading.Event()

        def log_on(name):
            step = 0
            while not done.is_set():
                work(10, name=name, start=step)
                step += 10
                # More than 1,000 calls a second for a minute would be coalesced.
                time.sleep(0.005)

        threads = [threading.Thread(target=log_on, args=(f"thread{{n}}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        statuses = set()
        for number in range(12):
            if (child := os.fork()) == 0:
                log.log_metrics({{"child": 1.0}}, number)
                log.log_traces({{"child": 1}})
                log.flush()
                log.close()
                if log.stats().dropped != {{"fork": 2}}:
                    os._exit(1)
                if number % 2:
                    os._exit(0)
                sys.exit(0)
            statuses.add(os.waitpid(child, 0)[1])
        done.set()
        for thread in threads:
            thread.join()
        say("children", *statuses)
        say("end", time.monotonic())
        """,
        kind,
        protocol,
    )
    child.wait_for("step", ENOUGH)
    collector.wait_until_used()
    child.tell()
    ended = child.wait()

    assert (0, [["0"]]) == (child.status, child.said("children")), child.stderr
    assert ended - float(child.said("end")[-1][0]) < collector.shutdown + ALLOWANCE
    assert_all_there_once(child, collector, most_unreported=0)
    assert ["finished"] == outcomes(child, collector)


def test_a_fork_while_other_threads_hold_every_lock(begin: Begin) -> None:
    """In the child nobody will ever release them, and what may still be called there needs none of them."""
    child, _ = begin("""
        held, session = threading.Event(), log._session
        path = session.writer.folder / "uploaded"
        path.write_text("content")
        log.upload_file(None, "name", path)
        log.flush()

        def hold():
            locks = [session.ledger._lock, session.deposits._shelf._lock, session.writer._place._moving, log._lock]
            for lock in [*locks, session._finishing, session.writer._lock, session.writer.spans._lock]:
                lock.acquire()
            held.set()
            time.sleep(60)

        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        if os.fork() == 0:
            with log.span("span"):
                log.log_metrics({"child": 1.0})
            log.log_hyperparameters({"lr": 1})
            log.upload_file(None, "other", path)
            log.download_file("name", str(path.with_name("downloaded")))
            log.flush()
            log.close()
            say("child", log.run_dir.name, path.with_name("downloaded").read_text(), log.stats().dropped["fork"])
            os._exit(0)
        os.wait()
        os._exit(0)
    """)
    ((folder,),) = child.said("folder")

    assert [[Path(folder).name, "content", "4"]] == child.wait_for("child")


def test_whoever_logs_while_the_interpreter_ends_disturbs_nothing(begin_with_each: Any) -> None:
    """Threads that are waited for log to their end; daemons, exit hooks and destructors until the logger closes."""
    for child, collector in begin_with_each(f"""
        import atexit, types

        class Last:
            def __init__(self, log=log, say=say):
                self.log, self.say = log, say

            def __del__(self):
                self.log.log_metrics({{"destructor": 1.0}})
                self.log.stats()
                self.log.close()
                self.say("destructor")

        # Not in this module: the threads keep its globals alive.
        sys.modules["other"] = types.ModuleType("other")
        sys.modules["other"].last = Last()

        def late():
            time.sleep(0.1)
            work({ENOUGH}, name="late")
            say("end", time.monotonic())

        atexit.register(work, 5, name="hook")
        work({ENOUGH})
        os.read(0, 1)
        for number in range(3):
            threading.Thread(target=chatter, args=(f"daemon{{number}}",), daemon=True).start()
        threading.Thread(target=late).start()
    """):
        child.tell()
        ended = child.wait()

        assert (0, "") == (child.status, noise(child.stderr))
        assert ended - float(child.said("end")[0][0]) < collector.shutdown + ALLOWANCE
        assert {"late": ENOUGH, "hook": 5}.items() <= Counter(name for name, _ in child.said("step")).items()
        assert [] != child.said("destructor")
        assert_all_there_once(child, collector, most_unreported=3)
        assert ["finished"] == outcomes(child, collector)


def test_a_logger_first_opened_at_exit_records_its_run(begin: Begin) -> None:
    """Since Python 3.12 no thread starts there: what is recorded stays in the folder, and is said to."""
    child, collector = begin(
        "",
        opening=f"""
import atexit
def late():
    global log
    log = OTelLogger(run_name="run")
    say("folder", log.run_dir)
    work({ENOUGH})
    log.log_table(["a"], [[1]])
    log.close()
atexit.register(late)
""",
    )
    child.wait()

    assert (0, "") == (child.status, noise(child.stderr))
    assert_all_there_once(child, collector)
    assert ["finished"] == outcomes(child, collector)


def test_a_signal_handler_may_close_the_logger_it_interrupts(begin_with_each: Any) -> None:
    """At whatever step of a call the program's own handler closes the logger: in time, and nothing is lost."""
    for child, collector in begin_with_each(f"""
        def leave(*_):
            say("end", time.monotonic())
            log.close()
            sys.exit(5)

        signal.signal(signal.SIGUSR1, leave)
        work({ENOUGH})
        os.read(0, 1)
        work({FOREVER}, start={ENOUGH})
    """):
        child.tell()
        child.wait_for("step", 10 * ENOUGH)
        child.kill(signal.SIGUSR1)
        ended = child.wait()

        assert 5 == child.status, child.stderr
        assert ended - float(child.said("end")[0][0]) < collector.shutdown + ALLOWANCE
        assert_all_there_once(child, collector)
        assert ["finished"] == outcomes(child, collector)
