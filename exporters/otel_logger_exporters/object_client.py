"""Single requests to an object store, by obstore; the only module that knows it.

obstore is imported and the store opened by the first request. Its runtime does not survive a fork: a child that made
a request would wait for ever. Whether its parent has made any cannot be told, so a child of a process that had obstore
imported makes none.
"""

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError
from otel_logger_exporters.blob_url import BlobUrl
from otel_logger_exporters.object_errors import ObjectMissingError, UnsupportedConditionError, translated, unopened
from otel_logger_exporters.object_options import client_options, provider_options, retry_options, wants_profile

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["SMALL_BYTES", "ObjectClient", "StoredObject"]

SMALL_BYTES = 16 << 20
"""Objects up to this size are sent by one request, which conditions can be put on, out of memory."""

_PART_BYTES = 8 << 20
_PARTS = 9_000  # S3 takes 10,000
_PART_UNIT = 1 << 20
_UNDER_WAY_BYTES = 96 << 20

# One request for each, so that its bound of time and its retries are for a piece, not for a file of any size.
_PIECE_BYTES = 64 << 20
_STREAM_BYTES = 1 << 20

_memories: dict[str, "ObjectStore"] = {}
_memories_lock = threading.Lock()
_is_forked_late = False


def _note_fork() -> None:
    global _is_forked_late, _memories_lock
    _is_forked_late = _is_forked_late or "obstore" in sys.modules
    _memories_lock = threading.Lock()  # the parent's may be held by a thread that is not here


os.register_at_fork(after_in_child=_note_fork)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a store tells of an object: its attributes, its size, when it was stored, and which version it is."""

    attributes: dict[str, str]
    size: int
    modified: datetime
    e_tag: str | None
    version: str | None


class ObjectClient:
    """Single requests to the store of a URL; thread-safe.

    All raise OSError, and nothing of obstore's: BlobUnavailableError, BlobForbiddenError, ObjectMissingError where an
    object is not there, ObjectChangedError and UnsupportedConditionError where there is a condition.
    """

    def __init__(self, url: BlobUrl, environ: Mapping[str, str]) -> None:
        self._url = url
        self._environ = dict(environ)
        self._lock = threading.Lock()
        self._opened: ObjectStore | None = None
        self._is_place_known = False
        self._has_conditions = True

    def look(self, path: str) -> StoredObject | None:
        """What is at a path, without its bytes; None where nothing is."""
        import obstore

        try:
            with translated(f"cannot look for {self._url.uri(path)}", self._url.scheme):
                result = obstore.get(self._store(), self._url.key(path), options={"head": True})
                stored = _stored(result)
        except ObjectMissingError:
            if not self._is_place_known:
                self._find_place(path)
            return None
        self._is_place_known = True
        return stored

    def read(self, path: str) -> bytes:
        """The bytes of a small object."""
        import obstore

        with translated(f"cannot read {self._url.uri(path)}", self._url.scheme):
            return bytes(obstore.get(self._store(), self._url.key(path)).bytes())

    def pieces(self, path: str, stored: StoredObject) -> Iterator[bytes]:
        """The bytes of an object, piece by piece; ObjectChangedError when it is another one before the end."""
        import obstore

        for start in range(0, stored.size, _PIECE_BYTES):
            with translated(f"cannot read {self._url.uri(path)}", self._url.scheme):
                options: Any = {"range": (start, min(start + _PIECE_BYTES, stored.size)), "if_match": stored.e_tag}
                stream = iter(obstore.get(self._store(), self._url.key(path), options=options).stream(_STREAM_BYTES))
            while True:
                # The request alone, not what is made of the piece.
                with translated(f"cannot read {self._url.uri(path)}", self._url.scheme):
                    piece = next(stream, None)
                if piece is None:
                    break
                yield piece

    def put(self, path: str, data: bytes, attributes: dict[str, str]) -> None:
        """Store bytes, in the place of anything."""
        self._put(path, data, attributes, "overwrite")

    def put_new(self, path: str, data: bytes, attributes: dict[str, str]) -> None:
        """Store bytes where nothing is; ObjectChangedError where something is."""
        self._put(path, data, attributes, "create")

    def put_instead(self, path: str, data: bytes, attributes: dict[str, str], of: StoredObject | None) -> None:
        """Store bytes in the place of one object, or of none; ObjectChangedError where another is or none is.

        A store that knows no such conditions is not asked for them again: it stores what it is given.
        """
        if of is None:
            mode: Any = "create"
        else:
            known = {"e_tag": of.e_tag, "version": of.version}
            mode = {key: value for key, value in known.items() if value is not None} or "overwrite"
        if self._has_conditions:
            try:
                self._put(path, data, attributes, mode)
                return
            except UnsupportedConditionError:
                self._has_conditions = False
        self._put(path, data, attributes, "overwrite")

    def put_large(self, path: str, source: Path, size: int, attributes: dict[str, str]) -> None:
        """Store a local file of any size, in the place of anything: in parts, of which few are in memory at a time."""
        import obstore

        part = part_bytes(size)
        with self._storing(path):
            # By its path: parts are read without Python's interpreter lock.
            obstore.put(
                self._store(),
                self._url.key(path),
                source,
                attributes=attributes,
                chunk_size=part,
                max_concurrency=max(1, _UNDER_WAY_BYTES // part),
            )

    def delete(self, path: str) -> None:
        """Delete what is at a path, if anything is."""
        import obstore

        try:
            with translated(f"cannot delete {self._url.uri(path)}", self._url.scheme):
                obstore.delete(self._store(), self._url.key(path))
        except ObjectMissingError:
            pass

    def _put(self, path: str, data: bytes, attributes: dict[str, str], mode: Any) -> None:
        import obstore

        with self._storing(path, is_conditional=mode != "overwrite"):
            obstore.put(self._store(), self._url.key(path), data, attributes=attributes, mode=mode, use_multipart=False)

    @contextlib.contextmanager
    def _storing(self, path: str, *, is_conditional: bool = False) -> Iterator[None]:
        try:
            with translated(f"cannot store {self._url.uri(path)}", self._url.scheme, is_conditional=is_conditional):
                yield
        except ObjectMissingError as error:
            # Of an upload in parts that somebody has swept away.
            raise BlobUnavailableError(errno.EIO, error.strerror) from None
        self._is_place_known = True

    def _find_place(self, path: str) -> None:
        """Raise BlobForbiddenError where there is no bucket: only the answer to a request for bytes tells."""
        import obstore

        with (
            contextlib.suppress(ObjectMissingError),
            translated(f"cannot look for {self._url.uri(path)}", self._url.scheme),
        ):
            obstore.get(self._store(), self._url.key(path))
        self._is_place_known = True

    def _store(self) -> "ObjectStore":
        if _is_forked_late:
            msg = (
                f"{self._url.uri()} cannot be used in a child of a fork whose parent had imported obstore: it would "
                "hang. Start such processes by spawn (multiprocessing.set_start_method('spawn')), or leave files to "
                "the process that trains"
            )
            raise BlobForbiddenError(errno.ENOTSUP, msg)
        with self._lock:
            if self._opened is None:
                try:
                    self._opened = _memory(self._url.place) if self._url.scheme == "memory" else self._open()
                except BlobForbiddenError:
                    raise
                except Exception as error:
                    raise unopened(error, self._url.uri(), self._url.scheme) from None
            return self._opened

    def _open(self) -> "ObjectStore":
        from obstore import store

        options = provider_options(self._url, self._environ)
        common: dict[str, Any] = {
            "client_options": client_options(self._url, options, self._environ),
            "retry_config": retry_options(),
        }
        if wants_profile(self._url, self._environ):
            common["credential_provider"] = _profile(self._environ)
        place, config = self._url.place, dict(options)
        if self._url.scheme == "s3":
            return store.S3Store(place, config=config, **common)  # type: ignore[arg-type]
        if self._url.scheme == "gs":
            return store.GCSStore(place, config=config, **common)  # type: ignore[arg-type]
        return store.AzureStore(place, config=config, **common)  # type: ignore[arg-type]


def part_bytes(size: int) -> int:
    """The size of a part of an upload, in whole MiB: as many as stores take suffice for the file."""
    return max(_PART_BYTES, -(-size // _PARTS // _PART_UNIT) * _PART_UNIT)


def _stored(result: Any) -> StoredObject:
    meta = result.meta
    return StoredObject(
        attributes=dict(result.attributes),
        size=meta["size"],
        modified=meta["last_modified"],
        e_tag=meta["e_tag"],
        version=meta["version"],
    )


def _memory(name: str) -> "ObjectStore":
    from obstore.store import MemoryStore

    with _memories_lock:
        if name not in _memories:
            _memories[name] = MemoryStore()
        return _memories[name]


def _profile(environ: Mapping[str, str]) -> Any:
    profile = environ["AWS_PROFILE"]
    try:
        import boto3
        import botocore.session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        msg = (
            f"AWS_PROFILE={profile!r} needs boto3: pip install boto3, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
        raise BlobForbiddenError(errno.EACCES, msg) from None
    core = botocore.session.Session(profile=profile)
    for variable, name in (("AWS_CONFIG_FILE", "config_file"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials_file")):
        if environ.get(variable):
            core.set_config_variable(name, environ[variable])
    try:
        return Boto3CredentialProvider(boto3.Session(botocore_session=core))
    except Exception as error:
        msg = f"AWS_PROFILE={profile!r} gives no credentials: {error}; check the profile, or unset AWS_PROFILE"
        raise BlobForbiddenError(errno.EACCES, msg) from None
