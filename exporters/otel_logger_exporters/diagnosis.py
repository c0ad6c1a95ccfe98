"""Diagnosis: why a request found nobody to answer it, asked of the network itself.

gRPC tells everything that goes wrong before a request arrives by one code, UNAVAILABLE, in words that change with its
versions; an HTTP server that wants TLS, or a client's certificate, may just hang up. So the way is gone once more, hop
by hop, and no request is sent. What is found decides between waiting and telling somebody to change a setting.
"""

import socket
import ssl
from typing import Any

from otel_logger_exporters.answers import Answer
from otel_logger_exporters.dialler import DialError, Dialler
from otel_logger_exporters.endpoint_urls import GRPC
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.failures import disconnected, foreign, proxy_refused, tls_failed, unreachable, wants_tls
from otel_logger_exporters.proxies import Proxy
from otel_logger_exporters.sockets import PunctualContext
from otel_logger_exporters.tls import certificate_problem, client_context

__all__ = ["diagnose"]

LONGEST = 2.0
"""Seconds of a diagnosis at most."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What an HTTP/2 client begins with: the preface and SETTINGS without any."""

SETTINGS = 4
"""The type of the frame that an HTTP/2 server begins with, which stands in the fourth byte."""

HTTP1, HTTP2 = "http/1.1", "h2"
"""What they are called in a handshake."""

ALERT = b"\x15\x03"
"""How a server that speaks TLS begins its answer to plain text, if it gives one."""

HANDSHAKE, CERTIFICATE_REQUEST = 22, 13
"""A type of TLS's records, and the message in them by which a server asks for a client's certificate."""

HEAD_BYTES = 16_384


class _Cause(Exception):
    """What was looked for is found."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


def diagnose(endpoint: Endpoint, dialler: Dialler, timeout: float, authorities: str | None = None) -> Answer | None:
    """Return what is wrong on the way to an endpoint, None when nothing is found within `timeout` seconds.

    `authorities` is a file of those to trust where the endpoint names none, in place of the system's.
    """
    proxy = endpoint.proxy
    if proxy is not None and (proxy.scheme == "https" or (endpoint.insecure and endpoint.protocol != GRPC)):
        # TLS within TLS, which sockets cannot do, and requests that the proxy forwards without a tunnel.
        return None
    dialler.deadline.set(min(timeout, LONGEST))
    try:
        if endpoint.insecure:
            _greet(endpoint, dialler)
        else:
            _shake_hands(endpoint, dialler, authorities)
    except _Cause as cause:
        return cause.answer
    except DialError as error:
        # What is only late is told by what has waited longer.
        return None if error.code == "TIMEOUT" else unreachable(endpoint, error)
    except (OSError, ValueError):
        # Looking for a cause must not become one: what remains is what the request met with.
        pass
    return None


def _shake_hands(endpoint: Endpoint, dialler: Dialler, authorities: str | None) -> None:
    """Look whether TLS comes about, and whether it lasts."""
    try:
        context = client_context(endpoint, dialler.deadline, authorities)
    except (OSError, ValueError) as error:
        raise _Cause(tls_failed(endpoint, error)) from None
    context.set_alpn_protocols([HTTP2 if endpoint.protocol == GRPC else HTTP1])
    requests = _certificate_requests(context)
    chosen = None
    with _connected(endpoint, dialler) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=endpoint.host.rstrip(".")) as secured:
                chosen = secured.selected_alpn_protocol()
                if endpoint.protocol == GRPC and chosen != HTTP2:
                    raise _Cause(foreign(endpoint))
                # In TLS 1.3 a server that misses our certificate says so when the handshake is over for us. Nothing is
                # sent before: a server that does not read it resets the connection, and its own word is lost.
                ended = not secured.recv(1)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError):
            ended = True
        except ssl.SSLError as error:
            raise _Cause(tls_failed(endpoint, error)) from None
    # gRPC's own servers hang up without a word.
    if ended and requests:
        raise _Cause(tls_failed(endpoint, certificate_problem(endpoint, "")))
    if ended:
        if endpoint.protocol != GRPC and chosen is None:
            _try_http2(endpoint, dialler, context)
        raise _Cause(disconnected(endpoint, "it hangs up"))


def _try_http2(endpoint: Endpoint, dialler: Dialler, context: PunctualContext) -> None:
    """Look whether a port hangs up on HTTP/1.1 because it speaks HTTP/2 alone, as gRPC's do."""
    context.set_alpn_protocols([HTTP2])
    with _connected(endpoint, dialler) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=endpoint.host.rstrip(".")) as secured:
                if secured.selected_alpn_protocol() == HTTP2:
                    raise _Cause(foreign(endpoint))
        except OSError:
            pass


def _greet(endpoint: Endpoint, dialler: Dialler) -> None:
    """Greet as an HTTP/2 client does, and look who answers."""
    answer = b""
    with _connected(endpoint, dialler) as connection:
        try:
            connection.sendall(PREFACE)
            while len(answer) < SETTINGS and (part := connection.recv(SETTINGS - len(answer))):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    if not answer:
        _try_tls(endpoint, dialler)
        raise _Cause(disconnected(endpoint, "it hangs up"))
    if answer.startswith(ALERT):
        raise _Cause(wants_tls(endpoint))
    if len(answer) < SETTINGS:
        raise _Cause(disconnected(endpoint, "it hangs up"))
    if (answer[SETTINGS - 1 :] == bytes((SETTINGS,))) != (endpoint.protocol == GRPC):
        raise _Cause(foreign(endpoint))


def _try_tls(endpoint: Endpoint, dialler: Dialler) -> None:
    """Look whether a port hangs up on plain text because it speaks TLS."""
    context = PunctualContext.keeping(dialler.deadline)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _connected(endpoint, dialler) as connection:
        try:
            context.wrap_socket(connection, server_hostname=endpoint.host.rstrip(".")).close()
        except ssl.SSLError as error:
            # An alert is an answer in TLS.
            if "ALERT" not in (error.reason or ""):
                return
        except ConnectionError:
            return
    raise _Cause(wants_tls(endpoint))


def _connected(endpoint: Endpoint, dialler: Dialler) -> socket.socket:
    """Return a connection to the endpoint, through its proxy if it has one."""
    proxy = endpoint.proxy
    hop = proxy or endpoint
    connection = dialler.dial(hop.host, hop.port)
    try:
        if proxy is not None:
            _tunnel(endpoint, proxy, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _tunnel(endpoint: Endpoint, proxy: Proxy, connection: socket.socket) -> None:
    """Have the proxy connect to the endpoint."""
    lines = [f"CONNECT {endpoint.address} HTTP/1.1", f"Host: {endpoint.address}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    connection.sendall("\r\n".join((*lines, "", "")).encode())
    head = b""
    # Byte by byte: what follows belongs to the endpoint.
    while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_BYTES and (part := connection.recv(1)):
        head += part
    version, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    status, _, reason = rest.partition(" ")
    if version.startswith("HTTP/") and status.isdecimal() and status != "200":
        raise _Cause(proxy_refused(endpoint, int(status), reason))


def _certificate_requests(context: PunctualContext) -> list[int]:
    """Return a list that fills when a server asks for our certificate."""
    requests: list[int] = []

    def seen(_: Any, direction: str, version: int, kind: int, message: int, data: bytes) -> None:
        if (kind, message) == (HANDSHAKE, CERTIFICATE_REQUEST):
            requests.append(message)

    # The standard library's way to look into a handshake is private; without it a silent refusal goes unexplained.
    if hasattr(context, "_msg_callback"):
        context._msg_callback = seen
    return requests
