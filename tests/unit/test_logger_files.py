"""Images, tables and files through a logger, and the folders they lie in."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otel_logger import OTelLogger, read_run
from otel_logger import conventions as names


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
    noise = np.random.default_rng(1).integers(0, 256, (700, 700), dtype=np.uint8)
    with make(run_name=None, OTEL_LOGGER_STAGE_MAX_BYTES="1048576") as log:
        log.upload_file(None, "fits", source)
        log.upload_file(None, "does not \ud800", source)
        log.log_images([noise, noise], name="images")
        log.log_table(["a"], [[noise.tobytes()]], name="table")
        # What waits is not stored before the run is known.
        assert not log.flush()
        assert {"file": 1, "image": 2, "table": 1} == log.stats().dropped
        assert (700_000, 3) == (log.stats().blobs.bytes_waiting, log.stats().blobs.failed)

    assert log.run_dir is not None
    rows = {row["name"]: row["outcome"] for row in read_run(log.run_dir).blobs}
    assert {"fits": "stored", "does not \\ud800": "failed", "images": "failed", "table": "failed"} == rows


def test_records_of_many_masks_and_long_names_stay_within_what_loki_takes(make: Callable[..., OTelLogger]) -> None:
    """An image with over 32 masks has an index of all; no record has 64 KB of attributes."""
    masks = {f"{number:03} {'ü' * 300}": np.eye(4, dtype=np.uint8) for number in range(100)}
    with make() as log:
        log.log_images(np.zeros((4, 4)), name="few", masks=dict(list(masks.items())[:32]))
        log.log_images(np.zeros((4, 4)), name="many", masks=masks)
        log.log_table(["a"], [[1]], name="x" * 100_000)

    assert log.run_dir is not None
    records = [event["attributes"] for event in read_run(log.run_dir).events if names.NAME in event["attributes"]]
    told = {record[names.NAME][:4]: record for record in records}
    assert {"few", "many", "xxxx"} == told.keys()
    assert max(len(json.dumps(record, ensure_ascii=False).encode()) for record in records) < 60_000
    assert 32 == len(told["few"][names.MASK_URIS])
    many = told["many"]
    assert ("application/json", 0, 4) == (many[names.BLOB_MEDIA_TYPE], many[names.IMAGE_INDEX], many[names.IMAGE_WIDTH])
    index = json.loads(Path(many[names.BLOB_URI].removeprefix("file://")).read_text())
    assert 100 == len(index["images"][0]["masks"])


def test_a_download_shows_a_bar_on_a_terminal_alone(
    make: Callable[..., OTelLogger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the file's name as it is, brackets too, and its size; not where it was not asked for."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * 2000)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = []
    with make() as log:
        log.upload_file(None, "[/x].pt", source)
        for stream, wants in ((Terminal(), True), (Terminal(), False), (io.StringIO(), True)):
            with monkeypatch.context() as patch:
                patch.setattr("sys.stderr", stream)
                log.download_file("[/x].pt", str(tmp_path / "back"), overwrite=True, progress_bar=wants)
            shown.append("[/x].pt" in stream.getvalue() and "2.0 kB" in stream.getvalue())

    assert [True, False, False] == shown


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_links_for_browsers_are_encoded_once(make: Callable[..., OTelLogger], tmp_path: Path, kind: str) -> None:
    """Whatever the name: decoded, the link has the path in the store, in which a backslash is `%5C` already."""
    source = tmp_path / "source"
    source.write_text("content")
    store = (tmp_path / "store").as_uri() if kind == "file" else "memory://links"
    with make(OTEL_LOGGER_BLOB_STORE=store, OTEL_LOGGER_BLOB_URL="https://x/{name}") as log:
        log.upload_file(None, "a b/ü?#100%\\c.pt", source)

    assert log.run_dir is not None
    (row,) = (row for row in read_run(log.run_dir).events if row["name"] == "training.file")
    assert "https://x/files/a%20b/%C3%BC%3F%23100%25%255Cc.pt" == row["attributes"]["url.full"]
