"""The outbox of a writer: one folder with a journal for each signal, and the sender that empties it."""

import errno
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from otel_logger_exporters.blob_files import make_private_folder
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.encoder import batch_encoder
from otel_logger_exporters.journal import Journal, journal_refusal
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.lane import Lane
from otel_logger_exporters.ledger import Ledger, Stats
from otel_logger_exporters.payloads import Frame, ResourceRecord, pack_hyperparameters
from otel_logger_exporters.records import Kind
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.requests import MetricVocabulary, frame_requests
from otel_logger_exporters.route_transports import open_route
from otel_logger_exporters.routes import Destination, Routes
from otel_logger_exporters.segments import is_begun, segments_of
from otel_logger_exporters.sender import Sender
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Class, OverLimitError, Space
from otel_logger_exporters.upkeep import Upkeep

__all__ = ["Outbox"]

UPKEEP_INTERVAL = 1.0
"""Seconds between looks at journals that nothing has asked to be looked at."""

WRITE_INTERVAL = 0.2
"""Seconds that what is recorded waits in memory where it cannot be written at once."""

CLOSING_PATIENCE = 1.0
"""Seconds that closing waits at least for a disk that is at work."""


class Outbox:
    """Keeps what is recorded in a folder's journals and sends each signal that has an endpoint.

    A signal is sent from the moment its resource is given as ready (`set_resource`); until then it waits on disk.
    `housekeeping` runs in the sender's thread before each round, `restore` when the folder was deleted. `is_first` is
    whether the writer is of the first of several ranks. `self_metrics` encodes, as a ScopeMetrics to be sent beside the
    metrics, what became of the data, and for the last time. Thread-safe.
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
        mapped: bool,
        interval: float,
        user_agent: str,
        housekeeping: Callable[[], None],
        restore: Callable[[], None] = lambda: None,
        space: Space | None = None,
        is_first: bool = True,
        self_metrics: Callable[[Stats, bool], bytes] | None = None,
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._ledger = ledger
        self._housekeeping = housekeeping
        self._restore = restore
        self._space = space or Space()
        self._is_first = is_first
        self._self_metrics = self_metrics
        self._minor_refusal: str | None = None
        self._counting = threading.Lock()
        self._upkeep = Upkeep(self._tend, interval=UPKEEP_INTERVAL if mapped else WRITE_INTERVAL)
        self._journals = {
            signal: Journal(
                folder,
                signal,
                writer,
                clock=clock,
                mapped=mapped,
                wake=self._upkeep.wake,
                make_room=lambda size: self._space.make_room(self.folder, size),
            )
            for signal in Signal
            if routes.of(signal).destination is not Destination.NONE
        }
        self._ready: dict[Signal, bytes] = {}
        self._rejected = RejectedFolder(folder / "rejected", self._space.max_rejected)
        self._lanes: dict[Signal, Lane] = {}
        for signal in self._journals:
            if (route := routes.of(signal)).destination is Destination.SEND:
                self._lanes[signal] = Lane(
                    JournalReader(folder, signal),
                    batch_encoder(signal, vocabulary, partial(self._ready.get, signal)),
                    partial(open_route, route, user_agent),
                    clock=clock,
                    ledger=ledger,
                    rejected=self._rejected,
                    timeout=route.timeout,
                    schedule=route.schedule,
                )
        self._sender = Sender(
            list(self._lanes.values()),
            interval=interval,
            clock=clock,
            ledger=ledger,
            prepare=self._prepare,
            report=self._report,
        )

    @property
    def sent(self) -> frozenset[Signal]:
        """The signals that are sent, or printed."""
        return frozenset(self._lanes)

    def journal(self, signal: Signal) -> Journal | None:
        """Return the signal's journal, or None when the signal is not recorded."""
        return self._journals.get(signal)

    def start(self) -> None:
        """Prepare the journals, and start the threads that write and send."""
        self._tend()
        self._upkeep.start()
        self._sender.start()

    def put(self, signal: Signal, frame: Frame, *, is_minor: bool = False) -> None:
        """Record a frame; one that `is_minor` is given up first as the bound on unsent data comes near.

        Never raises: what is not taken is counted as lost.
        """
        if (journal := self._journals.get(signal)) is None:
            return
        try:
            if is_minor and self._minor_refusal is not None and signal in self._lanes:
                raise OverLimitError(errno.EDQUOT, self._minor_refusal)
            journal.append((Kind.OTLP, frame.pack()), items=frame.items)
        except OSError as error:
            reason, explanation = journal_refusal(signal, error)
            self._ledger.drop(reason, frame.items, explanation)
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
                stack.enter_context(journal.disk)
            make_private_folder(folder.parent)
            self.folder.rename(folder)
            self.folder = folder
            for journal in self._journals.values():
                journal.move(folder)
            for lane in self._lanes.values():
                lane.reader.move(folder)
            self._rejected.move(folder / "rejected")

    def flush(self, timeout: float) -> bool:
        """Write what is in memory and attempt at once to send everything; return whether nothing is left to send."""
        if sys.is_finalizing() or not self._sender.is_alive:
            self._tend()
        return self._sender.flush(timeout)

    def close(self, timeout: float) -> None:
        """Stop sending, seal the journals, and delete those that are delivered to their end."""
        deadline = self._clock.monotonic() + timeout
        self._sender.stop(timeout)
        # What it has found out is counted then.
        self._upkeep.stop(deadline - self._clock.monotonic())
        # A disk that is slow and no more than that is waited for.
        deadline = max(deadline, self._clock.monotonic() + CLOSING_PATIENCE)
        for signal, journal in self._journals.items():
            try:
                journal.close(max(0.0, deadline - self._clock.monotonic()))
                lane = self._lanes.get(signal)
                # A sender that is still in a request when the deadline has passed may yet acknowledge it.
                if lane is not None and not self._sender.is_alive:
                    lane.reader.discard()
            except FileNotFoundError as error:
                self._count_deleted(signal, journal, self._gone(signal, journal), error)
            except OSError as error:
                self._ledger.warn("disk", f"Closing the journal of {signal.value} failed: {error}")
            self._count(journal)

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
            self._tend()

    def _report(self, timeout: float, is_last: bool) -> None:
        """Send what became of everything so far; not kept, because the next report says it anew."""
        lane, resource = self._lanes.get(Signal.METRICS), self._ready.get(Signal.METRICS)
        if self._self_metrics is not None and lane is not None and resource is not None:
            frame = Frame(0, self._self_metrics(self._ledger.stats(self.sent), is_last))
            for body in frame_requests([frame], resource):
                lane.send_aside(body, timeout)

    def _tend(self) -> None:
        """Do what the journals need done on the disk; never raises."""
        for signal, journal in self._journals.items():
            try:
                self._tend_journal(signal, journal)
            except Exception as error:
                # A fault of ours in one journal must end neither the thread nor the others.
                self._ledger.warn("upkeep", f"Writing {signal.value} failed inside otel_logger: {error!r}")
            self._count(journal)
        try:
            self._weigh()
        except Exception as error:
            self._ledger.warn("disk", f"The size of what is unsent cannot be told: {error}")

    def _tend_journal(self, signal: Signal, journal: Journal) -> None:
        try:
            journal.tend()
            if gone := self._gone(signal, journal):
                self._count_deleted(signal, journal, gone, "segments that had ended are gone")
        except FileNotFoundError as error:
            self._count_deleted(signal, journal, self._gone(signal, journal), error)
            self._restore()
        except OSError as error:
            self._ledger.warn(
                "disk",
                f"The disk does not take {signal.value} for now: {error}. A few megabytes wait in memory, further "
                "ones are lost",
            )

    def _count(self, journal: Journal) -> None:
        if detoured := journal.take_detoured():
            self._ledger.adjust("memory", detoured)
        if lost := journal.take_lost():
            self._ledger.lose(
                journal.signal, lost, "disk", f"Recorded {journal.signal.value} are lost, the disk has not taken them"
            )

    def _count_deleted(self, signal: Signal, journal: Journal, gone: int, error: object) -> None:
        """Count what was in files that were deleted, mostly with the folder; what is in memory is not lost."""
        explanation = f"Somebody deleted or renamed {self.folder} with the {signal.value} in it: {error}"
        # Two threads may find it deleted at once.
        with self._counting:
            lost = self._ledger.outstanding(signal) - journal.waiting_items
            if any(is_begun(path) for _, path in segments_of(self.folder, signal)):
                # Of what was in those that are gone a part may be delivered, which cannot be told any more.
                lost = min(lost, gone)
            if lost > 0:
                self._ledger.lose(signal, lost, "deleted", explanation)
            else:
                self._ledger.warn("deleted", explanation)

    def _gone(self, signal: Signal, journal: Journal) -> int:
        """Return the items of ended segments that somebody has deleted, who is not their reader."""
        if (lane := self._lanes.get(signal)) is None:
            return journal.take_gone(0)
        with lane.reader.lock:
            return journal.take_gone(lane.reader.position.sequence)

    def _weigh(self) -> None:
        """Tell the ledger how large the journals are, and hold what is unsent against its bound."""
        unsent = total = self._rejected.size
        for signal, journal in self._journals.items():
            total += journal.size_after(0, 0)
            if (lane := self._lanes.get(signal)) is not None:
                position = lane.reader.position
                unsent += journal.size_after(position.sequence, position.offset)
        self._ledger.weigh(total)
        refusals = self._space.refusals(unsent)
        classes = {
            Signal.LOGS: Class.EVENTS,
            Signal.METRICS: Class.METRICS if self._is_first else Class.RANK_METRICS,
            Signal.TRACES: Class.SPANS,
        }
        for signal in self._lanes:
            self._journals[signal].refusal = refusals.get(classes[signal])
        self._minor_refusal = refusals.get(Class.MINOR)
