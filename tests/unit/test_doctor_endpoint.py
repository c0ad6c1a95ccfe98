"""What the doctor says of endpoints, by what the network answers."""

from collections.abc import Callable

import pytest

from otel_logger.doctor_endpoint import EndpointCheck
from otel_logger.doctor_network import Attempt, Network
from otel_logger.findings import OK, PROBLEM, WARNING, Finding
from otel_logger_exporters.answers import Answer, Verdict, from_grpc, from_http
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.routes import routes_from_environ
from otel_logger_exporters.signals import Signal

TAKEN = Answer(Verdict.ACCEPTED, "200")
REFUSED = Answer(Verdict.RETRY, "CONNECTION", "no connection to host:4318: connection refused")
BROKEN = Answer(Verdict.RETRY, "CONNECTION", "the connection to host:4318 broke off: reset by peer")


class ScriptedNetwork(Network):
    """Answers as a function of the endpoint, and notes what was tried."""

    def __init__(self, answer: Callable[[Endpoint], Answer]) -> None:
        super().__init__(5, SystemClock())
        self.tried: list[Endpoint] = []
        self._answer = answer

    def send(self, endpoint: Endpoint) -> Attempt:
        """Answer, and send nothing."""
        self.tried.append(endpoint)
        return Attempt(self._answer(endpoint), seconds=0.012, ahead=0.0)

    def connect(self, endpoint: Endpoint) -> Answer | None:
        """Connect to everything."""
        return None


def http(status: int, message: str = "") -> Answer:
    """Return what the transport makes of an HTTP status."""
    return from_http(status, message, None, 0.0)


def check(
    answer: Callable[[Endpoint], Answer] | Answer, url: str = "http://host:4318", **environ: str
) -> list[Finding]:
    """Return the findings where `url` is the general endpoint; further variables without `OTEL_EXPORTER_OTLP_`."""
    network = ScriptedNetwork(answer if callable(answer) else lambda _: answer)
    return list(EndpointCheck(network).run(endpoints(url, **environ)))


def endpoints(url: str, **environ: str) -> dict[Signal, Endpoint]:
    """Return the endpoints of the signals."""
    variables = {f"OTEL_EXPORTER_OTLP_{name}" if name.isupper() else name: value for name, value in environ.items()}
    return routes_from_environ({"OTEL_EXPORTER_OTLP_ENDPOINT": url} | variables).endpoints


def the_one(findings: list[Finding]) -> Finding:
    """Return the only finding."""
    (finding,) = findings
    return finding


def by_signal(**answers: Answer) -> Callable[[Endpoint], Answer]:
    """Return an answer for each signal, acceptance for those not named."""
    return lambda endpoint: answers.get(endpoint.signal.value, TAKEN)


def test_an_endpoint_that_takes_all_signals_is_one_line() -> None:
    """Signals of one server are told together, with the time of the first answer."""
    expected = Finding("endpoint", OK, "host:4318 (http/protobuf) takes metrics, logs, traces, in 12 ms")

    assert [expected] == check(TAKEN)


def test_servers_apart_are_lines_apart() -> None:
    """A signal with an endpoint of its own has a line of its own."""
    findings = check(TAKEN, LOGS_ENDPOINT="http://loki:3100/otlp/v1/logs")

    assert [True, True] == ["takes metrics, traces" in findings[0].found, "loki:3100" in findings[1].found]


def test_headers_that_are_taken_are_named_without_their_values() -> None:
    """Names of headers help, values are secrets."""
    findings = check(TAKEN, "https://host", HEADERS="authorization=Bearer%20sesame,x-tenant=team")

    assert Finding("credentials", OK, "host:443 takes the headers authorization, x-tenant") == findings[1]
    assert "sesame" not in repr(findings)


@pytest.mark.parametrize(
    ("url", "header", "is_told"),
    [
        ("http://host:4318", "authorization", True),
        ("http://host:4318", "x-api-key", True),
        ("http://host:4318", "x-scope-orgid", False),
        ("https://host:4318", "authorization", False),
        ("http://localhost:4318", "authorization", False),
    ],
)
def test_secrets_that_travel_in_plain_text_are_a_warning(url: str, header: str, is_told: bool) -> None:
    """A key that goes over a network without TLS can be read on the way; on this machine there is no way."""
    finding = check(TAKEN, url, HEADERS=f"{header}=sesame")[1]

    assert is_told == (finding.verdict == WARNING)
    assert is_told == (finding.found == f"{header} goes to host:4318 unencrypted")


@pytest.mark.parametrize("answer", [http(401, "who?"), from_grpc("UNAUTHENTICATED", "who?")])
def test_missing_credentials_are_told_as_missing(answer: Answer) -> None:
    """A server that asks for credentials where none are set needs other words than one that refuses some."""
    finding = the_one(check(answer))

    assert ("credentials", PROBLEM) == (finding.check, finding.verdict)
    assert f"host:4318 (http/protobuf) asks for credentials, and none are set ({answer.code}: who?)" == finding.found
    assert "Set OTEL_EXPORTER_OTLP_HEADERS to what it asks for, such as authorization=Bearer%20<token>." == (
        finding.remedy
    )


def test_refused_credentials_name_the_header_and_the_variable() -> None:
    """The header is named and the signal's own variable where that is what counts; the server's echo is redacted."""
    findings = check(
        by_signal(metrics=http(401, "no such token: sesame-open")),
        METRICS_ENDPOINT="http://host:4318/v1/metrics",
        METRICS_HEADERS="authorization=Bearer%20sesame-open",
    )

    assert (
        "host:4318 (http/protobuf) refuses the credentials in the header authorization "
        "(401: no such token: [redacted])" == findings[0].found
    )
    assert (findings[0].remedy or "").startswith("Correct OTEL_EXPORTER_OTLP_METRICS_HEADERS: name=value")


def test_forbidden_is_about_rights() -> None:
    """A key that is known and not allowed to write needs rights, not another spelling."""
    finding = the_one(check(http(403), HEADERS="authorization=x"))

    assert "the right to write telemetry" in (finding.remedy or "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("no rights: hf_abcdefghij0123456789", "[redacted]"),
        ("cannot reach https://me:sesame@host/x", "cannot reach https://[redacted]@host/x"),
        ("cannot reach https://sesame@host/x", "cannot reach https://[redacted]@host/x"),
    ],
)
def test_secrets_in_a_servers_words_are_not_shown(words: str, shown: str) -> None:
    """What looks like a key, or stands before a URL's host, is redacted wherever it comes from."""
    assert f"host:4318 (http/protobuf) fails (503: {shown})" == the_one(check(http(503, words))).found


@pytest.mark.parametrize(
    ("answer", "verdict", "found", "remedy"),
    [
        (http(413, "big"), PROBLEM, "finds a request without data too large (413: big)", "Raise the limit"),
        (http(422, "no streams"), WARNING, "refuses a request without data (422: no streams)", "Loki"),
        (http(429, "rate"), WARNING, "takes no more at present (429: rate)", "Data waits on disk"),
        (from_grpc("RESOURCE_EXHAUSTED", "rate"), WARNING, "takes no more at present", "Raise its limits"),
        (http(503, "memory"), PROBLEM, "fails (503: memory)", "See the log of the server"),
        (http(302, "to https://x"), PROBLEM, "redirects, which is not followed (302: to https://x)", "redirects to"),
        (Answer(Verdict.CONFIGURATION, "200", "a web page"), PROBLEM, "is no OTLP endpoint (200: a web page)", "4318"),
        (http(405, "post?"), PROBLEM, "is no OTLP endpoint (405: post?)", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ],
)
def test_answers_are_told_with_what_helps(answer: Answer, verdict: str, found: str, remedy: str) -> None:
    """Each kind of answer has its words and its remedy, and none of the transport's own remedies twice."""
    finding = the_one(check(lambda endpoint: answer if endpoint.protocol != "grpc" else BROKEN))

    assert (verdict, True) == (finding.verdict, remedy in (finding.remedy or ""))
    assert found in finding.found
    assert "check OTEL_" not in finding.found


def test_a_signal_without_a_pipeline_is_told_beside_those_that_have_one() -> None:
    """A Collector without a pipeline for logs says 404 to logs alone: no address is wrong, and no protocol."""

    def answer(endpoint: Endpoint) -> Answer:
        is_missing = endpoint.signal is Signal.LOGS and endpoint.protocol != "grpc"
        return http(404, "404 page not found") if is_missing else TAKEN

    taken, missing = check(answer)

    assert "takes metrics, traces" in taken.found
    assert "host:4318 (http/protobuf) has nothing at /v1/logs (404: 404 page not found)" == missing.found
    assert "Give the server a pipeline for logs, or set OTEL_LOGS_EXPORTER=none to record none." == missing.remedy


def at(path: str) -> Callable[[Endpoint], Answer]:
    """Return a server that takes signals at their paths below `path`, and no gRPC."""

    def answer(endpoint: Endpoint) -> Answer:
        if endpoint.protocol == "grpc":
            return BROKEN
        return TAKEN if endpoint.url == f"http://host:4318{path}/v1/{endpoint.signal.value}" else http(404)

    return answer


@pytest.mark.parametrize(
    ("served", "url", "found", "remedy"),
    [
        ("", "http://host:4318/v1/metrics", "/v1/metrics/v1/metrics, but takes metrics at /v1/metrics", ""),
        ("/otlp", "http://host:4318", "/v1/metrics, but takes metrics at /otlp/v1/metrics", "/otlp"),
        ("/api/v1/otlp", "http://host:4318/otlp", "but takes metrics at /api/v1/otlp/v1/metrics", "/api/v1/otlp"),
    ],
)
def test_a_wrong_path_is_told_with_the_right_one(served: str, url: str, found: str, remedy: str) -> None:
    """The customary paths are tried, and the one that answers is named as the base that the variable needs."""
    finding = the_one(check(at(served), url))

    assert found in finding.found
    assert f"Set OTEL_EXPORTER_OTLP_ENDPOINT=http://host:4318{remedy}: /v1/metrics is appended to it." == finding.remedy


def test_the_variable_of_one_signal_needs_the_whole_path() -> None:
    """What is appended to the general endpoint is not appended to that of one signal."""
    finding = check(at(""), METRICS_ENDPOINT="http://host:4318")[0]

    assert "host:4318 (http/protobuf) has nothing at /, but takes metrics at /v1/metrics" == finding.found
    assert (
        "Set OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://host:4318/v1/metrics: of one signal it is used as it is."
        == finding.remedy
    )


def test_parts_of_a_path_that_may_be_keys_are_not_shown() -> None:
    """Some services put their customer's key into the path."""
    findings = check(at("/nowhere"), "http://host:4318/receiver/ZaVnC4dhaV2vFp4R8sTq4uN0k1")

    assert "/receiver/.../v1/metrics" in findings[0].found
    assert "ZaVnC4dhaV2" not in repr(findings)


def speaking(protocol: str, *ports: int, otherwise: Answer = BROKEN) -> Callable[[Endpoint], Answer]:
    """Return servers of one protocol without TLS on some ports; the other answers are failures."""
    return lambda endpoint: (
        TAKEN if endpoint.protocol == protocol and endpoint.port in ports and endpoint.insecure else otherwise
    )


def test_a_grpc_port_spoken_to_by_http_is_told_with_both_ways_out() -> None:
    """The protocol that answers is named, and the customary port of the one that was meant, if that answers."""

    def answer(endpoint: Endpoint) -> Answer:
        right = {4317: "grpc", 4318: "http/protobuf"}
        return TAKEN if right[endpoint.port] == endpoint.protocol else BROKEN

    one, other = (
        the_one(check(answer, f"http://host:{port}", PROTOCOL=protocol))
        for port, protocol in ((4317, "http/protobuf"), (4318, "grpc"))
    )

    assert ("host:4317 speaks gRPC, not HTTP", "host:4318 speaks HTTP, not gRPC") == (one.found, other.found)
    port = "or the port in OTEL_EXPORTER_OTLP_ENDPOINT to"
    assert f"Set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, {port} 4318." == one.remedy
    assert f"Set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, {port} 4317." == other.remedy


def test_a_port_of_ones_own_is_not_told_to_be_the_customary_one() -> None:
    """A port that somebody chose stays, and no other is tried."""
    network = ScriptedNetwork(speaking("grpc", 5555, 4317))
    (finding,) = EndpointCheck(network).run(endpoints("http://host:5555"))

    assert "Set OTEL_EXPORTER_OTLP_PROTOCOL=grpc." == finding.remedy
    assert {5555} == {endpoint.port for endpoint in network.tried}


def test_a_port_that_answers_404_in_one_protocol_may_speak_the_other() -> None:
    """Proxies that know gRPC alone answer HTTP too, with an error."""
    finding = the_one(check(lambda endpoint: TAKEN if endpoint.protocol == "grpc" else http(415)))

    assert "host:4318 speaks gRPC, not HTTP" == finding.found


def test_a_web_server_that_knows_http_2_is_no_grpc_server() -> None:
    """gRPC's client makes a status of HTTP/2 into one of its own, as if a server of gRPC had spoken."""
    foreign = from_grpc("UNIMPLEMENTED", "Received http2 header with status: 404")
    finding = the_one(check(speaking("http/protobuf", 4317, otherwise=foreign), "http://host:4317"))

    assert "host:4317 speaks HTTP, not gRPC" == finding.found


def test_http_for_one_signal_needs_a_path_that_grpc_did_not() -> None:
    """The variable of one signal is used as it is."""
    answer = speaking("http/protobuf", 5555)
    finding = check(answer, METRICS_ENDPOINT="http://host:5555", METRICS_PROTOCOL="grpc")[0]

    assert (
        "Set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf, "
        "with OTEL_EXPORTER_OTLP_METRICS_ENDPOINT ending in /v1/metrics." == finding.remedy
    )


def test_doors_that_nobody_named_never_see_the_headers() -> None:
    """Another protocol, port or scheme may lead to somebody else; only other paths of the same server get them."""
    for answer in (REFUSED, BROKEN):
        network = ScriptedNetwork(lambda _, answer=answer: answer)
        list(EndpointCheck(network).run(endpoints("http://host:4318", HEADERS="authorization=sesame")))

        assert len(network.tried) > 1
        assert [()] * (len(network.tried) - 1) == [endpoint.headers for endpoint in network.tried[1:]]


def test_a_server_that_cannot_be_reached_is_asked_once_for_all_signals() -> None:
    """Three signals do not wait three times for one black hole."""
    network = ScriptedNetwork(lambda _: Answer(Verdict.RETRY, "DNS", "no connection to host:4318: its name is unknown"))
    (finding,) = EndpointCheck(network).run(endpoints("http://host:4318"))

    assert 1 == len(network.tried)
    assert "no connection to host:4318: its name is unknown" == finding.found
    assert (finding.remedy or "").startswith("Correct the host in OTEL_EXPORTER_OTLP_ENDPOINT")


def test_a_way_that_breaks_midway_is_told_beside_what_was_taken() -> None:
    """What has arrived has arrived; the variables that are named are those of the signal that did not."""
    answer = by_signal(logs=BROKEN, traces=BROKEN)
    taken, broken = check(answer, LOGS_ENDPOINT="http://host:4318/v1/logs")

    assert (OK, True) == (taken.verdict, "takes metrics, in" in taken.found)
    assert "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" in (broken.remedy or "")


@pytest.mark.parametrize(
    ("url", "message", "remedy"),
    [
        ("http://host:5555", "connection refused", "Nothing listens there: start the Collector, or correct"),
        ("http://localhost:5555", "connection refused", "In a container, localhost is the container itself."),
        ("http://host:5555", "it did not take the connection in time", "let the firewall pass this port"),
        ("http://host:5555", "network is unreachable", "or this machine's network."),
        ("http://host:5555", "its name was not resolved in time", "or this machine's name service."),
    ],
)
def test_what_stops_a_connection_has_its_remedy(url: str, message: str, remedy: str) -> None:
    """Refused, swallowed and without a way are told apart."""
    finding = the_one(check(Answer(Verdict.RETRY, "CONNECTION", f"no connection to host:5555: {message}"), url))

    assert (PROBLEM, f"no connection to host:5555: {message}") == (finding.verdict, finding.found)
    assert remedy in (finding.remedy or "")


@pytest.mark.parametrize(
    ("url", "protocol", "port", "remedy"),
    [
        ("http://host:4317", "http/protobuf", 4318, "4318, and OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf."),
        ("http://host:4318", "grpc", 4317, "4317, and OTEL_EXPORTER_OTLP_PROTOCOL=grpc."),
        ("http://host", "http/protobuf", 4318, "4318."),
    ],
)
def test_a_customary_port_that_answers_is_named(url: str, protocol: str, port: int, remedy: str) -> None:
    """Where nothing listens but on the neighbour's port, or the port was left out, the right one is found."""
    finding = the_one(check(speaking(protocol, port, otherwise=REFUSED), url))

    assert f"but port {port} there speaks {'gRPC' if protocol == 'grpc' else 'HTTP'}" in finding.found
    assert f"Set the port in OTEL_EXPORTER_OTLP_ENDPOINT to {remedy}" == finding.remedy


@pytest.mark.parametrize("plain", [BROKEN, http(400, "Client sent an HTTP request to an HTTPS server.")])
def test_plain_text_to_a_tls_port_asks_for_https(plain: Answer) -> None:
    """A port that shakes hands by TLS speaks it, whether we trust it or not; Go's servers say so by 400."""

    def answer(endpoint: Endpoint) -> Answer:
        return plain if endpoint.insecure else Answer(Verdict.CONFIGURATION, "TLS", "no TLS with host: not trusted")

    finding = the_one(check(answer))

    assert "host:4318 speaks TLS, but the endpoint says http" == finding.found
    assert "Write https:// in OTEL_EXPORTER_OTLP_ENDPOINT; OTEL_EXPORTER_OTLP_CERTIFICATE may" in (finding.remedy or "")


@pytest.mark.parametrize(
    ("served", "found", "remedy"),
    [
        ("http/protobuf", "speaks OTLP without TLS", "Write http:// in OTEL_EXPORTER_OTLP_ENDPOINT, or give"),
        ("grpc", "speaks gRPC without TLS", "and set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or give the server TLS."),
    ],
)
def test_https_to_a_plain_port_asks_for_http(served: str, found: str, remedy: str) -> None:
    """The protocol that answers without TLS is named too, when it is another."""
    finding = the_one(check(speaking(served, 4318), "https://host:4318"))

    assert f"host:4318 {found}, but the endpoint says https" == finding.found
    assert remedy in (finding.remedy or "")


@pytest.mark.parametrize(
    ("problem", "found", "remedy"),
    [
        ("no authority has signed it: give X", "no authority has signed it", "Set OTEL_EXPORTER_OTLP_CERTIFICATE to"),
        ("it asks for ours: set X and Y", "it asks for ours", "Set X and Y."),
        ("it has expired", "it has expired", "Renew the server's certificate, or correct the clock of this machine."),
        ("it is for another name: mismatch", "it is for another name: mismatch", "Use a name of the certificate in"),
        ("bad record", "bad record", "See the log of the server."),
    ],
)
def test_faults_of_tls_are_told_in_the_transports_words(problem: str, found: str, remedy: str) -> None:
    """What the transport advises becomes the remedy; where it advises nothing there is one all the same."""
    answer = Answer(Verdict.CONFIGURATION, "TLS", f"no TLS with host:443: {problem}")
    finding = the_one(check(answer, "https://host"))

    assert f"no TLS with host:443: {found}" == finding.found
    assert (finding.remedy or "").startswith(remedy)


def test_a_server_that_never_answers_is_told_from_one_that_cannot_be_reached() -> None:
    """The connection was taken; the wait is said."""
    finding = the_one(check(Answer(Verdict.RETRY, "TIMEOUT", "host:5555 did not answer"), "http://host:5555"))

    assert "host:5555 (http/protobuf) takes the connection, but gives no answer within 5 s" == finding.found
    assert "--timeout" in (finding.remedy or "")


def test_whatever_else_happens_is_told_as_it_is() -> None:
    """An answer that nothing explains is quoted."""
    finding = the_one(check(from_grpc("UNAVAILABLE", "no healthy upstream"), "http://host:4317"))

    assert "gives no OTLP answer (UNAVAILABLE: no healthy upstream)" in finding.found


@pytest.mark.parametrize(
    ("answer", "found", "remedy"),
    [
        (
            Answer(Verdict.RETRY, "CONNECTION", "no connection to the proxy p:1 (http_proxy): connection refused"),
            "no connection to the proxy p:1 (http_proxy): connection refused",
            "Correct http_proxy, or add host to NO_PROXY to reach it without the proxy.",
        ),
        (
            Answer(Verdict.CONFIGURATION, "PROXY", "the proxy p:1 (http_proxy) does not lead to host:4318: 403 No"),
            "the proxy p:1 (http_proxy) does not lead to host:4318: 403 No",
            "Correct http_proxy, or add host to NO_PROXY to reach it without the proxy.",
        ),
        (
            http(407, "Authentication Required"),
            "the proxy p:1 (http_proxy) does not let us through (407: Authentication Required)",
            "Give user and password in http_proxy, as http://user:password@host:port.",
        ),
    ],
)
def test_a_proxy_is_named_without_its_password(answer: Answer, found: str, remedy: str) -> None:
    """What stands between is told, and what of it can be changed."""
    finding = the_one(check(answer, http_proxy="http://me:sesame@p:1"))

    assert ("endpoint", PROBLEM, found, remedy) == (finding.check, finding.verdict, finding.found, finding.remedy)


def test_a_time_that_a_proxy_may_have_told_is_not_the_servers() -> None:
    """The clock is compared with a server's, which answers by accepting."""
    tellers = []
    for answer in (http(407), TAKEN):
        examined = EndpointCheck(ScriptedNetwork(lambda _, answer=answer: answer))
        list(examined.run(endpoints("http://host:4318", http_proxy="http://p:1")))
        tellers.append(examined.teller)

    assert [None, "host:4318"] == tellers
