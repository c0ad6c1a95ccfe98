"""The dialler: from a host and a port to a connection, whichever of the host's addresses takes it first."""

import os
import selectors
import socket
from collections.abc import Sequence
from itertools import chain, zip_longest
from time import monotonic

from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.resolver import Address, Lookup, Resolver
from otel_logger_exporters.sockets import PunctualSocket

__all__ = ["DialError", "Dialler"]

HEAD_START = 0.25
"""Seconds that an address is given before the next is tried beside it, as RFC 8305 recommends (Happy Eyeballs)."""


class DialError(OSError):
    """There is no connection: `code` is DNS, TIMEOUT or CONNECTION, the text says why, without the host's name."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Dialler:
    """Makes connections before a deadline and counts them; `lookup` stands for `socket.getaddrinfo`.

    Addresses are tried side by side, each a little after the one before: an address that swallows what is sent to it,
    as IPv6 does where it is configured halfway, costs a moment and not the whole time.
    """

    def __init__(self, deadline: Deadline, lookup: Lookup = socket.getaddrinfo) -> None:
        self.deadline = deadline
        self.connections = 0
        self._resolver = Resolver(lookup)

    def dial(self, host: str, port: int) -> PunctualSocket:
        """Return a connection to a host; raises DialError."""
        try:
            addresses = self._resolver.resolve(host, port, self.deadline.remaining())
        except TimeoutError:
            code, text = "TIMEOUT", "its name was not resolved in time"
            raise DialError(code, text) from None
        except OSError as error:
            code, text = "DNS", f"its name cannot be resolved ({error.strerror or error})"
            raise DialError(code, text) from None
        try:
            connection = self._race(addresses)
        except TimeoutError:
            code, text = "TIMEOUT", "it did not take the connection in time"
            raise DialError(code, text) from None
        except OSError as error:
            code = "CONNECTION"
            raise DialError(code, (error.strerror or str(error)).lower()) from None
        # A request is written in two parts, of which the second must not wait for the first to be acknowledged.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        return connection

    def _race(self, addresses: Sequence[Address]) -> PunctualSocket:
        """Return the first connection that is taken; of several errors the last is raised."""
        waiting = _families_in_turn(addresses)
        error = OSError("it has no address")
        with selectors.DefaultSelector() as selector:
            try:
                next_start = 0.0
                while waiting or selector.get_map():
                    if waiting and monotonic() >= next_start:
                        begun = self._begin(waiting.pop(0))
                        if isinstance(begun, OSError):
                            error = begun
                            continue
                        selector.register(begun, selectors.EVENT_WRITE)
                        next_start = monotonic() + HEAD_START
                    pause = self.deadline.remaining()
                    if waiting:
                        pause = min(pause, max(0.0, next_start - monotonic()))
                    for key, _ in selector.select(pause):
                        connection = key.fileobj
                        assert isinstance(connection, PunctualSocket)
                        selector.unregister(connection)
                        if not (number := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                            connection.setblocking(True)
                            return connection
                        connection.close()
                        error, next_start = OSError(number, os.strerror(number)), 0.0
            finally:
                for key in selector.get_map().values():
                    key.fileobj.close()  # type: ignore[union-attr]
        raise error

    def _begin(self, address: Address) -> PunctualSocket | OSError:
        family, kind, protocol, _, where = address
        try:
            connection = PunctualSocket(family, kind, protocol, self.deadline)
        except OSError as error:
            # A family that the system does not have.
            return error
        try:
            connection.setblocking(False)
            connection.connect(where)
        except BlockingIOError:
            pass
        except OSError as error:
            connection.close()
            return error
        return connection


def _families_in_turn(addresses: Sequence[Address]) -> list[Address]:
    """Return the addresses with IPv6 and IPv4 in turn, beginning with the family that the system prefers."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]
