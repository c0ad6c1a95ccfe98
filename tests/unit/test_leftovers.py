"""What a dead writer had on disk for the blob store is stored and recorded once, by whoever comes after it."""

import json
import logging
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from otel_logger import OTelLogger, leftovers, read_run
from otel_logger.delivery import Carrier
from otel_logger.folders import WriterFile, blobs_folder
from otel_logger.launch import read_launch
from otel_logger.leftovers import Leftovers, bytes_staged
from otel_logger.sync_command import run_sync
from otel_logger.syncing import Errand, Synced
from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.consignments import Consignment, consignments_in
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.file_store import FileBlobStore
from tests.journals import in_child


class _Case:
    """A folder of runs with a dead writer, who had uploaded files and logged a table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"OTEL_LOGGER_DIR": str(root / "logs")}

    def die(self, names: dict[str, bytes], *, settled: bool = True, table: bool = False, **environ: str) -> Path:
        """Have a process upload files, of which none is stored, and kill it; return its folder."""
        before = {path.parent for path in (self.root / "logs").rglob("writer.json")}

        def act() -> None:
            log = OTelLogger(run_id="r" if settled else None, run_name="n", environ=self.environ | environ)
            if not settled:
                log = OTelLogger(environ=self.environ | environ)
            assert log._session is not None
            deposits = log._session.deposits
            deposits.courier.stop()
            for name, content in names.items():
                (self.root / "source").write_bytes(content)
                log.upload_file(None, name, self.root / "source")
            if table:
                log.log_table(["a"], [[1], [2]], name="t", step=7)
                deposits.bench.drain(10)
            while journal_waits(log):
                pass
            os.kill(os.getpid(), signal.SIGKILL)

        assert -signal.SIGKILL == in_child(act)
        found = [path.parent for path in (self.root / "logs").rglob("writer.json") if path.parent not in before]
        return next(folder for folder in found if (folder / "staged").exists())

    def errand(self, timeout: float = 0.0, **environ: str) -> Errand:
        """An errand of today's configuration."""
        launch = read_launch(self.environ | environ, None)
        self.waits: list[float] = []
        return Errand(launch, SystemClock(), self.waits.append, timeout, logging.getLogger("otel_logger"))

    def sync(self, folder: Path, timeout: float = 0.0, **environ: str) -> Synced:
        """Send what a folder holds."""
        writer = WriterFile.read(folder)
        assert writer is not None
        return self.errand(timeout, **environ).run(folder, writer)


def journal_waits(log: OTelLogger) -> int:
    """How many log records are in memory alone."""
    from otel_logger_exporters.signals import Signal

    assert log._session is not None
    journal = log._session.writer.outbox.journal(Signal.LOGS)
    return 0 if journal is None else journal.waiting_items


@pytest.fixture
def case(tmp_path: Path) -> _Case:
    """A folder in which nobody has lived yet."""
    return _Case(tmp_path)


def blobs(folder: Path) -> list[dict[str, Any]]:
    """The records of blobs of a writer or run."""
    return list(read_run(folder).blobs)


def staged(folder: Path) -> list[Consignment]:
    """What waits in a writer's folder."""
    return [consignment for _, consignment in consignments_in(folder / "staged")]


def test_what_a_dead_writer_left_is_stored_and_recorded_once(case: _Case) -> None:
    """As the dead writer's own, under the identity that its manifest fixed; a second sync finds nothing."""
    folder = case.die({"a.pt": b"weights", "empty": b""}, table=True)
    waiting = staged(folder)
    result = case.sync(folder)

    assert ({"blobs": 3}, 0, None) == (dict(result.sent), result.left_bytes, result.reason)
    found = blobs(folder)
    assert ["a.pt", "empty", "t"] == sorted(row["name"] for row in found)
    assert {"stored"} == {row["outcome"] for row in found}
    events = [row for row in read_run(folder).events if "training.blob.outcome" in row["attributes"]]
    assert {one.uid: one.time_ns for one in waiting} == {
        row["attributes"]["log.record.uid"]: row["time"] for row in events
    }
    assert {("r", 1)} == {
        (row["attributes"]["training.run.id"], row["attributes"]["training.run.attempt"]) for row in events
    }
    assert b"weights" == (folder.parent / "blobs/files/a.pt").read_bytes()
    assert b"" == (folder.parent / "blobs/files/empty").read_bytes()
    assert not (folder / "staged").exists()

    again = case.sync(folder)
    assert ({}, None, 3) == (dict(again.sent), again.reason, len(blobs(folder)))


def test_an_empty_file_waits_too(case: _Case) -> None:
    """It has no bytes, and has to be stored all the same: by the next attempt, without being asked."""
    folder = case.die({"empty": b""})
    assert bytes_staged(folder) > 0
    with OTelLogger(run_id="r", environ=case.environ) as log:
        log.log_metrics({"loss": 1.0})

    assert (["empty"], b"") == (
        [row["name"] for row in blobs(folder.parent)],
        (folder.parent / "blobs/files/empty").read_bytes(),
    )


@pytest.mark.parametrize("died", ["before it was stored", "before it was recorded", "before it was deleted"])
def test_an_adopter_may_die_anywhere(case: _Case, died: str) -> None:
    """The next one ends what it has begun: stored, and recorded once, with its digest."""
    folder = case.die({"a.pt": b"weights"})
    ((manifest, consignment),) = consignments_in(folder / "staged")
    if died == "before it was recorded":
        store = FileBlobStore(blobs_folder(folder))
        Carrier(store, "r", 1, is_late=True).deliver(manifest, consignment, lambda: 0)
    elif died == "before it was deleted":
        kept = manifest.read_bytes()
        assert case.sync(folder).reason is None
        manifest.parent.mkdir(mode=0o700)
        manifest.write_bytes(kept)
    assert case.sync(folder).reason is None

    (row,) = blobs(folder)
    assert ("a.pt", "stored", 7) == (row["name"], row["outcome"], row["size"])
    assert row["digest"].startswith("sha256:")
    assert b"weights" == (folder.parent / "blobs/files/a.pt").read_bytes()


class _Flaky(FileBlobStore):
    """A store that is down for the first so many times."""

    downs = 0
    error: type[OSError] = BlobUnavailableError

    def put_file(self, *arguments: Any, **keywords: Any) -> str:
        if _Flaky.downs:
            _Flaky.downs -= 1
            msg = "the store is down"
            raise _Flaky.error(5, msg)
        return super().put_file(*arguments, **keywords)


@pytest.mark.parametrize("kind", [BlobUnavailableError, BlobForbiddenError])
def test_a_sync_tries_again_within_its_time(case: _Case, monkeypatch: pytest.MonkeyPatch, kind: type[OSError]) -> None:
    """Until the store takes what waits; what it has not taken by then stays, and is said."""
    monkeypatch.setattr(leftovers, "FileBlobStore", _Flaky)
    monkeypatch.setattr(_Flaky, "error", kind)
    monkeypatch.setattr(_Flaky, "downs", 10**6)
    folder = case.die({"a": b"1", "b": b"2"})
    result = case.sync(folder)
    assert result.reason == "the blob store does not take what waits: [Errno 5] the store is down"
    assert (2, 60.0, 2, []) == (result.left_bytes, result.retry_in, len(staged(folder)), blobs(folder))
    monkeypatch.setattr(_Flaky, "downs", 2)
    result = case.sync(folder, timeout=100.0)
    assert ({"blobs": 2}, None, 2) == (dict(result.sent), result.reason, len(case.waits))
    assert ["a", "b"] == sorted(row["name"] for row in blobs(folder))


def test_blobs_are_stored_though_the_endpoint_is_down(case: _Case) -> None:
    """They come before their records: who reads of one finds it."""
    folder = case.die({"a": b"1"})
    result = case.sync(folder, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")

    assert (1, b"1") == (result.sent["blobs"], (folder.parent / "blobs/files/a").read_bytes())
    assert result.reason is not None


def test_a_writer_that_never_knew_its_run_is_one_of_its_own(case: _Case) -> None:
    """Its files are stored beside it, where a logger that knows of no run finds them, before and after."""
    folder = case.die({"a.pt": b"weights"}, settled=False)
    other = case.die({"a.pt": b"of another"}, settled=False)
    target = case.root / "back"

    def read() -> bytes:
        reader = OTelLogger(environ=case.environ)
        reader.download_file("a.pt", str(target), overwrite=True, progress_bar=False)
        reader.close()
        return target.read_bytes()

    assert b"of another" == read()
    for one in (folder, other):
        assert case.sync(one).reason is None
    assert b"of another" == read()
    assert [b"weights", b"of another"] == [(one / "blobs/files/a.pt").read_bytes() for one in (folder, other)]
    assert ["a.pt"] == [row["name"] for row in blobs(folder)]


def test_a_parcel_that_is_not_ours_is_left_and_the_others_are_stored(case: _Case) -> None:
    """A manifest has nobody's file sent out."""
    folder = case.die({"a": b"1", "b": b"2"})
    (case.root / "secret").write_bytes(b"s")
    parcel = folder / "staged" / staged(folder)[0].parcels[0].path
    parcel.unlink()
    parcel.symlink_to(case.root / "secret")
    result = case.sync(folder)

    assert result.reason == f"'a' cannot be stored: {str(parcel)!r} is not private to this user"
    assert (["a"], ["b"]) == ([one.name for one in staged(folder)], [row["name"] for row in blobs(folder)])
    assert not (folder.parent / "blobs/files/a").exists()
    assert (case.root / "secret").exists()


def test_a_manifest_that_cannot_be_read_is_told(case: _Case) -> None:
    """Of a later version perhaps: it stays with what it names, and what is beside it is stored."""
    folder = case.die({"a": b"1", "b": b"2"})
    path = folder / "staged/00000001.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"version": 2}))
    result = case.sync(folder)

    assert result.reason == f"1 manifests cannot be read, such as {path}"
    assert (["00000001-0", "00000001.json"], ["b"]) == (
        sorted(os.listdir(path.parent)),
        [row["name"] for row in blobs(folder)],
    )


def test_the_next_attempt_tells_of_a_manifest_that_it_cannot_read(
    case: _Case, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of its writer is told all the same."""
    folder = case.die({"a": b"1"})
    (folder / "staged/00000001.json").write_text("{}")
    with OTelLogger(run_id="r", environ=case.environ) as log:
        log.log_metrics({"loss": 1.0})

    assert f"Not all that the attempt in {folder} has left is taken: 1 manifests cannot be read" in caplog.text
    assert "ended is not told" not in caplog.text


def test_what_no_store_takes_is_told_and_stays_on_disk(case: _Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not keep what comes after it, and is not tried again."""

    class Refusing(FileBlobStore):
        def put_file(self, name: str, *arguments: Any, **keywords: Any) -> str:
            if name == "a":
                msg = "Bad request"
                raise OSError(22, msg)
            return super().put_file(name, *arguments, **keywords)

        def put_conflict(self, *arguments: Any, **keywords: Any) -> str:
            msg = "Bad request"
            raise OSError(22, msg)

    monkeypatch.setattr(leftovers, "FileBlobStore", Refusing)
    folder = case.die({"a": b"1", "b": b"2"})
    result = case.sync(folder)

    assert result.reason == "1 blobs could not be stored, their records say why"
    assert {("a", "failed"), ("b", "stored")} == {(row["name"], row["outcome"]) for row in blobs(folder)}
    assert ["00000001-0", "00000001.failed"] == sorted(os.listdir(folder / "staged"))
    assert (None, 2) == (case.sync(folder).reason, len(blobs(folder)))


def test_what_another_run_of_the_store_has_is_not_replaced(case: _Case) -> None:
    """Its bytes are kept beside it, and a record says so."""
    store = (case.root / "store").as_uri()
    with OTelLogger(run_id="other", environ=case.environ | {"OTEL_LOGGER_BLOB_STORE": store}) as log:
        (case.root / "source").write_bytes(b"theirs")
        log.upload_file(None, "a", case.root / "source")
    folder = case.die({"a": b"ours"})
    result = case.sync(folder, OTEL_LOGGER_BLOB_STORE=store)

    assert result.reason is not None
    assert b"theirs" == (case.root / "store/files/a").read_bytes()
    ((row),) = blobs(folder)
    assert ("conflict", b"ours") == (row["outcome"], Path(row["uri"].removeprefix("file://")).read_bytes())


def test_a_call_that_never_returned_leaves_nothing(case: _Case) -> None:
    """Half of a private copy is nobody's."""
    folder = case.die({"a": b"1"})
    (folder / "staged/00000002-0").write_bytes(b"half")
    assert case.sync(folder).reason is None
    assert not (folder / "staged").exists()


def test_the_next_attempt_goes_on_with_what_the_last_one_left(case: _Case) -> None:
    """It reads the newest, uploads the same names, and in the end all is stored, the later one under the name."""
    folder = case.die({"a.pt": b"first", "once.pt": b"once"})
    source, target = case.root / "source", case.root / "back"
    with OTelLogger(run_id="r", environ=case.environ) as log:
        log.download_file("a.pt", str(target), progress_bar=False)
        assert b"first" == target.read_bytes()
        source.write_bytes(b"second")
        log.upload_file(None, "a.pt", source)
        log.log_metrics({"loss": 1.0})

    files = folder.parent / "blobs/files"
    assert (b"second", b"once") == ((files / "a.pt").read_bytes(), (files / "once.pt").read_bytes())
    rows = [(row["name"], row["outcome"]) for row in blobs(folder.parent)]
    assert [("a.pt", "stored"), ("a.pt", "stored"), ("once.pt", "stored")] == sorted(
        (name, "stored" if outcome == "superseded" else outcome) for name, outcome in rows
    )
    assert [] == list(folder.parent.glob("*/staged"))


def test_the_command_stores_where_there_is_no_endpoint(case: _Case, capsys: pytest.CaptureFixture[str]) -> None:
    """A local run has nothing to send, and yet something to store."""
    folder = case.die({"a": b"1"})
    assert run_sync(case.environ, None, timeout=0.0, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert {"blobs": 1} == json.loads(line)["sent"]
    assert b"1" == (folder.parent / "blobs/files/a").read_bytes()


def test_the_command_prints_any_id(case: _Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets are no markup."""
    case.die({"a": b"1"}, settled=False, OTEL_LOGGER_RUN_ID="[/x]")
    assert run_sync(case.environ, None, timeout=0.0, as_json=False)
    assert "[/x]" in capsys.readouterr().out


def test_the_memory_of_a_process_that_is_gone_is_no_store(case: _Case) -> None:
    """What it was to hold would be gone with who stores it now: it waits for a store that lasts."""
    folder = case.die({"a": b"1"}, OTEL_LOGGER_BLOB_STORE="memory://m")
    result = case.sync(folder)
    assert ({}, 1, ["a"]) == (dict(result.sent), result.left_bytes, [one.name for one in staged(folder)])
    assert "memory://m" in str(result.reason)
    with pytest.raises(ConfigurationError, match="OTEL_LOGGER_BLOB_STORE='memory://m' would be gone"):
        run_sync(case.environ | {"OTEL_LOGGER_BLOB_STORE": "memory://m"}, None, timeout=0.0, as_json=True)
    store = case.root / "store"
    result = case.sync(folder, OTEL_LOGGER_BLOB_STORE=store.as_uri())
    assert ({"blobs": 1}, b"1") == (dict(result.sent), (store / "files/a").read_bytes())


def test_leftovers_of_no_store_are_kept_for_it(case: _Case) -> None:
    """One whose URL is none any more keeps its own, and is said."""
    folder = case.die({"a": b"1"})
    path = folder / "staged/00000001.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"store": "ftp://x"}))
    writer = WriterFile.read(folder)
    assert writer is not None
    left = Leftovers(folder, writer, case.errand().launch, SystemClock())
    assert not left.store()
    assert left.reason is not None
    assert "ftp://x" in left.reason
    shutil.rmtree(folder / "staged")
    assert left.store()


def test_a_record_that_is_not_on_disk_yet_is_not_forgotten(case: _Case) -> None:
    """Where records wait in memory for a moment, what they tell of waits as long, and so does who dies meanwhile."""
    (case.root / "source").write_bytes(b"weights")

    def act() -> None:
        log = OTelLogger(run_id="r", environ=case.environ | {"OTEL_LOGGER_DURABILITY": "interval"})
        assert log._session is not None
        # Nothing is written from here on, as if the disk were slow.
        log._session.writer.outbox._upkeep.stop(10)
        log.upload_file(None, "a", case.root / "source")
        assert 0 == log._session.deposits.courier.drain(10)
        os.kill(os.getpid(), signal.SIGKILL)

    assert -signal.SIGKILL == in_child(act)
    ((folder, _),) = [(path.parent, path) for path in (case.root / "logs").rglob("writer.json")]
    assert b"weights" == (folder.parent / "blobs/files/a").read_bytes()
    assert case.sync(folder).reason is None
    assert [("a", "stored")] == [(row["name"], row["outcome"]) for row in blobs(folder)]
    assert not (folder / "staged").exists()
