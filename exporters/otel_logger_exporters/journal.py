"""A journal, the segments of one signal of one writer in one folder: appended to here, read by `JournalReader`."""

import contextlib
import os
import threading
import zlib
from pathlib import Path

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.records import Kind, pack_record
from otel_logger_exporters.segments import SegmentHeader, pack_seal, segment_name
from otel_logger_exporters.signals import Signal

__all__ = ["SEGMENT_SIZE", "Journal"]

SEGMENT_SIZE = 8 * 2**20
"""Bytes after which a segment is sealed. Prometheus' and the Collector's logs use 8 to 128 MiB; the small end keeps
what a trim frees, and what a damaged seal puts in doubt, small."""


class Journal:
    """Appends records to the segments of one signal; every committed record survives the death of the process.

    With `buffered`, records wait in memory until `flush` or until they fill a segment, also while the disk refuses
    them; otherwise each is in the operating system's page cache when `append` returns. Thread-safe; `lock` is held
    while the folder is touched, for whoever renames that. Errors of the disk come as OSError to the caller, who knows
    what was lost by them; what was written before stays readable, and what comes after too.
    """

    def __init__(
        self,
        folder: Path,
        signal: Signal,
        writer: bytes,
        *,
        clock: Clock,
        buffered: bool = False,
        segment_size: int = SEGMENT_SIZE,
    ) -> None:
        self.signal = signal
        self.lock = threading.RLock()
        self._folder = folder
        self._writer = writer
        self._clock = clock
        self._buffered = buffered
        self._segment_size = segment_size
        self._sticky: dict[str, bytes] = {}
        self._buffer = bytearray()
        self._file = -1
        self._is_torn = False
        self._generation = 0
        self._head = 0
        self._offset = 0
        self._count = 0
        self._checksum = 0

    @property
    def generation(self) -> int:
        """The number of the segment that the next record goes to; what was written into an earlier one is not in it."""
        with self.lock:
            return self._generation + (1 if self._is_due() else 0)

    @property
    def folder(self) -> Path:
        """The folder of the segments."""
        return self._folder

    def append(self, kind: Kind, payload: bytes, *, generation: int | None = None) -> bool:
        """Append a record; with `generation`, only if it still goes to that segment. Return whether it was appended."""
        record = pack_record(kind, payload)
        with self.lock:
            # What goes to this very segment goes there though it is full: a row must not be parted from its schema
            # for ever by one that fills a segment alone.
            if self._file < 0 or (self._is_due() and generation != self._generation):
                self._rotate()
            if generation is not None and generation != self._generation:
                return False
            self._commit(record)
            return True

    def keep(self, slot: str, kind: Kind, payload: bytes) -> None:
        """Append a record that is repeated at the head of each later segment, until `slot` is given another."""
        with self.lock:
            if self._is_due():
                self._rotate()
            self._sticky[slot] = pack_record(kind, payload)
            self._commit(self._sticky[slot])

    def flush(self) -> None:
        """Write what is buffered."""
        with self.lock:
            self._drain()

    def move(self, folder: Path) -> None:
        """Go on in `folder`, to which the caller has renamed the present one."""
        with self.lock:
            self._folder = folder

    def close(self) -> None:
        """Write what is buffered, seal the segment and close it; appending again starts a new one."""
        with self.lock:
            if self._file < 0:
                return
            try:
                self._seal()
            finally:
                # What the disk has not taken until now is lost: a later segment would not hold its schemas.
                self._buffer = bytearray()
                self._close_file()

    def abandon(self) -> None:
        """Forget everything without writing: for the child of a fork, whose parent owns the file."""
        self.lock = threading.RLock()
        self._buffer = bytearray()
        self._close_file()

    def _is_due(self) -> bool:
        if self._file < 0:
            return True
        # The head apart, or what is repeated there could fill each segment at once.
        return self._offset + len(self._buffer) - self._head >= self._segment_size

    def _rotate(self) -> None:
        if self._file >= 0:
            self._seal()
            self._close_file()
        header = SegmentHeader(self.signal, self._generation + 1, self._clock.time_ns(), self._writer)
        path = self._folder / segment_name(self.signal, header.sequence)
        try:
            # O_EXCL: a segment is created by its writer and never reopened; a second writer here is an error to see.
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            self._generation = header.sequence
            raise
        self._file, self._is_torn = file, False
        self._offset = self._count = self._checksum = 0
        try:
            self._write(header.pack())
            for record in self._sticky.values():
                self._commit(record)
        except BaseException:
            # A segment without its whole head would be read with the wrong resource; and a full disk must not fill
            # the folder with a file for each record that it refuses.
            self._buffer = bytearray()
            self._close_file()
            os.unlink(path)
            raise
        self._generation = header.sequence
        self._head = self._offset + len(self._buffer)

    def _commit(self, record: bytes) -> None:
        if self._buffered:
            self._buffer += record
        else:
            self._write(record)
        self._count += 1
        self._checksum = zlib.crc32(record, self._checksum)

    def _write(self, data: bytes | bytearray) -> None:
        if self._is_torn:
            self._mend()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
            self._offset += written
        except BaseException:
            # A torn record would hide all that follow it: take it back, so that the next one can be read. A disk that
            # refuses even that is asked again before anything else is written.
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._mend()
            raise

    def _mend(self) -> None:
        os.ftruncate(self._file, self._offset)
        self._is_torn = False

    def _drain(self) -> None:
        if self._buffer and self._file >= 0:
            # Taken out first: a signal handler that logs meanwhile adds to the new one.
            data, self._buffer = self._buffer, bytearray()
            try:
                self._write(data)
            except BaseException:
                self._buffer = data + self._buffer
                raise

    def _seal(self) -> None:
        self._drain()
        # Without its seal a segment reads as well, so that a disk that refuses it costs nothing.
        with contextlib.suppress(OSError):
            self._write(pack_seal(self._count, self._checksum))

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
