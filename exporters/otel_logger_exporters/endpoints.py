"""Endpoints: where OTLP goes and how, as `OTEL_EXPORTER_OTLP_*` and the variables of proxies say.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ with these deviations: a protocol that is not given is
guessed by the endpoint's port; a timeout below 500 is read as seconds, as the Python SDK reads it; what cannot be
understood is an error. Requests are compressed by default unless they stay on this machine, which the specification
leaves to implementations; benchmarks/compression.py measures what it costs and brings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from otel_logger_exporters.certificates import check_authorities, check_client
from otel_logger_exporters.endpoint_urls import GRPC, HTTP, host_and_port, is_loopback, parse_url
from otel_logger_exporters.envvars import read_bool, read_choice, read_int, read_path, read_text
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.proxies import Proxy, proxy_from_environ
from otel_logger_exporters.signals import Signal

__all__ = ["Endpoint", "endpoint_from_environ", "has_endpoint"]

DEFAULT_URLS = {GRPC: "http://localhost:4317", HTTP: "http://localhost:4318"}
DEFAULT_TIMEOUT_MS = 10_000
MAX_TIMEOUT_MS = 86_400_000
"""A day: enough for anyone, and no number that a socket would refuse."""

SECONDS_BELOW = 500
"""A timeout below this is read as seconds: the Python SDK reads all of them so, and nobody means a few milliseconds."""

SUFFIXES = (
    *("ENDPOINT", "PROTOCOL", "HEADERS", "COMPRESSION", "TIMEOUT", "INSECURE"),
    *("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"),
)
"""How the variables of an endpoint end, which are there for all signals and for each."""

_HEADER_NAME = {GRPC: re.compile(r"[0-9a-z_.-]+"), HTTP: re.compile(r"[0-9a-z!#$%&'*+.^_`|~-]+")}
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """Where one signal's requests go, and everything a transport needs to send them there.

    `url` always has a scheme, for gRPC too; `insecure` says the same as a scheme of `http`. `timeout` is in seconds.
    `is_compression_asked` is False where `compression` is our default, which gives way to a server that cannot read it.
    `own` are the suffixes of the variables that are the signal's own, for messages.
    """

    signal: Signal
    url: str
    protocol: str
    headers: tuple[tuple[str, str], ...] = ()
    compression: str = "none"
    timeout: float = DEFAULT_TIMEOUT_MS / 1000
    insecure: bool = False
    certificate: str | None = None
    client_key: str | None = None
    client_certificate: str | None = None
    proxy: Proxy | None = None
    is_compression_asked: bool = True
    own: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def host(self) -> str:
        """The host, without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port, that of the scheme where the URL has none."""
        return _port(urlsplit(self.url))

    @property
    def address(self) -> str:
        """Host and port, the host in brackets where it is an IPv6 address."""
        return host_and_port(self.host, self.port)

    def variable(self, suffix: str) -> str:
        """Return the variable that a setting comes from: the signal's own when it is set, else the general one."""
        return _name(self.signal, suffix) if suffix in self.own else f"OTEL_EXPORTER_OTLP_{suffix}"

    def describe(self) -> str:
        """Return address, protocol and proxy for people to read; no path, no query, no header, no password."""
        through = f" through the proxy {self.proxy.describe()}" if self.proxy else ""
        return f"{self.address} ({self.protocol}){through}"

    def __repr__(self) -> str:
        # Headers and a URL's query carry keys.
        return f"<Endpoint of {self.signal.value}: {self.describe()}>"


def has_endpoint(environ: Mapping[str, str], signal: Signal) -> bool:
    """Return whether an endpoint is given for the signal, by its own variable or by the general one."""
    return read_text(environ, _variable(environ, signal, "ENDPOINT"), None) is not None


def endpoint_from_environ(environ: Mapping[str, str], signal: Signal) -> tuple[Endpoint, tuple[str, ...]]:
    """Return the signal's endpoint, the specification's localhost when none is given, and notes for the user."""
    notes: list[str] = []
    variable = _variable(environ, signal, "ENDPOINT")
    text = read_text(environ, variable, None)
    secure = not read_bool(environ, _variable(environ, signal, "INSECURE"), False)
    protocol = _protocol(environ, signal)
    if text is None:
        protocol = protocol or HTTP
        parts = urlsplit(DEFAULT_URLS[protocol])
    else:
        parts, protocol = parse_url(variable, text, protocol, secure)
    if protocol == HTTP:
        # The general variable is a base, the signal's own is used as it is.
        base = parts.path.rstrip("/")
        path = (parts.path or "/") if variable == _name(signal, "ENDPOINT") else f"{base}/v1/{signal.value}"
        parts = parts._replace(path=path, fragment="")
    else:
        if parts.path.strip("/"):
            notes.append(f"the path in {variable} is left out: gRPC has fixed paths")
        parts = parts._replace(path="", query="", fragment="")
    timeout, note = _timeout(environ, signal)
    client_key, client_certificate = _client_files(environ, signal)
    host = parts.hostname or ""
    compression = read_choice(environ, _variable(environ, signal, "COMPRESSION"), None, ("none", "gzip"))
    endpoint = Endpoint(
        signal=signal,
        url=parts.geturl(),
        protocol=protocol,
        headers=_headers(environ, _variable(environ, signal, "HEADERS"), protocol),
        compression=compression or ("none" if is_loopback(host) else "gzip"),
        timeout=timeout,
        insecure=parts.scheme == "http",
        certificate=_authorities(environ, _variable(environ, signal, "CERTIFICATE")),
        client_key=client_key,
        client_certificate=client_certificate,
        proxy=proxy_from_environ(environ, protocol, parts.scheme, host, _port(parts)),
        is_compression_asked=compression is not None,
        own=frozenset(suffix for suffix in SUFFIXES if _variable(environ, signal, suffix) == _name(signal, suffix)),
    )
    return endpoint, (*notes, *note)


def _port(parts: SplitResult) -> int:
    return parts.port or (80 if parts.scheme == "http" else 443)


def _name(signal: Signal, suffix: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal.name}_{suffix}"


def _variable(environ: Mapping[str, str], signal: Signal, suffix: str) -> str:
    """Return the name of the variable that counts: the signal's own when it is set, else the general one."""
    own = _name(signal, suffix)
    return own if read_text(environ, own, None) is not None else f"OTEL_EXPORTER_OTLP_{suffix}"


def _protocol(environ: Mapping[str, str], signal: Signal) -> str | None:
    variable = _variable(environ, signal, "PROTOCOL")
    if read_text(environ, variable, "").lower() == "http/json":
        msg = f"{variable}='http/json' is not supported: give {HTTP} or {GRPC}"
        raise ConfigurationError(msg)
    return read_choice(environ, variable, None, (HTTP, GRPC))


def _headers(environ: Mapping[str, str], variable: str, protocol: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of `k=v,k2=v2`; messages name a pair by its position, for what is malformed may be a key."""
    headers: dict[str, str] = {}
    for position, pair in enumerate(read_text(environ, variable, "").split(","), start=1):
        if not pair.strip():
            continue
        name, equals, value = pair.partition("=")
        name = name.strip().lower()
        if not equals or not _HEADER_NAME[protocol].fullmatch(name):
            msg = f"{variable}: pair {position} is not understood: give name=value,name=value with valid header names"
            raise ConfigurationError(msg)
        value = unquote(value.strip())
        if not _HEADER_VALUE.fullmatch(value):
            msg = f"{variable}: the value of pair {position} is no header's: it decodes to more than printable ASCII"
            raise ConfigurationError(msg)
        headers[name] = value
    return tuple(headers.items())


def _timeout(environ: Mapping[str, str], signal: Signal) -> tuple[float, tuple[str, ...]]:
    variable = _variable(environ, signal, "TIMEOUT")
    number = read_int(environ, variable, DEFAULT_TIMEOUT_MS, unit="ms", minimum=1, maximum=MAX_TIMEOUT_MS)
    if number >= SECONDS_BELOW:
        return number / 1000, ()
    return float(number), (f"{variable}={number} is read as {number} s (milliseconds start at {SECONDS_BELOW})",)


def _client_files(environ: Mapping[str, str], signal: Signal) -> tuple[str | None, str | None]:
    variables = [_variable(environ, signal, suffix) for suffix in ("CLIENT_KEY", "CLIENT_CERTIFICATE")]
    key, certificate = (_file(environ, variable) for variable in variables)
    if (key is None) != (certificate is None):
        given, missing = variables if certificate is None else reversed(variables)
        msg = f"{given} is set without {missing}: a client certificate needs both"
        raise ConfigurationError(msg)
    if key is not None and certificate is not None:
        check_client(variables[0], key, variables[1], certificate)
    return key, certificate


def _authorities(environ: Mapping[str, str], variable: str) -> str | None:
    if (path := _file(environ, variable)) is not None:
        check_authorities(variable, path)
    return path


def _file(environ: Mapping[str, str], variable: str) -> str | None:
    path: Path | None = read_path(environ, variable, None)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        msg = f"{variable}={str(path)!r} cannot be read ({error.strerror}): give the path of a readable PEM file"
        raise ConfigurationError(msg) from None
    return str(path)
