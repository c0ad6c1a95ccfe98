"""Whatever happens to a journal, its files hold what it accepted: in order, once, and nothing else."""

import errno
import os
import shutil
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind
from otel_logger_exporters.signals import Signal
from tests.journals import disk_with, journal_in, payloads, segments

SEGMENT_SIZE = 512
MEMORY_SIZE = 1500

ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 600)),
    st.tuples(st.sampled_from(["append", "append", "append"]), st.integers(0, 40)),
    st.tuples(st.just("keep"), st.integers(0, 400)),
    st.tuples(st.just("tend"), st.none()),
    st.tuples(st.just("crash"), st.none()),
    # No file grows over so many bytes, or none may be made.
    st.tuples(st.just("full"), st.integers(0, 700)),
    st.tuples(st.sampled_from(["refused", "room", "room"]), st.none()),
)


class _Model:
    """A journal of logs, and beside it a list of what it must hold."""

    def __init__(self, folder, *, mapped):
        self.folder = folder
        self.mapped = mapped
        self.accepted = []
        self.stored = 0
        self.kept = None
        self.limit = None
        self.was_full = False
        self.is_refused = False
        self.journal = journal_in(
            folder,
            Signal.LOGS,
            mapped=mapped,
            segment_size=SEGMENT_SIZE,
            memory_size=MEMORY_SIZE,
            make_room=self._make_room,
        )

    def _make_room(self, size):
        if self.is_refused:
            raise OSError(errno.ENOSPC, "no room")

    def carry_out(self, action, argument):
        """Carry out one action, and look at what it should have left."""
        if action == "append":
            self._append(argument)
        elif action == "keep":
            self.kept = b"%d" % len(self.accepted) + bytes(argument)
            with suppress(OSError):
                self.journal.keep("resource", Kind.RESOURCE, self.kept)
        elif action == "tend":
            self._tend()
        elif action == "crash":
            self.look()
        elif action == "full":
            self.limit, self.was_full = argument, True
        elif action == "refused":
            self.is_refused = True
        else:
            self.limit, self.is_refused = None, False

    def _append(self, size):
        frame = Frame(1, b"%d " % len(self.accepted) + bytes(size))
        waiting = self.journal.waiting_items
        with disk_with(0):
            try:
                assert self.journal.append((Kind.OTLP, frame.pack()), items=1)
            except OSError:
                assert self.journal._memory > 0
                return
        if self.mapped and self.journal.waiting_items == waiting:
            # It went into a file, and so did all before it.
            assert 0 == waiting
            self.stored += 1
        self.accepted.append(frame)

    def _tend(self):
        with nullcontext() if self.limit is None else disk_with(self.limit):
            try:
                self.journal.tend()
            except OSError:
                assert self.is_refused or self.limit is not None
                return
        self.stored = len(self.accepted)
        assert 0 == self.journal.waiting_items

    def look(self):
        """Read the files as they are, as after a crash."""
        found = [Frame.unpack(memoryview(payload)) for payload in payloads(self.folder, signal=Signal.LOGS)]
        assert self.accepted[: len(found)] == found
        assert len(found) >= len(self.accepted) - self.journal.waiting_items
        if self.journal.waiting_items == 0:
            assert self.accepted == found
        has_head = False
        for segment in segments(self.folder, Signal.LOGS):
            assert (False, 0) == (segment.damaged, segment.cut)
            kinds = [record.kind for record in segment.records]
            assert not has_head or not kinds or kinds[0] == Kind.RESOURCE
            has_head |= Kind.RESOURCE in kinds

    def close(self):
        """Close the journal on a disk that has room."""
        self.is_refused = False
        self.journal.close()
        self.look()
        assert self.accepted == [
            Frame.unpack(memoryview(payload)) for payload in payloads(self.folder, signal=Signal.LOGS)
        ]
        # A full disk may have had no room for a seal.
        assert self.was_full or all(segment.sealed for segment in segments(self.folder, Signal.LOGS))
        assert 0 == self.journal.take_lost()


@settings(deadline=None, max_examples=60)
@given(st.booleans(), st.lists(ACTIONS, max_size=40))
def test_a_journal_holds_what_it_accepted(mapped, actions):
    """Appending, tending, crashing and disks that are full in any order lose, double, invent and reorder nothing."""
    with tempfile.TemporaryDirectory() as folder:
        model = _Model(Path(folder), mapped=mapped)
        before = len(os.listdir("/proc/self/fd"))
        try:
            for action, argument in actions:
                model.carry_out(action, argument)
        finally:
            model.close()
        assert before == len(os.listdir("/proc/self/fd"))


@settings(deadline=None, max_examples=60)
@given(st.booleans(), st.lists(ACTIONS, max_size=40), st.integers(1, 5), st.data())
def test_a_reader_beside_a_journal_hands_out_what_it_holds(mapped, actions, limit, data):
    """With reading, acknowledging and reopening between, all is handed out once, in order, and nothing is cut."""
    with tempfile.TemporaryDirectory() as folder:
        model = _Model(Path(folder), mapped=mapped)
        model.look = lambda: None
        reader, received = JournalReader(Path(folder), Signal.LOGS), []
        try:
            for action, argument in actions:
                model.carry_out(action, argument)
                if (batch := reader.next_batch(limit)) is not None and data.draw(st.booleans()):
                    received += batch.contents
                    reader.acknowledge(batch)
                if data.draw(st.integers(0, 9)) == 0:
                    reader = JournalReader(Path(folder), Signal.LOGS)
        finally:
            model.is_refused = False
            model.journal.close()
        while (batch := reader.next_batch(limit)) is not None:
            received += batch.contents
            reader.acknowledge(batch)
        assert model.accepted == received
        assert 0 == reader.cut
        reader.discard()
        assert [] == os.listdir(folder)


@settings(deadline=None, max_examples=40)
@given(st.booleans(), st.lists(st.sampled_from(["append", "append", "tend", "delete"]), max_size=40))
def test_deleted_folders_are_the_only_loss(mapped, actions):
    """However often somebody deletes the folder, what is neither in it nor recorded before that is noticed is kept."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "folder"
        folder.mkdir()
        journal = journal_in(folder, Signal.LOGS, mapped=mapped, segment_size=SEGMENT_SIZE, memory_size=10**6)
        accepted, deleted, unnoticed, lost = 0, set(), set(), 0
        for action in [*actions, "tend", "tend"]:
            if action == "append":
                journal.append((Kind.OTLP, b"%d" % accepted), items=1)
                if not folder.exists():
                    unnoticed.add(accepted)
                accepted += 1
            elif action == "tend":
                try:
                    journal.tend()
                except FileNotFoundError:
                    folder.mkdir(exist_ok=True)
                lost += journal.take_gone(0)
            elif folder.exists():
                deleted |= set(map(int, payloads(folder, signal=Signal.LOGS)))
                unnoticed |= set(range(accepted)) - deleted
                shutil.rmtree(folder)
        journal.close()
        found = [int(payload) for payload in payloads(folder, signal=Signal.LOGS)]
        assert sorted(set(found)) == found
        assert not deleted & set(found)
        missing = set(range(accepted)) - deleted - set(found)
        assert missing <= unnoticed
        assert len(missing) <= lost <= len(missing) + len(deleted)
