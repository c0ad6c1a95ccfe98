"""Where files, images and tables of runs are kept: the interface of a store, and the store in a local folder.

    <store>/files/<name>                     a file, under its mapped name (`blob_names`)
    <store>/meta/<name>.json                 its sidecar: `BlobMeta` as JSON, and under `previous` what it replaced
    <store>/sha256/<first 2 hex>/<hex>.<ext> an object named by its content; needs no sidecar
    <store>/.lock                            held while a file and its sidecar are exchanged

Nothing is visible under its name before it is whole: it is written beside it as `.tmp-<hex>` and renamed.

A file and its sidecar are two renames, and a process can die between them. Therefore **the sidecar comes first, and
names what it replaces as well**: whoever reads the file first and the sidecar after it finds the file's digest there,
at any moment and after any crash. A file whose digest its sidecar does not know is never handed out; only two processes
that put one name at one instant, on a file system without locks, can leave one.
Contents are not forced to the disk (`fsync`): what a power failure destroys, the digest tells.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from otel_logger_exporters.blob_files import (
    copy_stream,
    locked,
    make_private_folder,
    sha256_file,
    temporary_file,
    write_private,
)
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobMeta, decode_sidecar, encode_sidecar
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_url import parse_file_store

__all__ = [
    "BlobCorruptError",
    "BlobMeta",
    "BlobStore",
    "FileBlobStore",
    "open_blob_store",
    "sha256_file",
]

# One is needed for each put that died between its two renames since the last that did not.
_PREVIOUS_KEPT = 3
_EXTENSION_LENGTH = 16


class BlobStore(Protocol):
    """A place for blobs; methods raise OSError when the place fails, and names are mapped by `blob_name`."""

    @property
    def uri(self) -> str:
        """The store itself, as users write it."""
        ...

    def put_file(
        self, name: str, source_path: str | Path, meta: BlobMeta, *, overwrite: bool = True, move: bool = False
    ) -> str:
        """Store a local file under its name and return its URI; FileExistsError when there is one to be kept."""
        ...

    def put_bytes(self, name: str, data: bytes, meta: BlobMeta) -> str:
        """Store bytes under their digest and return their URI; of `name` only the extension counts."""
        ...

    def exists(self, name: str) -> bool:
        """Whether a file of this name is stored."""
        ...

    def meta(self, name: str) -> BlobMeta | None:
        """What is known of a stored file, without reading it; None when there is no such file."""
        ...

    def copy_to(
        self, name: str, destination_path: str | Path, progress: Callable[[int], None] | None = None
    ) -> BlobMeta:
        """Copy a stored file out, checked; FileNotFoundError when there is none, BlobCorruptError when it is wrong."""
        ...


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
        self, name: str, source_path: str | Path, meta: BlobMeta, *, overwrite: bool = True, move: bool = False
    ) -> str:
        """Store a local file under its name and return its URI.

        A copy is checked against `meta` on its way. With `move` a file on the store's file system is renamed into
        it, only its size checked; the source is gone when this returns, and untouched when it raises.
        """
        source = Path(source_path)
        if not stat.S_ISREG(source.stat().st_mode):
            msg = f"cannot store {str(source)!r} as {name!r}: it is not a regular file"
            raise OSError(errno.EINVAL, msg)
        target = self._file(name)
        self._refuse(name, target, overwrite)
        self._make_folder(name, target.parent)
        if move and not source.is_symlink():
            try:
                return self._put_moved(name, source, target, meta, overwrite)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        uri = self._put_copied(name, source, target, meta, overwrite)
        if move:
            source.unlink()
        return uri

    def put_bytes(self, name: str, data: bytes, meta: BlobMeta) -> str:
        """Store bytes as `sha256/<2 hex>/<hex>.<ext>` and return the URI; the same bytes are stored once.

        `name` gives the extension (`bin` when it has none of letters and digits).
        """
        digest = hashlib.sha256(data).hexdigest()
        _check(f"{len(data)} bytes for {name!r}", digest, len(data), meta)
        target = self.root / "sha256" / digest[:2] / f"{digest}.{_extension(name)}"
        # The size, because a power failure may leave a file that was never filled.
        if not (target.is_file() and target.stat().st_size == len(data)):
            self._make_folder(name, target.parent)
            write_private(target, data)
        return target.as_uri()

    def exists(self, name: str) -> bool:
        """Whether a file of this name is stored."""
        return self._file(name).is_file()

    def meta(self, name: str) -> BlobMeta | None:
        """What the sidecar says of a stored file; None when there is no such file or no sidecar.

        The file is not read: only `copy_to` proves that the two belong together.
        """
        path = self._file(name)
        if not path.is_file():
            return None
        size = path.stat().st_size
        known = self._known(name)
        return next((meta for meta in known if meta.size == size), known[0] if known else None)

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
                    meta = next((known for known in self._known(name) if known.sha256 == digest), None)
                    if meta is not None:
                        path.replace(destination)
                        return meta
                # A slow copy may outlive more puts than a sidecar remembers: then the name has another file by now.
                if self._is_current(name, source):
                    raise self._corrupt(name, digest, size)

    def _put_moved(self, name: str, source: Path, target: Path, meta: BlobMeta, overwrite: bool) -> str:
        size = source.stat().st_size
        _check(f"{str(source)!r} for {name!r}", meta.sha256, size, meta)
        if source.stat().st_dev != target.parent.stat().st_dev:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        source.chmod(0o600)
        return self._exchange(name, source, target, meta, overwrite)

    def _put_copied(self, name: str, source: Path, target: Path, meta: BlobMeta, overwrite: bool) -> str:
        with source.open("rb") as original, temporary_file(target.parent, 0o600) as (path, file):
            digest, size = copy_stream(original, file)
            _check(f"{str(source)!r} for {name!r}", digest, size, meta)
            file.close()
            return self._exchange(name, path, target, meta, overwrite)

    def _exchange(self, name: str, ready: Path, target: Path, meta: BlobMeta, overwrite: bool) -> str:
        sidecar = self._sidecar(name)
        self._make_folder(name, sidecar.parent)
        with locked(self.root / ".lock"):
            self._refuse(name, target, overwrite)
            try:
                previous = self._known(name) if target.is_file() else []
            except BlobCorruptError:
                previous = []  # what is unreadable cannot be carried on, and must not forbid the cure
            write_private(sidecar, encode_sidecar(meta, previous[:_PREVIOUS_KEPT]))
            ready.replace(target)
        return target.as_uri()

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

    def _known(self, name: str) -> list[BlobMeta]:
        path = self._sidecar(name)
        try:
            return decode_sidecar(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return []
        except ValueError as error:
            msg = f"the sidecar of {name!r} in the blob store {self.uri} is unreadable: {error}; store the file again"
            raise BlobCorruptError(errno.EIO, msg) from error

    def _refuse(self, name: str, target: Path, overwrite: bool) -> None:
        if target.is_dir():
            msg = f"cannot store {name!r} in {self.uri}: it is a folder of other files there; choose another name"
            raise IsADirectoryError(errno.EISDIR, msg)
        if not overwrite and target.exists():
            msg = f"{name!r} is already in the blob store {self.uri}; pass overwrite=True to replace it"
            raise FileExistsError(errno.EEXIST, msg)

    def _corrupt(self, name: str, digest: str, size: int) -> BlobCorruptError:
        known = self._known(name)
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


def _extension(name: str) -> str:
    extension = os.path.splitext(name)[1][1:].lower()
    return extension if extension.isascii() and extension.isalnum() and len(extension) <= _EXTENSION_LENGTH else "bin"


def open_blob_store(url: str) -> BlobStore:
    """The blob store that a URL names; nothing is created or looked for before the first use."""
    return FileBlobStore(parse_file_store(url))
