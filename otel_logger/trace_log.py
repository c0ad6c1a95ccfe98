"""The trace log: what `log_traces` is given, as span events where it happened, or as log records."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_logger.conventions import EVENT_TRACE, STEP, TRACE_NAME, TRACE_VALUE
from otel_logger.redaction import Redactor
from otel_logger.spans import Spans
from otel_logger.values import plain
from otel_logger_exporters.clock import Clock

__all__ = ["TraceLog"]

LONGEST_EVENT_VALUE: Final = 2048
"""Bytes of a value that a span event carries: Tempo cuts longer ones without a word."""

_EVENT_SIZE: Final = 64
"""Bytes of an event beside its name and value, about."""

_SCALARS: Final = (str, bool, int, float)


class TraceLog:
    """Records traces as events of the current span (`mode` "span"), as log records ("log"), or as both.

    What no span takes is a log record whatever the mode: where there is no span, in one that is not sampled, in a batch
    that has none. A value of more than 2,048 bytes is on its span event cut, and whole in a log record.
    """

    def __init__(self, spans: Spans, emit: Callable[..., None], redactor: Redactor, clock: Clock, mode: str) -> None:
        self._spans = spans
        self._emit = emit
        self._redactor = redactor
        self._clock = clock
        self._mode = mode

    def log(self, traces: Mapping[Any, Any], step: int | None) -> None:
        """Record each entry; their times are a nanosecond apart, so that stores keep their order."""
        now = self._clock.time_ns()
        for index, (key, given) in enumerate(traces.items()):
            name = str(plain(key))
            value = self._redactor.redact(name, plain(given))
            is_told = self._mode != "log" and self._add_event(name, value, step, now + index)
            if not is_told or self._mode == "both":
                self._emit(EVENT_TRACE, {TRACE_NAME: name}, body=value, step=step, time_ns=now + index)

    def _add_event(self, name: str, value: Any, step: int | None, time_ns: int) -> bool:
        """Put a trace on the current span; return whether it is there, whole."""
        shown = _attribute(value)
        is_whole, size = True, 0
        if isinstance(shown, str):
            size = len(shown) if shown.isascii() else len(shown.encode())
            if size > LONGEST_EVENT_VALUE:
                is_whole, size = False, LONGEST_EVENT_VALUE
                shown = f"{shown.encode()[: size - 3].decode(errors='ignore')}…"
        attributes = {TRACE_VALUE: shown} if step is None else {TRACE_VALUE: shown, STEP: step}
        return (
            self._spans.add_event(name or EVENT_TRACE, attributes, time_ns, _EVENT_SIZE + len(name) + size) and is_whole
        )


def _attribute(value: Any) -> Any:
    """Return plain data as an attribute: scalars as they are, None and bytes as their `str`, the rest as JSON."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)
