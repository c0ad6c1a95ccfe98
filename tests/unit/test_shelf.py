"""Files are taken when they are uploaded, found at once by their name, and come back whole."""

import contextlib
import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_logger import conventions as names
from otel_logger.delivery import Carrier, is_earlier
from otel_logger.media_types import media_type
from otel_logger.shelf import BLIND, PAUSES, Place, Shelf, Stage
from otel_logger.staging import STAGED, Staging
from otel_logger_exporters.blob_counts import BlobCounts
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_store import FileBlobStore
from otel_logger_exporters.consignments import Consignment
from otel_logger_exporters.space import Space


class _Case:
    """A shelf over a store in a folder, which may not be settled yet."""

    def __init__(self, root: Path, look=2.0):
        self.root = root
        root.mkdir(exist_ok=True)
        self.store = FileBlobStore(root / "blobs")
        self.others = []
        self.stages = []
        self.settled = True
        self.writer = root / "writer"
        self.writer.mkdir()
        self.run_id, self.attempt, self.now = "r", 1, 100
        self.staging = Staging(lambda: self.writer, Space(min_free=0), 2**40, BlobCounts(lambda: 0.0))
        self.waits = []
        self.seconds = 1000.0
        self.shelf = Shelf(
            self.staging, self, look, self.waits.append, longest_comparison=look, monotonic=lambda: self.seconds
        )

    def own(self):
        run_id, attempt = (self.run_id, self.attempt) if self.settled else (None, 1)
        return Stage(self.writer / STAGED, run_id, attempt, 0)

    def writing(self):
        return self.store if self.settled else None

    def reading(self):
        own = (self.own(), *self.stages)
        return [Place(store, own) for store in ([self.store] if self.settled else self.others)]

    def may_replace(self, known):
        return known.run_id == self.run_id and is_earlier(known, self.attempt, 0)

    def source(self, content=b"content", name="source"):
        path = self.root / name
        path.write_bytes(content)
        return path

    def stage(self, name, path, *, overwrite):
        self.now += 1
        self.shelf.take(name, Path(path), overwrite=overwrite)
        consignment = Consignment(
            f"{self.now:032x}", name, self.now, names.EVENT_FILE, (), is_file=True, overwrite=overwrite
        )
        return self.staging.put_file(consignment, Path(path), media_type(name))

    def upload(self, name, content=b"content", *, overwrite=False, store=True):
        staged = self.stage(name, self.source(content), overwrite=overwrite)
        return self.finish(staged) if store else staged

    def finish(self, staged, run_id=None):
        delivered = self.deliver(staged, run_id)
        self.staging.forget(staged)
        self.staging.discard(staged)
        assert delivered.reason is None
        return delivered.attributes[names.BLOB_URI], self.store.meta(staged.consignment.name)

    def deliver(self, staged, run_id=None):
        carrier = Carrier(self.store, run_id or self.run_id, self.attempt)
        return carrier.deliver(self.staging.manifest(staged), staged.consignment, lambda: 0)

    def other(self, name, content, *, time_ns, run_id="r", attempt=1, overwrite=True, folder=None):
        """What another writer, perhaps dead, has staged."""
        folder = folder or self.root / f"other-{len(self.stages)}"
        staging = Staging(lambda: folder, Space(min_free=0), 2**40, BlobCounts(lambda: 0.0))
        uid = f"{run_id}{attempt}{time_ns}"
        consignment = Consignment(uid, name, time_ns, names.EVENT_FILE, (), is_file=True, overwrite=overwrite)
        staged = staging.put_file(consignment, self.source(content, "of another"), media_type(name))
        stage = Stage(folder / STAGED, run_id, attempt, 0)
        if stage not in self.stages:
            self.stages.append(stage)
        return staging, staged

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
        return os.listdir(self.writer / "staged") if (self.writer / "staged").exists() else []


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
    manifest = case.staging.manifest(case.stage("a", source, overwrite=False))
    assert {0o600} == {path.stat().st_mode & 0o777 for path in manifest.parent.iterdir()}
    assert 0o700 == manifest.parent.stat().st_mode & 0o777
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
    case.deliver(staged)
    assert (b"xyz", 3) == (case.read("a"), case.shelf.size("a"))


def test_a_taken_name_is_refused_without_overwrite(case):
    """A name that is stored or waits is refused with where and how; nothing changes, and nothing is left staged."""
    staged = case.upload("a/b.pt", b"1", store=False)
    assert "a file 'a/b.pt' waits to be stored already; pass overwrite=True to replace it" in case.taken("a/b.pt")
    case.finish(staged)
    where = case.store.uri
    begin = f"cannot upload {str(case.root / 'source')!r}: a file "
    end = "; pass overwrite=True to replace it"
    assert f"{begin}'a/b.pt' was uploaded by this run already{end}" == case.taken("a/b.pt")
    # Names that mean the same place are one name.
    assert f"{begin}'/a//./b.pt' was uploaded by this run already{end}" == case.taken("/a//./b.pt")
    other = _Case(case.root / "other")
    other.store = case.store
    begin = f"cannot upload {str(other.root / 'source')!r}: a file "
    by = "stored by run 'r', attempt 1; if this is that run, set OTEL_LOGGER_RUN_ID=r"
    assert f"{begin}'a/b.pt' is in {where} already, {by}{end}" == other.taken("a/b.pt")
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
    resumed = _Case(case.root / "resumed")
    resumed.store, resumed.attempt, resumed.now = case.store, 2, 200
    resumed.upload("a", b"2")
    assert b"2" == resumed.read("a")
    resumed.taken("a")
    resumed.finish(resumed.upload("b", store=False), run_id="another run")
    resumed.taken("b")
    assert resumed.store.meta("b").run_id == "another run"


def test_a_stored_file_without_a_sidecar_is_not_replaced(case):
    """A file of which nothing is known may be anybody's."""
    path = case.root / "blobs/files/a"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    case.attempt = 9
    case.taken("a")


def test_while_the_store_is_not_settled_only_what_waits_counts(case):
    """Before the run is known a name is refused when it waits, and files are looked for where others stored them."""
    case.settled = False
    assert "there is no file 'b' in no store: nothing has been written yet" == case.missing("b")
    case.others = [case.store]
    case.upload("a", b"2", store=False)
    assert "waits to be stored" in case.taken("a")
    case.others = [FileBlobStore(case.root / "nowhere"), case.store]
    assert b"2" == case.read("a")
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


def test_symbolic_links_are_followed(case):
    """A link is uploaded as the file that it names, which stays where it is."""
    link = case.root / "latest"
    link.symlink_to(case.source(b"weights"))
    case.finish(case.stage("latest.pt", link, overwrite=True))
    stored = case.root / "blobs/files/latest.pt"
    assert (False, b"weights", True) == (stored.is_symlink(), stored.read_bytes(), link.exists())


def test_a_relative_path_is_that_of_the_call(case, monkeypatch):
    """Composer gives paths relative to the working directory, as str or Path; it may change afterwards."""
    monkeypatch.chdir(case.root)
    case.source(b"1", "one")
    case.source(b"2", "two")
    staged = [case.stage("a", "one", overwrite=False), case.stage("b", Path("two"), overwrite=False)]
    monkeypatch.chdir("/")
    for one in staged:
        case.finish(one)
    assert [b"1", b"2"] == [case.read("a"), case.read("b")]


def test_an_empty_file_and_a_large_one(case):
    """Size does not matter: nothing, and more than a buffer."""
    for content in (b"", bytes(range(256)) * 2**14):
        case.upload("a", content, overwrite=True)
        assert (content, len(content)) == (case.read("a"), case.shelf.size("a"))


def test_what_could_not_be_stored_lets_go_of_its_name(case):
    """A failed upload that is forgotten is not found, and its name can be used again."""
    staged = case.upload("a", store=False)
    case.staging.forget(staged)
    case.staging.discard(staged)
    case.staging.forget(staged)
    case.staging.discard(staged)
    case.shelf.let_go("a")
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
    with pytest.raises(KeyboardInterrupt):
        case.shelf.fetch("a", case.root / "new" / "er" / "target", overwrite=False, progress=interrupt)
    assert not (case.root / "new").exists()


@pytest.mark.parametrize("store", [True, False], ids=["stored", "staged"])
def test_a_destination_below_a_file_is_told_from_one_that_exists(case, store):
    """FileExistsError would say that the file is there already, which a trainer takes for done."""
    case.upload("a", store=store)
    for parent in (case.source(), case.root / "source" / "deeper"):
        with pytest.raises(NotADirectoryError, match="source"):
            case.shelf.fetch("a", parent / "target", overwrite=True, progress=None)


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
    ("name", "expected"),
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
def test_media_types(case, name, expected):
    """What a file is called says what it is; what is not known is bytes."""
    assert expected == case.upload(name)[1].media_type


def test_of_what_waits_and_what_is_stored_the_newest_is_read(case):
    """What another writer of the run left is read when it would replace what is stored; else what is stored."""
    case.upload("a", b"stored")
    case.other("a", b"older", time_ns=50)
    assert b"stored" == case.read("a")
    case.other("a", b"newer", time_ns=500)
    assert (b"newer", 5) == (case.read("a"), case.shelf.size("a"))
    case.other("a", b"newest", time_ns=600)
    assert b"newest" == case.read("a")


@pytest.mark.parametrize(
    ("run_id", "attempt", "overwrite", "time_ns", "expected"),
    [
        ("r", 1, True, 50, b"stored"),
        ("r", 1, True, 500, b"stored"),
        ("r", 2, True, 500, b"waits"),
        ("r", 1, False, 500, b"stored"),
        ("r", 3, False, 500, b"waits"),
        ("r", 3, False, 50, b"waits"),
        ("other", 3, False, 500, b"stored"),
        ("other", 1, True, 500, b"waits"),
        ("other", 1, True, 50, b"stored"),
        (None, 1, True, 500, b"waits"),
        (None, 1, False, 500, b"stored"),
    ],
)
def test_what_waits_is_read_when_it_will_be_stored(case, run_id, attempt, overwrite, time_ns, expected):
    """Attempts of a run come one after another whatever their clocks say; what may not replace will not."""
    case.attempt = 2
    case.upload("a", b"stored")
    case.other("a", b"waits", time_ns=time_ns, run_id=run_id, attempt=attempt, overwrite=overwrite)
    assert expected == case.read("a")


def test_of_attempts_that_wait_the_later_one_is_read(case):
    """Clocks of machines differ, the numbers of attempts do not."""
    case.other("a", b"2", time_ns=500, attempt=2)
    case.other("a", b"1", time_ns=900, attempt=1)
    case.other("a", b"another run's", time_ns=400, run_id="s", attempt=7)
    assert b"2" == case.read("a")


def test_own_uploads_are_in_order_though_the_clock_is_set_back(case):
    """The last call of a process wins, also over what it has stored already."""
    case.upload("a", b"1")
    case.now = 10
    case.upload("a", b"2", overwrite=True, store=False)
    case.now = 5
    case.upload("a", b"3", overwrite=True, store=False)
    assert b"3" == case.read("a")


def test_a_forked_child_reads_what_its_parent_has_staged(case):
    """It finds that in the folder alone: what is known of it is the parent's, who goes on."""
    case.upload("a", b"1")
    case.upload("a", b"2", overwrite=True, store=False)
    case.upload("a", b"3", overwrite=True, store=False)
    case.shelf.abandon()
    assert (None, b"3") == (case.staging.last("a"), case.read("a"))


def test_a_store_that_does_not_tell_is_not_asked_for_each_file(case):
    """Only the first of many uploads waits for a store that is down; half a minute later it is asked again."""
    asked = []

    def fail(name):
        asked.append(name)
        raise BlobUnavailableError(5, "the store is down")

    case.store.meta = fail
    for name in ("a", "b", "c"):
        case.upload(name, store=False)
    case.seconds += BLIND
    case.upload("d", store=False)
    assert ["a", "d"] == asked


def test_a_store_that_fails_does_not_hide_what_waits(case):
    """Without the store what waits is the newest that can be known; what does not wait is an error, not absent."""

    def fail(name):
        raise BlobUnavailableError(5, "the store is down")

    case.other("a", b"waits", time_ns=5)
    case.store.meta = fail
    assert (b"waits", 5, None) == (case.read("a"), case.shelf.size("a"), case.shelf.size("b"))
    with pytest.raises(BlobUnavailableError):
        case.read("b")
    assert list(PAUSES) == case.waits


def test_a_download_waits_for_a_store_that_comes_back(case):
    """A store that cannot be reached for a moment does not keep a training from going on."""
    case.upload("a", b"stored")
    answers = [BlobUnavailableError(5, "the store is down")] * 2
    ask = case.store.meta

    def meta(name):
        if answers:
            raise answers.pop()
        return ask(name)

    case.store.meta = meta
    assert (b"stored", [1.0, 2.0]) == (case.read("a"), case.waits)


def test_an_upload_that_died_between_sidecar_and_file_is_read_from_where_it_waits(case):
    """The store has been told of it, and holds the file before it, of the same size: a checkpoint, most likely."""
    case.upload("a", b"one")
    staging, staged = case.other("a", b"two", time_ns=500)
    sidecar = case.root / "blobs/meta/a.json"
    before = (case.root / "blobs/files/a").read_bytes()
    Carrier(case.store, "r", 1).deliver(staging.manifest(staged), staged.consignment, lambda: 0)
    told = sidecar.read_bytes()
    (case.root / "blobs/files/a").rename(staging.path() / staged.consignment.parcels[0].path)
    (case.root / "blobs/files/a").write_bytes(before)
    sidecar.write_bytes(told)
    assert b"two" == case.read("a")
    delivered = Carrier(case.store, "r", 1).deliver(staging.manifest(staged), staged.consignment, lambda: 0)
    assert (None, b"two") == (delivered.reason, case.store.root.joinpath("files/a").read_bytes())


def test_bytes_that_are_gone_do_not_hide_what_is_stored(case):
    """A manifest whose private copy somebody deleted stands for nothing."""
    case.upload("a", b"stored")
    for name in ("a", "b"):
        staging, staged = case.other(name, b"waits", time_ns=500)
        (staging.path() / staged.consignment.parcels[0].path).unlink()
    assert b"stored" == case.read("a")
    case.missing("b")


def test_what_is_not_private_is_not_read(case):
    """A manifest that names another's file is refused, not obeyed."""
    staging, staged = case.other("a", b"waits", time_ns=500)
    copy = staging.path() / staged.consignment.parcels[0].path
    copy.unlink()
    copy.symlink_to(case.source(b"secret", "secret"))
    with pytest.raises(PermissionError, match="is not private to this user"):
        case.read("a")


def test_a_store_that_hangs_is_waited_for_a_moment_only(tmp_path):
    """An upload that may not overwrite is accepted then, and decided when it is stored."""
    case = _Case(tmp_path / "case", look=0.05)
    over = threading.Event()
    case.store.meta = lambda name: over.wait(60)
    before = time.monotonic()
    case.stage("a", case.source(), overwrite=False)
    assert time.monotonic() - before < 30
    over.set()


def test_a_store_that_hangs_does_not_hide_what_waits(tmp_path):
    """What waits on disk is had without an answer, so that a training goes on from it."""
    case = _Case(tmp_path / "case", look=0.05)
    case.other("a", b"waits", time_ns=5)
    over = threading.Event()
    case.store.meta = lambda name: over.wait(60)
    before = time.monotonic()
    assert b"waits" == case.read("a")
    assert time.monotonic() - before < 30
    over.set()


def test_a_store_that_fails_does_not_keep_an_upload(case):
    """Whether the name is taken is decided when it is stored."""

    def fail(name):
        raise BlobUnavailableError(5, "the store is down")

    case.store.meta = fail
    case.stage("a", case.source(), overwrite=False)


def test_of_uploads_of_one_name_at_once_one_is_accepted(case):
    """Threads that may not overwrite cannot both have it."""
    source, accepted, barrier = case.source(), [], threading.Barrier(4)

    def upload():
        barrier.wait(10)
        with contextlib.suppress(FileExistsError):
            case.shelf.take("a", source, overwrite=False)
            accepted.append(1)

    threads = [threading.Thread(target=upload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [1] == accepted


def test_a_conflict_found_late_is_told_to_the_next_upload(case):
    """It raises once for all without overwrite, says why, and an upload that overwrites ends it."""
    case.upload("a", overwrite=True)
    case.shelf.note_conflict("a", "it is another run's")
    assert "a file 'a' could not be stored before: it is another run's; pass" in case.taken("a")
    case.upload("a", b"2", overwrite=True)
    assert "was uploaded by this run already" in case.taken("a")


def test_a_resumed_run_that_is_not_settled_yet_is_not_refused(case):
    """What is stored under the name may be of its own earlier attempt, which is not known yet."""
    case.store.put_file("a", case.source(), BlobMeta("r", 1, hashlib.sha256(b"content").hexdigest(), 7, "x/y", "a"))
    case.writing = lambda: case.store
    case.may_replace = lambda known: True
    case.stage("a", case.source(), overwrite=False)
