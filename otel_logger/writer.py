"""The writer: what one process writes in one attempt at a run, from its start to its end.

Identity and resource are settled while it goes on (docs/design.md, "Identity" and "Hyperparameters"); here is their
order, and nothing of trainers.
"""

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from otel_logger import conventions as names
from otel_logger.devices import DeviceReads
from otel_logger.event_log import EventLog
from otel_logger.hyperparameters import HyperparameterSet, attribute
from otel_logger.identity import Checkpoint, Identity, Known, settle
from otel_logger.launch import Launch
from otel_logger.recorder import Recorder
from otel_logger.redaction import Redactor
from otel_logger.resource import resource_attributes
from otel_logger.self_metrics import measure_delivery
from otel_logger.spans import Spans
from otel_logger.stamps import Stamper
from otel_logger.values import key_text, plain, text
from otel_logger.vocabulary import metric_vocabulary
from otel_logger.writer_folder import WriterFolder
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.filesystems import file_system_of
from otel_logger_exporters.items import Severity, encode_resource, encode_spans
from otel_logger_exporters.ledger import Ledger, Stats
from otel_logger_exporters.measurements import Measurement, encode_measurements
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.owner import RENEWAL_INTERVAL
from otel_logger_exporters.routes import Destination, Route, Routes
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Space
from otel_logger_exporters.transports import user_agent
from otel_logger_exporters.upkeep import Upkeep

__all__ = ["Writer"]

_SCALARS = (str, bool, int, float)

_SCOPE = InstrumentationScope(name=names.SCOPE_NAME, version=names.SCOPE_VERSION)

MOST_TRACES = 1000
"""Traces that become events of one span; further ones become log records. A span is held in memory until it ends and is
sent in one piece, which gRPC servers refuse above 4 MiB."""

LONGEST_UNBOUND = 600.0
"""Seconds after which the resource is bound although no metric and no `fit_start` has come: a set-up that hangs must
not keep its spans to itself."""


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
        self.on_settled: list[Callable[[], None]] = []
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
        settings = launch.settings
        identifier = uuid.UUID(bytes=os.urandom(16))
        kept = tuple(signal.value for signal in Signal if signal not in launch.routes.endpoints)
        self._place = WriterFolder(launch.directory, identifier.hex, clock.time_ns(), launch.ranks.rank, kept, ledger)
        self.outbox = Outbox(
            self._place.path,
            launch.routes if self.sends else _only_logs(launch),
            writer=identifier.bytes,
            clock=clock,
            ledger=ledger,
            vocabulary=metric_vocabulary(settings),
            mapped=settings.durability == "call" and file_system_of(self._place.path).is_mappable,
            interval=settings.flush_interval / 1000,
            user_agent=user_agent(names.SCOPE_VERSION),
            housekeeping=self._housekeeping,
            restore=self._place.restore,
            space=Space(settings.journal_max_bytes, settings.min_free_bytes),
            is_first=launch.ranks.rank == 0,
            self_metrics=self._self_metrics,
        )
        journal = self.outbox.journal(Signal.METRICS)
        stamper = Stamper(clock.time_ns, nanoseconds=settings.time_resolution == "ns")
        self._recorder = (
            Recorder(journal, stamper, ledger, exclude=settings.metrics_exclude) if journal is not None else None
        )
        self._devices = DeviceReads(self._record_late, ledger)
        self._trace_counts: WeakKeyDictionary[Span, int] = WeakKeyDictionary()
        self.spans = Spans(self._take_span, launch.trace_context, clock, settings.batch_spans, launch.sampler)
        self._events = EventLog(
            self.outbox, clock, ledger, launch.limits, run=self._run_attributes, span=self.spans.current_context
        )
        self.emit = self._events.emit
        self._publish_resource()
        self.outbox.start()
        self._lease = Upkeep(self._place.renew, interval=RENEWAL_INTERVAL)
        self._lease.start()

    @property
    def folder(self) -> Path:
        """The writer's folder; another one once identity is settled."""
        return self._place.path

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
        # A row is recorded before the run of it begins, which may fail.
        return self._begun or any(self.ledger.stats(frozenset()).recorded.values())

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
            identity = settle(
                run_name=self._run_name or self.launch.script,
                run_id=self._run_id,
                writer=self._place.writer.writer,
                ranks=self.launch.ranks,
                known=self._known or (),
                checkpoint=self._checkpoint,
                seed=self.launch.seed,
                draw=lambda: os.urandom(3).hex(),
            )
            self._place.move_in(identity, self.outbox.relocate)
            # After the move: with an identity the workbench begins, and looks for staged files where the folder is.
            self.identity = identity
            self._publish_resource()
            # Said again when it was said before: only now is it known whose start it is.
            self._begun = True
            self.emit(names.EVENT_RUN_START)
            for action in self.on_settled:
                action()
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
                self.begin()
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
            self.outbox.keep_hyperparameters(self._hyperparameters.nested(), self._clock.time_ns())
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
        if span is not None and self._is_full(span):
            span = None
        if span is not None and mode != "log":
            attributes: dict[str, Any] = {names.TRACE_VALUE: value if isinstance(value, _SCALARS) else str(value)}
            if step is not None:
                attributes[names.STEP] = step
            span.add_event(key or names.EVENT_TRACE, attributes, timestamp=self._clock.time_ns())
            self._trace_counts[span] += 1
        if span is None or mode != "span":
            self.emit(names.EVENT_TRACE, {names.TRACE_NAME: key}, body=value, step=step)

    def _is_full(self, span: Span) -> bool:
        """Tell whether a further trace as an event of the span would be too much, or cut off by a limit."""
        limit = self.launch.limits.events
        # One is left for an exception; the caller's own events count too.
        if limit is not None and isinstance(span, ReadableSpan) and len(span.events) >= limit - 1:
            return True
        return self._trace_counts.setdefault(span, 0) >= MOST_TRACES

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[Span]:
        """Return a context manager that runs a block in a span of the caller's own."""
        plain_attributes = self._redactor.redact("", {text(key): plain(value) for key, value in attributes.items()})
        return self.spans.span(
            key_text(name), {key: attribute(value) for key, value in plain_attributes.items()}, self._redact_text
        )

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
                names.RUN_DURATION: (now - self._place.writer.started_ns) / 1e9,
            }
            if reason is not None:
                attributes[names.RUN_REASON] = reason
            self.emit(
                names.EVENT_RUN_END,
                attributes,
                step=self._step(),
                severity=Severity.ERROR if failed else Severity.INFO,
            )
            self._place.describe(ended_ns=now, outcome=outcome)

    def send(self, timeout: float) -> None:
        """Send what can be sent within `timeout` seconds, values that are still on a device included."""
        deadline = self._clock.monotonic() + timeout
        # Half: a device that hangs must leave time to send what is recorded.
        self._devices.finish(timeout / 2, self._clock)
        self.outbox.flush(max(0.0, deadline - self._clock.monotonic()))

    def close(self, timeout: float) -> None:
        """Stop sending, within `timeout` seconds, and give the folder up; an unused one is removed."""
        self.outbox.close(timeout)
        self._lease.stop()
        self._place.release(unused=not self.is_used)

    def abandon(self) -> None:
        """Drop everything inherited in the child of a fork."""
        self.ledger.abandon()
        self._place.abandon()
        self.outbox.abandon()

    def _housekeeping(self) -> None:
        self._devices.poll()
        if self.is_used and not self._bound and self._clock.monotonic() - self._started >= LONGEST_UNBOUND:
            self.bind()

    def _self_metrics(self, stats: Stats) -> bytes:
        return self._encode(measure_delivery(stats), self._clock.time_ns())

    def _encode(self, measurements: Iterable[Measurement], time_ns: int) -> bytes:
        return encode_measurements(
            measurements,
            time_ns=time_ns,
            start_ns=self._place.writer.started_ns,
            scope=_SCOPE,
            schema_url=names.SCHEMA_URL,
        )

    def _record_late(self, metrics: Mapping[str, float | int], time_ns: int, step: int | None) -> None:
        if self._recorder is not None:
            self._recorder.record_late(metrics, time_ns, step)

    def _redact_text(self, value: str) -> str:
        return str(self._redactor.redact("", value))

    def _take_span(self, span: ReadableSpan) -> None:
        try:
            frame = encode_spans([span], self.launch.limits)
        except Exception as error:
            self.ledger.drop("encoding", 1, f"A span {span.name} is lost, it cannot be encoded: {error!r}")
            return
        self.outbox.put(Signal.TRACES, frame, is_minor=span.name == names.SPAN_BATCH)

    def _emit_hyperparameters(self) -> None:
        self.emit(names.EVENT_HYPERPARAMETERS, body=self._hyperparameters.nested())

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
            writer=self._place.writer.writer,
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
            self._known = self._place.known()


def _only_logs(launch: Launch) -> Routes:
    none = {signal: Route(signal, Destination.NONE) for signal in (Signal.METRICS, Signal.TRACES)}
    return replace(launch.routes, metrics=none[Signal.METRICS], traces=none[Signal.TRACES])
