"""The destination: every call of Composer's LoggerDestination contract, carried out by a writer.

`otel_logger.OTelLogger` and `otel_logger.composer.OTelLogger` are this class under two bases.
"""

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from otel_logger.activity import CHECKPOINT_START
from otel_logger.hyperparameters import Remembered
from otel_logger.identity import Checkpoint, Identity
from otel_logger.image_deposits import log_images
from otel_logger.process_hooks import ProcessHooks
from otel_logger.program_logs import ProgramLogsHandler
from otel_logger.progress import download_progress
from otel_logger.recorder import as_step
from otel_logger.session import Arguments, Session, open_session
from otel_logger.settings import Settings
from otel_logger.span_block import SpanBlock
from otel_logger.spans import Block
from otel_logger.table_deposits import log_table
from otel_logger.trainer import Position, follow
from otel_logger.trainer_events import TrainerEvents
from otel_logger.values import key_text, text
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.errors import ConfigurationError, quoted
from otel_logger_exporters.ledger import Stats, warn

__all__ = ["Destination"]

Self = TypeVar("Self", bound="Destination")

_log = logging.getLogger("otel_logger")

_NOTHING: dict[str, int] = {"metrics": 0, "logs": 0, "traces": 0}

_BINDING_EVENTS = frozenset({"fit_start", "eval_standalone_start", "predict_start"})
"""The events that bind the resource: an evaluation or prediction may be all that there is, and take hours."""


class Destination(TrainerEvents):
    """Records what a trainer logs and sends it by OTLP, or keeps it in a folder where no endpoint is set."""

    _has_trainer = False
    """Whether a trainer will say when its fit begins, and perhaps load a checkpoint before."""

    def __init__(
        self,
        *,
        run_name: str | None = None,
        run_id: str | None = None,
        settings: Settings | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Check the configuration and open the run's folder; ConfigurationError for whatever is wrong with it.

        Args:
            run_name: name of the run; else OTEL_LOGGER_RUN_NAME, else the trainer's, else the program's.
            run_id: id of the run; give that of an earlier run to go on with it; else OTEL_LOGGER_RUN_ID, else made.
            settings: settings in place of the `OTEL_LOGGER_*` variables.
            environ: environment to read in place of the process's own.
        """
        # A copy: the caller may change theirs, and `os.environ` itself cannot be pickled.
        self._prepare(Arguments(run_name, run_id, settings, dict(environ) if environ is not None else None))
        self._open(self._arguments)

    def _prepare(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._lock = threading.RLock()
        self._position = Position()
        self._session: Session | None = None
        self._hooks = ProcessHooks()
        self._is_unpickled = False

    def _open(self, arguments: Arguments, *, is_reopening: bool = False) -> None:
        self._is_unpickled = False
        self._session = open_session(
            arguments,
            SystemClock(),
            self._position,
            self._hooks,
            has_trainer=self._has_trainer,
            is_reopening=is_reopening,
        )
        if self._session is not None:
            # Settings are read once. The folder above all: the program may change its directory before it reopens.
            launch = self._session.launch
            self._arguments = replace(self._arguments, settings=replace(launch.settings, directory=launch.directory))

    def _reopen(self, arguments: Arguments) -> None:
        """Open within a call of the training's, which a folder that cannot be written any more must not end."""
        try:
            self._open(arguments, is_reopening=True)
        except (ConfigurationError, OSError) as error:
            warn(_log, f"What is logged from here on is lost, the logger cannot be opened again: {error}")

    def _active(self, items: int = 1) -> Session | None:
        """Return the open session, or None after counting what is lost without one."""
        if self._is_unpickled:
            with self._lock:
                if self._is_unpickled:
                    self._reopen(self._arguments)
        session = self._session
        if session is None or session.is_open:
            return session
        if sys.is_finalizing():
            # A destructor's call. Counting it takes a lock, which a daemon thread may have held when it was ended.
            return None
        if items and session.is_forked:
            session.ledger.drop(
                "fork",
                items,
                "A logger inherited by a forked process records nothing: the parent owns its files. "
                "Make an OTelLogger of its own there",
            )
        elif items:
            session.ledger.drop("closed", items, "What is logged after the logger is closed is lost")
        return None

    def _sending(self, items: int = 1) -> Session | None:
        """Return the open session of a rank that sends metrics, hyperparameters, traces, images and tables."""
        session = self._active(items)
        return session if session is not None and session.writer.sends else None

    def __getstate__(self) -> Arguments:
        """Return what a copy in another process needs: how this one was made, and the run it belongs to."""
        identity = self._session.writer.identity if self._session is not None else None
        return self._arguments if identity is None else self._again(identity)

    def _again(self, last: Identity) -> Arguments:
        return replace(self._arguments, run_name=last.run_name, run_id=last.run_id)

    def __setstate__(self, state: Arguments) -> None:
        """Become a writer of its own, opened by the first call."""
        self._prepare(state)
        self._is_unpickled = True

    def __enter__(self: Self) -> Self:
        """Return the logger; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the logger; an exception makes the run a failed one."""
        if self._session is not None:
            self._session.failure = error
        self.close()

    @property
    def run_id(self) -> str | None:
        """The run's id, or None while it is not settled (under a trainer: until it fits)."""
        identity = self._session.writer.identity if self._session is not None else None
        return identity.run_id if identity is not None else None

    @property
    def run_dir(self) -> Path | None:
        """The folder that `read_run` reads: the run's, or the writer's until the run is settled; None if disabled."""
        if self._session is None:
            return None
        writer = self._session.writer
        return writer.folder.parent if writer.identity is not None else writer.folder

    def stats(self) -> Stats:
        """Return what became of the data since the logger was opened, as counts."""
        if self._session is None:
            return Stats(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
        return self._session.stats()

    def flush(self, timeout: float = 10.0) -> bool:
        """Store and send everything recorded so far, within `timeout` seconds; return whether nothing is left.

        Metrics and spans are not sent before the first metric, or under a trainer the beginning of a fit, evaluation or
        prediction.
        """
        session = self._active(0)
        return session is None or bool(session.guard(session.flush, timeout))

    def span(self, name: str, /, **attributes: Any) -> SpanBlock:
        """Return a context manager, and decorator, that runs a block, or each call of a function, in a span.

        Spans nest, and what `log_traces` gets inside becomes an event of the innermost. In another thread the first
        stands in the trainer's current span, or the run's. An exception is recorded on the innermost span that it goes
        through, makes all of them failed ones, and goes on. Secrets in attributes and exceptions are replaced by
        `[redacted]`. For coroutines and generators see `otel_logger.span_block`.
        """
        return SpanBlock(lambda: self._begin_block(name, attributes))

    def _begin_block(self, name: str, attributes: Mapping[str, Any]) -> tuple[Block, Callable[..., Any]] | None:
        # On every rank: a block may also say what the time goes to.
        session = self._active()
        block = session.guard(session.writer.block, name, attributes) if session is not None else None
        return (block, session.guard) if session is not None and block is not None else None

    def logging_handler(self, level: int | str = logging.NOTSET) -> logging.Handler:
        """Return a handler for a logger of Python's `logging`, which makes a log record of what that is given.

        For a part of the program's logs, on any rank; OTEL_LOGGER_PROGRAM_LOGS takes all of them without a handler.
        What comes both ways is recorded once. Secrets are replaced by `[redacted]`.
        """
        return ProgramLogsHandler(self._take_log, level)

    def _take_log(self, record: logging.LogRecord) -> None:
        if (session := self._active()) is not None:
            session.take_log(record)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record each value with the time of this call.

        Args:
            metrics: numbers by key: floats, ints, bools, NumPy scalars, arrays and tensors of one element, NaN and
                infinities too. What is no number goes, whole, into one log record beside them.
            step: the step; None is the trainer's, or without a trainer none.
        """
        session = self._active(_length(metrics))
        if session is not None:
            session.guard(session.writer.log_metrics, metrics, self._position.step() if step is None else step)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Record hyperparameters, nested as they are; secrets among them are replaced by `[redacted]`.

        Those logged before the first metric (under a trainer, before its fit) become attributes of every metric and
        span, 60 at most; all are in a log record.

        Args:
            hyperparameters: values of any type by key; also a namespace, a dataclass or another object with fields
                (`otel_logger.forms.fields_of`). Anything else is counted in `stats().dropped["hyperparameters"]`.
        """
        session = self._sending()
        if session is not None:
            session.guard(session.writer.log_hyperparameters, hyperparameters)

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Record each entry as an event of the current span, or as a log record where there is none."""
        session = self._sending(_length(traces))
        if session is not None:
            session.guard(session.writer.log_traces, traces, self._position.step())

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: dict[str, Any] | None = None,
        mask_class_labels: dict[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Store images and their masks, without loss, in the blob store; log records link to them and show them.

        Args:
            images: one image or several: tensors or arrays of shape HW, CHW (HWC with `channels_last`) or NCHW, or a
                sequence of them; 1, 3 or 4 channels; see `otel_logger.images` for dtypes and ranges.
            name: name of the images.
            channels_last: whether the channels are the last dimension.
            step: the step; None is the trainer's, or without a trainer none.
            masks: segmentation masks by name, for each image one of shape HW with a label for each pixel; see
                `otel_logger.masks`. Each is stored exactly, and as an overlay to look at.
            mask_class_labels: names of the labels.
            use_table: whether several images have one record, that shows 16 of them at most, in place of one each.
        """
        session = self._sending()
        if session is None:
            return
        step = self._step(session, step)
        arguments = images, key_text(name), channels_last, step, masks, mask_class_labels, use_table
        session.guard(log_images, session.deposits, *arguments)

    def log_table(
        self, columns: list[str], rows: list[list[Any]], name: str = "Table", step: int | None = None
    ) -> None:
        """Store a table in the blob store, told by a log record that links to it and shows its first rows.

        Args:
            columns: names of the columns.
            rows: for each row its cells; of any type, see `otel_logger.tables`.
            name: name of the table.
            step: the step; None is the trainer's, or without a trainer none.
        """
        session = self._sending()
        if session is not None:
            session.guard(log_table, session.deposits, columns, rows, key_text(name), self._step(session, step))

    def upload_file(self, state: Any, remote_file_name: str, file_path: str | Path, *, overwrite: bool = False) -> None:
        """Store a file under a name; its content is that of the moment of this call.

        Returns when a private copy exists, and stores that in the background; the file may be changed or deleted at
        once. Waits for that copy, and without `overwrite` for one look whether the name is taken.

        Args:
            state: the trainer's state, or None.
            remote_file_name: name in the store; any text is mapped into it (`otel_logger_exporters.blob_names`).
            file_path: the file; symbolic links are followed.
            overwrite: whether to replace what an earlier call, or another run, stored under the name.

        Raises:
            FileNotFoundError: there is no such file.
            FileExistsError: the name is taken, and `overwrite` is false. An earlier attempt of this same run does not
                count: a resumed run writes its checkpoints again.
        """
        session = self._active()
        if session is not None:
            refused = session.guard(self._upload, session, remote_file_name, file_path, overwrite)
            if refused is not None:
                try:
                    raise refused
                finally:
                    # With it this frame, and those of the callers with what they hold, would wait for the collector.
                    del refused

    def _upload(
        self, session: Session, remote_file_name: str, file_path: str | Path, overwrite: bool
    ) -> OSError | None:
        """Upload a file, and return what the contract says is to be raised."""
        try:
            session.deposits.upload(str(remote_file_name), file_path, overwrite=overwrite, step=self._position.step())
        except (FileNotFoundError, FileExistsError) as error:
            return error
        except Exception as error:
            session.ledger.drop("file", 1, f"File {key_text(remote_file_name)!r} is lost: {quoted(error)}")
        return None

    def download_file(
        self, remote_file_name: str, destination: str, overwrite: bool = False, progress_bar: bool = True
    ) -> None:
        """Write a stored file to `destination`, whole or not at all.

        What this process has uploaded is found at once. Works before `init`, after `post_close`, and on every rank.
        While the run is not settled it is looked for in the stores of all runs of the folder: those of the same name
        first, the newest first.

        Args:
            remote_file_name: name that the file was uploaded under.
            destination: path to write to; folders that are missing are made.
            overwrite: whether to replace a file there.
            progress_bar: whether to show a bar, if standard error is a terminal.

        Raises:
            FileNotFoundError: no store has the file.
            FileExistsError: the destination exists, and `overwrite` is false.
            OSError: the destination cannot be written, or what is stored is not what was uploaded (its digest differs).
        """
        self._active(0)
        if self._session is None:
            msg = f"there is no file {remote_file_name!r}: OTEL_SDK_DISABLED=true, nothing is stored"
            raise FileNotFoundError(msg)
        # Also of a session that is closed: what it stored is still there.
        deposits, name = self._session.deposits, str(remote_file_name)
        with download_progress(name, lambda: deposits.size(name), enabled=progress_bar) as progress:
            deposits.download(name, destination, overwrite=overwrite, progress=progress)

    def can_upload_files(self) -> bool:
        """Return True: files are stored, on every rank."""
        return True

    def init(self, state: Any, logger: Any) -> None:
        """Take note of the trainer's state; after `post_close`, open the logger anew (same name: next attempt)."""
        self._position.attach(state)
        run_name = getattr(state, "run_name", None)
        session = self._session
        if session is not None and not session.is_open and not session.is_forked:
            last = session.writer.identity
            name = self._arguments.run_name or session.launch.settings.run_name or run_name
            goes_on = last is not None and name in (None, last.run_name)
            self._reopen(self._again(last) if last is not None and goes_on else self._arguments)
        if (session := self._active(0)) is not None:
            session.guard(session.writer.begin, text(str(run_name)) if run_name else None)

    def _follow(self, event: str, state: Any = None) -> None:
        """Take note of an event, or of `CHECKPOINT_START`, which no event of a trainer tells."""
        if (session := self._active(0)) is not None:
            session.guard(self._advance, session, event, state)

    def _advance(self, session: Session, event: str, state: Any) -> None:
        if state is not None:
            self._position.attach(state)
        session.writer.vitals.activity.follow(event)
        session.writer.begin()
        if event in _BINDING_EVENTS:
            session.writer.bind()
        if event == "fit_start":
            session.fits += 1
        elif event == "fit_end":
            session.fits = 0
        if session.writer.sends:
            follow(event, session.writer.spans, self._position)

    def close(self, state: Any = None, logger: Any = None) -> None:
        """Finish everything: what waits is stored and sent, within OTEL_LOGGER_SHUTDOWN_TIMEOUT.

        A trainer passes its state: then others may still log, and the end is left to `post_close`. Closing again
        does nothing.
        """
        session = self._active(0)
        if session is None:
            return
        session.failure = session.failure or sys.exc_info()[1]
        if state is None:
            session.guard(session.finish)

    def post_close(self) -> None:
        """Finish everything, after all callbacks and loggers of the trainer are closed."""
        session = self._active(0)
        if session is None:
            return
        session.failure = session.failure or sys.exc_info()[1]
        session.note_failure_of_program()
        session.guard(session.finish)

    def state_dict(self) -> dict[str, Any]:
        """Return the run's identity and redacted hyperparameters, so that who resumes from it goes on with the run."""
        # A trainer asks all its callbacks as the first step of a checkpoint; who asks without a trainer makes none.
        if self._position.has_trainer:
            self._follow(CHECKPOINT_START)
        identity = self._session.writer.identity if self._session is not None else None
        if identity is None:
            return {}
        state = {"run_id": identity.run_id, "run_name": identity.run_name, "attempt": identity.attempt}
        hyperparameters = self._session.writer.hyperparameters() if self._session is not None else None
        return state if hyperparameters is None else {**state, "hyperparameters": hyperparameters.as_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the identity of a checkpoint: the same run if its name is ours, else it becomes the parent."""
        session = self._active(0)
        if not isinstance(state, Mapping):
            return
        run_id, run_name, attempt = (state.get(name) for name in ("run_id", "run_name", "attempt"))
        if session is not None and isinstance(run_id, str) and isinstance(run_name, str) and isinstance(attempt, int):
            # A number beyond all sense would be none that OTLP has.
            attempt = max(0, min(attempt, 2**31))
            hyperparameters = Remembered.from_state(state.get("hyperparameters"), attempt)
            session.guard(session.writer.resume, Checkpoint(run_id, run_name, attempt), hyperparameters)

    def _step(self, session: Session, step: Any) -> int | None:
        return self._position.step() if step is None else as_step(step, session.ledger)


def _length(values: Any) -> int:
    return len(values) if isinstance(values, Mapping) else 1
