"""Files are taken when they are uploaded, found at once by their name, and come back whole."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_logger.shelf import Shelf
from otel_logger_exporters.blob_meta import BlobCorruptError
from otel_logger_exporters.blob_store import FileBlobStore


class _Case:
    """A shelf over a store in a folder, which may not be settled yet."""

    def __init__(self, root: Path):
        self.root = root
        root.mkdir(exist_ok=True)
        self.store = FileBlobStore(root / "blobs")
        self.others = []
        self.settled = True
        self.writer = root / "writer"
        self.writer.mkdir()
        self.attempt = 1
        self.shelf = Shelf(lambda: self.writer, self, lambda meta: meta.run_id == "r" and meta.attempt < self.attempt)

    def writing(self):
        return self.store if self.settled else None

    def reading(self):
        return [self.store] if self.settled else self.others

    def source(self, content=b"content", name="source"):
        path = self.root / name
        path.write_bytes(content)
        return path

    def upload(self, name, content=b"content", *, overwrite=False, store=True):
        staged = self.shelf.stage(name, self.source(content), overwrite=overwrite)
        return self.finish(staged) if store else staged

    def finish(self, staged):
        return self.shelf.store(staged, self.store, "r", self.attempt)

    def read(self, name):
        target = self.root / "read back"
        self.shelf.fetch(name, target, overwrite=True, progress=None)
        return target.read_bytes()

    def taken(self, name):
        with pytest.raises(FileExistsError) as caught:
            self.upload(name)
        return caught.value.strerror

    def missing(self, name, destination=None):
        with pytest.raises(FileNotFoundError) as caught:
            self.shelf.fetch(name, destination or self.root / "none", overwrite=False, progress=None)
        return caught.value.strerror

    def left_staged(self):
        return os.listdir(self.writer / "staged")


@pytest.fixture
def case(tmp_path):
    """A shelf over an empty store."""
    return _Case(tmp_path / "case")


def test_a_file_comes_back_with_what_is_known_of_it(case):
    """A stored file has its digest, size, media type, run and attempt, and nothing of it stays staged."""
    uri, meta = case.upload("runs/ep1.pt", b"weights")
    assert (case.root / "blobs/files/runs/ep1.pt").as_uri() == uri
    assert (hashlib.sha256(b"weights").hexdigest(), 7, "application/octet-stream", "r", 1, "runs/ep1.pt") == (
        meta.sha256,
        meta.size,
        meta.media_type,
        meta.run_id,
        meta.attempt,
        meta.name,
    )
    assert b"weights" == case.read("runs/ep1.pt")
    assert [] == case.left_staged()


def test_the_private_copy_is_of_the_moment_of_the_call(case):
    """The source may be changed or deleted as soon as the call returns."""
    for name, after in (("deleted", Path.unlink), ("changed", lambda path: path.write_bytes(b"other"))):
        staged = case.upload(name, b"then", store=False)
        after(case.root / "source")
        assert b"then" == case.read(name)
        case.finish(staged)
        assert b"then" == case.read(name)


def test_private_copies_are_private(case):
    """Nobody else can read what waits, however open the source was."""
    source = case.source()
    source.chmod(0o777)
    staged = case.shelf.stage("a", source, overwrite=False)
    assert 0o600 == case.shelf.path(staged).stat().st_mode & 0o777
    assert 0o700 == case.shelf.path(staged).parent.stat().st_mode & 0o777
    assert 0o777 == source.stat().st_mode & 0o777


def test_what_is_uploaded_is_found_before_it_is_stored(case):
    """A download right after an upload finds it; the last upload of a name wins, staged before stored."""
    case.upload("a", b"1")
    two = case.upload("a", b"2", overwrite=True, store=False)
    three = case.upload("a", b"3", overwrite=True, store=False)
    assert (b"3", 1) == (case.read("a"), case.shelf.size("a"))
    case.finish(two)
    assert b"3" == case.read("a")
    case.finish(three)
    assert b"3" == case.read("a")


def test_a_file_that_is_moved_into_the_store_meanwhile_is_found(case):
    """Between the move into the store and the note of it, the file is found in the store, its size too."""
    staged = case.upload("a", b"xyz", store=False)
    forget = case.shelf.forget
    seen = []
    case.shelf.forget = lambda moved: (seen.append((case.read("a"), case.shelf.size("a"))), forget(moved))
    case.finish(staged)
    assert [(b"xyz", 3)] == seen


def test_a_taken_name_is_refused_without_overwrite(case):
    """A name that is stored or waits is refused with where and how; nothing changes, and nothing is left staged."""
    staged = case.upload("a/b.pt", b"1", store=False)
    assert "a file 'a/b.pt' waits to be stored already; pass overwrite=True to replace it" == case.taken("a/b.pt")
    case.finish(staged)
    where = case.store.uri
    assert f"a file 'a/b.pt' is in {where} already; pass overwrite=True to replace it" == case.taken("a/b.pt")
    # Names that mean the same place are one name.
    assert case.taken("/a//./b.pt").startswith("a file '/a//./b.pt' is in")
    assert b"1" == case.read("a/b.pt")
    assert [] == case.left_staged()


def test_overwrite_replaces(case):
    """With overwrite the later content stands, and can be refused to the next."""
    case.upload("a", b"1")
    case.upload("a", b"2", overwrite=True)
    assert b"2" == case.read("a")
    case.taken("a")


def test_a_resumed_run_replaces_what_its_earlier_attempt_stored(case):
    """An earlier attempt of the same run does not count as taken; the same attempt and other runs do."""
    case.upload("a", b"1")
    case.attempt = 2
    case.upload("a", b"2")
    assert b"2" == case.read("a")
    case.taken("a")
    other = case.upload("b", store=False)
    case.shelf.store(other, case.store, "another run", 1)
    case.taken("b")


def test_a_stored_file_without_a_sidecar_is_not_replaced(case):
    """A file of which nothing is known may be anybody's."""
    path = case.root / "blobs/files/a"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    case.attempt = 9
    case.taken("a")


def test_while_the_store_is_not_settled_only_what_waits_counts(case):
    """Before the run is known a name is refused when it waits, and files are looked for where others stored them."""
    case.upload("a", b"1")
    case.settled = False
    case.upload("a", b"2", store=False)
    assert "waits to be stored" in case.taken("a")
    assert b"2" == case.read("a")
    assert "there is no file 'b' in no store: nothing has been written yet" == case.missing("b")
    case.others = [FileBlobStore(case.root / "nowhere"), case.store]
    case.upload("c", b"3", store=False)
    assert b"3" == case.read("c")


def test_stores_are_looked_into_in_order(case):
    """Of several stores the first that has the file gives it."""
    case.upload("a", b"old")
    newer = _Case(case.root / "newer")
    newer.upload("a", b"new")
    case.settled = False
    case.others = [FileBlobStore(case.root / "none"), newer.store, case.store]
    assert (b"new", 3) == (case.read("a"), case.shelf.size("a"))


@pytest.mark.parametrize("what", ["absent", "folder", "dangling", "fifo", "a\0b", ""])
def test_a_source_that_is_no_file_is_refused(case, what):
    """A path that is absent, a folder, a dangling link, a pipe or no path: FileNotFoundError, and nothing waits."""
    (case.root / "folder").mkdir()
    (case.root / "dangling").symlink_to(case.root / "nothing")
    os.mkfifo(case.root / "fifo")
    path = case.root / what
    with pytest.raises(FileNotFoundError) as caught:
        case.shelf.stage("name", path, overwrite=True)
    reason = "it is not a file" if what in ("folder", "fifo", "") else "there is no such file"
    assert caught.value.strerror == f"cannot upload {str(path)!r} as 'name': {reason}"
    assert "there is no file 'name' in " + case.store.uri == case.missing("name")


def test_symbolic_links_are_followed(case):
    """A link is uploaded as the file that it names, which stays where it is."""
    link = case.root / "latest"
    link.symlink_to(case.source(b"weights"))
    case.finish(case.shelf.stage("latest.pt", link, overwrite=True))
    stored = case.root / "blobs/files/latest.pt"
    assert (False, b"weights", True) == (stored.is_symlink(), stored.read_bytes(), link.exists())


def test_a_relative_path_is_that_of_the_call(case, monkeypatch):
    """Composer gives paths relative to the working directory, as str or Path; it may change afterwards."""
    monkeypatch.chdir(case.root)
    case.source(b"1", "one")
    case.source(b"2", "two")
    staged = [case.shelf.stage("a", "one", overwrite=False), case.shelf.stage("b", Path("two"), overwrite=False)]
    monkeypatch.chdir("/")
    for one in staged:
        case.finish(one)
    assert [b"1", b"2"] == [case.read("a"), case.read("b")]


def test_an_empty_file_and_a_large_one(case):
    """Size does not matter: nothing, and more than a buffer."""
    for content in (b"", bytes(range(256)) * 2**14):
        case.upload("a", content, overwrite=True)
        assert (content, len(content)) == (case.read("a"), case.shelf.size("a"))


def test_a_disk_that_is_full_leaves_nothing(case, monkeypatch):
    """A copy that fails is an OSError of the disk; the torn copy is removed and the name is free."""

    def copyfile(source, target):
        Path(target).write_bytes(b"torn")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("otel_logger.shelf.shutil.copyfile", copyfile)
        with pytest.raises(OSError, match="No space left"):
            case.upload("a")
    assert [] == case.left_staged()
    case.upload("a")


def test_what_could_not_be_stored_lets_go_of_its_name(case):
    """A failed upload that is forgotten is not found, and its name can be used again."""
    staged = case.upload("a", store=False)
    case.shelf.forget(staged)
    case.shelf.forget(staged)
    case.missing("a")
    case.upload("a", b"again")
    assert b"again" == case.read("a")


def test_a_staged_copy_moves_with_the_writers_folder(case):
    """The writer's folder is renamed once the run is known; what waits goes with it."""
    staged = case.upload("a", b"1", store=False)
    case.writer = case.writer.rename(case.root / "renamed")
    assert b"1" == case.read("a")
    case.finish(staged)
    assert b"1" == case.read("a")


def test_what_is_absent_is_not_found(case):
    """Composer looks for names that are not there: FileNotFoundError with where was looked, and no file is made."""
    target = case.root / "deep" / "target"
    assert f"there is no file 'latest.pt' in {case.store.uri}" == case.missing("latest.pt", target)
    assert not target.exists()
    assert case.shelf.size("latest.pt") is None
    assert not (case.root / "blobs").exists()


def test_a_destination_that_exists_is_kept_without_overwrite(case):
    """A file, a folder or a dangling link at the destination is not replaced unless asked."""
    case.upload("a", b"new")
    existing = case.root / "existing"
    existing.write_bytes(b"old")
    dangling = case.root / "dangling"
    dangling.symlink_to("nothing")
    for target in (existing, dangling, case.root):
        with pytest.raises(FileExistsError) as caught:
            case.shelf.fetch("a", target, overwrite=False, progress=None)
        assert caught.value.strerror == f"{str(target)!r} exists; pass overwrite=True to replace it with 'a'"
    assert b"old" == existing.read_bytes()
    case.shelf.fetch("a", str(existing), overwrite=True, progress=None)
    assert b"new" == existing.read_bytes()


@pytest.mark.parametrize("store", [True, False], ids=["stored", "staged"])
def test_a_download_is_whole_or_not_at_all(case, store):
    """Folders are made, progress adds up to the size, and a download that is interrupted leaves nothing."""
    content = b"x" * (3 * 2**20 + 5)
    case.upload("a", content, store=store)
    target, pieces = case.root / "deep" / "er" / "target", []
    case.shelf.fetch("a", target, overwrite=False, progress=pieces.append)
    assert (content, len(content)) == (target.read_bytes(), sum(pieces))
    target.unlink()

    def interrupt(size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        case.shelf.fetch("a", target, overwrite=False, progress=interrupt)
    assert [] == os.listdir(target.parent)


def test_a_relative_destination(case, monkeypatch):
    """A destination without a folder lies in the working directory, staged or stored."""
    monkeypatch.chdir(case.root)
    staged = case.upload("a", b"1", store=False)
    case.shelf.fetch("a", "here", overwrite=False, progress=None)
    case.finish(staged)
    case.shelf.fetch("a", "there", overwrite=False, progress=None)
    assert [b"1", b"1"] == [Path(name).read_bytes() for name in ("here", "there")]


def test_what_is_not_what_was_uploaded_is_refused(case):
    """A stored file that was changed is told from the one that was uploaded, and not handed out."""
    case.upload("a", b"true")
    (case.root / "blobs/files/a").write_bytes(b"lies")
    target = case.root / "target"
    with pytest.raises(BlobCorruptError):
        case.shelf.fetch("a", target, overwrite=False, progress=None)
    assert not target.exists()


ODD = ["../up/x.pt", "/abs/x.pt", "..", "", ".", "a\\b", "a\0b", "x" * 5000, "é/\ud800", "a/../../b", "meta/../a"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_mapped_into_the_store(case, name):
    """Any name has a place inside the store, and is read back by itself, before and after it is stored."""
    staged = case.upload(name, b"odd", store=False)
    assert b"odd" == case.read(name)
    uri, meta = case.finish(staged)
    assert uri.startswith(f"{case.store.uri}/files/")
    assert (name, b"odd", 3) == (meta.name, case.read(name), case.shelf.size(name))
    (stored,) = [path for path in (case.root / "blobs/files").rglob("*") if path.is_file()]
    assert b"odd" == stored.read_bytes()
    case.taken(name)


def test_placeholders_are_none_of_our_business(case):
    """Composer fills in what it knows; braces that are left are characters."""
    case.upload("{run_name}/{rank}.pt", b"1")
    assert b"1" == case.read("{run_name}/{rank}.pt")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b/c", "../a"]), st.binary(max_size=3), st.booleans(), st.booleans()),
        max_size=12,
    )
)
def test_the_last_upload_that_was_accepted_wins(tmp_path_factory, uploads):
    """Whatever is uploaded under a few names, stored at once or later, a download is the last that was accepted."""
    case = _Case(tmp_path_factory.mktemp("shelf") / "case")
    expected, waiting = {}, []
    for name, content, overwrite, now in uploads:
        try:
            waiting.append(case.upload(name, content, overwrite=overwrite, store=False))
        except FileExistsError:
            assert name in expected
            assert not overwrite
        else:
            assert overwrite or name not in expected
            expected[name] = content
        if now:
            # The workbench stores in the order of uploading.
            while waiting:
                case.finish(waiting.pop(0))
        assert expected == {known: case.read(known) for known in expected}
    for staged in waiting:
        case.finish(staged)
    assert expected == {known: case.read(known) for known in expected}


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.json", "application/json"),
        ("a.PNG", "image/png"),
        ("a.pt.symlink", "text/plain"),
        ("a.yml", "application/yaml"),
        ("a.txt", "text/plain"),
        ("a.jsonl", "application/jsonl"),
        ("a", "application/octet-stream"),
        ("json", "application/octet-stream"),
        (".json", "application/octet-stream"),
        ("a.pt", "application/octet-stream"),
    ],
)
def test_media_types(case, name, media_type):
    """What a file is called says what it is; what is not known is bytes."""
    assert media_type == case.upload(name)[1].media_type
