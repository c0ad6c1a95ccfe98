"""A session, one opening of a logger: launch, writer and deposits, from the line at its start to that at its end."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_logger.adopter import Adopter
from otel_logger.announce import announce, destinations, outcome, shown
from otel_logger.conventions import OUTCOME_FAILED, OUTCOME_FINISHED, OUTCOME_INTERRUPTED, OUTCOME_PREEMPTED
from otel_logger.deposits import Deposits
from otel_logger.launch import Launch, read_launch, with_detectors
from otel_logger.log_hooks import LogHook
from otel_logger.process_hooks import ProcessHooks
from otel_logger.program_logs import ProgramLogs
from otel_logger.scraping import latest_values, open_scrape, scraped_at
from otel_logger.settings import Settings, own_parent
from otel_logger.termination import EXIT_STATUS, Termination, is_put_off, shield
from otel_logger.trainer import Position
from otel_logger.values import plain, text
from otel_logger.writer import Writer
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.endpoint_urls import GRPC
from otel_logger_exporters.errors import ConfigurationError, quoted
from otel_logger_exporters.ledger import Ledger, Stats, warn
from otel_logger_exporters.signals import Signal

__all__ = ["Arguments", "Session", "open_session"]

_log = logging.getLogger("otel_logger")

_DEAF = (
    "The handler of SIGTERM in this process is not Python's and is left alone: a SIGTERM ends the run as that handler "
    "does, perhaps without its end being recorded. OTEL_LOGGER_SIGNALS=off says so without this warning."
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a logger was constructed with."""

    run_name: str | None = None
    run_id: str | None = None
    settings: Settings | None = None
    # Holds keys of endpoints.
    environ: Mapping[str, str] | None = field(default=None, repr=False)


def open_session(
    arguments: Arguments,
    clock: Clock,
    position: Position,
    hooks: ProcessHooks,
    *,
    has_trainer: bool,
    is_reopening: bool = False,
) -> "Session | None":
    """Check the configuration and open a writer; None when OTEL_SDK_DISABLED is set. ConfigurationError if it is wrong.

    The run is settled here when the user named it, unless `has_trainer`: a trainer may yet load a checkpoint, whose run
    goes on. A logger that `is_reopening` is opened although it cannot be scraped.
    """
    environ = os.environ if arguments.environ is None else arguments.environ
    launch = read_launch(environ, arguments.settings)
    if launch.routes.disabled:
        if launch.ranks.local_rank == 0:
            announce(_log, "OTEL_SDK_DISABLED=true: nothing is recorded, and nothing is sent")
        return None
    if any(endpoint.protocol == GRPC for endpoint in launch.routes.endpoints.values()):
        # Read when gRPC is first imported. Its own handlers of forks crash the process that forks while a thread of it
        # connects: those of a data loader would end the training. A child of ours leaves its parent's channels alone.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    launch = with_detectors(launch, environ)
    session = Session(arguments, launch, clock, position, hooks, is_reopening=is_reopening)
    session.start(settle=not has_trainer)
    return session


class Session:
    """An open writer with its deposits. `failure` is the exception that ended the program, where one did."""

    def __init__(
        self,
        arguments: Arguments,
        launch: Launch,
        clock: Clock,
        position: Position,
        hooks: ProcessHooks,
        *,
        is_reopening: bool = False,
    ) -> None:
        self.launch = launch
        self.ledger = Ledger(clock, _log)
        self.is_open = True
        self.is_forked = False
        self.fits = 0
        self.failure: BaseException | None = None
        self._is_finish_due = False
        self._clock = clock
        self._earlier = id(getattr(sys, "last_value", None))
        # Reentrant: a signal handler may close the logger that it interrupts closing.
        self._finishing = threading.RLock()
        run_name = _given("run_name", arguments.run_name or launch.settings.run_name)
        run_id = _given("run_id", arguments.run_id or launch.settings.run_id)
        if run_id is not None and run_id == launch.settings.parent_run_id:
            raise ConfigurationError(own_parent(run_id))
        self._scrape = open_scrape(launch, clock, self.ledger, is_reopening=is_reopening)
        latest = latest_values(launch.settings, self.ledger) if self._scrape is not None else None
        try:
            self.writer = Writer(
                launch, clock, self.ledger, run_name=run_name, run_id=run_id, position=position, latest=latest
            )
        except BaseException:
            self._stop_scraping()
            raise
        self.deposits = Deposits(self.writer, position, clock)
        self._program_logs = ProgramLogs(self.writer.emit, self.ledger, self.writer.redactor, self.writer.step)
        self._log_hook: LogHook | None = None
        self._adopter = Adopter(launch, clock, _log, self.deposits.courier.exclusive)
        self.writer.on_settled.append(lambda: self._adopter.start(self.writer.folder.parent, self.writer.folder))
        self._is_named = run_name is not None or run_id is not None
        self._hooks = hooks
        hooks.session = self
        if self._scrape is not None:
            self._scrape.start(self.writer.measure, self.writer.resource)
        self._termination = Termination(hooks.finish, is_wanted=launch.settings.signals == "on")
        if self._termination.is_deaf:
            self.ledger.warn("signals", _DEAF)

    def start(self, *, settle: bool) -> None:
        """Settle the run now, if that is wanted and the user named it, and say where the data goes."""
        if settle and self._is_named:
            self.writer.settle()
        else:
            self.writer.look_ahead()
        if self.launch.ranks.local_rank == 0:
            self._announce_start()
        level = self.launch.settings.program_logs
        if level != "off" and self.writer.outbox.journal(Signal.LOGS) is not None:
            self._log_hook = LogHook(self.take_log, getattr(logging, level.upper()))

    def take_log(self, record: logging.LogRecord) -> None:
        """Record what the program has logged."""
        self.guard(self._program_logs.take, record)

    def stats(self) -> Stats:
        """Return what became of the data so far."""
        if sys.is_finalizing():
            # A daemon thread may have held the lock when it was ended.
            self.ledger.abandon()
        return self.ledger.stats(self.writer.outbox.sent)

    def flush(self, timeout: float) -> bool:
        """Store and send everything recorded so far, within `timeout` seconds; return whether nothing is left."""
        # Beyond a certain number a lock refuses to wait at all.
        timeout = min(timeout, threading.TIMEOUT_MAX)
        deadline = self._clock.monotonic() + timeout
        stored = self.deposits.flush(timeout)
        return self.writer.outbox.flush(max(0.0, deadline - self._clock.monotonic())) and stored

    def finish(self) -> None:
        """Store, send and say what can be within the shutdown timeout, and give the folder up; once.

        Who comes while another thread is at it, as the exit of the program may, waits for that. A SIGTERM that comes
        meanwhile has its effect afterwards. A signal handler or destructor that closes the logger in the middle of one
        of its calls has it closed at the end of that call, whose locks others may be waiting for.
        """
        if self._interrupts_a_call():
            self._is_finish_due = True
        else:
            shield(self._finish_once)

    def _interrupts_a_call(self) -> bool:
        """Tell whether this thread is in a call of this session's; `flush` is none, which may wait for ever."""
        frame = sys._getframe().f_back
        while frame is not None:
            if frame.f_code is Session.guard.__code__:
                call = frame.f_locals
                if call["self"] is self and call["action"] not in (self.finish, self.flush):
                    return True
            frame = frame.f_back
        return False

    def _finish_once(self) -> None:
        timeout = self.launch.settings.shutdown_timeout / 1000
        linger = self.launch.settings.scrape_linger / 1000 if self._scrape is not None else 0.0
        if not self._finishing.acquire(timeout=timeout + linger + 1):
            return
        try:
            # Not where a signal handler closes the logger that it interrupts closing: that goes on when it returns.
            if self.is_open:
                self.is_open = False
                try:
                    self._finish(timeout)
                    if self._scrape is not None and self.writer.is_used:
                        self._scrape.linger(linger, is_put_off)
                finally:
                    self._stop_scraping()
                    self._let_go()
        finally:
            self._finishing.release()

    def _stop_scraping(self) -> None:
        if self._scrape is not None:
            self._scrape.close()

    def _close_log_hook(self) -> None:
        if self._log_hook is not None:
            self._log_hook.close()

    def _let_go(self) -> None:
        if self._hooks.session is self:
            self._hooks.session = None
        self._termination.close()
        self._close_log_hook()
        # Its traceback holds the frames that it came through, and they what is on the GPU.
        self.failure = None

    def _finish(self, timeout: float) -> None:
        deadline = self._clock.monotonic() + timeout
        try:
            if self.writer.is_used:
                self.writer.bind()
                self.deposits.close(timeout)
                self._close_log_hook()
                self.writer.finish(*self._outcome(), self.failure)
        finally:
            # Before the adopter gets the rest of the time: a backlog must not keep this run's own end from being sent.
            self.writer.send(max(0.0, deadline - self._clock.monotonic()))
            self._adopter.finish(max(0.0, deadline - self._clock.monotonic()))
            self.writer.close(max(0.0, deadline - self._clock.monotonic()))
        if self.writer.is_used and self.launch.ranks.local_rank == 0:
            self._announce_end()

    def abandon(self) -> None:
        """Drop everything inherited in the child of a fork, whose parent goes on with it."""
        self.is_open = False
        self.is_forked = True
        self._termination.close()
        self._close_log_hook()
        self.writer.abandon()
        self.deposits.abandon()
        if self._scrape is not None:
            self._scrape.abandon()

    def note_failure_of_program(self) -> None:
        """Take the uncaught exception that ended the program, if one did, for the run's failure.

        It is not in flight any more when exit hooks run, but the interpreter keeps the last one. One that was there
        before this session ended nothing; nor does any at a prompt or in a notebook, where only a fit left open tells.
        """
        last: BaseException | None = getattr(sys, "last_value", None)
        is_new = last is not None and id(last) != self._earlier
        if self.failure is None and is_new and (self.fits > 0 or not hasattr(sys, "ps1")):
            self.failure = last

    def guard(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Carry out a call of the trainer's: a fault of ours costs the call, never the training."""
        try:
            return action(*arguments)
        except Exception as error:
            self.ledger.drop("internal", 1, f"A call is lost by a fault inside otel_logger: {quoted(error)}")
            return None
        finally:
            if self._is_finish_due and action != self.finish:
                self._is_finish_due = False
                # This call is over, and not one that is interrupted any more.
                action = self.finish
                self.guard(action)

    def _announce_start(self) -> None:
        identity = self.writer.identity
        who = f"run {identity.run_id}, attempt {identity.attempt}: " if identity is not None else ""
        folder = self.writer.folder.parent if identity is not None else self.launch.directory
        announce(_log, who + destinations(self.launch.routes, shown(folder), scraped_at(self._scrape, self.launch)))
        notes = [*self.launch.notes, *([identity.note] if identity is not None and identity.note else [])]
        for note in notes:
            warn(_log, note)

    def _announce_end(self) -> None:
        run = self.writer.identity.run_id if self.writer.identity is not None else ""
        announce(_log, f"run {run} ended: {outcome(self.stats(), shown(self.writer.folder))}")

    def _outcome(self) -> tuple[str, str | None]:
        error = self.failure
        status = error.code if isinstance(error, SystemExit) else None
        if self._termination.explains(error) or (type(status) is int and status == EXIT_STATUS):
            return OUTCOME_PREEMPTED, "SIGTERM"
        if type(status) is int and status == 128 + signal.SIGINT:
            return OUTCOME_INTERRUPTED, "SIGINT"
        if isinstance(error, KeyboardInterrupt):
            return OUTCOME_INTERRUPTED, "KeyboardInterrupt"
        if error is None and self.fits > 0:
            return OUTCOME_INTERRUPTED, "the end of fit was not reached"
        if error is None or (isinstance(error, SystemExit) and not status):
            return OUTCOME_FINISHED, None
        # Whether the one led to the other cannot be told: a peer that was ended first looks like a broken network.
        after = " (after SIGTERM)" if self._termination.came else ""
        return OUTCOME_FAILED, f"{type(error).__name__}: {plain(error)}{after}"


def _given(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        msg = f"OTelLogger({name}={value!r}): give a str"
        raise ConfigurationError(msg)
    return text(value) if value else None
