"""The life of a logger: closing, reopening, exits, deaths, forks, copies and threads."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_logger import OTelLogger, read_run
from tests.runs import events, points, trainer_state


@pytest.fixture
def own_sigterm() -> Iterator[list[int]]:
    """Have a handler of the program's own take SIGTERM, and return what it has taken."""
    taken: list[int] = []
    standing = signal.signal(signal.SIGTERM, lambda number, _: taken.append(number))
    yield taken
    signal.signal(signal.SIGTERM, standing)


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


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (0, "finished", None),
        (3, "failed", "SystemExit: 3"),
        ("out of money", "failed", "SystemExit: out of money"),
        (130, "interrupted", "SIGINT"),
        (143, "preempted", "SIGTERM"),
    ],
)
def test_an_exit_tells_how_the_run_ended(
    make: Callable[..., OTelLogger], status: Any, outcome: str, reason: str | None
) -> None:
    """128 and the number of a signal are what programs exit with that were ended by one and handled it."""
    log = make()

    def train() -> None:
        with log:
            log.log_metrics({"loss": 1.0})
            sys.exit(status)

    with pytest.raises(SystemExit):
        train()

    (end,) = events(log, "training.run.end")
    assert (outcome, reason) == (
        end["attributes"]["training.run.outcome"],
        end["attributes"].get("training.run.reason"),
    )


def test_a_run_that_sigterm_ended_is_gone_on_with(make: Callable[..., OTelLogger], own_sigterm: list[int]) -> None:
    """It has an end, and the next of its name is the next attempt at it: who preempts a run starts it again."""
    for _ in range(2):
        with make() as log:
            log.log_metrics({"loss": 1.0})
            signal.raise_signal(signal.SIGTERM)

    (_, end) = events(log, "training.run.end")
    assert ("preempted", "SIGTERM", "INFO") == (
        end["attributes"]["training.run.outcome"],
        end["attributes"]["training.run.reason"],
        end["severity"],
    )
    assert log.run_dir is not None
    assert [(1, "preempted"), (2, "preempted")] == [
        (writer["attempt"], writer["outcome"]) for writer in read_run(log.run_dir).writers
    ]
    assert [signal.SIGTERM] * 2 == own_sigterm


def test_a_failure_after_sigterm_is_one(make: Callable[..., OTelLogger], own_sigterm: list[int]) -> None:
    """Whether the one led to the other cannot be told, so the reason says both."""
    log = make()

    def train() -> None:
        with log:
            signal.raise_signal(signal.SIGTERM)
            msg = "boom"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="boom"):
        train()

    (end,) = events(log, "training.run.end")
    assert ("failed", "ValueError: boom (after SIGTERM)") == (
        end["attributes"]["training.run.outcome"],
        end["attributes"]["training.run.reason"],
    )


def test_sigterm_is_none_of_its_business_by_setting(make: Callable[..., OTelLogger], own_sigterm: list[int]) -> None:
    """With OTEL_LOGGER_SIGNALS=off the program's handler stays installed, and the run knows nothing."""
    standing = signal.getsignal(signal.SIGTERM)
    with make(OTEL_LOGGER_SIGNALS="off") as log:
        assert standing is signal.getsignal(signal.SIGTERM)
        log.log_metrics({"loss": 1.0})
        signal.raise_signal(signal.SIGTERM)

    assert ["finished"] == [end["attributes"]["training.run.outcome"] for end in events(log, "training.run.end")]
    assert [signal.SIGTERM] == own_sigterm


def test_a_handler_of_c_code_is_left_alone_and_told_of(
    make: Callable[..., OTelLogger], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python can neither call nor restore it, so that SIGTERM does what it does."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    with caplog.at_level(logging.WARNING), make() as log:
        log.log_metrics({"loss": 1.0})

    assert 1 == caplog.text.count("The handler of SIGTERM in this process is not Python's and is left alone")
    assert "OTEL_LOGGER_SIGNALS=off" in caplog.text


def test_a_logger_that_is_closed_in_a_call_of_its_own_is_closed_after_it(make: Callable[..., OTelLogger]) -> None:
    """As a signal handler or a destructor does, which must not wait for threads that wait for that call's locks."""
    log = make()

    class Closing:
        def __repr__(self) -> str:
            log.close()
            log.log_metrics({"within": 2.0})
            return "closing"

    log.log_metrics({"first": 1.0, "closing": Closing()})
    log.log_metrics({"after": 3.0})

    assert [("first", 1.0), ("within", 2.0)] == [(key, value) for key, _, value in points(log)]
    assert ["closing"] == [values["body"]["closing"] for values in events(log, "training.values")]
    assert {"closed": 1} == log.stats().dropped
    assert 1 == len(events(log, "training.run.end"))


@pytest.mark.parametrize(
    ("protocol", "given", "expected"),
    [("grpc", None, "0"), ("grpc", "1", "1"), ("http/protobuf", None, None)],
)
def test_grpc_leaves_forks_alone(
    make: Callable[..., OTelLogger],
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    given: str | None,
    expected: str | None,
) -> None:
    """Its handlers of forks crash a program that forks while it connects; unless the user wants them, they are off."""
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", given or "")
    if given is None:
        monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT")
    make(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        OTEL_LOGGER_SHUTDOWN_TIMEOUT="0",
    ).close()

    assert expected == os.environ.get("GRPC_ENABLE_FORK_SUPPORT")


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
    assert [(1, "lost"), (2, "finished")] == [(w["attempt"], w["outcome"]) for w in read_run(log.run_dir).writers]


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


def test_interval_durability_keeps_the_same_rows(make: Callable[..., OTelLogger]) -> None:
    """`interval` buffers rows and writes them in the background; at the end they are all there."""
    with make(OTEL_LOGGER_DURABILITY="interval") as log:
        for step in range(1000):
            log.log_metrics({"loss": float(step)}, step)

    assert [float(step) for step in range(1000)] == [value for _, _, value in points(log)]
