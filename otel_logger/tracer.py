"""The tracer: OpenTelemetry's SDK as spans are made by it here, and how large each trace has grown."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import Link, Span, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_logger.conventions import SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION
from otel_logger_exporters.entropy import random_bytes

__all__ = ["Trace", "Tracer"]


class Trace:
    """What is known of a trace as long as a span may yet be begun in it: `size`, its bytes so far."""

    __slots__ = ("__weakref__", "size")

    def __init__(self) -> None:
        self.size = 0


class _UrandomIds(IdGenerator):
    """Ids from the operating system: the SDK's own come from `random`, which trainers seed alike for each run."""

    def generate_trace_id(self) -> int:
        return int.from_bytes(random_bytes(16), "big") or 1

    def generate_span_id(self) -> int:
        return int.from_bytes(random_bytes(8), "big") or 1


class _Handover(SpanProcessor):
    def __init__(self, take: Callable[[ReadableSpan], int | None], traces: Mapping[int, Trace]) -> None:
        self._take = take
        self._traces = traces

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        size = self._take(span)
        if size and (grown := self._traces.get(span.context.trace_id)) is not None:
            grown.size += size

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class Tracer:
    """Makes spans; `take` gets each that ends, and returns how many bytes it takes.

    `remote` is the span that TRACEPARENT names, or an invalid one. With a sampler that goes by parents, its being
    sampled or not holds for every trace: all of them would be one, were it not for their size.
    """

    def __init__(
        self, take: Callable[[ReadableSpan], int | None], environ: Mapping[str, str], sampler: Sampler | None
    ) -> None:
        self.remote = TraceContextTextMapPropagator().extract(
            {name.lower(): environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in environ}
        )
        around = trace.get_current_span(self.remote).get_span_context()
        sampler = sampler or ParentBased(ALWAYS_ON)
        if around.is_valid and isinstance(sampler, ParentBased):
            sampler = ALWAYS_ON if around.trace_flags.sampled else ALWAYS_OFF
        # No limits here: the SDK's drop the oldest, so spans are cut when they are encoded. shutdown_on_exit would end
        # the provider before Composer closes its loggers.
        unlimited = SpanLimits.UNSET
        provider = TracerProvider(
            sampler=sampler,
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
        self._traces: WeakValueDictionary[int, Trace] = WeakValueDictionary()
        provider.add_span_processor(_Handover(take, self._traces))
        self._tracer = provider.get_tracer(SCOPE_NAME, SCOPE_VERSION, SCHEMA_URL)

    def start(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: Context | None,
        time_ns: int,
        links: Sequence[SpanContext] = (),
    ) -> tuple[Span, Trace]:
        """Start a span below `parent`, or without one as the root of a trace of its own."""
        span = self._tracer.start_span(
            name,
            # Not None, which would mean OpenTelemetry's current span, whoever made it.
            parent if parent is not None else Context(),
            attributes=dict(attributes),
            links=[Link(context) for context in links if context.is_valid],
            start_time=time_ns,
        )
        return span, self._traces.setdefault(span.get_span_context().trace_id, Trace())
