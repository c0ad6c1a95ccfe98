"""The writer: what one process writes in one attempt at a run, from its start to its end.

Identity and resource are settled while it goes on (docs/design.md, "Identity" and "Hyperparameters"); here is their
order, and nothing of trainers.
"""

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope as ProtoScope
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_logger import conventions as names
from otel_logger.devices import DeviceReads
from otel_logger.folders import STARTING, WriterFile, all_writers, create_runs_folder, run_folder
from otel_logger.hyperparameters import HyperparameterSet
from otel_logger.identity import Checkpoint, Identity, Known, settle
from otel_logger.launch import Launch
from otel_logger.recorder import Recorder
from otel_logger.redaction import Redactor
from otel_logger.resource import resource_attributes
from otel_logger.spans import Spans
from otel_logger.stamps import Stamper
from otel_logger.values import plain
from otel_logger_exporters.blob_files import make_private_folder
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.items import Event, Severity, encode_event, encode_resource, encode_spans
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.owner import Owner
from otel_logger_exporters.requests import MetricVocabulary
from otel_logger_exporters.routes import Destination, Route, Routes
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import user_agent

__all__ = ["Writer"]

LONGEST_UNBOUND = 600.0
"""Seconds after which the resource is bound although no metric and no `fit_start` has come: a set-up that hangs must
not keep its spans to itself."""

_SCOPE = InstrumentationScope(names.SCOPE_NAME, names.SCOPE_VERSION)


class Writer:
    """Records the metrics, spans, events and hyperparameters of one attempt at a run.

    A new writer has a folder but no identity; `settle` gives it one, `bind` fixes its resource (and settles first).
    Thread-safe, and nothing here raises after construction.
    """

    def __init__(
        self,
        launch: Launch,
        clock: Clock,
        ledger: Ledger,
        *,
        run_name: str | None,
        run_id: str | None,
        step: Callable[[], int | None],
    ) -> None:
        self.launch = launch
        self.ledger = ledger
        self.identity: Identity | None = None
        self.sends = launch.ranks.sends(launch.settings.ranks)
        self._clock = clock
        self._step = step
        self.on_settled: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._started = clock.monotonic()
        self._begun = False
        self._bound = False
        self._finished = False
        self._run_name = run_name
        self._run_id = run_id
        self._checkpoint: Checkpoint | None = None
        self._known: tuple[Known, ...] | None = None
        self._redactor = Redactor(launch.settings.redact, launch.settings.redact_allow)
        self._hyperparameters = HyperparameterSet(self._redactor)
        self._hyperparameter_calls = 0
        settings = launch.settings
        identifier = uuid.UUID(bytes=os.urandom(16))
        self._file = WriterFile(identifier.hex[:6], clock.time_ns(), rank=launch.ranks.rank)
        folder = self._create_folder(launch.directory, identifier.hex)
        self._owner = Owner(folder)
        self.outbox = Outbox(
            folder,
            launch.routes if self.sends else _only_logs(launch),
            writer=identifier.bytes,
            clock=clock,
            ledger=ledger,
            vocabulary=MetricVocabulary(
                name_of=names.metric_name,
                key_attribute=names.METRIC_KEY,
                step_metric=names.STEP if settings.step_series == "metric" else None,
                step_unit=names.STEP_UNIT,
                scope=ProtoScope(name=names.SCOPE_NAME, version=names.SCOPE_VERSION),
                nanoseconds=settings.time_resolution == "ns",
            ),
            buffered=settings.durability == "interval",
            interval=settings.flush_interval / 1000,
            user_agent=user_agent(names.SCOPE_VERSION),
            housekeeping=self._housekeeping,
        )
        journal = self.outbox.journal(Signal.METRICS)
        stamper = Stamper(clock.time_ns, nanoseconds=settings.time_resolution == "ns")
        self._recorder = (
            Recorder(journal, stamper, ledger, exclude=settings.metrics_exclude) if journal is not None else None
        )
        self._devices = DeviceReads(self._record_late, ledger)
        self.spans = Spans(self._take_span, launch.trace_context, clock, settings.batch_spans)
        self._publish_resource()
        self.outbox.start()

    @property
    def folder(self) -> Path:
        """The writer's folder; another one once identity is settled."""
        return self.outbox.folder

    @property
    def run_name(self) -> str | None:
        """The run's name as far as it is known."""
        return self.identity.run_name if self.identity is not None else self._run_name

    def now_ns(self) -> int:
        """Return the time, in nanoseconds since the epoch."""
        return self._clock.time_ns()

    @property
    def is_used(self) -> bool:
        """Whether anything was recorded or is known of the run."""
        return self._begun

    def begin(self, run_name: str | None = None) -> None:
        """Say that a run starts; a name given by the trainer counts where the user gave none."""
        with self._lock:
            if self._run_name is None and run_name:
                self._run_name = run_name
            if self._begun:
                return
            self._begun = True
            self._look_around()
            self._publish_resource()
            self.emit(names.EVENT_RUN_START)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take the identity that a loaded checkpoint carries into account; too late once identity is settled."""
        with self._lock:
            self._checkpoint = checkpoint
            if self.identity is not None and self.identity.run_id != checkpoint.run_id:
                self.ledger.warn(
                    "checkpoint",
                    f"The loaded checkpoint belongs to run {checkpoint.run_id!r}, but this one is already "
                    f"{self.identity.run_id!r}: pass run_id={checkpoint.run_id!r} to go on with that run.",
                )

    def settle(self) -> Identity:
        """Give the writer its identity and its folder in the run's; once settled it stays."""
        with self._lock:
            if self.identity is not None:
                return self.identity
            self._look_around()
            self.identity = settle(
                run_name=self._run_name or self.launch.script,
                run_id=self._run_id,
                writer=self._file.writer,
                ranks=self.launch.ranks,
                known=self._known or (),
                checkpoint=self._checkpoint,
                seed=self.launch.seed,
                draw=lambda: os.urandom(3).hex(),
            )
            self._file = replace(
                self._file,
                run_id=self.identity.run_id,
                run_name=self.identity.run_name,
                attempt=self.identity.attempt,
                parent_id=self.identity.parent_id,
            )
            self._move_in(self.identity)
            self._publish_resource()
            # Said again when it was said before: only now is it known whose start it is.
            self._begun = True
            self.emit(names.EVENT_RUN_START)
            self.on_settled()
            return self.identity

    def bind(self) -> None:
        """Fix the resource with the hyperparameters known so far, and let go what waited for it; settles first."""
        with self._lock:
            if self._bound:
                return
            self.settle()
            self._bound = True
            message = encode_resource(self._resource() | self._hyperparameters.attributes())
            for signal in (Signal.METRICS, Signal.TRACES):
                self.outbox.set_resource(signal, message, bound=True, ready=True)
            self.spans.start_run(self._run_attributes())
            if len(self._hyperparameters):
                self._emit_hyperparameters()

    def log_metrics(self, metrics: Mapping[Any, Any], step: Any) -> None:
        """Record one call; the first that carries a value binds the resource."""
        carried, leftover = (bool(metrics), None) if self._recorder is None else self._recorder.record(metrics, step)
        if carried and not self._bound:
            self.bind()
        if leftover is not None:
            if leftover.device:
                self._devices.add(leftover.device, leftover.time_ns, leftover.step)
            if leftover.others:
                self.emit(
                    names.EVENT_VALUES,
                    body=self._redactor.redact("", plain(leftover.others)),
                    step=leftover.step,
                    time_ns=leftover.time_ns,
                )

    def log_hyperparameters(self, hyperparameters: Mapping[Any, Any]) -> None:
        """Record hyperparameters: for the resource until that is bound, as an event from then on."""
        with self._lock:
            self.begin()
            added = self._hyperparameters.add(hyperparameters)
            if not added:
                return
            self._hyperparameter_calls += 1
            self.outbox.keep_hyperparameters(
                f"hyperparameters {self._hyperparameter_calls}", added, self._clock.time_ns()
            )
            if self._bound:
                self._emit_hyperparameters()

    def log_traces(self, traces: Mapping[Any, Any], step: int | None) -> None:
        """Record each trace as an event of the current span, as a log record, or as both."""
        self.begin()
        for key, value in traces.items():
            name = str(plain(key))
            self._log_trace(name, self._redactor.redact(name, plain(value)), step)

    def _log_trace(self, key: str, value: Any, step: int | None) -> None:
        mode = self.launch.settings.trace_events
        span = None if self.spans.is_thinned else self.spans.current()
        if span is not None and (not span.is_recording() or self.outbox.journal(Signal.TRACES) is None):
            span = None
        if span is not None and mode != "log":
            attributes: dict[str, Any] = {names.TRACE_VALUE: _attribute(value)}
            if step is not None:
                attributes[names.STEP] = step
            span.add_event(key or names.EVENT_TRACE, attributes, timestamp=self._clock.time_ns())
        if span is None or mode != "span":
            self.emit(names.EVENT_TRACE, {names.TRACE_NAME: key}, body=value, step=step)

    def emit(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
        step: int | None = None,
        time_ns: int | None = None,
        severity: Severity = Severity.INFO,
        span: SpanContext | None = None,
    ) -> None:
        """Record an event: its own attributes, and who, where and in which span it happened."""
        if self.outbox.journal(Signal.LOGS) is None:
            return
        event = Event(
            name=name,
            time_ns=self._clock.time_ns() if time_ns is None else time_ns,
            attributes=self._common_attributes(step) | dict(attributes or {}),
            body=body,
            severity=severity,
            span=span if span is not None else self.spans.current_context(),
        )
        try:
            frame = encode_event(event, _SCOPE)
        except Exception as error:
            # Bodies are plain data by now; what the encoder still refuses costs this record alone.
            self.ledger.drop("encoding", 1, f"A log record {name} is lost, it cannot be encoded: {error!r}")
            return
        self.outbox.put(Signal.LOGS, frame)

    def finish(self, outcome: str, reason: str | None) -> None:
        """Record the end of the run; once."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
            now = self._clock.time_ns()
            reason = self._redactor.redact("", reason)
            self.spans.end_all(reason if outcome == names.OUTCOME_FAILED else None)
            self._devices.poll()
            failed = outcome == names.OUTCOME_FAILED
            attributes: dict[str, Any] = {
                names.RUN_OUTCOME: outcome,
                names.RUN_DURATION: (now - self._file.started_ns) / 1e9,
            }
            if reason is not None:
                attributes[names.RUN_REASON] = reason
            self.emit(
                names.EVENT_RUN_END,
                attributes,
                step=self._step(),
                severity=Severity.ERROR if failed else Severity.INFO,
            )
            self._file = replace(self._file, ended_ns=now, outcome=outcome)
            self._write_file()

    def close(self, timeout: float) -> None:
        """Send what can be sent within `timeout` seconds, and give the folder up; an unused one is removed."""
        deadline = self._clock.monotonic() + timeout
        # Half: a device that hangs must leave time to send what is recorded.
        self._devices.finish(timeout / 2, self._clock)
        self.outbox.flush(max(0.0, deadline - self._clock.monotonic()))
        self.outbox.close(max(0.0, deadline - self._clock.monotonic()))
        self._owner.release()
        if not self._begun:
            _remove_unused(self.folder)

    def abandon(self) -> None:
        """Drop everything inherited in the child of a fork."""
        self.ledger.abandon()
        self._owner.abandon()
        self.outbox.abandon()

    def _housekeeping(self) -> None:
        self._devices.poll()
        if self._begun and not self._bound and self._clock.monotonic() - self._started >= LONGEST_UNBOUND:
            self.bind()

    def _record_late(self, metrics: Mapping[str, float | int], time_ns: int, step: int | None) -> None:
        if self._recorder is not None:
            self._recorder.record_late(metrics, time_ns, step)

    def _take_span(self, span: ReadableSpan) -> None:
        try:
            frame = encode_spans([span])
        except Exception as error:
            self.ledger.drop("encoding", 1, f"A span {span.name} is lost, it cannot be encoded: {error!r}")
            return
        self.outbox.put(Signal.TRACES, frame)

    def _emit_hyperparameters(self) -> None:
        self.emit(names.EVENT_HYPERPARAMETERS, body=self._hyperparameters.nested())

    def _common_attributes(self, step: int | None) -> dict[str, Any]:
        attributes: dict[str, Any] = self._run_attributes() | {
            names.LOG_RECORD_UID: uuid.UUID(bytes=os.urandom(16), version=4).hex,
            names.PROCESS_PID: os.getpid(),
        }
        if step is not None:
            attributes[names.STEP] = step
        return attributes

    def _run_attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {names.RANK: self.launch.ranks.rank}
        if self.identity is not None:
            attributes |= {
                names.RUN_ID: self.identity.run_id,
                names.RUN_NAME: self.identity.run_name,
                names.RUN_ATTEMPT: self.identity.attempt,
            }
        elif self._run_name is not None:
            attributes[names.RUN_NAME] = self._run_name
        return attributes

    def _resource(self) -> dict[str, Any]:
        attributes = resource_attributes(
            self.launch.user_resource,
            identity=self.identity,
            run_name=self._run_name,
            writer=self._file.writer,
            ranks=self.launch.ranks,
            host=self.launch.host,
            restart_count=self.launch.restart_count,
        )
        redacted: dict[str, Any] = self._redactor.redact("", plain(attributes))
        return redacted

    def _publish_resource(self) -> None:
        message = encode_resource(self._resource())
        for signal in Signal:
            # Log records carry no hyperparameters and need not wait for them.
            self.outbox.set_resource(signal, message, bound=False, ready=signal is Signal.LOGS)

    def _look_around(self) -> None:
        if self._known is None:
            found = all_writers(self.launch.directory)
            self._known = tuple(Known(writer, alive) for path, writer, alive in found if path != self.folder)

    def _create_folder(self, directory: Path, identifier: str) -> Path:
        folder = directory / STARTING / identifier
        try:
            create_runs_folder(directory)
            make_private_folder(folder)
            self._file.write(folder)
        except OSError as error:
            msg = (
                f"OTEL_LOGGER_DIR={str(directory)!r} cannot be written: {error}. Name a folder that can, on a disk of "
                "this machine where there is one."
            )
            raise ConfigurationError(msg) from error
        return folder

    def _move_in(self, identity: Identity) -> None:
        name = f"{identity.ranks.rank}-{identity.attempt}-{identity.writer}"
        try:
            self.outbox.relocate(run_folder(self.launch.directory, identity.run_id) / name)
        except OSError as error:
            self.ledger.warn("folder", f"The run's folder cannot be made, its data stays in {self.folder}: {error}")
        self._write_file()

    def _write_file(self) -> None:
        try:
            self._file.write(self.folder)
        except OSError as error:
            self.ledger.warn("folder", f"The run's folder does not take writer.json: {error}")


def _only_logs(launch: Launch) -> Routes:
    none = {signal: Route(signal, Destination.NONE) for signal in (Signal.METRICS, Signal.TRACES)}
    return replace(launch.routes, metrics=none[Signal.METRICS], traces=none[Signal.TRACES])


def _attribute(data: Any) -> Any:
    if data is None:
        return "None"
    if isinstance(data, (str, bool, int, float)):
        return data
    return str(data)


def _remove_unused(folder: Path) -> None:
    for path in sorted(folder.glob("**/*"), reverse=True):
        try:
            path.rmdir() if path.is_dir() else path.unlink()
        except OSError:
            return
    try:
        folder.rmdir()
        folder.parent.rmdir()
    except OSError:
        # `.starting` may hold other writers.
        pass
