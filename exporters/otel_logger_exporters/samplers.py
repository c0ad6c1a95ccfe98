"""The sampler of spans, as OTEL_TRACES_SAMPLER names it."""

from collections.abc import Mapping

from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased

from otel_logger_exporters.envvars import read_choice, read_ratio
from otel_logger_exporters.otel_variables import SAMPLERS

__all__ = ["sampler_from_environ"]


def sampler_from_environ(environ: Mapping[str, str]) -> Sampler:
    """Return the sampler that is named, by default `parentbased_always_on`; ConfigurationError for an unknown one.

    A ratio is that of trace ids, which come from the operating system: nothing is drawn from a generator.
    """
    name = read_choice(environ, "OTEL_TRACES_SAMPLER", "parentbased_always_on", SAMPLERS)
    root_name = name.removeprefix("parentbased_")
    root: Sampler = ALWAYS_OFF if root_name == "always_off" else ALWAYS_ON
    if root_name == "traceidratio":
        root = TraceIdRatioBased(read_ratio(environ, "OTEL_TRACES_SAMPLER_ARG", 1.0))
    return root if name == root_name else ParentBased(root)
