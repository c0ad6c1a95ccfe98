"""Both transports keep one contract, shown against real servers on the loopback interface."""

import threading
import time
from dataclasses import replace

import pytest

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import open_transport
from tests.exports import AGENT, PATIENCE, make_body, make_endpoint
from tests.network import Relay, free_port
from tests.otlp_server import OtlpServer, Reply

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("signal", Signal)
def test_bytes_arrive_as_they_are(server, connect, protocol, signal):
    """The server of the signal gets the very bytes, with the headers given and our user agent."""
    transport = connect(server.endpoint, signal, HEADERS="x-tenant=a%20b")
    expected = Answer(Verdict.ACCEPTED, "OK" if protocol == "grpc" else "200")
    assert expected == transport.send(make_body(), PATIENCE)
    (received,) = server.received(signal)
    assert received.body == make_body()
    assert received.headers["x-tenant"] == "a b"
    assert received.headers["user-agent"].startswith("OTel-OTLP-Exporter-otel_logger/1.2.3")


def test_one_connection_serves_all_requests(server, connect):
    """All requests go over the connection of the first, also after errors of every class."""
    server.answer_with(
        Reply(),
        Reply(grpc="INVALID_ARGUMENT", http=400, message="bad"),
        Reply(grpc="RESOURCE_EXHAUSTED", http=429, message="slower"),
        Reply(grpc="UNAUTHENTICATED", http=401, message="who?"),
        Reply(rejected=1),
    )
    with Relay(server.port) as relay:
        transport = connect(f"http://{relay.address}")
        answers = [transport.send(make_body(), PATIENCE) for _ in range(50)]
        assert relay.accepted == 1
    assert len(server.received(Signal.METRICS)) == 50
    assert [answer.verdict for answer in answers[5:]] == [Verdict.ACCEPTED] * 45


def test_a_connection_that_was_closed_while_idle_costs_nothing():
    """Servers and load balancers close idle connections: the next request makes a new one, and is answered."""
    with OtlpServer("http/protobuf") as server, Relay(server.port) as relay:
        transport = open_transport(make_endpoint(f"http://{relay.address}", "http/protobuf"), AGENT)
        for count in (1, 2, 3):
            assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
            assert relay.accepted == count
            relay.cut()
        transport.close()


def test_a_server_that_restarts_gets_one_new_connection(protocol, connect):
    """While it is away attempts are answered with RETRY; then all requests share one connection again."""
    port = free_port()
    transport = connect(f"http://127.0.0.1:{port}")
    for _ in range(3):
        with OtlpServer(protocol, port=port) as server:
            assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
            assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
            assert len({received.peer for received in server.received(Signal.METRICS)}) == 1
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.RETRY


def test_http_body_is_compressed_when_asked():
    """With gzip the body on the wire is compressed and the same for the same data."""
    with OtlpServer("http/protobuf") as server:
        transport = open_transport(make_endpoint(server.endpoint, "http/protobuf", COMPRESSION="gzip"), AGENT)
        for _ in range(2):
            transport.send(make_body(1000), PATIENCE)
        transport.close()
        first, second = server.received(Signal.METRICS)
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["content-type"] == "application/x-protobuf"
    assert first.body == make_body(1000)
    assert len(first.wire_body) < len(first.body) / 2
    assert first.wire_body == second.wire_body


def test_what_is_sent_is_compressed_when_asked(server, connect):
    """With gzip far fewer bytes are on the wire than without, and the server finds the same request in them."""
    sizes = []
    for compression in ("none", "gzip"):
        with Relay(server.port) as relay:
            answer = connect(f"http://{relay.address}", COMPRESSION=compression).send(make_body(10_000), PATIENCE)
            assert answer.verdict is Verdict.ACCEPTED
            sizes.append(relay.bytes)
    assert sizes[1] < sizes[0] / 3
    assert [make_body(10_000)] * 2 == [received.body for received in server.received(Signal.METRICS)]


def test_compression_by_default_gives_way(server, protocol):
    """A server that cannot read what nobody asked to compress gets it plain, at once, and all that follows."""
    endpoint = replace(make_endpoint(server.endpoint, protocol), compression="gzip", is_compression_asked=False)
    server.answer_with(Reply(grpc="UNIMPLEMENTED", http=415, message="no gzip here"))
    transport = open_transport(endpoint, AGENT)
    assert [Verdict.ACCEPTED] * 3 == [transport.send(make_body(), PATIENCE).verdict for _ in range(3)]
    transport.close()
    received = server.received(Signal.METRICS)
    assert [make_body()] * 4 == [one.body for one in received]
    if protocol != "grpc":
        assert ["gzip", None, None, None] == [one.headers.get("content-encoding") for one in received]


def test_compression_that_is_asked_for_does_not_give_way(server, connect):
    """Who asks for gzip is told that the server does not take it."""
    server.answer_with(Reply(grpc="UNIMPLEMENTED", http=415, message="no gzip here"))
    answer = connect(server.endpoint, COMPRESSION="gzip").send(make_body(), PATIENCE)
    assert answer.verdict is Verdict.CONFIGURATION
    assert answer.message.startswith("no gzip here (check OTEL_EXPORTER_OTLP_")
    assert len(server.received(Signal.METRICS)) == 1


def test_partial_success_is_accepted_and_counted(server, connect):
    """A partial success tells how many were rejected and why; a warning alone tells its message."""
    transport = connect(server.endpoint)
    server.answer_with(Reply(rejected=3, message="too many labels"), Reply(message="deprecated"))
    answers = [transport.send(make_body(), PATIENCE) for _ in range(2)]
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
    answer = connect(server.endpoint).send(make_body(), PATIENCE)
    assert answer.verdict is verdict
    assert answer.code in (reply.grpc, str(reply.http))
    assert answer.message.startswith(reply.message)


def test_wait_that_the_server_asks_for_is_heard(server, connect):
    """RetryInfo in gRPC's rich error and HTTP's Retry-After come as seconds."""
    server.answer_with(Reply(grpc="UNAVAILABLE", http=503, retry_after=7.0))
    assert connect(server.endpoint).send(make_body(), PATIENCE).retry_after == 7.0


def test_refused_connection_is_retried_and_recovers_at_once(protocol, connect):
    """Nobody listens: RETRY; as soon as somebody does, the next attempt gets through."""
    port = free_port()
    transport = connect(f"http://127.0.0.1:{port}")
    for _ in range(3):
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.RETRY
    with OtlpServer(protocol, port=port):
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
    assert transport.send(make_body(), PATIENCE).verdict is Verdict.RETRY
    with OtlpServer(protocol, port=port):
        assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED


def test_silent_server_times_out_in_time(server, connect):
    """A server that never answers costs the timeout, not more, and is tried again."""
    server.answer_with(Reply(silent=True))
    transport = connect(server.endpoint)
    start = time.monotonic()
    answer = transport.send(make_body(), 0.2)
    assert 0.15 < time.monotonic() - start < 2.0
    assert (answer.verdict, answer.code) in (
        (Verdict.RETRY, "TIMEOUT"),
        (Verdict.RETRY, "DEADLINE_EXCEEDED"),
    )
    assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED


def test_sending_after_close_is_an_answer(server, connect):
    """A closed transport answers RETRY and sends nothing; closing twice is no error."""
    transport = connect(server.endpoint)
    assert transport.send(make_body(), PATIENCE).verdict is Verdict.ACCEPTED
    transport.close()
    transport.close()
    assert transport.send(make_body(), PATIENCE) == Answer(Verdict.RETRY, "CLOSED", "the transport is closed")
    assert len(server.received(Signal.METRICS)) == 1


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_no_time_is_an_answer(server, connect, timeout):
    """Without any time left the answer is RETRY, or what the server was quick enough to say."""
    assert connect(server.endpoint).send(make_body(), timeout).verdict in (Verdict.RETRY, Verdict.ACCEPTED)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_not_followed(status):
    """A redirect is configuration; nothing goes to where it points, and a query in it is not told."""
    with OtlpServer("http/protobuf") as server, OtlpServer("http/protobuf") as elsewhere:
        location = f"{elsewhere.endpoint}/v1/metrics"
        server.answer_with(Reply(http=status, headers={"location": f"{location}?key=geheim"}))
        transport = open_transport(make_endpoint(server.endpoint, "http/protobuf", HEADERS="authorization=x"), AGENT)
        answer = transport.send(make_body(), PATIENCE)
        transport.close()
        assert answer == Answer(
            Verdict.CONFIGURATION,
            str(status),
            f"redirected to {location}, not followed (give the final address in OTEL_EXPORTER_OTLP_ENDPOINT)",
        )
        assert elsewhere.received(Signal.METRICS) == []


def test_web_page_is_no_acceptance():
    """A page that says 200 to everything is not taken for an OTLP endpoint; an error's page is cut short."""
    with OtlpServer("http/protobuf") as server:
        html = {"content-type": "text/html; charset=utf-8"}
        server.answer_with(Reply(text="<html>Log in", headers=html), Reply(http=502, text="Bad\n gateway " * 100))
        transport = open_transport(make_endpoint(server.endpoint, "http/protobuf"), AGENT)
        page, error = (transport.send(make_body(), PATIENCE) for _ in range(2))
        transport.close()
    assert page.verdict is Verdict.CONFIGURATION
    assert "web page" in page.message
    assert error.verdict is Verdict.RETRY
    assert error.message == ("Bad gateway " * 100)[:300]


def test_closing_ends_a_request_under_way(server, connect, protocol):
    """Closed from another thread while it waits, a request gets an answer and raises nothing."""
    server.answer_with(Reply(silent=True))
    transport = connect(server.endpoint)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(transport.send(make_body(), 0.5)))
    thread.start()
    server.wait_for(Signal.METRICS, 1)
    transport.close()
    thread.join()
    assert [answer.verdict for answer in answers] == [Verdict.RETRY]
