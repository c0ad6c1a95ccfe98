"""Program logs: what the program says by Python's `logging`, as log records of the run.

Nothing here installs anything; see `log_hooks`.
"""

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_logger import conventions as names
from otel_logger.exceptions import exception_attributes
from otel_logger.hyperparameters import attribute
from otel_logger.redaction import Redactor
from otel_logger.values import LONGEST_TEXT, is_device_tensor, key_text, plain, text
from otel_logger_exporters.items import Severity
from otel_logger_exporters.ledger import Ledger

__all__ = ["ProgramLogs", "ProgramLogsHandler"]

MOST_EXTRAS: Final = 32
"""Fields of `extra` that become attributes; Loki takes 128 attributes of a record in all."""

_OUR_THREADS: Final = "otel_logger "
"""How the names of all threads of otel_logger's own begin."""

_OUR_LIBRARIES: Final = ("PIL", "asyncio", "grpc", "opentelemetry", "urllib3")
"""The loggers of what carries out our own calls."""

_KNOWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    *("asctime", "message", "taskName", "stack_info"),
    # What OpenTelemetry's instrumentation of `logging` adds, and every record has here anyway.
    *("otelSpanID", "otelTraceID", "otelTraceSampled", "otelServiceName"),
}
"""The fields of a record that are no `extra`."""

_RESERVED: Final = ("training.", "otel_logger.", "code.", "exception.", "log.record.", "process.", "thread.")

_PLAIN: Final = (str, bool, int, float, list, tuple, dict)


class Emit(Protocol):
    """Records a log record; see `EventLog.emit`."""

    def __call__(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
        step: int | None = None,
        time_ns: int | None = None,
        severity: Severity = Severity.INFO,
        severity_text: str = "",
        scope: InstrumentationScope = ...,
        is_minor: bool = False,
    ) -> None:
        """Record it."""


class ProgramLogsHandler(logging.Handler):
    """A handler that gives records to `take`, which must not raise, but for those that are left out; it has no lock."""

    def __init__(self, take: Callable[[logging.LogRecord], None], level: int | str) -> None:
        super().__init__(level)
        self._take = take

    def createLock(self) -> None:
        """Have none: a lock of a handler's would make threads wait for each other."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Give a record that the handler's filters let through."""
        if _is_ours(record):
            return False
        if passed := self.filter(record):
            self._take(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Give a record."""
        self._take(record)


class ProgramLogs:
    """Records what Python's `logging` hands on, with the step and the span of the moment; thread-safe, never raises.

    Left out is what otel_logger says itself, and what libraries say in its threads and calls: recording it would make
    them say more. A record that comes twice in a thread, by two handlers, is recorded once. One that cannot be
    formatted costs itself, counted.
    """

    def __init__(self, emit: Emit, ledger: Ledger, redactor: Redactor, step: Callable[[], int | None]) -> None:
        self._emit = emit
        self._ledger = ledger
        self._redactor = redactor
        self._step = step
        self._last = threading.local()

    @property
    def last(self) -> logging.LogRecord | None:
        """The record that this thread has given last, while it exists."""
        reference = getattr(self._last, "record", None)
        return reference() if reference is not None else None

    def take(self, record: logging.LogRecord) -> None:
        """Record it, unless it is left out or was the last already."""
        if record is self.last or _is_ours(record):
            return
        # A weak one: a record may hold an exception, and that the frames of the training and what is on its devices.
        self._last.record = weakref.ref(record)
        try:
            body = self._body(record)
            attributes = self._attributes(record)
        except Exception as error:
            # Formatting calls code of the program's: what it was given to log, and subclasses of records.
            self._ledger.drop(
                "log", 1, f"A record of the logger {key_text(record.name)!r} is lost, it cannot be read: {error!r}"
            )
            return
        self._emit(
            "",
            attributes,
            body=body,
            step=self._step(),
            time_ns=int(record.created * 1e9),
            severity=_severity(record.levelno),
            severity_text=_LEVELS.get(record.levelname, key_text(record.levelname)),
            scope=_scope(key_text(record.name)),
            is_minor=True,
        )

    def _body(self, record: logging.LogRecord) -> Any:
        message = record.msg
        if not isinstance(message, str) and not record.args:
            return self._structured(plain(message))
        return self._free(_formatted(record))

    def _structured(self, body: Any) -> Any:
        return self._free(body) if isinstance(body, str) else self._redactor.redact("", body)

    def _free(self, message: str) -> str:
        # Cut twice: the rules are to see a secret whole, but not megabytes.
        redacted = self._redactor.redact_text(text(message[: 2 * LONGEST_TEXT]))
        if len(message) <= LONGEST_TEXT:
            return redacted
        return f"{redacted[:LONGEST_TEXT]}… ({len(message)} characters)"

    def _attributes(self, record: logging.LogRecord) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            names.CODE_FILE_PATH: key_text(record.pathname),
            names.CODE_LINE_NUMBER: record.lineno if type(record.lineno) is int else 0,
        }
        if record.funcName:
            attributes[names.CODE_FUNCTION_NAME] = key_text(record.funcName)
        if record.threadName:
            attributes[names.THREAD_NAME] = key_text(record.threadName)
        if record.process is not None and record.process != os.getpid():
            # From another process, by way of a queue.
            attributes[names.PROCESS_PID] = record.process
        if record.stack_info:
            attributes[names.CODE_STACKTRACE] = self._free(str(record.stack_info))
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            attributes |= exception_attributes(error, self._redactor.redact_text)
        elif record.exc_text:
            attributes[names.EXCEPTION_STACKTRACE] = self._free(str(record.exc_text))
        return attributes | self._extras(record)

    def _extras(self, record: logging.LogRecord) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in vars(record).items():
            if key in _KNOWN or not isinstance(value, _PLAIN):
                continue
            if len(found) == MOST_EXTRAS:
                self._ledger.adjust("extra", 1, f"Of the `extra` of a log record {MOST_EXTRAS} fields are recorded")
                break
            name = key_text(key) or "empty"
            redacted = self._redactor.redact(name, plain(value))
            found[f"user.{name}" if name.startswith(_RESERVED) else name] = attribute(
                self._free(redacted) if isinstance(redacted, str) else redacted
            )
        return found


def _is_ours(record: logging.LogRecord) -> bool:
    name = str(record.name)
    if name.partition(".")[0] in ("otel_logger", "otel_logger_exporters"):
        return True
    if threading.current_thread().name.startswith(_OUR_THREADS):
        return True
    return name.partition(".")[0] in _OUR_LIBRARIES and _is_in_a_call_of_ours()


def _is_in_a_call_of_ours() -> bool:
    """Tell whether what logs was called, however far up, by a module of ours other than those that hand logs on."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(("otel_logger.", "otel_logger_exporters.")) and name not in _HANDING_ON:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_HANDING_ON = frozenset({__name__, "otel_logger.log_hooks", "otel_logger.destination", "otel_logger.session"})


def _formatted(record: logging.LogRecord) -> str:
    """Return the message, without waiting for a tensor on a device: of such the shape is told."""
    arguments: Any = record.args
    values = arguments.values() if isinstance(arguments, Mapping) else arguments or ()
    if not any(_is_on_a_device(value) for value in values):
        return str(record.getMessage())
    if isinstance(arguments, Mapping):
        arguments = {key: _off_devices(value) for key, value in arguments.items()}
    else:
        arguments = tuple(_off_devices(value) for value in arguments)
    try:
        return str(str(record.msg) % arguments)
    except (TypeError, ValueError):
        # A tensor for `%f` is text now.
        return f"{record.msg} {arguments}"


def _is_on_a_device(value: object) -> bool:
    if isinstance(value, (str, int, float)):
        return False
    if isinstance(value, Mapping):
        return any(is_device_tensor(item) for item in value.values())
    if isinstance(value, (list, tuple, set)):
        return any(is_device_tensor(item) for item in value)
    return is_device_tensor(value)


def _off_devices(value: object) -> object:
    return plain(value) if _is_on_a_device(value) else value


def _severity(level: int) -> Severity:
    """Return OpenTelemetry's number of a level: 10 to 50 are DEBUG, INFO, WARN, ERROR, FATAL, four of each."""
    level = min(max(level, 0), 53)
    return Severity(4 * (level // 10) + 1 + min(level % 10, 3)) if level else Severity.UNSPECIFIED


_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
"""OpenTelemetry's short names where they are others than Python's."""


@lru_cache(1024)
def _scope(name: str) -> InstrumentationScope:
    return InstrumentationScope(name, schema_url=names.SCHEMA_URL)
