"""A process that is killed anywhere loses no file that it was told is uploaded, and none of them is without its record.

A child of its own dies at each line of the modules that an upload passes through, from the call to the deletion of what
waited; or the `otel-logger sync` that takes up what it left. Where it is looked for, the newest that was accepted is
read at once, before anybody takes it up. The next attempt may upload the same names, and afterwards all is stored.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from otel_logger import OTelLogger
from otel_logger import conventions as names
from otel_logger_exporters.signals import Signal
from tests.crash.plan import LATEST, UPLOADS, content
from tests.crash.test_kill_points import Zygote, environ_for, folder, hits, renew, sync, zygote
from tests.otlp_server import OtlpServer, Reply

__all__ = ["folder", "zygote"]


def accepted(folder: Path) -> dict[str, int]:
    """The number of the last upload of each name that a call returned for."""
    found = {}
    for line in (folder / "accepted").read_text().splitlines() if (folder / "accepted").exists() else []:
        name, number = line.split()
        found[name] = int(number)
    return found


def contents(name: str, least: int) -> list[bytes]:
    """What a file may hold when an upload of a number was accepted: of that, or one that was just being accepted."""
    return [content(name, number) for number in range(least, UPLOADS if name == LATEST else least + 1)]


def assert_read(folder: Path, environ: dict[str, str], case: object) -> None:
    """Check that a logger which knows of no run reads the newest of each name that was accepted."""
    reader = OTelLogger(environ={"OTEL_LOGGER_DIR": environ["OTEL_LOGGER_DIR"]})
    target = folder / "read"
    for name, number in accepted(folder).items():
        reader.download_file(name, str(target), overwrite=True, progress_bar=False)
        assert target.read_bytes() in contents(name, number), (case, name)
    reader.close()


def assert_stored(folder: Path, server: OtlpServer, case: object, *, attempts: int = 1) -> None:
    """Check that what was accepted is in the store, each upload with one record, and that nothing waits any more."""
    # Who dies after he has told his end is followed by another run.
    stores = [store / "files" for store in (folder / "runs").glob("*/blobs")]
    assert 1 <= len(stores) <= attempts, case
    for name, number in accepted(folder).items():
        for store in stores:
            assert (store / name).read_bytes() in contents(name, number), (case, name)
    told: dict[str, set[str]] = {}
    for record in records(server):
        if record[names.NAME] != "table":
            assert record[names.BLOB_OUTCOME] in (names.OUTCOME_STORED, names.OUTCOME_SUPERSEDED), (case, record)
            told.setdefault(record[names.NAME], set()).add(record[names.LOG_RECORD_UID])
    stored = {str(path.relative_to(store)) for store in stores for path in store.rglob("*") if path.is_file()}
    assert stored <= set(told), case
    for name, number in accepted(folder).items():
        assert len(told[name]) <= (UPLOADS if name == LATEST else 1) * attempts, case
        assert len(told[name]) >= (number + 1 if name == LATEST else 1), case
    assert [] == list((folder / "runs").glob("*/*/staged")), case


def records(server: OtlpServer) -> list[dict[str, Any]]:
    """The attributes of the records of files and tables that have arrived."""
    return [
        {attribute.key: attribute.value.string_value for attribute in record.attributes}
        for request in server.requests(Signal.LOGS)
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.event_name in (names.EVENT_FILE, names.EVENT_TABLE)
    ]


def sweep_uploads(zygote: Zygote, folder: Path, every: int) -> None:
    """Kill a writer at each `every`-th of the places that it reaches, and look for what it had accepted."""
    with OtlpServer("http/protobuf") as server:
        reached = zygote.reached("store", environ_for(folder, server), storing=True)
        assert_stored(folder, server, "not killed")
    cases = [(*place, hit) for place, count in sorted(reached.items()) for hit in hits(count)][::every]
    killed = 0
    for number, case in enumerate(cases):
        renew(folder)
        with OtlpServer("http/protobuf") as server:
            environ = environ_for(folder, server)
            killed += -signal.SIGKILL == zygote.run("store", environ, kill=case, storing=True)
            assert_read(folder, environ, case)
            again = number % 2
            if again:
                # The next attempt, which uploads the same names.
                assert 0 == zygote.run("store", environ), (case, (folder / "output").read_text())
            if list((folder / "runs").rglob("writer.json")):
                sync(zygote, folder, server, case)
            if accepted(folder):
                assert_stored(folder, server, case, attempts=1 + again)
    assert killed > 0.7 * len(cases) > 10


def sweep_syncs(zygote: Zygote, folder: Path, every: int) -> None:
    """Kill a `sync` at each `every`-th of the places that it reaches, and let another one go on."""
    import shutil

    with OtlpServer("http/protobuf") as server:
        server.answer_with(*[Reply(http=503)] * 10_000)
        environ = environ_for(folder, server) | {"OTEL_LOGGER_BLOB_STORE": "s3://bucket/x", **UNREACHABLE}
        assert -signal.SIGKILL == zygote.run("store", environ, dies=True)
    (folder / "runs").rename(folder / "dead")
    shutil.copytree(folder / "dead", folder / "runs")
    with OtlpServer("http/protobuf") as server:
        environ = environ_for(folder, server) | {"OTEL_LOGGER_BLOB_STORE": (folder / "runs/x/blobs").as_uri()}
        reached = zygote.reached("sync", environ, storing=True)
        assert_stored(folder, server, "not killed")
    cases = [(*place, hit) for place, count in sorted(reached.items()) for hit in hits(count)][::every]
    killed = 0
    for case in cases:
        shutil.rmtree(folder / "runs")
        shutil.copytree(folder / "dead", folder / "runs")
        with OtlpServer("http/protobuf") as server:
            environ = environ_for(folder, server) | {"OTEL_LOGGER_BLOB_STORE": (folder / "runs/x/blobs").as_uri()}
            killed += -signal.SIGKILL == zygote.run("sync", environ, kill=case, storing=True)
            assert 0 == zygote.run("sync", environ), (case, (folder / "output").read_text())
            assert_stored(folder, server, case)
            (store,) = (folder / "runs").glob("*/blobs")
            assert content(LATEST, UPLOADS - 1) == (store / "files" / LATEST).read_bytes(), case
    assert killed > 0.7 * len(cases) > 3


UNREACHABLE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_REGION": "us-east-1",
}


@pytest.mark.timeout(120)
def test_no_upload_is_lost_where_a_writer_is_killed(zygote: Zygote, folder: Path) -> None:
    """At some of the lines between an upload and the deletion of what waited, what was accepted is read and stored."""
    sweep_uploads(zygote, folder, every=24)


@pytest.mark.timeout(120)
def test_no_upload_is_lost_where_an_adopter_is_killed(zygote: Zygote, folder: Path) -> None:
    """A `sync` that dies at one of some lines is made up for by the next one."""
    sweep_syncs(zygote, folder, every=24)


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_no_upload_is_lost_wherever_a_writer_is_killed(zygote: Zygote, folder: Path) -> None:
    """At each line between an upload and the deletion of what waited, what was accepted is read and stored."""
    sweep_uploads(zygote, folder, every=1)


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_no_upload_is_lost_wherever_an_adopter_is_killed(zygote: Zygote, folder: Path) -> None:
    """A `sync` that dies at any line is made up for by the next one."""
    sweep_syncs(zygote, folder, every=1)
