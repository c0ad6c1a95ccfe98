"""Networks as they should not be, on the loopback interface, for tests: proxies, relays that are cut, servers that
stall, addresses that swallow what is sent to them.
"""

import socket
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from types import TracebackType

__all__ = ["ProxyServer", "Relay", "Rude", "black_hole", "free_port"]

CHUNK = 65_536


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port on which nobody listens."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        return int(server.getsockname()[1])


class Rude:
    """A server that does with each connection, in a thread, what `treat` says; the rest of it is closed with it."""

    def __init__(
        self, treat: Callable[[socket.socket], object], *, port: int = 0, tls: SSLContext | None = None
    ) -> None:
        self._treat = treat
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self.stopped = threading.Event()
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Rude":
        self._begin(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stopped.set()
        # A listener that is closed alone goes on being waited for.
        self._hang_up(self._listener)
        self.cut()
        for thread in list(self._threads):
            thread.join()

    def cut(self) -> None:
        """Cut all connections."""
        for connection in list(self._connections):
            self._hang_up(connection)

    def follow(self, connection: socket.socket) -> socket.socket:
        """Cut a connection with the others; return it."""
        self._connections.append(connection)
        return connection

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.follow(connection)
            self._begin(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self.follow(self._tls.wrap_socket(connection, server_side=True))
            with closing(connection):
                self._treat(connection)
        except OSError:
            # Whoever is treated so may hang up.
            pass

    @staticmethod
    def _hang_up(connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()


class Relay(Rude):
    """Leads to another port of this machine and counts who comes, and the bytes that they bring; can be cut."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        super().__init__(lambda connection: _join(self, connection, ("127.0.0.1", port), count=self._count))

    def _count(self, number: int) -> None:
        self.bytes += number


@dataclass
class ProxyServer:
    """A proxy of HTTP, by CONNECT and by forwarding: knows `hosts` that no resolver knows, and who may use it.

    `asked` are the first lines of what it was asked for; `status` is what it answers in place of doing it.
    """

    hosts: Mapping[str, int] = field(default_factory=dict)
    user: str | None = None
    status: str | None = None
    tls: SSLContext | None = None
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = Rude(self._treat, tls=self.tls)

    @property
    def address(self) -> str:
        """Host and port."""
        return self._server.address

    @property
    def accepted(self) -> int:
        """The connections that came in."""
        return self._server.accepted

    def __enter__(self) -> "ProxyServer":
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(None, None, None)

    def _treat(self, connection: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (part := connection.recv(1)):
                return
            head += part
        line, *headers = head.decode("latin-1").split("\r\n")
        self.asked.append(line)
        given = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
        kind, _, credentials = given.get("proxy-authorization", "").partition(" ")
        user = b64decode(credentials).decode() if kind == "Basic" else None
        status = self.status or ("407 Proxy Authentication Required" if user != self.user else None)
        method, target, _ = line.split(" ")
        where = target if method == "CONNECT" else target.split("/")[2]
        if status is None and where not in self.hosts:
            status = "502 Bad Gateway"
        if status is not None:
            connection.sendall(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            return
        if method == "CONNECT":
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            head = b""
        else:
            # The rest goes as it comes, for all that is asked of the connection is asked of one server.
            path = "/" + target.split("/", 3)[3]
            head = head.replace(target.encode(), path.encode(), 1)
        _join(self._server, connection, ("127.0.0.1", self.hosts[where]), head)


def _ignore(number: int) -> None:
    """Count nothing."""


def _join(
    server: Rude,
    connection: socket.socket,
    where: tuple[str, int],
    head: bytes = b"",
    count: Callable[[int], None] = _ignore,
) -> None:
    """Hand on what comes from either side until one ends; `count` is told how much the client sends."""
    other = server.follow(socket.create_connection(where))
    other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    other.sendall(head)
    back = threading.Thread(target=_pump, args=(other, connection, _ignore), daemon=True)
    back.start()
    _pump(connection, other, count)
    back.join()
    other.close()


def _pump(source: socket.socket, sink: socket.socket, count: Callable[[int], None]) -> None:
    try:
        while data := source.recv(CHUNK):
            count(len(data))
            sink.sendall(data)
    except OSError:
        pass
    for side in (source, sink):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@contextmanager
def black_hole(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Give a port that answers no attempt to connect, as where a firewall drops what comes: its backlog is full."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    waiting: list[socket.socket] = []
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        try:
            while True:
                waiting.append(socket.socket(family))
                waiting[-1].settimeout(0.2)
                try:
                    waiting[-1].connect(listener.getsockname())
                except TimeoutError:
                    break
            yield int(listener.getsockname()[1])
        finally:
            for connection in waiting:
                connection.close()
