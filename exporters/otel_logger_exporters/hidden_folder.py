"""A hidden folder of ours on the file system of a file that is to be copied there.

    <top>/.otel_logger-staged-<uid>/

`<top>` is the topmost folder of that file system in which it is safe: which this user may write to, and in which nobody
else may rename what is ours. So high, because a program that writes checkpoints also deletes them, together with the
folders they are in. It is accessible to this user alone, and is there for as long as anything is in it.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable
from pathlib import Path

from otel_logger_exporters.blob_files import opened_folder
from otel_logger_exporters.filesystems import file_system_of

__all__ = ["hidden_copy_is_ours", "hiding_place", "link_hidden", "remove_if_hidden"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

# What a container writes into its own layer is gone with the container; a run's folder may be on a volume that stays.
_EPHEMERAL = {"overlay", "aufs"}

# How often another process may take away the folder that we have just made, as it was empty.
_ATTEMPTS = 5


def hiding_place(
    source: Path,
    status: Callable[[Path], os.stat_result] = os.lstat,
    kind: Callable[[Path], str] = lambda folder: file_system_of(folder).name,
) -> Path | None:
    """Return the folder in which a hidden folder for a copy of `source` is safe, or None.

    It is on the file system of `source`, and never the folder in which that itself is. `status` and `kind` tell of a
    path and of the file system of a folder. Raises OSError.
    """
    real = Path(os.path.realpath(source))
    device = status(real).st_dev
    same = itertools.takewhile(lambda folder: status(folder).st_dev == device, real.parents)
    for folder in list(same)[:0:-1]:
        if _is_safe(status(folder)) and os.access(folder, os.W_OK | os.X_OK):
            return None if kind(folder) in _EPHEMERAL else folder
    return None


def link_hidden(file: int, place: Path, name: str) -> Path:
    """Give an unnamed file (`O_TMPFILE`, made in `place`) a name in the hidden folder there; return its path.

    The name is `name` and a random end, so that no two copies meet. Raises OSError, also when the hidden folder is not
    ours alone; an empty hidden folder is not left behind.
    """
    unique = f"{name}-{os.urandom(8).hex()}"
    with opened_folder(place) as above:
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(FileNotFoundError):
                return _link(file, place, above, unique)
        return _link(file, place, above, unique)


def hidden_copy_is_ours(path: Path) -> bool:
    """Tell whether a path leads to a file of this user in a hidden folder that nobody else can enter; never raises."""
    if not path.is_absolute() or path.parent.name != _hidden_name():
        return False
    try:
        _refuse_strange(os.lstat(path.parent), path.parent)
        file = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(file.st_mode) and file.st_uid == os.geteuid()


def remove_if_hidden(folder: Path) -> None:
    """Remove a hidden folder of ours when nothing is in it any more; leave every other alone. Raises nothing."""
    if folder.name == _hidden_name():
        with contextlib.suppress(OSError):
            folder.rmdir()


def _hidden_name() -> str:
    return f".otel_logger-staged-{os.geteuid()}"


def _is_safe(status: os.stat_result) -> bool:
    """Tell whether nobody but this user and root can rename what this user has in a folder."""
    us = os.geteuid()
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return bool(status.st_mode & stat.S_ISVTX) and status.st_uid in (us, 0)
    return status.st_uid == us


def _refuse_strange(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        msg = f"{str(path)!r} is no folder of this user alone: owner {status.st_uid}, mode {mode:04o}"
        raise PermissionError(errno.EACCES, msg)


def _link(file: int, place: Path, above: int, unique: str) -> Path:
    hidden = _hidden_name()
    with contextlib.suppress(FileExistsError):
        os.mkdir(hidden, 0o700, dir_fd=above)
    try:
        with opened_folder(hidden, above) as folder:
            _refuse_strange(os.fstat(folder), place / hidden)
            # The way to name an unnamed file that needs no privilege.
            os.link(f"/proc/self/fd/{file}", unique, dst_dir_fd=folder, follow_symlinks=True)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(hidden, dir_fd=above)
        raise
    return place / hidden / unique
