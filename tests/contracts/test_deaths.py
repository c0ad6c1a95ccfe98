"""How a process ends, and what becomes of what it has logged: real child processes, before collectors of three kinds.

Whatever a child dies of, each step that `log_metrics` has taken is delivered or in the run's folder, once; it is dead
as it would be without a logger, and in time.
"""

import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.children import ALLOWANCE, COLLECTORS, ENOUGH, FOREVER, OPEN, Begin, assert_all_there_once, noise, outcomes

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
        tables = list(Path(child.said("folder")[0][0]).glob("blobs/**/*.jsonl.gz"))
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
