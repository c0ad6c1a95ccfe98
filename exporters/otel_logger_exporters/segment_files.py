"""Segment files, what a journal puts a segment into: one mapped into memory, or one that is appended to by `write`.

Both are created here, exclusively, and end with `finish`; a child of a fork lets go of them with `abandon`.
"""

import contextlib
import errno
import mmap
import os
import time
import zlib
from pathlib import Path
from typing import Protocol

from otel_logger_exporters.extents import is_shared
from otel_logger_exporters.segments import HEADER_SIZE, SEAL_SIZE, pack_seal

__all__ = ["MappedFile", "PlainFile", "SegmentFile", "is_there"]

_CHUNK_SIZE = 2**18
_CHUNK = bytes(_CHUNK_SIZE)

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
"""The last is said on a shared file system of what another machine has deleted."""


class SegmentFile(Protocol):
    """A segment's file: `size` bytes of it are written, in them `count` records that hold `items` items."""

    sequence: int
    is_direct: bool
    """Whether appending only copies memory, and so may be done in the caller's thread."""

    @property
    def size(self) -> int:
        """Bytes written."""
        ...

    @property
    def items(self) -> int:
        """Items in the records written."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether nobody can find the file any more: it was deleted, or cut by somebody else."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether writing to it by way of memory has become a risk."""
        ...

    def append(self, data: bytes, count: int = 0, items: int = 0) -> None:
        """Write `data`, whole or not at all; OSError if the disk does not take it."""
        ...

    def finish(self) -> None:
        """Seal and close the file."""
        ...

    def abandon(self) -> None:
        """Close without writing anything."""
        ...


class MappedFile:
    """A file of fixed capacity that is appended to by copying into memory; never waits, survives the process's death.

    All of it is allocated and written with zeros before it is used: a page for which the disk has no room when it is
    first touched is a SIGBUS, which kills the process. Raises OSError when the disk has no room now.
    """

    is_direct = True

    def __init__(self, path: Path, sequence: int, capacity: int) -> None:
        self.sequence = sequence
        self.capacity = capacity
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._file, 0, capacity)
            # By `write`, which lets other threads run, and not by the first touch of the mapped pages, which does not:
            # those then find their pages in memory.
            offset = 0
            while offset < capacity:
                offset += os.pwrite(self._file, _CHUNK[: capacity - offset], offset)
            self._map = mmap.mmap(self._file, capacity)
            for offset in range(0, capacity, mmap.PAGESIZE):
                self._map[offset] = 0
                if offset % _CHUNK_SIZE == 0:
                    # Lets other threads run: by itself the interpreter would only after five milliseconds.
                    time.sleep(0)
        except BaseException:
            os.close(self._file)
            os.unlink(path)
            raise
        # One tuple: an exception that a signal handler raises in the midst of `append` finds all or none of it changed.
        self.written = (0, 0, 0)
        """The bytes, records and items that are written."""

    @property
    def size(self) -> int:
        """Bytes written."""
        return self.written[0]

    @property
    def items(self) -> int:
        """Items in the records written."""
        return self.written[2]

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted, or cut by somebody else."""
        return _is_gone(self._file, self.capacity)

    @property
    def is_shared(self) -> bool:
        """Whether somebody has copied the file by reference: a page is then moved when it is written, or a SIGBUS."""
        return is_shared(self._file)

    def append(self, data: bytes, count: int = 0, items: int = 0) -> None:
        """Copy `data`, which must fit, behind what is written; OSError once the file is closed."""
        added = len(data)
        # From here on there is no call, and so no place for a signal handler that appends.
        size, records, total = self.written
        # By a signal handler, or in the child of a fork, in the midst of the caller's work.
        if self._map.closed:
            raise OSError(errno.EBADF, "the segment is closed")
        self._map[size : size + added] = data
        self.written = (size + added, records + count, total + items)

    def finish(self) -> None:
        """Seal the file, cut it to what is written, and close it."""
        end, count, _ = self.written
        try:
            # Asked first: to read where the file was cut is a SIGBUS too.
            if not self.is_gone and end + SEAL_SIZE <= self.capacity:
                with memoryview(self._map) as whole, whole[HEADER_SIZE:end] as records:
                    seal = pack_seal(count, zlib.crc32(records))
                # By `write`, which may fail: the file may be shared by now.
                with contextlib.suppress(OSError):
                    end += len(seal) if os.pwrite(self._file, seal, end) == len(seal) else 0
            self._map.close()
            os.ftruncate(self._file, end)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing anything; what is written stays."""
        # In the child of a fork another thread's view of the map is still counted.
        with contextlib.suppress(BufferError):
            self._map.close()
        self._close()

    def _close(self) -> None:
        # Forgotten first: a fork while another thread is here must not close a number that is another file's by then.
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class PlainFile:
    """A file that is appended to by `write`, for file systems where a map is a risk."""

    is_direct = False

    def __init__(self, path: Path, sequence: int) -> None:
        self.sequence = sequence
        self.size = self.items = 0
        self._count = self._checksum = 0
        self._is_torn = False
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @property
    def is_gone(self) -> bool:
        """Whether the file was deleted, or cut by somebody else."""
        return _is_gone(self._file, self.size)

    @property
    def is_shared(self) -> bool:
        """False: a write that finds no room is an error here, and no SIGBUS."""
        return False

    def append(self, data: bytes, count: int = 0, items: int = 0) -> None:
        """Write `data` behind what is written, whole or not at all; OSError if the disk does not take it."""
        if self._is_torn:
            self._mend()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
        except BaseException:
            # A torn record would hide all that follow it: take it back, so that the next one can be read. A disk that
            # refuses even that is asked again before anything else is written.
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._mend()
            raise
        if self.size >= HEADER_SIZE:
            self._checksum = zlib.crc32(data, self._checksum)
        self.size += len(data)
        self._count += count
        self.items += items

    def finish(self) -> None:
        """Seal and close the file; without room for its seal it reads as well."""
        with contextlib.suppress(OSError):
            self.append(pack_seal(self._count, self._checksum))
        self.abandon()

    def abandon(self) -> None:
        """Close without writing anything."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _mend(self) -> None:
        os.ftruncate(self._file, self.size)
        self._is_torn = False


def is_there(path: Path) -> bool:
    """Tell whether there is anything under a name; True where that cannot be told."""
    try:
        return _status(path) is not None
    except OSError:
        return True


def _is_gone(file: int, size: int) -> bool:
    status = _status(file)
    return status is None or status.st_nlink == 0 or status.st_size < size


def _status(file: Path | int) -> os.stat_result | None:
    try:
        return os.stat(file)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
