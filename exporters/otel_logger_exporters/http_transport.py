"""OTLP over HTTP with protobuf: serialised requests in, answers out."""

import gzip
import http.client
import re
import ssl
from collections.abc import Iterator
from dataclasses import replace

import urllib3

from otel_logger_exporters.answers import Answer, Verdict, from_http, http_date
from otel_logger_exporters.clock import Clock, SystemClock
from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.diagnosis import diagnose
from otel_logger_exporters.dialler import DialError, Dialler
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.failures import (
    closed,
    disconnected,
    foreign,
    proxy_refused,
    proxy_without_tls,
    tls_failed,
    unanswered,
    unreachable,
    wants_tls,
)
from otel_logger_exporters.http_pool import open_pool
from otel_logger_exporters.responses import partial_success, shortened, status_message

__all__ = ["HttpTransport"]

CONTENT_TYPE = "application/x-protobuf"

RESPONSE_BYTES = 65_536
"""What is read of a response: many times an OTLP response, a small part of what a server could make us read."""

GZIP_LEVEL = 1
"""Level 6 takes over three times the time for one percent of the size (benchmarks/compression.py)."""

_NO_TUNNEL = re.compile(r"Tunnel connection failed: ([0-9]{3}) ?(.*)")
"""How http.client, and urllib3 after it, says that a proxy refused."""

ALERT = "\x15\x03"
"""How a server that speaks TLS begins its answer to plain text, if it gives one."""


class HttpTransport:
    """Sends one signal's requests over one connection, which is kept open."""

    def __init__(
        self, endpoint: Endpoint, user_agent: str, clock: Clock | None = None, dialler: Dialler | None = None
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock or SystemClock()
        own = {"content-type": CONTENT_TYPE, "accept-encoding": "identity"}
        if endpoint.compression == "gzip":
            own["content-encoding"] = "gzip"
        framing = {"content-encoding", "content-length", "transfer-encoding"}
        given = {name: value for name, value in endpoint.headers if name not in framing}
        self._headers = {"user-agent": user_agent, **given, **own}
        self._dialler = dialler or Dialler(Deadline(self._clock))
        self._pool: urllib3.PoolManager | None = None
        self._has_answered = False
        self._closed = False

    def send(self, body: bytes, timeout: float) -> Answer:
        """Send one serialised export request and return the answer within `timeout` seconds; never raises."""
        if self._closed:
            return closed()
        deadline = self._dialler.deadline
        deadline.set(max(timeout, 0.001))
        try:
            pool = self._pool = self._pool or open_pool(self._endpoint, self._dialler)
        except (OSError, ValueError) as error:
            return tls_failed(self._endpoint, error)
        for _ in range(2):
            connections = self._dialler.connections
            try:
                return self._request(pool, body, timeout)
            except Exception as error:
                failure = error
            # Else a server has closed a connection while it was idle, which does not show until it is used.
            if self._dialler.connections > connections or not _is_hung_up(failure):
                break
        answer = self._failed(failure, timeout)
        # One that has answered before is the right one, and only gone.
        if _is_hung_up(failure) and not self._has_answered:
            try:
                return diagnose(self._endpoint, self._dialler, deadline.remaining()) or answer
            except TimeoutError:
                pass
        return answer

    def close(self) -> None:
        """Close the connection once it is idle."""
        self._closed = True
        if self._pool is not None:
            self._pool.clear()

    def _request(self, pool: urllib3.PoolManager, body: bytes, timeout: float) -> Answer:
        # Without the time of writing the same data is the same bytes.
        data = gzip.compress(body, GZIP_LEVEL, mtime=0) if self._endpoint.compression == "gzip" else body
        response = pool.request(
            "POST",
            self._endpoint.url,
            body=data,
            headers=self._headers,
            timeout=urllib3.Timeout(total=max(timeout, 0.001)),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        self._has_answered = True
        try:
            content = _content(response)
        finally:
            # Gives the connection back to the pool when all was read, else closes it.
            response.close()
        return replace(self._answer(response, content), server_time=http_date(response.headers.get("date", "")))

    def _answer(self, response: urllib3.BaseHTTPResponse, content: bytes) -> Answer:
        status, headers = response.status, response.headers
        content_type = headers.get("content-type", CONTENT_TYPE).lower()
        if 300 <= status < 400:
            location = headers.get("location", "elsewhere").partition("?")[0]
            message = f"redirected to {shortened(location)}, not followed"
        else:
            message = status_message(content) or response.reason or ""
        if not 200 <= status < 300:
            return from_http(status, message, headers.get("retry-after"), self._clock.time_ns() / 1e9)
        if content_type.startswith("text/html"):
            # A login page or a dashboard says 200 to everything, and keeps nothing.
            message = f"{self._endpoint.address} answered with a web page: no OTLP endpoint"
            return Answer(Verdict.CONFIGURATION, str(status), message)
        rejected, message = (0, "")
        if content_type.startswith(CONTENT_TYPE):
            rejected, message = partial_success(self._endpoint.signal, content)
        return Answer(Verdict.ACCEPTED, str(status), message, rejected=rejected)

    def _failed(self, error: Exception, timeout: float) -> Answer:
        """Return the answer to an exception: urllib3's are around what happened."""
        endpoint = self._endpoint
        for reason in _chain(error):
            if isinstance(reason, DialError):
                return unreachable(endpoint, reason)
            if isinstance(reason, (TimeoutError, urllib3.exceptions.TimeoutError)):
                return unanswered(endpoint, timeout)
            if isinstance(reason, ssl.SSLError) and not isinstance(reason, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                # A tunnel's end is not the proxy's fault any more, and urllib3 does not call it that.
                is_proxys = isinstance(error, urllib3.exceptions.ProxyError)
                return (proxy_without_tls if is_proxys else tls_failed)(endpoint, reason)
            if (refusal := _NO_TUNNEL.match(str(reason))) is not None:
                return proxy_refused(endpoint, int(refusal[1]), refusal[2])
            if isinstance(reason, http.client.BadStatusLine) and not _is_hung_up(reason):
                return wants_tls(endpoint) if ALERT in str(reason) else foreign(endpoint)
            if isinstance(reason, (http.client.UnknownProtocol, http.client.LineTooLong)):
                return foreign(endpoint)
        if isinstance(error, (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)):
            return disconnected(endpoint, reason)
        return Answer(Verdict.RETRY, type(error).__name__, shortened(str(error)))


def _content(response: urllib3.BaseHTTPResponse) -> bytes:
    """Return the body, or as much of it as anybody would read."""
    content = b""
    while len(content) < RESPONSE_BYTES:
        try:
            part = response.read1(RESPONSE_BYTES - len(content))
        except (urllib3.exceptions.HTTPError, OSError):
            if response.status < 300:
                raise
            # An error's status says enough, and a server that refuses a body may hang up at once.
            break
        if not part:
            break
        content += part
    return content


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those inside it: urllib3 hands them on as arguments or as causes."""
    while error is not None:
        yield error
        error = next((inner for inner in (*error.args, error.__cause__) if isinstance(inner, BaseException)), None)


def _is_hung_up(error: BaseException) -> bool:
    """Return whether the peer closed the connection without an answer."""
    kinds = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return any(isinstance(inner, kinds) for inner in _chain(error))
