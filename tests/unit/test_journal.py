"""A journal keeps what it accepted, in segments that each read alone, and its callers wait for no disk."""

import os

import pytest

from otel_logger_exporters.records import Kind
from otel_logger_exporters.rows import RowReader, Schema
from otel_logger_exporters.segments import HEADER_SIZE, read_segment
from otel_logger_exporters.signals import Signal
from tests.journals import WRITER, files, journal_in, numbered, payloads, segments, touched

SCHEMA = Schema(0, ["loss"], "d")


@pytest.fixture(params=[True, False], ids=["mapped", "plain"])
def mapped(request):
    """Give both kinds of journal."""
    return request.param


@pytest.fixture
def make(tmp_path):
    """Give a function that makes journals of metrics in the test's folder."""
    made = []

    def make_journal(**options):
        made.append(journal_in(tmp_path, **options))
        return made[-1]

    yield make_journal
    for journal in made:
        journal.close()


def append(journal, *payloads):
    """Append each payload as a record of its own that holds one item."""
    for payload in payloads:
        assert journal.append((Kind.OTLP, payload), items=1)


def test_a_mapped_record_is_in_the_file_when_append_returns(make, tmp_path):
    """Once there is a file nothing waits for a thread or for the end: the death of the process loses none."""
    journal = make()
    journal.tend()
    for count, payload in enumerate(numbered(3)):
        append(journal, payload)
        assert numbered(count + 1) == payloads(tmp_path)
    assert (0, 0) == (journal.take_detoured(), journal.waiting_items)


def test_what_waits_in_memory_is_in_the_file_after_the_next_look_at_the_disk(make, tmp_path, mapped):
    """Without a map, and with one before there is a file, it is `tend` that writes, and it writes whole records."""
    journal = make(mapped=mapped)
    append(journal, *numbered(3))
    assert [] == list(tmp_path.iterdir())
    assert 3 == journal.waiting_items
    journal.tend()
    assert numbered(3) == payloads(tmp_path)
    assert 0 == journal.waiting_items
    append(journal, *numbered(3, 3))
    assert (0 if mapped else 3) == journal.waiting_items
    journal.tend()
    assert numbered(6) == payloads(tmp_path)


def test_only_what_should_not_have_is_counted_as_gone_by_way_of_memory(make, mapped):
    """Without a map all of it does, which is no news; the count begins anew with each asking."""
    journal = make(mapped=mapped)
    journal.append((Kind.OTLP, b"x"), (Kind.OTLP, b"y"), items=7)
    journal.keep("resource", Kind.RESOURCE, b"r")
    assert [7 if mapped else 0, 0] == [journal.take_detoured(), journal.take_detoured()]


def test_nothing_is_left_of_a_journal_without_records(make, tmp_path, mapped):
    """A file may be prepared, and is no segment: a signal that records nothing leaves none."""
    journal = make(mapped=mapped)
    journal.tend()
    assert ([bytes(HEADER_SIZE)] if mapped else []) == [path.read_bytes()[:HEADER_SIZE] for path in files(tmp_path)]
    assert [] == segments(tmp_path)
    journal.close()
    assert [] == list(tmp_path.iterdir())


def test_segments_are_sealed_and_numbered(make, tmp_path, mapped):
    """Each full segment has a seal that holds, the next number follows, and none is over its size."""
    journal = make(mapped=mapped, segment_size=256)
    for payload in numbered(50):
        append(journal, payload)
        journal.tend()
    journal.close()
    found = segments(tmp_path)
    assert len(found) > 4
    assert [(True, False, 0)] * len(found) == [(s.sealed, s.damaged, s.cut) for s in found]
    assert list(range(1, len(found) + 1)) == [s.header.sequence for s in found]
    assert {(WRITER, Signal.METRICS)} == {(s.header.writer, s.header.signal) for s in found}
    assert numbered(50) == payloads(tmp_path)
    assert all(path.stat().st_size <= 256 for path in files(tmp_path))


def test_files_are_for_their_owner_alone(make, tmp_path, mapped):
    """What is recorded is nobody else's to read."""
    journal = make(mapped=mapped)
    append(journal, b"x")
    journal.tend()
    assert [0o600] == [path.stat().st_mode & 0o777 for path in files(tmp_path)]


def test_a_file_is_ready_before_it_is_needed(make, tmp_path):
    """The second is prepared when the first is half full, which most never are, later ones as soon as one is begun."""
    journal = make(segment_size=512)
    found = []
    for payload in numbered(33):
        journal.tend()
        found.append((len(segments(tmp_path)), len(files(tmp_path))))
        append(journal, payload)
    # A header of 64 bytes, records of 24, and a seal of 24: 17 records fill a segment, 8 leave less than a half of it.
    assert [(0, 1)] + [(1, 1)] * 7 + [(1, 2)] * 10 + [(2, 3)] * 15 == found
    assert 0 == journal.take_detoured()


def test_recording_touches_no_disk(make, tmp_path, mapped):
    """Neither where a file is ready, nor where one segment ends and the next begins, nor where none is ready."""
    journal = make(mapped=mapped, segment_size=512)
    journal.tend()
    append(journal, *numbered(12))
    journal.tend()
    assert [] == touched(lambda: append(journal, *numbered(50, 12)))
    assert [] == touched(lambda: journal.keep("resource", Kind.RESOURCE, b"r"))
    assert journal.generation > 3
    journal.close()
    assert numbered(62) == payloads(tmp_path)
    assert ["posix.stat"] == touched(lambda: os.stat(tmp_path))


def test_what_comes_before_the_next_file_is_ready_waits_in_its_order(make, tmp_path):
    """It goes by way of memory, which is counted; afterwards records go straight into the file again."""
    journal = make(segment_size=256)
    journal.tend()
    append(journal, *numbered(30))
    assert numbered(7) == payloads(tmp_path)
    journal.tend()
    assert numbered(30) == payloads(tmp_path)
    assert [23, 0] == [journal.take_detoured(), journal.waiting_items]
    append(journal, b"direct")
    assert [*numbered(30), b"direct"] == payloads(tmp_path)
    journal.close()
    assert {(True, False)} == {(segment.sealed, segment.damaged) for segment in segments(tmp_path)}


def test_the_disk_is_looked_at_soon_when_something_waits_for_it(make):
    """Whoever tends is woken when a segment begins, and for each record that has to wait though it should not."""
    woken = []
    journal = make(segment_size=256, wake=lambda: woken.append(journal.generation))
    append(journal, b"waits")
    assert [1, 1] == woken
    journal.tend()
    append(journal, *numbered(6))
    assert [1, 1] == woken
    journal.tend()
    append(journal, b"in the next")
    assert [1, 1, 2] == woken


def test_what_is_kept_stands_at_the_head_of_each_later_segment(make, tmp_path, mapped):
    """Each segment can be read without the others: the latest record of each slot comes first in it."""
    journal = make(mapped=mapped, segment_size=256)
    journal.keep("resource", Kind.RESOURCE, b"early")
    journal.keep("h1", Kind.HYPERPARAMETERS, b"one")
    for payload in numbered(10):
        append(journal, payload)
    journal.tend()
    journal.keep("resource", Kind.RESOURCE, b"late")
    for payload in numbered(30, 10):
        append(journal, payload)
    journal.close()
    heads = [[bytes(record.payload) for record in segment.records[:2]] for segment in segments(tmp_path)]
    changed = heads.index([b"late", b"one"])
    assert [[b"early", b"one"]] * changed + [[b"late", b"one"]] * (len(heads) - changed) == heads
    assert 0 < changed < len(heads) - 1
    assert numbered(40) == payloads(tmp_path)


def test_what_is_kept_is_taken_though_nothing_else_is(make, tmp_path):
    """A resource or hyperparameters explain what was taken before; a refusal names its reason, and ends."""
    journal = make()
    journal.tend()
    journal.refusal = "enough"
    with pytest.raises(OSError, match="enough"):
        append(journal, b"refused")
    journal.keep("resource", Kind.RESOURCE, b"r")
    journal.refusal = None
    append(journal, b"taken")
    assert [[b"r", b"taken"]] == [[bytes(r.payload) for r in segment.records] for segment in segments(tmp_path)]


def test_each_segment_understands_its_rows(make, tmp_path, mapped):
    """A writer that repeats its schema when the generation changes leaves segments that each read alone."""
    journal = make(mapped=mapped, segment_size=256)
    known = None
    for step in range(40):
        appended = False
        while not appended:
            generation = journal.generation
            row = (Kind.ROW, SCHEMA.pack_row(step, step, [step / 2]))
            records = (row,) if generation == known else ((Kind.SCHEMA, SCHEMA.pack()), row)
            appended = journal.append(*records, generation=generation)
        known = generation
        if step % 3 == 0:
            journal.tend()
    journal.close()
    found = segments(tmp_path)
    rows = [[row.step for row in RowReader().rows(segment.records)] for segment in found]
    assert len(found) > 5
    assert all(rows)
    assert list(range(40)) == [step for steps in rows for step in steps]


def test_a_record_for_a_segment_that_has_ended_is_not_appended(make, tmp_path, mapped):
    """With a generation a record goes to that segment or nowhere, and the caller is told."""
    journal = make(mapped=mapped, segment_size=256)
    first = journal.generation
    for payload in numbered(7):
        assert journal.append((Kind.OTLP, payload), generation=first)
    assert first == journal.generation
    assert not journal.append((Kind.OTLP, b"no room"), generation=first)
    assert first + 1 == journal.generation
    assert journal.append((Kind.OTLP, b"next"), generation=first + 1)
    assert not journal.append((Kind.OTLP, b"late"), generation=first)
    journal.close()
    assert [*numbered(7), b"next"] == payloads(tmp_path)
    assert [7, 1] == [len(segment.records) for segment in segments(tmp_path)]


def test_records_that_are_appended_together_stay_together(make, tmp_path, mapped):
    """A schema and its row are in one segment, whatever room there is."""
    for count in range(12):
        folder = tmp_path / str(count)
        folder.mkdir()
        journal = journal_in(folder, mapped=mapped, segment_size=256)
        append(journal, *numbered(count))
        journal.append((Kind.SCHEMA, b"s"), (Kind.ROW, b"r"))
        journal.close()
        kinds = [[record.kind for record in segment.records] for segment in segments(folder)]
        assert [Kind.SCHEMA, Kind.ROW] == kinds[-1][-2:]


@pytest.mark.parametrize("large", ["schema", "head"])
def test_a_row_finds_a_segment_whatever_the_size_of_what_precedes_it(make, tmp_path, mapped, large):
    """Neither a schema nor a head that alone fills a segment moves the row out of the segment of its schema."""
    journal = make(mapped=mapped, segment_size=256)
    schema = Schema(0, ["k" * 900], "d") if large == "schema" else SCHEMA
    if large == "head":
        journal.keep("hyperparameters", Kind.HYPERPARAMETERS, bytes(900))
    known = None
    for step in range(30):
        for _ in range(3):
            generation = journal.generation
            row = (Kind.ROW, schema.pack_row(step, step, [0.5]))
            records = (row,) if generation == known else ((Kind.SCHEMA, schema.pack()), row)
            if journal.append(*records, generation=generation):
                known = generation
                break
        else:
            pytest.fail("the row found no segment")
        journal.tend()
    rows = [row.step for segment in segments(tmp_path) for row in RowReader().rows(segment.records)]
    assert list(range(30)) == rows
    # A head that fills most of a segment must not make a segment of each row.
    assert len(segments(tmp_path)) < 20


def test_a_record_larger_than_a_segment_is_kept_whole(make, tmp_path, mapped):
    """Records never cross segments: one gets a file of its own size, and what follows goes on as before."""
    journal = make(mapped=mapped, segment_size=256)
    expected = [bytes(5), bytes(1000), bytes(6), bytes(7), bytes(3000), b"x"]
    for payload in expected:
        append(journal, payload)
        journal.tend()
    assert expected == payloads(tmp_path)
    journal.close()
    assert expected == payloads(tmp_path)
    assert {(True, False)} == {(segment.sealed, segment.damaged) for segment in segments(tmp_path)}


def test_segments_with_large_records_between_are_in_the_order_of_their_numbers(make, tmp_path):
    """A file that was prepared, and is too small, is given up: its number would come before what precedes it."""
    journal = make(segment_size=256)
    journal.tend()
    append(journal, *numbered(12))
    journal.tend()
    for number in range(12, 20):
        append(journal, b"%010d" % number + bytes(300 * (number % 2)))
        journal.tend()
    # What waits for a large file holds up those for which one is prepared.
    append(journal, b"%010d" % 20 + bytes(300), *numbered(60, 21))
    assert journal.waiting_items > 50
    journal.close()
    assert numbered(81) == [payload[:10] for payload in payloads(tmp_path)]
    assert len(segments(tmp_path)) == len(files(tmp_path))


def test_what_comes_while_the_disk_is_tended_waits_for_the_next_time(make, tmp_path, mapped, monkeypatch):
    """Also where it fills the segment, that was the last one a moment ago, and begins others."""
    journal = make(mapped=mapped, segment_size=256)
    append(journal, b"before")
    store = journal._store

    def store_and_more(segment):
        store(segment)
        monkeypatch.undo()
        append(journal, *numbered(20))

    monkeypatch.setattr(journal, "_store", store_and_more)
    journal.tend()
    journal.close()
    assert [b"before", *numbered(20)] == payloads(tmp_path)


def test_memory_that_is_full_refuses_and_keeps_what_it_holds(make, tmp_path, mapped):
    """While nobody tends the disk later records are refused to their callers; accepted ones are all kept."""
    journal = make(mapped=mapped, segment_size=256, memory_size=1000)
    accepted = []
    for payload in numbered(100):
        try:
            append(journal, payload)
        except OSError:
            continue
        accepted.append(payload)
    assert 35 < len(accepted) < 50
    assert accepted == numbered(len(accepted))
    assert len(accepted) == journal.waiting_items
    journal.tend()
    append(journal, b"goes on")
    journal.close()
    assert [*accepted, b"goes on"] == payloads(tmp_path)
    assert 0 == journal.take_lost()


def test_memory_that_is_full_begins_no_segments(make, tmp_path, mapped):
    """Refused records of growing sizes leave neither heads in memory nor files behind."""
    journal = make(mapped=mapped, segment_size=256, memory_size=1000)
    journal.keep("resource", Kind.RESOURCE, bytes(50))
    while journal.waiting_items < 10:
        append(journal, bytes(10))
    generation = journal.generation
    for size in range(1000, 20_000, 1000):
        with pytest.raises(OSError, match="too slow"):
            append(journal, bytes(size))
    assert generation == journal.generation
    journal.close()
    assert [bytes(10)] * 10 == payloads(tmp_path)


def test_a_record_larger_than_the_memory_is_kept_where_it_is_alone(make, tmp_path, mapped):
    """That it is large is no reason to refuse it; with others it is one too many."""
    journal = make(mapped=mapped, memory_size=1000)
    for _ in range(2):
        journal.keep("resource", Kind.RESOURCE, bytes(10))
        journal.tend()
        append(journal, bytes(5000))
        journal.tend()
    journal.close()
    assert [bytes(5000)] * 2 == payloads(tmp_path)


def test_a_number_that_is_taken_is_left_out(make, tmp_path, mapped):
    """A file that was not written by this journal stays as it is, and the next number is used."""
    for number in (1, 2, 4):
        (tmp_path / f"metrics-0000000{number}.seg").write_bytes(b"foreign")
    journal = make(mapped=mapped, segment_size=256)
    for payload in numbered(12):
        append(journal, payload)
        journal.tend()
    journal.close()
    for number in (1, 2, 4):
        assert b"foreign" == (tmp_path / f"metrics-0000000{number}.seg").read_bytes()
    found = [read_segment((tmp_path / f"metrics-0000000{number}.seg").read_bytes()) for number in (3, 5)]
    assert numbered(12) == [bytes(record.payload) for segment in found for record in segment.records]
    assert [3, 5] == [segment.header.sequence for segment in found]


def test_a_closed_journal_takes_nothing(make, tmp_path, mapped):
    """The caller is told, nothing is begun again, and closing twice is closing once."""
    journal = make(mapped=mapped)
    append(journal, b"1")
    journal.close()
    journal.close()
    with pytest.raises(OSError, match="the journal is closed"):
        append(journal, b"2")
    with pytest.raises(OSError, match="the journal is closed"):
        journal.keep("resource", Kind.RESOURCE, b"r")
    journal.tend()
    journal.close()
    assert [b"1"] == payloads(tmp_path)
    assert [True] == [segment.sealed for segment in segments(tmp_path)]
    assert 1 == len(list(tmp_path.iterdir()))
    assert (0, 0) == (journal.take_lost(), journal.waiting_items)


def test_closing_cuts_files_to_what_is_in_them(make, tmp_path):
    """What was allocated in advance is given back, and what was prepared is deleted."""
    journal = make(segment_size=4096)
    journal.tend()
    append(journal, *numbered(100))
    journal.tend()
    assert [4096, 4096] == [path.stat().st_size for path in files(tmp_path)]
    journal.close()
    assert [HEADER_SIZE + 100 * 24 + 24] == [path.stat().st_size for path in files(tmp_path)]


def test_descriptors_are_given_back(make, tmp_path, mapped):
    """Segments that have ended, and a journal that is closed, hold no file open."""
    before = len(os.listdir("/proc/self/fd"))
    journal = make(mapped=mapped, segment_size=256)
    for payload in numbered(100):
        append(journal, payload)
        journal.tend()
    during = len(os.listdir("/proc/self/fd"))
    journal.close()
    # A map has a descriptor of its own.
    assert (before + 4 if mapped else before + 1, before) == (during, len(os.listdir("/proc/self/fd")))


def test_an_abandoned_journal_writes_nothing_more(make, tmp_path, mapped):
    """What waits is dropped, what is written stays as it is, and more is refused."""
    journal = make(mapped=mapped)
    append(journal, b"1")
    journal.tend()
    if not mapped:
        append(journal, b"waits")
    before = [path.read_bytes() for path in files(tmp_path)]
    journal.abandon()
    journal.abandon()
    with pytest.raises(OSError, match="the journal is closed"):
        append(journal, b"2")
    journal.tend()
    journal.close()
    assert before == [path.read_bytes() for path in files(tmp_path)]


def test_a_moved_journal_goes_on_in_the_new_folder(make, tmp_path, mapped):
    """The open segment and the prepared file move with their folder, and later ones are made there."""
    journal = make(mapped=mapped, segment_size=256)
    (tmp_path / "old").mkdir()
    journal.move(tmp_path / "old")
    append(journal, *numbered(5))
    journal.tend()
    with journal.disk:
        (tmp_path / "old").rename(tmp_path / "new")
        journal.move(tmp_path / "new")
    for payload in numbered(15, 5):
        append(journal, payload)
        journal.tend()
    assert numbered(20) == payloads(tmp_path / "new")
    journal.close()
    assert tmp_path / "new" == journal.folder
    assert numbered(20) == payloads(tmp_path / "new")
    assert len(segments(tmp_path / "new")) == len(files(tmp_path / "new"))
    assert not (tmp_path / "old").exists()


def test_the_size_behind_a_place_counts_what_is_written_and_what_waits(make, tmp_path, mapped):
    """Neither headers count, nor what is allocated and not used, nor what comes before the place."""
    journal = make(mapped=mapped, segment_size=256)
    assert 0 == journal.size_after(1, HEADER_SIZE)
    append(journal, *numbered(3))
    waiting = journal.size_after(1, HEADER_SIZE)
    journal.tend()
    assert 72 == waiting == journal.size_after(1, HEADER_SIZE)
    assert 24 == journal.size_after(1, HEADER_SIZE + 48)
    for payload in numbered(7, 3):
        append(journal, payload)
        journal.tend()
    # The first segment holds seven and its seal.
    assert 10 * 24 + 24 == journal.size_after(1, HEADER_SIZE)
    assert 3 * 24 == journal.size_after(2, HEADER_SIZE)
    assert 0 == journal.size_after(3, HEADER_SIZE)
    # A file that its reader is done with in the very moment.
    (tmp_path / "metrics-00000009.seg").symlink_to(tmp_path / "nowhere")
    assert 3 * 24 == journal.size_after(2, HEADER_SIZE)
    journal.close()
    assert 10 * 24 + 48 == journal.size_after(0, 0)
