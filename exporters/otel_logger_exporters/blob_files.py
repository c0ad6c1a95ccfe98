"""Files that appear whole or not at all, private folders, and a lock between processes."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "TEMPORARY_PREFIX",
    "copy_stream",
    "locked",
    "make_private_folder",
    "new_file",
    "opened_folder",
    "sha256_file",
    "temporary_file",
    "write_private",
]

TEMPORARY_PREFIX = ".tmp-"

_CHUNK = 1 << 20


def sha256_file(path: str | Path) -> str:
    """The SHA-256 of a file as hexadecimal digits, read piece by piece."""
    digest = hashlib.sha256()
    # Unbuffered, and into the same memory each time: new memory for each piece takes longer than the reading.
    with open(path, "rb", buffering=0) as file:
        for piece in _pieces(file):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(source: RawIOBase | BinaryIO) -> Iterator[memoryview]:
    """Read to the end; each piece is valid until the next is asked for."""
    memory = memoryview(bytearray(_CHUNK))
    while count := source.readinto(memory):  # type: ignore[union-attr]
        yield memory[:count]


def copy_stream(source: BinaryIO, target: BinaryIO, progress: Callable[[int], None] | None = None) -> tuple[str, int]:
    """Copy to the end and return the SHA-256 (hexadecimal) and the number of bytes that went through."""
    digest = hashlib.sha256()
    size = 0
    for piece in _pieces(source):
        digest.update(piece)
        target.write(piece)
        size += len(piece)
        if progress is not None:
            progress(len(piece))
    return digest.hexdigest(), size


def write_private(target: Path, data: bytes) -> None:
    """Put a file, readable by its owner only, in the place of any other of its name.

    It goes where its folder goes that is renamed meanwhile.
    """
    with opened_folder(target.parent) as folder:
        name = _temporary_name()
        with new_file(folder, name) as descriptor:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.replace(name, target.name, src_dir_fd=folder, dst_dir_fd=folder)


def _temporary_name() -> str:
    return f"{TEMPORARY_PREFIX}{os.urandom(16).hex()}"


@contextlib.contextmanager
def opened_folder(folder: str | Path, above: int | None = None) -> Iterator[int]:
    """The descriptor of a folder, which stays good when the folder is renamed.

    One that is named within the open folder `above` may not be a symbolic link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if above is None else os.O_NOFOLLOW)
    descriptor = os.open(folder, flags, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_file(folder: int, name: str) -> Iterator[int]:
    """The descriptor of a new file, readable by its owner only, in an open folder; gone again after an error."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        try:
            yield descriptor
        finally:
            # Within: NFS says here that a disk is full.
            os.close(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


@contextlib.contextmanager
def temporary_file(folder: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file to fill and rename within its folder; whatever happens, nothing of it is left under its own name."""
    path = folder / _temporary_name()
    file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), "wb")
    try:
        yield path, file
    finally:
        with contextlib.suppress(OSError):  # what could not be written was told by the error that brought us here
            file.close()
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, made if need be; where the file system knows no locks, hold nothing."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Said aloud, since closing does not unlock while a forked child holds the descriptor.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each accessible to its owner only."""
    # Not os.makedirs: its mode is for the last folder alone.
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
