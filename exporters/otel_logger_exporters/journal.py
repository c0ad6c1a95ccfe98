"""A journal, the segments of one signal of one writer in one folder: appended to here, read by `JournalReader`."""

import errno
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.segment_files import MappedFile, PlainFile, SegmentFile, is_there
from otel_logger_exporters.segments import HEADER_SIZE, SEAL_SIZE, SegmentHeader, segment_name, segments_of
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import OverLimitError

__all__ = ["SEGMENT_SIZE", "Journal", "journal_refusal"]

_File = TypeVar("_File", bound=SegmentFile)

SEGMENT_SIZE = 8 * 2**20
"""Bytes of a segment. Prometheus' and the Collector's logs use 8 to 128 MiB; the small end keeps small what a trim
frees, what a damaged seal puts in doubt, and what is allocated in advance."""

MEMORY_SIZE = 8 * 2**20
"""Bytes that wait in memory at most while there is no file for them."""

_AT_ONCE = 1000
"""Records moved from memory at a time."""

_MOMENT = 2**18
"""Bytes that are copied at most while callers wait, which takes some tens of microseconds."""


def journal_refusal(signal: Signal, error: OSError) -> tuple[str, str]:
    """Return the reason and the explanation by which a ledger counts what `append` did not take."""
    if isinstance(error, OverLimitError):
        return "limit", f"{signal.value.capitalize()} are lost: {error.strerror}"
    if error.errno == errno.EBADF:
        return "closed", f"{signal.value.capitalize()} that come as the logger closes are lost"
    return "disk", f"{signal.value.capitalize()} are lost, the disk does not take them: {error}"


def _closed() -> OSError:
    return OSError(errno.EBADF, "the journal is closed")


class _Segment:
    """A segment that is written: straight into its file where that only copies memory, else by way of memory."""

    def __init__(self, generation: int, created_ns: int, capacity: int) -> None:
        self.generation = generation
        self.created_ns = created_ns
        self.capacity = capacity
        self.file: SegmentFile | None = None
        self.is_direct = False
        self.waiting: list[tuple[bytes, int, int]] = []
        self.head_size = 0
        self.size = HEADER_SIZE

    def fits(self, size: int) -> bool:
        """Tell whether `size` more bytes, and then a seal, have room."""
        used = self.file.size if self.is_direct and self.file is not None else self.size
        return used + size + SEAL_SIZE <= self.capacity


class Journal:
    """Appends records to the segments of one signal; appending copies memory and touches no disk.

    With `mapped` a record is in the operating system's page cache when `append` returns, and so survives the death of
    the process; otherwise it waits in memory for `tend`. So does, with `mapped`, what comes before a file is ready; in
    either case at most `MEMORY_SIZE` bytes, and OSError beyond.

    `tend` does the work on the disk: a background thread calls it at intervals, and soon after `wake` was called.
    `make_room` is called with the bytes of a file before that is created; its OSError says that they cannot be spared.
    Thread-safe.
    """

    def __init__(
        self,
        folder: Path,
        signal: Signal,
        writer: bytes,
        *,
        clock: Clock,
        mapped: bool,
        segment_size: int = SEGMENT_SIZE,
        memory_size: int = MEMORY_SIZE,
        wake: Callable[[], object] = lambda: None,
        make_room: Callable[[int], object] = lambda size: None,
    ) -> None:
        self.signal = signal
        self.disk = threading.RLock()
        """Held while the folder is touched, for whoever renames that."""
        self.refusal: str | None = None
        """Why nothing is taken at present, when somebody outside has so decided."""
        self._folder = folder
        self._writer = writer
        self._clock = clock
        self._mapped = mapped
        self._segment_size = segment_size
        self._memory_size = memory_size
        self._wake = wake
        self._make_room = make_room
        self._lock = threading.RLock()
        self._is_busy = False
        self._late: deque[tuple[bytes, int, int, int | None]] = deque()
        self._sticky: dict[str, bytes] = {}
        # The last one is written to, those before it have ended. One tuple, replaced as a whole: see `MappedFile`.
        self._segments: tuple[_Segment, ...] = ()
        self._prepared: MappedFile | None = None
        self._sequence = 0
        self._generation = 0
        self._memory = 0
        self._detoured = 0
        self._lost = 0
        self._gone = 0
        self._ended: dict[int, int] = {}
        self._trouble: OSError | None = None
        self._is_closed = False

    @property
    def generation(self) -> int:
        """The number of the segment that is written to; what an earlier one holds is not in it."""
        with self._lock:
            return self._segments[-1].generation if self._segments else self._generation + 1

    @property
    def folder(self) -> Path:
        """The folder of the segments."""
        return self._folder

    @property
    def waiting_items(self) -> int:
        """The items that are in memory only."""
        with self._lock:
            return sum(items for segment in self._segments for _, _, items in segment.waiting)

    def take_detoured(self) -> int:
        """Return how many items have gone by way of memory, although mapped, since the last call."""
        with self._lock:
            count, self._detoured = self._detoured, 0
            return count

    def take_lost(self) -> int:
        """Return how many items that `append` had taken the disk has not, since the last call; they are lost."""
        with self._lock:
            count, self._lost = self._lost, 0
            return count

    def take_gone(self, since: int) -> int:
        """Return how many items were in segments from number `since` on that somebody has deleted, since the last call.

        Some of those may have been delivered before.
        """
        with self.disk:
            present = {number for number, _ in segments_of(self._folder, self.signal)}
            missing = {number: self._ended.pop(number) for number in set(self._ended) - present}
            with self._lock:
                count, self._gone = self._gone, 0
        return count + sum(items for number, items in missing.items() if number >= since)

    def append(self, *records: tuple[Kind, bytes], items: int = 0, generation: int | None = None) -> bool:
        """Append records that hold `items` items, all into one segment; return whether that was done.

        It is always done, unless a `generation` is given: then only if they still go to that segment. OSError when
        neither file nor memory has room, or the journal is closed.
        """
        data = b"".join([pack_record(kind, payload) for kind, payload in records])
        if self.refusal is not None:
            raise OverLimitError(errno.EDQUOT, self.refusal)
        return self._take(data, len(records), items, generation)

    def keep(self, slot: str, kind: Kind, payload: bytes) -> None:
        """Append a record that is repeated at the head of each later segment, until `slot` is given another.

        It is taken in spite of a `refusal`: without it what was taken before may not be understood.
        """
        record = pack_record(kind, payload)
        with self._lock:
            try:
                self._take(record, 1, 0, None)
            finally:
                self._sticky[slot] = record

    def tend(self) -> None:
        """Do the work on the disk: write what waits, end what is full, prepare the next file; OSError as it comes."""
        with self.disk:
            if self._is_closed:
                return
            try:
                self._give_up_what_is_gone()
                for segment in self._segments:
                    # Asked first: one that has ended gets nothing more, so that all of it is stored then.
                    has_ended = segment is not self._segments[-1]
                    self._store(segment)
                    if has_ended:
                        self._end(segment)
                self._prepare()
                self._trouble = None
            except OSError as error:
                self._trouble = error
                raise

    def move(self, folder: Path) -> None:
        """Go on in `folder`, to which the caller has renamed the present one."""
        with self.disk:
            self._folder = folder

    def close(self, timeout: float | None = None) -> None:
        """Write what waits, seal the segments and close them; OSError for what the disk does not take, which is lost.

        Appending after that is refused. TimeoutError when somebody is still at the disk after `timeout` seconds, who
        may write of it what he has begun.
        """
        if not self.disk.acquire(timeout=-1 if timeout is None else timeout):
            with self._lock:
                if not self._is_closed:
                    self._is_closed, self._lost = True, self._lost + self.waiting_items
            msg = "the disk does not answer"
            raise TimeoutError(msg)
        try:
            with self._lock:
                if self._is_closed:
                    return
                if not self._is_busy:
                    self._put_late()
                self._is_closed = True
            refused: OSError | None = None
            try:
                try:
                    self._give_up_what_is_gone()
                except FileNotFoundError as error:
                    refused = error
                for segment in self._segments:
                    try:
                        self._store(segment)
                        self._end(segment)
                    except OSError as error:
                        # What one file does not take costs nothing that belongs in another.
                        refused = refused or error
            finally:
                with self._lock:
                    waiting = self.waiting_items
                    files = [segment.file for segment in self._segments]
                    self._segments, self._memory, self._lost = (), 0, self._lost + waiting
                for file in files:
                    if file is not None:
                        file.abandon()
                self._discard_prepared()
            if refused is not None:
                raise refused
        finally:
            self.disk.release()

    def size_after(self, sequence: int, offset: int) -> int:
        """Return the bytes of the journal, in memory and on disk, behind a place in it."""
        with self.disk:
            with self._lock:
                size = self._memory
                used = {segment.file.sequence: segment.file.size for segment in self._segments if segment.file}
                if self._prepared is not None:
                    used[self._prepared.sequence] = 0
            for number, path in segments_of(self._folder, self.signal):
                if number >= sequence:
                    try:
                        end = used[number] if number in used else path.stat().st_size
                    except FileNotFoundError:
                        # Its reader was done with it.
                        continue
                    size += max(0, end - (offset if number == sequence else HEADER_SIZE))
        return size

    def abandon(self) -> None:
        """Forget everything without writing: for the child of a fork, whose parent owns the files."""
        self._lock, self.disk = threading.RLock(), threading.RLock()
        files: list[SegmentFile | None] = [self._prepared, *(segment.file for segment in self._segments)]
        self._segments, self._prepared, self._is_closed, self._is_busy = (), None, True, False
        for file in files:
            if file is not None:
                file.abandon()

    def _take(self, data: bytes, count: int, items: int, generation: int | None) -> bool:
        with self._lock:
            if self._is_busy:
                # A signal handler that logs in the midst of this method leaves its records to the call it interrupts.
                self._late.append((data, count, items, generation))
                return True
            self._is_busy = True
            try:
                return self._put(data, count, items, generation)
            finally:
                self._is_busy = False
                self._put_late()

    def _put_late(self) -> None:
        # In a loop: a handler may leave more until this is not busy any more, and after that leaves nothing.
        while self._late:
            self._is_busy = True
            try:
                while self._late:
                    data, count, items, generation = self._late.popleft()
                    try:
                        # Of another generation only where `keep` was interrupted, and that has begun a segment.
                        is_put = self._put(data, count, items, generation)
                    except OSError:
                        is_put = False
                    if not is_put:
                        self._lost += items
            finally:
                self._is_busy = False

    def _put(self, data: bytes, count: int, items: int, generation: int | None) -> bool:
        if self._is_closed:
            raise _closed()
        segment = self._segments[-1] if self._segments else None
        if segment is None or not segment.fits(len(data)):
            segment = self._begin(len(data))
        if generation is not None and generation != segment.generation:
            return False
        if segment.is_direct and segment.file is not None:
            segment.file.append(data, count, items)
            return True
        if self._memory > segment.head_size:
            self._refuse_beyond_memory(len(data))
        self._wait_in_memory(segment, data, count, items)
        if self._mapped:
            self._detoured += items
            if self._trouble is None:
                # A disk that has no room now is not asked at each call.
                self._wake()
        return True

    def _refuse_beyond_memory(self, size: int) -> None:
        # A record that is larger than the memory allowed is no reason to refuse it, where it is the only one.
        if self._memory > 0 and self._memory + size > self._memory_size:
            trouble = self._trouble or OSError(errno.EAGAIN, "it is too slow")
            raise OSError(trouble.errno, trouble.strerror)

    def _wait_in_memory(self, segment: _Segment, data: bytes, count: int, items: int) -> None:
        size = len(data)
        if self._is_closed:
            raise _closed()
        # With the call last: where it returns is the only place from here on for a signal handler, which may raise.
        segment.size, self._memory = segment.size + size, self._memory + size
        segment.waiting.append((data, count, items))

    def _begin(self, size: int) -> _Segment:
        """Begin a segment that has room for `size` bytes behind its head; what is in memory must get to disk first."""
        records = tuple(self._sticky.values())
        head = b"".join(records)
        least = HEADER_SIZE + len(head) + size + SEAL_SIZE
        # A head that fills half of a segment would leave little for what it is about.
        capacity = self._segment_size if 2 * least <= self._segment_size else least + self._segment_size
        prepared = self._prepared
        if prepared is not None and capacity <= prepared.capacity and not self._memory:
            segment = self._next_segment(capacity)
            segment.file, segment.is_direct = prepared, True
            try:
                prepared.append(self._header(segment, prepared.sequence) + head, len(records))
            finally:
                # With a header readers take it for the next one, even if a signal handler raises in the midst of this.
                if prepared.written[0] > 0:
                    self._segments, self._prepared = (*self._segments, segment), None
        else:
            self._refuse_beyond_memory(len(head) + size)
            segment = self._next_segment(capacity)
            segment.head_size = len(head)
            segment.waiting = [(head, len(records), 0)]
            segment.size += segment.head_size
            self._segments, self._memory = (*self._segments, segment), self._memory + segment.head_size
        self._wake()
        return segment

    def _next_segment(self, capacity: int) -> _Segment:
        self._generation += 1
        return _Segment(self._generation, self._clock.time_ns(), capacity)

    def _header(self, segment: _Segment, sequence: int) -> bytes:
        return SegmentHeader(self.signal, sequence, segment.created_ns, self._writer).pack()

    def _store(self, segment: _Segment) -> None:
        """Write what a segment has in memory; from then on, where the file is mapped, nothing waits there any more."""
        if segment.file is None:
            segment.file = self._file_for(segment)
        while self._store_some(segment, segment.file):
            pass
        if segment.file.is_shared:
            # What comes next begins another.
            segment.capacity = 0

    def _store_some(self, segment: _Segment, file: SegmentFile) -> bool:
        """Write some of what a segment has in memory; return whether there may be more."""
        with self._lock:
            some = segment.waiting[:_AT_ONCE]
            is_rest = len(some) == len(segment.waiting)
            if file.is_direct and is_rest and sum(len(data) for data, _, _ in some) <= _MOMENT:
                # Callers are kept out for the moment, so that the order of the records stays; but not a signal handler
                # that interrupts this.
                self._write(segment, file, some)
                segment.is_direct = not segment.waiting
                return not segment.is_direct
        if some:
            self._write(segment, file, some)
        return bool(some)

    def _write(self, segment: _Segment, file: SegmentFile, some: list[tuple[bytes, int, int]]) -> None:
        records = b"".join([data for data, _, _ in some])
        number, size = len(some), len(records)
        file.append(records, sum(count for _, count, _ in some), sum(items for _, _, items in some))
        with self._lock:
            del segment.waiting[:number]
            self._memory -= size

    def _end(self, segment: _Segment) -> None:
        try:
            if segment.file is not None:
                self._ended[segment.file.sequence] = segment.file.items
                segment.file.finish()
        finally:
            self._forget(segment)

    def _give_up_what_is_gone(self) -> None:
        """Go on without the files that somebody has deleted; FileNotFoundError if there are any."""
        prepared = self._prepared
        is_any_gone = prepared is not None and self._is_gone(prepared)
        if is_any_gone:
            # Unless a caller has just taken it, and it is now among the segments.
            self._discard_prepared()
        for segment in self._segments:
            if (file := segment.file) is None or not self._is_gone(file):
                continue
            with self._lock:
                if segment is not self._segments[-1] and not segment.waiting:
                    # The reader may be done with it already.
                    self._ended[file.sequence] = file.items
                else:
                    is_any_gone = True
                    size = sum(len(data) for data, _, _ in segment.waiting)
                    items = file.items + sum(items for _, _, items in segment.waiting)
                    self._memory, self._gone = self._memory - size, self._gone + items
                self._forget(segment)
            file.abandon()
        if is_any_gone:
            raise FileNotFoundError(errno.ENOENT, "segments that were written to are gone", str(self._folder))

    def _is_gone(self, file: SegmentFile) -> bool:
        # Under its name too: what is written to a folder that somebody has renamed is not found by the sender.
        return file.is_gone or not is_there(self._folder / segment_name(self.signal, file.sequence))

    def _forget(self, segment: _Segment) -> None:
        with self._lock:
            while segment in (present := self._segments):
                left = tuple(other for other in present if other is not segment)
                # Unless a signal handler has begun another meanwhile; there is no place for one from here on.
                if self._segments is present:
                    self._segments = left

    def _prepare(self) -> None:
        """Have a file ready for the next segment, for the second of all when the first is half full."""
        # Asked once: a caller may take it meanwhile.
        if (prepared := self._prepared) is not None and prepared.is_shared:
            self._discard_prepared()
        segment = self._segments[-1] if self._segments else None
        # Most runs record less than a segment, and that is soon known of the others.
        is_due = segment is None or segment.generation > 1 or not segment.fits(segment.capacity // 2)
        if self._mapped and self._prepared is None and is_due and not self._is_closed:
            self._prepared = self._create_mapped(self._segment_size)

    def _discard_prepared(self) -> None:
        with self._lock:
            prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.abandon()
            (self._folder / segment_name(self.signal, prepared.sequence)).unlink(missing_ok=True)

    def _file_for(self, segment: _Segment) -> SegmentFile:
        """Return a file for a segment, with its header in it."""
        with self._lock:
            prepared = self._prepared
            if prepared is not None and segment.capacity <= prepared.capacity:
                self._prepared = None
                prepared.append(self._header(segment, prepared.sequence))
                return prepared
        # Its number would be out of order.
        self._discard_prepared()
        if self._mapped:
            file: SegmentFile = self._create_mapped(segment.capacity)
        else:
            file = self._create(segment.size, PlainFile)
        try:
            file.append(self._header(segment, file.sequence))
        except BaseException:
            # A full disk must not fill the folder with a file at each attempt.
            file.abandon()
            (self._folder / segment_name(self.signal, file.sequence)).unlink(missing_ok=True)
            raise
        return file

    def _create_mapped(self, capacity: int) -> MappedFile:
        return self._create(capacity, lambda path, sequence: MappedFile(path, sequence, capacity))

    def _create(self, size: int, make: Callable[[Path, int], _File]) -> _File:
        self._make_room(size)
        sequence = self._sequence + 1
        while True:
            try:
                # Exclusively: a segment is created by its writer and never reopened.
                file = make(self._folder / segment_name(self.signal, sequence), sequence)
            except FileExistsError:
                sequence += 1
                continue
            self._sequence = sequence
            return file
