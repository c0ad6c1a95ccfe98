"""Leftovers: what a dead writer had on disk for the blob store, stored and recorded by another process."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_logger import conventions as names
from otel_logger.delivery import Carrier, Delivered, span_of
from otel_logger.folders import WriterFile, blobs_folder
from otel_logger.launch import Launch
from otel_logger.posthumous import add_records, whose
from otel_logger.staging import STAGED
from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError
from otel_logger_exporters.blob_names import blob_name
from otel_logger_exporters.blob_store import BlobStore, open_blob_store
from otel_logger_exporters.blob_url import parse_blob_store
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.consignments import (
    Consignment,
    consignments_in,
    discard,
    parcel_path,
    set_aside,
    sweep,
    unreadable_in,
)
from otel_logger_exporters.decoding import decode_events
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.file_store import FileBlobStore
from otel_logger_exporters.items import Event
from otel_logger_exporters.payloads import Frame
from otel_logger_exporters.private_copy import is_trusted_copy
from otel_logger_exporters.records import Kind
from otel_logger_exporters.segments import newest_segments
from otel_logger_exporters.signals import Signal

__all__ = ["Exclusive", "Leftovers", "bytes_staged"]

Exclusive = Callable[[str], AbstractContextManager[None]]
"""Keeps others of this process from storing a file of a mapped name meanwhile."""

_TOGETHER = 64
"""Consignments whose records are written in one go, and which are deleted after that."""

_NEWEST = 4
"""Segments in which a record of a consignment that is still there may be: it is deleted right after it is recorded."""


def bytes_staged(folder: Path) -> int:
    """Return the bytes that wait in a writer's folder for the blob store, 0 where that cannot be told."""
    try:
        return sum(_weight(consignment) for _, consignment in consignments_in(folder / STAGED))
    except OSError:
        return 0


@dataclass(slots=True)
class Leftovers:
    """What waits in the folder of a dead writer; the caller owns the folder.

    After `store`, `stored` were stored, `failed` could not be and are told by a record, and what is left is so for
    `reason`. What cannot even be read is in `unreadable`.
    """

    folder: Path
    writer: WriterFile
    launch: Launch
    clock: Clock
    exclusive: Exclusive = lambda key: nullcontext()
    stored: int = 0
    failed: int = 0
    reason: str | None = None
    unreadable: list[Path] = field(default_factory=list)
    _stores: dict[str, BlobStore] = field(default_factory=dict)

    def store(self, advance: Callable[[int], None] = lambda count: None) -> bool:
        """Store what can be stored now, each thing once tried, oldest first; return whether nothing is left.

        `advance` is told the bytes of each thing that is done with. OSError if the folder does not take the records.
        """
        staged = self.folder / STAGED
        self.reason = None
        shut: set[str | None] = set()
        done: list[tuple[Path, Consignment, Delivered]] = []
        for manifest, consignment in consignments_in(staged):
            if consignment.store in shut:
                continue
            try:
                self._refuse_strangers(manifest, consignment)
                done.append((manifest, consignment, self._deliver(manifest, consignment)))
            except (BlobUnavailableError, BlobForbiddenError, ConfigurationError) as error:
                self.reason = self.reason or f"the blob store does not take what waits: {error}"
                shut.add(consignment.store)
            except Exception as error:
                # It must not keep what comes after it.
                self.reason = self.reason or f"{consignment.name!r} cannot be stored: {error}"
            if len(done) == _TOGETHER:
                self._settle(done, advance)
        self._settle(done, advance)
        self.unreadable = unreadable_in(staged)
        if self.reason is None:
            sweep(staged)
        return self.reason is None

    def _refuse_strangers(self, manifest: Path, consignment: Consignment) -> None:
        """Raise PermissionError where a manifest names what is not ours: it is data, and may name anything."""
        for parcel in consignment.parcels:
            path = parcel_path(manifest, parcel)
            if os.path.lexists(path) and not is_trusted_copy(path, manifest.parent):
                msg = f"{str(path)!r} is not private to this user"
                raise PermissionError(msg)

    def _deliver(self, manifest: Path, consignment: Consignment) -> Delivered:
        carrier = Carrier(
            self._store_of(consignment),
            self.writer.run_id,
            self.writer.attempt,
            self.launch.settings.blob_url,
            is_late=True,
            started_ns=self.writer.started_ns,
        )
        with self.exclusive(blob_name(consignment.name) if consignment.is_file else consignment.uid):
            return carrier.deliver(manifest, consignment, self.clock.time_ns)

    def _store_of(self, consignment: Consignment) -> BlobStore:
        # That of today first: the other may have been a mistake, which this process mends.
        url = self.launch.settings.blob_store or consignment.store
        if url is None:
            return FileBlobStore(blobs_folder(self.folder))
        if self.launch.settings.blob_store is None and not parse_blob_store(url).lasts:
            msg = f"{url!r} was the memory of a process that is gone: set OTEL_LOGGER_BLOB_STORE to a store that lasts"
            raise ConfigurationError(msg)
        if url not in self._stores:
            self._stores[url] = open_blob_store(url, self.launch.environ)
        return self._stores[url]

    def _settle(self, done: list[tuple[Path, Consignment, Delivered]], advance: Callable[[int], None]) -> None:
        """Record what was delivered, and then delete it."""
        self._record(done)
        for manifest, consignment, delivered in done:
            if delivered.is_left:
                set_aside(manifest)
            else:
                discard(manifest, consignment)
            self.stored += delivered.is_stored
            self.failed += not delivered.is_stored
            advance(_weight(consignment))
        done.clear()

    def _record(self, done: list[tuple[Path, Consignment, Delivered]]) -> None:
        told = _told(self.folder) if done else frozenset()
        events = [
            self._event(consignment, delivered) for _, consignment, delivered in done if consignment.uid not in told
        ]
        add_records(self.folder, events, self.launch.limits)

    def _event(self, consignment: Consignment, delivered: Delivered) -> Event:
        attributes: dict[str, Any] = {
            names.LOG_RECORD_UID: consignment.uid,
            **whose(self.writer),
            names.STEP: consignment.step,
            **(consignment.attributes or {}),
            **delivered.attributes,
        }
        return Event(
            name=consignment.event,
            time_ns=consignment.time_ns,
            attributes=attributes,
            body=consignment.body,
            severity=delivered.severity,
            span=span_of(consignment),
        )


def _weight(consignment: Consignment) -> int:
    # An empty file waits too.
    return max(1, consignment.size)


def _told(folder: Path) -> frozenset[str]:
    """Return the identities of the last records of a journal: who stored something may have died before it was gone."""
    found: set[str] = set()
    for _, segment in zip(range(_NEWEST), newest_segments(folder, Signal.LOGS), strict=False):
        for record in segment.records:
            if record.kind == Kind.OTLP:
                with suppress(ValueError):
                    events = decode_events(Frame.unpack(record.payload).body)
                    found |= {str(event["attributes"].get(names.LOG_RECORD_UID)) for event in events}
    return frozenset(found)
