"""OpenTelemetry's variables of batches, seen from a real OTLP server: when data comes, and how much at once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_logger import OTelLogger
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer

HOUR = "3600000"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., OTelLogger]:
    """Return a constructor of loggers that send to an endpoint once an hour, unless told otherwise."""

    def construct(endpoint: str, **environ: str) -> OTelLogger:
        common = {
            "OTEL_LOGGER_DIR": str(tmp_path / "logs"),
            "OTEL_LOGGER_FLUSH_INTERVAL": HOUR,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        }
        return OTelLogger(run_name="run", environ={**common, **environ})

    return construct


def items(signal: Signal, request: Any) -> int:
    """Return how many log records or spans a request holds."""
    if signal is Signal.LOGS:
        return sum(len(scope.log_records) for part in request.resource_logs for scope in part.scope_logs)
    return sum(len(scope.spans) for part in request.resource_spans for scope in part.scope_spans)


@pytest.mark.parametrize(
    ("variable", "signal"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", Signal.METRICS),
        ("OTEL_BLRP_SCHEDULE_DELAY", Signal.LOGS),
        ("OTEL_BSP_SCHEDULE_DELAY", Signal.TRACES),
    ],
)
def test_a_signal_with_an_interval_of_its_own_is_sent_by_that(
    make: Callable[..., OTelLogger], variable: str, signal: Signal
) -> None:
    """It wins over OTEL_LOGGER_FLUSH_INTERVAL for its signal, and the others still wait."""
    with OtlpServer("http/protobuf") as server, make(server.endpoint, **{variable: "20"}) as log:
        log.log_metrics({"loss": 1.0})
        server.wait_for(signal, 1)
        assert [signal] == [one for one in Signal if server.requests(one)]


def test_a_long_interval_does_not_hold_up_the_end(make: Callable[..., OTelLogger]) -> None:
    """What is flushed and closed goes at once."""
    with OtlpServer("http/protobuf") as server:
        with make(server.endpoint, OTEL_METRIC_EXPORT_INTERVAL=HOUR) as log:
            log.log_metrics({"loss": 1.0})
            assert log.flush(5.0)
            log.log_metrics({"loss": 2.0})
        assert log.stats().is_complete


@pytest.mark.parametrize(
    ("variable", "signal", "size"),
    [("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", Signal.LOGS, "2"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", Signal.TRACES, "3")],
)
def test_no_request_holds_more_than_the_batch_size(
    make: Callable[..., OTelLogger], variable: str, signal: Signal, size: str
) -> None:
    """Log records and spans go in portions of at most so many, and all of them go."""
    with OtlpServer("http/protobuf") as server:
        with make(server.endpoint, OTEL_LOGGER_TRACE_EVENTS="log", **{variable: size}) as log:
            log.log_metrics({"loss": 1.0})
            for number in range(10):
                with log.span(f"s{number}"):
                    log.log_traces({"t": number})
        sizes = [items(signal, request) for request in server.requests(signal)]

    assert max(sizes) <= int(size)
    assert sum(sizes) == log.stats().delivered[signal.value] > 10


def test_what_comes_while_the_training_goes_on_is_sent_together(make: Callable[..., OTelLogger]) -> None:
    """There is one request an interval, not one for whatever has come since the last."""
    with OtlpServer("http/protobuf") as server, make(server.endpoint, OTEL_LOGGER_FLUSH_INTERVAL="100") as log:
        begun = time.monotonic()
        for step in range(300):
            log.log_metrics({"loss": 1.0}, step=step)
            time.sleep(0.001)
        intervals = (time.monotonic() - begun) / 0.1
        assert len(server.requests(Signal.METRICS)) <= intervals + 2
