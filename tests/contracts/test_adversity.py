"""OTelLogger under what programs do to it: odd arguments, odd moments, forks, signals, and the end of everything."""

import contextvars
import gc
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otel_logger import ConfigurationError, OTelLogger, deposits, read_run, staging
from otel_logger.overview import runs_in
from otel_logger_exporters import courier
from otel_logger_exporters.courier import Load
from otel_logger_exporters.records import Kind
from otel_logger_exporters.signals import Signal
from tests.interruptions import interrupted

LONG = 10.0
"""Seconds that nothing here takes unless it hangs."""

Make = Callable[..., OTelLogger]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a constructor of loggers in a folder of the test's own."""

    def construct(run_name: Any = "run", run_id: Any = None, **environ: str) -> OTelLogger:
        return OTelLogger(
            run_name=run_name, run_id=run_id, environ={"OTEL_LOGGER_DIR": str(tmp_path / "logs"), **environ}
        )

    return construct


def rows(log: OTelLogger, table: str, **where: Any) -> list[dict[str, Any]]:
    """Return the rows of a table of what was recorded."""
    assert log.run_dir is not None
    return list(getattr(read_run(log.run_dir), table).where(**where))


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own."""
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)


def test_a_call_without_any_number_is_use_enough_to_be_kept(make: Make) -> None:
    """The folder of a logger that nobody named is removed when it is unused, and a text is use."""
    log = make(run_name=None)
    log.log_metrics({"note": "hello"})  # type: ignore[dict-item]
    log.close()

    (event,) = rows(log, "events", name="training.values")
    assert {"note": "hello"} == event["body"]


@pytest.mark.parametrize("environ", [{"OTEL_SDK_DISABLED": "true"}, {"RANK": "1", "WORLD_SIZE": "2"}])
def test_a_span_decorates_also_where_nothing_is_recorded(make: Make, environ: dict[str, str]) -> None:
    """A function decorated with a span runs the same on the ranks that send nothing, and when all is disabled."""
    with make(**environ) as log:

        @log.span("work")
        def work() -> int:
            return 7

        assert 7 == work()


@pytest.mark.parametrize("step", [np.array([1, 2]), 2**70, "five", float("nan"), np.float64("nan"), True])
def test_a_bad_step_of_an_image_or_table_is_none_and_counted(make: Make, step: Any) -> None:
    """What is no 64-bit integer costs the step alone, as in `log_metrics`."""
    with make() as log:
        log.log_images(np.zeros((4, 4)), step=step)
        log.log_table(["a"], [[1]], step=step)

    assert [None, None] == [row["step"] for row in rows(log, "blobs")]
    assert {"step": 2} == log.stats().adjusted


def test_bad_names_and_masks_of_images_do_not_raise(make: Make) -> None:
    """A name that is no text becomes one, masks that are no dictionary are counted as one."""
    with make() as log:
        log.log_images(np.zeros((4, 4)), name=None, masks=np.zeros((2, 2)))  # type: ignore[arg-type]
        log.log_table(["a"], [[1]], name={1: 2})  # type: ignore[arg-type]

    assert {"None", "{1: 2}"} == {row["name"] for row in rows(log, "blobs")}
    assert {"mask": 1} == log.stats().dropped


def test_a_run_name_that_is_no_utf_8_costs_no_attribute(make: Make) -> None:
    """A name with bytes that the environment could not decode is escaped, and stands on each record."""
    with make(run_name=None, OTEL_LOGGER_RUN_NAME="a\udcff") as log:
        log.log_metrics({"loss": 1.0})

    assert {"a\\udcff"} == {row["attributes"].get("training.run.name") for row in rows(log, "events")}


@pytest.mark.parametrize("arguments", [{"run_name": 5}, {"run_name": None, "run_id": 5}])
def test_a_name_that_is_no_text_is_an_error_at_construction(make: Make, arguments: dict[str, Any]) -> None:
    """The message quotes the argument and says what to give; nothing is left running."""
    with pytest.raises(ConfigurationError, match=r"OTelLogger\(run_(name|id)=5\): give a str"):
        make(**arguments)


def test_secrets_reach_no_span(make: Make) -> None:
    """Attributes and exceptions of spans are redacted; attributes that OpenTelemetry has no type for become JSON."""
    with make() as log, pytest.raises(ValueError, match="secretpw"), log.span("x", api_key="abc", deep={"a": 1}):
        raise ValueError("postgres://user:secretpw@host/db")

    (span,) = rows(log, "spans", name="x")
    assert {"api_key": "[redacted]", "deep": '{"a": 1}'} == span["attributes"]
    assert "secretpw" not in repr(span)
    assert "ValueError" == span["events"][0]["attributes"]["exception.type"]
    assert "ValueError: [redacted]" == span["error"]


def test_an_exception_that_cannot_be_shown_goes_on_as_it_is(make: Make) -> None:
    """An exception whose `__str__` fails is recorded without its message, by span and run, and is not replaced."""

    class Unshown(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    log = make()
    with pytest.raises(Unshown), log, log.span("x"):
        raise Unshown

    (writer,) = rows(log, "writers")
    assert "failed" == writer["outcome"]
    assert {} == log.stats().dropped


def test_a_span_of_a_generator_may_end_in_another_context(make: Make) -> None:
    """Async generators and fixtures are finished elsewhere than they began."""
    log = make()

    def generate() -> Iterator[None]:
        with log.span("x"):
            yield

    generator = generate()
    contextvars.copy_context().run(next, generator)
    logging.getLogger("opentelemetry.context").disabled = True
    try:
        generator.close()  # type: ignore[attr-defined]
    finally:
        logging.getLogger("opentelemetry.context").disabled = False
    log.close()

    assert 1 == len(rows(log, "spans", name="x"))


def test_a_trace_in_a_span_of_the_callers_own_is_its_event_in_any_batch(make: Make) -> None:
    """That the batch has no span does not take the caller's away."""
    with make(OTEL_LOGGER_BATCH_SPANS="0") as log:
        log.batch_start(None, None)
        with log.span("x"):
            log.log_traces({"inside": 1})
        log.log_traces({"outside": 1})

    assert ["inside"] == [event["name"] for event in rows(log, "spans", name="x")[0]["events"]]
    assert [1] == [row["body"] for row in rows(log, "events", name="training.trace")]


def test_a_logger_given_the_environment_itself_can_be_pickled_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.environ` is copied, for it cannot be pickled; and it is not in the text of what is pickled."""
    monkeypatch.setenv("OTEL_LOGGER_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hush")
    with OTelLogger(environ=os.environ) as log:
        assert pickle.loads(pickle.dumps(log)).run_id is None
        assert "hush" not in repr(log.__getstate__())


def test_a_checkpoint_of_something_else_is_ignored(make: Make) -> None:
    """What is no dictionary, or one of another class, changes nothing and does not raise."""
    with make() as log:
        run_id = log.run_id
        states: tuple[Any, ...] = (None, [], {}, {"run_id": 1, "run_name": "run", "attempt": 1})
        for state in states:
            log.load_state_dict(state)
        assert run_id == log.run_id


def test_a_flush_may_wait_for_ever(make: Make) -> None:
    """A timeout beyond what a lock accepts is the longest that it does."""
    with make() as log:
        log.log_metrics({"loss": 1.0})
        assert log.flush(float("inf"))
        assert {} == log.stats().dropped


def test_a_closed_logger_keeps_no_frames_alive(make: Make) -> None:
    """The exception that ended a run holds the frames it came through, and they tensors: it is let go."""

    class Tensor:
        pass

    log = make()
    kept: list[weakref.ref[Tensor]] = []

    def train() -> None:
        tensor = Tensor()
        kept.append(weakref.ref(tensor))
        raise MemoryError

    with pytest.raises(MemoryError), log:
        train()
    gc.collect()

    assert [None] == [reference() for reference in kept]
    assert "failed" == rows(log, "writers")[0]["outcome"]


def test_a_failing_filter_of_the_programs_logging_does_not_reach_it(make: Make) -> None:
    """Warnings are best effort: what handles them may not end the training."""

    def fail(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.msg)

    log = make()
    logger = logging.getLogger("otel_logger")
    logger.addFilter(fail)
    try:
        log.close()
        log.log_metrics({"loss": 1.0})
    finally:
        logger.removeFilter(fail)

    assert {"closed": 1} == log.stats().dropped


def test_a_reopened_logger_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt is beside the first one, wherever the program has gone meanwhile."""
    monkeypatch.chdir(tmp_path)
    log = OTelLogger(run_name="run", environ={})
    log.post_close()
    first = log.run_dir
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.init(SimpleNamespace(run_name="run"), None)
    log.post_close()

    assert first == log.run_dir
    assert [1, 2] == [row["attempt"] for row in rows(log, "writers")]


def test_a_relative_folder_without_a_working_directory_is_an_error_at_construction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable and the remedy."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(ConfigurationError, match="OTEL_LOGGER_DIR='otel_logs' is relative to a folder that is gone"):
        OTelLogger(environ={})


def test_a_logger_that_cannot_be_opened_again_says_so_and_does_not_raise(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that has become a file costs what is logged, counted, and not the training."""
    log = make()
    log.post_close()
    (tmp_path / "logs").rename(tmp_path / "moved")
    (tmp_path / "logs").write_text("")
    log.init(SimpleNamespace(run_name="run"), None)
    log.log_metrics({"loss": 1.0})

    assert "the logger cannot be opened again" in caplog.text
    assert {"closed": 1} == log.stats().dropped


def test_of_several_that_start_after_a_death_one_goes_on_with_the_run(make: Make, tmp_path: Path) -> None:
    """A sweep of one script is as many runs, though a run of its name has died before."""
    died = f"""
import os
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path / "logs")!r}}})
print(log.run_id, flush=True)
os._exit(9)
"""
    dead = run_python(died).stdout.strip()
    logs = [make() for _ in range(3)]
    ids = [log.run_id for log in logs]
    for log in logs:
        log.close()

    assert dead == ids[0]
    assert 3 == len(set(ids))


def test_a_row_logged_within_a_call_does_not_mix_with_its(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler that logs new keys while a call logs other new keys leaves both as they were."""
    log = make()
    recorder = log._session.writer._recorder  # type: ignore[union-attr]
    journal = recorder._journal  # type: ignore[union-attr]
    append = journal.append
    interrupted: list[bool] = []

    def interrupt(*records: tuple[Kind, bytes], **options: Any) -> bool:
        if records[0][0] == Kind.SCHEMA and not interrupted:
            interrupted.append(True)
            log.log_metrics({"handler": 2.0}, 2)
        return bool(append(*records, **options))

    monkeypatch.setattr(journal, "append", interrupt)
    for step in (1, 3):
        log.log_metrics({"first": 1.0, "second": 1.5}, step)
    log.log_metrics({"handler": 4.0}, 4)
    log.close()

    expected = [("first", 1), ("second", 1), ("handler", 2), ("first", 3), ("second", 3), ("handler", 4)]
    assert expected == [(row["key"], row["step"]) for row in rows(log, "metrics")]


@pytest.mark.parametrize("durability", ["call", "interval"])
@pytest.mark.parametrize("what", ["folder", "files"])
def test_a_folder_that_is_deleted_under_a_run_is_made_again(make: Make, durability: str, what: str) -> None:
    """What was in it is counted; the run goes on there, says whose it is, and is still owned."""
    log = make(OTEL_LOGGER_DURABILITY=durability)
    log.log_metrics({"loss": 1.0}, 1)
    log.flush()
    assert log.run_dir is not None
    outbox = log._session.writer.outbox  # type: ignore[union-attr]
    with ExitStack() as stack:
        for signal in Signal:
            stack.enter_context(outbox.journal(signal).disk)  # type: ignore[union-attr]
        for file in log.run_dir.rglob("*") if what == "files" else ():
            if file.is_file():
                file.unlink()
        if what == "folder":
            shutil.rmtree(log.run_dir)
    before = log.stats()
    outbox._tend()
    log.log_metrics({"loss": 2.0}, 2)
    during = [writer["ended"] for writer in rows(log, "writers")]
    (run,) = runs_in(log.run_dir, log._session.writer.now_ns())  # type: ignore[union-attr]
    log.close()

    stats = log.stats()
    assert {"deleted": sum(before.recorded.values())} == stats.dropped
    assert sum(stats.recorded.values()) == sum(stats.kept.values()) + stats.dropped["deleted"]
    assert [("loss", 2, 2.0)] == [(row["key"], row["step"], row["value"]) for row in rows(log, "metrics")]
    assert ["training.run.end"] == [row["name"] for row in rows(log, "events")]
    assert [(log.run_id, "finished")] == [(read_run(log.run_dir).run_id, w["outcome"]) for w in rows(log, "writers")]
    assert ([None], "running") == (during, run.state)
    assert read_run(log.run_dir).resources[1, 0]["training.run.id"] == log.run_id


@pytest.mark.parametrize("thread", ["sender", "encoder", "uploads"])
def test_closing_from_a_thread_of_its_own_does_not_wait_for_itself(make: Make, thread: str) -> None:
    """Garbage is collected on any thread, and a trainer that is garbage closes its loggers."""
    log = make(OTEL_LOGGER_FLUSH_INTERVAL="10")
    session = log._session
    assert session is not None
    closed = threading.Event()

    def collect() -> None:
        log.close()
        closed.set()

    if thread == "sender":
        session.writer.outbox._sender._prepare = collect
    elif thread == "encoder":
        session.deposits.bench.put(collect)
    else:
        session.deposits.courier.put(Load("a", collect))
    assert closed.wait(LONG / 2)

    assert "internal" not in log.stats().dropped
    assert "finished" == rows(log, "writers")[0]["outcome"]


def test_what_is_uploaded_when_no_thread_can_be_started_is_stored_by_close(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Python 3.12 the exit of the interpreter starts no thread, and loggers upload their files there."""
    log = make(run_name=None)

    def refuse(thread: threading.Thread) -> None:
        msg = f"can't create new thread at interpreter shutdown: {thread.name}"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    (tmp_path / "file").write_text("content")
    log.upload_file(None, "late.txt", tmp_path / "file")
    log.log_images(np.zeros((4, 4)))
    log.close()

    assert {("late.txt", "stored"), ("Images", "stored")} == {(r["name"], r["outcome"]) for r in rows(log, "blobs")}
    assert {} == log.stats().dropped


def test_uploads_around_the_moment_that_settles_the_run_are_stored(make: Make, tmp_path: Path) -> None:
    """The folder is renamed then, and the private copies move with it."""
    (tmp_path / "file").write_text("content")
    for _ in range(10):
        log = make(run_name=None)
        begun = threading.Event()

        def upload(log: OTelLogger = log, begun: threading.Event = begun) -> None:
            for number in range(5):
                log.upload_file(None, f"{number}", tmp_path / "file")
                begun.set()

        thread = threading.Thread(target=upload)
        thread.start()
        begun.wait(LONG)
        log.log_metrics({"loss": 1.0})
        thread.join(LONG)
        log.close()

        assert 5 == log.stats().blobs.stored
        assert {} == log.stats().dropped


@pytest.mark.parametrize("place", range(1, 80, 7))
def test_a_signal_handler_may_close_in_the_midst_of_an_upload(make: Make, tmp_path: Path, place: int) -> None:
    """It is closed at the end of that call, which is stored first."""
    (tmp_path / "file").write_text("content")
    log = make()
    interrupted(lambda: log.upload_file(None, "a", tmp_path / "file"), place, log.close, deposits, staging, courier)

    assert (1, 0, {}) == (log.stats().blobs.stored, log.stats().blobs.waiting, log.stats().dropped)
    assert "finished" == rows(log, "writers")[0]["outcome"]


def test_each_upload_while_another_thread_closes_is_stored_or_counted(make: Make, tmp_path: Path) -> None:
    """No call that returned is forgotten."""
    (tmp_path / "file").write_text("content")
    for _ in range(5):
        log = make()
        begun = threading.Event()

        def upload(log: OTelLogger = log, begun: threading.Event = begun) -> None:
            for number in range(50):
                log.upload_file(None, f"{number}", tmp_path / "file")
                if number == 5:
                    begun.set()

        thread = threading.Thread(target=upload)
        thread.start()
        begun.wait(LONG)
        log.close()
        thread.join(LONG)

        stats = log.stats()
        assert 50 == stats.blobs.stored + stats.blobs.waiting + sum(stats.dropped.values())


def test_a_download_replaces_files_only(make: Make, tmp_path: Path) -> None:
    """A pipe, a device or a folder at the destination is left alone, whatever `overwrite` says."""
    (tmp_path / "file").write_text("content")
    os.mkfifo(tmp_path / "pipe")
    with make() as log:
        log.upload_file(None, "name", tmp_path / "file")
        for destination in (tmp_path / "pipe", tmp_path):
            with pytest.raises(OSError, match="is no file, and is not replaced by 'name'"):
                log.download_file("name", str(destination), overwrite=True)

    assert (tmp_path / "pipe").is_fifo()


def test_the_exit_of_a_forked_child_leaves_a_forgotten_logger_alone(tmp_path: Path) -> None:
    """A logger that is not closed belongs to the parent's exit, also when nobody holds it any more."""
    program = f"""
import os, sys
from otel_logger import OTelLogger
def begin():
    log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path)!r}}})
    log.log_metrics({{"loss": 1.0}})
    return log.run_dir
folder = begin()
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(folder)
"""
    done = run_python(program)

    assert 1 == read_run(done.stdout.strip()).events["name"].count("training.run.end"), done.stderr
    assert 1 == done.stderr.count(" ended: ")


def test_a_span_that_is_open_at_a_fork_is_the_parents(tmp_path: Path) -> None:
    """It ends in the child too, where it must not begin a segment in the parent's folder."""
    program = f"""
import os
from otel_logger import OTelLogger
log = OTelLogger(run_name="run", environ={{"OTEL_LOGGER_DIR": {str(tmp_path)!r}}})
log.log_metrics({{"loss": 1.0}})
with log.span("around"):
    child = os.fork() == 0
if child:
    os._exit(0)
os.wait()
log.close()
print(log.run_dir)
"""
    done = run_python(program)

    assert 1 == read_run(done.stdout.strip()).spans["name"].count("around"), done.stderr
    assert 1 == len(list(tmp_path.rglob("traces-*.seg")))
