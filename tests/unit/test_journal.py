"""A journal keeps what it accepted: across segments, threads, a disk that fills, and a rename of its folder."""

import resource
import threading
from contextlib import contextmanager

import pytest

from otel_logger_exporters.journal import Journal
from otel_logger_exporters.records import RECORD_OVERHEAD, Kind
from otel_logger_exporters.rows import RowReader, Schema
from otel_logger_exporters.segments import HEADER_SIZE, read_segment, segments_of
from otel_logger_exporters.signals import Signal

WRITER = bytes(range(16))
SCHEMA = Schema(0, ["loss"], "d")


class _Clock:
    """A clock that stands still."""

    def time_ns(self):
        return 1_700_000_000_000_000_000

    def monotonic(self):
        return 0.0


@pytest.fixture(params=[False, True], ids=["direct", "buffered"])
def buffered(request):
    """Give both kinds of journal."""
    return request.param


@pytest.fixture
def make(tmp_path):
    """Give a function that makes journals of metrics in the test's folder."""
    made = []

    def make_journal(**options):
        made.append(Journal(tmp_path, Signal.METRICS, WRITER, clock=_Clock(), **options))
        return made[-1]

    yield make_journal
    for journal in made:
        journal.close()


@contextmanager
def disk_with(size):
    """Let no file of this process grow over `size` bytes: a write that would is cut there, as by a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def segments(folder):
    """Return the segments of metrics in a folder, oldest first."""
    return [read_segment(path.read_bytes()) for _, path in segments_of(folder, Signal.METRICS)]


def payloads(folder, kind=Kind.OTLP):
    """Return the payloads of a kind in all segments."""
    return [bytes(r.payload) for segment in segments(folder) for r in segment.records if r.kind == kind]


def numbered(count, start=0):
    """Return distinct payloads of ten bytes."""
    return [b"%010d" % number for number in range(start, start + count)]


def test_a_record_is_in_the_file_when_append_returns(make, tmp_path):
    """Without a buffer nothing waits for a flush or for the end: the death of the process loses none."""
    journal = make()
    for count, payload in enumerate(numbered(3)):
        journal.append(Kind.OTLP, payload)
        assert numbered(count + 1) == payloads(tmp_path)


def test_a_buffered_record_is_in_the_file_after_a_flush(make, tmp_path):
    """With a buffer it is the flush that writes, and it writes whole records."""
    journal = make(buffered=True)
    for payload in numbered(3):
        journal.append(Kind.OTLP, payload)
    assert [] == payloads(tmp_path)
    journal.flush()
    assert numbered(3) == payloads(tmp_path)


def test_a_buffer_is_written_when_it_fills_a_segment(make, tmp_path):
    """Without any flush, memory holds a segment at most."""
    journal = make(buffered=True, segment_size=256)
    for payload in numbered(100):
        journal.append(Kind.OTLP, payload)
    assert 256 >= (100 - len(payloads(tmp_path))) * (10 + RECORD_OVERHEAD)


def test_nothing_is_created_before_the_first_record(make, tmp_path):
    """A signal that records nothing leaves no file."""
    journal = make()
    journal.flush()
    journal.close()
    assert [] == list(tmp_path.iterdir())


def test_segments_are_sealed_and_numbered(make, tmp_path, buffered):
    """Each full segment has a seal that holds, the next number follows, and none is much over its size."""
    journal = make(buffered=buffered, segment_size=200)
    for payload in numbered(50):
        journal.append(Kind.OTLP, payload)
    journal.close()
    found = segments(tmp_path)
    assert len(found) > 4
    assert [(True, False, 0)] * len(found) == [(s.sealed, s.damaged, s.cut) for s in found]
    assert list(range(1, len(found) + 1)) == [s.header.sequence for s in found]
    assert {(WRITER, Signal.METRICS)} == {(s.header.writer, s.header.signal) for s in found}
    assert numbered(50) == payloads(tmp_path)
    assert all(path.stat().st_size <= HEADER_SIZE + 200 + 24 + 32 for _, path in segments_of(tmp_path, Signal.METRICS))


def test_what_is_kept_stands_at_the_head_of_each_later_segment(make, tmp_path, buffered):
    """Each segment can be read without the others: the latest record of each slot comes first in it."""
    journal = make(buffered=buffered, segment_size=120)
    journal.keep("resource", Kind.RESOURCE, b"early")
    journal.keep("h1", Kind.HYPERPARAMETERS, b"one")
    for payload in numbered(10):
        journal.append(Kind.OTLP, payload)
    journal.keep("resource", Kind.RESOURCE, b"late")
    for payload in numbered(30, 10):
        journal.append(Kind.OTLP, payload)
    journal.close()
    heads = [[bytes(record.payload) for record in segment.records[:2]] for segment in segments(tmp_path)]
    changed = heads.index([b"late", b"one"])
    assert [[b"early", b"one"]] * changed + [[b"late", b"one"]] * (len(heads) - changed) == heads
    assert 0 < changed < len(heads) - 1
    assert numbered(40) == payloads(tmp_path)


def test_each_segment_understands_its_rows(make, tmp_path, buffered):
    """A writer that repeats its schema when the generation changes leaves segments that each read alone."""
    journal = make(buffered=buffered, segment_size=150)
    known = None
    for step in range(40):
        appended = False
        while not appended:
            generation = journal.generation
            if known != generation and journal.append(Kind.SCHEMA, SCHEMA.pack(), generation=generation):
                known = generation
            appended = journal.append(Kind.ROW, SCHEMA.pack_row(step, step, [step / 2]), generation=generation)
    journal.close()
    found = segments(tmp_path)
    rows = [[row.step for row in RowReader().rows(segment.records)] for segment in found]
    assert len(found) > 5
    assert all(rows)
    assert list(range(40)) == [step for steps in rows for step in steps]


def test_a_record_for_a_segment_that_has_ended_is_not_appended(make, tmp_path):
    """With a generation a record goes to that segment, though it is full, or nowhere, and the caller is told."""
    journal = make(segment_size=10)
    first = journal.generation
    assert journal.append(Kind.OTLP, b"fills it", generation=first)
    assert first + 1 == journal.generation
    assert journal.append(Kind.OTLP, b"follows", generation=first)
    assert journal.append(Kind.OTLP, b"next", generation=first + 1)
    assert not journal.append(Kind.OTLP, b"late", generation=first)
    assert [b"fills it", b"follows", b"next"] == payloads(tmp_path)
    assert [2, 1] == [len(segment.records) for segment in segments(tmp_path)[:2]]


@pytest.mark.parametrize("large", ["schema", "head"])
def test_a_row_finds_a_segment_whatever_the_size_of_what_precedes_it(make, tmp_path, large):
    """Neither a schema nor a head that alone fills a segment moves the row out of the segment of its schema."""
    journal = make(segment_size=100)
    schema = Schema(0, ["k" * 300], "d") if large == "schema" else SCHEMA
    if large == "head":
        journal.keep("hyperparameters", Kind.HYPERPARAMETERS, bytes(300))
    for step in range(8):
        for _ in range(3):
            generation = journal.generation
            journal.append(Kind.SCHEMA, schema.pack(), generation=generation)
            if journal.append(Kind.ROW, schema.pack_row(step, step, [0.5]), generation=generation):
                break
        else:
            pytest.fail("the row found no segment")
    rows = [row.step for segment in segments(tmp_path) for row in RowReader().rows(segment.records)]
    assert list(range(8)) == rows


def test_a_record_larger_than_a_segment_is_kept_whole(make, tmp_path, buffered):
    """Records never cross segments."""
    journal = make(buffered=buffered, segment_size=100)
    expected = [bytes(5), bytes(1000), bytes(6), bytes(7)]
    for payload in expected:
        journal.append(Kind.OTLP, payload)
    journal.close()
    assert expected == payloads(tmp_path)


def test_what_a_full_disk_refuses_hides_nothing(make, tmp_path):
    """A record cut by a full disk is refused to the caller and taken back; those before and after it are read."""
    journal = make()
    journal.append(Kind.OTLP, b"before")
    (size,) = (path.stat().st_size for _, path in segments_of(tmp_path, Signal.METRICS))
    for room in range(25):
        with disk_with(size + room), pytest.raises(OSError, match="File too large"):
            journal.append(Kind.OTLP, b"refused, with room for a part of it")
        assert [b"before"] == payloads(tmp_path)
    journal.append(Kind.OTLP, b"after")
    journal.close()
    (segment,) = segments(tmp_path)
    assert [b"before", b"after"] == payloads(tmp_path)
    assert (True, False, 0) == (segment.sealed, segment.damaged, segment.cut)


def test_a_torn_record_that_cannot_be_taken_back_is_taken_back_before_the_next(make, tmp_path, monkeypatch):
    """A disk that refuses even to cut the file is asked again, so that nothing is written behind a tear."""

    def refuse(*_):
        raise OSError("no")

    journal = make()
    journal.append(Kind.OTLP, b"before")
    (size,) = (path.stat().st_size for _, path in segments_of(tmp_path, Signal.METRICS))
    with disk_with(size + 9), monkeypatch.context() as patch:
        # Nothing that a test can do to a descriptor makes a cut fail after a write that did not.
        patch.setattr("otel_logger_exporters.journal.os.ftruncate", refuse)
        with pytest.raises(OSError, match="File too large"):
            journal.append(Kind.OTLP, b"refused")
        with pytest.raises(OSError, match="no"):
            journal.append(Kind.OTLP, b"refused too")
    journal.append(Kind.OTLP, b"after")
    assert [b"before", b"after"] == payloads(tmp_path)


def test_a_buffer_outlasts_a_full_disk(make, tmp_path):
    """What is buffered while the disk refuses it is written when it does not any more."""
    journal = make(buffered=True)
    journal.append(Kind.OTLP, b"a")
    journal.flush()
    (size,) = (path.stat().st_size for _, path in segments_of(tmp_path, Signal.METRICS))
    for payload in numbered(20):
        journal.append(Kind.OTLP, payload)
        with disk_with(size + 7), pytest.raises(OSError, match="File too large"):
            journal.flush()
    assert [b"a"] == payloads(tmp_path)
    journal.close()
    (segment,) = segments(tmp_path)
    assert [b"a", *numbered(20)] == payloads(tmp_path)
    assert (True, False, 0) == (segment.sealed, segment.damaged, segment.cut)


def test_a_full_buffer_refuses_and_keeps_what_it_holds(make, tmp_path):
    """When the disk is full for longer, later records are refused to their callers; accepted ones are all kept."""
    journal = make(buffered=True, segment_size=100)
    accepted = []
    journal.append(Kind.OTLP, b"first")
    journal.flush()
    with disk_with(HEADER_SIZE + 30):
        for payload in numbered(50):
            try:
                journal.append(Kind.OTLP, payload)
            except OSError:
                continue
            accepted.append(payload)
    assert 0 < len(accepted) < 10
    for payload in numbered(20, 100):
        journal.append(Kind.OTLP, payload)
    journal.close()
    assert [b"first", *accepted, *numbered(20, 100)] == payloads(tmp_path)
    assert not any(segment.damaged or segment.cut for segment in segments(tmp_path))


@pytest.mark.parametrize("room", [0, 10, HEADER_SIZE, HEADER_SIZE + 5])
def test_a_segment_that_cannot_be_begun_leaves_no_file(make, tmp_path, room):
    """A disk too full for a head is not filled with empty files; the next record that finds room begins the segment."""
    journal = make(segment_size=60)
    journal.keep("resource", Kind.RESOURCE, b"r")
    journal.append(Kind.OTLP, b"before")
    journal.append(Kind.OTLP, b"fills it")
    with disk_with(room):
        for payload in numbered(20):
            with pytest.raises(OSError, match="File too large"):
                journal.append(Kind.OTLP, payload)
    assert 1 == len(list(tmp_path.iterdir()))
    journal.append(Kind.OTLP, b"after")
    assert [b"before", b"fills it", b"after"] == payloads(tmp_path)
    assert [b"r", b"r"] == payloads(tmp_path, Kind.RESOURCE)
    assert [1, 2] == [segment.header.sequence for segment in segments(tmp_path)]


def test_a_seal_that_finds_no_room_costs_no_record(make, tmp_path):
    """The segment stays without its seal, and the record that was to begin the next one is kept."""
    journal = make(segment_size=30)
    journal.append(Kind.OTLP, bytes(100))
    (size,) = (path.stat().st_size for _, path in segments_of(tmp_path, Signal.METRICS))
    with disk_with(size + 3):
        journal.append(Kind.OTLP, b"next")
    assert [bytes(100), b"next"] == payloads(tmp_path)
    assert [(False, 0), (False, 0)] == [(s.sealed, s.cut) for s in segments(tmp_path)]


def test_a_number_that_is_taken_is_left_out(make, tmp_path):
    """A file that was not written by this journal stays as it is: told once, then the next number is used."""
    journal = make()
    (tmp_path / "metrics-00000001.seg").write_bytes(b"foreign")
    with pytest.raises(FileExistsError):
        journal.append(Kind.OTLP, b"refused")
    journal.append(Kind.OTLP, b"kept")
    assert b"foreign" == (tmp_path / "metrics-00000001.seg").read_bytes()
    assert b"kept" == bytes(read_segment((tmp_path / "metrics-00000002.seg").read_bytes()).records[0].payload)


def test_closing_on_a_full_disk_says_so_and_starts_clean_after_it(make, tmp_path):
    """What the buffer held is refused aloud, and does not turn up in a segment that cannot explain it."""
    journal = make(buffered=True)
    journal.append(Kind.OTLP, b"lost")
    with disk_with(HEADER_SIZE + 3), pytest.raises(OSError, match="File too large"):
        journal.close()
    journal.append(Kind.OTLP, b"after")
    journal.close()
    assert [b"after"] == payloads(tmp_path)
    assert [1, 2] == [segment.header.sequence for segment in segments(tmp_path)]


def test_appending_after_close_begins_a_new_segment(make, tmp_path, buffered):
    """A closed journal goes on where it is asked to, with what is kept at its head."""
    journal = make(buffered=buffered)
    journal.keep("resource", Kind.RESOURCE, b"r")
    journal.append(Kind.OTLP, b"1")
    journal.close()
    journal.close()
    journal.append(Kind.OTLP, b"2")
    journal.close()
    assert [[b"r", b"1"], [b"r", b"2"]] == [[bytes(r.payload) for r in s.records] for s in segments(tmp_path)]


def test_an_abandoned_journal_writes_nothing_more(make, tmp_path):
    """The child of a fork leaves file and buffer to its parent, whose records follow undisturbed."""
    journal = make(buffered=True)
    journal.append(Kind.OTLP, b"1")
    journal.flush()
    journal.append(Kind.OTLP, b"the parent's")
    journal.abandon()
    journal.flush()
    journal.close()
    (segment,) = segments(tmp_path)
    assert [b"1"] == payloads(tmp_path)
    assert not segment.sealed


def test_a_moved_journal_goes_on_in_the_new_folder(make, tmp_path, buffered):
    """The open segment moves with its folder, and later ones are begun there."""
    journal = make(buffered=buffered, segment_size=60)
    (tmp_path / "old").mkdir()
    journal.move(tmp_path / "old")
    for payload in numbered(5):
        journal.append(Kind.OTLP, payload)
    with journal.lock:
        (tmp_path / "old").rename(tmp_path / "new")
        journal.move(tmp_path / "new")
    for payload in numbered(5, 5):
        journal.append(Kind.OTLP, payload)
    journal.close()
    assert tmp_path / "new" == journal.folder
    assert numbered(10) == payloads(tmp_path / "new")


def test_threads_lose_and_double_nothing(make, tmp_path, buffered):
    """Records of several threads are all there, once, each thread's in its order, under seals that hold."""
    journal = make(buffered=buffered, segment_size=2000)

    def write(thread):
        for payload in numbered(500, thread * 1000):
            journal.append(Kind.OTLP, payload)
            if payload.endswith(b"00"):
                journal.keep("slot", Kind.RESOURCE, payload)

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    found = payloads(tmp_path)
    for thread in range(4):
        assert numbered(500, thread * 1000) == [p for p in found if int(p) // 1000 == thread]
    assert 2000 == len(found)
    assert not any(segment.damaged or not segment.sealed or segment.cut for segment in segments(tmp_path))
