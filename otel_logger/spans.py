"""Spans: where training is, as short spans that are seen while it goes on.

A run is one short span at its start; each fit, epoch, batch and evaluation is a span that ends when it does. An epoch
begins a trace of its own, and so does what comes after 4 MB of one, so that no trace grows for days.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import Span, SpanContext, use_span

from otel_logger.conventions import (
    SPAN_BACKWARD,
    SPAN_BATCH,
    SPAN_CHECKPOINT,
    SPAN_DATA,
    SPAN_EPOCH,
    SPAN_EVAL,
    SPAN_FIT,
    SPAN_FORWARD,
    SPAN_PREDICT,
    SPAN_RUN,
)
from otel_logger.open_spans import OpenSpan, OpenSpans
from otel_logger.tracer import Tracer
from otel_logger_exporters.clock import Clock

__all__ = ["Block", "Spans"]

_IN_FIT: Final = (SPAN_FIT, SPAN_EPOCH)

_PARENTS: Final[Mapping[str, tuple[str, ...]]] = {
    SPAN_FIT: (),
    SPAN_EPOCH: (SPAN_FIT,),
    SPAN_DATA: _IN_FIT,
    SPAN_BATCH: _IN_FIT,
    SPAN_FORWARD: (SPAN_BATCH,),
    SPAN_BACKWARD: (SPAN_BATCH,),
    SPAN_EVAL: (*_IN_FIT, SPAN_BATCH),
    SPAN_PREDICT: (*_IN_FIT, SPAN_BATCH),
    SPAN_CHECKPOINT: (*_IN_FIT, SPAN_BATCH, SPAN_EVAL, SPAN_PREDICT),
}
"""What may stand around each span. Beginning one ends whatever else is open: Composer skips ends (an epoch that
`max_duration` cuts has none), and a span without an end is never seen."""

_PARTS_OF_BATCH: Final = frozenset({SPAN_FORWARD, SPAN_BACKWARD})
"""These are only made in a batch that has a span."""

_UNFINISHED: Final = "its end was not reached"


class _Place(OpenSpan):
    """A span of the trainer's or a block of the caller's, which knows what was current as it began."""

    __slots__ = ("top", "user")

    def __init__(
        self, name: str, inside: OpenSpan | None = None, top: "_Place | None" = None, user: "_Place | None" = None
    ) -> None:
        super().__init__(name, inside)
        self.top = top
        """The trainer's innermost span."""
        self.user = user
        """The innermost block of this thread or task."""


class Spans:
    """The open spans of one process; `take` gets each that ends, and returns its bytes.

    `batches_per_second` bounds the spans of batches, with those of their data loading and of what is inside them; a
    batch that gets none is thinned. `most_events` is the greatest number of events that a span may have; texts of
    exceptions go by `redact`. Thread-safe.
    """

    def __init__(
        self,
        take: Callable[[ReadableSpan], int | None],
        environ: Mapping[str, str],
        clock: Clock,
        batches_per_second: int,
        sampler: Sampler | None = None,
        *,
        most_events: int | None = None,
        redact: Callable[[str], str] = lambda value: value,
    ) -> None:
        self._open = OpenSpans(Tracer(take, environ, sampler), clock, most_events, redact)
        self._clock = clock
        self._batch_interval = 1 / batches_per_second if batches_per_second else None
        self._last_batch = float("-inf")
        self._is_batch_granted: bool | None = None
        self._has_batch = False
        self._lock = threading.RLock()
        self._stack: list[_Place] = []
        self._blocks: dict[_Place, None] = {}
        self._user: ContextVar[_Place | None] = ContextVar("otel_logger_span", default=None)
        self._run: OpenSpan | None = None
        self._last_epoch: OpenSpan | None = None

    @property
    def is_thinned(self) -> bool:
        """Whether what happens now is in a batch that has no span of its own, nor in a span of the caller's."""
        here = self._here()
        return here is not None and here.span is None

    @property
    def innermost(self) -> str | None:
        """The name of the innermost of the trainer's spans, thinned ones too."""
        # One look: another thread may change it.
        top = self._stack[-1:]
        return top[0].name if top else None

    def start_run(self, attributes: Mapping[str, Any]) -> None:
        """Emit the run's span: short, at the start, in the trace of TRACEPARENT where there is one."""
        with self._lock:
            self._run = OpenSpan(SPAN_RUN)
            self._run.attributes = dict(attributes)
            self._open.start_run(self._run)
        self._open.hand_over()

    def begin(self, name: str, attributes: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> None:
        """Begin the span `name`, and end those that cannot stand around it; parts of a batch only where it has one."""
        if name in _PARTS_OF_BATCH and not self._has_batch:
            return
        with self._lock:
            while self._stack and self._stack[-1].name not in _PARENTS[name]:
                # A fit is begun in another one where an exception has ended that, of which a trainer tells nothing.
                self._pop(_UNFINISHED if name == SPAN_FIT else None)
            user, top = self._block(), self._stack[-1] if self._stack else None
            one = _Place(name, user if user is not None and user.top is top else top, top, user)
            if self._grants(name):
                one.attributes = attributes() if callable(attributes) else attributes
                self._start(one)
                self._has_batch = self._has_batch or name == SPAN_BATCH
            self._stack.append(one)
        self._open.hand_over()

    def end(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """End the span `name` and whatever is open inside it; without such a span nothing happens."""
        if name in _PARTS_OF_BATCH and not self._has_batch:
            return
        with self._lock:
            if not any(one.name == name for one in self._stack):
                return
            # The loading of a thinned batch goes over into that: what happens between them is thinned too.
            if name == SPAN_DATA and self._stack[-1].span is None:
                return
            while self._stack[-1].name != name:
                self._pop()
            if attributes and (span := self._stack[-1].span) is not None:
                span.set_attributes(dict(attributes))
            self._pop()
        self._open.hand_over()

    def end_all(self, reason: str | None = None, error: BaseException | None = None) -> None:
        """End the trainer's spans; with `reason` as failed for it, with `error` as an event of the innermost."""
        with self._lock:
            if self._stack and error is not None and (innermost := self._stack[-1].visible) is not None:
                self._open.record(innermost, error)
            while self._stack:
                self._pop(reason)
        self._open.hand_over()

    def finish(self, reason: str | None = None, error: BaseException | None = None) -> None:
        """End all spans, the caller's blocks too: those of threads that go on would never be seen."""
        self.end_all(reason, error)
        with self._lock:
            for block in reversed(list(self._blocks)):
                self._open.end(block)
            self._blocks.clear()
        self._open.hand_over()

    def abandon(self) -> None:
        """Forget every open span, in the child of a fork, whose parent goes on with them."""
        # Another thread of the parent's may have held the lock.
        self._lock = threading.RLock()
        for one in (*self._stack, *self._blocks):
            one.is_open = False
        self._stack, self._blocks, self._run, self._has_batch = [], {}, None, False
        self._open.abandon()

    def current(self) -> Span | None:
        """Return the span that what happens now belongs to: the innermost of the caller's blocks and the trainer's."""
        with self._lock:
            here = self._here()
            visible = here.visible if here is not None else None
            return visible.span if visible is not None else None

    def current_context(self) -> SpanContext | None:
        """Return the context of the current span, or of the run's, or None before the run's start."""
        with self._lock:
            span = self.current() or (self._run.span if self._run is not None else None)
            return span.get_span_context() if span is not None else None

    def add_event(self, name: str, attributes: Mapping[str, Any], time_ns: int, size: int) -> bool:
        """Put an event of about `size` bytes on the current span; return whether there is one that takes it.

        A span that has all it can hold ends, and goes on in another one of its name and parent, linked to it. A block
        of the caller's lasts; what it has too much is on further spans of its name.
        """
        with self._lock:
            here = self._here()
            is_taken = here is not None and self._open.add_event(here, name, attributes, time_ns, size)
        self._open.hand_over()
        return is_taken

    def block(self, name: str, attributes: Mapping[str, Any]) -> "Block":
        """Begin a span of the caller's own, child of the current one, until its `end`."""
        with self._lock:
            one = _Place(name, self._here(), self._stack[-1] if self._stack else None, self._block())
            one.attributes = attributes
            self._start(one)
            block = self._hold(one)
        self._open.hand_over()
        return block

    def block_apart(self, name: str, attributes: Mapping[str, Any], around: SpanContext | None) -> "Block":
        """Begin a span below one that may have ended, for what goes on in the background."""
        with self._lock:
            one = _Place(name)
            one.attributes = attributes
            self._open.start_below(one, around)
            return self._hold(one)

    def _hold(self, one: _Place) -> "Block":
        assert one.span is not None
        one.own = one.span
        self._blocks[one] = None
        return Block(self, one, one.span)

    def _end_block(self, block: _Place, error: BaseException | None) -> None:
        with self._lock:
            if not block.is_open:
                return
            # What the trainer began in the block ends with it: an exception that goes through leaves it no other end.
            started = next((index for index, one in enumerate(self._stack) if one.inside is block), len(self._stack))
            innermost = self._stack[-1].visible if started < len(self._stack) else block
            reason = self._open.record(innermost or block, error) if error is not None else None
            while len(self._stack) > started:
                self._pop(reason)
            if reason is not None:
                self._open.fail(block, reason)
            del self._blocks[block]
            self._open.end(block)
        self._open.hand_over()

    def _here(self) -> _Place | None:
        user, stack = self._block(), self._stack
        top = stack[-1] if stack else None
        # The trainer's began in the block, or the block in the trainer's, or it is another thread's.
        return top if user is None or (top is not None and top.user is user) else user

    def _block(self) -> _Place | None:
        user = self._user.get()
        # A task may live longer than the block that it was made in.
        while user is not None and not user.is_open:
            user = user.user
        return user

    def _start(self, one: _Place) -> None:
        around = (one.inside.visible if one.inside is not None else None) or self._run
        if one.name != SPAN_EPOCH:
            self._open.start(one, around)
            return
        spans = [near.span for near in (around, self._last_epoch) if near is not None and near.span is not None]
        self._open.start_root(one, [span.get_span_context() for span in spans])
        self._last_epoch = one

    def _grants(self, name: str) -> bool:
        """Tell whether a span is made. A batch and the loading of its data are decided together, by who comes first."""
        if name not in (SPAN_DATA, SPAN_BATCH):
            return True
        granted = self._is_batch_granted if name == SPAN_BATCH else None
        self._is_batch_granted = None
        if granted is None:
            granted = self._takes_batch()
            self._is_batch_granted = granted if name == SPAN_DATA else None
        return granted

    def _takes_batch(self) -> bool:
        if self._batch_interval is None:
            return False
        now = self._clock.monotonic()
        if now - self._last_batch < self._batch_interval:
            return False
        self._last_batch = now
        return True

    def _pop(self, reason: str | None = None) -> None:
        one = self._stack.pop()
        if one.name == SPAN_BATCH:
            self._has_batch = False
        if reason is not None:
            self._open.fail(one, reason)
        self._open.end(one)


class Block:
    """A span of the caller's own."""

    __slots__ = ("_place", "_spans", "at_end", "span")

    def __init__(self, spans: Spans, place: _Place, span: Span) -> None:
        self._spans = spans
        self._place = place
        self.span = span
        self.at_end: Callable[[], None] | None = None
        """What is to be done besides when it ends."""

    @property
    def is_current(self) -> bool:
        """Whether it is the innermost block of this thread or task."""
        return self._spans._user.get() is self._place

    def enter(self) -> Callable[[], None]:
        """Make it the current span, also OpenTelemetry's, so that instrumented libraries nest; return the undo."""
        variable = self._spans._user
        token: Token[_Place | None] = variable.set(self._place)
        scope = use_span(self.span, end_on_exit=False, record_exception=False, set_status_on_exception=False)
        scope.__enter__()

        def leave() -> None:
            scope.__exit__(None, None, None)
            # A generator may be finished in another context than it began in, which keeps the variable's value.
            with suppress(ValueError):
                variable.reset(token)

        return leave

    def end(self, error: BaseException | None = None) -> None:
        """End the span, as failed by `error` where one is given; a second time does nothing."""
        # Without a lock, which a daemon thread may have held when the interpreter ended it.
        if not self._place.is_open:
            return
        if self.at_end is not None:
            self.at_end()
        # What is no Exception ends a program or a generator, and is no failure of what it goes through.
        self._spans._end_block(self._place, error if isinstance(error, Exception) else None)
