"""A reader hands out every record once for each acknowledgement, in order, whatever happens between."""

import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.journal_reader import BATCH_BYTES, JournalReader, Position, end_of_segment
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.rows import NO_STEP, Schema
from otel_logger_exporters.segments import HEADER_SIZE, segments_of
from otel_logger_exporters.signals import Signal
from tests.journals import files, journal_in, numbered, tending

ALL = 10**9


@pytest.fixture(params=[True, False], ids=["mapped", "plain"])
def mapped(request):
    """Give both kinds of journal."""
    return request.param


class RowWriter:
    """Writes rows as the recorder does, the schema once in each segment, then rows of it, and all to the disk."""

    def __init__(self, journal, width=1, *, tends=True):
        self.journal = journal
        self.tends = tends
        self.schema = Schema(0, [f"k{n}" for n in range(width)], "d" * width)
        self._generation = None

    def write(self, step):
        """Write one row with this step."""
        row = (Kind.ROW, self.schema.pack_row(step, step, [step / 2] * len(self.schema.keys)))
        appended = False
        while not appended:
            generation = self.journal.generation
            records = (row,) if generation == self._generation else ((Kind.SCHEMA, self.schema.pack()), row)
            appended = self.journal.append(*records, generation=generation)
        self._generation = generation
        if self.tends:
            self.journal.tend()


def write(journal, *frames):
    """Append frames, and write them to the disk."""
    for frame in frames:
        journal.append((Kind.OTLP, frame.pack()))
    journal.tend()


def steps(batch):
    """Return the steps of a batch's rows."""
    return [] if batch is None else [row.step for row in batch.contents]


def drained(reader, max_records=ALL):
    """Return all that the reader has to hand out, acknowledged."""
    contents = []
    while (batch := reader.next_batch(max_records)) is not None:
        contents += batch.contents
        reader.acknowledge(batch)
    return contents


def test_a_batch_comes_again_until_it_is_acknowledged(tmp_path):
    """The same rows come in the same batch, fewer for a smaller limit, and the next ones after the acknowledgement."""
    writer = RowWriter(journal_in(tmp_path))
    for step in range(10):
        writer.write(step)
    reader = JournalReader(tmp_path, Signal.METRICS)
    first = reader.next_batch(6)
    assert (list(range(6)), 6) == (steps(first), first.items)
    assert first == reader.next_batch(6)
    assert [0, 1] == steps(reader.next_batch(2))
    assert list(range(10)) == steps(reader.next_batch(ALL))
    reader.acknowledge(first)
    assert [6, 7, 8, 9] == steps(reader.next_batch(ALL))


def test_items_are_values_of_rows_and_what_frames_say(tmp_path):
    """A row counts as many items as it has values, a frame as many as it holds."""
    RowWriter(journal_in(tmp_path), width=3).write(1)
    write(journal_in(tmp_path, Signal.LOGS), Frame(7, b"body"))
    assert 3 == JournalReader(tmp_path, Signal.METRICS).next_batch(ALL).items
    batch = JournalReader(tmp_path, Signal.LOGS).next_batch(ALL)
    assert ((Frame(7, b"body"),), 7) == (batch.contents, batch.items)


def test_nothing_comes_of_an_empty_folder(tmp_path):
    """A journal that is not there yet has no batch, and has one when it is."""
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert reader.next_batch(ALL) is None
    RowWriter(journal_in(tmp_path)).write(1)
    assert [1] == steps(reader.next_batch(ALL))


def test_the_position_survives_the_reader(tmp_path):
    """Another reader goes on in the midst of a segment, and understands its rows by the schemas before them."""
    writer = RowWriter(journal_in(tmp_path))
    for step in range(10):
        writer.write(step)
    reader = JournalReader(tmp_path, Signal.METRICS)
    reader.acknowledge(reader.next_batch(4))
    again = JournalReader(tmp_path, Signal.METRICS)
    assert [4, 5, 6, 7, 8, 9] == steps(again.next_batch(ALL))
    assert {("k0",)} == {row.keys for row in again.next_batch(ALL).contents}


def test_a_schema_that_comes_later_does_not_explain_earlier_rows(tmp_path):
    """When an identifier is used again, a batch that is read again, in whole or in part, has the same keys."""
    journal = journal_in(tmp_path)
    schemas = [Schema(0, ["a"], "d"), Schema(0, ["b", "c"], "dd"), Schema(0, ["d"], "q")]
    values = [[0.5], [1.5, 2.5], [3]]
    for schema, row in zip(schemas, values, strict=True):
        journal.append((Kind.SCHEMA, schema.pack()))
        for _ in range(2):
            journal.append((Kind.ROW, schema.pack_row(1, NO_STEP, row)))
    journal.tend()
    expected = [("a",), ("a",), ("b", "c"), ("b", "c"), ("d",), ("d",)]
    for first in range(6):
        reader = JournalReader(tmp_path, Signal.METRICS)
        for limit in (ALL, 1, 3, ALL):
            batch = reader.next_batch(limit)
            assert expected[first:][:limit] == [row.keys for row in batch.contents]
        reader.acknowledge(reader.next_batch(1))
        assert expected[first + 1 :] == [row.keys for row in (reader.next_batch(ALL) or batch).contents][: 5 - first]


@settings(deadline=None, max_examples=60)
@given(
    st.booleans(),
    st.lists(st.sampled_from(["write", "read", "read and acknowledge", "reopen", "tend"]), max_size=40),
    st.integers(1, 4),
    st.integers(30, 400),
)
def test_whatever_the_order_everything_comes_once_and_in_order(mapped, actions, limit, segment_size):
    """Writing, reading, acknowledging and reopening in any order loses, doubles and reorders nothing."""
    with tempfile.TemporaryDirectory() as folder:
        journal = journal_in(Path(folder), mapped=mapped, segment_size=segment_size)
        writer = RowWriter(journal, tends=False)
        reader = JournalReader(Path(folder), Signal.METRICS)
        written, received = 0, []
        for action in actions:
            if action == "write":
                writer.write(written)
                written += 1
            elif action == "reopen":
                reader = JournalReader(Path(folder), Signal.METRICS)
            elif action == "tend":
                journal.tend()
            elif (batch := reader.next_batch(limit)) is not None and action == "read and acknowledge":
                received += steps(batch)
                reader.acknowledge(batch)
        journal.close()
        received += [row.step for row in drained(reader, limit)]
        assert list(range(written)) == received
        assert 0 == reader.cut
        assert 0 == journal.take_lost()


def test_nothing_is_lost_while_the_writer_rotates(tmp_path, mapped):
    """A reader beside a writer that begins a segment every few rows gets all rows, once and in order."""
    journal = journal_in(tmp_path, mapped=mapped, segment_size=300)
    writer = RowWriter(journal, tends=False)
    finished = threading.Event()

    def write():
        for step in range(250):
            writer.write(step)
        journal.close()
        finished.set()

    thread = threading.Thread(target=write)
    reader = JournalReader(tmp_path, Signal.METRICS)
    received = []
    with tending(journal):
        thread.start()
        while True:
            was_finished = finished.is_set()
            rows = drained(reader, 7)
            received += [row.step for row in rows]
            if was_finished and not rows:
                break
        thread.join()
    assert list(range(250)) == received
    assert (0, 0) == (reader.cut, journal.take_lost())
    assert 1 == len(files(tmp_path))


def test_segments_are_deleted_when_they_are_left(tmp_path):
    """What is acknowledged frees the disk; what is not stays."""
    journal = journal_in(tmp_path, segment_size=100)
    writer = RowWriter(journal)
    for step in range(40):
        writer.write(step)
    before = files(tmp_path)
    reader = JournalReader(tmp_path, Signal.METRICS)
    reader.next_batch(ALL)
    assert before == files(tmp_path)
    drained(reader)
    # The one that is written to, and the one that is prepared.
    assert before[-2:] == files(tmp_path)


def test_discard_deletes_a_journal_that_is_read_to_its_end(tmp_path):
    """Of a delivered journal nothing is left."""
    journal = journal_in(tmp_path)
    RowWriter(journal).write(1)
    journal.close()
    reader = JournalReader(tmp_path, Signal.METRICS)
    drained(reader)
    reader.discard()
    assert [] == list(tmp_path.iterdir())


def test_discard_keeps_what_is_not_acknowledged(tmp_path):
    """One row that waits is reason enough to keep the journal and the mark in it."""
    journal = journal_in(tmp_path)
    writer = RowWriter(journal)
    writer.write(1)
    writer.write(2)
    journal.close()
    reader = JournalReader(tmp_path, Signal.METRICS)
    reader.acknowledge(reader.next_batch(1))
    reader.discard()
    assert [2] == steps(JournalReader(tmp_path, Signal.METRICS).next_batch(ALL))


@pytest.mark.parametrize("small", [0, 3])
def test_a_record_larger_than_a_batch_comes_alone(tmp_path, small):
    """A record of several times the size of a batch is read whole, after the small ones before it."""
    journal = journal_in(tmp_path, Signal.LOGS)
    large = Frame(1, bytes(3 * BATCH_BYTES + 5))
    frames = [Frame(1, b"small")] * small + [large, Frame(1, b"last")]
    write(journal, *frames)
    reader = JournalReader(tmp_path, Signal.LOGS)
    if small:
        assert [Frame(1, b"small")] * small == list(reader.next_batch(ALL).contents)
    assert frames == drained(reader)


def test_a_batch_is_about_as_large_as_it_should_be(tmp_path):
    """Many records are handed out in batches of the bytes that make one request, and none is lost between them."""
    journal = journal_in(tmp_path, Signal.LOGS, mapped=False, segment_size=2**23)
    frames = [Frame(1, bytes([n]) * 100_000) for n in range(40)]
    write(journal, *frames)
    reader = JournalReader(tmp_path, Signal.LOGS)
    assert 10 == len(reader.next_batch(ALL).contents)
    assert frames == drained(reader)


def test_schemas_and_resources_alone_are_no_batch(tmp_path):
    """Records that are not sent by themselves are passed over, many or large as they may be."""
    journal = journal_in(tmp_path)
    journal.keep("hyperparameters", Kind.HYPERPARAMETERS, bytes(2 * BATCH_BYTES))
    journal.append((Kind.SCHEMA, Schema(0, ["a"], "d").pack()))
    journal.tend()
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert reader.next_batch(ALL) is None
    journal.append((Kind.ROW, Schema(0, ["a"], "d").pack_row(1, 2, [0.5])))
    assert [2] == steps(reader.next_batch(ALL))


def test_damage_in_an_older_segment_is_counted_and_passed(tmp_path):
    """The rows before the damage and those of the next segment come; the bytes between are counted, once."""
    journal = journal_in(tmp_path, segment_size=200)
    writer = RowWriter(journal)
    for step in range(20):
        writer.write(step)
    (_, path), *_ = segments_of(tmp_path, Signal.METRICS)
    data = bytearray(path.read_bytes())
    row = len(pack_record(Kind.ROW, writer.schema.pack_row(0, 0, [0.0])))
    begin = HEADER_SIZE + len(pack_record(Kind.SCHEMA, writer.schema.pack())) + 2 * row
    data[begin + 9] ^= 1
    path.write_bytes(data)
    in_segment = (len(data) - 24 - begin) // row + 2
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert [0, 1, *range(in_segment, 20)] == [row.step for row in drained(reader)]
    assert len(data) - begin == reader.cut


def test_a_torn_tail_is_read_when_it_is_whole(tmp_path, mapped):
    """What a writer has written in part is waited for, and neither skipped nor counted as damage."""
    journal = journal_in(tmp_path, Signal.LOGS, mapped=mapped)
    write(journal, Frame(1, b"whole"))
    record = pack_record(Kind.OTLP, Frame(1, b"in two parts").pack())
    ((_, path),) = segments_of(tmp_path, Signal.LOGS)
    end = end_of_segment(path)
    reader = JournalReader(tmp_path, Signal.LOGS)
    content = path.read_bytes()
    for cut in range(len(record)):
        path.write_bytes(content[:end] + record[:cut] + content[end + cut :])
        assert [Frame(1, b"whole")] == list(reader.next_batch(ALL).contents)
    path.write_bytes(content[:end] + record + content[end + len(record) :])
    assert [Frame(1, b"whole"), Frame(1, b"in two parts")] == drained(reader)
    assert 0 == reader.cut


@pytest.mark.parametrize("mark", [b"", b"\0\0\0\0", b"nonsense", b"1", b"\xff 2", b"1 12"])
def test_an_unreadable_mark_sends_all_again(tmp_path, mark):
    """Sending twice is harmless, losing is not."""
    writer = RowWriter(journal_in(tmp_path))
    for step in range(4):
        writer.write(step)
    reader = JournalReader(tmp_path, Signal.METRICS)
    reader.acknowledge(reader.next_batch(2))
    (tmp_path / "metrics.ack").write_bytes(mark)
    assert [0, 1, 2, 3] == steps(JournalReader(tmp_path, Signal.METRICS).next_batch(ALL))


def test_a_reader_begins_at_the_oldest_segment_there_is(tmp_path):
    """Without a mark the first segment in the folder is the first to be read, whatever its number."""
    journal = journal_in(tmp_path, segment_size=30)
    writer = RowWriter(journal)
    for step in range(3):
        writer.write(step)
    segments_of(tmp_path, Signal.METRICS)[0][1].unlink()
    assert [1, 2] == [row.step for row in drained(JournalReader(tmp_path, Signal.METRICS))]


def test_a_mark_whose_segment_is_gone_leads_to_the_next(tmp_path):
    """A process that died between deleting a segment and marking the next one lost nothing by it."""
    journal = journal_in(tmp_path, segment_size=30)
    writer = RowWriter(journal)
    for step in range(3):
        writer.write(step)
    reader = JournalReader(tmp_path, Signal.METRICS)
    reader.acknowledge(reader.next_batch(1))
    segments_of(tmp_path, Signal.METRICS)[0][1].unlink()
    assert [1, 2] == [row.step for row in drained(JournalReader(tmp_path, Signal.METRICS))]


def test_the_mark_is_the_place_after_what_was_acknowledged(tmp_path):
    """The file holds segment and offset in decimal digits, as docs/segment-format.md says."""
    journal = journal_in(tmp_path, Signal.LOGS)
    write(journal, Frame(1, b"x"))
    reader = JournalReader(tmp_path, Signal.LOGS)
    batch = reader.next_batch(ALL)
    assert Position(1, HEADER_SIZE + 24) == batch.end
    reader.acknowledge(batch)
    assert b"1 88\n" == (tmp_path / "logs.ack").read_bytes()


def test_a_moved_reader_goes_on_in_the_new_folder(tmp_path):
    """Renaming the folder changes neither what is next nor where the mark is."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    journal = journal_in(old, segment_size=60)
    writer = RowWriter(journal)
    for step in range(6):
        writer.write(step)
    reader = JournalReader(old, Signal.METRICS)
    batch = reader.next_batch(3)
    old.rename(new)
    journal.move(new)
    reader.move(new)
    reader.acknowledge(batch)
    rest = list(range(len(batch.contents), 6))
    assert rest == [row.step for row in drained(reader)]
    assert not old.exists()


def test_what_was_never_written_is_not_read_over_and_over(tmp_path):
    """Looking whether anything has come costs some kilobytes, and not the megabytes of zeros that a map ends with."""
    journal = journal_in(tmp_path, segment_size=2**20)
    writer = RowWriter(journal)
    for step in range(100):
        writer.write(step)
    reader = JournalReader(tmp_path, Signal.METRICS)
    drained(reader)
    assert files(tmp_path)[0].stat().st_size == 2**20
    assert bytes_read(lambda: reader.next_batch(ALL)) < 2**15
    writer.write(100)
    assert [100] == steps(reader.next_batch(ALL))


def bytes_read(action):
    """Return how many bytes this process reads from files while it carries out `action`."""

    def read():
        with open("/proc/self/io", "rb") as file:
            return int(file.readline().split()[1])

    before = read()
    idle = read() - before
    before = read()
    action()
    return read() - before - idle


@pytest.mark.parametrize("content", [b"", b"\0" * 10, b"\0" * 4096], ids=["empty", "short", "zeros"])
def test_a_file_that_is_prepared_is_no_successor(tmp_path, content):
    """The segment before it is still written to, and not left: not even in the moment when that file is empty."""
    journal = journal_in(tmp_path)
    writer = RowWriter(journal)
    writer.write(1)
    reader = JournalReader(tmp_path, Signal.METRICS)
    drained(reader)
    (tmp_path / "metrics-00000002.seg").write_bytes(content)
    assert reader.next_batch(ALL) is None
    writer.write(2)
    assert [2] == [row.step for row in drained(reader)]
    assert 2 == len(files(tmp_path))


def test_a_reader_may_be_done_with_a_segment_before_its_writer_is(tmp_path, mapped):
    """A segment that has ended and is delivered is deleted, before it was sealed; that is no loss, and no deletion."""
    journal = journal_in(tmp_path, mapped=mapped, segment_size=256)
    for payload in numbered(7):
        write(journal, Frame(1, payload[4:]))
    reader = JournalReader(tmp_path, Signal.METRICS)
    journal.append((Kind.OTLP, Frame(1, b"next").pack()), items=1)
    if not mapped:
        return
    assert 8 == len(drained(reader))
    assert not (tmp_path / "metrics-00000001.seg").exists()
    journal.tend()
    write(journal, Frame(1, b"last"))
    assert 0 == journal.take_lost()
    assert [Frame(1, b"last")] == drained(reader)
    journal.close()


def test_bytes_that_are_unread_are_counted_without_what_was_never_written(tmp_path, mapped):
    """Rows, schemas and seals count; zeros, prepared files and what is acknowledged do not."""
    journal = journal_in(tmp_path, mapped=mapped, segment_size=512)
    writer = RowWriter(journal)
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert 0 == reader.unread
    schema, row = (len(pack_record(kind, p)) for kind, p in _packed(writer.schema))
    for step in range(8):
        writer.write(step)
    assert schema + 8 * row == reader.unread
    batch = reader.next_batch(3)
    reader.acknowledge(batch)
    assert 5 * row == reader.unread
    writer.write(8)
    journal.tend()
    assert 5 * row + 24 + schema + row == reader.unread
    drained(reader)
    assert 0 == reader.unread
    journal.close()
    assert 0 == reader.unread


def _packed(schema):
    return (Kind.SCHEMA, schema.pack()), (Kind.ROW, schema.pack_row(0, 0, [0.0]))


def test_damage_behind_zeros_is_counted(tmp_path):
    """A row of which only the last part was copied is no record; it is told when its segment has a successor."""
    journal = journal_in(tmp_path, segment_size=256)
    writer = RowWriter(journal)
    writer.write(0)
    (path,) = files(tmp_path)
    end = end_of_segment(path)
    content = bytearray(path.read_bytes())
    content[end + 40 : end + 45] = b"torn!"
    path.write_bytes(content)
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert [0] == [row.step for row in drained(reader)]
    assert (0, end + 45) == (reader.cut, end_of_segment(path))
    (tmp_path / "metrics-00000002.seg").write_bytes(content[:end])
    assert [0] == [row.step for row in drained(reader)]
    assert 45 == reader.cut


def test_a_file_that_vanishes_meanwhile_is_no_segment(tmp_path):
    """Another process may be done with it: nothing is unread in it, and the next is gone on with."""
    journal = journal_in(tmp_path, segment_size=256)
    writer = RowWriter(journal)
    for step in range(9):
        writer.write(step)
    journal.close()
    reader = JournalReader(tmp_path, Signal.METRICS)
    first, *_ = files(tmp_path)
    os.unlink(first)
    first.symlink_to(tmp_path / "nowhere")
    steps_left = [row.step for row in drained(reader)]
    assert steps_left == list(range(steps_left[0], 9))


@pytest.mark.parametrize("size", [0, 24, HEADER_SIZE, HEADER_SIZE + 5, 100_000])
def test_the_end_of_a_segment_is_behind_its_last_record(tmp_path, size):
    """Whatever zeros follow (there is always room for a seal), and where its own last bytes are zeros; tears count."""
    path = tmp_path / "metrics-00000001.seg"
    head = journal_in(tmp_path)._header(type("Segment", (), {"created_ns": 1}), 1)
    # Of so many records the marks of some end with zeros.
    records = [pack_record(Kind.OTLP, b"%d" % number) for number in range(600)]
    some = [record for record in records if record.endswith(b"\0")]
    assert some
    path.write_bytes(bytes(size))
    assert min(size, HEADER_SIZE) == min(size, end_of_segment(path))
    for record in (*some, records[0]):
        path.write_bytes(head + record + bytes(size))
        assert HEADER_SIZE + len(record) == end_of_segment(path)
        path.write_bytes(head + record + b"\0\0\0torn" + bytes(size))
        assert HEADER_SIZE + len(record) + 7 == end_of_segment(path)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_batch_knows_whether_anything_follows_it(tmp_path, mapped):
    """It is the last unless the limit, the size of a batch or a further segment stands between it and more."""
    journal = journal_in(tmp_path, mapped=mapped, segment_size=4096)
    writer = RowWriter(journal)
    for step in range(10):
        writer.write(step)
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert [True, False, True] == [reader.next_batch(limit).is_last for limit in (11, 9, 11)]
    for step in range(10, 200):
        writer.write(step)
    flags = []
    while (batch := reader.next_batch(ALL)) is not None:
        flags.append(batch.is_last)
        reader.acknowledge(batch)
    assert [*[False] * (len(flags) - 1), True] == flags
    assert len(flags) > 2
