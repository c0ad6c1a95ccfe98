"""The blob store in a bucket: S3 and what speaks its protocol, Google's and Azure's, or memory.

    <prefix>/files/<name>                     a file, under its mapped name (`blob_names`)
    <prefix>/sha256/<first 2 hex>/<hex>.<ext> an object named by its content
    <prefix>/conflicts/<name>/<upload>        what could not be stored under its name
    <prefix>/claims/<name>                    who is storing a large file under a name that has none yet
    <prefix>/clock/<hex>                      for a moment: what time it is at the store
    <prefix>/texts/<sha256>                   a name or a run id that is too long for metadata (`object_meta`)

What is known of a blob is the metadata of its object, and so always of the same bytes. Nothing is visible before it is
whole.

Two writers of one new name: a small file is stored by a request that fails where something is. A large one goes up in
parts, whose end no condition can be put on everywhere: therefore a claim is won first, by such a request.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from otel_logger_exporters.blob_files import temporary_file
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_url import BlobUrl
from otel_logger_exporters.object_claims import ObjectClaims
from otel_logger_exporters.object_client import SMALL_BYTES, ObjectClient, StoredObject
from otel_logger_exporters.object_errors import ObjectChangedError, ObjectMissingError
from otel_logger_exporters.object_meta import decode_attributes, encode_attributes, text_path
from otel_logger_exporters.object_options import check_options

__all__ = ["ObjectBlobStore"]

# Others that replace a name between our look and our request can do so again; so often is no accident.
_ATTEMPTS = 5


class ObjectBlobStore:
    """A blob store in a bucket or in memory; nothing is looked for before the first use.

    `memory://<name>` is one store for each name in a process, and gone with it: for tests and notebooks.
    ConfigurationError where variables in `environ` contradict each other.
    """

    def __init__(self, url: BlobUrl, environ: Mapping[str, str]) -> None:
        check_options(url, environ)
        self._url = url
        self._client = ObjectClient(url, environ)
        self._claims = ObjectClaims(self._client, self._encoded, self._decoded, url.uri)
        self._kept_texts: set[str] = set()

    @property
    def uri(self) -> str:
        """The store's URL, as users write it."""
        return self._url.uri()

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

        Of up to 16 MiB the digest is checked as well as the size; a larger file is read by obstore alone, and only its
        size and that it does not change meanwhile. Two uploads of a new large name at once: one wins its claim. A small
        one and a large one at the very same moment: the last stays.
        """
        source = Path(source_path)
        path = _file(name)
        if meta.size <= SMALL_BYTES:
            self._put_small(name, path, source, meta, may_replace)
        else:
            self._put_large(name, path, source, meta, may_replace)
        return self._done(path, source, move)

    def put_object(self, source_path: str | Path, meta: BlobMeta, extension: str, *, move: bool = False) -> str:
        """Store a local file as `sha256/<2 hex>/<hex>.<extension>`; see `BlobStore`."""
        source = Path(source_path)
        path = f"sha256/{meta.sha256[:2]}/{meta.sha256}.{extension}"
        if not source.exists() and self._has(path, meta.size):
            return self._done(path, source, move)
        if meta.size <= SMALL_BYTES:
            data, attributes = _content(source, meta), self._encoded(meta)
            try:
                self._client.put_instead(path, data, attributes, None)
            except ObjectChangedError:
                # What is there was whole from its first moment, but who knows what somebody put there by hand.
                if not self._has(path, meta.size):
                    self._client.put(path, data, attributes)
        elif not self._has(path, meta.size):
            self._send_large(path, source, meta)
        return self._done(path, source, move)

    def put_conflict(self, name: str, source_path: str | Path, meta: BlobMeta, *, move: bool = False) -> str:
        """Keep a local file as `conflicts/<name>/<meta.upload>`; see `BlobStore`."""
        source = Path(source_path)
        path = f"conflicts/{blob_name(name)}/{meta.upload}"
        put = self._put_small if meta.size <= SMALL_BYTES else self._put_large
        put(name, path, source, meta, None)
        return self._done(path, source, move)

    def put_new(self, name: str, source_path: str | Path, meta: BlobMeta) -> bool:
        """Store a small file by a request that fails where there is one; see `BlobStore`."""
        try:
            self._client.put_new(_file(name), _content(Path(source_path), meta), self._encoded(meta))
        except ObjectChangedError:
            return False
        return True

    def meta(self, name: str) -> BlobMeta | None:
        """What a stored file's metadata say; see `BlobStore`."""
        stored = self._client.look(_file(name))
        return None if stored is None else self._decoded(stored, name)

    def copy_to(
        self, name: str, destination_path: str | Path, progress: Callable[[int], None] | None = None
    ) -> BlobMeta:
        """Copy a stored file to a path, checked against its metadata; see `BlobStore`.

        `progress` is called with the number of bytes of each piece copied (again from the first, when the file was
        replaced meanwhile).
        """
        destination = Path(os.path.abspath(destination_path))
        path = _file(name)
        for _ in range(_ATTEMPTS):
            stored = self._client.look(path)
            if stored is None:
                msg = f"no file {name!r} in the blob store {self.uri}"
                raise FileNotFoundError(errno.ENOENT, msg)
            meta = self._decoded(stored, name)
            if not meta.sha256:
                msg = (
                    f"{self._url.uri(path)} was not stored by otel_logger, or lost its metadata: its "
                    f"{stored.size} bytes cannot be checked; store it again by upload_file, or fetch it "
                    "with the provider's own tools"
                )
                raise BlobCorruptError(errno.EIO, msg)
            with contextlib.suppress(ObjectChangedError, ObjectMissingError):
                self._copy(path, stored, meta, destination, progress)
                return meta
        msg = f"{self._url.uri(path)} was replaced while it was being read, {_ATTEMPTS} times; try again"
        raise BlobUnavailableError(errno.EAGAIN, msg)

    def remove(self, name: str) -> None:
        """Delete a stored file; see `BlobStore`."""
        self._client.delete(_file(name))

    def _put_small(
        self, name: str, path: str, source: Path, meta: BlobMeta, may_replace: Callable[[BlobMeta], bool] | None
    ) -> None:
        for _ in range(_ATTEMPTS):
            # First: of an upload that was stored before, the source may be gone.
            is_there, stored = self._decide(name, path, meta, may_replace)
            if is_there:
                return
            data, attributes = _content(source, meta), self._encoded(meta)
            if may_replace is None:
                self._client.put(path, data, attributes)
                return
            if stored is None:
                self._claims.refuse(name, meta, may_replace)
            try:
                self._client.put_instead(path, data, attributes, stored)
                return
            except ObjectChangedError:
                continue  # decided anew, by what is there now
        msg = f"{self._url.uri(path)} was replaced by others, {_ATTEMPTS} times; try again"
        raise BlobUnavailableError(errno.EAGAIN, msg)

    def _put_large(
        self, name: str, path: str, source: Path, meta: BlobMeta, may_replace: Callable[[BlobMeta], bool] | None
    ) -> None:
        is_there, _ = self._decide(name, path, meta, may_replace)
        if may_replace is None:
            if not is_there:
                self._send_large(path, source, meta)
            return
        if not is_there:
            self._claims.win(name, meta, may_replace)
            try:
                # Once more: whoever was faster had the claim, and has dropped it.
                is_there, _ = self._decide(name, path, meta, may_replace)
                if not is_there:
                    self._send_large(path, source, meta)
            except (FileExistsError, FileNotFoundError, BlobCorruptError):
                # Not after an outage: then the claim waits for the next try.
                self._claims.drop(name, meta)
                raise
        self._claims.drop(name, meta)

    def _decide(
        self, name: str, path: str, meta: BlobMeta, may_replace: Callable[[BlobMeta], bool] | None
    ) -> tuple[bool, StoredObject | None]:
        """Whether this very upload is stored already, and what is there; FileExistsError where that has to stay."""
        stored = self._client.look(path)
        if stored is None:
            return False, None
        known = self._decoded(stored, name)
        if known.upload and known.upload == meta.upload:
            return True, stored
        if may_replace is not None and not may_replace(known):
            msg = (
                f"{name!r} is already in the blob store: {self._url.uri(path)}, written by {known.written_by}; "
                "pass overwrite=True to replace it"
            )
            raise FileExistsError(errno.EEXIST, msg)
        return False, stored

    def _send_large(self, path: str, source: Path, meta: BlobMeta) -> None:
        # The digest was made of the private copy which nobody changes: reading tens of GB once more to make it again
        # would take as long as sending them. Size and times tell a copy that was touched all the same.
        before = _state(source, meta)
        self._client.put_large(path, source, meta.size, self._encoded(meta))
        if _state(source, meta) != before:
            self._client.delete(path)
            msg = f"{str(source)!r} for {meta.name!r} was changed while it was being stored"
            raise BlobCorruptError(errno.EIO, msg)

    def _copy(
        self,
        path: str,
        stored: StoredObject,
        meta: BlobMeta,
        destination: Path,
        progress: Callable[[int], None] | None,
    ) -> None:
        digest = hashlib.sha256()
        size = 0
        destination.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(destination.parent, 0o666) as (temporary, file):
            for piece in self._client.pieces(path, stored):
                digest.update(piece)
                file.write(piece)
                size += len(piece)
                if progress is not None:
                    progress(len(piece))
            file.close()
            if (digest.hexdigest(), size) != (meta.sha256, meta.size):
                msg = (
                    f"{self._url.uri(path)} has {size} bytes, sha256 {digest.hexdigest()}, but its metadata say "
                    f"{meta.size} bytes, sha256 {meta.sha256}; store it again"
                )
                raise BlobCorruptError(errno.EIO, msg)
            temporary.replace(destination)

    def _has(self, path: str, size: int) -> bool:
        stored = self._client.look(path)
        return stored is not None and stored.size == size

    def _done(self, path: str, source: Path, move: bool) -> str:
        if move:
            source.unlink(missing_ok=True)
        return self._url.uri(path)

    def _encoded(self, meta: BlobMeta) -> dict[str, str]:
        return encode_attributes(meta, self._keep_text)

    def _decoded(self, stored: StoredObject, name: str) -> BlobMeta:
        return decode_attributes(stored.attributes, name, stored.size, self._text)

    def _keep_text(self, data: bytes) -> None:
        path = text_path(data)
        if path not in self._kept_texts:
            with contextlib.suppress(ObjectChangedError):
                self._client.put_instead(path, data, {}, None)
            self._kept_texts.add(path)

    def _text(self, path: str) -> bytes:
        try:
            return self._client.read(path)
        except ObjectMissingError:
            return path.encode("ascii")  # deleted by hand: nobody's name


def _file(name: str) -> str:
    return f"files/{blob_name(name)}"


def _content(source: Path, meta: BlobMeta) -> bytes:
    """The bytes of a small file, which are what was announced."""
    _state(source, meta)
    data = source.read_bytes()
    _check(source, meta, hashlib.sha256(data).hexdigest(), len(data))
    return data


def _state(source: Path, meta: BlobMeta) -> tuple[int, int, int]:
    """What tells a file that was changed; BlobCorruptError when its size is not the announced one."""
    state = source.stat()
    if not stat.S_ISREG(state.st_mode):
        msg = f"cannot store {str(source)!r} as {meta.name!r}: it is not a regular file"
        raise OSError(errno.EINVAL, msg)
    _check(source, meta, meta.sha256, state.st_size)
    return state.st_ino, state.st_size, state.st_mtime_ns


def _check(source: Path, meta: BlobMeta, digest: str, size: int) -> None:
    if (digest, size) != (meta.sha256, meta.size):
        told = "" if size != meta.size else f", sha256 {digest}"
        msg = (
            f"{str(source)!r} for {meta.name!r}: {size} bytes{told}, where {meta.size} bytes, sha256 {meta.sha256} "
            "were announced; was it changed while it was being stored?"
        )
        raise BlobCorruptError(errno.EIO, msg)
