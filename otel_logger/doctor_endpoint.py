"""The check of endpoints: an empty export request to each, by the transport of runs, and what the answers mean."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from otel_logger.doctor_connection import diagnose, speaks_other, wants_password
from otel_logger.doctor_door import CHECK, Door, doors, has_answered, is_taken_in, said
from otel_logger.doctor_network import Attempt, Network
from otel_logger.findings import Finding, fine, problem, warning
from otel_logger.redaction import REDACTED, Redactor
from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.endpoint_urls import GRPC, HTTP, is_loopback
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.signals import Signal

__all__ = ["EndpointCheck"]

CREDENTIALS = "credentials"

BASES = ("", "/otlp", "/api/v1/otlp")
"""Paths below which servers take OTLP: Collectors and Tempo; Loki, Mimir and Grafana Cloud; Prometheus."""

_UNAUTHENTICATED = ("401", "UNAUTHENTICATED")
_FORBIDDEN = ("403", "PERMISSION_DENIED")
_NO_SUCH_PLACE = ("404", "UNIMPLEMENTED")
_NO_OTLP = ("400", "404", "405", "415", "426", "464", "501", "505")
"""What servers say to a request that is none of their protocol's."""


class EndpointCheck:
    """Tries each endpoint. `ahead` is by how much (s) our clock is ahead of that of a server, `teller`, if one told."""

    def __init__(self, network: Network) -> None:
        self.ahead: float | None = None
        self.teller: str | None = None
        self._network = network

    def run(self, endpoints: Mapping[Signal, Endpoint]) -> Iterator[Finding]:
        """Yield what each door to a server comes to."""
        for door in doors(endpoints):
            yield from self._door(door)

    def _door(self, door: Door) -> Iterator[Finding]:
        answers: dict[Answer, list[tuple[Endpoint, Attempt]]] = {}
        unanswered = None
        for number, endpoint in enumerate(door.endpoints):
            attempt = self._network.send(endpoint)
            self._note_time(endpoint, attempt)
            if not has_answered(attempt.answer):
                # What is wrong with the way is wrong for the other signals too.
                unanswered = diagnose(door.of(door.endpoints[number:]), attempt.answer, self._network)
                break
            answers.setdefault(attempt.answer, []).append((endpoint, attempt))
        taken = [answer for answer in answers if answer.verdict is Verdict.ACCEPTED]
        for answer, tried in answers.items():
            part = door.of(endpoint for endpoint, _ in tried)
            yield self._explained(part, answer, tried[0][1], is_taken_otherwise=bool(taken))
        if unanswered is not None:
            yield unanswered
        elif taken:
            yield from _credentials(door)

    def _note_time(self, endpoint: Endpoint, attempt: Attempt) -> None:
        # What a proxy says by itself has its own time.
        is_server = endpoint.proxy is None or attempt.answer.verdict is Verdict.ACCEPTED
        if attempt.ahead is not None and self.teller is None and is_server:
            self.ahead, self.teller = attempt.ahead, endpoint.address

    def _explained(self, door: Door, answer: Answer, attempt: Attempt, *, is_taken_otherwise: bool) -> Finding:
        code, words = answer.code, _words(answer, door)
        if answer.verdict is Verdict.ACCEPTED:
            remark = f"; it remarks: {said(answer, door)}" if answer.message else ""
            return fine(CHECK, f"{door.where} takes {door.signals}, in {attempt.seconds * 1000:.0f} ms{remark}")
        if code in (*_UNAUTHENTICATED, *_FORBIDDEN):
            return _denied(door, answer)
        if code in _NO_OTLP and not is_taken_otherwise and (swapped := self._swapped(door)) is not None:
            return swapped
        if code in _NO_SUCH_PLACE:
            return self._misplaced(door, answer, is_taken_otherwise=is_taken_otherwise)
        if answer.verdict is Verdict.REFUSED:
            if code in ("413", "RESOURCE_EXHAUSTED"):
                remedy = "Raise the limit of the size of requests there, or at the proxy before it."
                return problem(CHECK, f"{door.where} finds a request without data too large ({words})", remedy)
            return warning(
                CHECK,
                f"{door.where} is there, but refuses a request without data ({words})",
                "Some servers do, Loki among them: the last line of a run tells what was really delivered.",
            )
        if code in ("429", "RESOURCE_EXHAUSTED"):
            remedy = "Raise its limits if that lasts. Data waits on disk meanwhile."
            return warning(CHECK, f"{door.where} takes no more at present ({words})", remedy)
        if answer.verdict is Verdict.RETRY:
            remedy = "See the log of the server, and of what is behind it. Data waits on disk meanwhile."
            return problem(CHECK, f"{door.where} fails ({words})", remedy)
        if code == "407" and (proxy := door.endpoint.proxy) is not None:
            return problem(
                CHECK, f"the proxy {proxy.describe()} does not let us through ({words})", wants_password(proxy)
            )
        if code.startswith("3"):
            remedy = f"Set {door.variable('ENDPOINT')} to where it redirects to."
            return problem(CHECK, f"{door.where} redirects, which is not followed ({words})", remedy)
        remedy = f"Set {door.variable('ENDPOINT')} to the OTLP address of the server; a Collector's is its port 4318."
        return problem(CHECK, f"{door.where} is no OTLP endpoint ({words})", remedy)

    def _swapped(self, door: Door) -> Finding | None:
        """Return that the port speaks the other protocol, when it does."""
        other = GRPC if door.endpoint.protocol == HTTP else HTTP
        if not is_taken_in(self._network.send(door.otherwise(other))):
            return None
        return speaks_other(door, other, self._network)

    def _misplaced(self, door: Door, answer: Answer, *, is_taken_otherwise: bool) -> Finding:
        words = _words(answer, door)
        if door.endpoint.protocol == GRPC:
            found = f"{door.where} takes no {door.signals} ({words})"
        else:
            if (path := self._right_path(door.endpoint)) is not None:
                return _wrong_path(door, path)
            found = f"{door.where} has nothing at {door.paths} ({words})"
        if is_taken_otherwise:
            exporters = " and ".join(f"OTEL_{e.signal.name}_EXPORTER=none" for e in door.endpoints)
            remedy = f"Give the server a pipeline for {door.signals}, or set {exporters} to record none."
        else:
            remedy = f"Set {door.variable('ENDPOINT')} to the OTLP address of the server."
        return problem(CHECK, found, remedy)

    def _right_path(self, endpoint: Endpoint) -> str | None:
        """Return the path at which the same server takes the signal, when it is a customary one."""
        parts = urlsplit(endpoint.url)
        for base in BASES:
            path = f"{base}/v1/{endpoint.signal.value}"
            if path != parts.path:
                attempt = self._network.send(replace(endpoint, url=parts._replace(path=path).geturl()))
                if attempt.answer.verdict is Verdict.ACCEPTED:
                    return path
        return None


def _wrong_path(door: Door, path: str) -> Finding:
    signal = door.endpoint.signal.value
    scheme = "http" if door.endpoint.insecure else "https"
    found = f"{door.where} has nothing at {door.of([door.endpoint]).paths}, but takes {signal} at {path}"
    variable = door.variable("ENDPOINT")
    if door.is_of_one_signal:
        remedy = f"Set {variable}={scheme}://{door.endpoint.address}{path}: of one signal it is used as it is."
    else:
        base = path.removesuffix(f"/v1/{signal}")
        remedy = f"Set {variable}={scheme}://{door.endpoint.address}{base}: /v1/{signal} is appended to it."
    return problem(CHECK, found, remedy)


def _denied(door: Door, answer: Answer) -> Finding:
    names = _header_names(door)
    variable, words = door.variable("HEADERS"), _words(answer, door)
    if not names:
        remedy = f"Set {variable} to what it asks for, such as authorization=Bearer%20<token>."
        return problem(CREDENTIALS, f"{door.where} asks for credentials, and none are set ({words})", remedy)
    if answer.code in _FORBIDDEN:
        remedy = f"Give the key in {variable} the right to write telemetry, or use one that has it."
    else:
        remedy = f"Correct {variable}: name=value pairs, the values percent-encoded (a blank is %20)."
    return problem(CREDENTIALS, f"{door.where} refuses the credentials in the {names} ({words})", remedy)


def _credentials(door: Door) -> Iterator[Finding]:
    """Yield what is to be said of headers that were taken, never their values."""
    if not (names := _header_names(door)):
        return
    secret = {name for endpoint in door.endpoints for name, _ in endpoint.headers if _is_secret(name)}
    if secret and door.endpoint.insecure and not is_loopback(door.endpoint.host):
        found = f"{', '.join(sorted(secret))} goes to {door.endpoint.address} unencrypted"
        yield warning(CREDENTIALS, found, f"Write https:// in {door.variable('ENDPOINT')} if the server has TLS.")
    else:
        yield fine(CREDENTIALS, f"{door.endpoint.address} takes the {names}")


def _header_names(door: Door) -> str:
    names = dict.fromkeys(name for endpoint in door.endpoints for name, _ in endpoint.headers)
    return f"header{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _words(answer: Answer, door: Door) -> str:
    text = said(answer, door)
    return f"{answer.code}: {text}" if text else answer.code


def _is_secret(name: str) -> bool:
    return bool(Redactor().redact(name, "x") == REDACTED)
