"""What the doctor says of the scrape endpoint and the console: whether a run could have them, and for whom."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from otel_logger.doctor_scrape import check_console, check_scrape
from otel_logger.findings import OK, PROBLEM, SKIPPED, WARNING
from otel_logger.ranks import Ranks
from otel_logger.settings import Settings
from otel_logger_exporters.routes import routes_from_environ
from otel_logger_exporters.scrape_address import ScrapeAddress

KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else is given."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def examine(
    address: ScrapeAddress, environ: dict[str, str] | None = None, ranks: Ranks | None = None, **given: Any
) -> Any:
    """Return verdict, finding and remedy of each check."""
    found = check_scrape(address, Settings(**given), ranks or Ranks(), environ or {})
    return [(finding.verdict, finding.found, finding.remedy) for finding in found]


def test_a_port_that_is_free_can_be_served(port: int) -> None:
    """The URL is told; afterwards it is free again."""
    expected = [(OK, f"http://127.0.0.1:{port}/metrics can be served", None)]

    assert expected == examine(ScrapeAddress("127.0.0.1", port))
    assert expected == examine(ScrapeAddress("127.0.0.1", port))


def test_ranks_of_a_node_are_told_their_ports(port: int) -> None:
    """Who configures Prometheus has to know all."""
    ranks = Ranks(rank=1, local_rank=1, world_size=4, local_world_size=4)
    ((verdict, found, _),) = examine(ScrapeAddress("127.0.0.1", port - 1), ranks=ranks)

    assert OK == verdict
    assert f"{port}/metrics can be served; the 4 ranks of a node have the ports from {port - 1} on" in found


def test_a_port_that_is_taken_is_a_problem() -> None:
    """With what a run would raise."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ((verdict, found, remedy),) = examine(ScrapeAddress("127.0.0.1", port))

    assert PROBLEM == verdict
    assert f"cannot listen on 127.0.0.1:{port}" in found
    assert "sets OTEL_EXPORTER_PROMETHEUS_PORT" in remedy


@pytest.mark.parametrize(
    ("host", "environ", "verdict"),
    [("localhost", KUBERNETES, WARNING), ("0.0.0.0", KUBERNETES, OK), ("localhost", {}, OK)],
)
def test_in_kubernetes_localhost_is_the_pod_alone(host: str, environ: dict[str, str], verdict: str, port: int) -> None:
    """The remedy is all addresses."""
    ((actual, found, remedy),) = examine(ScrapeAddress(host, port), environ)

    assert verdict == actual
    if verdict is WARNING:
        assert f"in Kubernetes, and localhost:{port} can be reached from within the pod alone" == found
        assert "Set OTEL_EXPORTER_PROMETHEUS_HOST=0.0.0.0, so that Prometheus can scrape it from outside." == remedy


def test_a_port_that_the_system_chooses_is_worth_a_look() -> None:
    """Prometheus would have to guess it."""
    ((verdict, found, _),) = examine(ScrapeAddress("127.0.0.1", 0))

    assert (WARNING, "the port is any that is free, another one in each run, which Prometheus cannot know") == (
        verdict,
        found,
    )


def test_a_password_without_tls_is_told_never_shown(port: int) -> None:
    """On this machine alone it goes over no wire."""
    secret = {"scrape_auth": "user:hunter2"}
    _, (verdict, found, remedy) = examine(ScrapeAddress("0.0.0.0", port), **secret)

    assert WARNING == verdict
    assert f"user and password travel unencrypted to 0.0.0.0:{port}" == found
    assert "hunter2" not in found + remedy
    assert [OK] == [verdict for verdict, *_ in examine(ScrapeAddress("127.0.0.1", port), **secret)]


def test_files_that_cannot_be_used_are_a_problem() -> None:
    """With what a run would raise."""
    ((verdict, found, remedy),) = examine(ScrapeAddress(), scrape_key="/nowhere.key")

    assert PROBLEM == verdict
    assert "OTEL_LOGGER_SCRAPE_KEY='/nowhere.key' cannot be read (No such file or directory)" == found
    assert "Give the path of a readable PEM file." == remedy


def test_without_settings_it_is_not_tried() -> None:
    """They have to be understood first."""
    assert [SKIPPED] == [finding.verdict for finding in check_scrape(ScrapeAddress(), None, Ranks(), {})]


def test_what_is_printed_is_told() -> None:
    """Where nothing is, nothing is said."""
    routes = routes_from_environ({"OTEL_LOGS_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "otlp,console"})

    assert ["metrics, logs are printed to standard output, one line each"] == [f.found for f in check_console(routes)]
    assert [] == list(check_console(routes_from_environ({})))
