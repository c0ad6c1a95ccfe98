"""A reader hands out every record once for each acknowledgement, in order, whatever happens between."""

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.journal import Journal
from otel_logger_exporters.journal_reader import BATCH_BYTES, JournalReader, Position
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.rows import NO_STEP, Schema
from otel_logger_exporters.segments import HEADER_SIZE, segments_of
from otel_logger_exporters.signals import Signal

ALL = 10**9


class _Clock:
    """A clock that stands still."""

    def time_ns(self):
        return 1

    def monotonic(self):
        return 0.0


class RowWriter:
    """Writes rows as the recorder does: the schema once in each segment, then rows of it."""

    def __init__(self, journal, width=1):
        self.journal = journal
        self.schema = Schema(0, [f"k{n}" for n in range(width)], "d" * width)
        self._generation = None

    def write(self, step):
        """Write one row with this step."""
        appended = False
        while not appended:
            generation = self.journal.generation
            if generation != self._generation:
                self.journal.append(Kind.SCHEMA, self.schema.pack(), generation=generation)
                self._generation = generation
            payload = self.schema.pack_row(step, step, [step / 2] * len(self.schema.keys))
            appended = self.journal.append(Kind.ROW, payload, generation=generation)


def journal_in(folder, signal=Signal.METRICS, **options):
    """Return a journal of the folder."""
    return Journal(folder, signal, bytes(16), clock=_Clock(), **options)


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
    journal_in(tmp_path, Signal.LOGS).append(Kind.OTLP, Frame(7, b"body").pack())
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
        journal.append(Kind.SCHEMA, schema.pack())
        for _ in range(2):
            journal.append(Kind.ROW, schema.pack_row(1, NO_STEP, row))
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
    st.lists(st.sampled_from(["write", "read", "read and acknowledge", "reopen", "close"]), max_size=40),
    st.integers(1, 4),
    st.integers(30, 400),
)
def test_whatever_the_order_everything_comes_once_and_in_order(actions, limit, segment_size):
    """Writing, reading, acknowledging, reopening and closing in any order loses, doubles and reorders nothing."""
    with tempfile.TemporaryDirectory() as folder:
        journal = journal_in(Path(folder), segment_size=segment_size)
        writer = RowWriter(journal)
        reader = JournalReader(Path(folder), Signal.METRICS)
        written, received = 0, []
        for action in actions:
            if action == "write":
                writer.write(written)
                written += 1
            elif action == "reopen":
                reader = JournalReader(Path(folder), Signal.METRICS)
            elif action == "close":
                journal.close()
            elif (batch := reader.next_batch(limit)) is not None and action == "read and acknowledge":
                received += steps(batch)
                reader.acknowledge(batch)
        received += [row.step for row in drained(reader, limit)]
        assert list(range(written)) == received
        assert 0 == reader.cut
        journal.close()


def test_nothing_is_lost_while_the_writer_rotates(tmp_path):
    """A reader beside a writer that begins a segment every few rows gets all rows, once and in order."""
    journal = journal_in(tmp_path, segment_size=300)
    writer = RowWriter(journal)
    finished = threading.Event()

    def write():
        for step in range(1500):
            writer.write(step)
        journal.close()
        finished.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader = JournalReader(tmp_path, Signal.METRICS)
    received = []
    while True:
        was_finished = finished.is_set()
        rows = drained(reader, 7)
        received += [row.step for row in rows]
        if was_finished and not rows:
            break
    thread.join()
    assert list(range(1500)) == received
    assert 0 == reader.cut
    assert 1 == len(segments_of(tmp_path, Signal.METRICS))


def test_segments_are_deleted_when_they_are_left(tmp_path):
    """What is acknowledged frees the disk; what is not stays."""
    journal = journal_in(tmp_path, segment_size=100)
    writer = RowWriter(journal)
    for step in range(40):
        writer.write(step)
    before = segments_of(tmp_path, Signal.METRICS)
    reader = JournalReader(tmp_path, Signal.METRICS)
    reader.next_batch(ALL)
    assert before == segments_of(tmp_path, Signal.METRICS)
    drained(reader)
    assert before[-1:] == segments_of(tmp_path, Signal.METRICS)


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
    for frame in frames:
        journal.append(Kind.OTLP, frame.pack())
    reader = JournalReader(tmp_path, Signal.LOGS)
    if small:
        assert [Frame(1, b"small")] * small == list(reader.next_batch(ALL).contents)
    assert frames == drained(reader)


def test_a_batch_is_about_as_large_as_it_should_be(tmp_path):
    """Many records are handed out in batches of the bytes that make one request, and none is lost between them."""
    journal = journal_in(tmp_path, Signal.LOGS)
    frames = [Frame(1, bytes([n]) * 100_000) for n in range(40)]
    for frame in frames:
        journal.append(Kind.OTLP, frame.pack())
    reader = JournalReader(tmp_path, Signal.LOGS)
    assert 10 == len(reader.next_batch(ALL).contents)
    assert frames == drained(reader)


def test_schemas_and_resources_alone_are_no_batch(tmp_path):
    """Records that are not sent by themselves are passed over, many or large as they may be."""
    journal = journal_in(tmp_path)
    journal.keep("hyperparameters", Kind.HYPERPARAMETERS, bytes(2 * BATCH_BYTES))
    journal.append(Kind.SCHEMA, Schema(0, ["a"], "d").pack())
    reader = JournalReader(tmp_path, Signal.METRICS)
    assert reader.next_batch(ALL) is None
    journal.append(Kind.ROW, Schema(0, ["a"], "d").pack_row(1, 2, [0.5]))
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


def test_a_torn_tail_is_read_when_it_is_whole(tmp_path):
    """What a writer has written in part is waited for, and neither skipped nor counted as damage."""
    journal = journal_in(tmp_path, Signal.LOGS)
    journal.append(Kind.OTLP, Frame(1, b"whole").pack())
    record = pack_record(Kind.OTLP, Frame(1, b"in two parts").pack())
    ((_, path),) = segments_of(tmp_path, Signal.LOGS)
    reader = JournalReader(tmp_path, Signal.LOGS)
    for cut in range(len(record)):
        content = path.read_bytes()
        with path.open("ab") as file:
            file.write(record[:cut])
        assert [Frame(1, b"whole")] == list(reader.next_batch(ALL).contents)
        path.write_bytes(content)
    with path.open("ab") as file:
        file.write(record)
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
    journal.append(Kind.OTLP, Frame(1, b"x").pack())
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
