"""OTLP over gRPC: serialised requests in, answers out. The only module that imports grpc."""

import threading

import grpc

from otel_logger_exporters.answers import Answer, Verdict, from_grpc
from otel_logger_exporters.endpoints import Endpoint
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


class GrpcTransport:
    """Sends one signal's requests over one channel, which is made when it is needed."""

    def __init__(self, endpoint: Endpoint, user_agent: str) -> None:
        self._endpoint = endpoint
        self._options = (
            ("grpc.primary_user_agent", user_agent),
            ("grpc.max_send_message_length", -1),
            # The sender decides when to try again, and knows more: what RetryInfo said, and that the program ends.
            ("grpc.enable_retries", 0),
            # A shared pool would keep the back-off of a connection whose channel is gone.
            ("grpc.use_local_subchannel_pool", 1),
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
        try:
            channel = self._open()
            if channel is None:
                return Answer(Verdict.RETRY, "CLOSED", "the transport is closed")
            call = channel.unary_unary(METHODS[self._endpoint.signal])
            response = call(body, timeout=max(timeout, 0.001), metadata=self._metadata)
        except OSError as error:
            return Answer(Verdict.CONFIGURATION, "TLS", f"a certificate file cannot be read: {error}")
        except Exception as error:
            if isinstance(error, grpc.Call):
                return self._failed(error)
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
        target = f"dns:///{endpoint.address}"
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

    def _failed(self, error: grpc.Call) -> Answer:
        code = error.code().name
        if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            # A new channel connects when told to, whatever back-off this one is in, and leaves a dead peer at once.
            self._drop()
        trailer = next((value for name, value in error.trailing_metadata() or () if name == RICH_ERROR), b"")
        return from_grpc(code, shortened(error.details() or ""), retry_delay(trailer))


def _content(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()
