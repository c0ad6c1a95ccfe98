"""Each signal is sent, kept or not recorded as its variables say."""

import pytest

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.routes import Destination, Route, routes_from_environ
from otel_logger_exporters.schedules import Schedule
from otel_logger_exporters.signals import Signal

SEND, KEEP, NONE = Destination.SEND, Destination.KEEP, Destination.NONE
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}


def _destinations(environ):
    routes = routes_from_environ(environ)
    return tuple(routes.of(signal).destination for signal in (Signal.METRICS, Signal.LOGS, Signal.TRACES))


@pytest.mark.parametrize(
    ("environ", "destinations"),
    [
        ({}, (KEEP, KEEP, KEEP)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_METRICS_EXPORTER": " "}, (KEEP, KEEP, KEEP)),
        (ENDPOINT, (SEND, SEND, SEND)),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c:4318/v1/logs"}, (KEEP, SEND, KEEP)),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, (SEND, KEEP, KEEP)),
        ({"OTEL_TRACES_EXPORTER": " None "}, (KEEP, KEEP, NONE)),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, (SEND, SEND, NONE)),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "OTLP, otlp,"}, (SEND, SEND, SEND)),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "k=v"}, (KEEP, KEEP, KEEP)),
    ],
)
def test_destination_is_decided_per_signal(environ, destinations):
    """An endpoint or `otlp` sends, `none` does not record, neither keeps; each signal for itself."""
    assert _destinations(environ) == destinations


def test_otlp_without_endpoint_goes_to_localhost():
    """`otlp` alone means the specification's default endpoint, of HTTP or of gRPC."""
    routes = routes_from_environ(
        {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc",
        }
    )
    assert routes.metrics.endpoint.url == "http://localhost:4318/v1/metrics"
    assert routes.logs.endpoint.url == "http://localhost:4317"


def test_only_a_sent_signal_has_an_endpoint():
    """What is kept or not recorded has no endpoint, even when one is given."""
    routes = routes_from_environ({**ENDPOINT, "OTEL_LOGS_EXPORTER": "none"})
    assert routes.of(Signal.LOGS) == Route(Signal.LOGS, NONE, None)


@pytest.mark.parametrize("value", ["prometheus", "console", "zipkin", "otlp,console", "none,otlp"])
def test_other_exporters_are_refused(value):
    """An exporter that does not exist here is refused with what does."""
    with pytest.raises(ConfigurationError) as caught:
        routes_from_environ({"OTEL_METRICS_EXPORTER": value})
    assert str(caught.value) == (
        f"OTEL_METRICS_EXPORTER={value!r} is not supported: give otlp (send), none (do not record), or leave it unset "
        "(sent if an endpoint is set, else kept locally); there is no prometheus or console yet"
    )


def test_a_route_has_the_schedule_of_its_signal():
    """Interval and size of batches are the signal's own."""
    routes = routes_from_environ({**ENDPOINT, "OTEL_BSP_SCHEDULE_DELAY": "500", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "7"})
    assert routes.traces.schedule == Schedule(interval=0.5, batch_size=7)
    assert routes.metrics.schedule == routes.logs.schedule == Schedule()


@pytest.mark.parametrize(("value", "timeout"), [("2000", 2.0), ("30000", 10.0), ("0", 10.0), ("", 10.0)])
def test_a_request_takes_no_longer_than_an_export(value, timeout):
    """The shorter of the export's and the exporter's timeout counts."""
    routes = routes_from_environ({**ENDPOINT, "OTEL_BLRP_EXPORT_TIMEOUT": value})
    assert (routes.logs.endpoint.timeout, routes.traces.endpoint.timeout) == (timeout, 10.0)


def test_a_wrong_schedule_is_refused_before_there_is_an_endpoint():
    """A mistake shows on the day that it is made."""
    with pytest.raises(ConfigurationError, match="OTEL_METRIC_EXPORT_INTERVAL='soon'"):
        routes_from_environ({"OTEL_METRIC_EXPORT_INTERVAL": "soon"})


def test_notes_of_a_general_variable_are_told_once():
    """What holds for every signal is one note."""
    routes = routes_from_environ({**ENDPOINT, "OTEL_EXPORTER_OTLP_TIMEOUT": "10"})
    assert routes.notes == ("OTEL_EXPORTER_OTLP_TIMEOUT=10 is read as 10 s (milliseconds start at 500)",)


def test_disabled_records_nothing_and_looks_at_nothing():
    """With OTEL_SDK_DISABLED no signal is recorded, and a mistake elsewhere is no error."""
    environ = {**ENDPOINT, "OTEL_SDK_DISABLED": "True", "OTEL_METRICS_EXPORTER": "zipkin"}
    routes = routes_from_environ(environ)
    assert routes.disabled
    assert _destinations(environ) == (NONE, NONE, NONE)


@pytest.mark.parametrize(("value", "told"), [("false", False), ("", False), ("1", True), ("yes", True)])
def test_only_true_disables(value, told):
    """Every value but true is false; one that is not false either is told."""
    routes = routes_from_environ({"OTEL_SDK_DISABLED": value})
    note = f"OTEL_SDK_DISABLED={value!r} is read as false: only true disables"
    assert (routes.disabled, routes.notes) == (False, (note,) if told else ())
