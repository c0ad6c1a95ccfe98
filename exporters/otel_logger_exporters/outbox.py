"""The outbox of a writer: one folder with a journal for each signal, and the sender that empties it."""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from otel_logger_exporters.blob_files import make_private_folder
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.encoder import batch_encoder
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.journal import Journal
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.lane import Lane
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.payloads import Frame, ResourceRecord, pack_hyperparameters
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.requests import MetricVocabulary
from otel_logger_exporters.routes import Destination, Routes
from otel_logger_exporters.sender import Sender
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport, open_transport

__all__ = ["Outbox"]


class Outbox:
    """Keeps what is recorded in a folder's journals and sends each signal that has an endpoint.

    A signal is sent from the moment its resource is given as ready (`set_resource`); until then it waits on disk.
    `housekeeping` runs in the sender's thread before each round. Thread-safe.
    """

    def __init__(
        self,
        folder: Path,
        routes: Routes,
        *,
        writer: bytes,
        clock: Clock,
        ledger: Ledger,
        vocabulary: MetricVocabulary,
        buffered: bool,
        interval: float,
        user_agent: str,
        housekeeping: Callable[[], None],
    ) -> None:
        self.folder = folder
        self._ledger = ledger
        self._housekeeping = housekeeping
        self._journals = {
            signal: Journal(folder, signal, writer, clock=clock, buffered=buffered)
            for signal in Signal
            if routes.of(signal).destination is not Destination.NONE
        }
        self._ready: dict[Signal, bytes] = {}
        self._rejected = RejectedFolder(folder / "rejected")
        self._lanes: dict[Signal, Lane] = {}
        for signal in self._journals:
            if (endpoint := routes.of(signal).endpoint) is not None:
                self._lanes[signal] = Lane(
                    JournalReader(folder, signal),
                    batch_encoder(signal, vocabulary, partial(self._ready.get, signal)),
                    _connector(endpoint, user_agent),
                    clock=clock,
                    ledger=ledger,
                    rejected=self._rejected,
                    timeout=endpoint.timeout,
                )
        self._sender = Sender(
            list(self._lanes.values()), interval=interval, clock=clock, ledger=ledger, prepare=self._prepare
        )

    @property
    def sent(self) -> frozenset[Signal]:
        """The signals that have an endpoint."""
        return frozenset(self._lanes)

    def journal(self, signal: Signal) -> Journal | None:
        """Return the signal's journal, or None when the signal is not recorded."""
        return self._journals.get(signal)

    def start(self) -> None:
        """Start the sender's thread."""
        self._sender.start()

    def put(self, signal: Signal, frame: Frame) -> None:
        """Record a frame; never raises: what the disk does not take is counted as lost."""
        if (journal := self._journals.get(signal)) is None:
            return
        try:
            journal.append(Kind.OTLP, frame.pack())
        except OSError as error:
            self._ledger.drop("disk", frame.items, f"{signal.value} are lost, the disk does not take them: {error}")
        else:
            self._ledger.record(signal, frame.items)

    def set_resource(self, signal: Signal, message: bytes, *, bound: bool, ready: bool) -> None:
        """Give a signal its resource (an encoded OTLP Resource); with `ready` what waited for it is sent."""
        if (journal := self._journals.get(signal)) is None:
            return
        if ready:
            self._ready[signal] = message
        self._keep(journal, "resource", Kind.RESOURCE, ResourceRecord(message, bound).pack())

    def keep_hyperparameters(self, nested: Mapping[str, Any], time_ns: int) -> None:
        """Record the hyperparameters known at a time, so that they are known even if the resource is never bound."""
        if (journal := self._journals.get(Signal.METRICS)) is not None:
            self._keep(journal, "hyperparameters", Kind.HYPERPARAMETERS, pack_hyperparameters(nested, time_ns))

    def relocate(self, folder: Path) -> None:
        """Rename the folder; who reads or writes in it waits meanwhile."""
        with ExitStack() as stack:
            for lane in self._lanes.values():
                stack.enter_context(lane.reader.lock)
            # A segment that is begun now would be looked for where the folder was.
            for journal in self._journals.values():
                stack.enter_context(journal.lock)
            make_private_folder(folder.parent)
            self.folder.rename(folder)
            self.folder = folder
            for journal in self._journals.values():
                journal.move(folder)
            for lane in self._lanes.values():
                lane.reader.move(folder)
            self._rejected.move(folder / "rejected")

    def flush(self, timeout: float) -> bool:
        """Write what is buffered and attempt at once to send everything; return whether nothing is left to send."""
        if sys.is_finalizing():
            self._write_buffered()
        return self._sender.flush(timeout)

    def close(self, timeout: float) -> None:
        """Stop sending, seal the journals, and delete those that are delivered to their end."""
        self._sender.stop(timeout)
        for signal, journal in self._journals.items():
            try:
                journal.close()
                lane = self._lanes.get(signal)
                # A sender that is still in a request when the deadline has passed may yet acknowledge it.
                if lane is not None and not self._sender.is_alive:
                    lane.reader.discard()
            except OSError as error:
                self._ledger.warn("disk", f"Closing the journal of {signal.value} failed: {error}")

    def abandon(self) -> None:
        """Drop everything inherited in the child of a fork: the parent owns the files and sends them."""
        for journal in self._journals.values():
            journal.abandon()
        # A span that was open at the fork ends in both: it is the parent's, and here it must not begin a segment.
        self._journals = {}

    def _keep(self, journal: Journal, slot: str, kind: Kind, payload: bytes) -> None:
        try:
            journal.keep(slot, kind, payload)
        except OSError as error:
            self._ledger.warn("disk", f"The disk does not take a record of the run: {error}")

    def _prepare(self) -> None:
        try:
            self._housekeeping()
        finally:
            self._write_buffered()

    def _write_buffered(self) -> None:
        for journal in self._journals.values():
            journal.flush()


def _connector(endpoint: Endpoint, user_agent: str) -> Callable[[], Transport]:
    return lambda: open_transport(endpoint, user_agent)
