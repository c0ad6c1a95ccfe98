"""A journal in the midst of which something happens: threads, signal handlers that log or raise, and forks."""

import os
import signal
import threading
from contextlib import contextmanager, suppress
from itertools import count

import pytest

from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.segments import HEADER_SIZE, read_segment
from otel_logger_exporters.signals import Signal
from tests.journals import files, fork, in_child, journal_in, numbered, payloads, segments, tending

PATIENCE = 10.0


def append(journal, *payloads):
    """Append each payload as a record of its own that holds one item."""
    for payload in payloads:
        journal.append((Kind.OTLP, payload), items=1)


def switching(folder, handler):
    """Return a journal whose segment is full, with a file prepared for the next, and have `handler` called there."""
    calls = []
    journal = journal_in(folder, segment_size=256, wake=lambda: calls and calls.pop()(journal))
    append(journal, *numbered(7))
    journal.tend()
    calls.append(handler)
    return journal


def test_a_record_for_a_segment_that_ends_by_what_it_interrupts_is_counted(tmp_path):
    """Its writer took for granted that its schema is in there, and it is not in the next."""
    journal = switching(tmp_path, lambda j: j.append((Kind.ROW, b"row"), items=3, generation=j.generation - 1))
    journal.keep("resource", Kind.RESOURCE, b"r")
    append(journal, b"after")
    journal.close()
    assert [*numbered(7), b"after"] == payloads(tmp_path)
    assert [] == payloads(tmp_path, Kind.ROW)
    assert 3 == journal.take_lost()


def test_a_handler_that_logs_where_a_segment_begins_is_last(tmp_path):
    """Its record comes behind that of the call that it interrupts, which a reader expects first."""
    journal = switching(tmp_path, lambda j: append(j, b"handler"))
    append(journal, b"call")
    journal.close()
    assert [*numbered(7), b"call", b"handler"] == payloads(tmp_path)
    assert {(True, False)} == {(segment.sealed, segment.damaged) for segment in segments(tmp_path)}


def test_what_handlers_have_left_when_another_raises_is_taken_later(tmp_path):
    """Nothing that was accepted is forgotten, though the call to which it was left has ended by an exception."""
    calls = [lambda: append(journal, b"left 1", b"left 2", b"left 3"), lambda: None, _interrupt]
    journal = journal_in(tmp_path, wake=lambda: calls.pop(0)() if calls else None)
    with pytest.raises(KeyboardInterrupt):
        append(journal, b"call")
    assert [] == calls
    journal.close()
    assert [b"call", b"left 1", b"left 2", b"left 3"] == payloads(tmp_path)


def _interrupt():
    raise KeyboardInterrupt


def test_a_handler_that_logs_to_another_journal_is_not_held_up(tmp_path):
    """Each journal is interrupted on its own."""
    other = journal_in(tmp_path, Signal.LOGS)
    journal = journal_in(tmp_path, wake=lambda: append(other, b"other"))
    append(journal, b"call")
    journal.close()
    other.close()
    assert [b"call"] == payloads(tmp_path)
    assert b"other" in payloads(tmp_path, signal=Signal.LOGS)


def test_a_signal_that_really_comes(tmp_path):
    """Handlers that log at intervals of microseconds lose, double and reorder nothing of either."""
    journal = journal_in(tmp_path, segment_size=4096)
    journal.tend()
    handled = []

    def handle(*_):
        handled.append(b"h%09d" % len(handled))
        append(journal, handled[-1])

    before = signal.signal(signal.SIGVTALRM, handle)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1e-4, 1e-4)
    calls = 0
    try:
        while len(handled) < 5 and calls < 10**6:
            append(journal, b"c%09d" % calls)
            calls += 1
            if calls % 100 == 0:
                journal.tend()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    journal.close()
    found = payloads(tmp_path)
    assert [b"c%09d" % number for number in range(calls)] == [p for p in found if p.startswith(b"c")]
    assert handled == [p for p in found if p.startswith(b"h")]


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_threads_lose_and_double_nothing(tmp_path, mapped):
    """Records of several threads beside one that tends are all there, once, each thread's in its order, under seals."""
    journal = journal_in(tmp_path, mapped=mapped, segment_size=2000)

    def write(thread):
        for payload in numbered(500, thread * 1000):
            append(journal, payload)
            if payload.endswith(b"00"):
                journal.keep("slot", Kind.RESOURCE, payload)

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    with tending(journal):
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
    assert 0 == journal.take_lost() == journal.waiting_items


def test_what_is_accepted_while_another_thread_closes_is_kept_or_refused(tmp_path):
    """No record falls between: what `append` took is in a file, or is counted as lost."""
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        journal = journal_in(folder, segment_size=256, mapped=number % 2 == 0)
        accepted = []
        begun = threading.Event()

        def write(journal=journal, accepted=accepted, begun=begun):
            with suppress(OSError):
                for number in count():
                    append(journal, b"%d" % number)
                    accepted.append(b"%d" % number)
                    begun.set()

        thread = threading.Thread(target=write)
        thread.start()
        assert begun.wait(PATIENCE)
        journal.close()
        thread.join()
        assert accepted == payloads(folder)


@contextmanager
def held_up(name, **options):
    """Give a journal in the midst of which another thread is held up, where its option `name` is called."""
    held, released = threading.Event(), threading.Event()

    def hold(*_):
        held.set()
        released.wait(PATIENCE)

    folder = options.pop("folder")
    journal = journal_in(folder, segment_size=4096, **{name: hold}, **options)

    def go():
        append(journal, b"thread")
        journal.tend()

    thread = threading.Thread(target=go)
    thread.start()
    assert held.wait(PATIENCE)
    try:
        yield journal
    finally:
        released.set()
        thread.join()


def in_the_child(journal):
    """Do what a child may do with a journal that it inherited."""
    journal.abandon()
    with pytest.raises(OSError, match="the journal is closed"):
        append(journal, b"child")
    with pytest.raises(OSError, match="the journal is closed"):
        journal.keep("resource", Kind.RESOURCE, b"child")
    journal.tend()
    journal.close()
    assert (0, 0) == (journal.waiting_items, journal.take_lost())
    assert journal.generation > 0


@pytest.mark.parametrize("place", ["wake", "make_room"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_a_fork_in_the_midst_of_another_threads_row(tmp_path, mapped, place):
    """The child waits for no lock that the thread held, and leaves alone what the parent goes on with."""
    with held_up(place, folder=tmp_path, mapped=mapped) as journal:
        assert 0 == in_child(lambda: in_the_child(journal))
    append(journal, b"parent")
    journal.tend()
    append(journal, *numbered(300))
    journal.close()
    assert [b"thread", b"parent", *numbered(300)] == payloads(tmp_path)
    assert {(True, False)} == {(segment.sealed, segment.damaged) for segment in segments(tmp_path)}


def test_a_fork_while_a_file_is_written_to(tmp_path):
    """A child that dies, ends or abandons leaves the parent's map as it is, whatever it inherited of it."""
    journal = journal_in(tmp_path, segment_size=4096)
    journal.tend()
    append(journal, *numbered(3))
    assert 0 == in_child(lambda: None)
    assert 0 == in_child(lambda: in_the_child(journal))
    append(journal, *numbered(3, 3))
    journal.close()
    assert numbered(6) == payloads(tmp_path)


def test_a_fork_in_the_midst_of_the_callers_own_row(tmp_path):
    """A signal handler may fork too: in the child the call that it interrupted is refused, in the parent it goes on."""
    codes = []

    def fork_in_the_midst(journal):
        codes.append(fork())
        if codes == [0]:
            journal.abandon()

    journal = switching(tmp_path, fork_in_the_midst)
    try:
        append(journal, b"call")
    except OSError:
        os._exit(7)
    finally:
        if codes == [0]:
            os._exit(1)
    assert 7 == os.waitstatus_to_exitcode(os.waitpid(codes[0], 0)[1])
    journal.close()
    assert [*numbered(7), b"call"] == payloads(tmp_path)


def test_what_a_killed_process_has_written_is_read_up_to_the_tear(tmp_path):
    """A row that was copied in part is no record, whichever part it is; a file that was prepared is none."""
    journal = journal_in(tmp_path, segment_size=4096)
    journal.tend()
    append(journal, *numbered(3))
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    record = pack_record(Kind.OTLP, b"the row that was torn")
    for begin in range(len(record)):
        for end in (begin + 1, len(record)):
            # Processors write the parts of a copy in any order.
            torn = bytearray(whole)
            offset = HEADER_SIZE + 3 * 24
            torn[offset + begin : offset + end] = record[begin:end]
            segment = read_segment(bytes(torn))
            found = [bytes(r.payload) for r in segment.records]
            if (begin, end) == (0, len(record)):
                assert [*numbered(3), b"the row that was torn"] == found
            else:
                assert numbered(3) == found
                assert len(bytes(torn[offset:]).rstrip(b"\0")) == segment.cut
    journal.close()
