"""The last report of a run says that everything was delivered, and holds up neither the data nor the end."""

import pytest

from otel_logger import OTelLogger
from otel_logger import conventions as names
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer, Reply


def own_metrics(server):
    """Return the last value of each of our own metrics, by name and attribute, and the resources they came under."""
    found, resources = {}, []
    for request in server.requests(Signal.METRICS):
        for resource in request.resource_metrics:
            for metric in (m for scope in resource.scope_metrics for m in scope.metrics):
                if metric.name.startswith("otel_logger."):
                    resources.append(resource.resource)
                    for point in (*metric.sum.data_points, *metric.gauge.data_points):
                        label = point.attributes[0].value.string_value if point.attributes else ""
                        if not point.flags:
                            found[metric.name, label] = point.as_int or point.as_double
    return found, resources


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_end_of_a_run_is_reported(tmp_path, protocol):
    """After `close` the backend knows how much was recorded and delivered, under the run's own resource."""
    with OtlpServer(protocol) as server:
        environ = {
            "OTEL_LOGGER_DIR": str(tmp_path),
            "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }
        with OTelLogger(run_name="run", environ=environ) as log:
            for step in range(10):
                log.log_metrics({"loss": 0.5, "accuracy": 0.25}, step=step)
            run_id = log.run_id
        stats = log.stats()
        found, resources = own_metrics(server)
    assert 20 == stats.recorded["metrics"] == found[names.SELF_RECORDED, "metrics"]
    for name, counts in (
        (names.SELF_RECORDED, stats.recorded),
        (names.SELF_DELIVERED, stats.delivered),
        (names.SELF_REFUSED, stats.refused),
        (names.SELF_WAITING, stats.waiting),
    ):
        assert counts == {signal.value: found[name, signal.value] for signal in Signal}
    runs = {a.value.string_value for r in resources for a in r.attributes if a.key == names.RUN_ID}
    assert {run_id} == runs


def test_the_last_report_ends_its_series(tmp_path):
    """A backend does not show the state of a process that is gone as if it were of now."""
    with OtlpServer("http/protobuf") as server:
        environ = {"OTEL_LOGGER_DIR": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        with OTelLogger(run_name="run", environ=environ) as log:
            log.log_metrics({"loss": 0.5}, step=1)
        last = server.requests(Signal.METRICS)[-1].resource_metrics[0]
    points = {True: set(), False: set()}
    for metric in (m for scope in last.scope_metrics for m in scope.metrics):
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            points[bool(point.flags)].add((metric.name, str(point.attributes)))
            assert point.flags == (0 if point.WhichOneof("value") else 1)
    assert points[False]
    assert points[False] == points[True]


def test_a_run_that_is_kept_locally_reports_to_nobody(tmp_path):
    """Without an endpoint the metrics of our own are in `stats()` alone, and not among the run's."""
    with OTelLogger(run_name="run", environ={"OTEL_LOGGER_DIR": str(tmp_path)}) as log:
        log.log_metrics({"loss": 0.5}, step=1)
    assert 1 == log.stats().kept["metrics"]
    assert 0 < log.stats().bytes_on_disk


def test_an_endpoint_that_fails_gets_no_report(tmp_path):
    """While the metrics themselves must wait, nothing else is tried: the end of the program is not held up."""
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=503)] * 100)
        environ = {"OTEL_LOGGER_DIR": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}
        with OTelLogger(run_name="run", environ=environ) as log:
            log.log_metrics({"loss": 0.5}, step=1)
        assert ({}, []) == own_metrics(server)
    stats = log.stats()
    assert 1 == stats.waiting["metrics"]
    assert stats.oldest is not None
