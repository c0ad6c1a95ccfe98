"""A door: one way to a server that several signals share, and the words in which `otel-logger doctor` speaks of it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from otel_logger import readable
from otel_logger.doctor_network import Attempt
from otel_logger.redaction import REDACTED, Redactor
from otel_logger_exporters.answers import GRPC_ROWS, HTTP_ROWS, LOCAL_ROWS, PHRASES, Answer, Verdict
from otel_logger_exporters.endpoint_urls import GRPC, host_and_port
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.signals import Signal

__all__ = ["CHECK", "DENIED", "Door", "doors", "has_answered", "is_taken_in", "protocol_word", "said"]

CHECK = "endpoint"

DENIED = ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")

_REMEDIES = {row.remedy for row in (*HTTP_ROWS, *GRPC_ROWS, *LOCAL_ROWS, *PHRASES)}

_OF_THE_CHANNEL = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL")
"""Codes of gRPC that its client itself gives when nobody answers, or nobody who speaks gRPC."""

_GRPC_CODES = {code for row in GRPC_ROWS for code in row.codes.split(", ")} - {*_OF_THE_CHANNEL}

_SHORTEST_SECRET = 4
_NO_SECRETS = {"basic", "bearer", "digest", "token"}
"""Words in a header's value that say how it is meant."""

_USER_INFORMATION = re.compile(r"(://)[^/\s@]+@")

_LONGEST_PLAIN_PART = 20
"""Longer parts of a path may be keys: some services name their customers in it."""


@dataclass(frozen=True, slots=True)
class Door:
    """Endpoints, one for each signal, that differ in nothing but their paths, headers and compression."""

    endpoints: tuple[Endpoint, ...]

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that stands for all."""
        return self.endpoints[0]

    @property
    def where(self) -> str:
        """The address and protocol, and the proxy if there is one."""
        return self.endpoint.describe()

    @property
    def signals(self) -> str:
        """The signals, in words."""
        return ", ".join(endpoint.signal.value for endpoint in self.endpoints)

    @property
    def paths(self) -> str:
        """The paths of requests, with parts that may be keys left out."""
        paths = (urlsplit(endpoint.url).path.split("/") for endpoint in self.endpoints)
        shown = ("/".join("..." if len(part) > _LONGEST_PLAIN_PART else part for part in path) for path in paths)
        return readable.text(", ".join(path or "/" for path in shown))

    @property
    def is_of_one_signal(self) -> bool:
        """Whether the endpoint is named by the variable of one signal, whose URL is used as it is."""
        return "ENDPOINT" in self.endpoint.own

    def variable(self, suffix: str) -> str:
        """Return the variable that a setting comes from."""
        return self.endpoint.variable(suffix)

    def of(self, endpoints: Iterable[Endpoint]) -> "Door":
        """Return the door for some of its signals."""
        return Door(tuple(endpoints))

    def otherwise(self, protocol: str, *, port: int | None = None, insecure: bool | None = None) -> Endpoint:
        """Return the endpoint as it would be with another protocol, port, or with or without TLS.

        Without the headers: whoever listens there was never meant to see them.
        """
        endpoint = self.endpoint
        insecure = endpoint.insecure if insecure is None else insecure
        path = "" if protocol == GRPC else f"/v1/{endpoint.signal.value}"
        url = f"{'http' if insecure else 'https'}://{host_and_port(endpoint.host, port or endpoint.port)}{path}"
        return replace(endpoint, url=url, protocol=protocol, insecure=insecure, headers=())


def doors(endpoints: Mapping[Signal, Endpoint]) -> list[Door]:
    """Return the doors that endpoints lead through."""
    found: dict[Endpoint, list[Endpoint]] = {}
    for endpoint in endpoints.values():
        url = urlsplit(endpoint.url)._replace(path="", query="").geturl()
        key = replace(endpoint, signal=Signal.METRICS, url=url, headers=(), timeout=0, compression="none")
        found.setdefault(replace(key, is_compression_asked=True), []).append(endpoint)
    return [Door(tuple(group)) for group in found.values()]


def has_answered(answer: Answer) -> bool:
    """Tell whether an answer came from a server that speaks the endpoint's protocol, or one like it."""
    if answer.code.isdigit():
        # A TLS server tells plain HTTP what it is by 400, which otherwise would be about the data.
        return not (answer.code == "400" and answer.verdict is Verdict.CONFIGURATION)
    return answer.code in _GRPC_CODES and "http2 header" not in answer.message


def is_taken_in(attempt: Attempt) -> bool:
    """Tell whether an OTLP server answered that would take the signal, given the right credentials perhaps."""
    answer = attempt.answer
    return has_answered(answer) and (answer.verdict is Verdict.ACCEPTED or answer.code in (*DENIED, "UNIMPLEMENTED"))


def protocol_word(protocol: str) -> str:
    """Return what people call a protocol."""
    return "gRPC" if protocol == GRPC else "HTTP"


def said(answer: Answer, door: Door) -> str:
    """Return the message of an answer, fit to be printed: without the remedy it comes with, and without secrets."""
    text = readable.text(answer.message)
    for remedy in _REMEDIES:
        text = text.removesuffix(remedy if text == remedy else f" ({remedy})") if remedy else text
    for endpoint in door.endpoints:
        # A server may quote what it does not like.
        for value in _secrets(endpoint):
            text = text.replace(value, REDACTED)
    # Of a URL only what stands before the host is a secret, of other words nobody knows.
    return str(Redactor().redact("", _USER_INFORMATION.sub(rf"\1{REDACTED}@", text)))


def _secrets(endpoint: Endpoint) -> list[str]:
    """Return what of the headers must not be shown, the longest first: whole values, and their words."""
    words = {word for _, value in endpoint.headers for word in (value, *value.split())}
    secret = (word for word in words if len(word) >= _SHORTEST_SECRET and word.lower() not in _NO_SECRETS)
    return sorted(secret, key=len, reverse=True)
