"""Each signal is sent, kept or not recorded as its variables say."""

import pytest

from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.routes import Destination, Route, routes_from_environ
from otel_logger_exporters.schedules import Schedule
from otel_logger_exporters.scrape_address import ScrapeAddress
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
        ({"OTEL_LOGS_EXPORTER": "console"}, (KEEP, SEND, KEEP)),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, (KEEP, KEEP, KEEP)),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "Prometheus"}, (KEEP, SEND, SEND)),
        ({"OTEL_METRICS_EXPORTER": "prometheus,otlp"}, (SEND, KEEP, KEEP)),
        ({"OTEL_METRICS_EXPORTER": "prometheus,console"}, (SEND, KEEP, KEEP)),
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


@pytest.mark.parametrize(
    ("value", "endpoint", "is_printed"),
    [("otlp", True, False), ("console", False, True), ("console,otlp", True, True), ("prometheus", False, False)],
)
def test_what_is_sent_goes_to_an_endpoint_or_is_printed_or_both(value, endpoint, is_printed):
    """As the exporters say that are named; an endpoint that none of them names is not used."""
    route = routes_from_environ({**ENDPOINT, "OTEL_METRICS_EXPORTER": value}).metrics
    assert (endpoint, is_printed) == (route.endpoint is not None, route.is_printed)


def test_a_route_tells_how_long_a_request_may_take():
    """Its endpoint's timeout, without one its schedule's, without that the default."""
    timeouts = [
        routes_from_environ({"OTEL_LOGS_EXPORTER": "console", **environ}).logs.timeout
        for environ in ({}, {"OTEL_BLRP_EXPORT_TIMEOUT": "2000"}, {**ENDPOINT, "OTEL_LOGS_EXPORTER": "otlp"})
    ]
    assert [10.0, 2.0, 10.0] == timeouts


def test_metrics_are_scraped_where_that_is_asked_for():
    """Where the variables of Prometheus say, beside what else becomes of metrics."""
    environ = {"OTEL_METRICS_EXPORTER": "prometheus,otlp", "OTEL_EXPORTER_PROMETHEUS_PORT": "9000"}
    assert ScrapeAddress("localhost", 9000) == routes_from_environ(environ).scrape
    assert routes_from_environ({"OTEL_METRICS_EXPORTER": "otlp"}).scrape is None


def test_a_wrong_address_is_refused_before_anybody_scrapes():
    """A mistake shows on the day that it is made."""
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_PROMETHEUS_PORT='x'"):
        routes_from_environ({"OTEL_EXPORTER_PROMETHEUS_PORT": "x"})


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("OTEL_METRICS_EXPORTER", "zipkin", "there is no zipkin"),
        ("OTEL_METRICS_EXPORTER", "otlp,jaeger,zipkin", "there is no jaeger and no zipkin"),
        ("OTEL_METRICS_EXPORTER", "none,otlp", "none stands alone"),
        ("OTEL_LOGS_EXPORTER", "prometheus", "Prometheus takes metrics alone, name it in OTEL_METRICS_EXPORTER"),
        ("OTEL_TRACES_EXPORTER", "otlp,prometheus", "Prometheus takes metrics alone, name it in OTEL_METRICS_EXPORTER"),
    ],
)
def test_other_exporters_are_refused(variable, value, why):
    """An exporter that does not exist here, or not for this signal, is refused with those that do."""
    with pytest.raises(ConfigurationError) as caught:
        routes_from_environ({variable: value})
    scraped = "prometheus (scraped), " if variable == "OTEL_METRICS_EXPORTER" else ""
    assert str(caught.value) == (
        f"{variable}={value!r} is not supported: give otlp (sent), console (printed), {scraped}several of them with "
        "commas between, none (not recorded), or leave it unset (sent if an endpoint is set, else kept locally); "
        f"{why}"
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
