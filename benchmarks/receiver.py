"""An OTLP receiver on a fixed port that can be taken away and brought back: what the programs under test send to."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from otlp_server import OtlpServer, Received, Reply

__all__ = ["Received", "Receiver", "Reply"]

HOST = "127.0.0.1"


class Receiver:
    """A receiver behind one port: up, down (connections are refused) or a black hole (they hang).

    `handle` is given each request and returns the answer; it is called by several threads at once.
    """

    def __init__(self, protocol: str, handle: Callable[[Received], Reply]) -> None:
        self._protocol = protocol
        self._handle = handle
        # Bound but not listening: connections are refused while nothing else listens, and nobody else gets the port.
        self._port = _socket()
        self._port.bind((HOST, 0))
        self.port: int = self._port.getsockname()[1]
        self.endpoint = f"http://{HOST}:{self.port}"
        self._server: OtlpServer | None = None
        self._hole: socket.socket | None = None

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()
        self._port.close()

    def up(self) -> None:
        """Listen and answer."""
        self.down()
        self._server = _Server(self._protocol, self.port, self._handle)
        self._server.__enter__()

    def down(self) -> None:
        """Listen no more; open connections are closed."""
        if self._server is not None:
            self._server.stop()
        if self._hole is not None:
            self._hole.close()
        self._server = self._hole = None

    def black_hole(self) -> None:
        """Take connections and requests, as the kernel does for a process that is stopped, and answer nothing."""
        self.down()
        self._hole = _socket()
        self._hole.bind((HOST, self.port))
        self._hole.listen(128)


class _Server(OtlpServer):
    def __init__(self, protocol: str, port: int, handle: Callable[[Received], Reply]) -> None:
        self._handle = handle
        super().__init__(protocol, port=port)

    def take(self, received: Received) -> Reply:
        return self._handle(received)


def _socket() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
