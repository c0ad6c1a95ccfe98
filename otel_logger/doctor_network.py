"""The network as `otel-logger doctor` meets it: endpoints tried by requests with nothing in them."""

from dataclasses import dataclass

from otel_logger.conventions import SCOPE_VERSION
from otel_logger_exporters.answers import Answer
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.dialler import DialError, Dialler
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.failures import unreachable
from otel_logger_exporters.transports import open_transport, user_agent

__all__ = ["Attempt", "Network"]

EMPTY_REQUEST = b""
"""An export request without data, in protobuf; OTLP has servers accept it."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one request came to: the answer, how long it took (s), and by how much our clock is ahead of the server's
    (s, negative when behind; None where the server does not tell its time).
    """

    answer: Answer
    seconds: float = 0.0
    ahead: float | None = None


class Network:
    """Tries endpoints by the transport that runs use, for `timeout` seconds each."""

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self._clock = clock

    def send(self, endpoint: Endpoint) -> Attempt:
        """Send a request without data."""
        # Loads the protocol's package, which is not the server's time.
        transport = open_transport(endpoint, user_agent(SCOPE_VERSION))
        begin, sent = self._clock.monotonic(), self._clock.time_ns() / 1e9
        try:
            answer = transport.send(EMPTY_REQUEST, self.timeout)
        finally:
            transport.close()
        received = self._clock.time_ns() / 1e9
        return Attempt(answer, self._clock.monotonic() - begin, _ahead(answer.server_time, sent, received))

    def connect(self, endpoint: Endpoint) -> Answer | None:
        """Return the answer that there is when not even a connection comes about; None when one does."""
        deadline = Deadline(self._clock)
        deadline.set(self.timeout)
        hop = endpoint.proxy or endpoint
        try:
            Dialler(deadline).dial(hop.host, hop.port).close()
        except DialError as error:
            return unreachable(endpoint, error)
        return None


def _ahead(told: float | None, sent: float, received: float) -> float | None:
    if told is None:
        return None
    # A date has no fraction: the answer was made at some time in [told, told + 1).
    return max(0.0, sent - (told + 1)) or min(0.0, received - told)
