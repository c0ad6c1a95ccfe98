"""Deposits: images, tables and files of a run, put into its blob store, each told by a log record that links to it."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from otel_logger import conventions as names
from otel_logger.devices import keep_on_device
from otel_logger.folders import runs_below
from otel_logger.identity import Identity
from otel_logger.shelf import Shelf, Staged
from otel_logger.values import is_device_tensor
from otel_logger.workbench import Workbench
from otel_logger.writer import Writer
from otel_logger_exporters.blob_meta import BlobMeta
from otel_logger_exporters.blob_store import BlobStore, FileBlobStore, open_blob_store
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.items import Severity

__all__ = ["Deposits"]

_NO_ROOM = "they come faster than they are stored, or as the logger closes"


@dataclass(frozen=True, slots=True)
class _Moment:
    """When, at which step and in which span a call was made, for the record that is written once its blob is stored."""

    time_ns: int
    step: int | None
    span: SpanContext


class Deposits:
    """Stores what is too large for a telemetry backend. Conversion and storing happen in the background."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._ledger = writer.ledger
        settings = writer.launch.settings
        self._directory = writer.launch.directory
        self._url_template = settings.blob_url
        self._fixed = open_blob_store(settings.blob_store) if settings.blob_store is not None else None
        self._shelf = Shelf(lambda: writer.folder, self, self._is_earlier_attempt)
        self._bench = Workbench(lambda: writer.identity is not None, clock, writer.ledger)
        writer.on_settled.append(self._bench.wake)

    def log_images(self, images: Any, name: str, channels_last: bool, step: int | None) -> None:
        """Copy images now, and store each as PNG in the background. Never raises."""
        self._writer.begin()
        moment = self._moment(step)
        several = isinstance(images, (list, tuple))
        if not any(map(is_device_tensor, images if several else (images,))):
            self._take_images(images, name, channels_last, moment)
            return
        # Copied where they are: to fetch them here would make the training wait for its device.
        copies, wait = keep_on_device(list(images) if several else [images])
        size = sum(copy.numel() * copy.element_size() for copy in copies if is_device_tensor(copy))

        def fetch() -> None:
            wait()
            self._take_images(copies if several else copies[0], name, channels_last, moment)

        if not self._bench.put(fetch, size=size):
            self._ledger.drop("image", len(copies), f"Images {name!r} are lost: {_NO_ROOM}")

    def _take_images(self, images: Any, name: str, channels_last: bool, moment: _Moment) -> None:
        from otel_logger.images import snapshot

        copies = snapshot(images)
        for index, copy in copies:
            if isinstance(copy, Exception):
                self._ledger.drop("image", 1, f"Image {index} of {name!r} is lost: {copy}")
                continue
            job = _bind(self._store_image, copy, name, channels_last, moment, index, len(copies))
            if not self._bench.put(job, size=copy.nbytes):
                self._ledger.drop("image", 1, f"Images {name!r} are lost: {_NO_ROOM}")

    def log_table(self, columns: Any, rows: Any, name: str, step: int | None) -> None:
        """Copy a table now, and store it as JSON lines in the background. Never raises."""
        from otel_logger.tables import snapshot_table

        self._writer.begin()
        moment = self._moment(step)
        try:
            table = snapshot_table(columns, rows)
        except Exception as error:
            self._ledger.drop("table", 1, f"Table {name!r} is lost: {error}")
            return
        # A cell is estimated: a table is small beside images, and counting its bytes would cost what copying it does.
        size = 64 * len(table.rows) * max(1, len(table.columns))
        if not self._bench.put(_bind(self._store_table, table, name, moment), size=size):
            self._ledger.drop("table", 1, f"Table {name!r} is lost: {_NO_ROOM}")

    def upload(self, remote_file_name: str, file_path: str | Path, *, overwrite: bool, step: int | None) -> None:
        """Take a private copy now and store it in the background.

        FileNotFoundError and FileExistsError as the contract has it; anything else is counted as lost.
        """
        self._writer.begin()
        moment = self._moment(step)
        try:
            staged = self._shelf.stage(remote_file_name, file_path, overwrite=overwrite)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            self._ledger.drop("file", 1, f"File {remote_file_name!r} is lost, it cannot be copied: {error}")
            self._emit_file(remote_file_name, None, moment, reason=str(error))
            return
        if not self._bench.put(_bind(self._store_file, staged, moment)):
            path = self._shelf.path(staged)
            self._ledger.drop("closed", 1, f"File {staged.name!r} comes as the logger closes, its copy stays in {path}")

    def download(
        self, remote_file_name: str, destination: str, *, overwrite: bool, progress: Callable[[int], None] | None
    ) -> None:
        """Read a file back; see `Shelf.fetch`."""
        self._shelf.fetch(remote_file_name, destination, overwrite=overwrite, progress=progress)

    def size(self, remote_file_name: str) -> int | None:
        """Return the bytes of a file that can be downloaded, or None."""
        return self._shelf.size(remote_file_name)

    def close(self, timeout: float) -> None:
        """Store what waits, within `timeout` seconds; files that are left stay staged, the rest is counted as lost."""
        self._bench.drain(timeout)
        if left := self._bench.stop():
            self._ledger.drop("shutdown", left, f"{left} images, tables or files were not stored before the deadline")

    def flush(self, timeout: float) -> bool:
        """Store what waits, within `timeout` seconds; return whether nothing is left."""
        return self._bench.drain(timeout) == 0

    def abandon(self) -> None:
        """Leave what is staged to the parent, in the child of a fork."""
        self._shelf.abandon()

    def writing(self) -> BlobStore | None:
        """Return the store to write to, or None while the run is not known."""
        if self._fixed is not None:
            return self._fixed
        # The run's, shared by its ranks and attempts: `<run>/blobs`.
        return FileBlobStore(self._writer.folder.parent / "blobs") if self._writer.identity is not None else None

    def reading(self) -> list[BlobStore]:
        """Return the stores to look into: the one to write to, or while no run is known those of all, newest first."""
        store = self.writing()
        if store is not None:
            return [store]
        runs = [
            (writers[-1][1].run_name == self._writer.run_name, writers[-1][1].started_ns, folder)
            for folder, writers in runs_below(self._directory)
            if (folder / "blobs").is_dir()
        ]
        return [FileBlobStore(folder / "blobs") for _, _, folder in sorted(runs, reverse=True)]

    def _is_earlier_attempt(self, meta: BlobMeta) -> bool:
        # A resumed run writes its checkpoints again; refusing them would kill it by its own earlier self.
        identity = self._writer.identity
        return identity is not None and meta.run_id == identity.run_id and meta.attempt < identity.attempt

    def _store_image(self, array: Any, name: str, channels_last: bool, moment: _Moment, index: int, count: int) -> None:
        from otel_logger.images import encode_png

        try:
            picture = encode_png(array, channels_last)
        except ValueError as error:
            self._ledger.drop("image", 1, f"Image {index} of {name!r} is lost: {error}")
            return
        preview = f"data:image/png;base64,{base64.b64encode(picture.thumbnail).decode('ascii')}"
        size = {names.IMAGE_WIDTH: picture.width, names.IMAGE_HEIGHT: picture.height}
        place = {names.IMAGE_INDEX: index, names.IMAGE_COUNT: count}
        self._store_bytes(names.EVENT_IMAGE, name, "png", picture.png, "image/png", size | place, preview, moment)

    def _store_table(self, table: Any, name: str, moment: _Moment) -> None:
        from otel_logger.tables import encode_jsonl, preview

        shape = {names.TABLE_ROWS: len(table.rows), names.TABLE_COLUMNS: len(table.columns)}
        self._store_bytes(
            names.EVENT_TABLE,
            name,
            "jsonl",
            encode_jsonl(table),
            "application/jsonl",
            shape,
            preview(table),
            moment,
        )

    def _store_bytes(
        self,
        event: str,
        name: str,
        extension: str,
        data: bytes,
        media_type: str,
        attributes: Mapping[str, Any],
        body: str,
        moment: _Moment,
    ) -> None:
        store, identity = self._place()
        meta = BlobMeta(
            identity.run_id, identity.attempt, hashlib.sha256(data).hexdigest(), len(data), media_type, name
        )
        uri = store.put_bytes(f"{name}.{extension}", data, meta)
        self._ledger.store()
        self._emit(event, self._link(meta, uri, store) | dict(attributes), moment, body=body)

    def _store_file(self, staged: Staged, moment: _Moment) -> None:
        store, identity = self._place()
        try:
            uri, meta = self._upload(staged, store, identity, moment)
        except OSError as error:
            # The private copy stays where it is: the bytes are not lost with the record of the failure.
            path = self._shelf.path(staged)
            self._ledger.drop("file", 1, f"File {staged.name!r} is not stored, its copy stays in {path}: {error}")
            self._emit_file(staged.name, None, moment, reason=str(error))
            self._shelf.forget(staged)
            return
        self._ledger.store()
        self._emit_file(staged.name, self._link(meta, uri, store), moment)

    def _upload(self, staged: Staged, store: BlobStore, identity: Identity, moment: _Moment) -> tuple[str, BlobMeta]:
        """Store a staged file, in a span below the one that the call was made in, which may long be over."""
        position = {} if moment.step is None else {names.STEP: moment.step}
        attributes = {names.NAME: staged.name, names.BLOB_OUTCOME: names.OUTCOME_FAILED} | position
        upload = self._writer.spans.block_apart(names.SPAN_UPLOAD, attributes, moment.span)
        try:
            uri, meta = self._shelf.store(staged, store, identity.run_id, identity.attempt)
        except BaseException as error:
            upload.end(error)
            raise
        upload.span.set_attributes({names.BLOB_SIZE: meta.size, names.BLOB_OUTCOME: names.OUTCOME_STORED})
        upload.end()
        return uri, meta

    def _place(self) -> tuple[BlobStore, Identity]:
        store, identity = self.writing(), self._writer.identity
        # The workbench opens when the run is known.
        assert store is not None
        assert identity is not None
        return store, identity

    def _link(self, meta: BlobMeta, uri: str, store: BlobStore) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            names.NAME: meta.name,
            names.BLOB_URI: uri,
            names.BLOB_DIGEST: f"sha256:{meta.sha256}",
            names.BLOB_SIZE: meta.size,
            names.BLOB_MEDIA_TYPE: meta.media_type,
            names.BLOB_OUTCOME: names.OUTCOME_STORED,
        }
        if self._url_template is not None:
            path = uri.removeprefix(store.uri).lstrip("/")
            attributes[names.BLOB_URL] = self._url_template.replace("{name}", path)
        return attributes

    def _emit_file(self, name: str, link: Mapping[str, Any] | None, moment: _Moment, reason: str | None = None) -> None:
        failed = {names.NAME: name, names.BLOB_OUTCOME: names.OUTCOME_FAILED, names.BLOB_REASON: reason or ""}
        severity = Severity.INFO if link is not None else Severity.ERROR
        self._emit(names.EVENT_FILE, link if link is not None else failed, moment, severity=severity)

    def _moment(self, step: int | None) -> _Moment:
        # Before the run's span there is none; not that of the time when the blob is stored.
        span = self._writer.spans.current_context() or INVALID_SPAN_CONTEXT
        return _Moment(self._writer.now_ns(), step, span)

    def _emit(
        self,
        event: str,
        attributes: Mapping[str, Any],
        moment: _Moment,
        *,
        body: str | None = None,
        severity: Severity = Severity.INFO,
    ) -> None:
        self._writer.emit(
            event,
            attributes,
            body=body,
            step=moment.step,
            time_ns=moment.time_ns,
            severity=severity,
            span=moment.span,
        )


def _bind(function: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    return lambda: function(*arguments)
