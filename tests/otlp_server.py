"""A real OTLP receiver on the loopback interface, for tests: over gRPC or HTTP behind one interface.

with OtlpServer("http/protobuf") as server:
    server.answer_with(Reply(grpc="UNAVAILABLE", http=503, retry_after=0.5))
    ...  # send to server.endpoint
    assert server.requests(Signal.METRICS) == [...]
"""

import gzip
import threading
from collections import deque
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from ssl import CERT_REQUIRED, PROTOCOL_TLS_SERVER, SSLContext
from typing import Any, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_logger_exporters.signals import Signal

__all__ = ["OtlpServer", "Received", "Reply", "ServerTls"]

REQUESTS: Mapping[Signal, type[Message]] = {
    Signal.METRICS: ExportMetricsServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.TRACES: ExportTraceServiceRequest,
}
SERVICES = {Signal.METRICS: "metrics.v1.Metrics", Signal.LOGS: "logs.v1.Logs", Signal.TRACES: "trace.v1.Trace"}
METHODS = {f"/opentelemetry.proto.collector.{name}Service/Export": signal for signal, name in SERVICES.items()}
HANG_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the script, in the terms of both protocols; the default accepts everything."""

    grpc: str = "OK"
    http: int = 200
    message: str = ""
    rejected: int = 0
    retry_after: float | None = None
    silent: bool = False
    """Do not answer at all until the server stops."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the HTTP answer, for instance its location."""
    text: str | None = None
    """The body of the HTTP answer as text, in place of protobuf."""

    def partial_success(self) -> bytes:
        """Return the body of an accepting answer; the three signals' responses are alike in bytes."""
        response = ExportMetricsServiceResponse()
        if self.rejected or self.message:
            response.partial_success.rejected_data_points = self.rejected
            response.partial_success.error_message = self.message
        return response.SerializeToString()

    def status(self) -> bytes:
        """Return google.rpc.Status with the message and, when a wait is asked for, RetryInfo."""
        status = Status(message=self.message)
        if self.retry_after is not None:
            delay = Duration()
            delay.FromMilliseconds(round(self.retry_after * 1000))
            status.details.add().Pack(RetryInfo(retry_delay=delay))
        return status.SerializeToString()


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came: the message's bytes after decompression, headers in lower case, and the peer."""

    signal: Signal
    body: bytes
    headers: Mapping[str, str]
    peer: str
    wire_body: bytes = b""
    """The bytes before decompression; over gRPC they cannot be seen."""

    def message(self) -> Message:
        """Return the request as a protobuf message."""
        return REQUESTS[self.signal].FromString(self.body)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The server's PEM files; with `client_ca` a client has to show a certificate of that authority."""

    key: Path
    certificate: Path
    client_ca: Path | None = None


class OtlpServer:
    """An OTLP receiver that records what it gets and answers by a script, then with acceptance."""

    def __init__(self, protocol: str, *, host: str = "127.0.0.1", port: int = 0, tls: ServerTls | None = None) -> None:
        self._received: list[Received] = []
        self._replies: deque[Reply] = deque()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._server: _Server = (_GrpcServer if protocol == "grpc" else _HttpServer)(self, host, port, tls)
        self.port = self._server.port
        name = f"[{host}]" if ":" in host else host
        self.endpoint = f"{'https' if tls else 'http'}://{name}:{self.port}"

    def __enter__(self) -> "OtlpServer":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop at once: open connections are closed, the port is free."""
        self._stopped.set()
        self._server.stop()

    def answer_with(self, *replies: Reply) -> None:
        """Add answers to the script; each is used once, in order."""
        with self._changed:
            self._replies.extend(replies)

    def received(self, signal: Signal) -> list[Received]:
        """Return the signal's requests so far, refused ones too."""
        with self._changed:
            return [received for received in self._received if received.signal is signal]

    def requests(self, signal: Signal) -> list[Any]:
        """Return the signal's requests so far as protobuf messages."""
        return [received.message() for received in self.received(signal)]

    def points(self) -> list[tuple[Any, Any]]:
        """Return each point of the metrics so far, with its metric, in the order in which they came."""
        return [
            (metric, point)
            for request in self.requests(Signal.METRICS)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in (*metric.gauge.data_points, *metric.sum.data_points)
        ]

    def values(self) -> list[tuple[Any, Any]]:
        """Return the points that have a value: the end of a series has none."""
        return [(metric, point) for metric, point in self.points() if not point.flags]

    def wait_for(self, signal: Signal, count: int, timeout: float = 5.0) -> list[Any]:
        """Return the signal's requests when there are `count`, or those there are after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: sum(r.signal is signal for r in self._received) >= count, timeout)
        return self.requests(signal)

    def take(self, received: Received) -> Reply:
        """Record a request and return the answer to give; for the servers below."""
        with self._changed:
            self._received.append(received)
            self._changed.notify_all()
            reply = self._replies.popleft() if self._replies else Reply()
        if reply.silent:
            self._stopped.wait(HANG_SECONDS)
        return reply


class _Server(Protocol):
    port: int

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _GrpcServer(grpc.GenericRpcHandler):
    def __init__(self, owner: OtlpServer, host: str, port: int, tls: ServerTls | None) -> None:
        self._owner = owner
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # Without SO_REUSEPORT a taken port is an error, as it should be.
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))
        if tls is None:
            self.port = self._server.add_insecure_port(where)
        else:
            pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
            ca = tls.client_ca.read_bytes() if tls.client_ca else None
            credentials = grpc.ssl_server_credentials([pair], ca, require_client_auth=ca is not None)
            self.port = self._server.add_secure_port(where, credentials)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def service(self, handler_call_details: Any) -> Any:
        signal = METHODS.get(handler_call_details.method)
        if signal is None:
            return None

        def export(body: bytes, context: Any) -> bytes:
            headers = dict(context.invocation_metadata())
            reply = self._owner.take(Received(signal, body, headers, context.peer()))
            if reply.grpc == "OK":
                return reply.partial_success()
            if reply.retry_after is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", reply.status()),))
            context.abort(grpc.StatusCode[reply.grpc], reply.message)
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(export)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, owner: OtlpServer, host: str, port: int, tls: ServerTls | None) -> None:
        self.owner = owner
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self._connections: list[socket] = []
        super().__init__((host, port), _HttpHandler)
        self.port = self.server_port
        self._tls: SSLContext | None = None
        if tls is not None:
            self._tls = SSLContext(PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(tls.certificate, tls.key)
            if tls.client_ca:
                self._tls.load_verify_locations(tls.client_ca)
                self._tls.verify_mode = CERT_REQUIRED
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), name="otlp-server", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
        # Threads of connections that a client keeps open would go on answering.
        for connection in self._connections:
            try:
                connection.shutdown(SHUT_RDWR)
            except OSError:
                pass

    def get_request(self) -> tuple[socket, Any]:
        connection, address = super().get_request()
        if self._tls is not None:
            # The handshake happens at the first read, in the connection's own thread.
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._connections.append(connection)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet about clients that hang up."""


class _HttpHandler(BaseHTTPRequestHandler):
    server: _HttpServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        wire_body = self.rfile.read(int(self.headers["content-length"]))
        signal = next((signal for signal in Signal if self.path.endswith(f"/v1/{signal.value}")), None)
        if signal is None:
            self._reply(404, b"no such path", {"content-type": "text/plain"})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = gzip.decompress(wire_body) if headers.get("content-encoding") == "gzip" else wire_body
        peer = f"{self.client_address[0]}:{self.client_address[1]}"
        reply = self.server.owner.take(Received(signal, body, {**headers, ":path": self.path}, peer, wire_body))
        if reply.silent:
            self.close_connection = True
            return
        content = reply.partial_success() if reply.http == 200 else reply.status()
        answer = {"content-type": "application/x-protobuf"}
        if reply.text is not None:
            content, answer = reply.text.encode(), {"content-type": "text/plain; charset=utf-8"}
        if reply.retry_after is not None:
            answer["retry-after"] = f"{reply.retry_after:g}"
        self._reply(reply.http, content, {**answer, **reply.headers})

    def _reply(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""
