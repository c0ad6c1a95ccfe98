"""Uploads of a run that dies and goes on: its newest checkpoint is found, and no name of its own is refused to it."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from otel_logger import OTelLogger, read_run
from otel_logger.destination import Destination
from otel_logger.staging import STAGED
from otel_logger_exporters.blob_files import locked, sha256_file, write_private
from otel_logger_exporters.blob_meta import BlobMeta, encode_sidecar
from otel_logger_exporters.consignments import consignments_in
from otel_logger_exporters.file_store import FileBlobStore

LATEST = "checkpoints/latest.symlink"


class InTrainer(Destination):
    """A logger that a trainer has: which run it is of may be told by a checkpoint."""

    _has_trainer = True


def test_a_death_between_sidecar_and_file_does_not_keep_what_was_replaced(
    make: Callable[..., OTelLogger], tmp_path: Path
) -> None:
    """Where both files are of one size, as are those that name a checkpoint: the new one is found, and gets stored."""
    store, source = FileBlobStore(tmp_path / "store"), tmp_path / "source"
    environ = {"OTEL_LOGGER_BLOB_STORE": store.uri}
    reader = make(run_name=None, **environ)

    def found() -> str:
        reader.download_file(LATEST, str(tmp_path / "found"), overwrite=True, progress_bar=False)
        return (tmp_path / "found").read_text()

    with make(run_id="r", **environ) as log:
        source.write_text("ba2.pt")
        log.upload_file(None, LATEST, source, overwrite=True)
        assert log.flush()
        old = store.meta(LATEST)
        assert old is not None
        with locked(store.root / ".lock"):
            source.write_text("ba4.pt")
            log.upload_file(None, LATEST, source, overwrite=True)
            ((_, waiting),) = consignments_in(next((tmp_path / "logs").glob(f"*/*/{STAGED}")))
            new = BlobMeta("r", 1, sha256_file(source), 6, "text/plain", LATEST, waiting.uid, waiting.time_ns)
            # As far as a process comes that dies then.
            write_private(store.root / "meta" / f"{LATEST}.json", encode_sidecar(new, [old]))
            assert "ba4.pt" == found()
        assert log.flush()

    assert "ba4.pt" == (store.root / "files" / LATEST).read_text() == found()


def test_what_is_stored_after_the_end_of_its_logger_is_told_by_the_next(
    make: Callable[..., OTelLogger], tmp_path: Path
) -> None:
    """A transfer that `close` could not wait for goes on; its record would be lost, so it waits with its manifest."""
    store, source = tmp_path / "store", tmp_path / "source"
    environ = {"OTEL_LOGGER_BLOB_STORE": store.as_uri(), "OTEL_LOGGER_SHUTDOWN_TIMEOUT": "100"}
    source.write_text("content")
    store.mkdir()
    others = set(threading.enumerate())
    with locked(store / ".lock"):
        log = make(run_id="r", **environ)
        log.upload_file(None, "a", source)
        log.close()
    for thread in set(threading.enumerate()) - others:
        thread.join(10)

    assert ("content", 1, {}) == ((store / "files/a").read_text(), log.stats().blobs.waiting, log.stats().dropped)
    make(run_id="r", **environ | {"OTEL_LOGGER_SHUTDOWN_TIMEOUT": "10000"}).close()
    assert log.run_dir is not None
    assert [("a", "stored", 1)] == [
        (row["name"], row["outcome"], row["attempt"]) for row in read_run(log.run_dir).blobs
    ]
    assert [] == list(log.run_dir.glob(f"*/{STAGED}"))


def test_what_names_a_checkpoint_is_stored_after_it(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """However long that takes, so that a machine which is lost meanwhile leaves no name of what is not there."""
    files, source = tmp_path / "store" / "files", tmp_path / "source"
    source.write_text("content")
    log = make(run_id="r", OTEL_LOGGER_BLOB_STORE=(tmp_path / "store").as_uri())
    assert log._session is not None
    with log._session.deposits.courier.exclusive("checkpoints/ba2.pt"):
        for name in ("checkpoints/ba2.pt", LATEST, "other"):
            log.upload_file(None, name, source)
        deadline = time.monotonic() + 10
        while not (files / "other").exists():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert not (files / "checkpoints").exists()
    log.close()

    assert {"ba2.pt", "latest.symlink"} == {path.name for path in (files / "checkpoints").iterdir()}


def test_a_rank_that_comes_late_is_no_later_attempt(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """What another rank of the same attempt had stored before this one was there is not replaced, and stays told."""
    source = tmp_path / "source"
    launch = {"TORCHELASTIC_RUN_ID": "job", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
    launch["OTEL_LOGGER_BLOB_STORE"] = (tmp_path / "store").as_uri()
    first = make(RANK="0", LOCAL_RANK="0", **launch)
    assert first._session is not None
    source.write_text("of rank 0")
    first.upload_file(None, "stored", source)
    assert first.flush()
    with ExitStack() as held:
        held.enter_context(first._session.deposits.courier.exclusive("waits"))
        first.upload_file(None, "waits", source)
        second = make(RANK="1", LOCAL_RANK="1", **launch)
        assert second._session is not None
        source.write_text("of rank 1")
        with pytest.raises(FileExistsError, match="attempt 1"):
            second.upload_file(None, "stored", source)
        with second._session.deposits.courier.exclusive("waits"):
            second.upload_file(None, "waits", source)
            held.close()
            first.close()
        second.close()

    stored = [(tmp_path / "store/files" / name).read_text() for name in ("stored", "waits")]
    assert (["of rank 0"] * 2, {"conflict": 1}) == (stored, second.stats().dropped)


def test_an_attempt_on_a_third_machine_may_replace_what_the_second_stored(tmp_path: Path) -> None:
    """Both went on from a checkpoint of the first attempt and so have one number; the later one is not refused."""
    source = tmp_path / "source"
    store = tmp_path / "store"
    for machine in ("second", "third"):
        source.write_text(machine)
        environ = {"OTEL_LOGGER_DIR": str(tmp_path / machine), "OTEL_LOGGER_BLOB_STORE": store.as_uri()}
        log = InTrainer(run_name="name", environ=environ)
        log.load_state_dict({"run_id": "name-1", "run_name": "name", "attempt": 1})
        log.log_metrics({"loss": 1.0})
        log.upload_file(None, "ba4.pt", source)
        log.close()
        assert (1, 0) == (log.stats().blobs.stored, log.stats().blobs.failed)

    assert "third" == (store / "files" / "ba4.pt").read_text()
