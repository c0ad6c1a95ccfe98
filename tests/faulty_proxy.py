"""A TCP proxy on the loopback interface that does to connections what networks do: for tests of senders.

with FaultyProxy(("127.0.0.1", 4318), [Fault("cut", after=100), Fault("delay", seconds=0.5)]) as proxy:
    ...  # send to proxy.port: the first connection is cut, the second is slow, all others are as they should be
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["FAULTS", "REQUEST", "RESPONSE", "Fault", "FaultyProxy", "random_faults"]

REQUEST: Final = "request"
RESPONSE: Final = "response"

FAULTS: Final = ("refuse", "black hole", "cut", "half close", "delay", "corrupt")
"""`refuse`: hung up on at once, with a reset. `black hole`: accepted, and then silence; also what comes is not read.
`cut`: reset in the midst. `half close`: the end of the stream, while the other direction still works. `delay`: nothing
for a while. `corrupt`: one byte is another."""

CHUNK = 65_536
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one connection, once: in the given direction, after so many bytes of it have passed."""

    what: str
    direction: str = REQUEST
    after: int = 0
    seconds: float = 0.0
    """How long a delay is."""
    flip: int = 0xFF
    """The bits that corruption turns over."""


def random_faults(random: Random, rounds: int, *, corrupt: Iterable[str] = (RESPONSE,)) -> list[Fault]:
    """Each kind of fault in each direction as often as there are `rounds`, in any order, at places of all magnitudes.

    Bytes are corrupted in the directions `corrupt` alone: without TLS nobody can tell that those of a request were
    changed, neither the server nor a test.
    """
    corrupted = tuple(corrupt)
    faults = []
    for _ in range(rounds):
        for what in FAULTS:
            for direction in corrupted if what == "corrupt" else (REQUEST, RESPONSE):
                # A request may be megabytes long, an answer is some hundred bytes.
                after = int(2 ** random.uniform(0, 13 if direction == REQUEST else 8))
                faults.append(Fault(what, direction, after, random.uniform(0.05, 0.5), random.randrange(1, 256)))
    random.shuffle(faults)
    return faults


class FaultyProxy:
    """Forwards each connection to `target`; the n-th suffers the n-th fault, those after the last suffer none.

    `seen` counts the faults that really happened: a connection may end before its fault is due.
    """

    def __init__(self, target: tuple[str, int], faults: Iterable[Fault] = ()) -> None:
        self.seen: Counter[str] = Counter()
        self.connections = 0
        self._target = target
        self._faults = deque(faults)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        # Closing it would not wake who waits in `accept`.
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> FaultyProxy:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def left(self) -> int:
        """The faults that no connection has been given yet."""
        return len(self._faults)

    def stop(self) -> None:
        """Cut all connections, refuse further ones, and end all threads."""
        self._stopped.set()
        self.hang_up()
        while self._threads:
            self._threads.pop().join()

    def hang_up(self) -> None:
        """Close all connections that there are now, as a load balancer does to idle ones; the next get new faults."""
        with self._lock:
            for each in self._sockets:
                _hang_up(each)

    def note(self, fault: Fault) -> None:
        """Count a fault that happens."""
        with self._lock:
            self.seen[fault.what] += 1

    def wait(self, seconds: float | None = None) -> None:
        """Wait, but no longer than the proxy lives."""
        self._stopped.wait(seconds)

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="faulty proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with self._listener:
            while not self._stopped.is_set():
                try:
                    client, _ = self._listener.accept()
                except TimeoutError:
                    continue
                client.settimeout(None)
                self.connections += 1
                fault = self._faults.popleft() if self._faults else Fault("none")
                self._spawn(self._serve, client, fault)

    def _serve(self, client: socket.socket, fault: Fault) -> None:
        with client:
            if not self._hold(client):
                return
            try:
                if fault.what == "refuse":
                    self.note(fault)
                    _reset(client)
                elif fault.what == "black hole":
                    self.note(fault)
                    self.wait()
                else:
                    self._forward(client, fault)
            except OSError:
                # The target is down, as far as the client can tell.
                pass
            finally:
                self._let_go(client)

    def _forward(self, client: socket.socket, fault: Fault) -> None:
        with socket.create_connection(self._target, CONNECT_SECONDS) as server:
            server.settimeout(None)
            if not self._hold(server):
                return
            try:
                pumps = [
                    threading.Thread(target=_Pump(self, source, sink, fault if fault.direction == way else None).run)
                    for way, source, sink in ((REQUEST, client, server), (RESPONSE, server, client))
                ]
                for pump in pumps:
                    pump.start()
                for pump in pumps:
                    pump.join()
            finally:
                self._let_go(server)

    def _hold(self, each: socket.socket) -> bool:
        with self._lock:
            self._sockets.add(each)
            return not self._stopped.is_set()

    def _let_go(self, each: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(each)


class _Pump:
    """Copies one direction of a connection, and does to it what its fault says."""

    def __init__(self, proxy: FaultyProxy, source: socket.socket, sink: socket.socket, fault: Fault | None) -> None:
        self._proxy = proxy
        self._source = source
        self._sink = sink
        self._fault = fault if fault is not None and fault.what != "none" else None
        self._passed = 0

    def run(self) -> None:
        """Copy until either end is at its end."""
        try:
            while data := self._source.recv(CHUNK):
                while data:
                    part = data if self._fault is None else data[: max(0, self._fault.after - self._passed)]
                    self._sink.sendall(part)
                    self._passed += len(part)
                    data = data[len(part) :]
                    if data and self._fault is not None:
                        fault, self._fault = self._fault, None
                        self._proxy.note(fault)
                        data = self._suffer(fault, data)
            # The other direction may still have something to say.
            _hang_up(self._sink, socket.SHUT_WR)
        except OSError:
            # One end is gone: so is the connection.
            _hang_up(self._source)
            _hang_up(self._sink)

    def _suffer(self, fault: Fault, data: bytes) -> bytes:
        if fault.what == "cut":
            _reset(self._source)
            _reset(self._sink)
            raise ConnectionError
        if fault.what == "half close":
            self._sink.shutdown(socket.SHUT_WR)
            # What more comes in this direction is for nobody.
            while self._source.recv(CHUNK):
                pass
            return b""
        if fault.what == "delay":
            self._proxy.wait(fault.seconds)
            return data
        return bytes([data[0] ^ fault.flip]) + data[1:]


def _reset(each: socket.socket) -> None:
    """Close with a reset, which the other end notices at once, and without sending what is not sent yet."""
    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Wakes who reads here, for the system keeps the connection as long; shut down for writing it would end in peace.
    _hang_up(each, socket.SHUT_RD)
    each.close()


def _hang_up(each: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    try:
        each.shutdown(how)
    except OSError:
        # It is hung up already.
        pass
