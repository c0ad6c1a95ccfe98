"""The blob store in a local folder.

    <store>/files/<name>                     a file, under its mapped name (`blob_names`)
    <store>/meta/<name>.json                 its sidecar: `BlobMeta` as JSON, and under `previous` what it replaced
    <store>/sha256/<first 2 hex>/<hex>.<ext> an object named by its content; needs no sidecar
    <store>/conflicts/<name>/<upload>        what could not be stored under its name, with a sidecar
    <store>/.lock                            held while a file and its sidecar are exchanged

Nothing is visible under its name before it is whole: it is written beside it as `.tmp-<hex>` and renamed.

A file and its sidecar are two renames, and a process can die between them. Therefore **the sidecar comes first, and
names what it replaces as well**: whoever reads the file first and the sidecar after it finds the file's digest there,
at any moment and after any crash. A file whose digest its sidecar does not know is never handed out; only two processes
that put one name at one instant, on a file system without locks, can leave one.
Contents are not forced to the disk (`fsync`): what a power failure destroys, the digest tells.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from otel_logger_exporters.blob_files import (
    copy_stream,
    locked,
    make_private_folder,
    sha256_file,
    temporary_file,
    write_private,
)
from otel_logger_exporters.blob_meta import (
    DEFAULT_MEDIA_TYPE,
    BlobCorruptError,
    BlobForbiddenError,
    BlobMeta,
    BlobUnavailableError,
    decode_sidecar,
    encode_sidecar,
)
from otel_logger_exporters.blob_names import blob_name

__all__ = ["FileBlobStore"]

# One is needed for each put that died between its two renames since the last that did not.
_PREVIOUS_KEPT = 3
_UNAVAILABLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENXIO, errno.ENOMEM}
_UNAVAILABLE |= {errno.EMFILE, errno.ENFILE, errno.EBUSY, errno.EHOSTDOWN, errno.EHOSTUNREACH}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class FileBlobStore:
    """A blob store in a local folder, which is created by the first write, readable by its owner only."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(os.path.abspath(root))
        self._files = self.root / "files"
        self._sidecars = self.root / "meta"

    @property
    def uri(self) -> str:
        """The store's folder as a `file://` URI."""
        return self.root.as_uri()

    def put_file(
        self,
        name: str,
        source_path: str | Path,
        meta: BlobMeta,
        *,
        may_replace: Callable[[BlobMeta], bool] | None = None,
        move: bool = False,
    ) -> str:
        """Store a local file under its name; see `BlobStore`.

        A copy is checked against `meta` on its way. With `move` a file on the store's file system is renamed into
        it, only its size checked.
        """
        with _judged():
            return self._put(name, Path(source_path), self._file(name), self._sidecar(name), meta, may_replace, move)

    def put_object(self, source_path: str | Path, meta: BlobMeta, extension: str, *, move: bool = False) -> str:
        """Store a local file as `sha256/<2 hex>/<hex>.<extension>`; see `BlobStore`."""
        source = Path(source_path)
        target = self.root / "sha256" / meta.sha256[:2] / f"{meta.sha256}.{extension}"
        with _judged():
            # The size, because a power failure may leave a file that was never filled.
            if not (target.is_file() and target.stat().st_size == meta.size):
                self._make_folder(meta.name, target.parent)
                with self._ready(meta.name, source, target.parent, meta, move) as ready:
                    ready.replace(target)
            if move:
                source.unlink(missing_ok=True)
        return target.as_uri()

    def put_conflict(self, name: str, source_path: str | Path, meta: BlobMeta, *, move: bool = False) -> str:
        """Keep a local file as `conflicts/<name>/<meta.upload>`; see `BlobStore`."""
        place = f"conflicts/{blob_name(name)}/{meta.upload}"
        sidecar = self._sidecars / f"{place}.json"
        with _judged():
            return self._put(name, Path(source_path), self.root / place, sidecar, meta, None, move)

    def put_new(self, name: str, source_path: str | Path, meta: BlobMeta) -> bool:
        """Store a local file where there is none; see `BlobStore`."""
        try:
            self.put_file(name, source_path, meta, may_replace=lambda _: False)
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Delete a stored file, its sidecar, and the folders of `files` and `meta` that are empty then."""
        if not self.root.is_dir():
            return
        with locked(self.root / ".lock"):
            # The sidecar last: a file without one cannot be read.
            for path in (self._file(name), self._sidecar(name)):
                if path.is_file():
                    path.unlink(missing_ok=True)
                for folder in path.parents:
                    if folder == self.root:
                        break
                    with contextlib.suppress(OSError):  # others are in it
                        folder.rmdir()

    def meta(self, name: str) -> BlobMeta | None:
        """What the sidecar says of a stored file; see `BlobStore`.

        The file is not read: only `copy_to` proves that the two belong together.
        """
        path = self._file(name)
        if not path.is_file():
            return None
        return _of_size(self._known(name, self._sidecar(name)), path.stat().st_size, name)

    def copy_to(
        self, name: str, destination_path: str | Path, progress: Callable[[int], None] | None = None
    ) -> BlobMeta:
        """Copy a stored file to a path, checked against its sidecar, and return what the sidecar says.

        The destination's folder is created; the file appears there whole or not at all, replacing one of its name.
        `progress` is called with the number of bytes of each piece copied (again from the first, when the file was
        replaced several times meanwhile).
        """
        destination = Path(os.path.abspath(destination_path))
        while True:
            with self._opened(name) as source:
                destination.parent.mkdir(parents=True, exist_ok=True)
                with temporary_file(destination.parent, 0o666) as (path, file):
                    digest, size = copy_stream(source, file, progress)
                    file.close()
                    # After the file, see the module: the sidecar of a file just replaced names this one too.
                    known = self._known(name, self._sidecar(name))
                    meta = next((one for one in known if one.sha256 == digest), None)
                    if meta is not None:
                        path.replace(destination)
                        return meta
                # A slow copy may outlive more puts than a sidecar remembers: then the name has another file by now.
                if self._is_current(name, source):
                    raise self._corrupt(name, digest, size)

    def _put(
        self,
        name: str,
        source: Path,
        target: Path,
        sidecar: Path,
        meta: BlobMeta,
        may_replace: Callable[[BlobMeta], bool] | None,
        move: bool,
    ) -> str:
        is_there = self._is_there(name, source, target, sidecar, meta, may_replace)
        if not is_there:
            _regular(name, source)
            self._make_folder(name, target.parent)
            with self._ready(name, source, target.parent, meta, move) as ready:
                self._make_folder(name, sidecar.parent)
                with locked(self.root / ".lock"):
                    is_there = self._is_there(name, source, target, sidecar, meta, may_replace)
                    if not is_there:
                        previous = self._previous(name, target, sidecar)
                        write_private(sidecar, encode_sidecar(meta, previous[:_PREVIOUS_KEPT]))
                        ready.replace(target)
        if move:
            source.unlink(missing_ok=True)
        return target.as_uri()

    @contextlib.contextmanager
    def _ready(self, name: str, source: Path, folder: Path, meta: BlobMeta, move: bool) -> Iterator[Path]:
        """A file to rename within the store: the source itself where it can be moved, else a checked copy."""
        if move and not source.is_symlink() and source.stat().st_dev == folder.stat().st_dev:
            _check(f"{str(source)!r} for {name!r}", meta.sha256, source.stat().st_size, meta)
            source.chmod(0o600)
            yield source
            return
        with source.open("rb") as original, temporary_file(folder, 0o600) as (path, file):
            digest, size = copy_stream(original, file)
            _check(f"{str(source)!r} for {name!r}", digest, size, meta)
            file.close()
            yield path

    def _is_there(
        self,
        name: str,
        source: Path,
        target: Path,
        sidecar: Path,
        meta: BlobMeta,
        may_replace: Callable[[BlobMeta], bool] | None,
    ) -> bool:
        """Tell whether this very upload is stored already; FileExistsError where another is that has to stay."""
        if target.is_dir():
            msg = f"cannot store {name!r} in {self.uri}: it is a folder of other files there; choose another name"
            raise IsADirectoryError(errno.EISDIR, msg)
        if not target.is_file():
            return False
        size = target.stat().st_size
        # What is unreadable must not forbid the cure.
        remembered = self._previous(name, target, sidecar)
        known = _of_size(remembered, size, name)
        if known.upload and known.upload == meta.upload:
            # Who put it may have died before the file came after its sidecar: of one size, the digest tells. Not where
            # the source was moved here.
            if not source.exists() or sha256_file(target) == known.sha256:
                return True
            others = [one for one in remembered if one.size == size and one.sha256 != known.sha256]
            known = _of_size(others, size, name)
        if may_replace is not None and not may_replace(known):
            msg = (
                f"{name!r} is already in the blob store: {target.as_uri()}, written by {known.written_by}; "
                "pass overwrite=True to replace it"
            )
            raise FileExistsError(errno.EEXIST, msg)
        return False

    def _previous(self, name: str, target: Path, sidecar: Path) -> list[BlobMeta]:
        try:
            return self._known(name, sidecar) if target.is_file() else []
        except BlobCorruptError:
            return []  # what is unreadable cannot be carried on

    def _file(self, name: str) -> Path:
        return self._files / blob_name(name)

    def _sidecar(self, name: str) -> Path:
        return self._sidecars / f"{blob_name(name)}.json"

    def _make_folder(self, name: str, folder: Path) -> None:
        try:
            make_private_folder(folder)
        except (FileExistsError, NotADirectoryError) as error:
            # Not FileExistsError: to callers that means that the very name is taken.
            msg = f"cannot store {name!r} in {self.uri}: a part of its folder is stored as a file; choose another name"
            raise NotADirectoryError(errno.ENOTDIR, msg) from error

    def _opened(self, name: str) -> BinaryIO:
        path = self._file(name)
        try:
            if path.is_file():
                return path.open("rb")
        except FileNotFoundError:
            pass
        msg = f"no file {name!r} in the blob store {self.uri}"
        raise FileNotFoundError(errno.ENOENT, msg)

    def _is_current(self, name: str, opened: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(opened.fileno()), self._file(name).stat())
        except (FileNotFoundError, NotADirectoryError):
            return False  # opening it again tells

    def _known(self, name: str, sidecar: Path) -> list[BlobMeta]:
        try:
            return decode_sidecar(sidecar.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return []
        except ValueError as error:
            msg = f"the sidecar of {name!r} in the blob store {self.uri} is unreadable: {error}; store the file again"
            raise BlobCorruptError(errno.EIO, msg) from error

    def _corrupt(self, name: str, digest: str, size: int) -> BlobCorruptError:
        known = self._known(name, self._sidecar(name))
        told = f"its sidecar says {known[0].size} bytes, sha256 {known[0].sha256}" if known else "it has no sidecar"
        msg = f"{name!r} in the blob store {self.uri} has {size} bytes, sha256 {digest}, but {told}; store it again"
        return BlobCorruptError(errno.EIO, msg)


def _check(what: str, digest: str, size: int, meta: BlobMeta) -> None:
    if (digest, size) != (meta.sha256, meta.size):
        msg = (
            f"{what}: {size} bytes, sha256 {digest}, where {meta.size} bytes, sha256 {meta.sha256} were announced; "
            "was it changed while it was being stored?"
        )
        raise BlobCorruptError(errno.EIO, msg)


def _of_size(known: list[BlobMeta], size: int, name: str) -> BlobMeta:
    """The first of what a sidecar tells that has a file's size, else its first, else all that can be told of one."""
    unknown = BlobMeta(None, 0, "", size, DEFAULT_MEDIA_TYPE, name)
    return next((meta for meta in known if meta.size == size), known[0] if known else unknown)


@contextlib.contextmanager
def _judged() -> Iterator[None]:
    """Tell what may go well later, or when somebody has mended it, from what never will."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BlobCorruptError | FileExistsError):
            raise
        if error.errno in _UNAVAILABLE:
            raise BlobUnavailableError(error.errno, str(error)) from error
        if error.errno in _FORBIDDEN:
            raise BlobForbiddenError(error.errno, str(error)) from error
        raise


def _regular(name: str, source: Path) -> None:
    if not stat.S_ISREG(source.stat().st_mode):
        msg = f"cannot store {str(source)!r} as {name!r}: it is not a regular file"
        raise OSError(errno.EINVAL, msg)
