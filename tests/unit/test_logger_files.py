"""Images, tables and files through a logger, and the folders they lie in."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otel_logger import OTelLogger, read_run


def test_images_tables_and_files_are_stored_and_linked(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """One record for each, whose blob exists with the size and digest that the record states."""
    import hashlib

    source = tmp_path / "checkpoint.pt"
    source.write_bytes(b"\x00" * 1000)
    with make() as log:
        log.log_images(np.arange(2 * 3 * 8 * 8).reshape(2, 3, 8, 8), name="digits", step=1, use_table=False)
        log.log_table(["a", "b"], [[1, "x"], [2, "y"]], name="mistakes", step=2)
        log.upload_file(None, "../up/ep0.pt", source)
        source.unlink()

    assert log.run_dir is not None
    blobs = list(read_run(log.run_dir).blobs)
    # Several are stored at a time.
    told = [("file", "../up/ep0.pt"), ("image", "digits"), ("image", "digits"), ("table", "mistakes")]
    assert told == sorted((blob["kind"], blob["name"]) for blob in blobs)
    for blob in blobs:
        path = Path(blob["uri"].removeprefix("file://"))
        assert log.run_dir.resolve() in path.resolve().parents
        data = path.read_bytes()
        assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (blob["size"], blob["digest"])


def test_upload_refuses_missing_files_and_taken_names(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """The two errors that the contract asks for, and no other."""
    source = tmp_path / "a.txt"
    source.write_text("one")
    with make() as log:
        with pytest.raises(FileNotFoundError, match="nowhere"):
            log.upload_file(None, "a.txt", tmp_path / "nowhere")
        log.upload_file(None, "a.txt", source)
        with pytest.raises(FileExistsError, match="overwrite=True"):
            log.upload_file(None, "a.txt", source)
        assert log.flush()
        with pytest.raises(FileExistsError, match="overwrite=True"):
            log.upload_file(None, "a.txt", source)
        source.write_text("two")
        log.upload_file(None, "a.txt", source, overwrite=True)
        log.download_file("a.txt", str(tmp_path / "back.txt"))
        with pytest.raises(FileExistsError, match=r"back\.txt"):
            log.download_file("a.txt", str(tmp_path / "back.txt"))
        with pytest.raises(FileNotFoundError, match="missing"):
            log.download_file("missing", str(tmp_path / "missing.txt"))

    assert "two" == (tmp_path / "back.txt").read_text()
    assert not (tmp_path / "missing.txt").exists()


def test_the_next_attempt_may_replace_what_the_last_one_stored(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """A resumed run writes its checkpoints again; another run of the store may not replace them."""
    source = tmp_path / "a.pt"
    source.write_text("first")
    store = (tmp_path / "store").as_uri()
    with make(run_id="r", OTEL_LOGGER_BLOB_STORE=store) as log:
        log.upload_file(None, "a.pt", source)
    source.write_text("second")
    with make(run_id="r", OTEL_LOGGER_BLOB_STORE=store) as log:
        log.upload_file(None, "a.pt", source)
    with make(run_id="other", OTEL_LOGGER_BLOB_STORE=store) as log, pytest.raises(FileExistsError):
        log.upload_file(None, "a.pt", source)

    assert "second" == (tmp_path / "store" / "files" / "a.pt").read_text()


def test_a_download_before_init_finds_the_newest_run_of_the_folder(
    make: Callable[..., OTelLogger], tmp_path: Path
) -> None:
    """A logger that is only there to load from has no run of its own: it looks through those of its folder."""
    source = tmp_path / "a.pt"
    for content in ("old", "new"):
        source.write_text(content)
        with make() as log:
            log.upload_file(None, "latest.pt", source)
    loader = make(run_name=None)
    loader.download_file("latest.pt", str(tmp_path / "loaded.pt"), progress_bar=False)

    assert "new" == (tmp_path / "loaded.pt").read_text()


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its working directory does not take its run along."""
    monkeypatch.chdir(tmp_path)
    log = OTelLogger(run_name=None, environ={"OTEL_LOGGER_DIR": "logs"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.log_metrics({"loss": 1.0})
    log.close()

    assert log.run_dir is not None
    assert tmp_path / "logs" == log.run_dir.parent


def test_folders_and_files_are_private(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """Telemetry may hold what is not for everyone: folders are 0700, files 0600."""
    with make() as log:
        log.log_metrics({"loss": 1.0})
        log.log_images(np.zeros((4, 4)))

    for path in (tmp_path / "logs").rglob("*"):
        forbidden = 0o077 if path.name not in (".gitignore", "writer.json") else 0
        assert 0 == path.stat().st_mode & forbidden, path


def test_storing_a_file_is_a_span_below_the_one_of_the_call(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """An upload goes on in the background; its span says what became of it, also when that is nothing good."""
    source = tmp_path / "a.pt"
    source.write_bytes(b"\x00" * 1000)
    with make() as log, log.span("good") as good:
        log.upload_file(None, "a.pt", source)
        assert log.flush()
    (tmp_path / "full" / "meta").mkdir(parents=True)
    (tmp_path / "full" / "files").write_text("in the way")
    with make(OTEL_LOGGER_BLOB_STORE=(tmp_path / "full").as_uri()) as bad:
        bad.upload_file(None, "b.pt", source, overwrite=True)

    assert log.run_dir is not None
    assert bad.run_dir is not None
    (stored,) = [span for span in read_run(log.run_dir).spans if span["name"] == "training.upload"]
    (failed,) = [span for span in read_run(bad.run_dir).spans if span["name"] == "training.upload"]
    assert {"training.name": "a.pt", "training.blob.size": 1000, "training.blob.outcome": "stored"} == stored[
        "attributes"
    ]
    assert (f"{good.get_span_context().span_id:016x}", None) == (stored["parent_span_id"], stored["error"])
    assert {"training.name": "b.pt", "training.blob.size": 1000, "training.blob.outcome": "failed"} == failed[
        "attributes"
    ]
    assert ["exception"] == [event["name"] for event in failed["events"]]
    assert failed["error"] is not None


def test_a_conflict_that_is_found_late_is_told_to_the_next_upload(
    make: Callable[..., OTelLogger], tmp_path: Path
) -> None:
    """Before the run is known it cannot be told whether a name is its own; nothing is lost, and nothing replaced."""
    store, source = tmp_path / "store", tmp_path / "a"
    source.write_text("theirs")
    with make(run_id="other", OTEL_LOGGER_BLOB_STORE=store.as_uri()) as log:
        log.upload_file(None, "a", source)
    source.write_text("ours")
    with make(run_name=None, OTEL_LOGGER_BLOB_STORE=store.as_uri()) as log:
        log.upload_file(None, "a", source)
        log.download_file("a", str(tmp_path / "back"))
        log.log_metrics({"loss": 1.0})
        assert log.flush()
        with pytest.raises(FileExistsError, match="could not be stored before"):
            log.upload_file(None, "a", source)

    assert ("ours", "theirs") == ((tmp_path / "back").read_text(), (store / "files/a").read_text())
    assert log.run_dir is not None
    (row,) = read_run(log.run_dir).blobs
    assert ("conflict", "ours") == (row["outcome"], Path(row["uri"].removeprefix("file://")).read_text())
    assert ({"conflict": 1}, 1, 0) == (log.stats().dropped, log.stats().blobs.failed, log.stats().blobs.waiting)


def test_what_no_store_takes_stays_on_disk_and_lets_go_of_its_name(
    make: Callable[..., OTelLogger], tmp_path: Path
) -> None:
    """Told by a record that says where; a file's name can be tried again."""
    store, source = tmp_path / "store", tmp_path / "a"
    store.mkdir()
    for name in ("files", "sha256", "conflicts"):
        (store / name).write_text("in the way")
    source.write_text("content")
    with make(OTEL_LOGGER_BLOB_STORE=store.as_uri()) as log:
        log.log_table(["a"], [[1]], name="t")
        log.upload_file(None, "a", source)
        assert log.flush()
        log.upload_file(None, "a", source)

    assert log.run_dir is not None
    rows = list(read_run(log.run_dir).blobs)
    assert [("a", "failed"), ("a", "failed"), ("t", "failed")] == sorted((row["name"], row["outcome"]) for row in rows)
    left = sorted(path.name for path in log.run_dir.glob("*/staged/*"))
    assert 3 == len([name for name in left if name.endswith(".failed")])
    assert 3 == len([name for name in left if name.endswith("-0")])
    assert (3, 0) == (log.stats().blobs.failed, log.stats().blobs.waiting)


def test_what_is_over_the_bound_on_what_waits_is_told(make: Callable[..., OTelLogger], tmp_path: Path) -> None:
    """The call does not raise; a record says what is lost and which setting bounds it, and what fits is stored."""
    source = tmp_path / "a"
    source.write_bytes(b"x" * 700_000)
    with make(run_name=None, OTEL_LOGGER_STAGE_MAX_BYTES="1048576") as log:
        log.upload_file(None, "fits", source)
        log.upload_file(None, "does not", source)
        assert {"file": 1} == log.stats().dropped
        assert 700_000 == log.stats().blobs.bytes_waiting

    assert log.run_dir is not None
    rows = {row["name"]: row for row in read_run(log.run_dir).blobs}
    assert ("stored", "failed") == (rows["fits"]["outcome"], rows["does not"]["outcome"])
