"""Segment files take records whole or not at all, and are closed without harm whatever has become of them."""

import errno
import os

import pytest

from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.segment_files import MappedFile, PlainFile, is_there
from otel_logger_exporters.segments import HEADER_SIZE, SegmentHeader, read_segment
from otel_logger_exporters.signals import Signal
from tests.journals import disk_with, in_child

HEADER = SegmentHeader(Signal.LOGS, 1, 5, bytes(16)).pack()
CAPACITY = 10_000


@pytest.fixture
def path(tmp_path):
    """Give the path of a file that is not there yet."""
    return tmp_path / "logs-00000001.seg"


@pytest.fixture(params=[True, False], ids=["mapped", "plain"])
def make(request, path):
    """Give a function that makes a file of either kind with a header in it; in the end they are closed."""
    made = []

    def make_file():
        made.append(MappedFile(path, 1, CAPACITY) if request.param else PlainFile(path, 1))
        made[-1].append(HEADER)
        return made[-1]

    yield make_file
    for file in made:
        file.abandon()


def record(payload):
    """Return the bytes of a record."""
    return pack_record(Kind.OTLP, payload)


def read(path):
    """Return the payloads in a file, and whether a seal holds, or None where there is none."""
    segment = read_segment(path.read_bytes())
    sealed = not segment.damaged if segment.sealed else None
    return [bytes(record.payload) for record in segment.records], sealed


def test_a_new_mapped_file_is_zeros_that_the_disk_has_room_for(path):
    """All of it is allocated, so that no page can be missing when it is written to."""
    file = MappedFile(path, 1, CAPACITY)
    assert bytes(CAPACITY) == path.read_bytes()
    assert path.stat().st_blocks * 512 >= CAPACITY
    file.abandon()


@pytest.mark.parametrize("capacity", [1, 4096, 4097, 2**18, 2**18 + 1, 3 * 2**18])
def test_a_mapped_file_has_the_capacity_that_was_asked_for(path, capacity):
    """Whatever pages and chunks it is made of."""
    file = MappedFile(path, 1, capacity)
    file.append(b"\1" * capacity)
    assert capacity == path.stat().st_size == file.size
    file.finish()
    assert b"\1" * capacity == path.read_bytes()


def test_what_is_appended_can_be_read_at_once(make, path):
    """From the file, as another process does; what is counted is what is in it."""
    file = make()
    file.append(record(b"a") + record(b"b"), 2, 7)
    file.append(record(b"c"), 1, 3)
    assert ([b"a", b"b", b"c"], None) == read(path)
    assert (HEADER_SIZE + 3 * len(record(b"a")), 10, False) == (file.size, file.items, file.is_gone)


def test_a_finished_file_is_sealed_and_cut_to_what_is_in_it(make, path):
    """The seal holds, and nothing follows it."""
    file = make()
    file.append(record(b"a"), 1)
    file.append(record(b"b"), 1)
    size = file.size
    file.finish()
    assert ([b"a", b"b"], True) == read(path)
    assert size + 24 == path.stat().st_size


def test_a_file_without_records_is_sealed_too(make, path):
    """A head alone is a whole segment."""
    make().finish()
    assert ([], True) == read(path)


def test_an_abandoned_file_stays_as_it_is(make, path):
    """Nothing is written or cut, and closing again closes nothing: the number may be another file's by then."""
    file = make()
    file.append(record(b"a"), 1)
    before = path.read_bytes()
    file.abandon()
    descriptors = [os.open(path, os.O_RDONLY) for _ in range(4)]
    file.abandon()
    for descriptor in descriptors:
        os.close(descriptor)
    assert before == path.read_bytes()


def test_a_closed_file_refuses_what_is_appended(make, path):
    """The error is one of the disk's, which callers expect."""
    file = make()
    file.finish()
    before = path.read_bytes()
    with pytest.raises(OSError, match=r"\[Errno 9\]"):
        file.append(record(b"late"), 1)
    assert before == path.read_bytes()


def test_a_file_of_the_same_name_is_not_touched(make, path):
    """Segments are created by their writer alone."""
    path.write_bytes(b"foreign")
    with pytest.raises(FileExistsError):
        make()
    assert b"foreign" == path.read_bytes()


def test_a_mapped_file_for_which_there_is_no_room_leaves_nothing(path):
    """The caller is told now, and not by a signal when a page is touched."""
    for size in (0, 100, 4096, CAPACITY - 1):
        with disk_with(size), pytest.raises(OSError, match="File too large"):
            MappedFile(path, 1, CAPACITY)
        assert not path.exists()


def test_a_file_that_is_deleted_is_gone(make, path):
    """What is written to it is found by nobody; it can be closed as any other."""
    file = make()
    path.unlink()
    assert file.is_gone
    file.append(record(b"a"), 1)
    file.finish()
    assert not path.exists()


@pytest.mark.parametrize(("number", "is_lasting"), [(errno.ESTALE, True), (errno.ENOTDIR, True), (errno.EIO, False)])
def test_a_file_that_its_server_has_forgotten_is_gone(make, path, monkeypatch, number, is_lasting):
    """So it is on NFS when another machine has deleted it, and for ever; any other trouble may pass."""
    file = make()

    def stat(*_):
        raise OSError(number, "no")

    with monkeypatch.context() as patch:
        # No local file system says so.
        patch.setattr("otel_logger_exporters.segment_files.os.stat", stat)
        if is_lasting:
            assert (True, False) == (file.is_gone, is_there(path))
        else:
            with pytest.raises(OSError, match="no"):
                assert file.is_gone
            assert is_there(path)
    assert (False, True) == (file.is_gone, is_there(path))


def test_a_file_that_is_moved_is_not_gone(make, path):
    """The folder is renamed when the run is known."""
    file = make()
    path.rename(path.with_suffix(".moved"))
    assert not file.is_gone


def test_a_file_that_is_cut_by_somebody_else_is_gone_and_does_not_kill(make, path):
    """To touch a mapped page that is not there any more is a SIGBUS: its closing touches none."""

    def cut_and_close():
        file = make()
        file.append(record(bytes(6000)), 1)
        os.truncate(path, 10)
        assert file.is_gone
        file.finish()

    assert 0 == in_child(cut_and_close)


def test_a_plain_record_that_is_cut_by_a_full_disk_is_taken_back(path):
    """Whatever room there is for a part of it; those before and after are read, under a seal that holds."""
    file = PlainFile(path, 1)
    file.append(HEADER)
    file.append(record(b"before"), 1)
    for room in range(len(record(b"refused"))):
        with disk_with(file.size + room), pytest.raises(OSError, match="File too large"):
            file.append(record(b"refused"), 1)
        assert ([b"before"], None) == read(path)
        assert file.size == path.stat().st_size
    file.append(record(b"after"), 1)
    file.finish()
    assert ([b"before", b"after"], True) == read(path)


def test_a_torn_record_that_cannot_be_taken_back_is_taken_back_before_the_next(path, monkeypatch):
    """A disk that refuses even to cut the file is asked again, so that nothing is written behind a tear."""

    def refuse(*_):
        raise OSError("no")

    file = PlainFile(path, 1)
    file.append(HEADER)
    file.append(record(b"before"), 1)
    with disk_with(file.size + 9), monkeypatch.context() as patch:
        # Nothing that a test can do to a descriptor makes a cut fail after a write that did not.
        patch.setattr("otel_logger_exporters.segment_files.os.ftruncate", refuse)
        with pytest.raises(OSError, match="File too large"):
            file.append(record(b"refused"), 1)
        with pytest.raises(OSError, match="no"):
            file.append(record(b"refused too"), 1)
    file.append(record(b"after"), 1)
    assert ([b"before", b"after"], None) == read(path)
    file.abandon()


def test_a_plain_seal_that_finds_no_room_costs_no_record(path):
    """The segment stays without its seal, and reads as well."""
    file = PlainFile(path, 1)
    file.append(HEADER)
    file.append(record(b"a"), 1)
    with disk_with(file.size + 3):
        file.finish()
    assert ([b"a"], None) == read(path)
    assert file.size == path.stat().st_size


def test_a_mapped_file_without_room_for_a_seal_is_closed_without_one(path):
    """A journal leaves that room, and need not."""
    file = MappedFile(path, 1, HEADER_SIZE + 16 + 23)
    file.append(HEADER)
    file.append(record(b"a"), 1)
    file.finish()
    assert ([b"a"], None) == read(path)


def test_a_seal_covers_what_an_interrupted_append_has_left_half_done(path):
    """Bytes that were copied, and not counted because a signal handler raised, are written over."""
    file = MappedFile(path, 1, CAPACITY)
    file.append(HEADER)
    file.append(record(b"a"), 1)
    written = file.written
    file.append(record(b"longer than what follows it"), 1)
    file.written = written
    file.append(record(b"b"), 1)
    file.finish()
    assert ([b"a", b"b"], True) == read(path)
