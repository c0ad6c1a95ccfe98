"""Answers: what a server's reply, or the lack of one, means for the data that was sent.

Four verdicts, of which none loses anything: ACCEPTED; RETRY (the same again, after a while, for ever); CONFIGURATION
(somebody has to change a setting, so everything is kept and tried now and then); REFUSED (the data itself is at fault,
so it is divided until what is refused stands alone). The tables give every code its verdict. They are wider than
OTLP's list of retryable codes: that one says what a client may send again, here the other choice is to set data aside,
which only an answer about the data justifies. A code that is in no table therefore is CONFIGURATION.
"""

import re
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from enum import Enum

__all__ = ["GRPC_VERDICTS", "HTTP_VERDICTS", "Answer", "Verdict", "from_grpc", "from_http"]


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
    request that the server dropped for good.
    """

    verdict: Verdict
    code: str
    message: str = ""
    retry_after: float | None = None
    rejected: int = 0


GRPC_VERDICTS = {
    "OK": Verdict.ACCEPTED,
    "CANCELLED": Verdict.RETRY,
    # Servers' own faults: what HTTP says with 500.
    "UNKNOWN": Verdict.RETRY,
    "INTERNAL": Verdict.RETRY,
    "DEADLINE_EXCEEDED": Verdict.RETRY,
    "RESOURCE_EXHAUSTED": Verdict.RETRY,
    "ABORTED": Verdict.RETRY,
    "OUT_OF_RANGE": Verdict.RETRY,
    "UNAVAILABLE": Verdict.RETRY,
    "DATA_LOSS": Verdict.RETRY,
    "UNAUTHENTICATED": Verdict.CONFIGURATION,
    "PERMISSION_DENIED": Verdict.CONFIGURATION,
    "UNIMPLEMENTED": Verdict.CONFIGURATION,
    "NOT_FOUND": Verdict.CONFIGURATION,
    "ALREADY_EXISTS": Verdict.CONFIGURATION,
    "FAILED_PRECONDITION": Verdict.CONFIGURATION,
    "INVALID_ARGUMENT": Verdict.REFUSED,
}
"""The verdict for every status code of gRPC; a message may say more (see `from_grpc`)."""

HTTP_VERDICTS = {
    **dict.fromkeys(range(200, 300), Verdict.ACCEPTED),
    # Redirects are never followed: headers with keys would go to a host that nobody named.
    **dict.fromkeys(range(300, 400), Verdict.CONFIGURATION),
    **dict.fromkeys(range(400, 500), Verdict.CONFIGURATION),
    **dict.fromkeys(range(500, 600), Verdict.RETRY),
    **dict.fromkeys((408, 425, 429), Verdict.RETRY),
    **dict.fromkeys((400, 413, 422), Verdict.REFUSED),
    # Not implemented, HTTP version, "log in to the network first": the server works, the setting does not.
    **dict.fromkeys((501, 505, 511), Verdict.CONFIGURATION),
}
"""The verdict for every HTTP status from 200 to 599; a message may say more (see `from_http`)."""

TOO_OLD = ("out of order", "too old", "out of bounds", "too far behind")
"""How Prometheus, Mimir and Loki say that they would take the data if it were newer."""

TOO_OLD_REMEDY = (
    "the backend refuses data of this age: enlarge Prometheus' out_of_order_time_window, "
    "in Loki reject_old_samples_max_age"
)

TOO_LARGE = ("larger than max",)
"""How gRPC servers say that a request will never fit; otherwise RESOURCE_EXHAUSTED is about rate or memory."""

WRONG_DOOR = (
    "http request to an https server",
    "plain http request was sent to https port",
    "http1.x server",
    "failed parsing http/2",
    "ssl_error_ssl",
    "security handshaker",
    "peer certificate",
    "verification check failed",
)
"""Answers from a port that speaks another protocol, and of TLS: gRPC has UNAVAILABLE for both, Go and nginx say 400."""


def from_http(status: int, body_message: str, retry_after_header: str | None, now: float) -> Answer:
    """Return what an HTTP answer means; `now` is the time in seconds since the epoch, for a Retry-After with a date."""
    verdict = HTTP_VERDICTS.get(status, Verdict.CONFIGURATION)
    return _judged(verdict, str(status), body_message, _seconds(retry_after_header or "", now))


def from_grpc(code_name: str, details: str, retry_delay: float | None = None) -> Answer:
    """Return what a gRPC status means; `retry_delay` is what RetryInfo asked for, in seconds."""
    verdict = GRPC_VERDICTS.get(code_name, Verdict.CONFIGURATION)
    if code_name == "RESOURCE_EXHAUSTED" and _says(details, TOO_LARGE):
        verdict = Verdict.REFUSED
    return _judged(verdict, code_name, details, retry_delay)


def _judged(verdict: Verdict, code: str, message: str, retry_after: float | None) -> Answer:
    if verdict is Verdict.REFUSED and _says(message, TOO_OLD):
        return Answer(Verdict.CONFIGURATION, code, f"{message} ({TOO_OLD_REMEDY})")
    if verdict is not Verdict.ACCEPTED and _says(message, WRONG_DOOR):
        return Answer(Verdict.CONFIGURATION, code, message)
    return Answer(verdict, code, message, retry_after if verdict is Verdict.RETRY else None)


def _says(message: str, phrases: tuple[str, ...]) -> bool:
    # Mimir writes its error identifiers with hyphens: err-mimir-sample-out-of-order.
    text = message.lower().replace("-", " ")
    return any(phrase in text for phrase in phrases)


def _seconds(header: str, now: float) -> float | None:
    """Return the wait that a Retry-After header asks for, None when it cannot be understood."""
    header = header.strip()
    if re.fullmatch(r"[0-9]{1,18}(\.[0-9]+)?", header):
        return float(header)
    try:
        date = parsedate_to_datetime(header)
        # HTTP's dates are in GMT, also where a server leaves the zone out.
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
