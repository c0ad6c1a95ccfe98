"""A signal handler that logs, raises or closes in the midst of a call harms neither that nor the journal."""

from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from otel_logger_exporters import journal as journal_module
from otel_logger_exporters import records, segment_files, segments
from otel_logger_exporters.records import Kind
from tests.interruptions import interrupted
from tests.journals import files, journal_in, payloads
from tests.journals import segments as segments_in

CODE = (journal_module, records, segment_files, segments)


def append(journal, *payloads):
    """Append each payload as a record of its own that holds one item."""
    for payload in payloads:
        journal.append((Kind.OTLP, payload), items=1)


def _direct(folder):
    """There is room in the file."""
    folder.mkdir()
    journal = journal_in(folder, segment_size=256)
    journal.keep("resource", Kind.RESOURCE, b"r")
    append(journal, b"first")
    journal.tend()
    return journal


def _switch(folder):
    """The segment is full, and the next file is prepared."""
    journal = _direct(folder)
    fill(journal)
    journal.tend()
    return journal


def _memory(folder):
    """There is no file yet."""
    journal = _direct(folder)
    fill(journal)
    append(journal, b"waits")
    return journal


def _memory_switch(folder):
    """There is no file yet, and what waits has filled a segment."""
    journal = _memory(folder)
    fill(journal)
    return journal


def _full(folder):
    """There is no file yet, and memory is full."""
    journal = _memory(folder)
    journal._memory_size = 0
    return journal


def fill(journal):
    """Append until another record of this size would begin a segment."""
    while journal._segments[-1].fits(24):
        append(journal, b"filling up")


STATES = {made.__name__: made for made in (_direct, _switch, _memory, _memory_switch, _full)}


@pytest.fixture(params=STATES.values(), ids=STATES)
def state(request):
    """Give a function that makes a journal in each of its states."""
    return request.param


def check(folder, journal, before):
    """Hold a journal that was interrupted against what there was before; return what it has besides, once closed."""
    journal._memory_size = 10**6
    journal.tend()
    journal.tend()
    # Anything else would keep records from the file for ever, or out of memory.
    assert 0 == journal._memory == journal.waiting_items
    append(journal, b"usable")
    is_direct = payloads(folder)[-1:] == [b"usable"]
    journal.close()
    found = payloads(folder)
    assert before == found[: len(before)]
    assert b"usable" == found[-1]
    assert is_direct
    assert {(True, False, 0)} == {(s.sealed, s.damaged, s.cut) for s in segments_in(folder)}
    assert {b"r"} == {bytes(segment.records[0].payload) for segment in segments_in(folder)}
    assert len(segments_in(folder)) == len(files(folder))
    return found[len(before) : -1]


def places(folder, state, handle, call):
    """Interrupt a call in a new journal at each place; give the journal, what was in it, and what was raised."""
    for place in count(1):
        made = folder / str(place)
        journal = state(made)
        written = [*payloads(made), *_waiting(journal)]
        handled = []

        def handler(journal=journal, handled=handled):
            handled.append(True)
            handle(journal)

        raised = None
        try:
            interrupted(partial(call, journal), place, handler, *CODE)
        except (OSError, KeyboardInterrupt) as error:
            raised = error
        if not handled:
            journal.close()
            # So many at least are there in the shortest way.
            assert place > 5
            return
        yield made, journal, written, raised


def _waiting(journal):
    """Return the payloads that are in memory only."""
    data = b"".join(data for segment in journal._segments for data, _, _ in segment.waiting)
    return [bytes(record.payload) for record in records.read_records(data) if record.kind == Kind.OTLP]


def test_a_signal_handler_may_log_in_the_midst_of_a_call(tmp_path, state):
    """Wherever it interrupts, both records are kept, once, or refused, aloud or counted; nothing else changes."""
    for folder, journal, before, raised in places(
        tmp_path, state, lambda j: _quietly(append, j, b"handler"), lambda j: append(j, b"call")
    ):
        found = check(folder, journal, before)
        if state is _full:
            # The last place is behind the refusal of the one, and so before that of the other.
            assert [] == found
            assert isinstance(raised, OSError)
        else:
            assert raised is None
            assert [b"call", b"handler"] == sorted(found)
            assert 0 == journal.take_lost()


def _quietly(action, *arguments):
    with suppress(OSError):
        action(*arguments)


def test_a_signal_handler_may_log_in_the_midst_of_what_is_kept(tmp_path, state):
    """Both are taken, wherever it interrupts: what is kept is at the head of what follows, or the record behind it."""
    for folder, journal, before, _ in places(
        tmp_path,
        state,
        lambda j: _quietly(j.append, (Kind.OTLP, b"handler")),
        lambda j: j.keep("resource", Kind.RESOURCE, b"r"),
    ):
        found = check(folder, journal, before)
        assert found == ([] if state is _full else [b"handler"])


def test_a_signal_handler_may_log_while_the_disk_is_tended(tmp_path, state):
    """Where a logger is made or closed the main thread tends, and it is the one that handles signals."""
    for folder, journal, before, raised in places(
        tmp_path, state, lambda j: _quietly(append, j, b"handler"), lambda j: j.tend()
    ):
        found = check(folder, journal, before)
        assert raised is None
        assert found == [b"handler"] or (state is _full and found == [])


def test_an_exception_of_a_signal_handler_leaves_the_journal_usable(tmp_path, state):
    """Wherever it comes from, the record is there or is not, and those before and after it are, under true seals."""

    def interrupt(_):
        raise KeyboardInterrupt

    kept = []
    for folder, journal, before, raised in places(tmp_path, state, interrupt, lambda j: append(j, b"call")):
        assert isinstance(raised, KeyboardInterrupt)
        kept.append(check(folder, journal, before))
    assert [] == kept[0]
    assert [b"call"] == kept[-1] or state is _full
    assert {0, 1} >= {len(found) for found in kept}


def test_a_signal_handler_may_close_the_journal_in_the_midst_of_a_call(tmp_path, state):
    """The record is in the file, or its caller is told that it is not; those before it are, under true seals."""
    for folder, journal, before, raised in places(tmp_path, state, lambda j: j.close(), lambda j: append(j, b"call")):
        with pytest.raises(OSError, match=r"closed"):
            append(journal, b"late")
        journal.tend()
        journal.close()
        found = payloads(folder)
        assert before == found[: len(before)]
        # A handler that comes when the record is in the file finds nothing to refuse.
        assert found[len(before) :] == ([b"call"] if raised is None else [])
        assert {(True, False, 0)} == {(s.sealed, s.damaged, s.cut) for s in segments_in(folder)}
        assert len(segments_in(folder)) == len(files(folder))
