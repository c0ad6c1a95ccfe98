"""The address of the scrape endpoint, as OTEL_EXPORTER_PROMETHEUS_HOST and _PORT and the local rank say."""

import errno
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from otel_logger_exporters.endpoint_urls import host_and_port, is_loopback
from otel_logger_exporters.envvars import read_int, read_text
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["HOST_VARIABLE", "PORT_VARIABLE", "ScrapeAddress", "bind", "scrape_address_from_environ"]

HOST_VARIABLE = "OTEL_EXPORTER_PROMETHEUS_HOST"
PORT_VARIABLE = "OTEL_EXPORTER_PROMETHEUS_PORT"

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 9464
HIGHEST_PORT = 65535

EVERYWHERE = ("0.0.0.0", "::")
"""All addresses of the machine."""

BACKLOG = 16
"""Connections that wait to be accepted."""

_HOST = re.compile(r"[A-Za-z0-9_.:%-]+")


@dataclass(frozen=True, slots=True)
class ScrapeAddress:
    """Where a process is scraped: a host, and a port made of a base and the local rank, so that ranks do not collide.

    With the base 0 the operating system chooses a free port for each process.
    """

    host: str = DEFAULT_HOST
    base: int = DEFAULT_PORT
    local_rank: int = 0

    @property
    def port(self) -> int:
        """The port, 0 where the operating system chooses one."""
        return self.base + self.local_rank if self.base else 0

    @property
    def is_local(self) -> bool:
        """Whether only this machine, or this container, can reach it."""
        return is_loopback(self.host) and not self.is_everywhere

    @property
    def is_everywhere(self) -> bool:
        """Whether it is all addresses of this machine."""
        return self.host in EVERYWHERE

    def of_rank(self, local_rank: int) -> "ScrapeAddress":
        """Return the address of a process on this machine; ConfigurationError when its port would be too high."""
        address = replace(self, local_rank=local_rank)
        if address.port > HIGHEST_PORT:
            msg = (
                f"{PORT_VARIABLE}={self.base} with local rank {local_rank} is port {address.port}, which there is "
                f"none of: give {HIGHEST_PORT - local_rank} or less"
            )
            raise ConfigurationError(msg)
        return address

    def describe(self) -> str:
        """Return host and port, and how the port is made up where a rank is in it."""
        where = host_and_port(self.host, self.port)
        return f"{where} ({PORT_VARIABLE}={self.base} + local rank {self.local_rank})" if self.local_rank else where


def scrape_address_from_environ(environ: Mapping[str, str]) -> ScrapeAddress:
    """Return the address of local rank 0; ConfigurationError when a variable cannot be understood."""
    host = read_text(environ, HOST_VARIABLE, DEFAULT_HOST)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _HOST.fullmatch(bare) or bare.count(":") == 1:
        msg = f"{HOST_VARIABLE}={host!r} is not understood: give a name or an address of this machine, and no port"
        raise ConfigurationError(msg)
    return ScrapeAddress(bare, read_int(environ, PORT_VARIABLE, DEFAULT_PORT, maximum=HIGHEST_PORT))


def bind(address: ScrapeAddress) -> socket.socket:
    """Return a socket that listens there; ConfigurationError says why there can be none, and what to change."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        msg = f"{HOST_VARIABLE}={address.host!r} is unknown here ({error}): give a name or an address of this machine"
        raise ConfigurationError(msg) from None
    problem: OSError | None = None
    for family, kind, protocol, _, place in found:
        try:
            return _listening(family, kind, protocol, place)
        except OSError as error:
            # A name may stand for an address that this machine has not, such as ::1 where there is no IPv6. But where
            # somebody has the port at one, scrapers that go by the name would find him at the others' port too.
            problem = error
            if error.errno == errno.EADDRINUSE:
                break
    raise ConfigurationError(_explained(address, problem)) from None


def _listening(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # Connections of a process that has ended must not keep the port from the next.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _explained(address: ScrapeAddress, error: OSError | None) -> str:
    where = host_and_port(address.host, address.port)
    made_up = f"{PORT_VARIABLE}={address.base} + local rank {address.local_rank}"
    code = error.errno if error is not None else None
    if code == errno.EADDRINUSE:
        return (
            f"the scrape endpoint cannot listen on {where} ({made_up}): another process, or another logger of this "
            f"one, listens there. Who starts the training sets {PORT_VARIABLE} to the first of as many free ports as "
            "processes run on this machine, or "
            "ends the process that has the port"
        )
    if code == errno.EACCES:
        return (
            f"the scrape endpoint may not listen on {where} ({made_up}), which is for the superuser: who starts the "
            f"training sets {PORT_VARIABLE} to a port from 1024"
        )
    return (
        f"the scrape endpoint cannot listen on {where} ({error}): set {HOST_VARIABLE} to an address of this machine, "
        "such as localhost, or 0.0.0.0 for all of them"
    )
