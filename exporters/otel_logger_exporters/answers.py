"""Answers: what a server's reply, or the lack of one, means for the data that was sent.

Four verdicts, of which none loses anything: ACCEPTED; RETRY (the same again, after a while, for ever); CONFIGURATION
(somebody has to change a setting, so everything is kept and tried now and then); REFUSED (the data itself is at fault,
so it is divided until what is refused stands alone). The tables give every code its verdict; docs/answers.md is made
of them. They are wider than OTLP's list of retryable codes: that one says what a client may send again, here the other
choice is to set data aside, which only an answer about the data justifies. A code that is in no table therefore is
CONFIGURATION.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timezone
from email.utils import parsedate_to_datetime
from enum import Enum

__all__ = [
    "GRPC_ROWS",
    "GRPC_VERDICTS",
    "HTTP_ROWS",
    "HTTP_VERDICTS",
    "LOCAL_ROWS",
    "PHRASES",
    "Answer",
    "Phrase",
    "Row",
    "Verdict",
    "from_grpc",
    "from_http",
    "http_date",
]


class Verdict(Enum):
    """What to do with what was sent."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    CONFIGURATION = "configuration"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: the verdict, the code behind it (`503`, `UNAVAILABLE`, `TIMEOUT`), and what the server said.

    `retry_after` is the wait in seconds that a retry was told to keep; `rejected` counts the items of an accepted
    request that the server dropped for good; `server_time` is the server's clock in seconds since the epoch, where it
    tells it.
    """

    verdict: Verdict
    code: str
    message: str = ""
    retry_after: float | None = None
    rejected: int = 0
    # Two answers that differ in the time of day alone say the same.
    server_time: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: codes (`400, 422`, `500-599`), their verdict, what they say, what its reader can do."""

    codes: str
    verdict: Verdict
    meaning: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in a server's message that change the verdict of its code, and what its reader can do."""

    words: tuple[str, ...]
    of: str
    verdict: Verdict
    meaning: str
    remedy: str = ""


HTTP_ROWS = (
    Row("200-299", Verdict.ACCEPTED, "taken, but for what a partial success says is rejected"),
    Row(
        "300-399",
        # Headers with keys would go to a host that nobody named.
        Verdict.CONFIGURATION,
        "a redirect, which is never followed",
        "give the final address in OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
    Row("400, 422", Verdict.REFUSED, "something in the data is wrong"),
    Row(
        "401, 403",
        Verdict.CONFIGURATION,
        "credentials are missing, wrong, or not enough",
        "check OTEL_EXPORTER_OTLP_HEADERS",
    ),
    Row(
        "404, 405",
        Verdict.CONFIGURATION,
        "there is no OTLP at this path",
        "check the path in OTEL_EXPORTER_OTLP_ENDPOINT, to which /v1/metrics and the like are appended; a signal's own "
        "variable is used as it is",
    ),
    Row(
        "407",
        Verdict.CONFIGURATION,
        "the proxy wants a user and password",
        "give http://user:password@host:port in the proxy's variable",
    ),
    Row("408, 425, 429", Verdict.RETRY, "too slow, too early, or too much at once"),
    Row("413", Verdict.REFUSED, "the request is too large"),
    Row(
        "415",
        Verdict.CONFIGURATION,
        "the server reads no protobuf, or not as it is compressed",
        "check OTEL_EXPORTER_OTLP_PROTOCOL and OTEL_EXPORTER_OTLP_COMPRESSION",
    ),
    Row(
        "501, 505, 511",
        Verdict.CONFIGURATION,
        "the server works and will not do this: not implemented, HTTP version, log in to the network first",
        "check OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
    Row(
        "400-499",
        Verdict.CONFIGURATION,
        "any other fault of the request that is none of the data",
        "check OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
    Row("500-599", Verdict.RETRY, "the server, or one behind it, is at fault"),
)
"""Every HTTP status from 200 to 599; the first line that has a status counts. A message may say more (PHRASES)."""

GRPC_ROWS = (
    Row("OK", Verdict.ACCEPTED, "taken, but for what a partial success says is rejected"),
    Row("UNAVAILABLE", Verdict.RETRY, "the server cannot be reached, or cannot take anything now"),
    Row("DEADLINE_EXCEEDED", Verdict.RETRY, "no answer in time"),
    Row("RESOURCE_EXHAUSTED", Verdict.RETRY, "too much at once, or no memory"),
    Row(
        "CANCELLED, ABORTED, OUT_OF_RANGE, DATA_LOSS",
        Verdict.RETRY,
        "the request came to nothing, which OTLP lets a client try again",
    ),
    Row("UNKNOWN, INTERNAL", Verdict.RETRY, "the server, or one behind it, is at fault, as with HTTP's 500"),
    Row("INVALID_ARGUMENT", Verdict.REFUSED, "something in the data is wrong"),
    Row(
        "UNAUTHENTICATED, PERMISSION_DENIED",
        Verdict.CONFIGURATION,
        "credentials are missing, wrong, or not enough",
        "check OTEL_EXPORTER_OTLP_HEADERS",
    ),
    Row(
        "UNIMPLEMENTED",
        Verdict.CONFIGURATION,
        "the server does not take this signal, or not as it is compressed, or speaks no OTLP",
        "check OTEL_EXPORTER_OTLP_ENDPOINT and the server's pipelines",
    ),
    Row(
        "NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION",
        Verdict.CONFIGURATION,
        "nothing that OTLP knows of",
        "check OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
)
"""Every status code of gRPC. A message may say more (PHRASES)."""

LOCAL_ROWS = (
    Row("DNS", Verdict.RETRY, "the name of the host, or of the proxy, cannot be resolved"),
    Row("CONNECTION", Verdict.RETRY, "there is no connection, or it broke off"),
    Row("TIMEOUT", Verdict.RETRY, "no connection or no answer within OTEL_EXPORTER_OTLP_TIMEOUT"),
    Row(
        "TLS",
        Verdict.CONFIGURATION,
        "no TLS, or a certificate that one side does not accept",
        "the message names the variable and the file to look at",
    ),
    Row(
        "PROTOCOL",
        Verdict.CONFIGURATION,
        "the port speaks another protocol",
        "check OTEL_EXPORTER_OTLP_PROTOCOL and the port: 4317 is gRPC's, 4318 HTTP's",
    ),
    Row(
        "PROXY",
        Verdict.CONFIGURATION,
        "the proxy does not let us through (when it cannot reach the server: retry)",
        "check the proxy's variable, which the message names, or NO_PROXY",
    ),
    Row("CLOSED", Verdict.RETRY, "the logger is being closed"),
)
"""What we say ourselves when no server says anything."""

PHRASES = (
    Phrase(
        # In the words of gRPC's core and Go, of Java, of .NET, of tonic.
        ("larger than max", "exceeds maximum size", "the maximum configured message size", "message length too large"),
        "RESOURCE_EXHAUSTED, OUT_OF_RANGE",
        Verdict.REFUSED,
        "the request will never fit, so it is divided",
    ),
    Phrase(
        # In the words of gRPC in Go, in Python, in Java.
        ("error unmarshalling request", "exception deserializing request", "invalid protobuf byte sequence"),
        "INTERNAL",
        Verdict.REFUSED,
        "the server cannot read the request, and never will",
    ),
    Phrase(
        # In the words of Prometheus, Mimir and Loki, who would take the data if it were newer.
        ("out of order", "too old", "out of bounds", "too far behind"),
        "400, 422, INVALID_ARGUMENT",
        Verdict.CONFIGURATION,
        "the data is too old for the backend",
        "enlarge Prometheus' out_of_order_time_window, in Loki reject_old_samples_max_age",
    ),
    Phrase(
        # Of Go and nginx by 400, of gRPC by UNAVAILABLE.
        (
            "http request to an https server",
            "plain http request was sent to https port",
            "http1.x server",
            "failed parsing http/2",
            "ssl_error_ssl",
            "security handshaker",
            "peer certificate",
            "verification check failed",
        ),
        "400, UNAVAILABLE",
        Verdict.CONFIGURATION,
        "the port wants TLS, or no TLS, or speaks another protocol, or a certificate is not accepted",
        "check OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL and OTEL_EXPORTER_OTLP_CERTIFICATE",
    ),
)
"""What messages say beyond their codes."""


def _codes(row: Row) -> Iterator[str]:
    for item in row.codes.split(", "):
        first, dash, last = item.partition("-")
        yield from map(str, range(int(first), int(last) + 1)) if dash else (item,)


# The first line counts, so it is written last.
_HTTP = {code: row for row in reversed(HTTP_ROWS) for code in _codes(row)}
_GRPC = {code: row for row in GRPC_ROWS for code in _codes(row)}

HTTP_VERDICTS = {int(code): row.verdict for code, row in sorted(_HTTP.items())}
"""The verdict for every HTTP status from 200 to 599; a message may say more (see `from_http`)."""

GRPC_VERDICTS = {code: row.verdict for code, row in _GRPC.items()}
"""The verdict for every status code of gRPC; a message may say more (see `from_grpc`)."""

_UNKNOWN = Row("", Verdict.CONFIGURATION, "", "check OTEL_EXPORTER_OTLP_ENDPOINT")


def from_http(status: int, body_message: str, retry_after_header: str | None, now: float) -> Answer:
    """Return what an HTTP answer means; `now` is the time in seconds since the epoch, for a Retry-After with a date."""
    row = _HTTP.get(str(status), _UNKNOWN)
    return _judged(row, str(status), body_message, _seconds(retry_after_header or "", now))


def from_grpc(code_name: str, details: str, retry_delay: float | None = None) -> Answer:
    """Return what a gRPC status means; `retry_delay` is what RetryInfo asked for, in seconds."""
    return _judged(_GRPC.get(code_name, _UNKNOWN), code_name, details, retry_delay)


def _judged(row: Row, code: str, message: str, retry_after: float | None) -> Answer:
    # Mimir writes its error identifiers with hyphens: err-mimir-sample-out-of-order.
    text = message.lower().replace("-", " ")
    for phrase in PHRASES:
        if code in phrase.of.split(", ") and any(words in text for words in phrase.words):
            return Answer(phrase.verdict, code, _with(message, phrase.remedy))
    return Answer(row.verdict, code, _with(message, row.remedy), retry_after if row.verdict is Verdict.RETRY else None)


def _with(message: str, remedy: str) -> str:
    return f"{message} ({remedy})" if message and remedy else message or remedy


def _seconds(header: str, now: float) -> float | None:
    """Return the wait that a Retry-After header asks for, None when it cannot be understood."""
    header = header.strip()
    if re.fullmatch(r"[0-9]{1,18}(\.[0-9]+)?", header):
        return float(header)
    date = http_date(header)
    return None if date is None else max(0.0, date - now)


def http_date(header: str) -> float | None:
    """Return the seconds since the epoch that the date of an HTTP header is, None when it is none."""
    try:
        date = parsedate_to_datetime(header)
        # HTTP's dates are in GMT, also where a server leaves the zone out.
        return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
