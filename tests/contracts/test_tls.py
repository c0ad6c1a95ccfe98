"""TLS and mTLS over both protocols: what is right works, what is wrong is told with the file or variable to mend."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport, open_transport
from tests.certificates import Pair, make_pair
from tests.exports import AGENT, PATIENCE, make_body, make_endpoint
from tests.otlp_server import OtlpServer, ServerTls

pytestmark = pytest.mark.timeout(30)

Connect = Callable[..., Transport]
CLIENT = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"


@dataclass(frozen=True)
class Pairs:
    """Certificates of an authority, of a server that it signed, of our own, of somebody else, for another name, and one
    that has expired.
    """

    authority: Pair
    server: Pair
    client: Pair
    stranger: Pair
    elsewhere: Pair
    expired: Pair


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Give all certificates."""
    folder = tmp_path_factory.mktemp("pem")
    here = "IP:127.0.0.1"
    authority = make_pair(folder, "authority", "DNS:authority")
    return Pairs(
        authority=authority,
        server=make_pair(folder, "server", here, issuer=authority),
        client=make_pair(folder, "client", "DNS:client"),
        stranger=make_pair(folder, "stranger", "DNS:client"),
        elsewhere=make_pair(folder, "elsewhere", "DNS:collector.elsewhere"),
        expired=make_pair(folder, "expired", here, expired=True),
    )


def _tls(pair: Pair, client_ca: Path | None = None) -> ServerTls:
    return ServerTls(pair.key, pair.certificate, client_ca)


def _shown(pair: Pair) -> dict[str, Path]:
    """Return the variables of the certificate that we show."""
    return {"CLIENT_KEY": pair.key, "CLIENT_CERTIFICATE": pair.certificate}


def _told(answer: Answer, server: OtlpServer) -> str:
    """Return what is said to be wrong with TLS."""
    assert (answer.verdict, answer.code) == (Verdict.CONFIGURATION, "TLS")
    start = f"no TLS with 127.0.0.1:{server.port}: "
    assert answer.message.startswith(start)
    return answer.message.removeprefix(start)


def test_a_server_of_an_authority_that_we_trust_is_sent_to(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """The file of OTEL_EXPORTER_OTLP_CERTIFICATE may hold the authority's certificate or the server's own."""
    with OtlpServer(protocol, tls=_tls(pairs.server)) as server:
        for trusted in (pairs.authority, pairs.server):
            transport = connect(server.endpoint, CERTIFICATE=trusted.certificate)
            assert [Verdict.ACCEPTED] * 2 == [transport.send(make_body(), PATIENCE).verdict for _ in range(2)]
        assert len({received.peer for received in server.received(Signal.METRICS)}) == 2


def test_a_server_that_nobody_vouches_for_is_told(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """Without a file the remedy is to give one; gRPC does not know the authorities of the system."""
    with OtlpServer(protocol, tls=_tls(pairs.server)) as server:
        told = _told(connect(server.endpoint).send(make_body(), PATIENCE), server)
    known = "gRPC knows (it has a list of its own)" if protocol == "grpc" else "this machine knows"
    assert told == (
        f"no authority that {known} has signed the server's certificate: give the one that has in "
        "OTEL_EXPORTER_OTLP_CERTIFICATE"
    )


def test_a_server_of_another_authority_is_told(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """With a file the message names it, and the variable that it comes from, a signal's own too."""
    with OtlpServer(protocol, tls=_tls(pairs.server)) as server:
        transport = connect(server.endpoint, METRICS_CERTIFICATE=pairs.stranger.certificate)
        told = _told(transport.send(make_body(), PATIENCE), server)
        assert server.received(Signal.METRICS) == []
    assert told == (
        f"no authority in {pairs.stranger.certificate} (OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE) has signed the "
        "server's certificate"
    )


def test_an_expired_certificate_is_told(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """Nothing that we can set mends it, and the message says whose fault it is."""
    with OtlpServer(protocol, tls=_tls(pairs.expired)) as server:
        transport = connect(server.endpoint, CERTIFICATE=pairs.expired.certificate)
        assert _told(transport.send(make_body(), PATIENCE), server) == "the server's certificate has expired"


def test_a_certificate_for_another_name_is_told(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """The message has the name that we asked for."""
    with OtlpServer(protocol, tls=_tls(pairs.elsewhere)) as server:
        transport = connect(server.endpoint, CERTIFICATE=pairs.elsewhere.certificate)
        told = _told(transport.send(make_body(), PATIENCE), server)
    assert told.startswith("the server's certificate is for another name: ")
    assert "127.0.0.1" in told


def test_a_client_certificate_that_the_server_knows_is_accepted(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """Over mTLS all requests share one connection."""
    with OtlpServer(protocol, tls=_tls(pairs.server, pairs.client.certificate)) as server:
        transport = connect(server.endpoint, CERTIFICATE=pairs.server.certificate, **_shown(pairs.client))
        assert [Verdict.ACCEPTED] * 2 == [transport.send(make_body(), PATIENCE).verdict for _ in range(2)]
        assert len({received.peer for received in server.received(Signal.METRICS)}) == 1


def test_a_missing_client_certificate_is_told(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """Each time: also servers that hang up without a word, as gRPC's do, are known to want one."""
    with OtlpServer(protocol, tls=_tls(pairs.server, pairs.client.certificate)) as server:
        transport = connect(server.endpoint, CERTIFICATE=pairs.server.certificate)
        told = {_told(transport.send(make_body(), PATIENCE), server) for _ in range(5)}
        assert server.received(Signal.METRICS) == []
    assert told == {
        f"the server asks for a client's certificate: set {CLIENT} and OTEL_EXPORTER_OTLP_CLIENT_KEY",
    }


def test_a_client_certificate_that_the_server_does_not_know_is_told(
    protocol: str, connect: Connect, pairs: Pairs
) -> None:
    """The message names the file that the server does not accept."""
    with OtlpServer(protocol, tls=_tls(pairs.server, pairs.client.certificate)) as server:
        transport = connect(server.endpoint, CERTIFICATE=pairs.server.certificate, **_shown(pairs.stranger))
        told = {_told(transport.send(make_body(), PATIENCE), server) for _ in range(5)}
    start = f"the server does not accept our certificate {pairs.stranger.certificate} ({CLIENT})"
    assert {start} == {one.partition(": ")[0] for one in told}


def test_tls_to_a_plain_port_is_told(protocol: str, connect: Connect) -> None:
    """The remedy is the scheme."""
    with OtlpServer(protocol) as server:
        url = server.endpoint.replace("http://", "https://")
        told = _told(connect(url).send(make_body(), PATIENCE), server)
    assert told == (
        f"the port does not speak TLS; if it is meant to be without, write {server.endpoint} in "
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )


def test_plain_text_to_a_port_of_tls_is_told(protocol: str, connect: Connect, pairs: Pairs) -> None:
    """Servers just hang up; the remedy is the scheme."""
    with OtlpServer(protocol, tls=_tls(pairs.server)) as server:
        answer = connect(server.endpoint.replace("https://", "http://")).send(make_body(), PATIENCE)
    assert answer == Answer(
        Verdict.CONFIGURATION,
        "PROTOCOL",
        f"127.0.0.1:{server.port} speaks TLS: write {server.endpoint} in OTEL_EXPORTER_OTLP_ENDPOINT",
    )


def test_files_that_are_no_certificates_any_more_are_told(
    protocol: str, connect: Connect, pairs: Pairs, tmp_path: Path
) -> None:
    """A file that is broken or gone since it was looked at is an answer too, and is read again when it is mended."""
    with OtlpServer(protocol, tls=_tls(pairs.server)) as server:
        path = tmp_path / "ca.pem"
        shutil.copy(pairs.server.certificate, path)
        transport = connect(server.endpoint, CERTIFICATE=path)
        path.write_text("no certificate")
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.CONFIGURATION
        os.remove(path)
        told = _told(transport.send(make_body(), PATIENCE), server)
        assert told.startswith("a certificate file cannot be read: ")
        shutil.copy(pairs.server.certificate, path)
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED


def test_a_wrong_certificate_never_refuses_the_data(protocol: str, pairs: Pairs) -> None:
    """Whatever is wrong with TLS, nothing is set aside: a class that keeps everything comes of it."""
    with OtlpServer(protocol, tls=_tls(pairs.server, pairs.client.certificate)) as server:
        good = make_endpoint(server.endpoint, protocol, CERTIFICATE=pairs.server.certificate, **_shown(pairs.client))
        for wrong in (
            replace(good, certificate=None),
            replace(good, client_certificate=None, client_key=None),
            replace(good, url=good.url.replace("127.0.0.1", "localhost")),
            replace(good, url=good.url.replace("https:", "http:"), insecure=True),
        ):
            transport = open_transport(wrong, AGENT)
            assert transport.send(make_body(), PATIENCE).verdict is Verdict.CONFIGURATION
            transport.close()
