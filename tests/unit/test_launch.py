"""A launch is what the environment says, read once and checked."""

import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

from otel_logger.launch import read_launch
from otel_logger.ranks import Ranks
from otel_logger.settings import Settings
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.limits import Limits
from otel_logger_exporters.routes import Destination
from otel_logger_exporters.signals import Signal


def test_a_bare_environment():
    """With nothing set the process is alone, everything is kept, and there is nothing to tell."""
    launch = read_launch({}, None)
    assert Settings() == launch.settings
    assert Path.cwd() / "otel_logs" == launch.directory
    assert {Destination.KEEP} == {launch.routes.of(signal).destination for signal in Signal}
    assert Ranks() == launch.ranks
    assert {"service.name": "training"} == launch.user_resource
    assert {} == launch.trace_context
    assert ParentBased(ALWAYS_ON).get_description() == launch.sampler.get_description()
    assert Limits() == launch.limits
    assert (None, None, None, ()) == (launch.seed, launch.mark, launch.restarts.count, launch.notes)
    assert {} == launch.found


def test_everything_set():
    """Settings, ranks, resource, trace context, seed and restart count come from the mapping that is passed in."""
    launch = read_launch(
        {
            "OTEL_LOGGER_DIR": "runs",
            "OTEL_SERVICE_NAME": "llm",
            "OTEL_METRICS_EXPORTER": "none",
            "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "TRACESTATE": "a=b",
            "BAGGAGE": "c=d",
            "OTEL_PROPAGATORS": "tracecontext,xray",
            "OTEL_TRACES_SAMPLER": "always_off",
            "OTEL_SPAN_LINK_COUNT_LIMIT": "7",
            "RANK": "1",
            "WORLD_SIZE": "2",
            "TORCHELASTIC_RUN_ID": "job",
            "TORCHELASTIC_RESTART_COUNT": "3",
        },
        None,
    )
    assert Path.cwd() / "runs" == launch.directory
    assert launch.routes.metrics.destination is Destination.NONE
    assert {"service.name": "llm"} == launch.user_resource
    assert {"TRACEPARENT", "TRACESTATE"} == set(launch.trace_context)
    assert (ALWAYS_OFF, Limits(links=7)) == (launch.sampler, launch.limits)
    assert (
        "OTEL_PROPAGATORS: xray has no effect on otel_logger, which joins no trace but that of TRACEPARENT",
    ) == launch.notes
    assert Ranks(1, 0, 0, 2, 2) == launch.ranks
    assert ("torchelastic job", 3) == (launch.seed, launch.restarts.count)
    assert launch.mark is not None
    assert 3 == launch.mark.restarts


def test_settings_as_an_argument_stand_for_all_variables(tmp_path):
    """Given settings are taken whole: the variables of our own are neither read nor told of."""
    settings = Settings(directory=tmp_path)
    launch = read_launch({"OTEL_LOGGER_DIR": "elsewhere", "OTEL_LOGGER_RANKS": "bad", "OTEL_LOGGER_X": "1"}, settings)
    assert (settings, tmp_path, ()) == (launch.settings, launch.directory, launch.notes)


def test_notes_are_those_of_routes_and_of_unknown_variables():
    """What the user should know is told together."""
    launch = read_launch({"OTEL_SDK_DISABLED": "yes", "OTEL_LOGGER_RANK": "0"}, None)
    assert (
        "OTEL_SDK_DISABLED='yes' is read as false: only true disables",
        "OTEL_LOGGER_RANK is not a setting of otel_logger and has no effect; did you mean OTEL_LOGGER_RANKS?",
    ) == launch.notes


def test_a_rank_that_there_is_not_is_told():
    """A process that takes itself for rank 2 of one records no metrics: its user would wonder."""
    (note,) = read_launch({"RANK": "2"}, None).notes
    assert note.startswith("RANK=2, but WORLD_SIZE=1, unset it is 1: set both as the launcher would, or neither.")
    assert () == read_launch({"RANK": "2", "WORLD_SIZE": "3"}, None).notes


def test_disabled_nothing_else_of_opentelemetry_is_looked_at():
    """What is wrong with a switched-off OpenTelemetry does no harm."""
    wrong = dict.fromkeys(
        (
            "OTEL_CONFIG_FILE",
            "OTEL_METRICS_EXPORTER",
            "OTEL_PROPAGATORS",
            "OTEL_RESOURCE_ATTRIBUTES",
            "OTEL_SPAN_EVENT_COUNT_LIMIT",
            "OTEL_TRACES_SAMPLER",
        ),
        "x",
    )
    launch = read_launch({"OTEL_SDK_DISABLED": "true", **wrong}, None)
    assert (True, ()) == (launch.routes.disabled, launch.notes)


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_CONFIG_FILE": "x"},
        {"OTEL_PROPAGATORS": "x"},
        {"OTEL_SPAN_EVENT_COUNT_LIMIT": "x"},
        {"OTEL_TRACES_SAMPLER": "x"},
        {"RANK": "x"},
        {"OTEL_LOGGER_RANKS": "x"},
        {"OTEL_METRICS_EXPORTER": "x"},
        {"OTEL_RESOURCE_ATTRIBUTES": "x"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "x"},
    ],
)
def test_a_wrong_variable_is_named(environ):
    """Whatever is wrong is refused at construction, by its name and value."""
    with pytest.raises(ConfigurationError) as caught:
        read_launch(environ, None)
    ((name, value),) = environ.items()
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("value", "count"), [("0", 0), ("", None), ("x", None), ("-1", None), ("²", None)])
def test_the_restart_count_is_a_courtesy(value, count):
    """A launcher's count that is no number is left out, not refused: nothing depends on it."""
    assert count == read_launch({"TORCHELASTIC_RESTART_COUNT": value}, None).restarts.count


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["/a/train.py", "--lr", "1"], "train"),
        (["train"], "train"),
        ([""], "training"),
        (["-c"], "training"),
        (["-m"], "training"),
        ([], "training"),
    ],
)
def test_a_run_that_nobody_named_has_the_programs_name(monkeypatch, argv, script):
    """The name of the script stands for the run's; where there is none, `training` does."""
    monkeypatch.setattr(sys, "argv", argv)
    assert script == read_launch({}, None).script
