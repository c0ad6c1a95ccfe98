"""Deposits: images, tables and files of a run, put into its blob store, each told by a log record that links to it."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from otel_logger import conventions as names
from otel_logger.delivery import Carrier, Delivered, span_of, told
from otel_logger.media_types import media_type
from otel_logger.places import RunPlaces
from otel_logger.shelf import Shelf
from otel_logger.spans import Block
from otel_logger.staging import Content, Staged, Staging
from otel_logger.trainer import Position
from otel_logger.workbench import Workbench
from otel_logger.writer import Writer
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.consignments import Consignment
from otel_logger_exporters.courier import Courier, Load
from otel_logger_exporters.entropy import random_uid
from otel_logger_exporters.items import Severity
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Space
from otel_logger_exporters.threads import can_wait_for

__all__ = ["Deposits", "Moment"]

_LOOK = 0.02
_WRITING = 0.5
"""Seconds between looks whether records are written, and for how long at most at the end."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When, where in the training and in which span a call was made: its record is written once its blob is stored."""

    time_ns: int
    step: int | None
    epoch: int | None
    span: SpanContext


class Deposits:
    """Stores what is too large for a telemetry backend. Conversion and storing happen in the background.

    What is to be stored waits on disk: a copy of a file as soon as its call returns, images and tables when they are
    encoded. So a dead process leaves it to the next.
    """

    no_room = "they come faster than they are stored, or as the logger closes"
    """Why the bench does not take a job."""

    def __init__(self, writer: Writer, position: Position, clock: Clock) -> None:
        self._writer = writer
        self._position = position
        self._clock = clock
        self.ledger = writer.ledger
        self.settings = writer.launch.settings
        self.bench = Workbench(clock, writer.ledger)
        space = Space(None, self.settings.min_free_bytes)
        self._staging = Staging(lambda: writer.folder, space, self.settings.stage_max_bytes, writer.ledger.blobs)
        self._places = RunPlaces(writer)
        self._shelf = Shelf(self._staging, self._places)
        self.courier = Courier(lambda: writer.identity is not None, clock, writer.ledger)
        self._uploads: dict[str, Block] = {}
        self._changed = threading.Condition(threading.RLock())
        self._callers: list[threading.Thread] = []
        self._recorded: list[tuple[Staged, Delivered]] = []
        self._telling = 0
        self._is_over = False
        writer.on_settled.append(self.courier.wake)
        writer.on_tended.append(self._tidy)

    def moment(self, step: int | None) -> Moment:
        """Return what is to be remembered of a call."""
        self._writer.begin()
        # Before the run's span there is none; not that of the time when the blob is stored.
        span = self._writer.spans.current_context() or INVALID_SPAN_CONTEXT
        return Moment(self._writer.now_ns(), step, self._position.epoch(), span)

    def keep(
        self,
        event: str,
        name: str,
        contents: Sequence[Content],
        attributes: Mapping[str, Any],
        body: str | None,
        moment: Moment,
        count: int = 1,
    ) -> None:
        """Put contents, those of `count` images or a table, on disk, and from there into the store.

        They are told by one record, also where the disk has no room for them.
        """
        consignment = self._consignment(event, name, moment, dict(attributes), body)
        try:
            staged = self._staging.put_objects(consignment, contents)
        except OSError as error:
            self._lose_one(consignment, str(error), moment, count)
        else:
            self._send(staged)

    def upload(self, remote_file_name: str, file_path: str | Path, *, overwrite: bool, step: int | None) -> None:
        """Take a private copy now and store it in the background.

        FileNotFoundError and FileExistsError as the contract has it; anything else is counted as lost.
        """
        moment = self.moment(step)
        path = Path(file_path)
        if not path.is_file():
            what = "it is not a file" if path.exists() else "there is no such file"
            msg = f"cannot upload {str(path)!r} as {remote_file_name!r}: {what}"
            raise FileNotFoundError(msg)
        with self._calling():
            self._shelf.take(remote_file_name, path, overwrite=overwrite)
            consignment = self._consignment(
                names.EVENT_FILE, remote_file_name, moment, {}, None, is_file=True, overwrite=overwrite
            )
            try:
                staged = self._staging.put_file(consignment, path, media_type(remote_file_name))
            except BaseException as error:
                self._shelf.let_go(remote_file_name)
                if isinstance(error, FileNotFoundError) or not isinstance(error, OSError):
                    raise
                self._lose_one(consignment, str(error), moment)
            else:
                self._send(staged)

    def lose(self, kind: str, count: int, explanation: str) -> None:
        """Count what will not be stored, and tell why."""
        self.ledger.drop(kind, count, explanation)

    def _lose_one(self, consignment: Consignment, reason: str, moment: Moment, count: int = 1) -> None:
        """Count what there is no room for as lost, and record that."""
        kind = consignment.event.rpartition(".")[2]
        self.ledger.drop(kind, count, f"{kind.capitalize()} {consignment.name!r} is lost: {reason}")
        self.ledger.blobs.fail()
        failed = {
            names.NAME: told(consignment.name),
            names.BLOB_OUTCOME: names.OUTCOME_FAILED,
            names.BLOB_REASON: told(reason),
        }
        self._writer.emit(
            consignment.event,
            {**(consignment.attributes or {}), **failed},
            body=consignment.body,
            step=moment.step,
            time_ns=moment.time_ns,
            severity=Severity.ERROR,
            span=moment.span,
        )

    def download(
        self, remote_file_name: str, destination: str, *, overwrite: bool, progress: Callable[[int], None] | None
    ) -> None:
        """Read a file back; see `Shelf.fetch`."""
        self._shelf.fetch(remote_file_name, destination, overwrite=overwrite, progress=progress)

    def size(self, remote_file_name: str) -> int | None:
        """Return the bytes of a file that can be downloaded, or None."""
        return self._shelf.size(remote_file_name)

    def close(self, timeout: float) -> None:
        """Store what waits, within `timeout` seconds; what is on disk by then stays there, the rest is lost."""
        deadline = self._clock.monotonic() + timeout
        self.bench.drain(timeout)
        if left := self.bench.stop():
            self.ledger.drop("shutdown", left, f"{left} images or tables were not encoded before the deadline")
        self._wait(deadline, lambda: not self._is_called())
        self.courier.drain(max(0.0, deadline - self._clock.monotonic()))
        self.courier.stop()
        with self._changed:
            self._is_over = True
        # Such records are written within a fraction of a second, or else by the end of the writer.
        self._wait(min(deadline, self._clock.monotonic() + _WRITING), lambda: not self._telling and self._tidy())
        self._staging.close()

    def flush(self, timeout: float) -> bool:
        """Store what waits, within `timeout` seconds; return whether nothing is left."""
        deadline = self._clock.monotonic() + timeout
        is_encoded = self.bench.drain(timeout) == 0
        return self.courier.drain(max(0.0, deadline - self._clock.monotonic())) == 0 and is_encoded

    def abandon(self) -> None:
        """Leave what is staged to the parent, in the child of a fork."""
        self._changed = threading.Condition(threading.RLock())
        self._callers, self._recorded = [], []
        self._telling = 0
        self._shelf.abandon()

    def _consignment(
        self,
        event: str,
        name: str,
        moment: Moment,
        attributes: dict[str, Any],
        body: str | None,
        *,
        is_file: bool = False,
        overwrite: bool = True,
    ) -> Consignment:
        return Consignment(
            uid=random_uid(),
            name=name,
            time_ns=moment.time_ns,
            event=event,
            parcels=(),
            is_file=is_file,
            overwrite=overwrite,
            step=moment.step,
            attributes=attributes | _epoch(moment),
            body=body,
            trace_id=moment.span.trace_id,
            span_id=moment.span.span_id,
            trace_flags=int(moment.span.trace_flags),
            store=self._places.uri,
        )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Let `close` wait for a call that copies: the folder is given up when it is over."""
        thread = threading.current_thread()
        with self._changed:
            self._callers.append(thread)
        try:
            yield
        finally:
            with self._changed:
                self._callers.remove(thread)
                self._changed.notify_all()

    def _is_called(self) -> bool:
        return any(can_wait_for(thread) for thread in self._callers)

    def _wait(self, deadline: float, is_over: Callable[[], bool]) -> None:
        with self._changed:
            while not is_over() and not sys.is_finalizing() and self._clock.monotonic() < deadline:
                self._changed.wait(_LOOK)

    def _tidy(self) -> bool:
        """Delete what is stored and whose record is on the disk; return whether that is all of it.

        Not before: who dies leaves it to the next, and with it what its record needs.
        """
        with self._changed:
            recorded, self._recorded = self._recorded, []
            # Asked after they were taken, so of all of them.
            journal = self._writer.outbox.journal(Signal.LOGS)
            if recorded and journal is not None and journal.waiting_items:
                self._recorded = recorded + self._recorded
                return False
        for staged, delivered in recorded:
            if delivered.is_left:
                self._staging.set_aside(staged)
            else:
                self._staging.discard(staged)
        return True

    def _send(self, staged: Staged) -> None:
        key = staged.mapped or staged.consignment.uid
        # It names another file, Composer's newest checkpoint, and must not be found where that is not.
        follows = staged.consignment.name.endswith(".symlink")
        self.courier.put(Load(key, lambda: self._carry(staged), follows))

    def _carry(self, staged: Staged) -> None:
        """Store what is staged, and then record it."""
        store, identity = self._places.writing(), self._writer.identity
        # The courier begins when the run is known.
        assert store is not None
        assert identity is not None
        consignment = staged.consignment
        # It counts where a name may be refused.
        is_refusable = consignment.is_file and not consignment.overwrite
        started_ns = self._places.started_ns() if is_refusable else self._writer.started_ns
        carrier = Carrier(store, identity.run_id, identity.attempt, self.settings.blob_url, started_ns=started_ns)
        manifest = self._staging.manifest(staged)
        upload = self._upload_span(consignment) if consignment.is_file else None
        delivered = carrier.deliver(manifest, consignment, self._clock.time_ns)
        with self._changed:
            if self._is_over:
                # A record would be lost now. Who delivers this again finds it stored, and tells of it.
                return
            self._telling += 1
        try:
            if upload is not None:
                self._end_upload(upload, consignment, delivered)
            self._tell(consignment, delivered)
            self._staging.forget(staged)
            with self._changed:
                self._recorded.append((staged, delivered))
            self._tidy()
        finally:
            with self._changed:
                self._telling -= 1

    def _tell(self, consignment: Consignment, delivered: Delivered) -> None:
        if delivered.is_stored:
            self.ledger.blobs.store(consignment.uid)
        else:
            self._tell_failure(consignment, delivered)
        self._writer.emit(
            consignment.event,
            {**(consignment.attributes or {}), **delivered.attributes},
            body=consignment.body,
            step=consignment.step,
            time_ns=consignment.time_ns,
            severity=delivered.severity,
            span=span_of(consignment),
            uid=consignment.uid,
        )

    def _tell_failure(self, consignment: Consignment, delivered: Delivered) -> None:
        what = "File" if consignment.is_file else "What was logged as"
        if delivered.is_conflict:
            self._shelf.note_conflict(consignment.name, str(delivered.reason))
        elif consignment.is_file:
            self._shelf.let_go(consignment.name)
        kind = "conflict" if delivered.is_conflict else "file" if consignment.is_file else "blob"
        self.ledger.drop(kind, 1, f"{what} {consignment.name!r} is not stored: {delivered.reason}")
        self.ledger.blobs.fail(consignment.uid)

    def _upload_span(self, consignment: Consignment) -> Block:
        """Return the span of storing a file, below the one that its call was made in, which may long be over."""
        upload = self._uploads.get(consignment.uid)
        if upload is None:
            position = {} if consignment.step is None else {names.STEP: consignment.step}
            attributes = {names.NAME: told(consignment.name), names.BLOB_OUTCOME: names.OUTCOME_FAILED} | position
            upload = self._writer.spans.block_apart(names.SPAN_UPLOAD, attributes, span_of(consignment))
            # One span for all attempts; what they wait for may last for hours.
            self._uploads[consignment.uid] = upload
        return upload

    def _end_upload(self, upload: Block, consignment: Consignment, delivered: Delivered) -> None:
        del self._uploads[consignment.uid]
        upload.span.set_attributes(
            {
                names.BLOB_SIZE: consignment.size,
                names.BLOB_OUTCOME: delivered.attributes[names.BLOB_OUTCOME],
            }
        )
        upload.end(OSError(delivered.reason) if delivered.reason is not None else None)


def _epoch(moment: Moment) -> dict[str, Any]:
    return {} if moment.epoch is None else {names.EPOCH: moment.epoch}
