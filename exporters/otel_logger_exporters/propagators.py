"""Propagation: the trace that the surroundings hand down in environment variables.

https://opentelemetry.io/docs/specs/otel/context/env-carriers/: TRACEPARENT and TRACESTATE are the headers of W3C Trace
Context.
"""

from collections.abc import Mapping

from otel_logger_exporters.envvars import read_list
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.otel_variables import FOREIGN_PROPAGATORS, PROPAGATORS

__all__ = ["trace_context_from_environ"]


def trace_context_from_environ(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what of TRACEPARENT and TRACESTATE is to be read, as OTEL_PROPAGATORS says, and notes for the user.

    ConfigurationError when it names a propagator that OpenTelemetry does not know.
    """
    named = {item.lower() for item in read_list(environ, "OTEL_PROPAGATORS", PROPAGATORS[:2])}
    if unknown := sorted(named - {*PROPAGATORS, *FOREIGN_PROPAGATORS}):
        msg = (
            f"OTEL_PROPAGATORS={environ['OTEL_PROPAGATORS'].strip()!r} is not understood: {unknown[0]!r} is no "
            f"propagator, give {' or '.join(PROPAGATORS)}"
        )
        raise ConfigurationError(msg)
    notes = tuple(
        f"OTEL_PROPAGATORS: {name} has no effect on otel_logger, which joins no trace but that of TRACEPARENT"
        for name in sorted(named & {*FOREIGN_PROPAGATORS})
    )
    if "tracecontext" not in named or "none" in named:
        return {}, notes
    return {name: environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in environ}, notes
