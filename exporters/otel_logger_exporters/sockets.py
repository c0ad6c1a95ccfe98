"""Sockets that keep a deadline: the timeout of a common socket begins anew with every byte that drips in."""

import socket
import ssl
from typing import Any

from otel_logger_exporters.deadline import Deadline

__all__ = ["PunctualContext", "PunctualSocket"]


class PunctualSocket(socket.socket):
    """A socket whose operations together are over at a deadline; what goes beyond raises TimeoutError."""

    def __init__(self, family: int, kind: int, protocol: int, deadline: Deadline) -> None:
        super().__init__(family, kind, protocol)
        self._deadline = deadline

    # What http.client and ssl call of a socket.
    def recv(self, *args: Any) -> bytes:
        """Receive, waiting until the deadline at most."""
        self.settimeout(self._deadline.remaining())
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        """Receive into a buffer, waiting until the deadline at most."""
        self.settimeout(self._deadline.remaining())
        return super().recv_into(*args)

    def send(self, *args: Any) -> int:
        """Send what is taken at once, waiting until the deadline at most."""
        self.settimeout(self._deadline.remaining())
        return super().send(*args)

    def sendall(self, *args: Any) -> None:
        """Send all, waiting until the deadline at most."""
        self.settimeout(self._deadline.remaining())
        super().sendall(*args)


class PunctualTlsSocket(ssl.SSLSocket):
    """The same over TLS, by the deadline of its context."""

    context: "PunctualContext"

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands, waiting until the deadline at most."""
        self.settimeout(self.context.deadline.remaining())
        super().do_handshake(block)

    # All ways to receive lead through `read`, all ways to send through `send`.
    def read(self, *args: Any) -> Any:
        """Receive, waiting until the deadline at most."""
        self.settimeout(self.context.deadline.remaining())
        return super().read(*args)

    def send(self, *args: Any) -> int:
        """Send what is taken at once, waiting until the deadline at most."""
        self.settimeout(self.context.deadline.remaining())
        return super().send(*args)


class PunctualContext(ssl.SSLContext):
    """A client's context, which verifies certificates and names, and whose sockets keep a deadline."""

    deadline: Deadline

    @classmethod
    def keeping(cls, deadline: Deadline) -> "PunctualContext":
        """Return a context that trusts nobody yet."""
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.deadline = deadline
        context.sslsocket_class = PunctualTlsSocket
        return context
