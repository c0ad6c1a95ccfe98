"""What the contract tests of the transports share: a request, an endpoint from variables, and how long is long."""

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_logger_exporters.endpoints import Endpoint, endpoint_from_environ
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import user_agent

__all__ = ["AGENT", "PATIENCE", "PROTOCOLS", "make_body", "make_endpoint"]

PROTOCOLS = ("http/protobuf", "grpc")
AGENT = user_agent("1.2.3")
PATIENCE = 10.0
"""The timeout of a request that is going to be answered."""


def make_body(count: int = 3) -> bytes:
    """Return a request of metrics with `count` points."""
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="loss")
    for index in range(count):
        metric.gauge.data_points.add(time_unix_nano=index, as_double=index / 2)
    body: bytes = request.SerializeToString()
    return body


def make_endpoint(url: str, protocol: str, signal: Signal = Signal.METRICS, **variables: Any) -> Endpoint:
    """Return the endpoint that variables say: `HEADERS` and the like of OTLP, `http_proxy` and the like as they are."""
    environ = {
        name if name.lower().endswith("proxy") else f"OTEL_EXPORTER_OTLP_{name}": str(value)
        for name, value in variables.items()
    }
    environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    return endpoint_from_environ(environ, signal)[0]
