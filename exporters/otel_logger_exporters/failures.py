"""Failures: the answers that we give ourselves when no server does, in words for people."""

from otel_logger_exporters.answers import Answer, Verdict, from_http
from otel_logger_exporters.dialler import DialError
from otel_logger_exporters.endpoint_urls import GRPC
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.responses import shortened
from otel_logger_exporters.tls import tls_problem

__all__ = [
    "closed",
    "disconnected",
    "foreign",
    "proxy_refused",
    "proxy_without_tls",
    "tls_failed",
    "unanswered",
    "unreachable",
    "wants_tls",
]


def closed() -> Answer:
    """Return the answer of a transport that is closed."""
    return Answer(Verdict.RETRY, "CLOSED", "the transport is closed")


def unreachable(endpoint: Endpoint, error: DialError) -> Answer:
    """Return the answer when there is no connection to the endpoint, or to the proxy before it."""
    whom = f"the proxy {endpoint.proxy.describe()}" if endpoint.proxy else endpoint.address
    return Answer(Verdict.RETRY, error.code, f"no connection to {whom}: {shortened(str(error))}")


def disconnected(endpoint: Endpoint, reason: object) -> Answer:
    """Return the answer when a connection breaks off."""
    return Answer(Verdict.RETRY, "CONNECTION", f"the connection to {endpoint.address} broke off: {_plain(reason)}")


def unanswered(endpoint: Endpoint, timeout: float) -> Answer:
    """Return the answer when the time is up."""
    return Answer(Verdict.RETRY, "TIMEOUT", f"{endpoint.address} did not answer within {timeout:g} s")


def tls_failed(endpoint: Endpoint, problem: Exception | str) -> Answer:
    """Return the answer when TLS does not come about, for an error or for what is known to be the problem."""
    text = problem if isinstance(problem, str) else tls_problem(problem, endpoint)
    return Answer(Verdict.CONFIGURATION, "TLS", f"no TLS with {endpoint.address}: {text}")


def proxy_without_tls(endpoint: Endpoint, error: Exception) -> Answer:
    """Return the answer when a proxy that is to be spoken to by TLS does not, or is not trusted."""
    proxy = endpoint.proxy.describe() if endpoint.proxy else "proxy"
    said = getattr(error, "verify_message", "") or shortened(str(error))
    return Answer(Verdict.CONFIGURATION, "PROXY", f"no TLS with the proxy {proxy}: {said}")


def wants_tls(endpoint: Endpoint) -> Answer:
    """Return the answer when a port that is spoken to without TLS speaks TLS."""
    variable = endpoint.variable("ENDPOINT")
    message = f"{endpoint.address} speaks TLS: write https://{endpoint.address} in {variable}"
    return Answer(Verdict.CONFIGURATION, "PROTOCOL", message)


def foreign(endpoint: Endpoint) -> Answer:
    """Return the answer when a port speaks another protocol than the endpoint's."""
    speaks, other, port = ("gRPC", "http/protobuf", 4317) if endpoint.protocol == GRPC else ("HTTP/1.1", "grpc", 4318)
    message = (
        f"{endpoint.address} does not speak {speaks}: give the port that does, by custom {port}, "
        f"or set {endpoint.variable('PROTOCOL')}={other}"
    )
    return Answer(Verdict.CONFIGURATION, "PROTOCOL", message)


def proxy_refused(endpoint: Endpoint, status: int, reason: str) -> Answer:
    """Return the answer when a proxy does not make a tunnel to the endpoint; a proxy that cannot is tried again."""
    # Retried is what says that the way is blocked for now; whatever else a proxy says is not about the data.
    verdict = Verdict.RETRY if from_http(status, "", None, 0.0).verdict is Verdict.RETRY else Verdict.CONFIGURATION
    proxy = endpoint.proxy.describe() if endpoint.proxy else "proxy"
    message = f"the proxy {proxy} does not lead to {endpoint.address}: {status} {shortened(reason)}".rstrip()
    if status == 407:
        message += " (user and password are missing or wrong: give http://user:password@host:port)"
    return Answer(verdict, "PROXY", message)


def _plain(reason: object) -> str:
    # Without `[Errno 104]`.
    return shortened(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__).lower()
