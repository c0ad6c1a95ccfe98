"""The resolver: a host's addresses, looked up within a time."""

import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

__all__ = ["Address", "Lookup", "Resolver"]

Address = tuple[int, int, int, str, Any]
"""What `socket.getaddrinfo` says of one address: family, kind, protocol, canonical name, and what `connect` takes."""

Lookup = Callable[..., Sequence[Address]]
"""`socket.getaddrinfo`, or what stands for it in a test."""


class Resolver:
    """Looks names up in a thread, because the C library's resolver takes no timeout and cannot be interrupted.

    A look-up that is late goes on, and the next call for the same host waits for it: there is never more than one.
    """

    def __init__(self, lookup: Lookup = socket.getaddrinfo) -> None:
        self._lookup = lookup
        self._pending: _Pending | None = None

    def resolve(self, host: str, port: int, timeout: float) -> Sequence[Address]:
        """Return the addresses of a host; raises TimeoutError after `timeout` seconds, OSError when it has none."""
        if _is_literal(host):
            return _look_up(self._lookup, host, port)
        pending = self._pending
        if pending is None or pending.key != (host, port) or pending.has_failed:
            pending = self._pending = _Pending(self._lookup, host, port)
        addresses = pending.wait(timeout)
        self._pending = None
        return addresses


class _Pending:
    """One look-up in its thread."""

    def __init__(self, lookup: Lookup, host: str, port: int) -> None:
        self.key = host, port
        self._lookup = lookup
        self._done = threading.Event()
        self._addresses: Sequence[Address] = ()
        self._error: Exception | None = None
        try:
            threading.Thread(target=self._run, name="otel_logger resolver", daemon=True).start()
        except RuntimeError:
            # There are no new threads at the interpreter's end, nor where a container's limit is reached.
            self._run()

    @property
    def has_failed(self) -> bool:
        """Whether the look-up has come to nothing."""
        return self._done.is_set() and self._error is not None

    def wait(self, timeout: float) -> Sequence[Address]:
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._addresses

    def _run(self) -> None:
        try:
            self._addresses = _look_up(self._lookup, *self.key)
        except Exception as error:
            self._error = error
        self._done.set()


def _look_up(lookup: Lookup, host: str, port: int) -> Sequence[Address]:
    try:
        return lookup(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # A label of over 63 characters, for one.
        raise socket.gaierror(socket.EAI_NONAME, "it is no valid name") from error


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
