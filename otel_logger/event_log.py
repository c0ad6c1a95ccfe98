"""The event log: log records with an event name, each saying who, when and in which span."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_logger.conventions import LOG_RECORD_UID, PROCESS_PID, SCHEMA_URL, SCOPE_NAME, SCOPE_VERSION, STEP
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.entropy import random_uid
from otel_logger_exporters.items import Event, Severity, encode_event
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.outbox import Outbox
from otel_logger_exporters.signals import Signal

__all__ = ["EventLog"]

_SCOPE = InstrumentationScope(SCOPE_NAME, SCOPE_VERSION, SCHEMA_URL)


class EventLog:
    """Records events of one writer; `run` gives the attributes that say whose they are, `span` the current span."""

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock,
        ledger: Ledger,
        limits: Limits,
        *,
        run: Callable[[], Mapping[str, Any]],
        span: Callable[[], SpanContext | None],
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._ledger = ledger
        self._limits = limits
        self._run = run
        self._span = span

    def emit(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
        step: int | None = None,
        time_ns: int | None = None,
        severity: Severity = Severity.INFO,
        severity_text: str = "",
        span: SpanContext | None = None,
        scope: InstrumentationScope = _SCOPE,
        is_minor: bool = False,
        uid: str | None = None,
    ) -> None:
        """Record an event, whose body and attributes are plain data; never raises.

        `time_ns` and `span` are those of the moment it tells of, where that is not now. One of another `scope` than
        ours has no name. What `is_minor` is given up first as the bound on unsent data comes near. `uid` is its
        identity, where that was known before.
        """
        if self._outbox.journal(Signal.LOGS) is None:
            return
        # First, as a limit of attributes keeps those: the uid is what a record that is sent twice is known by.
        uid = uid or random_uid()
        identity = {LOG_RECORD_UID: uid, PROCESS_PID: os.getpid()}
        event = Event(
            name=name,
            time_ns=self._clock.time_ns() if time_ns is None else time_ns,
            attributes={**identity, **self._run(), **({} if step is None else {STEP: step}), **(attributes or {})},
            body=body,
            severity=severity,
            severity_text=severity_text,
            span=span if span is not None else self._span(),
        )
        try:
            frame = encode_event(event, scope, self._limits)
        except Exception as error:
            # Plain data always encodes; should it not, it costs this record alone.
            self._ledger.drop("encoding", 1, f"A log record {name} is lost, it cannot be encoded: {error!r}")
            return
        self._outbox.put(Signal.LOGS, frame, is_minor=is_minor)
