"""Delivery: a consignment put into a store, and what its record tells of that."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from opentelemetry.trace import SpanContext, TraceFlags

from otel_logger import conventions as names
from otel_logger.values import text
from otel_logger_exporters.blob_files import sha256_file
from otel_logger_exporters.blob_meta import BlobCorruptError, BlobForbiddenError, BlobMeta, BlobUnavailableError
from otel_logger_exporters.blob_store import BlobStore
from otel_logger_exporters.consignments import UNLISTED, Consignment, Parcel, parcel_path
from otel_logger_exporters.items import Severity

__all__ = ["Carrier", "Delivered", "Standing", "is_earlier", "span_of", "told"]


_LONGEST = 4096
"""Characters of a name or reason in a record: Loki refuses one with 64 KB of attributes. No path is longer."""


class Standing(Enum):
    """What is to become of a stored file when another is to have its name."""

    REPLACED = "replaced"
    KEPT = "kept"
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a consignment: the attributes that its record gets, and why, if it is not stored as asked.

    With `is_left` no store has its bytes, which are worth keeping where they are.
    """

    attributes: Mapping[str, Any]
    severity: Severity = Severity.INFO
    reason: str | None = None
    is_left: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether it is in the store, or a later one of its name is."""
        return self.reason is None

    @property
    def is_conflict(self) -> bool:
        """Whether its name had been given to another."""
        return bool(self.attributes[names.BLOB_OUTCOME] == names.OUTCOME_CONFLICT)


@dataclass(frozen=True, slots=True)
class Carrier:
    """Delivers consignments of one attempt at a run, which began at `started_ns`, to a store.

    One `is_late` that delivers what a dead writer has left: what was stored meanwhile by those after it stays.
    """

    store: BlobStore
    run_id: str | None
    attempt: int
    url_template: str | None = None
    is_late: bool = False
    started_ns: int = 0

    def deliver(self, manifest: Path, consignment: Consignment, now_ns: Callable[[], int]) -> Delivered:
        """Store a consignment, moving its parcels away.

        BlobUnavailableError and BlobForbiddenError where the same is to be tried again; whatever else goes wrong is
        told by what is returned. What cannot be stored under its name is kept among the store's conflicts.
        """
        try:
            if consignment.is_file:
                attributes = self._store_file(manifest, consignment)
            else:
                attributes = self._store_objects(manifest, consignment)
        except (BlobUnavailableError, BlobForbiddenError):
            raise
        except OSError as error:
            return self._not_stored(manifest, consignment, names.OUTCOME_FAILED, error)
        except _Taken as taken_by:
            return self._not_stored(manifest, consignment, names.OUTCOME_CONFLICT, taken_by.error)
        duration = max(0.0, (now_ns() - consignment.time_ns) / 1e9)
        return Delivered({names.NAME: told(consignment.name), names.BLOB_DURATION: duration} | attributes)

    def standing(self, consignment: Consignment, known: BlobMeta) -> Standing:
        """Tell what is to become of a stored file whose name a consignment is to have."""
        if known.run_id is not None and known.run_id == self.run_id:
            # A resumed run writes its checkpoints again; refusing them would kill it by its own earlier self.
            if is_earlier(known, self.attempt, self.started_ns):
                return Standing.REPLACED
            if known.attempt > self.attempt:
                return Standing.NEWER
        if not consignment.overwrite:
            return Standing.KEPT
        return Standing.NEWER if self.is_late and known.time_ns > consignment.time_ns else Standing.REPLACED

    def _store_file(self, manifest: Path, consignment: Consignment) -> dict[str, Any]:
        (parcel,) = consignment.parcels
        path = parcel_path(manifest, parcel)
        meta = self._meta(consignment, parcel, path)
        met: list[tuple[BlobMeta, Standing]] = []

        def may_replace(known: BlobMeta) -> bool:
            met.append((known, self.standing(consignment, known)))
            return met[-1][1] is Standing.REPLACED

        # Nobody needs to look where whatever is there is replaced.
        is_unconditional = consignment.overwrite and not self.is_late and path.exists()
        try:
            uri = self.store.put_file(
                consignment.name, path, meta, may_replace=None if is_unconditional else may_replace, move=True
            )
        except FileExistsError as error:
            if met and met[-1][1] is Standing.NEWER:
                later = met[-1][0]
                return self._link(meta, "") | {
                    names.BLOB_OUTCOME: names.OUTCOME_SUPERSEDED,
                    names.BLOB_REASON: f"attempt {later.attempt} of run {later.run_id} has stored it since",
                }
            raise _Taken(error) from error
        attributes = self._link(meta, uri) | {
            names.FILE_NAME: told(consignment.name.rstrip("/").rpartition("/")[2]),
            names.FILE_SIZE: meta.size,
        }
        if met and not consignment.overwrite:
            attributes[names.BLOB_REPLACED_ATTEMPT] = met[-1][0].attempt
        return attributes

    def _store_objects(self, manifest: Path, consignment: Consignment) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        lists: dict[str, list[str]] = {}
        for parcel in consignment.parcels:
            path = parcel_path(manifest, parcel)
            meta = self._meta(consignment, parcel, path)
            uri = self.store.put_object(path, meta, parcel.extension, move=True)
            if parcel.role and parcel.role != UNLISTED:
                lists.setdefault(parcel.role, []).append(uri)
            elif not parcel.role:
                attributes |= self._link(meta, uri)
        return attributes | lists

    def _meta(self, consignment: Consignment, parcel: Parcel, path: Path) -> BlobMeta:
        sha256 = parcel.sha256
        if sha256 is None:
            sha256 = sha256_file(path) if path.exists() else self._stored_digest(consignment)
        return BlobMeta(
            run_id=self.run_id,
            attempt=self.attempt,
            sha256=sha256,
            size=parcel.size,
            media_type=parcel.media_type,
            name=consignment.name,
            upload=consignment.uid,
            time_ns=consignment.time_ns,
        )

    def _stored_digest(self, consignment: Consignment) -> str:
        # Its bytes are gone when somebody died after storing it and before saying so: the store knows this upload then.
        known = self.store.meta(consignment.name)
        return known.sha256 if known is not None and known.upload == consignment.uid else ""

    def _link(self, meta: BlobMeta, uri: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            names.BLOB_SIZE: meta.size,
            names.BLOB_MEDIA_TYPE: meta.media_type,
            names.BLOB_OUTCOME: names.OUTCOME_STORED,
        }
        if meta.sha256:
            attributes[names.BLOB_DIGEST] = f"sha256:{meta.sha256}"
        if uri:
            attributes[names.BLOB_URI] = uri
            if self.url_template is not None:
                attributes[names.URL_FULL] = self._browsable(uri, self.url_template)
        return attributes

    def _browsable(self, uri: str, template: str) -> str:
        path = uri.removeprefix(self.store.uri).lstrip("/")
        # A folder's URI is percent-encoded, a bucket's has its key as it is.
        return template.replace("{name}", path if uri.startswith("file:") else quote(path))

    def _not_stored(self, manifest: Path, consignment: Consignment, outcome: str, error: OSError) -> Delivered:
        reason = error.strerror or str(error)
        attributes: dict[str, Any] = {names.NAME: told(consignment.name), names.BLOB_OUTCOME: outcome}
        paths = [parcel_path(manifest, parcel) for parcel in consignment.parcels]
        # What was damaged on this disk is worth nothing anywhere.
        is_left = any(path.exists() for path in paths) and not isinstance(error, BlobCorruptError)
        if is_left and consignment.is_file:
            meta = self._meta(consignment, consignment.parcels[0], paths[0])
            attributes |= {names.BLOB_SIZE: meta.size, names.BLOB_DIGEST: f"sha256:{meta.sha256}"}
            try:
                # Not moved: it may have to be told once more.
                kept = self.store.put_conflict(consignment.name, paths[0], meta)
            except BlobCorruptError:
                is_left = False
            except (BlobUnavailableError, BlobForbiddenError):
                raise
            except OSError:
                # What refuses it under one name may refuse it under all.
                pass
            else:
                is_left = False
                attributes[names.BLOB_URI] = kept
                reason = f"{reason}; its bytes are kept in {kept}"
        if is_left:
            where = paths[0] if consignment.is_file else manifest.parent
            reason = f"{reason}; its bytes stay in {str(where)!r}"
        return Delivered(attributes | {names.BLOB_REASON: told(reason)}, Severity.ERROR, reason, is_left)


def is_earlier(known: BlobMeta, attempt: int, started_ns: int) -> bool:
    """Tell whether what is stored of a run is of an attempt before this one, which began at `started_ns`."""
    # Attempts on machines that have not each other's folders may have one number.
    return known.attempt < attempt or 0 < known.time_ns < started_ns


def told(value: str) -> str:
    """Return a name or reason as a record tells it."""
    return text(value[:_LONGEST])


def span_of(consignment: Consignment) -> SpanContext:
    """Return the span that a consignment's call was made in."""
    return SpanContext(
        consignment.trace_id, consignment.span_id, is_remote=False, trace_flags=TraceFlags(consignment.trace_flags)
    )


class _Taken(Exception):
    """The name belongs to another file."""

    def __init__(self, error: FileExistsError) -> None:
        self.error = OSError(error.errno or errno.EEXIST, error.strerror or str(error))
