"""The proxy that tests of outages stand on does to a connection what its script says, and nothing else."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.faulty_proxy import FAULTS, REQUEST, RESPONSE, Fault, FaultyProxy, random_faults

SENT = bytes(range(200)) * 50


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """Give the address of a server that sends back what it gets, until that ends."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    while data := connection.recv(65_536):
                        connection.sendall(data)
                except ConnectionError:
                    continue
                if data == b"" and stop.is_set():
                    return

    stop = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()
    stop.set()
    socket.create_connection(listener.getsockname()).close()
    thread.join()
    listener.close()


@pytest.fixture
def talk(echo: tuple[str, int]) -> Callable[..., tuple[bytes, bool]]:
    """Give a function that sends SENT through a proxy with a fault: what comes back, and whether a reset ended it."""

    def through(fault: Fault | None, timeout: float = 5.0) -> tuple[bytes, bool]:
        got = b""
        with FaultyProxy(echo, [] if fault is None else [fault]) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.settimeout(timeout)
                try:
                    client.sendall(SENT)
                    client.shutdown(socket.SHUT_WR)
                    while data := client.recv(65_536):
                        got += data
                except OSError as error:
                    # The second is what `shutdown` says of a connection that was reset just before.
                    if isinstance(error, ConnectionError) or error.errno == errno.ENOTCONN:
                        return got, True
                    raise
            assert ({} if fault is None else {fault.what: 1}) == proxy.seen
        return got, False

    return through


def test_without_a_fault_all_bytes_pass(talk: Callable[..., tuple[bytes, bool]]) -> None:
    """Both directions are as they are, to their end."""
    assert (SENT, False) == talk(None)


@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
def test_a_cut_lets_so_many_bytes_through(talk: Callable[..., tuple[bytes, bool]], direction: str) -> None:
    """What passed before the cut is unchanged, and the end is a reset."""
    got, was_reset = talk(Fault("cut", direction, after=1000))

    assert was_reset
    assert SENT[:1000].startswith(got)


@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
def test_a_half_close_ends_one_direction(talk: Callable[..., tuple[bytes, bool]], direction: str) -> None:
    """The peer sees the end of the stream after so many bytes; what it says to that arrives."""
    assert (SENT[:1000], False) == talk(Fault("half close", direction, after=1000))


@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
def test_corruption_changes_one_byte(talk: Callable[..., tuple[bytes, bool]], direction: str) -> None:
    """The byte after so many is another, all others are the same."""
    got, _ = talk(Fault("corrupt", direction, after=1000, flip=1))

    assert SENT[:1000] + bytes([SENT[1000] ^ 1]) + SENT[1001:] == got


def test_a_delay_changes_no_byte(talk: Callable[..., tuple[bytes, bool]]) -> None:
    """What is slow arrives whole."""
    assert (SENT, False) == talk(Fault("delay", after=1000, seconds=0.01))


def test_a_refused_connection_is_reset_without_an_answer(talk: Callable[..., tuple[bytes, bool]]) -> None:
    """Nothing of what was sent comes to the target."""
    assert (b"", True) == talk(Fault("refuse"))


def test_a_black_hole_says_nothing(talk: Callable[..., tuple[bytes, bool]]) -> None:
    """The connection stands, and no answer comes; stopping the proxy ends it."""
    with pytest.raises(TimeoutError):
        talk(Fault("black hole"), timeout=0.05)


def test_random_faults_are_those_of_the_seed() -> None:
    """The same seed gives the same script, of all kinds, and bytes are corrupted only where that is allowed."""
    faults = random_faults(Random(1), 2)

    assert random_faults(Random(1), 2) == faults
    assert set(FAULTS) == {fault.what for fault in faults}
    assert {RESPONSE} == {fault.direction for fault in faults if fault.what == "corrupt"}
