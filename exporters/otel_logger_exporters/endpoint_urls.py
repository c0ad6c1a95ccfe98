"""Endpoints' URLs: what `OTEL_EXPORTER_OTLP_ENDPOINT` and its kin may hold, and which protocol it speaks of."""

import re
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from otel_logger_exporters.errors import ConfigurationError

__all__ = ["GRPC", "HTTP", "has_valid_host", "host_and_port", "is_loopback", "parse_url"]

GRPC = "grpc"
HTTP = "http/protobuf"

PROTOCOL_BY_PORT = {4317: GRPC, 4318: HTTP}

_HOST = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")


def parse_url(variable: str, text: str, protocol: str | None, secure: bool) -> tuple[SplitResult, str]:
    """Return the URL's parts, with a scheme in any case, and the protocol, guessed by the port when it is not given.

    `secure` counts for gRPC's bare `host:port` alone; a scheme says by itself whether TLS is used.
    """
    bare = "://" not in text and not text.lower().startswith("unix:")
    try:
        # Without `//` the host would be taken for a scheme.
        parts = urlsplit(f"//{text}" if bare else text)
        port = parts.port
    except ValueError:
        msg = f"{variable}={_shown(text)!r} is no URL: the port is a number from 1 to 65535, IPv6 stands in brackets"
        raise ConfigurationError(msg) from None
    if parts.username is not None:
        headers = variable.replace("ENDPOINT", "HEADERS")
        msg = f"{variable} has a user in the URL: set {headers} to authorization=Basic%20<base64 of user:password>"
        raise ConfigurationError(msg)
    if not bare and parts.scheme not in ("http", "https"):
        msg = f"{variable}={_shown(text)!r} has the scheme {parts.scheme!r}: give http://... or https://..."
        raise ConfigurationError(msg)
    if not has_valid_host(parts) or port == 0:
        msg = f"{variable}={_shown(text)!r} names no valid host and port: give http://host:port or https://host:port"
        raise ConfigurationError(msg)
    protocol = protocol or PROTOCOL_BY_PORT.get(port or 0, HTTP)
    if not bare:
        return parts, protocol
    if protocol == HTTP:
        msg = (
            f"{variable}={_shown(text)!r} has no scheme, which {HTTP} needs: write http://{_shown(text)} or https://..."
        )
        raise ConfigurationError(msg)
    if port is None:
        msg = f"{variable}={_shown(text)!r} has no scheme and no port: give host:port, http://host or https://host"
        raise ConfigurationError(msg)
    return parts._replace(scheme="https" if secure else "http"), protocol


def has_valid_host(parts: SplitResult) -> bool:
    """Return whether a URL names a host in a form that can be looked up, an IPv6 address in brackets."""
    host = parts.hostname or ""
    if not parts.netloc.startswith("["):
        return _HOST.fullmatch(host) is not None
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host (of a URL, without brackets) is this machine, by what is written: nothing is looked up."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, the host in brackets where it is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shown(text: str) -> str:
    """Return an endpoint fit for a message: without the query, and without anything once an `@` may mean a password."""
    if "@" in text:
        return "***"
    return re.split(r"[?#]", text)[0]
