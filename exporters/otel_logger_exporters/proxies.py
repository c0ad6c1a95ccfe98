"""Proxies: which one, if any, the environment wants an endpoint to be reached through.

The variables are those of curl, Requests and gRPC: `http_proxy`, `https_proxy`, `all_proxy`, for gRPC also
`grpc_proxy`, and the exceptions `no_proxy`, for gRPC `no_grpc_proxy` before it; each also in capitals, small letters
first. One that is set and empty means none. As in Go, this machine itself is never reached through a proxy.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from otel_logger_exporters.endpoint_urls import GRPC, has_valid_host, host_and_port, is_loopback
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["Proxy", "proxy_from_environ"]

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and the variable that names it; `scheme` says how it is spoken to itself: `http`, or `https` for TLS.

    `authorization` is the value of the header Proxy-Authorization, a secret.
    """

    variable: str
    scheme: str
    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Host and port, the host in brackets where it is an IPv6 address."""
        return host_and_port(self.host, self.port)

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return f"{self.scheme}://{self.address}"

    def describe(self) -> str:
        """Return the address and the variable for people to read."""
        return f"{self.address} ({self.variable})"


def proxy_from_environ(environ: Mapping[str, str], protocol: str, scheme: str, host: str, port: int) -> Proxy | None:
    """Return the proxy to an endpoint, None for none; ConfigurationError when the one to take cannot be understood.

    `scheme` is the endpoint's; gRPC has one choice for both, because it is tunnelled through the proxy in either case.
    """
    if is_loopback(host):
        return None
    names = ("grpc_proxy", "https_proxy", "http_proxy") if protocol == GRPC else (f"{scheme}_proxy",)
    variable, text = _first(environ, (*names, "all_proxy"))
    if not text:
        return None
    exceptions, listed = _first(environ, ("no_grpc_proxy", "no_proxy") if protocol == GRPC else ("no_proxy",))
    if _is_excepted(listed, host, port):
        return None
    return _parse(variable, text, protocol, f"{host} to {exceptions or 'NO_PROXY'}")


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """Return the first variable that is set, also to nothing, and its value."""
    for name in names:
        for spelling in (name, name.upper()):
            if spelling in environ:
                return spelling, environ[spelling].strip()
    return "", ""


def _parse(variable: str, text: str, protocol: str, exception: str) -> Proxy:
    schemes = ("http",) if protocol == GRPC else ("http", "https")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme in DEFAULT_PORTS and (not has_valid_host(parts) or port == 0):
        msg = f"{variable}={_shown(text)!r} names no valid host and port of a proxy: give http://host:port"
        raise ConfigurationError(msg)
    if parts.scheme not in schemes:
        given = f"{variable}={_shown(text)!r}"
        if not parts.scheme:
            msg = f"{given} is no URL of a proxy: give http://host:port"
        else:
            msg = (
                f"{given} has the scheme {parts.scheme!r}: {protocol} goes through proxies of {' or '.join(schemes)} "
                f"alone. Give http://host:port, or add {exception}"
            )
        raise ConfigurationError(msg)
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(variable, parts.scheme, parts.hostname or "", port or DEFAULT_PORTS[parts.scheme], authorization)


def _shown(text: str) -> str:
    """Return a proxy's URL without user, password, path and query."""
    scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
    _, at, place = rest.rpartition("@")
    return f"{scheme}{mark}{'***@' if at else ''}{re.split(r'[/?#]', place)[0]}"


def _is_excepted(listed: str, host: str, port: int) -> bool:
    return any(
        _matches(entry.lower(), host.lower().rstrip("."), port) for entry in re.split(r"[,\s]+", listed) if entry
    )


def _matches(entry: str, host: str, port: int) -> bool:
    """Return whether an entry is `*`, the network or address of the host, or its name or one that it is below."""
    if entry == "*":
        return True
    if "/" in entry:
        return _is_in_network(host, entry)
    # An IPv6 address may stand in brackets, and has to when a port follows.
    parts = re.fullmatch(r"\[(.+)\](?::(\d+))?", entry) or re.fullmatch(r"([^:]*)(?::(\d+))?", entry)
    name, wanted = (parts[1], parts[2]) if parts else (entry, None)
    if wanted is not None and int(wanted) != port:
        return False
    if _is_in_network(host, host):
        return _is_in_network(host, name)
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
