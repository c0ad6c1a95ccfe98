"""OTelLogger with an endpoint: what it records arrives at a real OTLP server, over gRPC and over HTTP."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_logger import OTelLogger, read_run
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer, Reply

PROTOCOLS = ["grpc", "http/protobuf"]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., OTelLogger]:
    """Return a constructor of loggers that send to an endpoint."""

    def construct(endpoint: str, protocol: str, **environ: str) -> OTelLogger:
        common = {
            "OTEL_LOGGER_DIR": str(tmp_path / "logs"),
            "OTEL_LOGGER_FLUSH_INTERVAL": "50",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }
        return OTelLogger(run_name="run", environ={**common, **environ})

    return construct


def attributes(pairs: Any) -> dict[str, Any]:
    """Return OTLP attributes of scalar values as a dict."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def metric_points(server: OtlpServer) -> list[tuple[str, str, int, float]]:
    """Return (metric, key, time, value) of each point that arrived, but of what is said of the run or ends a series."""
    return [
        (
            metric.name,
            attributes(point.attributes)["training.metric.key"],
            point.time_unix_nano,
            point.as_int if point.WhichOneof("value") == "as_int" else point.as_double,
        )
        for metric, point in server.values()
        if "training.metric.key" in attributes(point.attributes)
    ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_value_arrives_once_with_its_step_beside_it(make: Callable[..., OTelLogger], protocol: str) -> None:
    """Each value is a point with its key; a companion of the same time and key carries the step."""
    with OtlpServer(protocol) as server:
        with make(server.endpoint, protocol) as log:
            for step in range(100):
                log.log_metrics({"loss/train total": step / 2, "lr": 0.1}, step=step)
        arrived = metric_points(server)

    values = sorted(point for point in arrived if point[0] != "training.step")
    steps = {(key, time): value for name, key, time, value in arrived if name == "training.step"}
    assert 200 == len(values) == len(steps)
    assert {("loss/train_total", "loss/train total"), ("lr", "lr")} == {(name, key) for name, key, _, _ in values}
    assert [(step, step / 2) for step in range(100)] == sorted(
        (steps[key, time], value) for _, key, time, value in values if key == "loss/train total"
    )
    assert {"metrics": 200, "logs": 2, "traces": 1} == log.stats().delivered
    assert log.stats().is_complete


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_hyperparameters_are_on_the_resource_of_metrics_and_traces(
    make: Callable[..., OTelLogger], protocol: str
) -> None:
    """Metrics and spans wait until the resource is bound and go under one resource; log records go at once."""
    with OtlpServer(protocol) as server:
        log = make(server.endpoint, protocol, OTEL_RESOURCE_ATTRIBUTES="team=vision", OTEL_SERVICE_NAME="digits")
        log.log_hyperparameters({"lr": 0.1})
        server.wait_for(Signal.LOGS, 1)
        assert [] == [*server.requests(Signal.METRICS), *server.requests(Signal.TRACES)]
        log.log_hyperparameters({"seed": 7})
        log.log_metrics({"loss": 1.0})
        log.close()
        resources = [
            attributes(part.resource.attributes)
            for request in (*server.requests(Signal.METRICS), *server.requests(Signal.TRACES))
            for part in (request.resource_metrics if hasattr(request, "resource_metrics") else request.resource_spans)
        ]

    assert resources
    for resource in resources:
        assert ("digits", "vision", 0.1, 7, log.run_id) == tuple(
            resource[name]
            for name in ("service.name", "team", "training.hparam.lr", "training.hparam.seed", "training.run.id")
        )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_outage_loses_nothing(make: Callable[..., OTelLogger], protocol: str) -> None:
    """What an endpoint does not take now is on disk, and is sent when it takes it."""
    with OtlpServer(protocol) as server:
        server.answer_with(*[Reply(grpc="UNAVAILABLE", http=503)] * 3)
        log = make(server.endpoint, protocol)
        log.log_metrics({"loss": 1.0}, 1)
        log.flush()
        log.log_metrics({"loss": 2.0}, 2)
        log.close()
        # The server also lists what it refused, so that the same point, at the same time, is there again.
        arrived = set(metric_points(server))

    assert [1.0, 2.0] == sorted(value for name, _, _, value in arrived if name == "loss")
    assert log.stats().is_complete


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_an_endpoint_to_reach_everything_stays_on_disk(
    make: Callable[..., OTelLogger], protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line says how much waits and where; the folder can be read."""
    with OtlpServer(protocol) as server:
        endpoint = server.endpoint
    with make(endpoint, protocol, OTEL_LOGGER_SHUTDOWN_TIMEOUT="2000") as log:
        log.log_metrics({"loss": 1.0}, 1)

    assert {"metrics": 1, "logs": 2, "traces": 1} == log.stats().waiting
    assert (
        "1 value, 2 log records, 1 span not delivered, they wait; send them with `otel-logger sync "
        in capsys.readouterr().err.splitlines()[-1]
    )
    assert log.run_dir is not None
    assert [1.0] == read_run(log.run_dir).metrics["value"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_keeps_its_deadline_before_a_silent_server(make: Callable[..., OTelLogger], protocol: str) -> None:
    """A server that takes the request and never answers cannot hold the end of training."""
    import time

    with OtlpServer(protocol) as server:
        server.answer_with(*[Reply(silent=True)] * 10)
        log = make(server.endpoint, protocol, OTEL_LOGGER_SHUTDOWN_TIMEOUT="500")
        log.log_metrics({"loss": 1.0}, 1)
        started = time.monotonic()
        log.close()
        took = time.monotonic() - started
        waiting = log.stats().waiting["metrics"]

    assert took < 3.0
    assert 1 == waiting


def test_what_is_delivered_leaves_no_journal(make: Callable[..., OTelLogger]) -> None:
    """With an endpoint the folder is a queue: at the end only the writer's own file and its blobs are left."""
    with OtlpServer("http/protobuf") as server, make(server.endpoint, "http/protobuf") as log:
        log.log_metrics({"loss": 1.0}, 1)
        log.log_table(["a"], [[1]])

    assert log.run_dir is not None
    assert [] == list(log.run_dir.rglob("*.seg"))
    assert 1 == len(list((log.run_dir / "blobs").rglob("*.jsonl.gz")))


def test_headers_reach_the_server_and_no_line(
    make: Callable[..., OTelLogger], capsys: pytest.CaptureFixture[str]
) -> None:
    """A secret in OTEL_EXPORTER_OTLP_HEADERS is sent and never shown."""
    with OtlpServer("http/protobuf") as server:
        with make(server.endpoint, "http/protobuf", OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20hunter2") as log:
            log.log_metrics({"loss": 1.0}, 1)
        sent = {item.headers["authorization"] for item in server.received(Signal.METRICS)}

    assert {"Bearer hunter2"} == sent
    assert "hunter2" not in "".join(capsys.readouterr())
    assert "hunter2" not in repr(log._session.launch.routes if log._session else "")
