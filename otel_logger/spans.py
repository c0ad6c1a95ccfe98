"""Spans: where training is, as short spans that are seen while it goes on.

A run is one short span at its start; each fit, epoch, batch and evaluation is a span that ends when it does. An epoch
begins a trace of its own, linked to the run's, so that no trace grows for days.
"""

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_logger.conventions import (
    SCOPE_NAME,
    SCOPE_VERSION,
    SPAN_BATCH,
    SPAN_EPOCH,
    SPAN_EVAL,
    SPAN_FIT,
    SPAN_PREDICT,
    SPAN_RUN,
)
from otel_logger.values import key_text, text
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.entropy import random_bytes

__all__ = ["Spans"]

_PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    SPAN_FIT: (),
    SPAN_EPOCH: (SPAN_FIT,),
    SPAN_BATCH: (SPAN_FIT, SPAN_EPOCH),
    SPAN_EVAL: (SPAN_FIT, SPAN_EPOCH, SPAN_BATCH),
    SPAN_PREDICT: (SPAN_FIT, SPAN_EPOCH, SPAN_BATCH),
}
"""What may stand around each span. Beginning one ends whatever else is open: Composer skips ends (an epoch that
`max_duration` cuts has none), and a span without an end is never seen."""


class _UrandomIds(IdGenerator):
    """Ids from the operating system: the SDK's own come from `random`, which trainers seed alike for each run."""

    def generate_trace_id(self) -> int:
        return int.from_bytes(random_bytes(16), "big") or 1

    def generate_span_id(self) -> int:
        return int.from_bytes(random_bytes(8), "big") or 1


class _Handover(SpanProcessor):
    def __init__(self, take: Callable[[ReadableSpan], None]) -> None:
        self._take = take

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._take(span)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class Spans:
    """The open spans of one process; `take` gets each that ends.

    `batches_per_second` bounds the spans of batches: in one that gets none, `current` is the span around it, and
    `is_thinned` is true. Thread-safe.
    """

    def __init__(
        self,
        take: Callable[[ReadableSpan], None],
        environ: Mapping[str, str],
        clock: Clock,
        batches_per_second: int,
        sampler: Sampler | None = None,
    ) -> None:
        # No limits here: the SDK's drop the oldest, so spans are cut when they are encoded. shutdown_on_exit would end
        # the provider before Composer closes its loggers.
        unlimited = SpanLimits.UNSET
        provider = TracerProvider(
            sampler=sampler or ParentBased(ALWAYS_ON),
            resource=Resource.get_empty(),
            shutdown_on_exit=False,
            id_generator=_UrandomIds(),
            span_limits=SpanLimits(
                max_attributes=unlimited,
                max_events=unlimited,
                max_links=unlimited,
                max_span_attributes=unlimited,
                max_event_attributes=unlimited,
                max_link_attributes=unlimited,
                max_attribute_length=unlimited,
                max_span_attribute_length=unlimited,
            ),
        )
        provider.add_span_processor(_Handover(take))
        self._tracer = provider.get_tracer(SCOPE_NAME, SCOPE_VERSION)
        self._clock = clock
        self._batch_interval = 1 / batches_per_second if batches_per_second else None
        self._last_batch = float("-inf")
        self._lock = threading.RLock()
        self._open: list[tuple[str, Span]] = []
        self._thinned = False
        self._user: ContextVar[Span | None] = ContextVar("otel_logger_span", default=None)
        self._root: Context | None = None
        self._remote = TraceContextTextMapPropagator().extract(
            {name.lower(): environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in environ}
        )

    @property
    def is_thinned(self) -> bool:
        """Whether what happens now is in a batch that has no span of its own, nor in a span of the caller's."""
        return self._thinned and self._user.get() is None

    def start_run(self, attributes: Mapping[str, Any]) -> None:
        """Emit the run's span: short, at the start, in the trace of TRACEPARENT where there is one."""
        now = self._clock.time_ns()
        span = self._tracer.start_span(SPAN_RUN, self._remote, attributes=dict(attributes), start_time=now)
        self._close(span)
        self._root = trace.set_span_in_context(span, Context())

    def begin(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Begin the span `name`, and end those that cannot stand around it."""
        with self._lock:
            while self._open and self._open[-1][0] not in _PARENTS[name]:
                self._end_last()
            self._thinned = name == SPAN_BATCH and not self._takes_batch()
            if self._thinned:
                return
            links = []
            context = trace.set_span_in_context(self._open[-1][1], Context()) if self._open else self._root
            if name == SPAN_EPOCH:
                around = trace.get_current_span(context) if context is not None else trace.INVALID_SPAN
                links = [Link(around.get_span_context())] if around.get_span_context().is_valid else []
                context = None
            self._open.append(
                (
                    name,
                    self._tracer.start_span(
                        name,
                        context if context is not None else Context(),
                        attributes=dict(attributes),
                        links=links,
                        start_time=self._clock.time_ns(),
                    ),
                )
            )

    def end(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """End the span `name` and whatever is open inside it; without such a span nothing happens."""
        with self._lock:
            if name == SPAN_BATCH and self._thinned:
                self._thinned = False
                return
            if not any(open_name == name for open_name, _ in self._open):
                return
            while self._open[-1][0] != name:
                self._end_last()
            self._open[-1][1].set_attributes(dict(attributes or {}))
            self._end_last()

    def end_all(self, error: str | None = None) -> None:
        """End every open span; with `error`, as failed for that reason."""
        with self._lock:
            self._thinned = False
            while self._open:
                if error is not None:
                    self._open[-1][1].set_status(Status(StatusCode.ERROR, error))
                self._end_last()

    def current(self) -> Span | None:
        """Return the span that what happens now belongs to: the caller's own, else the innermost of the trainer's."""
        if (span := self._user.get()) is not None and span.is_recording():
            return span
        with self._lock:
            return self._open[-1][1] if self._open else None

    def current_context(self) -> SpanContext | None:
        """Return the context of the current span, or of the run's, or None before the run's start."""
        if (span := self.current()) is not None:
            return span.get_span_context()
        return trace.get_current_span(self._root).get_span_context() if self._root is not None else None

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, Any], redact: Callable[[str], str] = lambda value: value
    ) -> Iterator[Span]:
        """Run a block in a span of the caller's own, child of the current one; texts of an exception go by `redact`."""
        around = self.current()
        context = trace.set_span_in_context(around) if around is not None else self._root
        now = self._clock.time_ns()
        span = self._tracer.start_span(name, context or Context(), attributes=dict(attributes), start_time=now)
        token = self._user.set(span)
        try:
            # use_span makes it OpenTelemetry's current span too, so that instrumented libraries nest in it.
            with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                yield span
        except Exception as error:
            _record(error, span, redact)
            raise
        finally:
            # A generator may be finished in another context than it began in, which keeps the variable's value.
            with suppress(ValueError):
                self._user.reset(token)
            self._close(span)

    def _takes_batch(self) -> bool:
        if self._batch_interval is None:
            return False
        now = self._clock.monotonic()
        if now - self._last_batch < self._batch_interval:
            return False
        self._last_batch = now
        return True

    def _end_last(self) -> None:
        self._close(self._open.pop()[1])

    def _close(self, span: Span) -> None:
        # The clock may have been set back since the start, and no backend takes a span that ends before it began.
        span.end(max(self._clock.time_ns(), getattr(span, "start_time", None) or 0))


def _record(error: Exception, span: Span, redact: Callable[[str], str]) -> None:
    # Not the SDK's record_exception: it calls the exception's `__str__` unguarded, whose own failure would then take
    # the exception's place, and it knows nothing of secrets.
    kind, message = type(error).__qualname__, redact(key_text(error))
    stack = redact(text("".join(traceback.format_exception(type(error), error, error.__traceback__))))
    span.add_event("exception", {"exception.type": kind, "exception.message": message, "exception.stacktrace": stack})
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {message}"))
