"""The reading end of a journal: batches from where the last acknowledgement stands, and the trim behind it."""

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.records import Kind, Record, end_of_content, end_of_records, is_written, read_records
from otel_logger_exporters.rows import Row, RowReader
from otel_logger_exporters.segments import HEADER_SIZE, SEAL_SIZE, is_begun, segment_name, segments_of
from otel_logger_exporters.signals import Signal

__all__ = ["Batch", "JournalReader", "Position", "end_of_segment"]

BATCH_BYTES = 2**20
"""Bytes of a journal per batch. A metric point grows about five-fold from row to OTLP, so that a full batch is about
one request under the 4 MiB that gRPC servers accept."""


LOOK_BYTES = 2**14
"""Bytes first read to see whether anything waits: a head with a resource and some schemas fits."""

LARGEST_FILE = 2**40
"""Bytes that no segment has."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a journal: everything before it."""

    sequence: int
    offset: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What is sent together: rows or frames, how many items they hold, and the position after them.

    `is_last` says that nothing followed it when it was read.
    """

    contents: tuple[Row | Frame, ...]
    items: int
    end: Position
    is_last: bool = False


class JournalReader:
    """Reads a journal in order, also while it is written, and forgets what is acknowledged, or marks it with `keep`.

    The acknowledged position survives in `<signal>.ack`, so that another process goes on there. `cut` counts the bytes
    that were skipped because they could not be read. One thread reads; `lock` is held while it touches the folder, for
    whoever renames that.
    """

    def __init__(self, folder: Path, signal: Signal, *, keep: bool = False) -> None:
        self.signal = signal
        self._keep = keep
        self.cut = 0
        self.lock = threading.RLock()
        self._folder = folder
        self._position = self._acknowledged()
        self._rows: RowReader | None = None
        self._ahead: tuple[Position, RowReader] | None = None

    def move(self, folder: Path) -> None:
        """Go on in `folder`, to which the caller has renamed the present one."""
        self._folder = folder

    @property
    def position(self) -> Position:
        """The acknowledged position."""
        return self._position

    @property
    def unread(self) -> int:
        """The bytes of the journal behind the acknowledged position; 0 when nothing that is sent is among them.

        A seal, or the head of a segment that no record followed, is in no batch, and so stays behind the position.
        """
        with self.lock:
            size = 0
            waits = False
            for sequence, path in segments_of(self._folder, self.signal):
                if sequence < self._position.sequence:
                    continue
                begin = self._position.offset if sequence == self._position.sequence else HEADER_SIZE
                try:
                    end = end_of_segment(path)
                    size += max(0, end - begin)
                    waits = waits or (end > begin and _holds_items(path, begin))
                except FileNotFoundError:
                    # Its sender, in another process, was done with it.
                    continue
            return size if waits else 0

    def next_batch(self, max_records: int) -> Batch | None:
        """Return the next rows or frames, at most `max_records`, or None when there are none now.

        The same batch comes again until it is acknowledged (a smaller one for a smaller `max_records`).
        """
        with self.lock:
            while True:
                # Looked up before reading: a segment that has a successor grows no more, an empty read is its end.
                found = segments_of(self._folder, self.signal)
                later = next((s for s, path in found if s > self._position.sequence and is_begun(path)), None)
                batch, end, is_at_end = self._read(max_records)
                if batch is not None:
                    return replace(batch, is_last=is_at_end and later is None)
                if later is None:
                    return None
                self.cut += self._unreadable(end)
                self._leave_for(Position(later, HEADER_SIZE))

    def acknowledge(self, batch: Batch) -> None:
        """Forget everything up to the end of `batch`; a segment is deleted when the next one is begun."""
        with self.lock:
            self._position = batch.end
            self._rows = self._ahead[1] if self._ahead is not None and self._ahead[0] == batch.end else None
            path = self._folder / f"{self.signal.value}.ack"
            temporary = path.with_suffix(".ack.tmp")
            temporary.write_text(f"{batch.end.sequence} {batch.end.offset}\n", "ascii")
            os.replace(temporary, path)

    def finish(self) -> None:
        """Count in `cut`, too, what cannot be read at the end of a journal that is read and not written any more."""
        with self.lock:
            batch, end, _ = self._read(1)
            if batch is None:
                self.cut += self._unreadable(end)

    def discard(self) -> None:
        """Delete the acknowledged rest of a journal that is closed and read to its end."""
        with self.lock:
            if self.next_batch(1) is None:
                for _, path in segments_of(self._folder, self.signal):
                    path.unlink(missing_ok=True)
                (self._folder / f"{self.signal.value}.ack").unlink(missing_ok=True)

    def _acknowledged(self) -> Position:
        try:
            words = (self._folder / f"{self.signal.value}.ack").read_text("ascii").split()
            position = Position(int(words[0]), int(words[1]))
            if not HEADER_SIZE <= position.offset <= self._size_of(position.sequence):
                raise ValueError(words)
            return position
        except (OSError, ValueError, IndexError):
            # Without a readable mark everything is sent again, which is harmless: times and ids are fixed.
            first = segments_of(self._folder, self.signal)
            return Position(first[0][0] if first else 1, HEADER_SIZE)

    def _size_of(self, sequence: int) -> int:
        """Return the bytes of a segment's file, or the most that there may have been if it is deleted."""
        try:
            return os.stat(self._folder / segment_name(self.signal, sequence)).st_size
        except FileNotFoundError:
            return LARGEST_FILE

    def _leave_for(self, position: Position) -> None:
        if not self._keep:
            (self._folder / segment_name(self.signal, self._position.sequence)).unlink(missing_ok=True)
        self._position = position
        self._rows = None

    def _read(self, max_records: int) -> tuple[Batch | None, int, bool]:
        """Return the batch at the position, the offset in the segment behind the records that were looked at, and
        whether there are no more in it.
        """
        path = self._folder / segment_name(self.signal, self._position.sequence)
        begin = self._position.offset
        try:
            with path.open("rb") as file:
                if self._rows is None:
                    # A row is understood by the schemas before it, which a position inside a segment has behind it.
                    file.seek(HEADER_SIZE)
                    self._rows = RowReader()
                    for record in read_records(file.read(begin - HEADER_SIZE)):
                        self._rows.take(record)
                file.seek(begin)
                # Mostly nothing waits, and what follows in a mapped segment is zeros, megabytes of them.
                data = file.read(LOOK_BYTES)
                if is_written(data, 0):
                    data += file.read(BATCH_BYTES - len(data))
                batch, end = self._parse(data, max_records, self._rows)
                while batch is None and is_written(data, end) and (more := file.read(len(data))):
                    data += more
                    batch, end = self._parse(data, max_records, self._rows)
        except FileNotFoundError:
            return None, begin, True
        is_full = batch is not None and len(batch.contents) == max_records
        return batch, begin + end, not is_full and (len(data) < BATCH_BYTES or not is_written(data, end))

    def _unreadable(self, offset: int) -> int:
        """Return how many bytes behind an offset in the segment at the position are something, and no record."""
        try:
            with (self._folder / segment_name(self.signal, self._position.sequence)).open("rb") as file:
                file.seek(offset)
                return end_of_content(file.read())
        except FileNotFoundError:
            return 0

    def _parse(self, data: bytes, max_records: int, rows: RowReader) -> tuple[Batch | None, int]:
        # On a copy: what is read again later, or in part, must not meet schemas that come after it.
        rows = rows.copy()
        contents: list[Row | Frame] = []
        items = end = 0
        for record in read_records(data):
            end = record.end
            content = _content(record, rows)
            if content is not None:
                contents.append(content)
                items += len(content.values) if isinstance(content, Row) else content.items
            if len(contents) == max_records:
                break
        if not contents:
            return None, end
        position = Position(self._position.sequence, self._position.offset + end)
        self._ahead = position, rows
        return Batch(tuple(contents), items, position), end


def _content(record: Record, rows: RowReader) -> Row | Frame | None:
    if record.kind != Kind.OTLP:
        return rows.take(record)
    try:
        return Frame.unpack(record.payload)
    except ValueError:
        # As a row that makes no sense: it is none, and must not keep back what follows it.
        return None


def _holds_items(path: Path, begin: int) -> bool:
    """Tell whether a segment holds a readable row or frame behind `begin`."""
    data = b""
    with path.open("rb") as file:
        file.seek(begin)
        # Mostly the first look finds one; what is looked at doubles, so that a large head is not parsed over and over.
        while more := file.read(max(LOOK_BYTES, len(data))):
            data += more
            if not is_written(data, 0):
                return False
            if any(record.kind in (Kind.ROW, Kind.OTLP) for record in read_records(data)):
                return True
    return False


def end_of_segment(path: Path) -> int:
    """Return the bytes of a segment's file without the zeros behind its records, which a mapped one has to its end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - SEAL_SIZE))
        if any(file.read()):
            return size
        file.seek(0)
        data = file.read()
    # Zeros may be the end of a record too.
    return max(end_of_records(data, HEADER_SIZE), end_of_content(data))
