"""Both transports keep one contract, shown against real servers on the loopback interface."""

import socket
import subprocess
import threading
import time
from dataclasses import replace
from shutil import which

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.endpoints import endpoint_from_environ
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import open_transport, user_agent
from tests.otlp_server import OtlpServer, Reply, ServerTls

pytestmark = pytest.mark.timeout(30)

PROTOCOLS = ("http/protobuf", "grpc")
AGENT = user_agent("1.2.3")
PATIENCE = 10.0
"""The timeout of a request that is going to be answered."""


def _body(count=3):
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="loss")
    for index in range(count):
        metric.gauge.data_points.add(time_unix_nano=index, as_double=index / 2)
    return request.SerializeToString()


def _endpoint(url, protocol, signal=Signal.METRICS, **variables):
    environ = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
    environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    return endpoint_from_environ(environ, signal)[0]


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    """Give each of the protocols."""
    return request.param


@pytest.fixture
def server(protocol):
    """Give a running server of the protocol."""
    with OtlpServer(protocol) as running:
        yield running


@pytest.fixture
def connect(protocol):
    """Give a function that opens transports to an address and closes them in the end."""
    opened = []

    def connect_to(url, signal=Signal.METRICS, **variables):
        opened.append(open_transport(_endpoint(url, protocol, signal, **variables), AGENT))
        return opened[-1]

    yield connect_to
    for transport in opened:
        transport.close()


@pytest.mark.parametrize("signal", Signal)
def test_bytes_arrive_as_they_are(server, connect, protocol, signal):
    """The server of the signal gets the very bytes, with the headers given and our user agent."""
    transport = connect(server.endpoint, signal, HEADERS="x-tenant=a%20b")
    expected = Answer(Verdict.ACCEPTED, "OK" if protocol == "grpc" else "200")
    assert expected == transport.send(_body(), PATIENCE)
    (received,) = server.received(signal)
    assert received.body == _body()
    assert received.headers["x-tenant"] == "a b"
    assert received.headers["user-agent"].startswith("OTel-OTLP-Exporter-otel_logger/1.2.3")


def test_one_connection_serves_all_requests(server, connect):
    """A second request goes over the connection of the first, also after an error."""
    transport = connect(server.endpoint)
    server.answer_with(Reply(), Reply(grpc="INVALID_ARGUMENT", http=400, message="bad"))
    for _ in range(3):
        transport.send(_body(), PATIENCE)
    assert len({received.peer for received in server.received(Signal.METRICS)}) == 1


def test_http_body_is_compressed_when_asked():
    """With gzip the body on the wire is compressed and the same for the same data."""
    with OtlpServer("http/protobuf") as server:
        transport = open_transport(_endpoint(server.endpoint, "http/protobuf", COMPRESSION="gzip"), AGENT)
        for _ in range(2):
            transport.send(_body(1000), PATIENCE)
        transport.close()
        first, second = server.received(Signal.METRICS)
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["content-type"] == "application/x-protobuf"
    assert first.body == _body(1000)
    assert len(first.wire_body) < len(first.body) / 2
    assert first.wire_body == second.wire_body


def test_grpc_body_is_compressed_when_asked():
    """With gzip the server finds a message too large only once it is decompressed; without, as it comes."""
    messages = {}
    with OtlpServer("grpc") as server:
        for compression in ("none", "gzip"):
            transport = open_transport(_endpoint(server.endpoint, "grpc", COMPRESSION=compression), AGENT)
            assert transport.send(_body(), PATIENCE).verdict is Verdict.ACCEPTED
            answer = transport.send(bytes(5_000_000), PATIENCE)
            assert answer.verdict is Verdict.REFUSED
            messages[compression] = answer.message.lower()
            transport.close()
    assert "decompressed message larger than max" in messages["gzip"]
    assert "decompressed" not in messages["none"]


def test_partial_success_is_accepted_and_counted(server, connect):
    """A partial success tells how many were rejected and why; a warning alone tells its message."""
    transport = connect(server.endpoint)
    server.answer_with(Reply(rejected=3, message="too many labels"), Reply(message="deprecated"))
    answers = [transport.send(_body(), PATIENCE) for _ in range(2)]
    assert [(a.verdict, a.rejected, a.message) for a in answers] == [
        (Verdict.ACCEPTED, 3, "too many labels"),
        (Verdict.ACCEPTED, 0, "deprecated"),
    ]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (Reply(grpc="UNAVAILABLE", http=503, message="later"), Verdict.RETRY),
        (Reply(grpc="RESOURCE_EXHAUSTED", http=429, message="rate limit"), Verdict.RETRY),
        (Reply(grpc="UNAUTHENTICATED", http=401, message="who?"), Verdict.CONFIGURATION),
        (Reply(grpc="INVALID_ARGUMENT", http=400, message="bad name"), Verdict.REFUSED),
        (Reply(grpc="INVALID_ARGUMENT", http=400, message="out of order sample"), Verdict.CONFIGURATION),
    ],
)
def test_answers_have_their_verdict_and_message(server, connect, reply, verdict):
    """What the server says arrives as verdict, code and message."""
    server.answer_with(reply)
    answer = connect(server.endpoint).send(_body(), PATIENCE)
    assert answer.verdict is verdict
    assert answer.code in (reply.grpc, str(reply.http))
    assert answer.message.startswith(reply.message)


def test_wait_that_the_server_asks_for_is_heard(server, connect):
    """RetryInfo in gRPC's rich error and HTTP's Retry-After come as seconds."""
    server.answer_with(Reply(grpc="UNAVAILABLE", http=503, retry_after=7.0))
    assert connect(server.endpoint).send(_body(), PATIENCE).retry_after == 7.0


def test_refused_connection_is_retried_and_recovers_at_once(protocol, connect):
    """Nobody listens: RETRY; as soon as somebody does, the next attempt gets through."""
    port = _free_port()
    transport = connect(f"http://127.0.0.1:{port}")
    for _ in range(3):
        assert transport.send(_body(), PATIENCE).verdict is Verdict.RETRY
    with OtlpServer(protocol, port=port):
        assert transport.send(_body(), PATIENCE).verdict is Verdict.ACCEPTED
    assert transport.send(_body(), PATIENCE).verdict is Verdict.RETRY
    with OtlpServer(protocol, port=port):
        assert transport.send(_body(), PATIENCE).verdict is Verdict.ACCEPTED


def test_silent_server_times_out_in_time(server, connect):
    """A server that never answers costs the timeout, not more, and is tried again."""
    server.answer_with(Reply(silent=True))
    transport = connect(server.endpoint)
    start = time.monotonic()
    answer = transport.send(_body(), 0.2)
    assert 0.15 < time.monotonic() - start < 2.0
    assert (answer.verdict, answer.code) in (
        (Verdict.RETRY, "TIMEOUT"),
        (Verdict.RETRY, "DEADLINE_EXCEEDED"),
    )
    assert transport.send(_body(), PATIENCE).verdict is Verdict.ACCEPTED


def test_sending_after_close_is_an_answer(server, connect):
    """A closed transport answers RETRY and sends nothing; closing twice is no error."""
    transport = connect(server.endpoint)
    assert transport.send(_body(), PATIENCE).verdict is Verdict.ACCEPTED
    transport.close()
    transport.close()
    assert transport.send(_body(), PATIENCE) == Answer(Verdict.RETRY, "CLOSED", "the transport is closed")
    assert len(server.received(Signal.METRICS)) == 1


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_no_time_is_an_answer(server, connect, timeout):
    """Without any time left the answer is RETRY, or what the server was quick enough to say."""
    assert connect(server.endpoint).send(_body(), timeout).verdict in (Verdict.RETRY, Verdict.ACCEPTED)


def test_tls_to_a_plain_port_is_configuration(server, connect):
    """A port without TLS fails the handshake, which waiting does not mend."""
    url = server.endpoint.replace("http://", "https://")
    assert connect(url).send(_body(), PATIENCE).verdict is Verdict.CONFIGURATION


def test_other_protocols_port_is_configuration(protocol, connect):
    """HTTP sent to a gRPC port, or gRPC to an HTTP port, never counts as refused data."""
    (other,) = set(PROTOCOLS) - {protocol}
    with OtlpServer(other) as server:
        assert connect(server.endpoint).send(_body(), PATIENCE).verdict is Verdict.CONFIGURATION


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_not_followed(status):
    """A redirect is configuration; nothing goes to where it points, and a query in it is not told."""
    with OtlpServer("http/protobuf") as server, OtlpServer("http/protobuf") as elsewhere:
        location = f"{elsewhere.endpoint}/v1/metrics"
        server.answer_with(Reply(http=status, headers={"location": f"{location}?key=geheim"}))
        transport = open_transport(_endpoint(server.endpoint, "http/protobuf", HEADERS="authorization=x"), AGENT)
        answer = transport.send(_body(), PATIENCE)
        transport.close()
        assert answer == Answer(
            Verdict.CONFIGURATION,
            str(status),
            f"redirected to {location}, not followed: give the final address",
        )
        assert elsewhere.received(Signal.METRICS) == []


def test_web_page_is_no_acceptance():
    """A page that says 200 to everything is not taken for an OTLP endpoint; an error's page is cut short."""
    with OtlpServer("http/protobuf") as server:
        html = {"content-type": "text/html; charset=utf-8"}
        server.answer_with(Reply(text="<html>Log in", headers=html), Reply(http=502, text="Bad\n gateway " * 100))
        transport = open_transport(_endpoint(server.endpoint, "http/protobuf"), AGENT)
        page, error = (transport.send(_body(), PATIENCE) for _ in range(2))
        transport.close()
    assert page.verdict is Verdict.CONFIGURATION
    assert "web page" in page.message
    assert error.verdict is Verdict.RETRY
    assert error.message == ("Bad gateway " * 100)[:300]


def test_dripping_response_ends_in_time():
    """A body that comes byte by byte does not hold the sender longer than the timeout."""
    stop = threading.Event()

    def drip(listener):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
            while not stop.wait(0.02):
                try:
                    connection.sendall(b"\0")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        transport = open_transport(_endpoint(f"http://127.0.0.1:{port}", "http/protobuf"), AGENT)
        start = time.monotonic()
        answer = transport.send(_body(), 0.2)
        elapsed = time.monotonic() - start
        stop.set()
        thread.join()
        transport.close()
    assert (answer.verdict, answer.code) == (Verdict.RETRY, "TIMEOUT")
    assert elapsed < 2.0


def test_closing_ends_a_request_under_way(server, connect, protocol):
    """Closed from another thread while it waits, a request gets an answer and raises nothing."""
    server.answer_with(Reply(silent=True))
    transport = connect(server.endpoint)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(transport.send(_body(), 0.5)))
    thread.start()
    server.wait_for(Signal.METRICS, 1)
    transport.close()
    thread.join()
    assert [answer.verdict for answer in answers] == [Verdict.RETRY]


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Give a folder with key.pem and cert.pem, self-signed for 127.0.0.1."""
    if which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    folder = tmp_path_factory.mktemp("pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=otlp"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


def test_tls_needs_authority_name_and_client_certificate(protocol, connect, pem):
    """TLS works with authority, name and client certificate right; what is missing is never the data's fault."""
    authority = {"CERTIFICATE": str(pem / "cert.pem")}
    client = {"CLIENT_KEY": str(pem / "key.pem"), "CLIENT_CERTIFICATE": str(pem / "cert.pem")}
    with OtlpServer(protocol, tls=ServerTls(pem / "key.pem", pem / "cert.pem", pem / "cert.pem")) as server:
        assert connect(server.endpoint, **authority, **client).send(_body(), PATIENCE).verdict is Verdict.ACCEPTED
        assert connect(server.endpoint, **client).send(_body(), PATIENCE).verdict is Verdict.CONFIGURATION
        assert connect(server.endpoint, **authority).send(_body(), PATIENCE).verdict is not Verdict.REFUSED
        elsewhere = server.endpoint.replace("127.0.0.1", "localhost")
        assert connect(elsewhere, **authority, **client).send(_body(), PATIENCE).verdict is Verdict.CONFIGURATION
    assert len(server.received(Signal.METRICS)) == 1


def test_files_that_are_no_certificates_are_an_answer(server, protocol, tmp_path):
    """A certificate file that is broken, or gone since, is an answer too."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    endpoint = _endpoint(server.endpoint.replace("http:", "https:"), protocol, CERTIFICATE=str(broken))
    for path in (str(broken), str(tmp_path / "gone.pem")):
        transport = open_transport(replace(endpoint, certificate=path), AGENT)
        assert transport.send(_body(), PATIENCE).verdict is Verdict.CONFIGURATION
        transport.close()
