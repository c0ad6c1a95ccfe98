"""A journal beside a disk that is full, not writable, or taken away: what it accepted outlasts that, or is counted."""

import errno
import os
import shutil
import threading

import pytest

from otel_logger_exporters.records import Kind
from otel_logger_exporters.segments import HEADER_SIZE, read_segment
from tests.journals import disk_with, files, journal_in, numbered, payloads, segments


@pytest.fixture(params=[True, False], ids=["mapped", "plain"])
def mapped(request):
    """Give both kinds of journal."""
    return request.param


class Disk:
    """What is asked for room before a file is made: has it, or has not."""

    def __init__(self):
        self.trouble = None
        self.asked = []

    def make_room(self, size):
        """Raise the trouble, where there is one."""
        self.asked.append(size)
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def disk():
    """Give a disk that has room."""
    return Disk()


@pytest.fixture
def make(tmp_path, mapped, disk):
    """Give a function that makes journals of metrics in the test's folder."""
    made = []

    def make_journal(**options):
        made.append(journal_in(tmp_path, mapped=mapped, make_room=disk.make_room, **options))
        return made[-1]

    yield make_journal
    disk.trouble = None
    for journal in made:
        journal.close()


def append(journal, *payloads):
    """Append each payload as a record of its own that holds one item."""
    for payload in payloads:
        assert journal.append((Kind.OTLP, payload), items=1)


def are_sealed(folder):
    """Tell whether every segment has a seal that holds."""
    return all(segment.sealed and not segment.damaged for segment in segments(folder))


def test_what_waits_outlasts_a_full_disk(make, tmp_path):
    """Callers notice nothing; `tend` says what is wrong each time, and when there is room again all is written."""
    journal = make(segment_size=256)
    with disk_with(HEADER_SIZE + 5):
        for payload in numbered(20):
            append(journal, payload)
            with pytest.raises(OSError, match="File too large"):
                journal.tend()
        assert [] == payloads(tmp_path)
    journal.tend()
    assert numbered(20) == payloads(tmp_path)
    append(journal, *numbered(5, 20))
    journal.close()
    assert numbered(25) == payloads(tmp_path)
    assert are_sealed(tmp_path)
    assert 0 == journal.take_lost()


def test_a_disk_that_becomes_full_in_the_midst_hides_nothing(make, tmp_path):
    """What is written stays readable, what comes after waits, and the order is kept."""
    journal = make(segment_size=256)
    journal.tend()
    append(journal, *numbered(3))
    journal.tend()
    (size,) = (path.stat().st_size for path in files(tmp_path)[:1])
    for number in range(3, 30):
        with disk_with(size + number % 7):
            append(journal, b"%010d" % number)
            try:
                journal.tend()
            except OSError as error:
                assert error.errno == errno.EFBIG  # noqa: PT017
        found = payloads(tmp_path)
        assert numbered(len(found)) == found
        assert not any(segment.cut or segment.damaged for segment in segments(tmp_path))
    journal.close()
    assert numbered(30) == payloads(tmp_path)
    assert are_sealed(tmp_path)


def test_a_file_that_may_not_be_made_is_waited_for(make, disk, tmp_path):
    """Room is asked for before a file is made; a refusal leaves none, and costs nothing while memory lasts."""
    journal = make(segment_size=256)
    disk.trouble = OSError(errno.ENOSPC, "the floor is reached")
    for payload in numbered(20):
        append(journal, payload)
        with pytest.raises(OSError, match="the floor is reached"):
            journal.tend()
    assert [] == list(tmp_path.iterdir())
    assert set(disk.asked) <= {256, HEADER_SIZE + 7 * 24, *(HEADER_SIZE + n * 24 for n in range(1, 8))}
    disk.trouble = None
    journal.tend()
    assert numbered(20) == payloads(tmp_path)


def test_memory_that_is_full_says_what_is_wrong_with_the_disk(make, disk, tmp_path):
    """The caller learns the reason; what was accepted is kept, and later records are when there is room."""
    journal = make(segment_size=256, memory_size=2000)
    disk.trouble = OSError(errno.ENOSPC, "the floor is reached")
    accepted = []
    append(journal, b"first")
    with pytest.raises(OSError, match="the floor is reached"):
        journal.tend()
    for payload in numbered(200):
        try:
            append(journal, payload)
            accepted.append(payload)
        except OSError as error:
            assert (errno.ENOSPC, "the floor is reached") == (error.errno, error.strerror)  # noqa: PT017
    assert 60 < len(accepted) < 100
    disk.trouble = None
    journal.tend()
    append(journal, b"after")
    journal.close()
    assert [b"first", *accepted, b"after"] == payloads(tmp_path)


@pytest.mark.parametrize("mapped", [True])
def test_a_disk_without_room_is_not_asked_at_each_call(make, disk):
    """Each attempt costs what the training could use; the background comes back to it by itself."""
    wakes = []
    journal = make(wake=lambda: wakes.append(None))
    append(journal, b"1")
    begun = len(wakes)
    append(journal, b"2")
    assert begun < len(wakes)
    disk.trouble = OSError(errno.ENOSPC, "full")
    with pytest.raises(OSError, match="full"):
        journal.tend()
    wakes.clear()
    append(journal, *numbered(10))
    assert [] == wakes


def test_a_head_waits_with_the_records_behind_it(make, disk, tmp_path):
    """A segment that could not be made has what is kept at its head when it is."""
    journal = make(segment_size=256)
    disk.trouble = OSError(errno.EROFS, "read-only")
    journal.keep("resource", Kind.RESOURCE, b"r")
    for payload in numbered(20):
        append(journal, payload)
    with pytest.raises(OSError, match="read-only"):
        journal.tend()
    disk.trouble = None
    journal.close()
    heads = [bytes(segment.records[0].payload) for segment in segments(tmp_path)]
    assert len(heads) > 2
    assert {b"r"} == set(heads)
    assert numbered(20) == payloads(tmp_path)


def test_a_folder_that_is_none_is_an_error_of_the_disk(make, tmp_path):
    """A file in its place, or a folder that was never there, costs nothing that memory holds."""
    journal = make()
    journal.move(tmp_path / "folder")
    append(journal, b"1")
    with pytest.raises(FileNotFoundError):
        journal.tend()
    (tmp_path / "folder").write_text("no folder")
    append(journal, b"2")
    with pytest.raises(NotADirectoryError):
        journal.tend()
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    journal.tend()
    assert [b"1", b"2"] == payloads(tmp_path / "folder")


def test_a_folder_that_is_deleted_is_told_once(make, tmp_path, mapped):
    """What was in its files is counted; what comes after waits for a folder, and has a head there, order and seals."""
    journal = make(segment_size=256)
    folder = tmp_path / "folder"
    folder.mkdir()
    journal.move(folder)
    journal.keep("resource", Kind.RESOURCE, b"r")
    journal.tend()
    append(journal, b"1", b"2")
    journal.tend()
    shutil.rmtree(folder)
    append(journal, b"3")
    with pytest.raises(FileNotFoundError, match="segments that were written to are gone"):
        journal.tend()
    assert 3 == journal.take_gone(0)
    assert 0 == journal.size_after(0, 0)
    generation = journal.generation
    append(journal, *numbered(10))
    with pytest.raises(FileNotFoundError):
        journal.tend()
    assert (0, 10) == (journal.take_lost(), journal.waiting_items)
    folder.mkdir()
    journal.tend()
    assert numbered(10) == payloads(folder)
    append(journal, b"x")
    journal.tend()
    journal.close()
    assert generation > 1
    assert [*numbered(10), b"x"] == payloads(folder)
    assert {b"r"} == {bytes(segment.records[0].payload) for segment in segments(folder)}
    assert are_sealed(folder)
    assert 0 == journal.take_gone(0)


def test_a_folder_that_somebody_renames_is_deleted_as_well(make, tmp_path):
    """Nobody looks for what is written there: it is counted, and what comes after goes where it is looked for."""
    journal = make()
    folder = tmp_path / "folder"
    folder.mkdir()
    journal.move(folder)
    append(journal, b"1")
    journal.tend()
    folder.rename(tmp_path / "other")
    append(journal, b"2")
    with pytest.raises(FileNotFoundError, match="segments that were written to are gone"):
        journal.tend()
    assert 2 == journal.take_gone(0)
    folder.mkdir()
    append(journal, b"3")
    journal.tend()
    assert [b"3"] == payloads(folder)


def test_a_file_that_is_deleted_is_the_only_loss(make, tmp_path):
    """Other segments, and what waits for them, are kept."""
    journal = make(segment_size=256)
    append(journal, *numbered(10))
    journal.tend()
    files(tmp_path)[1].unlink()
    with pytest.raises(FileNotFoundError):
        journal.tend()
    assert 3 == journal.take_gone(0)
    append(journal, b"after")
    journal.close()
    assert [*numbered(7), b"after"] == payloads(tmp_path)


def test_a_file_that_is_cut_by_somebody_else_is_given_up(make, tmp_path):
    """It is not written to any more, and nothing behind the cut is touched."""
    journal = make()
    append(journal, b"1")
    journal.tend()
    os.truncate(files(tmp_path)[0], HEADER_SIZE)
    with pytest.raises(FileNotFoundError):
        journal.tend()
    append(journal, b"2")
    journal.close()
    assert (1, [b"2"]) == (journal.take_gone(0), payloads(tmp_path))


@pytest.mark.parametrize("mapped", [True])
def test_a_prepared_file_that_is_deleted_is_prepared_again(make, tmp_path):
    """The folder may have gone with it, so it is told; nothing was in it."""
    journal = make()
    journal.tend()
    files(tmp_path)[0].unlink()
    with pytest.raises(FileNotFoundError, match="segments that were written to are gone"):
        journal.tend()
    journal.tend()
    append(journal, b"1")
    assert [b"1"] == payloads(tmp_path)
    assert (0, 0) == (journal.take_detoured(), journal.take_lost())


def test_closing_on_a_full_disk_says_so_and_counts(make, disk, tmp_path, mapped):
    """What is written is sealed; what could not be is refused aloud and lost."""
    journal = make(segment_size=256)
    journal.tend()
    append(journal, *numbered(5))
    journal.tend()
    disk.trouble = OSError(errno.ENOSPC, "full")
    append(journal, *numbered(15, 5))
    with disk_with(0), pytest.raises(OSError, match=r"full|File too large"):
        journal.close()
    found = payloads(tmp_path)
    assert numbered(len(found)) == found
    # Those that were in files; with a map a second one was prepared.
    assert (14 if mapped else 5) == len(found)
    assert [20 - len(found), 0] == [journal.take_lost(), journal.take_lost()]
    assert not any(segment.cut or segment.damaged for segment in segments(tmp_path))
    with pytest.raises(OSError, match="the journal is closed"):
        append(journal, b"late")
    journal.close()


def test_closing_waits_only_so_long_for_a_disk_that_does_not_answer(make):
    """What is in memory only is counted as lost, once, and nothing more is taken."""
    journal = make()
    append(journal, b"1", b"2")
    held, released = threading.Event(), threading.Event()

    def hang():
        with journal.disk:
            held.set()
            released.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    held.wait()
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError, match="the disk does not answer"):
                journal.close(0.01)
    finally:
        released.set()
        thread.join()
    assert 2 == journal.take_lost()
    with pytest.raises(OSError, match="the journal is closed"):
        append(journal, b"3")


def test_what_one_file_does_not_take_costs_nothing_of_another(make, tmp_path):
    """A record that is too large for what is left of the disk is lost alone when the journal is closed."""
    journal = make(segment_size=256)
    append(journal, b"before", bytes(5000), b"behind it", *numbered(20))
    assert journal.generation > 3
    with disk_with(1000), pytest.raises(OSError, match="File too large"):
        journal.close()
    found = payloads(tmp_path)
    # Those behind it in its file go with it; a file that is written may hold what came before it.
    assert b"before" == found[0]
    assert numbered(20)[-10:] == found[-10:]
    assert 23 - len(found) == journal.take_lost()


@pytest.mark.parametrize("mapped", [True])
def test_a_file_that_somebody_has_copied_by_reference_is_left(make, tmp_path, monkeypatch):
    """Its pages are moved when they are written, which fails on a full disk: another is begun, or prepared."""
    shared = set()
    monkeypatch.setattr("otel_logger_exporters.segment_files.is_shared", lambda file: os.fstat(file).st_ino in shared)
    journal = make(segment_size=512)
    append(journal, b"1")
    journal.tend()
    shared.add(files(tmp_path)[0].stat().st_ino)
    journal.tend()
    append(journal, b"2")
    journal.tend()
    assert [[b"1"], [b"2"]] == [[bytes(r.payload) for r in segment.records] for segment in segments(tmp_path)]
    assert [True, False] == [segment.sealed for segment in segments(tmp_path)]
    prepared = files(tmp_path)[-1]
    shared.add(prepared.stat().st_ino)
    journal.tend()
    assert prepared not in files(tmp_path)
    assert 3 == len(files(tmp_path))
    append(journal, *numbered(30))
    journal.close()
    assert [b"1", b"2", *numbered(30)] == payloads(tmp_path)
    assert 0 == journal.take_lost()


def test_descriptors_are_given_back_whatever_the_disk_does(make, disk, tmp_path):
    """Neither files that could not be made, nor those that were deleted, nor a close that failed leave one open."""
    before = len(os.listdir("/proc/self/fd"))
    journal = make(segment_size=256)
    append(journal, *numbered(3))
    with disk_with(10), pytest.raises(OSError, match="File too large"):
        journal.tend()
    journal.tend()
    files(tmp_path)[0].unlink()
    with pytest.raises(FileNotFoundError):
        journal.tend()
    append(journal, *numbered(20))
    journal.tend()
    disk.trouble = OSError(errno.ENOSPC, "full")
    append(journal, *numbered(40))
    with disk_with(0), pytest.raises(OSError, match=r"full|File too large"):
        journal.close()
    assert before == len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("since", "expected"), [(0, 9), (2, 6), (4, 0)])
def test_ended_segments_that_somebody_has_deleted_are_counted_once(make, tmp_path, since, expected):
    """Those before a number are none: their reader, which is that far, has deleted them."""
    journal = make(segment_size=512)
    for count in range(4):
        append(journal, *[bytes(100)] * 3 if count < 3 else [bytes(100)])
        journal.tend()
    ended = files(tmp_path)[:3]
    assert [3, 3, 3] == [sum(r.kind == Kind.OTLP for r in read_segment(path.read_bytes()).records) for path in ended]
    for path in ended:
        path.unlink()
    journal.tend()
    assert [expected, 0] == [journal.take_gone(since), journal.take_gone(since)]
