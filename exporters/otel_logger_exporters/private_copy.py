"""Private copies of files: what a file holds at this moment, kept where nobody changes or deletes it.

| the file is on | the copy is | and takes |
|---|---|---|
| the folder's file system, which can share blocks (XFS, Btrfs, bcachefs, ZFS) | a reflink in the folder | no space |
| another file system, which can | a reflink on that, in a `hidden_folder` | no space |
| any other | a copy by the kernel in the folder (by the server, where NFS or SMB can) | time and space |

A reflink waits for what of the file is not on the disk yet, as the file system writes that first.
Holes of a sparse file become zeros: some file systems have told of holes where data was only not written yet.
No space is reserved before a copy: where the file system does not know how, that writes to each of its blocks.
"""

import contextlib
import errno
import fcntl
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from otel_logger_exporters.blob_files import make_private_folder, new_file, opened_folder
from otel_logger_exporters.hidden_folder import hidden_copy_is_ours, hiding_place, link_hidden, remove_if_hidden

__all__ = ["MOVERS", "clone_file", "is_trusted_copy", "private_copy", "remove_copy"]

# Between two pieces handlers of signals run.
_PIECE = 64 << 20
_PLAIN_PIECE = 1 << 20

# Direction and size are encoded otherwise on these.
_IS_ODD = platform.machine().lower().startswith(("alpha", "mips", "parisc", "ppc", "powerpc", "sparc"))
_FICLONE = 0x80049409 if _IS_ODD else 0x40049409

# By these a kernel, a file system or a sandbox says that it does not do this; where something is really wrong, the next
# way meets it too.
_UNABLE = {
    *(errno.EACCES, errno.EBADF, errno.EINVAL, errno.EIO, errno.ENOENT, errno.ENOSYS, errno.ENOTSOCK, errno.ENOTSUP),
    *(errno.ENOTTY, errno.EOPNOTSUPP, errno.EOVERFLOW, errno.EPERM, errno.ETXTBSY, errno.EXDEV),
}

Mover = Callable[[int, int, int], int]
"""Moves up to so many bytes from a descriptor to another, at the positions of both; returns how many, 0 at the end."""


def clone_file(source: int, target: int) -> None:
    """Make an empty file share all blocks of another, as they are at this moment; OSError where that cannot be."""
    if sys.platform != "linux":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    fcntl.ioctl(target, _FICLONE, source)


def _copy_file_range(source: int, target: int, size: int) -> int:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.copy_file_range(source, target, size)


def _send_file(source: int, target: int, size: int) -> int:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.sendfile(target, source, None, size)


MOVERS: Sequence[Mover] = (_copy_file_range, _send_file)
"""The ways to copy within the kernel, the best first; each goes on where the one before it could not."""


def _any_size(folder: Path, size: int) -> None:
    """Take what there is."""


def private_copy(
    source: Path,
    folder: Path,
    name: str,
    *,
    make_room: Callable[[Path, int], None] = _any_size,
    clone: Callable[[int, int], None] = clone_file,
    place: Callable[[Path], Path | None] = hiding_place,
    movers: Sequence[Mover] = MOVERS,
) -> Path:
    """Copy what a file holds at this moment, and return the path of the copy: `folder / name`, or a hidden one.

    The folder is made if need be. The copy is a new file, readable by its owner only; where the source is on another
    file system that can share blocks, it is in a hidden folder on that one. Symbolic links are followed. Of a file that
    grows meanwhile, what it had at first is copied; of one that shrinks, what is left. Other threads run meanwhile.

    `make_room(folder, size)` is called before bytes are written (not before blocks are shared), and may raise OSError.
    `clone(source, target)`, `place(source)` and `movers` are how blocks are shared, where a copy is hidden, and how
    bytes are moved. Raises OSError: FileNotFoundError when there is no such file, IsADirectoryError or one of EINVAL
    when it is not a regular one (it is neither read nor waited for), FileExistsError when the copy's name is taken.
    Nothing of the copy is left then.
    """
    with _regular(source) as original:
        make_private_folder(folder)
        # By its descriptor, as the folder may be renamed meanwhile.
        with opened_folder(folder) as above, new_file(above, name) as target:
            refusal = _refusal(clone, original, target)
            if refusal == errno.EXDEV and (hidden := _hidden_copy(source, original, name, clone, place)) is not None:
                os.unlink(name, dir_fd=above)
                return hidden
            if refusal:
                if os.fstat(target).st_size:
                    # Not always: ext4 takes it for the replacement of a file, and writes that to the disk at its close.
                    os.ftruncate(target, 0)
                    os.lseek(target, 0, os.SEEK_SET)
                _copy(original, target, lambda size: make_room(folder, size), movers)
    return folder / name


def is_trusted_copy(path: Path, folder: Path) -> bool:
    """Tell whether a path that a manifest names can be a private copy made for `folder`; never raises.

    A manifest is data, and may name anything. A copy is a regular file, no symbolic link, and either directly in
    `folder` (which is known to be ours) with the folder's owner, or this user's in a hidden folder of this user alone.
    """
    if path.parent != folder:
        return hidden_copy_is_ours(path)
    try:
        file = os.lstat(path)
        return stat.S_ISREG(file.st_mode) and file.st_uid == os.stat(folder).st_uid
    except (OSError, ValueError):
        return False


def remove_copy(path: Path) -> None:
    """Delete a private copy, if it is still there, and the hidden folder when it was the last in it; else OSError."""
    path.unlink(missing_ok=True)
    remove_if_hidden(path.parent)


@contextlib.contextmanager
def _regular(source: Path) -> Iterator[int]:
    # Asked first, as opening a device may do something; opened without waiting, as it may have become a pipe since.
    _refuse_special(source, os.stat(source))
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _refuse_special(source, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_special(source: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        msg = f"{str(source)!r} is a folder, not a file"
        raise IsADirectoryError(errno.EISDIR, msg)
    if not stat.S_ISREG(status.st_mode):
        msg = f"{str(source)!r} is not a regular file but a pipe, socket or device"
        raise OSError(errno.EINVAL, msg)


def _refusal(clone: Callable[[int, int], None], original: int, target: int) -> int:
    """Share the blocks of a file; return 0, or why that cannot be, as one of `errno`."""
    try:
        clone(original, target)
    except OSError as error:
        if error.errno is None:  # raised by a handler of a signal, such as TimeoutError
            raise
        return error.errno
    return 0


def _hidden_copy(
    source: Path,
    original: int,
    name: str,
    clone: Callable[[int, int], None],
    place: Callable[[Path], Path | None],
) -> Path | None:
    """Share the blocks of a file on its own file system; return the path, or None where that cannot be."""
    if sys.platform != "linux":
        return None
    try:
        if (top := place(source)) is None:
            return None
        # Without a name until it is whole: where blocks are not shared, nobody ever sees that it was tried.
        target = os.open(top, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            return None if _refusal(clone, original, target) else link_hidden(target, top, name)
        finally:
            os.close(target)
    except OSError as error:
        if error.errno is None:
            raise
        return None


def _copy(original: int, target: int, make_room: Callable[[int], None], movers: Sequence[Mover]) -> None:
    """Copy a file by the first way that can; it is at its start, the target is empty."""
    size = os.fstat(original).st_size
    # What /proc and some of FUSE make up at the moment of reading has no size.
    end = size or sys.maxsize
    make_room(size)
    done = 0
    for move in movers if size else ():
        try:
            while done < end and (moved := move(original, target, min(_PIECE, end - done))):
                done += moved
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
    # One buffer for all: memory that is new for each piece can cost more than the copying.
    buffer = memoryview(bytearray(_PLAIN_PIECE))
    while done < end and (got := os.readv(original, [buffer[: end - done]])):
        if not size:
            make_room(got)
        done += got
        rest = buffer[:got]
        while rest:
            rest = rest[os.write(target, rest) :]
