"""Transports: what sends one signal's requests, and the choice of one for an endpoint."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.clock import Clock, SystemClock
from otel_logger_exporters.endpoint_urls import GRPC
from otel_logger_exporters.endpoints import Endpoint

__all__ = ["TentativelyCompressed", "Transport", "open_transport", "user_agent"]

UNREADABLE = frozenset({"400", "415", "500", "501", "UNIMPLEMENTED", "INVALID_ARGUMENT", "INTERNAL"})
"""Codes of servers that cannot decompress: some say so, others take what they get for broken data, or break."""


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
    transport = _open(endpoint, user_agent)
    if endpoint.compression == "none" or endpoint.is_compression_asked:
        return transport
    plain = replace(endpoint, compression="none")
    return TentativelyCompressed(transport, lambda: _open(plain, user_agent))


def user_agent(version: str) -> str:
    """Return the user agent of this package's `version`, in the form that the specification asks for."""
    return f"OTel-OTLP-Exporter-otel_logger/{version}"


class TentativelyCompressed:
    """Compresses what nobody asked to have compressed, until a server turns out not to be able to read it.

    OTLP demands of servers that they can, but data must not wait for a setting that was never made: until the first
    compressed request is accepted, one that may be refused for its compression is sent again without, at once. When
    that is accepted all others go without.
    """

    def __init__(self, compressed: Transport, open_plain: Callable[[], Transport], clock: Clock | None = None) -> None:
        self._transport = compressed
        self._open_plain = open_plain
        self._clock = clock or SystemClock()
        self._is_settled = False
        self._is_closed = False

    def send(self, body: bytes, timeout: float) -> Answer:
        """Send one serialised export request and return the answer within `timeout` seconds; never raises."""
        end = self._clock.monotonic() + timeout
        answer = self._transport.send(body, timeout)
        if self._is_settled or answer.verdict is Verdict.ACCEPTED:
            self._is_settled = True
            return answer
        left = end - self._clock.monotonic()
        if answer.code not in UNREADABLE or left <= 0:
            return answer
        plain = self._open_plain()
        answer = plain.send(body, left)
        if answer.verdict is Verdict.ACCEPTED:
            plain, self._transport, self._is_settled = self._transport, plain, True
        plain.close()
        if self._is_closed:
            self._transport.close()
        return answer

    def close(self) -> None:
        """Give the connection back; what is sent after that is answered with RETRY."""
        self._is_closed = True
        self._transport.close()


def _open(endpoint: Endpoint, user_agent: str) -> Transport:
    if endpoint.protocol == GRPC:
        from otel_logger_exporters.grpc_transport import GrpcTransport

        return GrpcTransport(endpoint, user_agent)
    from otel_logger_exporters.http_transport import HttpTransport

    return HttpTransport(endpoint, user_agent)
