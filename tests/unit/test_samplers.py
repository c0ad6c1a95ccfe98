"""OTEL_TRACES_SAMPLER names one of OpenTelemetry's samplers, or is refused."""

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.otel_variables import SAMPLERS
from otel_logger_exporters.samplers import sampler_from_environ

LOW, HIGH = 1, 2**64 - 1
"""Trace ids that a ratio takes first and last."""


def sampled(environ, *, parent=None, trace_id=HIGH):
    """Tell whether a span is sampled whose parent is sampled, is not, or is not there."""
    context = Context()
    if parent is not None:
        flags = TraceFlags(TraceFlags.SAMPLED if parent else TraceFlags.DEFAULT)
        context = set_span_in_context(NonRecordingSpan(SpanContext(trace_id, 1, is_remote=True, trace_flags=flags)))
    return sampler_from_environ(environ).should_sample(context, trace_id, "span").decision.is_sampled()


@pytest.mark.parametrize(
    ("name", "as_root", "as_child_of_sampled", "as_child_of_unsampled"),
    [
        ("", True, True, False),
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("traceidratio", True, True, True),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
        (" ParentBased_TraceIdRatio ", True, True, False),
    ],
)
def test_each_sampler_decides_as_specified(name, as_root, as_child_of_sampled, as_child_of_unsampled):
    """Those of a parent follow it, the others do not; unset it is the specification's default."""
    environ = {"OTEL_TRACES_SAMPLER": name}
    assert (as_root, as_child_of_sampled, as_child_of_unsampled) == (
        sampled(environ),
        sampled(environ, parent=True),
        sampled(environ, parent=False),
    )


@pytest.mark.parametrize("name", ["traceidratio", "parentbased_traceidratio"])
@pytest.mark.parametrize(
    ("ratio", "low", "high"), [("0.25", True, False), ("0", False, False), ("1", True, True), ("", True, True)]
)
def test_a_ratio_is_that_of_trace_ids(name, ratio, low, high):
    """OTEL_TRACES_SAMPLER_ARG is the part of all trace ids that are sampled, and without it all are."""
    environ = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": ratio}
    assert (low, high) == (sampled(environ, trace_id=LOW), sampled(environ, trace_id=HIGH))


@pytest.mark.parametrize("name", ["", "always_on", "always_off"])
def test_an_argument_of_another_sampler_is_not_looked_at(name):
    """The specification has it used only by the sampler that it belongs to."""
    sampler_from_environ({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": "endpoint=http://x"})


@pytest.mark.parametrize("name", ["jaeger_remote", "parentbased_jaeger_remote", "xray", "sometimes"])
def test_another_sampler_is_refused(name):
    """Samplers that ask a server, and names that are none, are errors: sampling otherwise would drop or add data."""
    with pytest.raises(ConfigurationError) as caught:
        sampler_from_environ({"OTEL_TRACES_SAMPLER": name})
    remedy = " or ".join(SAMPLERS)
    assert f"OTEL_TRACES_SAMPLER={name!r} is not understood: give {remedy}" == str(caught.value)


@pytest.mark.parametrize("value", ["1.1", "-0.1", "10%", "nan", "inf", "1_0", "0,5", "٠", "."])
def test_a_ratio_that_is_none_is_refused(value):
    """The message quotes it and says what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        sampler_from_environ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": value})
    assert f"OTEL_TRACES_SAMPLER_ARG={value!r} is not understood: give a number from 0 to 1" == str(caught.value)
