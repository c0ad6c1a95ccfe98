"""What waits for the store is whole in its folder, wherever that is, within bounds, or not there at all."""

import hashlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from otel_logger import staging
from otel_logger.staging import STAGED, Content, Staging
from otel_logger_exporters import blob_files, consignments, private_copy
from otel_logger_exporters.blob_counts import BlobCounts
from otel_logger_exporters.consignments import Consignment, consignments_in, parcel_path
from otel_logger_exporters.space import Space
from tests.interruptions import interrupted

MANY = 2**40


class _Case:
    """A staging in a folder that can be renamed."""

    def __init__(self, root, limit=MANY, space=None):
        self.root = root
        self.folder = root / ".starting" / "w"
        self.folder.mkdir(parents=True)
        self.counts = BlobCounts(lambda: 0.0)
        self.staging = Staging(lambda: self.folder, space or Space(min_free=0), limit, self.counts)
        self.source = root / "source"
        self.source.write_bytes(b"weights")
        self.uids = 0

    def rename(self):
        """Move it into its run's folder."""
        target = self.root / "run" / "0-1-w"
        target.parent.mkdir()
        self.folder.rename(target)
        self.folder = target

    def consignment(self, name="a.pt"):
        self.uids += 1
        return Consignment(f"{self.uids:032x}", name, self.uids, "e", (), is_file=True)

    def file(self, name="a.pt", source=None):
        return self.staging.put_file(self.consignment(name), source or self.source, "x/y")

    def objects(self, *data):
        contents = [Content(lambda file, one=one: file.write(one), "image/png", "png", "r") for one in data]
        return self.staging.put_objects(replace(self.consignment(), is_file=False), contents)

    def left(self):
        """The names of all files below the root but the source."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file())[:-1]


@pytest.fixture
def case(tmp_path):
    """A staging without bounds."""
    return _Case(tmp_path)


def read(case, staged):
    """What is on disk of a consignment: its contents, after checking the manifest against it."""
    ((manifest, found),) = [one for one in consignments_in(case.staging.path()) if one[1].uid == staged.consignment.uid]
    assert (case.staging.manifest(staged), staged.consignment) == (manifest, found)
    data = [parcel_path(manifest, parcel).read_bytes() for parcel in found.parcels]
    assert [len(one) for one in data] == [parcel.size for parcel in found.parcels]
    return data


def test_a_file_waits_with_its_manifest(case):
    """Its bytes are those of the call, its digest is asked for when it is stored."""
    staged = case.file("dir/A.PT")
    case.source.write_bytes(b"changed")
    (parcel,) = staged.consignment.parcels
    assert [b"weights"] == read(case, staged)
    assert (7, "x/y", "pt", None) == (parcel.size, parcel.media_type, parcel.extension, parcel.sha256)
    assert (staged, 7) == (case.staging.last("dir/A.PT"), case.counts.bytes_waiting)


def test_objects_wait_together(case):
    """Each with its digest, in the order in which they were given."""
    staged = case.objects(b"one", b"", b"three")
    assert [b"one", b"", b"three"] == read(case, staged)
    assert [hashlib.sha256(data).hexdigest() for data in (b"one", b"", b"three")] == [
        parcel.sha256 for parcel in staged.consignment.parcels
    ]
    assert {0o600} == {path.stat().st_mode & 0o777 for path in case.staging.path().iterdir()}


@pytest.mark.parametrize("name", ["a", "a.", ".a", "a." + "x" * 300, "a.b c", "a.\u00e9", "a.\ud800", "\0"])
def test_odd_names_can_be_read_back(case, name):
    """Whatever a file is called, its manifest is one."""
    assert [b"weights"] == read(case, case.file(name))


def test_what_is_delivered_is_gone(case):
    """Of the disk, of the names, and at the end the folder itself."""
    first, second = case.file(), case.file()
    assert second is case.staging.last("a.pt")
    for staged in (second, first):
        case.staging.forget(staged)
        case.staging.discard(staged)
        case.staging.forget(staged)
        case.staging.discard(staged)
    assert (None, []) == (case.staging.last("a.pt"), case.left())
    case.staging.close()
    assert not case.staging.path().exists()


def test_what_is_set_aside_stays(case):
    """No store takes it, and nobody tries again."""
    staged = case.file()
    case.staging.set_aside(staged)
    case.staging.close()
    assert ([], 2) == (list(consignments_in(case.staging.path())), len(os.listdir(case.staging.path())))


def test_the_bound_holds_for_all_that_waits(tmp_path):
    """Files and the contents of one record together; what is refused leaves nothing, what is stored makes room."""
    case = _Case(tmp_path, limit=20)
    first, second = case.file(), case.file()
    with pytest.raises(OSError, match="14 bytes wait for the blob store, and with its 7 they would be more than"):
        case.file()
    with pytest.raises(OSError, match="OTEL_LOGGER_STAGE_MAX_BYTES=20"):
        case.objects(b"1234", b"567")
    assert 4 == len(os.listdir(case.staging.path()))
    assert [b"123", b"456"] == read(case, case.objects(b"123", b"456"))
    case.counts.store(first.consignment.uid)
    case.counts.fail(second.consignment.uid)
    case.file()
    case.file()
    with pytest.raises(OSError, match="20 bytes wait"):
        case.file()


def test_the_bound_holds_for_threads_at_once(tmp_path):
    """Each counts while it copies."""
    case = _Case(tmp_path, limit=7 * 3)
    barrier, refused = threading.Barrier(6), []

    def upload():
        barrier.wait(10)
        try:
            case.file()
        except OSError as error:
            refused.append(error)

    threads = [threading.Thread(target=upload) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (3, 6) == (len(refused), len(os.listdir(case.staging.path())))


def test_the_floor_of_free_disk_is_kept(tmp_path):
    """Nothing is written that would leave less, and nothing is left of it."""
    case = _Case(tmp_path, space=Space(None, 10**18))
    for put in (case.file, lambda: case.objects(b"1")):
        with pytest.raises(OSError, match="OTEL_LOGGER_MIN_FREE_BYTES"):
            put()
    assert ([], 0) == (case.left(), case.counts.bytes_waiting)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("no image"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing(case, error):
    """Whatever ends it, and whatever was written before."""

    def fail(file):
        file.write(b"x" * 100_000)
        raise error

    contents = [Content(lambda file: file.write(b"1"), "a/b", "c"), Content(fail, "a/b", "c")]
    with pytest.raises(type(error)):
        case.staging.put_objects(replace(case.consignment(), is_file=False), contents)
    assert ([], 0) == (case.left(), case.counts.bytes_waiting)


def test_a_source_that_is_gone_is_told(case):
    """It may vanish at any moment before its copy is made."""
    with pytest.raises(FileNotFoundError):
        case.file(source=case.root / "none")
    assert ([], None) == (case.left(), case.staging.last("a.pt"))


def test_a_folder_that_was_deleted_is_made_again(case):
    """Somebody tidied up."""
    case.folder.rmdir()
    assert [b"weights"] == read(case, case.file())


@pytest.mark.parametrize("kind", ["file", "objects"])
def test_a_folder_may_be_renamed_at_any_moment(tmp_path, kind):
    """What waits is whole where the folder is then, alone, and nothing stays where it was."""
    place = 0
    while True:
        place += 1
        case = _Case(tmp_path / str(place))
        renamed, staged = [], []

        def rename(case=case, renamed=renamed):
            case.rename()
            renamed.append(True)

        def put(case=case, staged=staged):
            staged.append(case.file() if kind == "file" else case.objects(b"one", b"two"))

        interrupted(put, place, rename, staging, private_copy, consignments, blob_files)
        if not renamed:
            break
        assert ([b"weights"] if kind == "file" else [b"one", b"two"]) == read(case, staged[0]), place
        assert 2 + (kind == "objects") == len(case.left()), (place, case.left())
        assert not (case.root / ".starting").exists() or os.listdir(case.root / ".starting") == [], place
    assert place > 30


@pytest.mark.parametrize("kind", ["file", "objects"])
def test_an_interrupt_at_any_moment_leaves_all_or_nothing(tmp_path, kind):
    """Ctrl-C in the midst of a call: no parcel without a manifest, no manifest without its parcels."""
    place = 0
    while True:
        place += 1
        case = _Case(tmp_path / str(place))
        raised = []

        def interrupt(raised=raised):
            raised.append(True)
            raise KeyboardInterrupt

        try:
            interrupted(
                (lambda case=case: case.file()) if kind == "file" else (lambda case=case: case.objects(b"1", b"2")),
                place,
                interrupt,
                staging,
                private_copy,
                consignments,
            )
        except KeyboardInterrupt:
            pass
        if not raised:
            break
        found = list(consignments_in(case.staging.path()))
        parcels = {path.name for path in Path(case.folder / STAGED).glob("*") if path.suffix != ".json"}
        named = {parcel.path for _, consignment in found for parcel in consignment.parcels}
        assert named <= parcels, place
    assert place > 30
