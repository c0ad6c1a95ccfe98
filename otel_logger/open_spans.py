"""Open spans: what has begun and not ended, in as many parts as it takes to keep each small."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, set_span_in_context

from otel_logger.conventions import EVENT_EXCEPTION, SPAN_PART
from otel_logger.exceptions import exception_attributes, exception_summary
from otel_logger.tracer import Trace, Tracer
from otel_logger_exporters.clock import Clock

__all__ = ["OpenSpan", "OpenSpans"]

MOST_EVENTS: Final = 1000
MOST_EVENT_BYTES: Final = 1_000_000
"""Events of one span, and their bytes: beyond, it goes on in a further one. A span is in memory until it ends, and is
sent in one piece, which gRPC servers refuse above 4 MiB."""

LARGEST_TRACE: Final = 4_000_000
"""Bytes of a trace after which no span is begun in it: Tempo refuses more than 5 MB."""


class OpenSpan:
    """A span from its beginning to its end; what it has come to is its latest part.

    `inside` is what stands around it. Without a `span` it is only a place that others stand in: a batch that has none.
    """

    __slots__ = (
        "attributes",
        "events",
        "inside",
        "is_open",
        "is_short",
        "latest_ns",
        "name",
        "own",
        "parent",
        "part",
        "size",
        "span",
        "start_ns",
        "trace",
    )

    def __init__(self, name: str, inside: "OpenSpan | None" = None) -> None:
        self.name = name
        self.inside = inside
        self.is_open = True
        self.span: Span | None = None
        self.own: Span | None = None
        """The first part of a span that the caller holds: it lasts to the end, beside the further ones."""
        self.is_short = False
        """Whether each part ends as it begins."""
        self.attributes: Mapping[str, Any] = {}
        self.parent: Context | None = None
        self.trace: Trace | None = None
        self.part = 1
        self.events = 0
        self.size = 0
        self.start_ns = 0
        self.latest_ns = 0

    @property
    def visible(self) -> "OpenSpan | None":
        """The innermost span here, this one or what it stands in."""
        one: OpenSpan | None = self
        while one is not None and one.span is None:
            one = one.inside
        return one


class _Due(threading.local):
    """What a thread has to end for good: its own, for who closes the logger must not leave that to another one."""

    def __init__(self) -> None:
        self.spans: deque[tuple[Span, int, Trace, int]] = deque()


class OpenSpans:
    """Starts, continues and ends spans; for callers that hold a lock, apart from `hand_over`.

    `most_events` is the greatest number of events that a span may have; texts of exceptions go by `redact`.
    """

    def __init__(self, tracer: Tracer, clock: Clock, most_events: int | None, redact: Callable[[str], str]) -> None:
        self._tracer = tracer
        self._clock = clock
        self._redact = redact
        # One is left for an exception.
        self._limit = most_events - 1 if most_events is not None else None
        self._due = _Due()
        self._recorded: deque[tuple[int, str]] = deque(maxlen=16)

    def start_run(self, one: OpenSpan) -> None:
        """Start and end the run's span, in the trace of TRACEPARENT where there is one."""
        one.is_short, one.parent = True, self._tracer.remote
        self._start(one, self._clock.time_ns())

    def start(self, one: OpenSpan, around: OpenSpan | None) -> None:
        """Start a span as the child of another, which first goes on in a new trace if its own is full."""
        now = self._clock.time_ns()
        if around is not None and around.span is not None:
            if around.trace is not None and around.trace.size >= LARGEST_TRACE:
                self._continue(around, now)
            one.parent = set_span_in_context(around.span, Context())
            now = max(now, around.start_ns)
        self._start(one, now)

    def start_root(self, one: OpenSpan, links: Sequence[SpanContext]) -> None:
        """Start a span that is the root of a new trace."""
        self._start(one, self._clock.time_ns(), links)

    def start_below(self, one: OpenSpan, around: SpanContext | None) -> None:
        """Start a span below one of which only the context is left."""
        if around is not None and around.is_valid:
            one.parent = set_span_in_context(NonRecordingSpan(around), Context())
        self._start(one, self._clock.time_ns())

    def add_event(self, one: OpenSpan, name: str, attributes: Mapping[str, Any], time_ns: int, size: int) -> bool:
        """Put an event of about `size` bytes on a span, or on a further part of it; return whether one takes it."""
        if one.span is None or not one.span.is_recording() or (self._limit is not None and self._limit < 1):
            return False
        if self._is_full(one, size):
            self._continue(one, time_ns)
        if one.trace is None or not one.span.is_recording():
            # Another trace may not be sampled where this one was.
            return False
        at = max(time_ns, one.start_ns)
        one.span.add_event(name, attributes, timestamp=at)
        one.events += 1
        one.size += size
        one.trace.size += size
        one.latest_ns = max(one.latest_ns, at)
        return True

    def fail(self, one: OpenSpan, reason: str) -> None:
        """Mark a span as failed for a reason."""
        for span in (one.span, one.own if one.own is not one.span else None):
            if span is not None and span.is_recording():
                span.set_status(Status(StatusCode.ERROR, reason))

    def record(self, one: OpenSpan, error: BaseException) -> str:
        """Make an exception an event of a span, unless it is one already: it goes on through the spans around.

        Returns it in one line, as the reason of their failure.
        """
        # Neither kept nor marked: it would keep the frames that it came through, and what is in them on the GPU.
        reason = exception_summary(error, self._redact)
        mark = (id(error), reason)
        span = one.own or one.span
        if span is not None and span.is_recording() and mark not in self._recorded:
            self._recorded.append(mark)
            at = one.latest_ns = max(self._clock.time_ns(), one.latest_ns)
            span.add_event(EVENT_EXCEPTION, exception_attributes(error, self._redact), timestamp=at)
        return reason

    def end(self, one: OpenSpan) -> None:
        """End a span; it is over for good with the next `hand_over`."""
        one.is_open = False
        if one.span is None or one.trace is None:
            return
        # The clock may have been set back since the start, and no backend takes a span that ends before it began.
        one.latest_ns = max(self._clock.time_ns(), one.latest_ns)
        if one.inside is not None:
            one.inside.latest_ns = max(one.inside.latest_ns, one.latest_ns)
        self._due.spans.append((one.span, one.latest_ns, one.trace, one.size))
        if one.own is not None and one.own is not one.span:
            self._due.spans.append((one.own, one.latest_ns, one.trace, 0))

    def hand_over(self) -> None:
        """End for good what is due, without the lock: a span of 1,000 events takes milliseconds to encode."""
        while due := self._due.spans:
            span, end_ns, grown, counted = due.popleft()
            # The caller may have ended their own.
            if span.is_recording():
                span.end(end_ns)
                # Its events were counted as they came.
                grown.size -= counted

    def abandon(self) -> None:
        """Forget what is due, in the child of a fork."""
        self._due = _Due()

    def _start(self, one: OpenSpan, now: int, links: Sequence[SpanContext] = ()) -> None:
        one.span, one.trace = self._tracer.start(one.name, one.attributes, one.parent, now, links)
        one.start_ns = one.latest_ns = now
        if one.is_short:
            self._due.spans.append((one.span, max(now, self._clock.time_ns()), one.trace, 0))

    def _is_full(self, one: OpenSpan, size: int) -> bool:
        # The caller's own events count too, where there is a limit; to look at them takes a copy.
        if self._limit is not None and isinstance(one.span, ReadableSpan) and len(one.span.events) >= self._limit:
            return True
        return one.events >= MOST_EVENTS or (one.events > 0 and one.size + size > MOST_EVENT_BYTES)

    def _continue(self, one: OpenSpan, now: int) -> None:
        """Go on in a further part, linked to the last: below the same parent, or in a new trace where this is full."""
        if one.span is None or one.trace is None:
            return
        last, now = one.span.get_span_context(), max(now, one.latest_ns)
        if one.span is not one.own and not one.is_short:
            self._due.spans.append((one.span, now, one.trace, one.size))
        if one.trace.size >= LARGEST_TRACE:
            one.parent = None
        one.part += 1
        one.attributes = {**one.attributes, SPAN_PART: one.part}
        one.events = one.size = 0
        self._start(one, now, [last])
