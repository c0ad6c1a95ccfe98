"""Transports: what sends one signal's requests, and the choice of one for an endpoint."""

from typing import Protocol

from otel_logger_exporters.answers import Answer
from otel_logger_exporters.endpoint_urls import GRPC
from otel_logger_exporters.endpoints import Endpoint

__all__ = ["Transport", "open_transport", "user_agent"]


class Transport(Protocol):
    """What the sender knows of a connection. One thread sends; another may close."""

    def send(self, body: bytes, timeout: float) -> Answer:
        """Send one serialised export request and return the answer within `timeout` seconds; never raises."""
        ...

    def close(self) -> None:
        """Give the connection back; what is sent after that is answered with RETRY."""
        ...


def open_transport(endpoint: Endpoint, user_agent: str) -> Transport:
    """Return the transport for an endpoint; nothing is connected yet, but the protocol's package is loaded."""
    if endpoint.protocol == GRPC:
        from otel_logger_exporters.grpc_transport import GrpcTransport

        return GrpcTransport(endpoint, user_agent)
    from otel_logger_exporters.http_transport import HttpTransport

    return HttpTransport(endpoint, user_agent)


def user_agent(version: str) -> str:
    """Return the user agent of this package's `version`, in the form that the specification asks for."""
    return f"OTel-OTLP-Exporter-otel_logger/{version}"
