"""Claims of names in an object store: who is storing a large file under a name that is not to be replaced.

A claim is a small object at `claims/<name>`, stored by a request that fails where there is one; its metadata are those
of the file to come. It is deleted when the file is stored. One that is left behind ends after a day, by the store's own
clock, if nothing has been stored under the name by then.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from datetime import datetime, timedelta

from otel_logger_exporters.blob_meta import BlobMeta, BlobUnavailableError, encode_sidecar
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.object_client import ObjectClient, StoredObject
from otel_logger_exporters.object_errors import ObjectChangedError

__all__ = ["CLAIM_LIFETIME", "ObjectClaims"]

CLAIM_LIFETIME = timedelta(days=1)
"""Longer than the upload of any checkpoint, shorter than the patience of who wants to use its name."""

_ATTEMPTS = 5


class ObjectClaims:
    """Claims in one store; `encode` and `decode` are those of its objects, `uri` gives that of a path in it."""

    def __init__(
        self,
        client: ObjectClient,
        encode: Callable[[BlobMeta], dict[str, str]],
        decode: Callable[[StoredObject, str], BlobMeta],
        uri: Callable[[str], str],
    ) -> None:
        self._client = client
        self._encode = encode
        self._decode = decode
        self._uri = uri

    def win(self, name: str, meta: BlobMeta, may_replace: Callable[[BlobMeta], bool]) -> None:
        """Claim a name for an upload; FileExistsError where another has that does not give way.

        Claims of the same upload, and of those whose files may be replaced, are taken over.
        """
        path = _path(name)
        for _ in range(_ATTEMPTS):
            claim = self._client.look(path)
            if claim is not None:
                if self._is_ours(claim, meta):
                    return
                self._refuse(name, claim, may_replace)
            try:
                self._client.put_instead(path, encode_sidecar(meta, []), self._encode(meta), claim)
                return
            except ObjectChangedError:
                continue  # another was faster
        raise self._refused(name, None)

    def refuse(self, name: str, meta: BlobMeta, may_replace: Callable[[BlobMeta], bool]) -> None:
        """Raise FileExistsError where another upload has claimed a name and does not give way."""
        claim = self._client.look(_path(name))
        if claim is not None and not self._is_ours(claim, meta):
            self._refuse(name, claim, may_replace)

    def drop(self, name: str, meta: BlobMeta) -> None:
        """Give up the claim of an upload, if it has one and the store lets it.

        One that stays keeps nobody from a name under which something is stored, and ends after a day.
        """
        with contextlib.suppress(OSError):
            claim = self._client.look(_path(name))
            if claim is not None and self._is_ours(claim, meta):
                self._client.delete(_path(name))

    def _is_ours(self, claim: StoredObject, meta: BlobMeta) -> bool:
        return bool(meta.upload) and self._decode(claim, meta.name).upload == meta.upload

    def _refuse(self, name: str, claim: StoredObject, may_replace: Callable[[BlobMeta], bool]) -> None:
        if not may_replace(self._decode(claim, name)) and self._now() - claim.modified < CLAIM_LIFETIME:
            raise self._refused(name, claim)

    def _now(self) -> datetime:
        # Ours may be wrong by hours, and so may the other's.
        path = f"clock/{os.urandom(8).hex()}"
        self._client.put(path, b"", {})
        try:
            stored = self._client.look(path)
        finally:
            with contextlib.suppress(OSError):  # not everybody may delete
                self._client.delete(path)
        if stored is None:
            msg = f"{self._uri(path)} was deleted by somebody else"
            raise BlobUnavailableError(errno.EIO, msg)
        return stored.modified

    def _refused(self, name: str, claim: StoredObject | None) -> FileExistsError:
        path = _path(name)
        whose = "others" if claim is None else self._decode(claim, name).written_by
        since = "" if claim is None else f" since {claim.modified.isoformat(timespec='seconds')}"
        msg = (
            f"{name!r} is being stored at {self._uri(f'files/{blob_name(name)}')} by {whose}{since}; pass "
            f"overwrite=True to replace it, or delete {self._uri(path)} if that upload will never end"
        )
        return FileExistsError(errno.EEXIST, msg)


def _path(name: str) -> str:
    return f"claims/{blob_name(name)}"
