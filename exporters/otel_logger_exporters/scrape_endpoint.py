"""The scrape endpoint: serves what a process measures at `/metrics`, for Prometheus and its kin."""

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.endpoint_urls import host_and_port
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.measurements import Measurement
from otel_logger_exporters.scrape_address import ScrapeAddress, bind
from otel_logger_exporters.scrape_page import Page, ScrapePage
from otel_logger_exporters.scrape_security import ScrapeSecurity
from otel_logger_exporters.scrape_server import Answer, Request, ScrapeServer

__all__ = ["ScrapeEndpoint"]

PATH = "/metrics"

ASK_INTERVAL = 0.1
"""Seconds between looks whether lingering is over for another reason than a scrape."""

SHARE = 0.1
"""Share of the time that making pages takes at most: whoever asks all the time must not slow the training down."""

LONGEST_PAUSE = 2.0
"""Seconds that a scraper waits for its page at most for that reason."""

_TEXT = (("Content-Type", "text/plain; charset=utf-8"),)
_CHALLENGE = ("WWW-Authenticate", 'Basic realm="otel_logger", charset="UTF-8"')


class ScrapeEndpoint:
    """Listens from its construction on, and serves from `start` on; ConfigurationError when it cannot listen.

    Every scrape gets what `collect` and `resource` return at its time, and nothing of it is kept. Thread-safe.
    """

    def __init__(self, address: ScrapeAddress, security: ScrapeSecurity, *, clock: Clock, ledger: Ledger) -> None:
        self._address = address
        self._security = security
        self._clock = clock
        self._ledger = ledger
        # One page at a time: making it is work that the training would notice if there were many at once.
        self._rendering = threading.Lock()
        self._rested_at = 0.0
        self._gone = threading.Event()
        self._page: ScrapePage | None = None
        self._is_last = False
        self._seen = threading.Event()
        try:
            tls = security.context()
        except (OSError, ValueError) as error:
            msg = f"the certificate of the scrape endpoint cannot be loaded: {error}"
            raise ConfigurationError(msg) from None
        self._server = ScrapeServer(bind(address), self._answer, clock=clock, tls=tls)

    @property
    def url(self) -> str:
        """The URL to scrape."""
        return f"{self._security.scheme}://{host_and_port(self._address.host, self._server.port)}{PATH}"

    def start(self, collect: Callable[[], Iterable[Measurement]], resource: Callable[[], Mapping[str, Any]]) -> None:
        """Begin to serve."""
        self._page = ScrapePage(collect, resource)
        try:
            self._server.start()
        except RuntimeError as error:
            self._server.close()
            self._ledger.warn("scrape", f"Nothing is scraped from here, no thread can be started: {error}")

    def linger(self, timeout: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Serve on until a scrape that began after this call has been answered, or `timeout` seconds have passed.

        Return whether there was one. `is_over` is asked now and then, and ends it too.
        """
        self._is_last = True
        deadline = self._clock.monotonic() + timeout
        # At the end of the interpreter the threads that would answer are gone.
        while not self._seen.is_set() and not is_over() and not sys.is_finalizing():
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                break
            self._seen.wait(min(remaining, ASK_INTERVAL))
        return self._seen.is_set()

    def close(self) -> None:
        """Free the port and drop what was served."""
        self._gone.set()
        self._server.close()
        self._page = None

    def abandon(self) -> None:
        """Close what the child of a fork has inherited of it."""
        self._server.abandon()
        self._page = None

    def _answer(self, request: Request) -> Answer:
        if not self._security.admits(request.headers.get("Authorization")):
            return Answer(401, (*_TEXT, _CHALLENGE), b"user and password are missing or wrong\n")
        if request.path == "/":
            return Answer(200, _TEXT, f"otel_logger: metrics are at {PATH}\n".encode())
        page = self._page
        if request.path != PATH or page is None:
            return Answer(404, _TEXT, f"there is nothing here; metrics are at {PATH}\n".encode())
        is_last = self._is_last
        try:
            with self._rendering:
                made = self._render(page, request)
        except Exception as error:
            self._ledger.warn("scrape", f"A scrape failed inside otel_logger: {error!r}")
            return Answer(500, _TEXT, b"the page could not be made\n")
        return Answer(int(made.status[:3]), made.headers, made.body, self._seen.set if is_last else None)

    def _render(self, page: ScrapePage, request: Request) -> Page:
        begun = self._clock.monotonic()
        if begun < self._rested_at:
            self._gone.wait(min(self._rested_at - begun, LONGEST_PAUSE))
            begun = self._clock.monotonic()
        try:
            return page.render(
                accept=request.headers.get("Accept", ""),
                encoding=request.headers.get("Accept-Encoding", ""),
                names=request.query.get("name[]", ()),
            )
        finally:
            ended = self._clock.monotonic()
            self._rested_at = ended + (ended - begun) * (1 / SHARE - 1)
