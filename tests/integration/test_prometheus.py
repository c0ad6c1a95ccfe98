"""A real Prometheus scrapes a training of two ranks: what it stores is what was logged, and who logged it."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from collector import HOST, Collector, free_row
from prometheus import JOB, Prometheus, Sample

from otel_logger import conventions as names
from otel_logger import read_run
from tests.certificates import make_pair

pytest.importorskip("composer", reason="mosaicml is not installed: `make test-all` installs it")

from scraped import ALIKE, ODD

pytestmark = [pytest.mark.composer, pytest.mark.prometheus, pytest.mark.timeout(240)]

PROGRAM = Path(__file__).with_name("scraped.py")

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05

RANKS = 2

# `up` and what Prometheus says of its own scrapes, which are no series of ours.
OF_PROMETHEUS = "up|scrape_.*"

Result = TypeVar("Result")


class Training:
    """The program under `torchrun`, which does its next step when it is told to."""

    def __init__(self, folder: Path, port: int, environ: Mapping[str, str]) -> None:
        self.ports = [port + rank for rank in range(RANKS)]
        self._folder = folder
        self._printed = (folder / "printed.txt").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", str(PROGRAM)],
            cwd=folder,
            env=os.environ | {"OTEL_EXPORTER_PROMETHEUS_PORT": str(port), "OMP_NUM_THREADS": "1"} | environ,
            stdout=self._printed,
            stderr=self._printed,
        )

    def reach(self, what: str) -> list[Any]:
        """Waits until each rank is so far; returns what it says then."""
        paths = [self._folder / f"{what}-{rank}" for rank in range(RANKS)]
        poll(lambda: all(path.exists() for path in paths), bool, lambda: f"{what}: {self._told()}", self._is_running)
        return [json.loads(path.read_text("utf-8")) for path in paths]

    def let(self, what: str) -> None:
        """Lets it go on."""
        (self._folder / what).touch()

    def finish(self) -> str:
        """Lets it end, which is a good end; returns what it has printed."""
        self.let("exit")
        assert 0 == self._process.wait(timeout=PATIENCE_SECONDS), self._told()
        return self._told()

    def kill(self) -> None:
        """Ends what has not ended yet, and both ranks with it."""
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_SECONDS)
        self._printed.close()

    def _is_running(self) -> bool:
        return self._process.poll() is None

    def _told(self) -> str:
        return (self._folder / "printed.txt").read_text("utf-8", errors="replace")[-5000:]


@contextmanager
def trained(folder: Path, environ: Mapping[str, str]) -> Iterator[Training]:
    """A training on ports of its own, which is over with the block."""
    folder.mkdir()
    training = Training(folder, free_row(RANKS), environ)
    try:
        yield training
    finally:
        training.kill()


def test_two_ranks_are_scraped(prometheus_binary: Path, tmp_path: Path) -> None:
    """What Prometheus shows of each rank is what it logged last, under its key, and joined with the run it belongs to.

    Nothing is scraped wrongly; after the end nothing is left but the last values that were scraped then.
    """
    environ = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_LOGGER_RANKS": "all", "OTEL_LOGGER_SCRAPE_LINGER": "20000"}
    with trained(tmp_path / "training", environ) as training:
        training.reach("listening")
        with Prometheus(prometheus_binary, tmp_path / "prometheus", training.ports) as prometheus:
            instances = [f"{HOST}:{port}" for port in training.ports]
            poll(prometheus.targets, lambda targets: targets == dict.fromkeys(instances, ("up", "")))
            training.let("train")
            logged = training.reach("trained")

            check_values(prometheus, instances, logged)
            check_identity(prometheus, instances)
            check_state(prometheus, instances, "training")
            check_style(prometheus_binary.with_name("promtool"), instances[0])

            training.let("end")
            training.reach("ended")
            for instance in instances:
                assert not is_open(instance), "the port is free, while the process goes on"
            check_end(prometheus, instances)
            assert {} == prometheus.faults()
            assert [] == prometheus.complaints()
        printed = training.finish()

    assert "Error" not in printed
    (folder,) = (tmp_path / "training" / "otel_logs").glob("scraped-*")
    run = read_run(folder)
    assert {0, 1} == set(run.metrics["rank"]), "what is scraped and not sent is kept"
    last = {row["key"]: row["value"] for row in run.metrics if row["rank"] == 0}
    assert {key: value for key, (value, _) in logged[0].items()} == {
        key: repr(float(each)) for key, each in last.items()
    }


@pytest.mark.collector
def test_one_process_is_scraped_with_a_password_over_tls_and_sends_all_the_same(
    prometheus_binary: Path, collector: Collector, tmp_path: Path
) -> None:
    """With `otlp,prometheus` rank 0's values are scraped and sent; of rank 1 both have what tells that it lives."""
    pair = make_pair(tmp_path, "scrape", f"IP:{HOST}")
    environ = {
        "OTEL_METRICS_EXPORTER": "otlp,prometheus",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.http_endpoint,
        "OTEL_EXPORTER_PROMETHEUS_HOST": HOST,
        "OTEL_LOGGER_SCRAPE_CERTIFICATE": str(pair.certificate),
        "OTEL_LOGGER_SCRAPE_KEY": str(pair.key),
        "OTEL_LOGGER_SCRAPE_AUTH": "prometheus:open sesame",
    }
    access = {
        "scheme": "https",
        "tls_config": {"ca_file": str(pair.certificate)},
        "basic_auth": {"username": "prometheus", "password": "open sesame"},
    }
    with trained(tmp_path / "training", environ) as training:
        training.reach("listening")
        with Prometheus(prometheus_binary, tmp_path / "prometheus", training.ports, access) as prometheus:
            instances = [f"{HOST}:{port}" for port in training.ports]
            poll(prometheus.targets, lambda targets: targets == dict.fromkeys(instances, ("up", "")))
            training.let("train")
            logged = training.reach("trained")

            check_values(prometheus, instances[:1], logged[:1])
            assert [] == values(prometheus, instances[1])
            check_identity(prometheus, instances)
            check_state(prometheus, instances, "training")
            training.let("end")
            training.reach("ended")
            assert {} == prometheus.faults()
            assert [] == prometheus.complaints()
        printed = training.finish()

    assert "sesame" not in printed
    received = collector.stop_and_read()
    sent = {
        point.attributes[names.METRIC_KEY]: repr(float(point.value))
        for point in sorted(received.metrics, key=lambda point: point.time_ns)
        if names.METRIC_KEY in point.attributes and point.name != names.STEP and point.value is not None
    }
    assert {key: value for key, (value, _) in logged[0].items()} == sent
    alive = {point.resource[names.RANK] for point in received.metrics if point.name == names.STATE}
    assert {0, 1} == alive


def test_a_page_with_a_fault_is_told(prometheus_binary: Path, tmp_path: Path) -> None:
    """Two values of one series, of which Prometheus keeps the first, are counted by it and complained of in its log."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(b"# TYPE twice gauge\ntwice 1\ntwice 2\n")

        def log_message(self, *_: object) -> None:
            """Keep silent."""

    with http.server.ThreadingHTTPServer((HOST, 0), Page) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        with Prometheus(prometheus_binary, tmp_path / "prometheus", [server.server_port]) as prometheus:
            poll(lambda: [each.value for each in prometheus.query("twice")], lambda found: found == [1.0])
            assert {"prometheus_target_scrapes_sample_duplicate_timestamp_total"} == set(prometheus.faults())
            assert all("different value but same timestamp" in line for line in prometheus.complaints())
            assert prometheus.complaints()
        server.shutdown()
        serving.join()


def check_values(prometheus: Prometheus, instances: list[str], logged: list[Any]) -> None:
    """Asserts that each rank's series are what it logged last, of each key one, and that steps lie beside them."""
    for instance, of_rank in zip(instances, logged, strict=True):
        assert {*ALIKE, *ODD, "loss/train/total"} <= set(of_rank)
        expected = {key: value for key, (value, _) in of_rank.items()}
        poll(lambda: by_key(values(prometheus, instance)), lambda found: found == expected)  # noqa: B023
        steps = prometheus.query(f'training_step{{instance="{instance}"}}')
        assert {key: repr(float(step)) for key, (_, step) in of_rank.items()} == by_key(steps)
        found = values(prometheus, instance)
        assert len(expected) == len(found), "one series for each key"
        assert {"training_metric_key", "job", "instance"} == {label for each in found for label in each.labels}


def check_identity(prometheus: Prometheus, instances: list[str]) -> None:
    """Asserts that any series can be joined with the run's id, name, attempt and ranks, and with the resource."""
    joined = prometheus.query(
        "training_position_step * on (job, instance) group_left "
        "(training_run_id, training_run_name, training_run_attempt, training_rank, training_world_size) "
        "training_run_info"
    )
    told = {
        each.instance: [each.labels[f"training_{name}"] for name in ("run_name", "run_attempt", "rank", "world_size")]
        for each in joined
    }
    assert {instance: ["scraped", "1", str(rank), "2"] for rank, instance in enumerate(instances)} == told
    assert 1 == len({each.labels["training_run_id"] for each in joined}), "ranks are of one run"
    info = prometheus.query(f'target_info{{job="{JOB}"}}')
    assert set(instances) == {each.instance for each in info}
    for each in info:
        assert {
            "training_run_name": "scraped",
            "service_name": "training",
            "training_local_rank": each.labels["training_rank"],
        }.items() <= each.labels.items()
        assert {1.0} == {each.value}
    (first,) = (each for each in info if each.instance == instances[0])
    assert any(label.startswith("training_hparam_") for label in first.labels)


def check_state(prometheus: Prometheus, instances: list[str], state: str) -> None:
    """Asserts that each rank shows this state, and no other."""
    expression = f'training_state{{job="{JOB}"}} == 1'
    poll(
        lambda: {each.instance: each.labels["training_state"] for each in prometheus.query(expression)},
        lambda found: found == dict.fromkeys(instances, state),
    )


def check_style(promtool: Path, instance: str) -> None:
    """Asserts that Prometheus' own tool has no fault to find with the page, but for names that the user has given."""
    with urllib.request.urlopen(f"http://{instance}/metrics", timeout=10) as response:
        page = response.read()
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    # Nothing found, or something to be done better; 1 is a page that is not understood.
    assert done.returncode in (0, 3), done.stderr
    found = done.stdout.decode() + done.stderr.decode()
    assert [] == [line for line in found.splitlines() if line.startswith(("training_", "otel_logger_", "target_info"))]


def check_end(prometheus: Prometheus, instances: list[str]) -> None:
    """Asserts that each rank was up all the time, that its end was seen, and that none of its series is left."""
    poll(prometheus.targets, lambda targets: all(health == "down" for health, _ in targets.values()))
    poll(
        lambda: prometheus.query(f'{{__name__!~"{OF_PROMETHEUS}",job="{JOB}"}}'),
        lambda left: left == [],
    )
    last = prometheus.query(f'last_over_time(training_state{{job="{JOB}"}}[5m]) == 1')
    assert dict.fromkeys(instances, names.OUTCOME_FINISHED) == {
        each.instance: each.labels["training_state"] for each in last
    }
    # From its first success on a target was down once: at its end, from which it did not come back.
    for each in prometheus.query(f'changes(up{{job="{JOB}"}}[5m])'):
        assert 1 == each.value, "a scrape failed while the training went on"


def values(prometheus: Prometheus, instance: str) -> list[Sample]:
    """The series of values that were logged; a label that is empty, as the empty key, is none to Prometheus."""
    of_keys = f'{{training_metric_key!="",__name__!="training_step",instance="{instance}"}}'
    return [*prometheus.query(of_keys), *prometheus.query(f'user_empty{{instance="{instance}"}}')]


def by_key(samples: list[Sample]) -> dict[str, str]:
    """The value of each key, to the bit."""
    return {each.labels.get("training_metric_key", ""): repr(each.value) for each in samples}


def poll(
    ask: Callable[[], Result],
    is_right: Callable[[Result], object],
    explain: Callable[[], object] = str,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Result:
    """Asks until the answer is right; returns it. Fails with the last answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_right(answer := ask()):
        assert time.monotonic() < deadline and may_go_on(), f"{answer!r} {explain()}"  # noqa: PT018
        time.sleep(POLL_SECONDS)
    return answer


def is_open(instance: str) -> bool:
    """Whether anything listens there."""
    host, _, port = instance.partition(":")
    with socket.socket() as connection:
        return connection.connect_ex((host, int(port))) == 0
