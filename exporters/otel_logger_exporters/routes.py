"""Routes: for each signal whether it is sent, kept locally or not recorded, and what else is done with it, as the
environment says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from otel_logger_exporters.endpoints import Endpoint, endpoint_from_environ, has_endpoint
from otel_logger_exporters.envvars import read_list, read_text
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.otel_variables import EXPORTERS, METRICS_EXPORTERS, check_variables
from otel_logger_exporters.schedules import Schedule, schedule_from_environ
from otel_logger_exporters.scrape_address import ScrapeAddress, scrape_address_from_environ
from otel_logger_exporters.signals import Signal

__all__ = ["Destination", "Route", "Routes", "routes_from_environ"]


DEFAULT_TIMEOUT = 10.0
"""Seconds of a request where neither an endpoint nor a schedule says it."""


class Destination(Enum):
    """What happens to a signal: sent (to an endpoint, the console, both), kept in the run's folder, or not recorded."""

    SEND = "send"
    KEEP = "keep"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Route:
    """One signal's destination and schedule; what is sent has an endpoint, or is printed, or both, and only that."""

    signal: Signal
    destination: Destination
    endpoint: Endpoint | None = None
    schedule: Schedule = field(default_factory=Schedule)
    is_printed: bool = False

    @property
    def timeout(self) -> float:
        """Seconds that one request may take."""
        return self.endpoint.timeout if self.endpoint is not None else self.schedule.timeout or DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of all signals, what the user should be told about them, and whether OTEL_SDK_DISABLED is set.

    `scrape` is where metrics can be scraped besides, None where nobody asks for it; it says nothing of ranks yet.
    """

    metrics: Route
    logs: Route
    traces: Route
    notes: tuple[str, ...] = ()
    disabled: bool = False
    scrape: ScrapeAddress | None = None

    def of(self, signal: Signal) -> Route:
        """Return the signal's route."""
        return {Signal.METRICS: self.metrics, Signal.LOGS: self.logs, Signal.TRACES: self.traces}[signal]

    @property
    def endpoints(self) -> dict[Signal, Endpoint]:
        """The endpoints of the signals that are sent to one."""
        return {signal: endpoint for signal in Signal if (endpoint := self.of(signal).endpoint) is not None}


def routes_from_environ(environ: Mapping[str, str]) -> Routes:
    """Return where each signal goes; raises ConfigurationError when a variable cannot be understood.

    With OTEL_SDK_DISABLED nothing else is looked at: nothing is recorded, and what is wrong does no harm.
    """
    disabled, notes = _disabled(environ)
    if disabled:
        none = {signal: Route(signal, Destination.NONE) for signal in Signal}
        return Routes(none[Signal.METRICS], none[Signal.LOGS], none[Signal.TRACES], notes, disabled)
    notes += check_variables(environ)
    scrape = scrape_address_from_environ(environ)
    metrics, metrics_notes = _route(environ, Signal.METRICS)
    logs, logs_notes = _route(environ, Signal.LOGS)
    traces, traces_notes = _route(environ, Signal.TRACES)
    # A general variable says the same for every signal.
    notes = tuple(dict.fromkeys((*notes, *metrics_notes, *logs_notes, *traces_notes)))
    is_scraped = "prometheus" in _exporters(environ, Signal.METRICS)
    return Routes(metrics, logs, traces, notes, scrape=scrape if is_scraped else None)


def _disabled(environ: Mapping[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Return whether the switch is set; the specification asks that any value but `true` is false, and told."""
    text = read_text(environ, "OTEL_SDK_DISABLED", "false")
    if text.lower() in ("true", "false"):
        return text.lower() == "true", ()
    return False, (f"OTEL_SDK_DISABLED={text!r} is read as false: only true disables",)


def _exporters(environ: Mapping[str, str], signal: Signal) -> frozenset[str]:
    """Return the exporters that are named for a signal."""
    variable = f"OTEL_{signal.name}_EXPORTER"
    known = METRICS_EXPORTERS if signal is Signal.METRICS else EXPORTERS
    named = frozenset(item.lower() for item in read_list(environ, variable))
    if not named - {*known} and (len(named) == 1 or "none" not in named):
        return named
    if "prometheus" in named - {*known}:
        why = "Prometheus takes metrics alone, name it in OTEL_METRICS_EXPORTER"
    elif unknown := sorted(named - {*known}):
        why = f"there is no {' and no '.join(unknown)}"
    else:
        why = "none stands alone"
    what = "otlp (sent), console (printed), "
    if signal is Signal.METRICS:
        what += "prometheus (scraped), "
    msg = (
        f"{variable}={environ[variable].strip()!r} is not supported: give {what}several of them with commas between, "
        f"none (not recorded), or leave it unset (sent if an endpoint is set, else kept locally); {why}"
    )
    raise ConfigurationError(msg)


def _route(environ: Mapping[str, str], signal: Signal) -> tuple[Route, tuple[str, ...]]:
    exporters = _exporters(environ, signal)
    if "none" in exporters:
        return Route(signal, Destination.NONE), ()
    endpoint, notes = endpoint_from_environ(environ, signal)
    schedule = schedule_from_environ(environ, signal)
    # Judged before they are known to be unused: a wrong value is wrong also on the day before the endpoint is set.
    is_printed = "console" in exporters
    if "otlp" in exporters or (not exporters and has_endpoint(environ, signal)):
        if schedule.timeout is not None:
            endpoint = replace(endpoint, timeout=min(endpoint.timeout, schedule.timeout))
        return Route(signal, Destination.SEND, endpoint, schedule, is_printed), notes
    if is_printed:
        return Route(signal, Destination.SEND, None, schedule, is_printed), ()
    return Route(signal, Destination.KEEP), ()
