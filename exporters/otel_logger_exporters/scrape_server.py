"""The HTTP server of the scrape endpoint: few threads, each bounded in time, and nothing is ever logged.

A scraper that is slow, broken or hostile costs its own connection. What is served are pages made by a function; the
server knows nothing of their content.
"""

import contextlib
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.threads import can_wait_for

__all__ = ["Answer", "Request", "ScrapeServer"]

MAX_CONNECTIONS = 16
"""Connections at a time; one more is closed at once. Prometheus opens one, and some use two."""

MAX_SECONDS = 10.0
"""Seconds that a connection lives at most, which is how long Prometheus itself waits by default."""

PAUSE = 1.0
"""Seconds until a connection is accepted again after none could be."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: the path, the query's values, and the headers."""

    path: str
    query: dict[str, list[str]]
    headers: Message


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered; `on_sent` is called when all of it is the operating system's to deliver."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    on_sent: Callable[[], None] | None = None


class ScrapeServer:
    """Answers requests on a socket that listens, in a daemon thread, and in one more for each connection.

    `close` frees the port, and so does the end of the process. In the child of a fork call `abandon`.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Request], Answer],
        *,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        # A connection that has gone again before it is accepted must not be waited for.
        self._listener.setblocking(False)
        self._answer = answer
        self._clock = clock
        self._tls = tls
        self._max_seconds = max_seconds
        self._wake, self._woken = socket.socketpair()
        self._connections: dict[socket.socket, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel_logger scrape", daemon=True)

    def start(self) -> None:
        """Begin to answer; RuntimeError where no thread can be started."""
        self._thread.start()

    def close(self) -> None:
        """Free the port at once, and end what connections there are."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._wake.send(b"!")
        if can_wait_for(self._thread):
            self._thread.join(1.0)
        self._listener.close()
        for connection in tuple(self._connections):
            _end(connection)
        self._wake.close()
        if not self._thread.is_alive():
            # Also where it was never started.
            self._woken.close()

    def abandon(self) -> None:
        """Close what the child of a fork has inherited; the parent's connections stay as they are."""
        for inherited in (self._listener, self._wake, self._woken, *tuple(self._connections)):
            with contextlib.suppress(OSError):
                # Of a socket with TLS too the descriptor alone: a farewell would be sent in the parent's name.
                socket.socket.close(inherited)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._listen()
            except Exception:
                # Too many open files, for instance, of which the listener would tell again at once.
                self._closing.wait(PAUSE)
        self._woken.close()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._closing.is_set():
                selector.select(self._patience())
                self._end_late()
                if not self._closing.is_set():
                    self._accept()

    def _patience(self) -> float | None:
        ends = tuple(self._connections.values())
        return max(0.0, min(ends) - self._clock.monotonic()) if ends else None

    def _end_late(self) -> None:
        now = self._clock.monotonic()
        for connection, end in tuple(self._connections.items()):
            if end <= now:
                _end(connection)
                self._connections.pop(connection, None)

    def _accept(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.settimeout(self._max_seconds)
        if self._tls is not None:
            try:
                # The handshake is the connection's own thread's.
                connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            except OSError:
                # It has gone again.
                connection.close()
                return
        self._connections[connection] = self._clock.monotonic() + self._max_seconds
        thread = threading.Thread(
            target=self._serve, args=(connection, peer), name="otel_logger scrape connection", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # Since Python 3.12 no thread starts at the exit of the interpreter, where a last scrape may be waited for.
            self._serve(connection, peer)

    def _serve(self, connection: socket.socket, peer: Any) -> None:
        try:
            _Handler(connection, peer, self._answer)
        except Exception:
            # Whatever a scraper does wrong is its own affair.
            pass
        finally:
            self._connections.pop(connection, None)
            with contextlib.suppress(OSError):
                connection.close()


def _end(connection: socket.socket) -> None:
    # That of the plain socket, also where TLS is spoken: its own would touch what another thread is using.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One connection, with one request."""

    # Headers and a small page go out together: a connection that is ended in between would be a broken scrape.
    wbufsize = -1

    def __init__(self, connection: socket.socket, peer: Any, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        super().__init__(connection, peer, None)  # type: ignore[arg-type]

    def version_string(self) -> str:
        """Return nothing of versions, which are nobody's business."""
        return "otel_logger"

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def do_GET(self) -> None:
        """Answer a request."""
        self._reply(with_body=True)

    def do_HEAD(self) -> None:
        """Answer a request for the headers alone."""
        self._reply(with_body=False)

    def _reply(self, *, with_body: bool) -> None:
        parts = urlsplit(self.path)
        answer = self._answer(Request(parts.path, parse_qs(parts.query), self.headers))
        self.send_response(answer.status)
        for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)
            self.wfile.flush()
            if answer.on_sent is not None:
                answer.on_sent()
