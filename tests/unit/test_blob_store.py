"""The blob store in a local folder: what is put comes back, or is said to be wrong."""

import hashlib
import json
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_logger_exporters.blob_files import locked, sha256_file
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobMeta
from otel_logger_exporters.file_store import FileBlobStore


@pytest.fixture
def store(tmp_path: Path) -> FileBlobStore:
    """A store in a folder that does not exist yet."""
    return FileBlobStore(tmp_path / "store")


def meta_of(data: bytes, name: str = "x.pt", attempt: int = 1, upload: str = "") -> BlobMeta:
    """What truly describes some bytes."""
    digest = hashlib.sha256(data).hexdigest()
    return BlobMeta("run-1", attempt, digest, len(data), "application/octet-stream", name, upload)


def never(_: BlobMeta) -> bool:
    """Refuses to replace anything."""
    return False


def put(
    store: FileBlobStore,
    name: str,
    data: bytes,
    may_replace: Callable[[BlobMeta], bool] | None = None,
    move: bool = False,
    **fields: int | str,
) -> str:
    """Put bytes by way of the file `source` beside the store."""
    source = store.root.parent / "source"
    source.write_bytes(data)
    return store.put_file(name, source, meta_of(data, name, **fields), may_replace=may_replace, move=move)


def put_object(store: FileBlobStore, data: bytes, meta: BlobMeta, extension: str = "png") -> Path:
    """Put bytes as an object, by way of a file, and return its path."""
    source = store.root.parent / "source"
    source.write_bytes(data)
    return Path(store.put_object(source, meta, extension).removeprefix("file://"))


def tree(folder: Path) -> set[str]:
    """All files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_file_comes_back_with_its_sidecar(store: FileBlobStore, tmp_path: Path) -> None:
    """What was put under a name is copied out byte for byte, and its sidecar says what was given."""
    uri = put(store, "run/x.pt", b"weights")
    told: list[int] = []
    got = store.copy_to("run/x.pt", tmp_path / "new" / "out", told.append)
    assert f"{store.uri}/files/run/x.pt" == uri
    assert b"weights" == (tmp_path / "new" / "out").read_bytes()
    assert [7] == told
    assert meta_of(b"weights", "run/x.pt") == got == store.meta("run/x.pt")


def test_the_layout_is_as_documented(store: FileBlobStore) -> None:
    """A file, its sidecar in JSON, and nothing temporary; all of it private."""
    put(store, "../up/x.pt", b"w")
    assert {"files/__up__/up/x.pt", "meta/__up__/up/x.pt.json", ".lock"} == tree(store.root)
    sidecar = json.loads((store.root / "meta/__up__/up/x.pt.json").read_text())
    assert {
        "run_id": "run-1",
        "attempt": 1,
        "sha256": hashlib.sha256(b"w").hexdigest(),
        "size": 1,
        "media_type": "application/octet-stream",
        "name": "../up/x.pt",
        "upload": "",
        "time_ns": 0,
        "previous": [],
    } == sidecar
    for path in [store.root, *store.root.rglob("*")]:
        assert (0o700 if path.is_dir() else 0o600) == stat.S_IMODE(path.stat().st_mode)


def test_a_name_with_a_lone_surrogate_survives(store: FileBlobStore, tmp_path: Path) -> None:
    """A name that is no UTF-8 is stored, found and told as it was."""
    put(store, "a\udc80b", b"w")
    assert "a\udc80b" == store.copy_to("a\udc80b", tmp_path / "out").name


def test_overwriting_is_the_default_and_can_be_refused(store: FileBlobStore, tmp_path: Path) -> None:
    """The last put wins; what may not be replaced stays, and FileExistsError names it."""
    put(store, "x", b"1")
    put(store, "x", b"22")
    with pytest.raises(FileExistsError, match=r"'x' is already in the blob store: file://.*overwrite=True"):
        put(store, "x", b"333", never)
    store.copy_to("x", tmp_path / "out")
    assert b"22" == (tmp_path / "out").read_bytes()


def test_moving_takes_the_source_away_and_copying_leaves_it(store: FileBlobStore, tmp_path: Path) -> None:
    """A moved file is no longer where it was; a copied one is."""
    put(store, "copied", b"1")
    assert (tmp_path / "source").exists()
    put(store, "moved", b"1", move=True)
    assert not (tmp_path / "source").exists()
    assert 0o600 == stat.S_IMODE((store.root / "files/moved").stat().st_mode)


def test_a_refused_move_leaves_the_source(store: FileBlobStore, tmp_path: Path) -> None:
    """A file that may not replace another is still where it was, with its bytes."""
    put(store, "x", b"1")
    with pytest.raises(FileExistsError):
        put(store, "x", b"22", never, move=True)
    assert b"22" == (tmp_path / "source").read_bytes()


def test_moving_between_file_systems_copies_and_removes(store: FileBlobStore, tmp_path: Path) -> None:
    """A file that cannot be renamed into the store is copied, checked, and then removed."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        source = Path(folder) / "source"
        source.write_bytes(b"WEIGHTS")
        with pytest.raises(BlobCorruptError):
            store.put_file("x", source, meta_of(b"weights"), move=True)
        assert source.exists()
        store.put_file("x", source, meta_of(b"WEIGHTS"), move=True)
        assert not source.exists()
    store.copy_to("x", tmp_path / "out")
    assert {"files/x", "meta/x.json", ".lock"} == tree(store.root)


@pytest.mark.parametrize("move", [False, True])
def test_a_symlink_is_followed(store: FileBlobStore, tmp_path: Path, move: bool) -> None:
    """The store holds the file that a link leads to, not the link; moving removes the link alone."""
    (tmp_path / "real").write_bytes(b"w")
    (tmp_path / "link").symlink_to("real")
    store.put_file("x", tmp_path / "link", meta_of(b"w"), move=move)
    assert not (store.root / "files/x").is_symlink()
    assert b"w" == (store.root / "files/x").read_bytes() == (tmp_path / "real").read_bytes()
    assert move is not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("move", "data"), [(False, b"other"), (True, b"longer than said")])
def test_a_source_that_changed_is_not_stored(store: FileBlobStore, tmp_path: Path, move: bool, data: bytes) -> None:
    """Bytes that are not the announced ones are refused, and nothing of them is left."""
    (tmp_path / "source").write_bytes(data)
    with pytest.raises(BlobCorruptError, match=r"5 bytes, sha256 .* were announced"):
        store.put_file("x", tmp_path / "source", meta_of(b"12345"), move=move)
    assert set() == tree(store.root)
    assert (tmp_path / "source").exists()


def test_a_folder_is_no_file_to_store(store: FileBlobStore, tmp_path: Path) -> None:
    """What is no regular file is refused before anything is made."""
    with pytest.raises(OSError, match="it is not a regular file"):
        store.put_file("x", tmp_path, meta_of(b""))
    assert not store.root.exists()


def test_a_missing_file_is_said_to_be_missing(store: FileBlobStore, tmp_path: Path) -> None:
    """FileNotFoundError quotes the name and the store, and nothing is made at the destination."""
    put(store, "a/b", b"w")
    for name in ("nothing", "a", "a/b/c", "a/b.symlink"):
        with pytest.raises(FileNotFoundError, match=f"no file {name!r} in the blob store {store.uri}"):
            store.copy_to(name, tmp_path / "new" / "out")
        assert store.meta(name) is None
    assert not (tmp_path / "new").exists()


def test_reading_creates_nothing(store: FileBlobStore) -> None:
    """Asking a store that was never written to does not create it."""
    assert store.meta("x") is None
    assert not store.root.exists()


def test_a_corrupt_file_is_never_handed_out(store: FileBlobStore, tmp_path: Path) -> None:
    """A file that differs from its sidecar raises, and the destination keeps what it had, with nothing beside it."""
    put(store, "x.pt", b"weights")
    (store.root / "files/x.pt").write_bytes(b"WEIGHTS")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x.pt").write_bytes(b"old")
    with pytest.raises(BlobCorruptError, match=r"'x\.pt' in the blob store .* has 7 bytes.*its sidecar says 7 bytes"):
        store.copy_to("x.pt", tmp_path / "out/x.pt")
    assert {"x.pt"} == tree(tmp_path / "out")
    assert b"old" == (tmp_path / "out/x.pt").read_bytes()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"previous": null}', b"null"])
def test_an_unreadable_sidecar_is_corrupt_and_can_be_cured(
    store: FileBlobStore, tmp_path: Path, content: bytes
) -> None:
    """Garbage in a sidecar makes its file unusable until it is stored again."""
    put(store, "x", b"w")
    (store.root / "meta/x.json").write_bytes(content)
    with pytest.raises(BlobCorruptError, match=r"the sidecar of 'x' .* is unreadable.*store the file again"):
        store.copy_to("x", tmp_path / "out")
    put(store, "x", b"w")
    store.copy_to("x", tmp_path / "out")
    assert b"w" == (tmp_path / "out").read_bytes()


def test_a_file_without_a_sidecar_is_neither_used_nor_overwritten(store: FileBlobStore, tmp_path: Path) -> None:
    """A file that somebody put there by hand cannot be checked; it counts as present."""
    put(store, "x", b"w")
    (store.root / "meta/x.json").unlink()
    with pytest.raises(BlobCorruptError, match="it has no sidecar"):
        store.copy_to("x", tmp_path / "out")
    with pytest.raises(FileExistsError):
        put(store, "x", b"w", never)
    assert BlobMeta(None, 0, "", 1, "application/octet-stream", "x") == store.meta("x")


def test_a_crash_between_sidecar_and_file_loses_nothing(store: FileBlobStore, tmp_path: Path) -> None:
    """With the sidecars of puts that died before their file, the old file is still valid, and known as the old."""
    put(store, "latest", b"ep0")
    for attempt in range(2, 5):
        before = (store.root / "files/latest").read_bytes()
        (tmp_path / "next").write_bytes(b"epoch-1")
        store.put_file("latest", tmp_path / "next", meta_of(b"epoch-1", attempt=attempt))
        (store.root / "files/latest").write_bytes(before)
        assert meta_of(b"ep0", "latest") == store.copy_to("latest", tmp_path / "out") == store.meta("latest")
    put(store, "latest", b"epoch-2")
    assert meta_of(b"epoch-2", "latest") == store.copy_to("latest", tmp_path / "out")


def test_a_reader_beside_a_writer_sees_one_or_the_other(store: FileBlobStore, tmp_path: Path) -> None:
    """While a name is overwritten again and again, every copy is whole and valid."""
    contents = [bytes([n]) * 5000 for n in range(8)]
    put(store, "x", contents[0])

    def write() -> None:
        for content in contents * 5:
            put(store, "x", content)

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while writer.is_alive():
        store.copy_to("x", tmp_path / "out")
        seen.add((tmp_path / "out").read_bytes())
    writer.join()
    assert seen <= set(contents)


def test_a_copy_that_outlives_many_puts_starts_again(store: FileBlobStore, tmp_path: Path) -> None:
    """A reader whose file was replaced more often than a sidecar remembers returns the newest."""
    put(store, "x", b"0")
    more = iter([b"1", b"2", b"3", b"4", b"5"])

    def replace(_: int) -> None:
        for data in more:
            put(store, "x", data)

    store.copy_to("x", tmp_path / "out", replace)
    assert b"5" == (tmp_path / "out").read_bytes()


def test_of_many_writers_of_one_new_name_one_wins(store: FileBlobStore, tmp_path: Path) -> None:
    """Where nothing may be replaced exactly one of several threads stores its file, and the others are told."""
    outcomes: list[str] = []

    def write(n: int) -> None:
        source = tmp_path / f"source-{n}"
        source.write_bytes(bytes([n]))
        try:
            store.put_file("x", source, meta_of(bytes([n])), may_replace=never)
            outcomes.append("stored")
        except FileExistsError:
            outcomes.append("present")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["present"] * 5 + ["stored"] == sorted(outcomes)
    store.copy_to("x", tmp_path / "out")


def test_an_exchange_waits_for_the_lock(store: FileBlobStore, tmp_path: Path) -> None:
    """A second writer changes neither file nor sidecar while the first holds the lock."""
    put(store, "x", b"1")
    with locked(store.root / ".lock"):
        writer = threading.Thread(target=put, args=(store, "x", b"2"))
        writer.start()
        writer.join(0.05)
        assert writer.is_alive()
        store.copy_to("x", tmp_path / "out")
        assert b"1" == (tmp_path / "out").read_bytes()
    writer.join()
    store.copy_to("x", tmp_path / "out")
    assert b"2" == (tmp_path / "out").read_bytes()


def test_a_progress_that_raises_leaves_nothing(store: FileBlobStore, tmp_path: Path) -> None:
    """An exception in the middle of a copy takes the unfinished file with it."""
    put(store, "x", b"w")
    (tmp_path / "out").mkdir()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.copy_to("x", tmp_path / "out/x", interrupt)
    assert set() == tree(tmp_path / "out")


def test_a_name_that_is_a_folder_of_another_is_refused(store: FileBlobStore) -> None:
    """A folder cannot be a file too: the error says so, and is not the one that means "present"."""
    put(store, "a/b", b"w")
    with pytest.raises(IsADirectoryError, match=r"'a' in .* is a folder of other files"):
        put(store, "a", b"w", never)
    with pytest.raises(NotADirectoryError, match=r"'a/b/c' in .* a part of its folder is stored as a file"):
        put(store, "a/b/c", b"w", never)


def test_what_an_earlier_attempt_wrote_may_be_replaced(store: FileBlobStore, tmp_path: Path) -> None:
    """Who asks is told what is there, and decides by it."""
    put(store, "x", b"1")
    seen: list[BlobMeta] = []

    def may_replace(stored: BlobMeta) -> bool:
        seen.append(stored)
        return stored.attempt < 2

    put(store, "x", b"22", may_replace, attempt=2)
    assert {meta_of(b"1", "x")} == set(seen)
    with pytest.raises(FileExistsError):
        put(store, "x", b"333", may_replace, attempt=2)
    store.copy_to("x", tmp_path / "out")
    assert b"22" == (tmp_path / "out").read_bytes()


def test_the_same_upload_is_stored_once(store: FileBlobStore, tmp_path: Path) -> None:
    """An upload whose end nobody heard is found stored, and its source goes where it is to move."""
    put(store, "x", b"1", never, upload="u1")
    put(store, "x", b"2", never, move=True, upload="u1")
    store.copy_to("x", tmp_path / "out")
    assert b"1" == (tmp_path / "out").read_bytes()
    assert not (tmp_path / "source").exists()


def test_an_upload_whose_file_did_not_follow_its_sidecar_is_stored(store: FileBlobStore, tmp_path: Path) -> None:
    """Who died between the two did not store it, also where what it was to replace has its size."""
    put(store, "latest", b"ep0", upload="u1")
    put(store, "latest", b"ep1", upload="u2")
    (store.root / "files/latest").write_bytes(b"ep0")
    put(store, "latest", b"ep1", lambda known: known.upload == "u1", move=True, upload="u2")
    assert meta_of(b"ep1", "latest", upload="u2") == store.copy_to("latest", tmp_path / "out")
    assert not (tmp_path / "source").exists()


def test_a_conflict_is_kept_beside(store: FileBlobStore, tmp_path: Path) -> None:
    """What could not be stored under its name is kept by its upload, with a sidecar, and the name keeps what it has."""
    put(store, "a/x", b"1")
    (tmp_path / "source").write_bytes(b"22")
    uri = store.put_conflict("a/x", tmp_path / "source", meta_of(b"22", "a/x", upload="u2"), move=True)
    assert f"{store.uri}/conflicts/a/x/u2" == uri
    assert b"22" == (store.root / "conflicts/a/x/u2").read_bytes()
    assert "u2" == json.loads((store.root / "meta/conflicts/a/x/u2.json").read_text())["upload"]
    assert meta_of(b"1", "a/x") == store.meta("a/x")


def test_a_new_file_is_stored_only_where_there_is_none(store: FileBlobStore, tmp_path: Path) -> None:
    """The first is stored and the second is not; a file that was removed leaves nothing of itself."""
    (tmp_path / "source").write_bytes(b"1")
    assert [True, False] == [store.put_new("a/x", tmp_path / "source", meta_of(b"1", "a/x")) for _ in range(2)]
    store.remove("a/x")
    store.remove("a/x")
    assert {".lock"} == tree(store.root)
    assert not (store.root / "files").exists()
    assert store.meta("a/x") is None


def test_bytes_are_stored_once_under_their_digest(store: FileBlobStore) -> None:
    """Content-addressed objects carry digest and extension, and the same bytes are the same object."""
    digest = hashlib.sha256(b"png").hexdigest()
    path = put_object(store, b"png", meta_of(b"png"))
    written = path.stat()
    assert store.root / f"sha256/{digest[:2]}/{digest}.png" == path == put_object(store, b"png", meta_of(b"png", "y"))
    assert written.st_ino == path.stat().st_ino
    assert {f"sha256/{digest[:2]}/{digest}.png"} == tree(store.root)
    assert 0o600 == stat.S_IMODE(written.st_mode)


def test_an_object_that_a_power_failure_emptied_is_written_again(store: FileBlobStore) -> None:
    """An object of the wrong size does not count as stored."""
    path = put_object(store, b"png", meta_of(b"png"))
    path.write_bytes(b"")
    put_object(store, b"png", meta_of(b"png"))
    assert b"png" == path.read_bytes()


def test_bytes_that_are_not_the_announced_ones_are_refused(store: FileBlobStore) -> None:
    """The digest in `meta` has to be that of the bytes."""
    with pytest.raises(BlobCorruptError, match=r"for 'x\.pt': 3 bytes.* were announced"):
        put_object(store, b"png", meta_of(b"jpg"))


def test_a_file_is_digested_piece_by_piece(tmp_path: Path) -> None:
    """The digest of a file longer than one piece is that of its bytes."""
    data = bytes(range(256)) * 5000
    (tmp_path / "x").write_bytes(data)
    assert hashlib.sha256(data).hexdigest() == sha256_file(tmp_path / "x")
