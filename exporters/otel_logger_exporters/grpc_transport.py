"""OTLP over gRPC: serialised requests in, answers out. The only module that imports grpc."""

import threading
from pathlib import Path

import grpc

from otel_logger_exporters.answers import Answer, Verdict, from_grpc
from otel_logger_exporters.clock import Clock, SystemClock
from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.diagnosis import diagnose
from otel_logger_exporters.dialler import Dialler
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.failures import closed, tls_failed, unanswered
from otel_logger_exporters.responses import partial_success, retry_delay, shortened
from otel_logger_exporters.signals import Signal

__all__ = ["GrpcTransport"]

METHODS = {
    Signal.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    Signal.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    Signal.TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}

RICH_ERROR = "grpc-status-details-bin"
"""The trailer with google.rpc.Status, in which RetryInfo travels."""

AUTHORITIES = Path(grpc.__file__).parent / "_cython" / "_credentials" / "roots.pem"
"""The authorities that gRPC brings along and trusts where none are named: it does not know the system's."""


class GrpcTransport:
    """Sends one signal's requests over one channel, which is made when it is needed."""

    def __init__(self, endpoint: Endpoint, user_agent: str, clock: Clock | None = None) -> None:
        self._endpoint = endpoint
        self._clock = clock or SystemClock()
        self._dialler = Dialler(Deadline(self._clock))
        self._options = (
            ("grpc.primary_user_agent", user_agent),
            ("grpc.max_send_message_length", -1),
            # The sender decides when to try again, and knows more: what RetryInfo said, and that the program ends.
            ("grpc.enable_retries", 0),
            # A shared pool would keep the back-off of a connection whose channel is gone.
            ("grpc.use_local_subchannel_pool", 1),
            *_proxy_options(endpoint),
        )
        # Names that end in -bin are bytes to gRPC.
        self._metadata = tuple(
            (name, value.encode() if name.endswith("-bin") else value) for name, value in endpoint.headers
        )
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._closed = False

    def send(self, body: bytes, timeout: float) -> Answer:
        """Send one serialised export request and return the answer within `timeout` seconds; never raises."""
        end = self._clock.monotonic() + timeout
        try:
            channel = self._open()
            if channel is None:
                return closed()
            call = channel.unary_unary(METHODS[self._endpoint.signal])
            response = call(body, timeout=max(timeout, 0.001), metadata=self._metadata)
        except OSError as error:
            return tls_failed(self._endpoint, error)
        except Exception as error:
            if isinstance(error, grpc.Call):
                return self._failed(error, timeout, end)
            # Among others ValueError, when another thread closes the channel meanwhile.
            return Answer(Verdict.RETRY, type(error).__name__, shortened(str(error)))
        rejected, message = partial_success(self._endpoint.signal, response)
        return Answer(Verdict.ACCEPTED, "OK", message, rejected=rejected)

    def close(self) -> None:
        """Close the channel; a request under way is answered with RETRY."""
        with self._lock:
            self._closed = True
        self._drop()

    def _open(self) -> grpc.Channel | None:
        with self._lock:
            if self._channel is None and not self._closed:
                self._channel = self._connect()
            return self._channel

    def _connect(self) -> grpc.Channel:
        endpoint = self._endpoint
        compression = grpc.Compression.Gzip if endpoint.compression == "gzip" else grpc.Compression.NoCompression
        # With the resolver named, no host can be taken for one: `unix:4317` would be a socket's path.
        target = f"dns:///{(endpoint.proxy or endpoint).address}"
        if endpoint.insecure:
            return grpc.insecure_channel(target, self._options, compression)
        files = (endpoint.certificate, endpoint.client_key, endpoint.client_certificate)
        credentials = grpc.ssl_channel_credentials(*(_content(path) for path in files))
        return grpc.secure_channel(target, credentials, self._options, compression)

    def _drop(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _failed(self, error: grpc.Call, timeout: float, end: float) -> Answer:
        code = error.code().name
        left = end - self._clock.monotonic()
        if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            # A new channel connects when told to, whatever back-off this one is in, and leaves a dead peer at once.
            self._drop()
        if code == "DEADLINE_EXCEEDED" and left <= 0:
            return unanswered(self._endpoint, timeout)
        trailer = next((value for name, value in error.trailing_metadata() or () if name == RICH_ERROR), b"")
        answer = from_grpc(code, shortened(error.details() or ""), retry_delay(trailer))
        # A server that tells more than a code has been reached.
        if code == "UNAVAILABLE" and not trailer and not self._closed and left > 0:
            authorities = str(AUTHORITIES) if AUTHORITIES.exists() else None
            return diagnose(self._endpoint, self._dialler, left, authorities) or answer
        return answer


def _proxy_options(endpoint: Endpoint) -> tuple[tuple[str, str | int], ...]:
    """Return the options of a channel to the endpoint's proxy, or to none.

    gRPC would ask the process's environment, also for exceptions when it is told a proxy (`grpc.http_proxy`). So it is
    told of none, and to begin with CONNECT what is a connection to the proxy.
    """
    options: tuple[tuple[str, str | int], ...] = (("grpc.enable_http_proxy", 0),)
    if endpoint.proxy is None:
        return options
    options += (("grpc.http_connect_server", endpoint.address), ("grpc.default_authority", endpoint.address))
    if endpoint.proxy.authorization is not None:
        options += (("grpc.http_connect_headers", f"Proxy-Authorization:{endpoint.proxy.authorization}"),)
    return options


def _content(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
