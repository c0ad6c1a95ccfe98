"""Where a process is scraped, and what is said when it cannot be."""

import errno
import socket

import pytest

from otel_logger_exporters import scrape_address
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.scrape_address import ScrapeAddress, bind, scrape_address_from_environ

HOST, PORT = "OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, ScrapeAddress("localhost", 9464)),
        ({HOST: " ", PORT: " "}, ScrapeAddress("localhost", 9464)),
        ({HOST: "0.0.0.0", PORT: "8000"}, ScrapeAddress("0.0.0.0", 8000)),
        ({HOST: "[::1]"}, ScrapeAddress("::1", 9464)),
        ({HOST: "fe80::1%eth0", PORT: "0"}, ScrapeAddress("fe80::1%eth0", 0)),
    ],
)
def test_host_and_port_are_those_of_the_variables(environ, address):
    """Defaults are the specification's; brackets of an IPv6 address are left out."""
    assert address == scrape_address_from_environ(environ)


@pytest.mark.parametrize("host", ["http://localhost", "localhost:9464", "a b", "[::1"])
def test_a_host_that_is_none_is_refused(host):
    """What people write in other variables is told from a host."""
    with pytest.raises(ConfigurationError) as caught:
        scrape_address_from_environ({HOST: host})
    assert f"{HOST}={host!r} is not understood: give a name or an address of this machine, and no port" == str(
        caught.value
    )


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_that_is_none_is_refused(port):
    """By name and value."""
    with pytest.raises(ConfigurationError, match=f"{PORT}='{port}' is not understood"):
        scrape_address_from_environ({PORT: port})


def test_each_local_rank_has_a_port_of_its_own():
    """The base is that of local rank 0; a port that the system chooses is one already."""
    assert [9464, 9465] == [ScrapeAddress().of_rank(rank).port for rank in (0, 1)]
    assert [0, 0] == [ScrapeAddress(base=0).of_rank(rank).port for rank in (0, 1)]
    assert "localhost:9464" == ScrapeAddress().describe()
    assert f"localhost:9467 ({PORT}=9464 + local rank 3)" == ScrapeAddress().of_rank(3).describe()


def test_a_port_beyond_the_last_is_refused():
    """With how it is made up, and the highest that would do."""
    with pytest.raises(ConfigurationError) as caught:
        ScrapeAddress(base=65530).of_rank(7)
    assert f"{PORT}=65530 with local rank 7 is port 65537, which there is none of: give 65528 or less" == str(
        caught.value
    )


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("127.0.0.5", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False)],
)
def test_who_can_reach_an_address_is_told_by_how_it_is_written(host, is_local):
    """All addresses of a machine are more than its own."""
    assert is_local == ScrapeAddress(host).is_local


def test_a_port_that_is_taken_is_told_with_who_changes_what():
    """It names host and port, how that is made up, and the remedy."""
    with bind(ScrapeAddress("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            bind(ScrapeAddress("127.0.0.1", port - 1).of_rank(1))
    assert (
        f"the scrape endpoint cannot listen on 127.0.0.1:{port} ({PORT}={port - 1} + local rank 1): another process, "
        f"or another logger of this one, listens there. Who starts the training sets {PORT} to the first of as many "
        "free ports as processes run on this machine, or ends the process that has the port"
    ) == str(caught.value)


def test_a_port_that_is_taken_at_one_address_of_a_name_is_taken(monkeypatch):
    """Of two processes with one port, each at another address of `localhost`, scrapers would find but one."""
    with bind(ScrapeAddress("127.0.0.1", 0)) as taken:
        places = [("127.0.0.1", taken.getsockname()[1]), ("127.0.0.2", taken.getsockname()[1])]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr(scrape_address.socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(ConfigurationError, match="listens there"):
            bind(ScrapeAddress("localhost", taken.getsockname()[1])).close()


def test_an_address_of_another_machine_is_told():
    """192.0.2.0/24 is nobody's."""
    with pytest.raises(ConfigurationError) as caught:
        bind(ScrapeAddress("192.0.2.1", 0))
    assert "cannot listen on 192.0.2.1:0" in str(caught.value)
    assert f"set {HOST} to an address of this machine" in str(caught.value)


def test_a_name_that_nobody_knows_is_told(monkeypatch):
    """By the variable that gave it."""

    def fail(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(scrape_address.socket, "getaddrinfo", fail)
    with pytest.raises(ConfigurationError, match=f"{HOST}='nowhere' is unknown here"):
        bind(ScrapeAddress("nowhere"))


def test_a_port_of_the_superuser_is_told(monkeypatch):
    """With those that anybody may have."""

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(scrape_address, "_listening", refuse)
    with pytest.raises(ConfigurationError, match=f"for the superuser: .* sets {PORT} to a port from 1024"):
        bind(ScrapeAddress("127.0.0.1", 80))


def test_a_name_is_listened_on_at_the_first_of_its_addresses_that_this_machine_has(monkeypatch):
    """`localhost` may stand for ::1 first, where there is no IPv6."""
    places = [("192.0.2.1", 0), ("127.0.0.1", 0)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
    monkeypatch.setattr(scrape_address.socket, "getaddrinfo", lambda *_, **__: found)
    with bind(ScrapeAddress("localhost", 0)) as listener:
        assert "127.0.0.1" == listener.getsockname()[0]
