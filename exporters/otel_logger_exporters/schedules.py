"""Schedules: how often and in which portions a signal is sent, as OpenTelemetry's variables of its batches say."""

from collections.abc import Mapping
from dataclasses import dataclass

from otel_logger_exporters.envvars import read_int
from otel_logger_exporters.signals import Signal

__all__ = ["Schedule", "schedule_from_environ"]

MOST = 2**31 - 1
"""The greatest number that the specification asks to be understood; as milliseconds 24 days."""

LEAST_INTERVAL = 0.01
"""Seconds between sends at least; a variable may ask for less, even for none, which would be a loop without a pause."""

INTERVALS = {
    Signal.METRICS: "OTEL_METRIC_EXPORT_INTERVAL",
    Signal.LOGS: "OTEL_BLRP_SCHEDULE_DELAY",
    Signal.TRACES: "OTEL_BSP_SCHEDULE_DELAY",
}

TIMEOUTS = {
    Signal.METRICS: "OTEL_METRIC_EXPORT_TIMEOUT",
    Signal.LOGS: "OTEL_BLRP_EXPORT_TIMEOUT",
    Signal.TRACES: "OTEL_BSP_EXPORT_TIMEOUT",
}

BATCH_SIZES = {
    Signal.LOGS: "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
    Signal.TRACES: "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """Seconds between sends, seconds of a request at most, records of a request at most; None where nothing is said."""

    interval: float | None = None
    timeout: float | None = None
    batch_size: int | None = None


def schedule_from_environ(environ: Mapping[str, str], signal: Signal) -> Schedule:
    """Return the signal's schedule; raises ConfigurationError when a variable cannot be understood."""
    interval = read_int(environ, INTERVALS[signal], None, unit="ms", maximum=MOST)
    timeout = read_int(environ, TIMEOUTS[signal], None, unit="ms", maximum=MOST)
    batch_size = None
    if signal in BATCH_SIZES:
        batch_size = read_int(environ, BATCH_SIZES[signal], None, minimum=1, maximum=MOST)
    return Schedule(
        interval=None if interval is None else max(LEAST_INTERVAL, interval / 1000),
        # The specification reads a timeout of 0 as none.
        timeout=timeout / 1000 if timeout else None,
        batch_size=batch_size,
    )
