"""The surroundings hand down a trace in TRACEPARENT, where OTEL_PROPAGATORS does not forbid it."""

import pytest

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.otel_variables import FOREIGN_PROPAGATORS
from otel_logger_exporters.propagators import trace_context_from_environ

TRACE = {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "TRACESTATE": "a=b"}


@pytest.mark.parametrize("value", ["", "tracecontext", "baggage, TraceContext ,tracecontext", "tracecontext,b3"])
def test_trace_context_is_read(value):
    """By default, and wherever it is among the names."""
    assert TRACE == trace_context_from_environ({**TRACE, "BAGGAGE": "c=d", "OTEL_PROPAGATORS": value})[0]


@pytest.mark.parametrize("value", ["none", "baggage", "b3", "tracecontext,none"])
def test_trace_context_is_not_read_where_it_is_not_wanted(value):
    """Without its name, and with `none`, which removes all."""
    assert {} == trace_context_from_environ({**TRACE, "OTEL_PROPAGATORS": value})[0]


def test_only_what_is_there_is_read():
    """A variable that is not set is not made up."""
    assert {"TRACESTATE": "a=b"} == trace_context_from_environ({"TRACESTATE": "a=b"})[0]


@pytest.mark.parametrize("name", FOREIGN_PROPAGATORS)
def test_a_propagator_of_others_is_told_to_have_no_effect(name):
    """It is set for a whole cluster, and no reason not to train."""
    assert (
        f"OTEL_PROPAGATORS: {name} has no effect on otel_logger, which joins no trace but that of TRACEPARENT",
    ) == trace_context_from_environ({"OTEL_PROPAGATORS": f"tracecontext,{name},baggage"})[1]


def test_an_unknown_propagator_is_refused():
    """The message quotes the whole value, then the name that is none, and says what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        trace_context_from_environ({"OTEL_PROPAGATORS": " tracecontext,bagage"})
    assert (
        "OTEL_PROPAGATORS='tracecontext,bagage' is not understood: 'bagage' is no propagator, "
        "give tracecontext or baggage or none"
    ) == str(caught.value)
