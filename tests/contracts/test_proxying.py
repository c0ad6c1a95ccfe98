"""Both protocols go through the proxy that the environment names, and through none that it does not."""

from collections.abc import Callable, Iterator
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport, open_transport
from tests.certificates import Pair, make_pair
from tests.exports import AGENT, PATIENCE, make_body, make_endpoint
from tests.network import ProxyServer, free_port
from tests.otlp_server import OtlpServer, ServerTls

pytestmark = pytest.mark.timeout(30)

HOST = "collector.test:4318"
"""What only the proxy can resolve."""

Connect = Callable[..., Transport]


@pytest.fixture(autouse=True)
def environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own variables point to nowhere and except everything: nobody may look at them."""
    for name in ("grpc_proxy", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "collector.test,127.0.0.1,localhost")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Give the certificate of the server behind the proxy."""
    return make_pair(tmp_path_factory.mktemp("pem"), "collector", "DNS:collector.test")


@pytest.fixture
def secured(protocol: str, pair: Pair) -> Iterator[OtlpServer]:
    """Give a server that speaks TLS."""
    with OtlpServer(protocol, tls=ServerTls(pair.key, pair.certificate)) as server:
        yield server


def test_requests_go_through_the_proxy_over_one_connection(protocol: str, connect: Connect, server: OtlpServer) -> None:
    """A proxy forwards HTTP and tunnels gRPC; it alone looks the host's name up."""
    with ProxyServer({HOST: server.port}) as proxy:
        transport = connect(f"http://{HOST}", HTTP_PROXY=f"http://{proxy.address}")
        assert [Verdict.ACCEPTED] * 3 == [transport.send(make_body(), PATIENCE).verdict for _ in range(3)]
        assert proxy.accepted == 1
    first = f"CONNECT {HOST} HTTP/1.1" if protocol == "grpc" else f"POST http://{HOST}/v1/metrics HTTP/1.1"
    assert proxy.asked == [first]
    assert [make_body()] * 3 == [received.body for received in server.received(Signal.METRICS)]


def test_tls_goes_through_a_tunnel_and_is_the_servers_own(connect: Connect, secured: OtlpServer, pair: Pair) -> None:
    """The proxy is asked to connect and sees no more; the server's certificate is held against the server's name."""
    with ProxyServer({HOST: secured.port, "other.test:4318": secured.port}) as proxy:
        variables = {"HTTPS_PROXY": proxy.address, "CERTIFICATE": pair.certificate}
        transport = connect(f"https://{HOST}", **variables)
        assert [Verdict.ACCEPTED] * 3 == [transport.send(make_body(), PATIENCE).verdict for _ in range(3)]
        assert proxy.accepted == 1
        assert proxy.asked[0].startswith(f"CONNECT {HOST} HTTP/1.")
        answer = connect("https://other.test:4318", **variables).send(make_body(), PATIENCE)
    assert (answer.verdict, answer.code) == (Verdict.CONFIGURATION, "TLS")
    assert "other.test" in answer.message


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_user_and_password_open_the_proxy(
    protocol: str, connect: Connect, secured: OtlpServer, server: OtlpServer, pair: Pair, scheme: str
) -> None:
    """They are taken from the variable, percent-decoded; when they are wrong that is told, and they are not."""
    port = server.port if scheme == "http" else secured.port
    with ProxyServer({HOST: port}, user="me:p@ss/wörd") as proxy:
        for password, is_right in (("p%40ss%2Fw%C3%B6rd", True), ("geheim", False)):
            variables = {"ALL_PROXY": f"http://me:{password}@{proxy.address}", "CERTIFICATE": pair.certificate}
            answer = connect(f"{scheme}://{HOST}", **variables).send(make_body(), PATIENCE)
            assert answer.verdict is (Verdict.ACCEPTED if is_right else Verdict.CONFIGURATION)
    assert "407" in f"{answer.code} {answer.message}"
    assert "http://user:password@host:port" in answer.message
    assert "geheim" not in answer.message


def test_a_proxy_that_does_not_let_through_is_told(connect: Connect) -> None:
    """A refusal is a setting to change, whatever code it has; a proxy that cannot reach the server is tried again."""
    told = {}
    for status in ("403 Forbidden", "400 Bad Request", "503 Try later", "502 Bad Gateway"):
        with ProxyServer(status=status) as proxy:
            answer = connect(f"https://{HOST}", https_proxy=proxy.address).send(make_body(), PATIENCE)
            message = f"the proxy {proxy.address} (https_proxy) does not lead to {HOST}: {status}"
            assert ("PROXY", message) == (answer.code, answer.message)
            told[status[:3]] = answer.verdict
    configuration, retry = Verdict.CONFIGURATION, Verdict.RETRY
    assert {"403": configuration, "400": configuration, "503": retry, "502": retry} == told


def test_a_proxy_that_is_away_is_told_by_name(connect: Connect) -> None:
    """The message says that it is the proxy, and which variable names it."""
    address = f"127.0.0.1:{free_port()}"
    for scheme in ("http", "https"):
        answer = connect(f"{scheme}://{HOST}", all_proxy=f"http://me:geheim@{address}").send(make_body(), PATIENCE)
        message = f"no connection to the proxy {address} (all_proxy): connection refused"
        assert Answer(Verdict.RETRY, "CONNECTION", message) == answer


def test_the_environment_of_the_process_names_no_proxy(
    connect: Connect, server: OtlpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one in the mapping that was given none is used, also by gRPC, which would look for one itself."""
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name)
    assert connect(server.endpoint).send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED


def test_what_is_excepted_goes_straight(connect: Connect, server: OtlpServer) -> None:
    """Neither a host in NO_PROXY nor this machine itself is reached through a proxy."""
    with ProxyServer() as proxy:
        assert connect(server.endpoint, all_proxy=proxy.address).send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
        answer = connect("http://nobody.invalid:4318", all_proxy=proxy.address, no_proxy=".invalid").send(
            make_body(), PATIENCE
        )
    assert answer.code == "DNS"
    assert proxy.accepted == 0


def test_a_proxy_may_be_spoken_to_by_tls(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP goes through it, TLS within TLS too; whom the system trusts, and no file of ours, vouches for a proxy."""
    own = make_pair(tmp_path, "proxy", "IP:127.0.0.1")
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    with (
        OtlpServer("http/protobuf") as plain,
        OtlpServer("http/protobuf", tls=ServerTls(pair.key, pair.certificate)) as secured,
    ):
        answers = []
        for trusted in (pair, own):
            # Where OpenSSL looks for the system's authorities.
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted.certificate))
            for scheme, server in (("http", plain), ("https", secured)):
                with ProxyServer({HOST: server.port}, tls=context) as proxy:
                    variables = {"all_proxy": f"https://{proxy.address}", "CERTIFICATE": pair.certificate}
                    endpoint = make_endpoint(f"{scheme}://{HOST}", "http/protobuf", **variables)
                    transport = open_transport(endpoint, AGENT)
                    answers.append(transport.send(make_body(), PATIENCE))
                    transport.close()
    assert [(Verdict.CONFIGURATION, "PROXY")] * 2 + [(Verdict.ACCEPTED, "200")] * 2 == [
        (answer.verdict, answer.code) for answer in answers
    ]
    assert answers[0].message.startswith("no TLS with the proxy 127.0.0.1:")
    assert answers[0].message.endswith("certificate")
