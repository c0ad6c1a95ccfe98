"""Any run has a folder of its own below the folder of runs, and damaged or foreign folders do no harm."""

import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_logger.folders import STARTING, WriterFile, all_writers, create_runs_folder, run_folder, writers_of
from otel_logger.writer_folder import WriterFolder
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.owner import Owner

HOSTILE = ["", ".", "..", "...", "/", "a/b", "/etc/passwd", "../../x", ".starting", "a\0b", "\ud800", "x" * 10_000]

any_text = st.text(st.characters())


@given(any_text)
@example("..")
def test_any_run_lies_strictly_inside(run_id):
    """A run's folder is one level below the folder of runs, visible, and of a name that file systems take."""
    directory = Path("/runs")
    folder = run_folder(directory, run_id)
    assert directory == folder.parent
    assert folder.name not in {"", ".", "..", STARTING}
    assert not folder.name.startswith(".")
    assert folder.name.isascii()
    assert folder.name.isprintable()
    assert len(folder.name) <= 89


@pytest.mark.parametrize("run_id", HOSTILE)
def test_the_worst_names_can_be_created(tmp_path, run_id):
    """`..`, blank, a path, a NUL and 10,000 characters are folders that exist."""
    folder = run_folder(tmp_path, run_id)
    folder.mkdir()
    assert [folder] == list(tmp_path.iterdir())


@given(any_text, any_text)
@example("a/b", "a_b")
@example("x" * 100 + "a", "x" * 100 + "b")
@example("x" * 80 + "\ud800", "x" * 80 + "\\ud800")
@example("", "run")
@example(".a", "a")
@example("Run", "run")
def test_distinct_runs_have_distinct_folders(one, other):
    """Two run ids share a folder only if they are one, on file systems that ignore case too."""
    same = run_folder(Path(), one).name.lower() == run_folder(Path(), other).name.lower()
    assert (one == other) == same


def test_a_name_that_can_be_read_stays_readable():
    """The folder of a plain run id begins with it."""
    assert run_folder(Path("d"), "llama-7b.v2_x").name.startswith("llama-7b.v2_x-")
    assert run_folder(Path("d"), "é a/b").name.startswith("_a_b-")


def test_the_folder_of_runs_is_private_and_kept_out_of_version_control(tmp_path):
    """It is created for its owner alone with a .gitignore; one that exists is left as it is."""
    create_runs_folder(tmp_path / "a" / "logs")
    assert 0o700 == (tmp_path / "a" / "logs").stat().st_mode & 0o777
    assert "*\n" == (tmp_path / "a" / "logs" / ".gitignore").read_text()
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    create_runs_folder(own)
    assert [] == list(own.iterdir())


def test_a_writer_file_reads_back(tmp_path):
    """What a writer says of itself is what is read, a lone surrogate too."""
    full = WriterFile("abcdef", 5, "r\ud800", "n", 2, 3, "p", 9, "finished")
    full.write(tmp_path)
    assert full == WriterFile.read(tmp_path)
    WriterFile("abcdef", 5).write(tmp_path)
    assert WriterFile("abcdef", 5) == WriterFile.read(tmp_path)
    assert ["writer.json"] == os.listdir(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'"writer"',
        b'{"writer": "a"}',
        b'{"writer": "a", "started_ns": "5"}',
        b'{"writer": "a", "started_ns": null}',
        b'{"writer": "a", "started_ns": 5, "attempt": "1"}',
        b'{"writer": "a", "started_ns": 5, "rank": true}',
        b'{"writer": "a", "started_ns": 5, "ended_ns": [1]}',
        b'{"writer": "a", "started_ns": 5, "run_id": 7}',
        b'{"writer": "a", "started_ns": 5, "run_name": ["n"]}',
        b'{"writer": "a", "started_ns": 5, "attempt": 100000000000000000000}',
        b'{"writer": "a", "started_ns": 5, "attempt": -1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_writer_file_is_no_writer(tmp_path, content):
    """A file that is torn, of another form or of wrong types is not believed, and nothing fails by it."""
    bad, good = tmp_path / "run" / "bad", tmp_path / "run" / "good"
    bad.mkdir(parents=True)
    good.mkdir()
    (bad / "writer.json").write_bytes(content)
    writer = WriterFile("abcdef", 5)
    writer.write(good)
    assert WriterFile.read(bad) is None
    assert [(good, writer)] == writers_of(tmp_path / "run")


def test_fields_of_later_versions_are_ignored(tmp_path):
    """A writer file with more in it is read for what is known of it."""
    (tmp_path / "writer.json").write_text(json.dumps({"writer": "a", "started_ns": 5, "colour": "red"}))
    assert WriterFile("a", 5) == WriterFile.read(tmp_path)


def test_writers_come_by_age(tmp_path):
    """The oldest writer of a run comes first, whatever its folder's name; stray files are passed over."""
    for name, started in (("0-1-a", 30), ("0-2-b", 10), ("1-1-c", 20)):
        (tmp_path / name).mkdir()
        WriterFile(name[-1], started).write(tmp_path / name)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "note.txt").write_text("x")
    assert ["b", "c", "a"] == [writer.writer for _, writer in writers_of(tmp_path)]


def test_no_folder_has_no_writers(tmp_path):
    """A folder that is absent, or is a file, has none."""
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "absent", tmp_path / "file"):
        assert [] == writers_of(folder)
        assert [] == list(all_writers(folder))


def test_all_writers_with_whether_they_live(tmp_path):
    """Every run's writers are found, those still starting too, and the lock tells who lives."""
    for run, name in (("r1", "0-1-a"), ("r2", "0-1-b"), (STARTING, "c")):
        (tmp_path / run / name).mkdir(parents=True)
        WriterFile(name[-1], 5).write(tmp_path / run / name)
    (tmp_path / ".gitignore").write_text("*\n")
    owner = Owner(tmp_path / "r2" / "0-1-b")
    assert {("a", False), ("b", True), ("c", False)} == {(w.writer, alive) for _, w, alive in all_writers(tmp_path)}
    owner.release()
    assert not any(alive for _, _, alive in all_writers(tmp_path))


def test_a_writer_that_was_taken_for_dead_is_told(tmp_path, caplog):
    """A process that was suspended for over a minute goes on, and says what may become of what it records."""
    ledger = Ledger(SystemClock(), logging.getLogger("otel_logger"))
    folder = WriterFolder(tmp_path, "abcdef", 5, 0, (), ledger)
    folder.renew()
    assert "" == caplog.text
    lock = folder.path / "owner.lock"
    lock.write_text(lock.read_text().replace('"ended": false', '"ended": true'))
    folder.renew()
    assert "may be sent twice or not at all" in caplog.text
    assert str(folder.path) in caplog.text
    folder.release(unused=True)


def test_a_run_that_cannot_be_listed_does_no_harm(tmp_path, monkeypatch):
    """A run that belongs to another user is passed over: the folder of runs may be shared."""
    for run in ("closed", "open"):
        (tmp_path / run / "w").mkdir(parents=True)
        WriterFile(run, 5).write(tmp_path / run / "w")
    listed = Path.iterdir

    def iterdir(self):
        # Not chmod: tests may run as root, whom it does not stop.
        if self.name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert ["open"] == [writer.writer for _, writer, _ in all_writers(tmp_path)]


def test_a_logger_begins_where_the_run_s_folder_is_another_user_s(tmp_path, monkeypatch):
    """Of its writers nothing is known then, nor of any where the folder of runs cannot be listed."""
    folder = WriterFolder(tmp_path, "abcdef", 5, 0, (), Ledger(SystemClock(), logging.getLogger("otel_logger")))
    run_folder(tmp_path, "run").mkdir()

    def iterdir(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert ((), ()) == (folder.known_of("run"), folder.known())
    monkeypatch.undo()
    folder.release(unused=True)
