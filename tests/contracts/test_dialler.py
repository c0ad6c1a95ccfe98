"""A connection is made to whichever address takes it, within the deadline, and every failure has its words."""

import socket
import time

import pytest

from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.dialler import DialError, Dialler
from tests.network import black_hole, free_port

SOON = 0.1
PATIENCE = 5.0


def _dialler(lookup=socket.getaddrinfo, timeout=PATIENCE):
    deadline = Deadline(SystemClock())
    deadline.set(timeout)
    return Dialler(deadline, lookup)


def _addresses(*ports):
    """Stand for a resolver that knows a host with an address for each port."""
    return lambda host, port, **_: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", p)) for p in ports]


@pytest.fixture
def listener():
    """Give a socket that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def port(listener):
    """Give the port of the listener."""
    return listener.getsockname()[1]


def test_the_next_address_is_tried_at_once_when_one_refuses(listener, port):
    """An address where nobody listens costs nothing."""
    begun = time.monotonic()
    with _dialler(_addresses(free_port(), free_port(), port)).dial("c", 1) as connection:
        assert port == connection.getpeername()[1]
    assert time.monotonic() - begun < 0.2


def test_an_address_that_swallows_everything_costs_a_moment(listener, port):
    """The next address is tried beside one that does not answer, long before the time is up."""
    with black_hole() as hole:
        begun = time.monotonic()
        with _dialler(_addresses(hole, port)).dial("c", 1) as connection:
            assert port == connection.getpeername()[1]
        assert 0.2 < time.monotonic() - begun < 1.5


def test_addresses_that_all_swallow_everything_cost_the_time_and_no_more():
    """When the time is up there is an error, and no socket is left open."""
    with black_hole() as hole:
        dialler = _dialler(_addresses(hole, hole, hole), SOON)
        begun = time.monotonic()
        with pytest.raises(DialError, match="did not take the connection in time") as caught:
            dialler.dial("c", 1)
        assert time.monotonic() - begun < 1.0
    assert ("TIMEOUT", 0) == (caught.value.code, dialler.connections)


def test_a_slow_resolver_costs_the_time_and_no_more():
    """Looking up the name is inside the deadline."""
    dialler = _dialler(lambda *_, **__: time.sleep(0.5), SOON)
    begun = time.monotonic()
    with pytest.raises(DialError, match="its name was not resolved in time") as caught:
        dialler.dial("c", 1)
    assert time.monotonic() - begun < 0.4
    assert "TIMEOUT" == caught.value.code


def test_what_cannot_be_reached_is_said_in_words():
    """Errors are told without numbers; a host may have no address at all."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    told = []
    for lookup in (unknown, _addresses(free_port()), _addresses()):
        with pytest.raises(DialError) as caught:
            _dialler(lookup).dial("c", 1)
        told.append((caught.value.code, str(caught.value)))

    assert [
        ("DNS", "its name cannot be resolved (Name or service not known)"),
        ("CONNECTION", "connection refused"),
        ("CONNECTION", "it has no address"),
    ] == told


def test_families_take_turns(listener, port):
    """IPv6 and IPv4 are tried in turn, so that many addresses of a family that does not work cost one moment."""
    tried = []

    class _Tuple(tuple):
        """Notes when an address is tried."""

        __slots__ = ()

        def __iter__(self):
            tried.append(self[4][1])
            return super().__iter__()

    def lookup(host, port_, **_):
        sixes = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", free, 0, 0)) for free in (1, 2, 3)]
        return [_Tuple(one) for one in (*sixes, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)))]

    with _dialler(lookup).dial("c", 1):
        assert [1, port] == tried


def _drip(peer, connection):
    """Send and receive byte by byte, for ever."""
    while True:
        peer.sendall(b"x")
        assert b"x" == connection.recv(1)
        time.sleep(0.01)


def test_connections_keep_the_deadline_byte_by_byte(listener, port):
    """What drips in does not begin the time anew."""
    dialler = _dialler()
    with dialler.dial("127.0.0.1", port) as connection:
        peer, _ = listener.accept()
        with peer:
            dialler.deadline.set(SOON)
            begun = time.monotonic()
            with pytest.raises(TimeoutError):
                _drip(peer, connection)
            assert time.monotonic() - begun < 1.0
            dialler.deadline.set(PATIENCE)
            peer.sendall(b"y")
            received = b""
            while not received.endswith(b"y"):
                received += connection.recv(1)
