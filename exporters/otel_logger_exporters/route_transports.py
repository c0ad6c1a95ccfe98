"""The transport of a route: to its endpoint, to the console, or to both."""

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.clock import Clock, SystemClock
from otel_logger_exporters.routes import Route
from otel_logger_exporters.transports import Transport, open_transport

__all__ = ["PrintedTransport", "open_route"]

PATIENCE = 0.5
"""Seconds that printing what has been delivered may take."""

SILENCE = 60.0
"""Seconds for which nothing is printed after standard output did not take it."""


def open_route(route: Route, user_agent: str) -> Transport:
    """Return the transport of a signal that is sent; nothing is connected yet."""
    transport = open_transport(route.endpoint, user_agent) if route.endpoint is not None else None
    if transport is not None and not route.is_printed:
        return transport
    # Messages of all signals, which those who print nothing need not load.
    from otel_logger_exporters.console import ConsoleTransport, standard_output

    console = ConsoleTransport(route.signal, standard_output)
    return console if transport is None else PrintedTransport(transport, console)


class PrintedTransport:
    """Sends by one transport and prints what it has delivered, once; what is not printed is delivered all the same."""

    def __init__(self, transport: Transport, console: Transport, clock: Clock | None = None) -> None:
        self._transport = transport
        self._console = console
        self._clock = clock or SystemClock()
        self._silent_until = 0.0

    def send(self, body: bytes, timeout: float) -> Answer:
        """Send one serialised export request and return the answer within `timeout` seconds; never raises."""
        deadline = self._clock.monotonic() + timeout
        answer = self._transport.send(body, timeout)
        now = self._clock.monotonic()
        if answer.verdict is Verdict.ACCEPTED and now >= self._silent_until:
            printed = self._console.send(body, min(PATIENCE, max(0.0, deadline - now)))
            if printed.verdict is not Verdict.ACCEPTED:
                self._silent_until = self._clock.monotonic() + SILENCE
        return answer

    def close(self) -> None:
        """Give the connection back; what is sent after that is answered with RETRY."""
        self._transport.close()
