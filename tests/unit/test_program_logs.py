"""What the program says by `logging` and `warnings` becomes log records, and the program does not notice."""

import ast
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_logger import OTelLogger, Settings, read_run
from otel_logger import conventions as names
from otel_logger.contents import contents_of
from otel_logger.program_logs import ProgramLogs
from otel_logger.redaction import Redactor
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.ledger import Ledger

Make = Callable[..., OTelLogger]

SOURCES = Path(__file__).parents[2]


@pytest.fixture
def app() -> logging.Logger:
    """Return a logger of the program's that lets everything through, to no handler that shows it."""
    # Not one of the tree: the handlers of tests would be called, and show what cannot be shown.
    logger = logging.Logger("tests.app", logging.DEBUG)
    logger.addHandler(logging.NullHandler())
    return logger


def said(log: OTelLogger) -> list[dict[str, Any]]:
    """Return the log records of the program."""
    assert log.run_dir is not None
    return [row for row in read_run(log.run_dir).events if not row["name"]]


def bodies(log: OTelLogger) -> list[Any]:
    """Return what the program has said."""
    return [row["body"] for row in said(log)]


def test_a_record_says_where_when_and_in_what(make: Make, app: logging.Logger) -> None:
    """Message, logger, place in the code, thread, `extra`, step and span are recorded, and the time of the record."""
    records: list[logging.LogRecord] = []
    app.addFilter(lambda record: records.append(record) is None)
    with make(OTEL_LOGGER_PROGRAM_LOGS="info") as log:
        log.log_metrics({"loss": 0.5}, step=7)
        with log.span("work") as span:
            app.info("epoch %d of %s", 3, "ten", extra={"fold": 2, "tags": ["a", "b"], "nested": {"x": 1}})

    (row,) = said(log)
    expected = {
        names.CODE_FILE_PATH: __file__,
        names.CODE_LINE_NUMBER: records[0].lineno,
        names.CODE_FUNCTION_NAME: "test_a_record_says_where_when_and_in_what",
        names.THREAD_NAME: "MainThread",
        names.STEP: 7,
        names.RUN_ID: log.run_id,
        names.PROCESS_PID: os.getpid(),
        "fold": 2,
        "tags": ["a", "b"],
        "nested": '{"x": 1}',
    }
    assert ("epoch 3 of ten", "INFO", "tests.app") == (row["body"], row["severity"], row["scope"])
    assert expected == {key: row["attributes"].get(key) for key in expected}
    assert int(records[0].created * 1e9) == row["time"]
    assert f"{span.get_span_context().span_id:016x}" == row["span_id"]


def test_a_summary_of_the_run_tells_them_by_logger(make: Make, app: logging.Logger) -> None:
    """Where events are told by their names."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="info") as log:
        app.info("first")
        app.info("last")
    assert log.run_dir is not None

    (events,) = (events for events in contents_of(log.run_dir, 0).events if events.name == "tests.app")
    assert (2, "last") == (events.count, events.last_text)


@pytest.mark.parametrize("settings", [{}, {"OTEL_LOGGER_PROGRAM_LOGS": "debug", "OTEL_LOGS_EXPORTER": "none"}])
def test_nothing_is_recorded_unless_it_is_asked_for(make: Make, app: logging.Logger, settings: dict[str, str]) -> None:
    """By default, and without log records, nothing stands in anybody's place."""
    before = logging.Logger.callHandlers, warnings.showwarning
    with make(**settings) as log:
        app.critical("anything")
        assert before == (logging.Logger.callHandlers, warnings.showwarning)

    assert [] == said(log)


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error", "critical"]),
        ("info", ["info", "warning", "error", "critical"]),
        ("warning", ["warning", "error", "critical"]),
        ("error", ["error", "critical"]),
        ("off", []),
    ],
)
def test_the_setting_is_the_least_level(make: Make, app: logging.Logger, least: str, expected: list[str]) -> None:
    """Finer records are left out; the levels of the program's own loggers stay what they are."""
    with make(OTEL_LOGGER_PROGRAM_LOGS=least) as log:
        for level in ("debug", "info", "warning", "error", "critical"):
            getattr(app, level)(level)

    assert expected == bodies(log)


def test_a_level_that_is_none_is_an_error(make: Make) -> None:
    """What is not understood is told at construction, by variable and by field."""
    with pytest.raises(ConfigurationError, match="OTEL_LOGGER_PROGRAM_LOGS"):
        make(OTEL_LOGGER_PROGRAM_LOGS="loud")
    with pytest.raises(ConfigurationError, match="program_logs='loud'"):
        Settings(program_logs="loud")


@pytest.mark.parametrize(
    ("level", "severity"),
    [(1, "Level 1"), (10, "DEBUG"), (20, "INFO"), (25, "Level 25"), (30, "WARN"), (40, "ERROR"), (50, "FATAL")],
)
def test_levels_have_the_names_of_opentelemetry(make: Make, app: logging.Logger, level: int, severity: str) -> None:
    """Levels of the program's own keep their name."""
    app.setLevel(1)
    handler: logging.Handler
    with make() as log:
        app.addHandler(handler := log.logging_handler())
        app.log(level, "x")
        app.removeHandler(handler)

    assert [severity] == [row["severity"] for row in said(log)]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("at https://user:hunter2@example.org/x", "[redacted]"),
        ("login with password=hunter2 as joe", "login with password=[redacted] as joe"),
        ('{"api_key": "abcdef", "lr": 0.1}', '{"api_key": "[redacted]", "lr": 0.1}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("token: a:b, secret=, dsn=x=y", "token: [redacted], secret=, dsn=[redacted]"),
        ("dsn=pwd=x end", "dsn=[redacted] end"),
        ("pad_token=<pad> tokens: 512 lr=0.1", "pad_token=<pad> tokens: 512 lr=0.1"),
    ],
)
def test_secrets_are_redacted(make: Make, app: logging.Logger, message: str, expected: str) -> None:
    """In messages, and in the texts of exceptions: what looks like a secret, and what a key names as one."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.info(message)
        try:
            raise ValueError(message)
        except ValueError:
            app.exception("failed")

    first, second = said(log)
    assert expected == first["body"]
    assert expected == second["attributes"][names.EXCEPTION_MESSAGE]
    assert message == expected or message not in second["attributes"][names.EXCEPTION_STACKTRACE]


def test_secrets_in_extra_are_redacted_and_names_of_ours_are_not_taken(make: Make, app: logging.Logger) -> None:
    """`extra` follows the rules of hyperparameters; what is no plain data is left out."""
    extra = {"api_key": "abc", "training.rank": 9, "object": object(), "service": {"password": "x", "port": 1}}
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.info("x", extra=extra)

    (row,) = said(log)
    assert 0 == row["attributes"][names.RANK]
    assert 9 == row["attributes"]["user.training.rank"]
    assert "[redacted]" == row["attributes"]["api_key"]
    assert '{"password": "[redacted]", "port": 1}' == row["attributes"]["service"]
    assert "object" not in row["attributes"]


def test_of_many_fields_the_first_are_recorded(make: Make, app: logging.Logger) -> None:
    """Backends bound the attributes of a record; the rest is counted."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.info("x", extra={f"field_{number}": number for number in range(40)})

    (row,) = said(log)
    assert list(range(32)) == [value for key, value in row["attributes"].items() if key.startswith("field_")]
    assert {"extra": 1} == log.stats().adjusted


def test_an_exception_is_recorded_with_its_type_message_and_traceback(make: Make, app: logging.Logger) -> None:
    """In OpenTelemetry's attributes; the stack that `stack_info` asks for beside it."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        try:
            raise KeyError("gone")
        except KeyError:
            app.exception("failed", stack_info=True)

    (row,) = said(log)
    found = row["attributes"]
    assert ("failed", "KeyError", "'gone'") == (
        row["body"],
        found[names.EXCEPTION_TYPE],
        found[names.EXCEPTION_MESSAGE],
    )
    assert 'raise KeyError("gone")' in found[names.EXCEPTION_STACKTRACE]
    assert "stack_info=True" in found[names.CODE_STACKTRACE]


def test_what_is_logged_as_data_stays_data_and_what_is_long_is_cut(make: Make, app: logging.Logger) -> None:
    """A mapping as message is a body of its own; a text is cut at 8,192 characters."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.info({"lr": 0.1, "token": "abc"})
        app.info("x" * 10_000)

    first, second = bodies(log)
    assert {"lr": 0.1, "token": "[redacted]"} == first
    assert "x" * 8192 + "… (10000 characters)" == second


class Mute:
    """What cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(("message", "argument"), [("%d", "x"), ("%s", Mute()), ("%s %s", 1)])
def test_a_record_that_cannot_be_formatted_costs_itself(
    make: Make, app: logging.Logger, message: str, argument: object
) -> None:
    """It is counted, and what comes after it arrives."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.info(message, argument)
        app.info("after")

    assert ["after"] == bodies(log)
    assert {"log": 1} == log.stats().dropped


class OnDevice:
    """What looks like a tensor on a GPU, which waits for it when it is shown."""

    device = type("Device", (), {"type": "cuda", "__str__": lambda self: "cuda:0"})()
    shape = (2, 3)
    dtype = "float32"

    def numel(self) -> int:
        """Return how many elements there are."""
        return 6

    def __str__(self) -> str:
        raise AssertionError("this would wait for the device")

    __format__ = __repr__ = __float__ = __str__  # type: ignore[assignment]


OnDevice.__module__, OnDevice.__name__ = "torch", "Tensor"


@pytest.mark.parametrize("message", ["loss %s", "loss %.3f", "loss %r"])
@pytest.mark.parametrize("wrap", [lambda tensor: tensor, lambda tensor: [tensor]])
def test_a_tensor_on_a_device_is_not_waited_for(
    make: Make, app: logging.Logger, message: str, wrap: Callable[[Any], Any]
) -> None:
    """It is told by its shape, also where no other handler would have shown it."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.debug(message, wrap(OnDevice()))
        app.debug("%(loss)s", {"loss": OnDevice()})

    assert ["tensor of shape (2, 3), dtype float32, device cuda:0" in body for body in bodies(log)] == [True, True]


def test_what_otel_logger_says_itself_is_left_out(make: Make) -> None:
    """Its warnings, and whatever is logged in its threads: recording that would make more of it."""
    own = logging.getLogger("otel_logger.anything")
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        own.warning("of our own")
        other = threading.Thread(target=logging.getLogger("urllib3").warning, args=("a retry",), name="otel_logger x")
        other.start()
        other.join()
        logging.getLogger("urllib3").warning("of the program's")

    assert ["of the program's"] == bodies(log)


class Chatty:
    """A number that logs when it is read, as the libraries that we call do."""

    def __init__(self, *loggers: str) -> None:
        self.loggers = loggers

    def __str__(self) -> str:
        for logger in self.loggers:
            logging.getLogger(logger).warning("in a call")
        return "chatty"


def test_what_libraries_say_in_our_calls_is_left_out(make: Make) -> None:
    """Those that carry out our calls; the program's own code in them, as a value's `__str__`, is heard."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        log.log_metrics({"word": Chatty("urllib3.connectionpool", "tests.mine")}, step=1)

    assert ["tests.mine"] == [row["scope"] for row in said(log)]


class Repeating(logging.Handler):
    """A handler that logs itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log that there was something."""
        if record.name != "tests.repeating":
            logging.getLogger("tests.repeating").warning("seen %s", record.getMessage())


def test_a_handler_that_logs_is_recorded_too_and_ends(make: Make, app: logging.Logger) -> None:
    """Both records arrive, once each."""
    app.addHandler(repeating := Repeating())
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        app.info("first")
    app.removeHandler(repeating)

    assert ["first", "seen first"] == bodies(log)


def test_signal_handlers_and_destructors_may_log(make: Make, app: logging.Logger) -> None:
    """Wherever they come, in the middle of a call of ours too."""

    class Dying:
        def __del__(self) -> None:
            app.info("gone")

        def __str__(self) -> str:
            signal.raise_signal(signal.SIGUSR1)
            return "dying"

    standing = signal.signal(signal.SIGUSR1, lambda number, frame: app.info("signal"))
    with make(OTEL_LOGGER_PROGRAM_LOGS="debug") as log:
        log.log_metrics({"word": Dying()}, step=1)
    signal.signal(signal.SIGUSR1, standing)

    assert ["signal", "gone"] == bodies(log)


def test_a_logger_that_a_handler_of_the_program_closes_is_closed(make: Make, app: logging.Logger) -> None:
    """A close in the midst of a record comes at its end, and what is logged after it is not recorded."""
    log = make(OTEL_LOGGER_PROGRAM_LOGS="debug")

    class Closing:
        def __str__(self) -> str:
            log.close()
            return "closing"

    app.info("%s", Closing())
    app.info("after")

    assert ["closing"] == bodies(log)


@pytest.mark.parametrize("capture", ["never", "before", "after"])
def test_a_warning_is_recorded_once(make: Make, capture: str) -> None:
    """Also where `logging.captureWarnings` makes a record of it, before the logger was made or since."""
    logger = logging.getLogger("py.warnings")
    logger.propagate = False
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        logging.captureWarnings(capture == "before")
        with make(OTEL_LOGGER_PROGRAM_LOGS="warning") as log:
            logging.captureWarnings(capture != "never")
            warnings.warn("careful", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    logger.propagate = True

    (row,) = said(log)
    assert ("py.warnings", "WARN") == (row["scope"], row["severity"])
    assert "UserWarning: careful" in row["body"]
    if capture != "before":
        assert capture == "after" or __file__ == row["attributes"][names.CODE_FILE_PATH]


def test_what_stood_before_stands_again(make: Make) -> None:
    """After the last of several loggers, but not where somebody has replaced ours meanwhile."""
    before = logging.Logger.callHandlers, warnings.showwarning
    one, two = (make(name, OTEL_LOGGER_PROGRAM_LOGS="info") for name in ("one", "two"))
    one.close()
    assert before != (logging.Logger.callHandlers, warnings.showwarning)
    two.close()

    assert before == (logging.Logger.callHandlers, warnings.showwarning)


def test_somebody_else_s_replacement_stays_and_hears_everything_once(
    make: Make, app: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours below it falls silent, and a logger that is opened again records each record once."""
    heard: list[str] = []
    first = make("one", OTEL_LOGGER_PROGRAM_LOGS="info")
    ours = logging.Logger.callHandlers

    def theirs(self: logging.Logger, record: logging.LogRecord) -> None:
        heard.append(record.getMessage())
        ours(self, record)

    monkeypatch.setattr(logging.Logger, "callHandlers", theirs)
    first.close()
    assert theirs is logging.Logger.callHandlers
    app.info("between")
    with make("two", OTEL_LOGGER_PROGRAM_LOGS="info") as second:
        app.info("within")

    assert theirs is logging.Logger.callHandlers
    assert ["between", "within"] == heard
    assert (["within"], []) == (bodies(second), bodies(first))


def test_each_logger_records_for_itself(make: Make, app: logging.Logger) -> None:
    """Two at once have it both."""
    with make("one", OTEL_LOGGER_PROGRAM_LOGS="info") as one, make("two", OTEL_LOGGER_PROGRAM_LOGS="error") as two:
        app.info("info")
        app.error("error")

    assert (["info", "error"], ["error"]) == (bodies(one), bodies(two))


def test_program_logs_are_given_up_first() -> None:
    """Near the bound of what is unsent a flood of them must not cost the run its events."""
    emitted: list[dict[str, Any]] = []

    def emit(name: str, attributes: Any = None, **options: Any) -> None:
        emitted.append(options)

    logs = ProgramLogs(emit, Ledger(SystemClock(), logging.getLogger("tests.ledger")), Redactor(), lambda: 3)
    logs.take(logging.makeLogRecord({"name": "tests.app", "msg": "x", "levelno": 20}))

    assert [(True, 3)] == [(options["is_minor"], options["step"]) for options in emitted]


def test_every_rank_records(make: Make, app: logging.Logger) -> None:
    """A hang is seen in what the other ranks have said last."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="info", RANK="3", WORLD_SIZE="4", LOCAL_RANK="3") as log:
        app.info("of rank 3")

    assert ["of rank 3"] == bodies(log)


def test_a_handler_of_one_s_own_takes_a_part(make: Make, app: logging.Logger) -> None:
    """With a level; what comes by the setting too is recorded once."""
    with make(OTEL_LOGGER_PROGRAM_LOGS="error") as log:
        app.addHandler(handler := log.logging_handler("WARNING"))
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            app.log(level, logging.getLevelName(level))
        app.removeHandler(handler)

    assert ["WARNING", "ERROR"] == bodies(log)


def test_what_a_handler_gets_after_the_end_is_counted(make: Make) -> None:
    """As with every other call; the warning of it, which the handler gets too, is not."""
    root = logging.getLogger()
    with make() as log:
        root.addHandler(handler := log.logging_handler())
    logging.getLogger("tests.late").warning("late")
    root.removeHandler(handler)

    assert {"closed": 1} == log.stats().dropped


def test_a_handler_takes_nothing_of_ours_and_heeds_its_filters(make: Make) -> None:
    """On the root logger it would hear what is said of the records that it makes."""
    root = logging.getLogger()
    with make() as log:
        root.addHandler(handler := log.logging_handler(logging.INFO))
        handler.addFilter(lambda record: "not" not in record.msg)
        logging.getLogger("otel_logger").warning("of ours")
        logging.getLogger("tests.b").warning("this")
        logging.getLogger("tests.b").warning("not this")
        root.removeHandler(handler)

    assert ["this"] == bodies(log)


def test_in_the_child_of_a_fork_nothing_stands(make: Make, app: logging.Logger) -> None:
    """The child logs as if there were no logger, and the parent goes on."""
    before = logging.Logger.callHandlers
    with make(OTEL_LOGGER_PROGRAM_LOGS="info") as log:
        if (child := os.fork()) == 0:
            app.info("child")
            os._exit(0 if before is logging.Logger.callHandlers and not log.stats().dropped else 1)
        assert (child, 0) == os.waitpid(child, 0)
        app.info("parent")

    assert ["parent"] == bodies(log)


PROGRAM = """
import logging, os, sys, tracemalloc, warnings
from otel_logger import OTelLogger

log = OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": sys.argv[1], **eval(sys.argv[2])})
app = logging.getLogger("app")
app.warning("by the handler of last resort")
warnings.warn("careful")
tracemalloc.start()
open(os.devnull)
logging.basicConfig(format="%(levelname)s %(name)s %(message)s %(threadName)s", level=logging.INFO)
app.info("configured %s", 1, extra={"fold": 3})
app.debug("not shown")
logging.captureWarnings(True)
warnings.warn("captured")
logging.captureWarnings(False)
logging.config = __import__("logging.config").config
logging.config.dictConfig({"version": 1, "root": {"level": "ERROR"}, "disable_existing_loggers": True})
app.error("disabled")
logging.getLogger("other").error("on")
print(logging.getLogger().handlers, logging.getLogger("other").hasHandlers())
log.close()
"""


def test_the_program_shows_what_it_would_show_without(tmp_path: Path) -> None:
    """`basicConfig`, `dictConfig`, the handler of last resort and the sources of warnings work as ever."""
    shown = []
    for number, settings in enumerate(({}, {"OTEL_LOGGER_PROGRAM_LOGS": "debug"})):
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", PROGRAM, str(tmp_path / str(number)), repr(settings)],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = (done.stdout + done.stderr).splitlines()
        shown.append([line for line in lines if not line.startswith(("otel_logger: ", "INFO otel_logger "))])
    (run,) = (folder for folder in (tmp_path / "1").iterdir() if folder.is_dir() and folder.name.startswith("run"))

    assert shown[0] == shown[1]
    assert any("Object allocated at" in line for line in shown[0])
    assert ["app", "py.warnings", "py.warnings", "app", "py.warnings", "other"] == [
        row["scope"] for row in read_run(run).events if not row["name"]
    ]


def test_our_threads_are_known_by_their_names() -> None:
    """Each thread that we start is named so that what is logged in it is left out."""
    started = [
        ast.unparse(node)
        for folder in (SOURCES / "otel_logger", SOURCES / "exporters" / "otel_logger_exporters")
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Thread", "ThreadPoolExecutor", "Timer"))
    ]

    assert len(started) > 5
    assert [] == [call for call in started if not re.search(r"name=f?'otel_logger ", call)]
