"""Whatever the network does, a request is answered in time and in words, and what can be mended is told as that."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.deadline import Deadline
from otel_logger_exporters.dialler import Dialler
from otel_logger_exporters.http_transport import HttpTransport
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport
from tests.certificates import make_pair
from tests.exports import AGENT, PATIENCE, PROTOCOLS, make_body, make_endpoint
from tests.network import Relay, Rude, black_hole, free_port
from tests.otlp_server import OtlpServer, Reply

pytestmark = pytest.mark.timeout(30)

TIMEOUT = 0.4
"""The timeout of a request that is not going to be answered."""

LATE = 1.0
"""What a busy machine may take beyond it."""

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
ACCEPTANCE = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 9999\r\n\r\n" + bytes(9999)

Connect = Callable[..., Transport]


def _send(transport: Transport, timeout: float) -> Answer:
    """Send and hold the transport to its timeout."""
    begun = time.monotonic()
    answer = transport.send(make_body(), timeout)
    assert time.monotonic() - begun < timeout + LATE
    return answer


@pytest.fixture
def dial() -> Iterator[Callable[..., HttpTransport]]:
    """Give a function that opens a transport over HTTP whose names are looked up by another function."""
    opened: list[HttpTransport] = []

    def make(lookup: Callable[..., object], url: str = "http://collector.test:4318") -> HttpTransport:
        clock = SystemClock()
        endpoint = make_endpoint(url, "http/protobuf")
        opened.append(HttpTransport(endpoint, AGENT, clock, Dialler(Deadline(clock), lookup)))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for transport in opened:
        transport.close()


def _addresses(*where: tuple[str, int]) -> Callable[..., object]:
    """Stand for a resolver that knows one host with several addresses."""

    def lookup(host: str, port: int, **_: object) -> list[object]:
        return [
            (socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, number))
            for name, number in where
        ]

    return lookup


def _never(connection: socket.socket) -> None:
    """Take everything and say nothing."""
    while connection.recv(65_536):
        pass


def _drips(answer: bytes) -> Callable[[socket.socket], None]:
    """Answer byte by byte, slowly, each long before any timeout of a socket."""

    def drip(connection: socket.socket) -> None:
        connection.recv(65_536)
        for byte in answer:
            connection.sendall(bytes((byte,)))
            time.sleep(0.02)

    return drip


@pytest.mark.parametrize(
    "treat",
    [_never, _drips(ACCEPTANCE), _drips(SETTINGS + bytes(4000))],
    ids=["silent", "dripping HTTP", "dripping HTTP/2"],
)
def test_servers_that_stall_cost_the_timeout(connect: Connect, treat: Callable[[socket.socket], None]) -> None:
    """A server that takes a request and never answers, or drips its answer, in head or body, is given up in time."""
    with Rude(treat) as server:
        answer = _send(connect(f"http://{server.address}"), TIMEOUT)
    if answer.code == "PROTOCOL":
        # Nonsense is known as that as soon as there is enough of it.
        assert answer.verdict is Verdict.CONFIGURATION
    else:
        assert answer == Answer(Verdict.RETRY, "TIMEOUT", f"{server.address} did not answer within {TIMEOUT:g} s")


def test_an_address_that_swallows_everything_costs_the_timeout(connect: Connect) -> None:
    """Where a firewall drops what is sent no attempt takes longer than it may."""
    with black_hole() as port:
        answer = _send(connect(f"http://127.0.0.1:{port}"), TIMEOUT)
    assert (answer.verdict, answer.code) == (Verdict.RETRY, "TIMEOUT")
    assert f"127.0.0.1:{port}" in answer.message


def test_hosts_of_several_addresses_are_reached_by_the_one_that_works(dial: Callable[..., HttpTransport]) -> None:
    """An address that swallows everything and one that refuses cost a moment, once: the connection is kept."""
    with OtlpServer("http/protobuf") as server, black_hole() as hole:
        where = (("127.0.0.1", hole), ("::1", free_port("::1")), ("127.0.0.1", server.port))
        transport = dial(_addresses(*where))
        begun = time.monotonic()
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
        assert time.monotonic() - begun < 2.0
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
        assert len({received.peer for received in server.received(Signal.METRICS)}) == 1


def test_hosts_of_several_addresses_that_all_stall_cost_the_timeout(dial: Callable[..., HttpTransport]) -> None:
    """The addresses share the time of the request."""
    with black_hole() as hole:
        answer = _send(dial(_addresses(*[("127.0.0.1", hole)] * 4)), TIMEOUT)
    message = "no connection to collector.test:4318: it did not take the connection in time"
    assert answer == Answer(Verdict.RETRY, "TIMEOUT", message)


def test_a_resolver_that_stalls_costs_the_timeout(dial: Callable[..., HttpTransport]) -> None:
    """Looking up a name is inside the timeout, again and again, with one look-up under way; then its result counts."""
    with OtlpServer("http/protobuf") as server:
        asked: list[str] = []

        def lookup(host: str, port: int, **_: object) -> object:
            asked.append(host)
            time.sleep(3 * TIMEOUT)
            return _addresses(("127.0.0.1", server.port))(host, port)

        transport = dial(lookup)
        late = "no connection to collector.test:4318: its name was not resolved in time"
        for _ in range(2):
            assert _send(transport, TIMEOUT) == Answer(Verdict.RETRY, "TIMEOUT", late)
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
        assert asked == ["collector.test"]


def test_a_name_that_nobody_knows_is_said_to_be_one(connect: Connect) -> None:
    """The message names the host; it is tried again, for names appear."""
    answer = _send(connect("http://nobody.invalid:4318"), PATIENCE)
    assert (answer.verdict, answer.code) == (Verdict.RETRY, "DNS")
    assert answer.message.startswith("no connection to nobody.invalid:4318: its name cannot be resolved (")


def test_a_port_where_nobody_listens_is_said_to_be_one(connect: Connect) -> None:
    """The message has the address and no numbers of errors, alike in both protocols."""
    address = f"127.0.0.1:{free_port()}"
    answer = _send(connect(f"http://{address}"), PATIENCE)
    assert answer == Answer(Verdict.RETRY, "CONNECTION", f"no connection to {address}: connection refused")


@pytest.mark.parametrize("treat", [lambda connection: None, lambda connection: connection.recv(10)])
def test_a_server_that_hangs_up_is_tried_again(connect: Connect, treat: Callable[[socket.socket], object]) -> None:
    """A server that closes each connection, at once or after some bytes, is no mistake in any setting."""
    with Rude(treat) as server:
        answer = _send(connect(f"http://{server.address}"), PATIENCE)
    assert (answer.verdict, answer.code) == (Verdict.RETRY, "CONNECTION")
    assert answer.message.startswith(f"the connection to {server.address} broke off: ")


def test_a_connection_that_ends_when_it_is_used_again_costs_nothing() -> None:
    """A server that closes an idle connection just then has seen no request: it goes over a new one, at once."""
    requests = []

    def once(connection: socket.socket) -> None:
        """Answer one request and hang up on the next."""
        for last in (False, True):
            request = b""
            while not request.endswith(make_body()):
                if not (part := connection.recv(65_536)):
                    return
                request += part
            requests.append(request)
            if not last:
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with Rude(once) as server:
        transport = HttpTransport(make_endpoint(f"http://{server.address}", "http/protobuf"), AGENT)
        assert [Verdict.ACCEPTED] * 3 == [_send(transport, PATIENCE).verdict for _ in range(3)]
        transport.close()
        assert server.accepted == 3
    assert len(requests) == 5


def test_a_server_that_drips_over_tls_costs_the_timeout(tmp_path: Path) -> None:
    """The timeout holds for the whole answer, however it is encrypted."""
    pair = make_pair(tmp_path, "server", "IP:127.0.0.1")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with Rude(_drips(ACCEPTANCE), tls=context) as server:
        endpoint = make_endpoint(f"https://{server.address}", "http/protobuf", CERTIFICATE=pair.certificate)
        transport = HttpTransport(endpoint, AGENT)
        assert _send(transport, TIMEOUT).code == "TIMEOUT"
        transport.close()


def test_an_answer_that_breaks_off_is_none() -> None:
    """A body that ends before its length is not taken for an acceptance; an error's status is enough."""
    told = []
    for status in (b"200 OK", b"503 Busy"):
        part = b"HTTP/1.1 " + status + b"\r\ncontent-length: 9999\r\n\r\nonly this"
        with Rude(lambda connection, part=part: connection.recv(65_536) and connection.sendall(part)) as server:  # type: ignore[misc]
            transport = HttpTransport(make_endpoint(f"http://{server.address}", "http/protobuf"), AGENT)
            told.append(_send(transport, PATIENCE))
            transport.close()
    assert [(Verdict.RETRY, "CONNECTION"), (Verdict.RETRY, "503")] == [(one.verdict, one.code) for one in told]
    assert "broke off" in told[0].message


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_request_that_is_too_large_is_refused(compression: str, connect: Connect, protocol: str) -> None:
    """What a server will never take is divided: gRPC's own limit of 4 MiB, packed or not, and HTTP's 413."""
    with OtlpServer(protocol) as server:
        server.answer_with(*[Reply(http=413, message="too large")] * (protocol != "grpc"))
        answer = connect(server.endpoint, COMPRESSION=compression).send(bytes(5_000_000), PATIENCE)
    assert answer.verdict is Verdict.REFUSED
    assert answer.code in ("413", "RESOURCE_EXHAUSTED")


def test_ipv6_addresses_work(protocol: str, connect: Connect) -> None:
    """An endpoint may be an IPv6 address in brackets."""
    with OtlpServer(protocol, host="::1") as server:
        assert server.endpoint == f"http://[::1]:{server.port}"
        assert connect(server.endpoint).send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
    answer = connect(server.endpoint).send(make_body(), PATIENCE)
    assert answer.message == f"no connection to [::1]:{server.port}: connection refused"


def test_the_other_protocols_port_is_said_to_be_one(protocol: str, connect: Connect) -> None:
    """HTTP sent to a gRPC port, or gRPC to an HTTP port, is told with what to set; it never counts as refused data."""
    (other,) = set(PROTOCOLS) - {protocol}
    with OtlpServer(other) as server:
        answer = connect(server.endpoint).send(make_body(), PATIENCE)
    speaks, port = ("gRPC", 4317) if protocol == "grpc" else ("HTTP/1.1", 4318)
    assert answer == Answer(
        Verdict.CONFIGURATION,
        "PROTOCOL",
        f"127.0.0.1:{server.port} does not speak {speaks}: give the port that does, by custom {port}, "
        f"or set OTEL_EXPORTER_OTLP_PROTOCOL={other}",
    )


def test_a_port_of_grpc_is_known_also_when_it_hangs_up() -> None:
    """gRPC servers in Go say nothing to HTTP/1.1; a server that has answered before is the right one, and only gone."""
    answered = []

    def treat(connection: socket.socket) -> None:
        start = connection.recv(65_536)
        if start.startswith(b"PRI"):
            connection.sendall(SETTINGS)
        elif not answered:
            answered.append(start)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    with Rude(treat) as server:
        url = f"http://{server.address}"
        transports = [HttpTransport(make_endpoint(url, "http/protobuf"), AGENT) for _ in range(2)]
        assert transports[0].send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
        told = [transport.send(make_body(), PATIENCE) for transport in transports]
        for transport in transports:
            transport.close()
    assert [(Verdict.RETRY, "CONNECTION"), (Verdict.CONFIGURATION, "PROTOCOL")] == [
        (answer.verdict, answer.code) for answer in told
    ]


def test_a_server_that_says_unavailable_is_believed(connect: Connect, protocol: str) -> None:
    """What a server says itself is not replaced by what we find on the way; one that says when to come back is left."""
    with OtlpServer(protocol) as server, Relay(server.port) as relay:
        transport = connect(f"http://{relay.address}")
        for retry_after in (3.0, None):
            server.answer_with(Reply(grpc="UNAVAILABLE", http=503, message="memory limit", retry_after=retry_after))
            answer = transport.send(make_body(), PATIENCE)
            assert answer == Answer(Verdict.RETRY, answer.code, "memory limit", retry_after)
            assert retry_after is None or relay.accepted == 1


def test_words_of_grpc_decide_nothing(connect: Connect, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages change with its versions: what is wrong is found without them."""
    monkeypatch.setattr("otel_logger_exporters.answers.PHRASES", ())
    with OtlpServer("http/protobuf" if protocol == "grpc" else "grpc") as server:
        assert connect(server.endpoint).send(make_body(), PATIENCE).verdict is Verdict.CONFIGURATION
    with OtlpServer(protocol) as server:
        url = server.endpoint.replace("http:", "https:")
        assert connect(url).send(make_body(), PATIENCE).verdict is Verdict.CONFIGURATION
