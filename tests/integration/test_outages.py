"""Training goes on, and nothing is lost, while the real Collector, the network or the disk fails.

In each test a process of its own trains and keeps account of what it logs and of what each call costs
(`trainee.py`); the test makes something fail, and compares the account with what the Collector has written.

How a call that waits is told from a machine that is busy. A clock alone cannot tell: the machine may take the
processor from any thread for longer than any bound. So each call is measured in three ways: by the clock, in processor
time of its thread, and by the voluntary context switches of its thread, which it makes when it goes to sleep: for a
lock, a disk, a connection, or for the GIL after it has given that up. A thread that is merely descheduled makes none. A
call *waits* for as long as its thread was off the processor, if it went to sleep in it. Beside each call of
`log_metrics` there is an idle one that spins for as long: what happens to those is what the process and the machine do
to any call.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from collector import AT_ONCE, Collector, over_tls
from small_disk import SmallDisk
from trainee import KEYS
from training import Account, Audit, Training, audit, sync

from otel_logger import read_run
from tests.faulty_proxy import FAULTS, REQUEST, RESPONSE, FaultyProxy, random_faults

pytestmark = [pytest.mark.collector, pytest.mark.timeout(180)]

MIB = 2**20

WAIT_BOUND = 0.002
"""Seconds that a call of `log_metrics` waits at most."""

CHANCE = 3
"""Calls of `log_metrics` that may wait for longer in a test, and as many for each idle one that does: who is
descheduled for five milliseconds has the GIL taken away, and then waits for it."""

OTHER_WAIT_BOUND = 0.8
"""Seconds that any other call waits at most: those give up the GIL, to make identifiers and to check what is large, and
wait for the sender to give it back. All that the tests make fail takes a second or longer to come back."""

OTHER_WAITS = 0.1
"""The part of other calls that may wait for longer than WAIT_BOUND."""

WORK_BOUND = 0.002
"""Seconds of processor time that a call of `log_metrics` takes, but for one in a hundred, in which garbage is
collected."""

MEMORY_BOUND = 96 * MIB
"""By which the process may grow in an outage, whatever is logged: about the size of a batch that is being encoded."""

FILLING = 500
"""Calls of `fill`, which log 60 MB: more than the segments that were made when there was space can take."""

DISK_MEMORY_BOUND = 60 * MIB
"""By which the process may grow while the disk takes nothing: less than what is logged then."""

OWN_ITEMS = 3
"""What a logger records of its own accord until it is closed: its start, the hyperparameters, and the run's span."""

PROTOCOLS = ("grpc", "http/protobuf")


@pytest.fixture
def collector(collector_binary: Path, tmp_path: Path) -> Iterator[Collector]:
    """A Collector that is not started, whose output holds what it has acknowledged, also when it is killed."""
    stopped = Collector(collector_binary, tmp_path / "collector", more_config=[AT_ONCE])
    stopped.reserve_ports()
    yield stopped
    stopped.stop()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    """A process that is about to train."""
    folder = tmp_path / "training"
    folder.mkdir()
    with Training(folder) as process:
        yield process


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Notes the figures of a test in its report and in its log (`--log-cli-level=INFO` shows that)."""

    def note(name: str, **figures: object) -> None:
        for key, value in figures.items():
            record_property(f"{name} {key}", str(value))
            logging.getLogger("outages").info("%s: %s: %s", name, key, value)

    return note


def environ(tmp_path: Path, collector: Collector, protocol: str, **more: str) -> dict[str, str]:
    """The environment of a training that sends to a Collector."""
    endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.http_endpoint
    return {
        "OTEL_LOGGER_DIR": str(tmp_path / "runs"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        **more,
    }


def warm_up(training: Training) -> int:
    """Lets a training do all that it does once, and returns the memory it has then."""
    memory: int = training.ask("warm_up")["memory"]
    return memory


def assert_unharmed(account: Account) -> None:
    """No call raised, none waited for longer than it may, and `log_metrics` took no more processor time than it may."""
    assert [] == account.raised
    waits, chance = account.waits("metrics", WAIT_BOUND), CHANCE + CHANCE * len(account.waits("idle", WAIT_BOUND))
    assert len(waits) <= chance, account.figures("metrics")
    assert max(waits, default=0.0) < OTHER_WAIT_BOUND
    for kind in ("text", "span", "image", "table", "wide"):
        number = sum(call[0].startswith(kind) for call in account.calls[account.warm :])
        waits = account.waits(kind, WAIT_BOUND)
        assert len(waits) <= CHANCE + OTHER_WAITS * number, account.figures(kind)
        assert max(waits, default=0.0) < OTHER_WAIT_BOUND, account.figures(kind)
    work = sorted(call[5] for call in account.of("metrics").values())
    assert work[len(work) * 99 // 100] < WORK_BOUND * 1e9, account.figures("metrics")


def assert_all_arrived(found: Audit, stats: dict[str, Any]) -> None:
    """Everything arrived, each once after de-duplication, as it was logged; and that is what the logger says too."""
    assert [] == found.wrong
    assert [] == found.invented
    assert {} == +found.lost
    assert stats["recorded"] == stats["delivered"]
    assert {} == stats["dropped"]
    assert 0 == stats["coalesced"]


def assert_all_counted(found: Audit, account: Account, stats: dict[str, Any]) -> None:
    """What arrived is counted as delivered, and each other item that was logged as waiting, kept, refused or lost."""
    counted = {name: sum(stats[name].values()) for name in ("delivered", "waiting", "kept", "refused", "dropped")}
    # An image or table that the disk does not take has a record that says so.
    told = stats["blobs"]["failed"]
    assert account.items + OWN_ITEMS + told == sum(counted.values()), stats
    assert counted["delivered"] == found.arrived, stats


@pytest.mark.parametrize(("protocol", "points"), [("grpc", 100_000), ("http/protobuf", 30_000)])
def test_a_collector_that_is_killed_three_times(
    collector: Collector, training: Training, tmp_path: Path, protocol: str, points: int, report: Any
) -> None:
    """Of 100,000 points, with log records and spans among them, none is lost while the Collector dies three times."""
    collector.start()
    training.open(environ(tmp_path, collector, protocol))
    before = warm_up(training)
    calls = points // len(KEYS)
    training.begin("train", calls=calls, pace=0.0014)
    for part in (1, 2, 3):
        training.reach(calls * part // 4)
        collector.kill()
        time.sleep(1.0)
        collector.start()
    peak = training.finish()["peak"]
    training.deliver()
    stats = training.ask("stats")["stats"]
    closed = training.ask("close")["seconds"]
    account = training.end()

    found = audit(account, collector.stop_and_read())
    grown = peak - before
    report(protocol, found=found, calls=account.figures("metrics"), grown=f"{grown / MIB:.1f} MiB", closed=closed)
    assert_all_arrived(found, stats)
    assert found.expected["metrics"] >= points
    assert_unharmed(account)
    assert grown < MEMORY_BOUND


def test_a_collector_that_is_paused_for_half_a_minute(
    collector: Collector, training: Training, tmp_path: Path, report: Any
) -> None:
    """While the Collector neither answers nor hangs up, 116 MB of text are logged, and none of them are held in memory.

    Requests time out and are sent again; the Collector takes some twice when it goes on, which de-duplication mends.
    """
    collector.start()
    training.open(environ(tmp_path, collector, "http/protobuf", OTEL_EXPORTER_OTLP_TIMEOUT="4000"))
    before = warm_up(training)
    collector.pause()
    paused = time.monotonic()
    training.begin("train", calls=2900, pace=0.01, text_every=1, text_size=40_000)
    peak = training.finish()["peak"]
    time.sleep(max(0.0, paused + 30 - time.monotonic()))
    waiting = training.ask("stats")["stats"]["waiting"]
    collector.resume()
    training.deliver()
    stats = training.ask("stats")["stats"]
    training.ask("close")
    account = training.end()

    found = audit(account, collector.stop_and_read())
    grown = peak - before
    report("paused", found=found, calls=account.figures("metrics"), grown=f"{grown / MIB:.1f} MiB", waiting=waiting)
    assert waiting["metrics"] >= 2900 * len(KEYS)
    assert_all_arrived(found, stats)
    assert_unharmed(account)
    assert grown < MEMORY_BOUND


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_collector_that_comes_up_later(
    collector: Collector, training: Training, tmp_path: Path, protocol: str, report: Any
) -> None:
    """A run that begins while nothing listens is delivered whole once something does, from its first value on."""
    training.open(environ(tmp_path, collector, protocol))
    before = warm_up(training)
    peak = training.ask("train", calls=2000, pace=0.002)["peak"]
    collector.start()
    training.deliver()
    stats = training.ask("stats")
    training.ask("close")
    account = training.end()

    found = audit(account, collector.stop_and_read())
    report(protocol, found=found, calls=account.figures("metrics"), grown=f"{(peak - before) / MIB:.1f} MiB")
    assert_all_arrived(found, stats["stats"])
    assert_unharmed(account)
    assert peak - before < MEMORY_BOUND
    assert len(stats["warnings"]) == len(set(stats["warnings"])), "each kind is told once a minute"


def test_calls_of_a_thousand_metrics_wait_no_longer(collector: Collector, training: Training, tmp_path: Path) -> None:
    """A large row is written as a small one is, while the sender encodes what the Collector does not take."""
    training.open(environ(tmp_path, collector, "http/protobuf", OTEL_LOGGER_SHUTDOWN_TIMEOUT="0"))
    warm_up(training)
    training.ask("widen", calls=1200, pace=0.002)
    training.ask("close")
    account = training.end()

    assert [] == account.raised
    assert len(account.waits("broad", WAIT_BOUND)) <= CHANCE, account.figures("broad")
    assert max(account.waits("broad"), default=0.0) < OTHER_WAIT_BOUND


def test_a_collector_that_comes_up_after_the_end_of_the_run(
    collector: Collector, training: Training, tmp_path: Path, report: Any
) -> None:
    """A run that could deliver nothing ends in time, and `otel-logger sync` sends all of it, once."""
    where = environ(tmp_path, collector, "grpc", OTEL_LOGGER_SHUTDOWN_TIMEOUT="2000")
    run = training.open(where)
    training.ask("train", calls=1000, pace=0.001)
    closed = training.ask("close")["seconds"]
    account = training.end()
    collector.start()
    (first,) = sync(Path(run["run_dir"]), collector.grpc_endpoint, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    second = sync(Path(run["run_dir"]), collector.grpc_endpoint, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")

    found = audit(account, collector.stop_and_read())
    report("ended", found=found, calls=account.figures("metrics"), closed=closed)
    assert closed < 3.0
    assert {} == +found.lost
    assert {} == +found.copies
    assert found.is_faithful, found
    assert first["sent"]["metrics"] == 1000 * len(KEYS)
    assert [{}] == [each["sent"] for each in second]
    assert_unharmed(account)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_network_that_cuts_delays_and_corrupts(
    collector: Collector, training: Training, tmp_path: Path, protocol: str, report: Any
) -> None:
    """Through connections that fail in every way, everything arrives, and nothing but what was logged.

    Bytes of answers are corrupted too: an answer that says other than the Collector did, as that the data is refused,
    is believed, but nothing that the Collector did not take is held to be delivered.
    """
    collector.start()
    address = collector.grpc_address if protocol == "grpc" else collector.http_address
    with FaultyProxy(address, random_faults(Random(protocol), 2)) as proxy:
        where = environ(tmp_path, collector, protocol, OTEL_EXPORTER_OTLP_TIMEOUT="1000")
        where["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{proxy.port}"
        account, stats, seen = train_through(proxy, training, where)

    found = audit(account, collector.stop_and_read())
    report(protocol, found=found, calls=account.figures("metrics"), seen=dict(seen), stats=stats)
    assert {} == +found.lost
    assert found.is_faithful, found
    assert {} == stats["dropped"]
    assert not any(stats["waiting"].values())
    assert_unharmed(account)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_network_that_corrupts_under_tls(
    collector_binary: Path, training: Training, tmp_path: Path, certificate: Path, protocol: str, report: Any
) -> None:
    """Under TLS a byte that is corrupted, in a request too, costs the connection and nothing else."""
    tls = over_tls(certificate / "key.pem", certificate / "cert.pem")
    collector = Collector(collector_binary, tmp_path / "collector", more_config=[AT_ONCE, tls])
    collector.start()
    try:
        address = collector.grpc_address if protocol == "grpc" else collector.http_address
        faults = random_faults(Random(protocol), 2, corrupt=(REQUEST, RESPONSE))
        with FaultyProxy(address, faults) as proxy:
            where = environ(tmp_path, collector, protocol, OTEL_EXPORTER_OTLP_TIMEOUT="1000")
            where["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"https://127.0.0.1:{proxy.port}"
            where["OTEL_EXPORTER_OTLP_CERTIFICATE"] = str(certificate / "cert.pem")
            account, stats, seen = train_through(proxy, training, where)
        found = audit(account, collector.stop_and_read())
    finally:
        collector.stop()

    report(protocol, found=found, calls=account.figures("metrics"), seen=dict(seen), stats=stats)
    assert_all_arrived(found, stats)
    assert_unharmed(account)


def train_through(proxy: FaultyProxy, training: Training, where: dict[str, str]) -> tuple[Account, dict[str, Any], Any]:
    """Trains until the proxy has done all that it is to do; the account, what the logger counts, and what was done."""
    training.open(where)
    warm_up(training)
    deadline = time.monotonic() + 60
    while proxy.left and time.monotonic() < deadline:
        training.ask("train", calls=50, pace=0.001, text_every=5, text_size=8000, span_every=20)
        training.ask("flush", timeout=3.0)
        proxy.hang_up()
    training.deliver()
    stats = training.ask("stats")["stats"]
    training.ask("close")
    account = training.end()
    assert not proxy.left
    assert set(FAULTS) <= set(proxy.seen), proxy.seen
    return account, stats, proxy.seen


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with key.pem and cert.pem, self-signed for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=otlp"
    command += " -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 128 MiB."""
    with SmallDisk(tmp_path, 128 * MIB) as small:
        yield small


@pytest.fixture
def on_disk(disk: SmallDisk, tmp_path: Path) -> Iterator[Training]:
    """A process that is about to train and sees the disk."""
    folder = tmp_path / "training"
    folder.mkdir()
    with Training(folder, disk.prefix) as process:
        yield process


def assert_told_once(warnings: Sequence[str]) -> None:
    """That the disk takes nothing is told, and nothing is told twice: no test takes longer than a minute."""
    kinds = Counter(re.sub(r"[0-9]+", "#", warning) for warning in warnings)
    assert {1} == set(kinds.values()), warnings
    assert any(re.search("disk does not take|Somebody deleted", warning) for warning in warnings), warnings


def test_a_disk_that_is_full_from_the_start(disk: SmallDisk, on_disk: Training) -> None:
    """Where not even a folder can be described, the construction says so, with the folder and the cause."""
    disk.fill()
    said = on_disk.open({"OTEL_LOGGER_DIR": str(disk.inside / "runs")})

    assert re.search(r"OTEL_LOGGER_DIR='.*' cannot be written: .*No space left on device", said["error"])


@pytest.mark.parametrize("when", ["before", "amid"])
def test_a_disk_that_fills_up(
    disk: SmallDisk, on_disk: Training, collector: Collector, tmp_path: Path, when: str, report: Any
) -> None:
    """Training goes on while there is no space, in bounded memory; what is lost is counted to the item, and told once.

    When there is space again, what is logged from then on is kept and arrives.
    """
    where = environ(tmp_path, collector, "http/protobuf", OTEL_LOGGER_DIR=str(disk.inside / "runs"))
    if when == "before":
        # Room for the folder of a run, not for a segment.
        disk.fill(leave=MIB)
    on_disk.open(where)
    if when == "amid":
        warm_up(on_disk)
        disk.fill()
    before = on_disk.ask("stats")["memory"]
    peak = on_disk.ask("fill", calls=FILLING)["peak"]
    on_disk.ask("train", calls=200, pace=0.002)
    while_full = on_disk.ask("stats")
    disk.make_room()
    # The disk is looked at again once a second, and no more often, while it takes nothing.
    on_disk.ask("train", calls=800, pace=0.002)
    with_room = on_disk.ask("stats")
    recovered = on_disk.ask("train", calls=200, pace=0.002)
    after = on_disk.ask("stats")
    collector.start()
    on_disk.deliver()
    stats = on_disk.ask("stats")["stats"]
    on_disk.ask("close")
    account = on_disk.end()

    found = audit(account, collector.stop_and_read(), disk.root)
    report(
        when,
        found=found,
        calls=account.figures(),
        grown=f"{(peak - before) / MIB:.1f} MiB",
        dropped=stats["dropped"],
        warnings=while_full["warnings"],
    )
    assert found.is_faithful, found
    assert sum(while_full["stats"]["dropped"].values()) > 0
    assert with_room["stats"]["dropped"] == after["stats"]["dropped"], "a second after there is space nothing is lost"
    assert_all_counted(found, account, stats)
    assert recovered["step"] - 1 in arrived_steps(collector)
    assert_told_once(while_full["warnings"])
    assert_unharmed(account)
    assert peak - before < DISK_MEMORY_BOUND


def arrived_steps(collector: Collector) -> set[Any]:
    """The steps of which the first metric arrived."""
    return {point.value for point in collector.stop_and_read().metrics if point.name == "training.step"}


def test_a_folder_that_is_deleted_amid_the_run(
    disk: SmallDisk, on_disk: Training, collector: Collector, tmp_path: Path, report: Any
) -> None:
    """When somebody deletes the folder of runs, training goes on; what was waiting there is counted as lost."""
    where = environ(tmp_path, collector, "grpc", OTEL_LOGGER_DIR=str(disk.inside / "runs"))
    on_disk.open(where)
    before = warm_up(on_disk)
    shutil.rmtree(disk.outside / "runs")
    peak = on_disk.ask("fill", calls=FILLING)["peak"]
    on_disk.ask("train", calls=200, pace=0.002)
    collector.start()
    on_disk.deliver()
    said = on_disk.ask("stats")
    on_disk.ask("close")
    account = on_disk.end()

    found = audit(account, collector.stop_and_read(), disk.root)
    stats = said["stats"]
    report(
        "deleted",
        found=found,
        calls=account.figures(),
        grown=f"{(peak - before) / MIB:.1f} MiB",
        stats=stats,
        warnings=said["warnings"],
    )
    assert found.is_faithful, found
    assert_all_counted(found, account, stats)
    assert not any(stats["waiting"].values()), "there is nothing on the disk that could wait"
    assert_told_once(said["warnings"])
    assert_unharmed(account)
    assert peak - before < DISK_MEMORY_BOUND


def test_a_folder_that_becomes_read_only_amid_the_run(
    disk: SmallDisk, on_disk: Training, collector: Collector, tmp_path: Path, report: Any
) -> None:
    """When nothing can be created in the folder any more, training goes on; what is lost is counted, and told once."""
    runs = disk.inside / "runs"
    on_disk.open(environ(tmp_path, collector, "grpc", OTEL_LOGGER_DIR=str(runs)))
    before = warm_up(on_disk)
    disk.make_read_only(runs)
    peak = on_disk.ask("fill", calls=FILLING)["peak"]
    while_closed = on_disk.ask("stats")
    disk.make_writable(runs)
    recovered = on_disk.ask("train", calls=200, pace=0.002)
    collector.start()
    on_disk.deliver()
    stats = on_disk.ask("stats")["stats"]
    run = on_disk.ask("close")
    account = on_disk.end()

    found = audit(account, collector.stop_and_read(), disk.root)
    report(
        "read-only",
        found=found,
        calls=account.figures(),
        grown=f"{(peak - before) / MIB:.1f} MiB",
        dropped=stats["dropped"],
        warnings=while_closed["warnings"],
        closed=run,
    )
    assert found.is_faithful, found
    assert sum(while_closed["stats"]["dropped"].values()) > 0
    assert_all_counted(found, account, stats)
    assert recovered["step"] - 1 in arrived_steps(collector)
    assert_told_once(while_closed["warnings"])
    assert_unharmed(account)
    assert peak - before < DISK_MEMORY_BOUND


def test_a_disk_that_fills_up_under_a_run_without_an_endpoint(disk: SmallDisk, on_disk: Training) -> None:
    """A run that is kept locally reads back what it could keep, to the item, and has counted the rest."""
    run = on_disk.open({"OTEL_LOGGER_DIR": str(disk.inside / "runs")})
    warm_up(on_disk)
    disk.fill(leave=20 * MIB)
    on_disk.ask("fill", calls=FILLING)
    stats = on_disk.ask("stats")["stats"]
    disk.make_room()
    on_disk.ask("close")
    account = on_disk.end()

    kept = read_run(disk.outside / Path(run["run_dir"]).relative_to(disk.inside))
    events = [event for event in kept.events if event["name"] != "training.run.end"]
    dropped = sum(stats["dropped"].values())
    assert dropped > 0
    assert account.items + OWN_ITEMS - dropped == len(kept.metrics) + len(events) + len(kept.spans)
    assert sum(stats["kept"].values()) == len(kept.metrics) + len(events) + len(kept.spans)
    assert [] == list(kept.damage)
    assert_unharmed(account)
