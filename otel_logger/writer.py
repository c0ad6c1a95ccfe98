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

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from otel_logger import conventions as names
from otel_logger.activity import PHASES
from otel_logger.devices import DeviceReads
from otel_logger.event_log import EventLog
from otel_logger.exceptions import exception_attributes
from otel_logger.folders import run_folder
from otel_logger.hyperparameter_log import HyperparameterLog
from otel_logger.hyperparameters import Remembered, attribute
from otel_logger.identity import Checkpoint, Identity
from otel_logger.latest import LatestValues
from otel_logger.launch import Launch
from otel_logger.recorder import Recorder
from otel_logger.redaction import Redactor
from otel_logger.resource import resource_attributes
from otel_logger.settling import Settling
from otel_logger.spans import Block, Spans
from otel_logger.stamps import Stamper
from otel_logger.trace_log import TraceLog
from otel_logger.trainer import Position
from otel_logger.values import key_text, plain, text
from otel_logger.vitals import Vitals
from otel_logger.vocabulary import metric_vocabulary
from otel_logger.writer_folder import WriterFolder
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.filesystems import file_system_of
from otel_logger_exporters.items import Severity, encode_resource, encode_spans
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Measurement
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.owner import RENEWAL_INTERVAL
from otel_logger_exporters.routes import Destination, Route, Routes
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Space
from otel_logger_exporters.transports import user_agent
from otel_logger_exporters.upkeep import Upkeep

__all__ = ["Writer"]

_MINOR_SPANS = frozenset({names.SPAN_BATCH, names.SPAN_DATA, names.SPAN_FORWARD, names.SPAN_BACKWARD})
"""The spans of each batch: the first to be given up as the bound on unsent data comes near."""

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
        position: Position,
        latest: LatestValues | None = None,
    ) -> None:
        self.launch = launch
        self.ledger = ledger
        self.identity: Identity | None = None
        self.sends = launch.ranks.sends(launch.settings.ranks)
        self._clock = clock
        self._position = position
        self.on_settled: list[Callable[[], None]] = []
        self.on_tended: list[Callable[[], object]] = []
        self._lock = threading.RLock()
        self._started = clock.monotonic()
        self._begun = False
        self._bound = False
        self._finished = False
        self._run_name = run_name
        self._run_id = run_id
        self._checkpoint: Checkpoint | None = None
        self.redactor = Redactor(launch.settings.redact, launch.settings.redact_allow)
        self._hyperparameters = HyperparameterLog(
            self.redactor,
            ledger,
            keep=lambda nested: self.outbox.keep_hyperparameters(nested, clock.time_ns()),
            emit=lambda attributes, body: self.emit(names.EVENT_HYPERPARAMETERS, attributes, body=body),
        )
        settings = launch.settings
        identifier = uuid.UUID(bytes=os.urandom(16))
        kept = tuple(s.value for s in Signal if launch.routes.of(s).destination is not Destination.SEND)
        mark = str(launch.mark) if launch.mark is not None else None
        self._place = WriterFolder(
            launch.directory, identifier.hex, clock.time_ns(), launch.ranks.rank, kept, ledger, mark
        )
        self._settling = Settling(launch, self._place, ledger)
        self.outbox = Outbox(
            self._place.path,
            launch.routes if self.sends else _without_traces(launch.routes),
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
            self_metrics=lambda stats, is_last: self.vitals.encode_delivery(stats, is_last),
        )
        journal = self.outbox.journal(Signal.METRICS)
        stamper = Stamper(clock.time_ns, nanoseconds=settings.time_resolution == "ns")
        self._recorder = (
            Recorder(journal, stamper, ledger, exclude=settings.metrics_exclude, latest=latest)
            if journal is not None and self.sends
            else None
        )
        self.vitals = Vitals(
            self.outbox,
            self._recorder,
            position,
            lambda: [self._hyperparameters.measure()],
            clock,
            ledger,
            settings,
        )
        self._is_logging = False
        self._devices = DeviceReads(self._record_late, ledger)
        self._latest = latest
        self._bound_resource: dict[str, Any] = {}
        self.spans = Spans(
            self._take_span,
            launch.trace_context,
            clock,
            settings.batch_spans,
            # Where no spans are recorded, what `log_traces` gets must not be put on any.
            launch.sampler if self.outbox.journal(Signal.TRACES) is not None else ALWAYS_OFF,
            most_events=launch.limits.events,
            redact=self.redactor.redact_text,
        )
        self._events = EventLog(
            self.outbox,
            clock,
            ledger,
            launch.limits,
            run=self._run_attributes,
            # Nothing refers to a span where none are recorded.
            span=self.spans.current_context if self.outbox.journal(Signal.TRACES) is not None else lambda: None,
        )
        self.emit = self._events.emit
        self._traces = TraceLog(self.spans, self.emit, self.redactor, clock, settings.trace_events)
        self._publish_resource()
        self.outbox.start()
        self._lease = Upkeep(self._place.renew, interval=RENEWAL_INTERVAL)
        self._lease.start()
        self.vitals.open()

    @property
    def folder(self) -> Path:
        """The writer's folder; another one once identity is settled."""
        return self._place.path

    @property
    def started_ns(self) -> int:
        """When the writer began, in nanoseconds since the epoch."""
        return self._place.writer.started_ns

    @property
    def run_name(self) -> str | None:
        """The run's name as far as it is known."""
        return self.identity.run_name if self.identity is not None else self._run_name

    def now_ns(self) -> int:
        """Return the time, in nanoseconds since the epoch."""
        return self._clock.time_ns()

    def step(self) -> int | None:
        """Return the trainer's step, or without a trainer the last that was logged; None for none."""
        return self.vitals.last_step()[0]

    @property
    def is_used(self) -> bool:
        """Whether anything was recorded or is known of the run."""
        # A row is recorded before the run of it begins, which may fail.
        return self._begun or any(self.ledger.stats(frozenset()).recorded.values())

    def begin(self, run_name: str | None = None) -> None:
        """Say that a run starts; a name given by the trainer counts where the user gave none."""
        if self._begun and run_name is None:
            return
        with self._lock:
            if self._run_name is None and run_name:
                self._run_name = run_name
            if self._begun:
                return
            self._begun = True
            self._publish_resource()
            self.emit(names.EVENT_RUN_START)

    def look_ahead(self) -> None:
        """Begin to look through the folder of runs in the background, for the call that settles which run this is."""
        if self._run_id is None:
            self._settling.look_ahead()

    def resume(self, checkpoint: Checkpoint, hyperparameters: Remembered | None = None) -> None:
        """Take the identity that a loaded checkpoint carries into account; too late once identity is settled."""
        with self._lock:
            self._checkpoint = checkpoint
            self._hyperparameters.resume(checkpoint.run_id, hyperparameters)
            # What a fork begins from is not what it is.
            expected = self.launch.settings.parent_run_id
            if self.identity is not None and checkpoint.run_id not in (self.identity.run_id, expected):
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
            identity = self._settling.settle(
                run_name=self._run_name,
                run_id=self._run_id,
                checkpoint=self._checkpoint,
                relocate=self.outbox.relocate,
            )
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
            identity = self.settle()
            folder = run_folder(self.launch.directory, identity.run_id)
            hyperparameters = self._hyperparameters.bind(identity, folder) if self.sends else {}
            self._bound = True
            for signal in (Signal.METRICS, Signal.TRACES):
                resource = self._resource(signal) | hyperparameters
                self.outbox.set_resource(signal, encode_resource(resource), bound=True, ready=True)
                if signal is Signal.METRICS:
                    self._bound_resource = resource
            self.spans.start_run(self._run_attributes())
            self._hyperparameters.tell()
            self.vitals.start(identity)

    def log_metrics(self, metrics: Mapping[Any, Any], step: Any) -> None:
        """Record one call; the first that carries a value binds the resource."""
        if self._recorder is None:
            carried, leftover = bool(metrics), None
            if type(step) is int:
                self.vitals.note_step(step)
        else:
            carried, leftover = self._recorder.record(metrics, step)
        if carried and not self._is_logging:
            self._is_logging = True
            self.vitals.note_values()
            self.bind()
        if leftover is not None:
            if leftover.device:
                self._devices.add(leftover.device, leftover.time_ns, leftover.step)
            if leftover.others:
                self.begin()
                self.emit(
                    names.EVENT_VALUES,
                    body=self.redactor.redact("", plain(leftover.others)),
                    step=leftover.step,
                    time_ns=leftover.time_ns,
                )

    def log_hyperparameters(self, hyperparameters: Any) -> None:
        """Record hyperparameters: for the resource until that is bound, as an event and as points from then on."""
        with self._lock:
            self.begin()
            if self._hyperparameters.add(hyperparameters) and self._bound:
                self._hyperparameters.tell()
                self.vitals.renew(self._hyperparameters.take_ended())

    def hyperparameters(self) -> Remembered | None:
        """Return what a later attempt is to know of the hyperparameters; None when there are none, or no attempt."""
        return self._hyperparameters.remembered(self.identity.attempt) if self.identity is not None else None

    def log_traces(self, traces: Mapping[Any, Any], step: int | None) -> None:
        """Record each trace as an event of the current span, as a log record, or as both."""
        self.begin()
        self._traces.log(traces, step)

    def block(self, name: str, attributes: Mapping[str, Any]) -> Block:
        """Begin a span of the caller's own."""
        self.begin()
        plain_attributes = self.redactor.redact("", {text(key): plain(value) for key, value in attributes.items()})
        block = self.spans.block(key_text(name), {key: attribute(value) for key, value in plain_attributes.items()})
        if (phase := attributes.get(names.PHASE)) in PHASES:
            block.at_end = self.vitals.activity.enter(phase)
        return block

    def finish(self, outcome: str, reason: str | None, error: BaseException | None = None) -> None:
        """Record the end of the run; once. `error` is what made it fail."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
            now = self._clock.time_ns()
            reason = None if reason is None else self.redactor.redact_text(reason)
            failed = outcome == names.OUTCOME_FAILED
            # Nor has a fit come to its end that left no exception behind; but who was told to stop did not fail.
            is_cut = failed or (outcome == names.OUTCOME_INTERRUPTED and error is None)
            self.spans.finish(reason if is_cut else None, error if failed else None)
            self._devices.poll()
            self.vitals.activity.end(outcome)
            attributes: dict[str, Any] = {
                names.RUN_OUTCOME: outcome,
                names.RUN_DURATION: (now - self._place.writer.started_ns) / 1e9,
            }
            if reason is not None:
                attributes[names.RUN_REASON] = reason
            if failed and error is not None:
                attributes |= exception_attributes(error, self.redactor.redact_text)
            self.emit(
                names.EVENT_RUN_END,
                attributes,
                step=self.step(),
                severity=Severity.ERROR if failed else Severity.INFO,
            )
            self._place.describe(ended_ns=now, outcome=outcome)

    def send(self, timeout: float) -> None:
        """Send what can be sent within `timeout` seconds, values that are still on a device included."""
        deadline = self._clock.monotonic() + timeout
        # Half: a device that hangs must leave time to send what is recorded.
        self._devices.finish(timeout / 2, self._clock)
        if self._finished:
            self.vitals.end()
        self.outbox.flush(max(0.0, deadline - self._clock.monotonic()))

    def close(self, timeout: float) -> None:
        """Stop sending, within `timeout` seconds, and give the folder up; an unused one is removed."""
        self.vitals.stop()
        self.outbox.close(timeout)
        self._hyperparameters.write(self._place.path)
        self._lease.stop()
        self._place.release(unused=not self.is_used)

    def abandon(self) -> None:
        """Drop everything inherited in the child of a fork."""
        self.ledger.abandon()
        self.spans.abandon()
        self.vitals.abandon()
        self._hyperparameters.abandon()
        self._place.abandon()
        self.outbox.abandon()

    def _housekeeping(self) -> None:
        for action in self.on_tended:
            action()
        self._devices.poll()
        self._hyperparameters.write(self._place.path)
        if self.is_used and not self._bound and self._clock.monotonic() - self._started >= LONGEST_UNBOUND:
            self.bind()

    def measure(self) -> list[Measurement]:
        """Return what a scrape gets: latest values, liveness, what became of the data; nothing of an unbound run."""
        latest = self._latest.measure() if self._latest is not None and self._bound else []
        return [*latest, *self.vitals.measure()]

    def resource(self) -> dict[str, Any]:
        """Return the resource, empty until it is bound."""
        return self._bound_resource

    def _record_late(self, metrics: Mapping[str, float | int], time_ns: int, step: int | None) -> None:
        if self._recorder is not None:
            self._recorder.record_late(metrics, time_ns, step)

    def _take_span(self, span: ReadableSpan) -> int:
        try:
            frame = encode_spans([span], self.launch.limits)
        except Exception as error:
            self.ledger.drop("encoding", 1, f"A span {span.name} is lost, it cannot be encoded: {error!r}")
            return 0
        self.outbox.put(Signal.TRACES, frame, is_minor=span.name in _MINOR_SPANS)
        return len(frame.body)

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

    def _resource(self, signal: Signal) -> dict[str, Any]:
        return resource_attributes(
            self._redacted(self.launch.user_resource),
            identity=self.identity,
            run_name=self._run_name,
            writer=self._place.writer.writer,
            ranks=self.launch.ranks,
            host=self.redactor.redact("host.name", self.launch.host),
            restart_count=self.launch.restarts.count,
            found={
                **self._redacted(self.launch.found),
                **({names.PROCESS_PID: os.getpid()} if signal is Signal.TRACES else {}),
            },
            with_process=signal is not Signal.METRICS,
        )

    def _redacted(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes of others as plain data without secrets.

        Never our own: a pattern of the user's may match `service.instance.id`, which has to tell writers apart.
        """
        redacted: dict[str, Any] = self.redactor.redact("", {key: plain(value) for key, value in attributes.items()})
        return redacted

    def _publish_resource(self) -> None:
        for signal in Signal:
            message = encode_resource(self._resource(signal))
            # Log records carry no hyperparameters and need not wait for them.
            self.outbox.set_resource(signal, message, bound=False, ready=signal is Signal.LOGS)


def _without_traces(routes: Routes) -> Routes:
    return replace(routes, traces=Route(Signal.TRACES, Destination.NONE))
