"""How often and in which portions a signal is sent is what OpenTelemetry's variables of its batches say."""

import pytest

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.schedules import BATCH_SIZES, INTERVALS, TIMEOUTS, Schedule, schedule_from_environ
from otel_logger_exporters.signals import Signal

EVERYTHING = {
    **dict.fromkeys(INTERVALS.values(), "2500"),
    **dict.fromkeys(TIMEOUTS.values(), "1500"),
    **dict.fromkeys(BATCH_SIZES.values(), "7"),
}


def test_nothing_is_said_by_default():
    """Without variables, and with empty ones, our own intervals and sizes hold."""
    for signal in Signal:
        assert Schedule() == schedule_from_environ(dict.fromkeys(EVERYTHING, " "), signal)


@pytest.mark.parametrize(("signal", "batch_size"), [(Signal.METRICS, None), (Signal.LOGS, 7), (Signal.TRACES, 7)])
def test_each_signal_has_its_variables(signal, batch_size):
    """Milliseconds become seconds; metrics have no variable of a batch's size."""
    assert Schedule(2.5, 1.5, batch_size) == schedule_from_environ(EVERYTHING, signal)


@pytest.mark.parametrize("signal", Signal)
def test_the_variables_of_one_signal_are_not_those_of_another(signal):
    """What is said of the other signals leaves this one at its defaults."""
    own = {INTERVALS[signal], TIMEOUTS[signal], BATCH_SIZES.get(signal)}
    others = {name: value for name, value in EVERYTHING.items() if name not in own}
    assert Schedule() == schedule_from_environ(others, signal)


@pytest.mark.parametrize("value", ["0", "1", "10"])
def test_an_interval_leaves_the_thread_a_pause(value):
    """An interval of less than 10 ms is one of 10 ms: that of none would be a loop."""
    assert Schedule(interval=0.01) == schedule_from_environ({"OTEL_BSP_SCHEDULE_DELAY": value}, Signal.TRACES)


def test_a_timeout_of_zero_is_none():
    """As the specification has it."""
    assert Schedule() == schedule_from_environ({"OTEL_METRIC_EXPORT_TIMEOUT": "0"}, Signal.METRICS)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "1s", "give whole milliseconds, from 0 to 2147483647"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "-1", "give whole milliseconds, from 0 to 2147483647"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "2147483648", "give whole milliseconds, from 0 to 2147483647"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", "give a whole number, from 1 to 2147483647"),
        ("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "many", "give a whole number, from 1 to 2147483647"),
    ],
)
def test_what_is_no_number_of_its_kind_is_refused(name, value, remedy):
    """The message names the variable, quotes its value and says what would be right."""
    (signal,) = [s for s in Signal if name in (INTERVALS[s], TIMEOUTS[s], BATCH_SIZES.get(s))]
    with pytest.raises(ConfigurationError) as caught:
        schedule_from_environ({name: value}, signal)
    assert f"{name}={value!r} is not understood: {remedy}" == str(caught.value)
