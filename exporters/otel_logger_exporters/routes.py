"""Routes: for each signal whether it is sent, kept locally or not recorded, as the environment says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from otel_logger_exporters.endpoints import Endpoint, endpoint_from_environ, has_endpoint
from otel_logger_exporters.envvars import read_list, read_text
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.otel_variables import EXPORTERS, check_variables
from otel_logger_exporters.schedules import Schedule, schedule_from_environ
from otel_logger_exporters.signals import Signal

__all__ = ["Destination", "Route", "Routes", "routes_from_environ"]


class Destination(Enum):
    """What happens to a signal: sent to an endpoint, kept in the run's folder, or not recorded at all."""

    SEND = "send"
    KEEP = "keep"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Route:
    """One signal's destination and schedule; the endpoint is there when it is sent, and only then."""

    signal: Signal
    destination: Destination
    endpoint: Endpoint | None = None
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of all signals, what the user should be told about them, and whether OTEL_SDK_DISABLED is set."""

    metrics: Route
    logs: Route
    traces: Route
    notes: tuple[str, ...] = ()
    disabled: bool = False

    def of(self, signal: Signal) -> Route:
        """Return the signal's route."""
        return {Signal.METRICS: self.metrics, Signal.LOGS: self.logs, Signal.TRACES: self.traces}[signal]

    @property
    def endpoints(self) -> dict[Signal, Endpoint]:
        """The endpoints of the signals that are sent."""
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
    metrics, metrics_notes = _route(environ, Signal.METRICS)
    logs, logs_notes = _route(environ, Signal.LOGS)
    traces, traces_notes = _route(environ, Signal.TRACES)
    # A general variable says the same for every signal.
    notes = tuple(dict.fromkeys((*notes, *metrics_notes, *logs_notes, *traces_notes)))
    return Routes(metrics, logs, traces, notes)


def _disabled(environ: Mapping[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Return whether the switch is set; the specification asks that any value but `true` is false, and told."""
    text = read_text(environ, "OTEL_SDK_DISABLED", "false")
    if text.lower() in ("true", "false"):
        return text.lower() == "true", ()
    return False, (f"OTEL_SDK_DISABLED={text!r} is read as false: only true disables",)


def _route(environ: Mapping[str, str], signal: Signal) -> tuple[Route, tuple[str, ...]]:
    variable = f"OTEL_{signal.name}_EXPORTER"
    exporters = {item.lower() for item in read_list(environ, variable)}
    if exporters - {*EXPORTERS} or len(exporters) > 1:
        msg = (
            f"{variable}={environ[variable].strip()!r} is not supported: give otlp (send), none (do not record), or "
            "leave it unset (sent if an endpoint is set, else kept locally); there is no prometheus or console yet"
        )
        raise ConfigurationError(msg)
    if exporters == {"none"}:
        return Route(signal, Destination.NONE), ()
    endpoint, notes = endpoint_from_environ(environ, signal)
    schedule = schedule_from_environ(environ, signal)
    # Judged before they are known to be unused: a wrong value is wrong also on the day before the endpoint is set.
    if not exporters and not has_endpoint(environ, signal):
        return Route(signal, Destination.KEEP), ()
    if schedule.timeout is not None:
        endpoint = replace(endpoint, timeout=min(endpoint.timeout, schedule.timeout))
    return Route(signal, Destination.SEND, endpoint, schedule), notes
