"""A run that is scraped: over real HTTP, by scrapers of every kind, from its beginning to after its end."""

import base64
import contextlib
import logging
import os
import pickle
import re
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from otel_logger import ConfigurationError, OTelLogger
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.scrape_address import ScrapeAddress, bind
from otel_logger_exporters.scrape_endpoint import ScrapeEndpoint
from otel_logger_exporters.scrape_security import ScrapeSecurity
from otel_logger_exporters.scrape_server import MAX_CONNECTIONS, MAX_SECONDS, Answer, ScrapeServer
from tests.certificates import make_pair
from tests.runs import points, trainer_state

OPENMETRICS = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"
LONG = 10.0
"""Seconds that anything takes at most before a test gives up on it."""


@pytest.fixture
def port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def make(tmp_path: Path, port: int) -> Iterator[Callable[..., OTelLogger]]:
    """Return a constructor of loggers that are scraped on `port`, closed in the end."""
    made = []

    def construct(run_name: str = "run", **environ: str) -> OTelLogger:
        surroundings = {
            "OTEL_LOGGER_DIR": str(tmp_path / "logs"),
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
            "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
            **environ,
        }
        made.append(OTelLogger(run_name=run_name, environ=surroundings))
        return made[-1]

    yield construct
    for logger in made:
        logger.close()


def get(port: int, path: str = "/metrics", scheme: str = "http", tls: Any = None, **headers: str) -> tuple[int, str]:
    """Return status and body of an answer."""
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LONG, context=tls) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def values(port: int, accept: str = "") -> dict[tuple[str, str], float]:
    """Return what is scraped as (name, key) and value."""
    status, body = get(port, Accept=accept)
    assert status == 200
    parse = parse_openmetrics if "openmetrics" in accept else parse_text
    return {
        (sample.name, sample.labels.get("training_metric_key", "")): sample.value
        for family in parse(body)
        for sample in family.samples
    }


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_a_run_is_scraped_where_the_variables_say(make: Any, port: int, accept: str) -> None:
    """The last value of each key with its step, who the run is, and what became of its data; all is kept too."""
    log = make(OTEL_EXPORTER_PROMETHEUS_PORT=str(port - 2), LOCAL_RANK="2")
    log.log_hyperparameters({"lr": 0.1})
    log.log_metrics({"loss/train": 0.5, "a b": 1, 'é"\n': float("inf")}, step=3)
    log.log_metrics({"loss/train": 0.25}, step=4)
    found = values(port, accept)

    assert {
        ("loss_train", "loss/train"): 0.25,
        ("training_step", "loss/train"): 4,
        ("a_b", "a b"): 1,
        ("training_step", "a b"): 3,
        ("m", 'é"\n'): float("inf"),
        ("training_run_info", ""): 1,
        ("target_info", ""): 1,
    }.items() <= found.items()
    assert 'training_hparam_lr="0.1"' in get(port)[1]
    assert f'service_instance_id="{log.run_id}/0/1/' in get(port)[1]
    assert 4 == len(points(log))


def test_the_start_line_tells_where_the_other_ranks_are(
    make: Any, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Local rank 0 speaks for all of its machine."""
    make(RANK="0", LOCAL_RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", OTEL_LOGGER_RUN_ID="r")

    where = f"metrics scraped at http://127.0.0.1:{port}/metrics, further local ranks at the ports after it\n"
    assert where in capfd.readouterr().err


def test_of_ports_that_are_any_the_start_line_tells_its_own(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Those of further ranks are no neighbours then."""
    make(
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        OTEL_LOGGER_RUN_ID="r",
        OTEL_EXPORTER_PROMETHEUS_PORT="0",
    )

    line = r"scraped at http://127\.0\.0\.1:[1-9]\d+/metrics, further local ranks at free ports that are not told\n"
    assert re.search(line, capfd.readouterr().err) is not None


def test_metrics_that_are_sent_are_scraped_too(make: Any, port: int) -> None:
    """One exporter does not stand in for another."""
    log = make(OTEL_METRICS_EXPORTER="console,prometheus")
    log.log_metrics({"loss": 0.5}, step=3)

    assert 0.5 == values(port)["loss", "loss"]
    assert log.flush(LONG)
    assert 1 == log.stats().delivered["metrics"]


def test_what_is_excluded_is_not_scraped(make: Any, port: int) -> None:
    """It is not recorded."""
    make(OTEL_LOGGER_METRICS_EXCLUDE="time/*").log_metrics({"time/step": 1.0, "loss": 2.0})

    assert {"loss"} == {key for _, key in values(port) if key}


def test_a_rank_that_records_no_metrics_is_scraped_for_its_liveness(make: Any, port: int) -> None:
    """Each rank has a port of its own, and says that it lives."""
    log = make(RANK="1", WORLD_SIZE="2", OTEL_LOGGER_RUN_ID="r")
    log.log_metrics({"loss": 0.5}, step=3)
    names = {name for name, _ in values(port)}

    assert {"training_run_info", "training_position_step"} <= names
    assert "loss" not in names


@pytest.mark.parametrize(("accept", "body"), [("", ""), (OPENMETRICS, "# EOF\n")])
def test_before_the_run_is_known_the_page_is_empty(make: Any, port: int, accept: str, body: str) -> None:
    """Empty is valid, and a scrape then is no failure."""
    make()

    assert (200, body) == get(port, Accept=accept)


def test_there_is_one_page(make: Any, port: int) -> None:
    """A short word at the root; nothing elsewhere."""
    make()

    assert (200, "otel_logger: metrics are at /metrics\n") == get(port, "/")
    assert [404, 404] == [get(port, path)[0] for path in ("/metrics/", "/../etc/passwd")]


def test_only_who_knows_the_password_may_scrape(make: Any, port: int, capfd: pytest.CaptureFixture[str]) -> None:
    """It is asked for on every path, and never shown."""
    make(OTEL_LOGGER_SCRAPE_AUTH="prometheus:hunter2")
    right = {"Authorization": "Basic " + base64.b64encode(b"prometheus:hunter2").decode()}

    assert [401, 401, 200, 404] == [
        get(port)[0],
        get(port, Authorization="Basic AAAA")[0],
        get(port, **right)[0],
        get(port, "/x", **right)[0],
    ]
    assert "hunter2" not in "".join(capfd.readouterr())


def test_with_a_certificate_it_speaks_tls(make: Any, port: int, tmp_path: Path) -> None:
    """Clients that do not, and those without a certificate where one is wanted, get nothing."""
    authority = make_pair(tmp_path, "authority", "DNS:authority")
    server = make_pair(tmp_path, "server", "IP:127.0.0.1", issuer=authority)
    client = make_pair(tmp_path, "client", "DNS:client", issuer=authority)
    make(
        OTEL_LOGGER_SCRAPE_CERTIFICATE=str(server.certificate),
        OTEL_LOGGER_SCRAPE_KEY=str(server.key),
        OTEL_LOGGER_SCRAPE_CLIENT_CA=str(authority.certificate),
    ).log_metrics({"loss": 0.5})
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    # Since Python 3.13 strict, which the test's own authority is not fit for.
    trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT

    with pytest.raises((OSError, urllib.error.URLError)):
        get(port)
    with pytest.raises((OSError, urllib.error.URLError)):
        get(port, scheme="https", tls=trusting)
    trusting.load_cert_chain(client.certificate, client.key)
    status, body = get(port, scheme="https", tls=trusting)
    assert (200, True) == (status, "loss{" in body)


def test_a_port_that_is_taken_is_an_error_at_construction(make: Any, port: int, tmp_path: Path) -> None:
    """Before anything is written; a second logger of one process has no other port either."""
    make()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}.* listens there"):
        make("other")
    assert before == sorted(tmp_path.rglob("*"))


def test_a_logger_that_opens_again_without_its_port_records_all_the_same(
    make: Any, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of training a taken port costs the endpoint alone, and is told."""
    log = make()
    log.log_metrics({"loss": 1.0}, step=1)
    log.post_close()
    with socket.create_server(("127.0.0.1", port)), caplog.at_level(logging.WARNING, "otel_logger"):
        log.init(trainer_state("run"), None)
        log.log_metrics({"loss": 2.0}, step=2)
        log.close()

    assert [("loss", 1, 1.0), ("loss", 2, 2.0)] == points(log)
    assert "This process is not scraped: the scrape endpoint cannot listen" in caplog.text


def test_an_unpickled_logger_records_without_the_port_of_the_first(
    make: Any, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that is spawned has the same local rank, and so would have the same port."""
    log = make()
    log.log_metrics({"loss": 1.0}, step=1)
    with caplog.at_level(logging.WARNING, "otel_logger"):
        copy = pickle.loads(pickle.dumps(log))
        copy.log_metrics({"loss": 2.0}, step=2)
        copy.close()

    assert {("loss", 1, 1.0), ("loss", 2, 2.0)} == set(points(log))
    assert 1.0 == values(port)["loss", "loss"]
    assert "This process is not scraped" in caplog.text


def test_close_is_quick_and_frees_the_port(make: Any, port: int) -> None:
    """Also while a scraper hangs; the next run in the process has the same port, and nothing of the first."""
    log = make("first")
    log.log_metrics({"only_first": 1.0}, step=1)
    with socket.create_connection(("127.0.0.1", port)) as hanging:
        hanging.sendall(b"GET /metrics HTTP/1.1\r\n")
        begun = time.monotonic()
        log.close()
        assert time.monotonic() - begun < LONG / 2
        # Sooner than its time would be up.
        hanging.settimeout(MAX_SECONDS / 2)
        with contextlib.suppress(ConnectionError):
            assert b"" == hanging.recv(100)
    second = make("second")
    second.log_metrics({"loss": 2.0}, step=1)

    assert {"loss"} == {key for _, key in values(port) if key}
    assert f'training_run_id="{second.run_id}"' in get(port)[1]
    assert str(log.run_id) not in get(port)[1]


def closing(log: OTelLogger) -> threading.Thread:
    """Close a logger in a thread."""
    thread = threading.Thread(target=log.close)
    thread.start()
    return thread


def scrape_until(is_over: Callable[[], bool], port: int) -> str:
    """Scrape again and again, and return the last page."""
    deadline, body = time.monotonic() + LONG, ""
    while not is_over() and time.monotonic() < deadline:
        # Not there yet, or not any more.
        with contextlib.suppress(OSError, HTTPException):
            body = get(port)[1]
    assert is_over()
    return body


def test_the_last_values_are_there_until_one_scrape_has_come(
    make: Any, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It says that the run has ended; one scrape before the end does not count."""
    caplog.set_level(logging.INFO, "otel_logger")
    log = make(OTEL_LOGGER_SCRAPE_LINGER="60000")
    log.log_metrics({"loss": 0.5}, step=3)
    values(port)
    thread = closing(log)
    deadline = time.monotonic() + LONG
    while " ended: " not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.join(0.3)
    assert thread.is_alive()
    body = scrape_until(lambda: not thread.is_alive(), port)

    assert 'training_state{training_state="finished"} 1.0' in body
    assert 'loss{training_metric_key="loss"} 0.5' in body
    with pytest.raises(urllib.error.URLError):
        get(port)


def test_without_a_scrape_the_end_comes_when_lingering_is_over(make: Any, port: int) -> None:
    """It comes on top of the shutdown timeout."""
    log = make(OTEL_LOGGER_SCRAPE_LINGER="300")
    log.log_metrics({"loss": 0.5}, step=3)
    begun = time.monotonic()
    log.close()
    assert 0.3 <= time.monotonic() - begun < LONG


@contextlib.contextmanager
def serving(body: bytes = b"page", **options: Any) -> Iterator[ScrapeServer]:
    """Give a server of one page."""
    listener = bind(ScrapeAddress("127.0.0.1", 0))
    server = ScrapeServer(listener, lambda request: Answer(200, (), body), clock=SystemClock(), **options)
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("drip", [b"", b"G"])
def test_a_slow_scraper_is_not_waited_for(drip: bytes) -> None:
    """Its connection ends when its time is up, however it keeps it alive; others are served meanwhile."""
    with serving(max_seconds=0.3) as server, socket.create_connection(("127.0.0.1", server.port)) as slow:
        assert (200, "page") == get(server.port)
        begun = time.monotonic()
        slow.settimeout(0.05)
        ended = False
        while not ended and time.monotonic() - begun < LONG:
            try:
                if drip:
                    slow.sendall(drip)
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
        assert ended


def test_a_scraper_that_does_not_read_is_not_waited_for() -> None:
    """A page that is larger than what is under way anyhow blocks its own thread, for as long as that may take."""
    with (
        serving(b"x" * 2**24, max_seconds=0.3) as server,
        socket.create_connection(("127.0.0.1", server.port)) as deaf,
    ):
        deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert 200 == get(server.port)[0]
        deadline = time.monotonic() + LONG
        while any(thread.name == "otel_logger scrape connection" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # It ends early.
        deaf.settimeout(LONG)
        assert sum(map(len, iter(lambda: deaf.recv(2**20), b""))) < 2**24


def test_there_are_only_so_many_connections() -> None:
    """One more is closed at once, so that their threads do not become many."""
    with serving() as server, contextlib.ExitStack() as stack:
        place = "127.0.0.1", server.port
        open_ones = [stack.enter_context(socket.create_connection(place)) for _ in range(MAX_CONNECTIONS + 1)]
        open_ones[-1].settimeout(LONG)
        assert b"" == open_ones[-1].recv(1)
        open_ones[0].sendall(b"GET / HTTP/1.0\r\n\r\n")
        open_ones[0].settimeout(LONG)
        assert open_ones[0].recv(100).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"\xff" * 9000,
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET //[ HTTP/1.0\r\n\r\n",
    ],
)
def test_a_broken_scraper_harms_nothing(words: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever it says before it is gone: nothing is logged, and the next one is served."""
    with serving() as server:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", server.port)) as broken:
                with contextlib.suppress(OSError):
                    broken.sendall(words)
                # Gone by a reset, while the answer is under way.
                broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert (200, "page") == get(server.port)
    assert ("", "") == capfd.readouterr()


class TickingClock(SystemClock):
    """Moves by what it is told to."""

    now = 100.0

    def monotonic(self) -> float:
        """Return its own time."""
        return self.now


@contextlib.contextmanager
def serving_measurements(collect: Callable[[], Any], clock: SystemClock) -> Iterator[tuple[int, Ledger]]:
    """Give the port of an endpoint, and its ledger."""
    ledger = Ledger(clock, logging.getLogger("test"))
    endpoint = ScrapeEndpoint(ScrapeAddress("127.0.0.1", 0), ScrapeSecurity(), clock=clock, ledger=ledger)
    endpoint.start(collect, dict)
    try:
        yield int(endpoint.url.split(":")[2].split("/")[0]), ledger
    finally:
        endpoint.close()


def test_a_fault_in_a_page_is_an_answer() -> None:
    """It is told once a minute, and the next scrape is served."""

    def collect() -> Any:
        raise ZeroDivisionError

    with serving_measurements(collect, SystemClock()) as (port, ledger):
        assert [(500, "the page could not be made\n")] * 2 == [get(port), get(port)]
        assert "A scrape failed inside otel_logger: ZeroDivisionError()" == ledger.stats(frozenset()).last_error


def test_whoever_scrapes_all_the_time_waits_for_it() -> None:
    """Making pages takes a tenth of the time at most; the training has the rest."""
    clock = TickingClock()

    def collect() -> list[Any]:
        clock.now += 0.02
        return []

    with serving_measurements(collect, clock) as (port, _):
        assert 200 == get(port)[0]
        begun = time.monotonic()
        assert 200 == get(port)[0]
        assert time.monotonic() - begun >= 0.17
        clock.now += 0.2
        assert 200 == get(port)[0]


def test_a_forked_child_holds_no_port(tmp_path: Path, port: int) -> None:
    """It lives on when the parent's run has ended, and the next run has the port; the parent is scraped meanwhile."""
    program = textwrap.dedent(f"""
        import os, signal, urllib.request
        from otel_logger import OTelLogger

        def scrape():
            return urllib.request.urlopen("http://127.0.0.1:{port}/metrics", timeout={LONG}).read()

        reading, writing = os.pipe()
        log = OTelLogger(run_name="first")
        log.log_metrics({{"loss": 1.0}}, step=1)
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        assert b'loss{{' in scrape()
        log.close()
        with OTelLogger(run_name="second") as log:
            log.log_metrics({{"acc": 1.0}}, step=1)
            assert b'acc{{' in scrape()
        os.close(writing)
        assert os.waitpid(child, 0)[1] == 0
    """)
    environ = {
        **os.environ,
        "OTEL_LOGGER_DIR": str(tmp_path),
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=15)

    assert 0 == done.returncode, done.stderr
    assert f"metrics scraped at http://127.0.0.1:{port}/metrics" in done.stderr


def test_a_program_that_closes_nothing_lingers_at_its_exit(tmp_path: Path, port: int) -> None:
    """The last scrape is answered also while the interpreter exits."""
    program = textwrap.dedent("""
        from otel_logger import OTelLogger
        log = OTelLogger(run_name="run")
        log.log_metrics({"loss": 1.0}, step=1)
    """)
    environ = {
        **os.environ,
        "OTEL_LOGGER_DIR": str(tmp_path),
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
        "OTEL_LOGGER_SCRAPE_LINGER": "60000",
    }
    with subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE) as process:
        body = scrape_until(lambda: process.poll() is not None, port)
    assert 0 == process.returncode
    assert 'training_state{training_state="finished"} 1.0' in body
    assert 'loss{training_metric_key="loss"} 1.0' in body


def test_sigterm_ends_lingering(tmp_path: Path, port: int) -> None:
    """Whoever ends the process does not wait for a scrape that may never come."""
    program = textwrap.dedent("""
        from otel_logger import OTelLogger
        log = OTelLogger(run_name="run")
        log.log_metrics({"loss": 1.0}, step=1)
        log.close()
    """)
    environ = {
        **os.environ,
        "OTEL_LOGGER_DIR": str(tmp_path),
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
        "OTEL_LOGGER_SCRAPE_LINGER": "60000",
    }
    with subprocess.Popen([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "ended" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert 143 == process.wait(LONG)


def test_what_is_exported_to_the_console_is_printed(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """It is delivered thereby, and not kept."""
    names = ("OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER", "OTEL_TRACES_EXPORTER")
    log = make(**dict.fromkeys(names, "console"))
    with log.span("work"):
        log.log_metrics({"loss/train": 0.5}, step=3)
    log.close()
    lines = [line.split(" ", 1)[1] for line in capfd.readouterr().out.splitlines()]

    assert "metric loss/train 0.5 training.metric.key=loss/train" in lines
    assert 1 == sum(line.startswith("log training.run.end ") for line in lines)
    assert 1 == sum(line.startswith("span work ") for line in lines)
    assert log.stats().is_complete
    assert not any(log.stats().kept.values())
    assert [] == points(log)
