"""`otel-logger doctor` against real servers on the loopback interface: what is wrong is found, and nothing is sent."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_logger.cli import app
from otel_logger.doctor_network import Network
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.endpoints import endpoint_from_environ
from otel_logger_exporters.signals import Signal
from tests.otlp_server import OtlpServer, Reply, ServerTls

pytestmark = pytest.mark.timeout(40)

PROTOCOLS = ("grpc", "http/protobuf")
OTHER = {"grpc": "http/protobuf", "http/protobuf": "grpc"}
SPOKEN = {"grpc": "gRPC", "http/protobuf": "HTTP"}

Doctor = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    """Return the command, run on an endpoint: what it found as JSON, by check, and its exit code as `code`."""

    def run(endpoint: str, protocol: str, timeout: str = "5", **variables: str) -> dict[str, dict[str, Any]]:
        environ = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
        environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        environ["OTEL_LOGGER_DIR"] = str(tmp_path / "logs")
        result = CliRunner().invoke(app, ["doctor", "--json", "--timeout", timeout], env=environ)
        found = {finding["check"]: finding for finding in map(json.loads, result.stdout.splitlines())}
        problems = any(finding["verdict"] == "problem" for finding in found.values())
        assert int(problems) == result.exit_code, result.output
        return found

    return run


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a key and its self-signed certificate for 127.0.0.1."""
    if which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    folder = tmp_path_factory.mktemp("pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=otlp"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Return the address of a port that swallows attempts to connect: nobody accepts, and the queue is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_that_takes_everything_gets_requests_without_data(doctor: Doctor, protocol: str) -> None:
    """One request a signal, empty, with the headers of a run; nothing of any run, and no run is made."""
    with OtlpServer(protocol) as server:
        found = doctor(server.endpoint, protocol, HEADERS="x-tenant=a")
        received = [request for signal in Signal for request in server.received(signal)]

    assert ("ok", "ok") == (found["endpoint"]["verdict"], found["credentials"]["verdict"])
    assert "takes metrics, logs, traces, in " in found["endpoint"]["found"]
    assert [b"", b"", b""] == [request.body for request in received]
    assert {"a"} == {request.headers["x-tenant"] for request in received}
    assert ("skipped" if protocol == "grpc" else "ok") == found["clock"]["verdict"]
    assert found["unsent"]["found"].startswith("nothing waits in ")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_wrong_protocol_is_told_with_the_right_one(doctor: Doctor, protocol: str) -> None:
    """Whichever of the two a port speaks, it is named to who speaks the other."""
    with OtlpServer(protocol) as server:
        found = doctor(server.endpoint, OTHER[protocol], HEADERS="authorization=sesame")["endpoint"]
        received = server.received(Signal.METRICS)

    assert f"127.0.0.1:{server.port} speaks {SPOKEN[protocol]}, not {SPOKEN[OTHER[protocol]]}" == found["found"]
    assert f"Set OTEL_EXPORTER_OTLP_PROTOCOL={protocol}." == found["remedy"]
    # It was tried without what it was never meant to see.
    assert ["authorization" in request.headers for request in received] == [False]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("code", ["401", "403"])
def test_credentials_are_told_without_being_shown(doctor: Doctor, protocol: str, code: str) -> None:
    """The server's refusal is quoted, its quotation of our key is not."""
    grpc = {"401": "UNAUTHENTICATED", "403": "PERMISSION_DENIED"}[code]
    with OtlpServer(protocol) as server:
        server.answer_with(*[Reply(grpc=grpc, http=int(code), message="not with open-sesame")] * 3)
        found = doctor(server.endpoint, protocol, HEADERS="authorization=Bearer%20open-sesame")

    assert "problem" == found["credentials"]["verdict"]
    assert "in the header authorization" in found["credentials"]["found"]
    assert f"({grpc if protocol == 'grpc' else code}: not with [redacted])" in found["credentials"]["found"]
    assert "OTEL_EXPORTER_OTLP_HEADERS" in found["credentials"]["remedy"]
    assert "open-sesame" not in repr(found)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_there_is_told(doctor: Doctor, protocol: str) -> None:
    """A closed port refuses."""
    with OtlpServer(protocol) as server:
        pass
    found = doctor(server.endpoint, protocol)["endpoint"]

    assert f"no connection to 127.0.0.1:{server.port}: connection refused" == found["found"]
    assert found["remedy"].startswith("Nothing listens there: start the Collector")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unknown_host_is_told(doctor: Doctor, protocol: str) -> None:
    """A name that is reserved for not existing."""
    found = doctor("http://collector.invalid:4317", protocol)["endpoint"]

    # How the resolver fails depends on whether there is a network.
    assert found["found"].startswith("no connection to collector.invalid:4317: its name ")
    assert found["remedy"].startswith("Correct the host in OTEL_EXPORTER_OTLP_ENDPOINT")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_black_hole_is_told_from_a_server_that_keeps_silent(doctor: Doctor, black_hole: str, protocol: str) -> None:
    """One does not take the connection, the other does and says nothing; neither holds the doctor up for long."""
    swallowed = doctor(black_hole, protocol, timeout="0.3")["endpoint"]
    with OtlpServer(protocol) as server:
        server.answer_with(Reply(silent=True))
        silent = doctor(server.endpoint, protocol, timeout="1")["endpoint"]

    assert "firewall" in swallowed["remedy"]
    assert "takes the connection, but gives no answer within 1 s" in silent["found"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_and_no_tls_are_told_apart(doctor: Doctor, pem: Path, protocol: str) -> None:
    """Plain to TLS, TLS to plain, an unknown authority, another name: each is told with what helps; then it works."""
    authority = str(pem / "cert.pem")
    with OtlpServer(protocol, tls=ServerTls(pem / "key.pem", pem / "cert.pem")) as server:
        address = f"127.0.0.1:{server.port}"
        plain = doctor(f"http://{address}", protocol)["endpoint"]
        unknown = doctor(f"https://{address}", protocol)["endpoint"]
        renamed = doctor(f"https://localhost:{server.port}", protocol, CERTIFICATE=authority)["endpoint"]
        right = doctor(f"https://{address}", protocol, CERTIFICATE=authority)["endpoint"]
    with OtlpServer(protocol) as server:
        tls = doctor(f"https://127.0.0.1:{server.port}", protocol)["endpoint"]

    assert f"{address} speaks TLS, but the endpoint says http" == plain["found"]
    assert plain["remedy"].startswith("Write https:// in OTEL_EXPORTER_OTLP_ENDPOINT")
    assert unknown["found"].startswith(f"no TLS with {address}: no authority that ")
    assert "Set OTEL_EXPORTER_OTLP_CERTIFICATE to a PEM file of the authority that has signed it." == unknown["remedy"]
    assert "another name" in renamed["found"]
    assert "Use a name of the certificate in OTEL_EXPORTER_OTLP_ENDPOINT." == renamed["remedy"]
    assert "ok" == right["verdict"]
    assert "without TLS, but the endpoint says https" in tls["found"]
    assert tls["remedy"].startswith("Write http:// in OTEL_EXPORTER_OTLP_ENDPOINT")


def test_nothing_but_findings_is_printed(pem: Path, tmp_path: Path) -> None:
    """gRPC's core would write each failed handshake to standard error."""
    with OtlpServer("grpc", tls=ServerTls(pem / "key.pem", pem / "cert.pem")) as server:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        done = subprocess.run(
            [sys.executable, "-m", "otel_logger", "doctor"],
            env={**os.environ, **environ, "OTEL_LOGGER_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (1, "") == (done.returncode, done.stderr)
    assert f"problem  endpoint       no TLS with 127.0.0.1:{server.port}: no authority that " in done.stdout


def test_a_server_that_wants_our_certificate_is_told(doctor: Doctor, pem: Path) -> None:
    """What is missing is ours, not the server's."""
    with OtlpServer("http/protobuf", tls=ServerTls(pem / "key.pem", pem / "cert.pem", pem / "cert.pem")) as server:
        found = doctor(server.endpoint, "http/protobuf", CERTIFICATE=str(pem / "cert.pem"))["endpoint"]

    assert "asks for a client's certificate" in found["found"]
    assert "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" in found["remedy"]


def test_a_path_too_many_is_told_with_the_right_one(doctor: Doctor) -> None:
    """The general endpoint is a base, also where somebody has written a signal's path into it."""
    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=404)] * 3)
        found = doctor(f"{server.endpoint}/v1/metrics", "http/protobuf")["endpoint"]

    assert "has nothing at /v1/metrics/v1/metrics, but takes metrics at /v1/metrics" in found["found"]
    assert f"Set OTEL_EXPORTER_OTLP_ENDPOINT={server.endpoint}: /v1/metrics is appended to it." == (found["remedy"])


@pytest.mark.parametrize("offset", [-3600.0, 0.0, 3600.0])
def test_the_clock_is_compared_by_the_date_of_an_answer(offset: float) -> None:
    """A date of whole seconds tells no more than a second, and what the request took."""

    class ShiftedClock(SystemClock):
        time_ns = staticmethod(lambda: SystemClock.time_ns() + int(offset * 1e9))

    with OtlpServer("http/protobuf") as server:
        endpoint, _ = endpoint_from_environ({"OTEL_EXPORTER_OTLP_ENDPOINT": server.endpoint}, Signal.LOGS)
        ahead = Network(5, ShiftedClock()).send(endpoint).ahead

    assert ahead == pytest.approx(offset, abs=1.5)
