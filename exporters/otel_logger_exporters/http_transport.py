"""OTLP over HTTP with protobuf: serialised requests in, answers out. The only module that imports urllib3."""

import gzip
import http.client
import ssl

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError, TimeoutError

from otel_logger_exporters.answers import Answer, Verdict, from_http
from otel_logger_exporters.clock import Clock, SystemClock
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.responses import partial_success, shortened, status_message

__all__ = ["HttpTransport"]

CONTENT_TYPE = "application/x-protobuf"

RESPONSE_BYTES = 65_536
"""What is read of a response: many times an OTLP response, a small part of what a server could make us read."""

GZIP_LEVEL = 6
"""Level 9, the default, takes twice the time for a percent of the size."""


class HttpTransport:
    """Sends one signal's requests over one connection, which is kept open."""

    def __init__(self, endpoint: Endpoint, user_agent: str, clock: Clock | None = None) -> None:
        self._endpoint = endpoint
        self._clock = clock or SystemClock()
        own = {"content-type": CONTENT_TYPE, "accept-encoding": "identity"}
        if endpoint.compression == "gzip":
            own["content-encoding"] = "gzip"
        framing = {"content-encoding", "content-length", "transfer-encoding"}
        given = {name: value for name, value in endpoint.headers if name not in framing}
        self._headers = {"user-agent": user_agent, **given, **own}
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=1,
            cert_reqs="CERT_REQUIRED",
            ca_certs=endpoint.certificate,
            key_file=endpoint.client_key,
            cert_file=endpoint.client_certificate,
        )
        self._closed = False

    def send(self, body: bytes, timeout: float) -> Answer:
        """Send one serialised export request and return the answer within `timeout` seconds; never raises."""
        if self._closed:
            return Answer(Verdict.RETRY, "CLOSED", "the transport is closed")
        try:
            return self._send(body, max(timeout, 0.001))
        except (SSLError, ssl.SSLError) as error:
            return self._without_tls(error)
        except NewConnectionError as error:
            return self._disconnected(error)
        except TimeoutError:
            return Answer(Verdict.RETRY, "TIMEOUT", f"{self._endpoint.address} did not answer within {timeout:g} s")
        except (HTTPError, http.client.HTTPException, OSError) as error:
            return self._disconnected(error)
        except Exception as error:
            return Answer(Verdict.RETRY, type(error).__name__, shortened(str(error)))

    def close(self) -> None:
        """Close the connection once it is idle."""
        self._closed = True
        self._pool.clear()

    def _send(self, body: bytes, timeout: float) -> Answer:
        deadline = self._clock.monotonic() + timeout
        # Without the time of writing the same data is the same bytes.
        data = gzip.compress(body, GZIP_LEVEL, mtime=0) if self._endpoint.compression == "gzip" else body
        response = self._pool.request(
            "POST",
            self._endpoint.url,
            body=data,
            headers=self._headers,
            timeout=urllib3.Timeout(total=timeout),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            content = self._content(response, deadline)
        finally:
            # Gives the connection back to the pool when all was read, else closes it.
            response.close()
        return self._answer(response, content)

    def _content(self, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        """Return the body, or as much of it as anybody would read."""
        content = b""
        while len(content) < RESPONSE_BYTES:
            # The timeout of a socket starts anew with each byte that drips in.
            if self._clock.monotonic() > deadline:
                msg = "the response did not end in time"
                raise TimeoutError(msg)
            try:
                part = response.read1(RESPONSE_BYTES - len(content))
            except (HTTPError, OSError):
                if response.status < 300:
                    raise
                # An error's status says enough, and a server that refuses a body may hang up at once.
                break
            if not part:
                break
            content += part
        return content

    def _answer(self, response: urllib3.BaseHTTPResponse, content: bytes) -> Answer:
        status, headers = response.status, response.headers
        content_type = headers.get("content-type", CONTENT_TYPE).lower()
        if 300 <= status < 400:
            location = headers.get("location", "elsewhere").partition("?")[0]
            message = f"redirected to {shortened(location)}, not followed: give the final address"
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

    def _without_tls(self, error: Exception) -> Answer:
        reason = error.args[0] if isinstance(error, SSLError) and error.args else error
        if isinstance(reason, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            return self._disconnected(error)
        return Answer(Verdict.CONFIGURATION, "TLS", f"no TLS with {self._endpoint.address}: {shortened(str(reason))}")

    def _disconnected(self, error: Exception) -> Answer:
        reason = error.args[1] if isinstance(error, ProtocolError) and len(error.args) > 1 else error.__cause__ or error
        address = self._endpoint.address
        foreign = isinstance(reason, (http.client.BadStatusLine, http.client.UnknownProtocol, http.client.LineTooLong))
        if foreign and not isinstance(reason, http.client.RemoteDisconnected):
            message = f"{address} does not speak HTTP/1.1: a gRPC port?"
            return Answer(Verdict.CONFIGURATION, "PROTOCOL", message)
        return Answer(Verdict.RETRY, "CONNECTION", f"no connection to {address}: {shortened(str(reason))}")
