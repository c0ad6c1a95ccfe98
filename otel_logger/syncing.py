"""Errands: what writers that are dead have left on disk, sent by another process."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import isinf
from pathlib import Path

from otel_logger.conventions import SCOPE_VERSION
from otel_logger.deaths import LastSign, last_sign, tell_death
from otel_logger.folders import WriterFile, own_writers, runs_below
from otel_logger.hyperparameters import resource_part
from otel_logger.launch import Launch
from otel_logger.leftovers import Exclusive, Leftovers, bytes_staged
from otel_logger.vocabulary import metric_vocabulary
from otel_logger_exporters.adoption import deliver, read_legacy, tidy
from otel_logger_exporters.backoff import CONFIGURATION_INTERVAL, Backoff
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.decoding import decode_resource
from otel_logger_exporters.encoder import batch_encoder
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.items import encode_resource
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.lane import Lane
from otel_logger_exporters.ledger import Ledger, warn
from otel_logger_exporters.owner import RENEWAL_INTERVAL, NotClaimable, Owner
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.segments import segments_of
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.space import Space
from otel_logger_exporters.transports import open_transport, user_agent
from otel_logger_exporters.upkeep import Upkeep

__all__ = ["Errand", "Synced", "writers_below"]


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of one writer's folder: items sent by signal, bytes that are left, and why, if they are.

    `retry_in` is set where the writer may be alive, after how many seconds without a sign of it that is decided; and
    where the blob store does not take what waits for it.
    """

    folder: Path
    run_id: str | None
    attempt: int
    rank: int
    sent: Mapping[str, int]
    left_bytes: int
    reason: str | None = None
    retry_in: float | None = None


def writers_below(path: Path) -> list[tuple[Path, WriterFile]]:
    """Return the writers of a writer's folder, a run's folder, or a folder of runs, the oldest of each run first.

    FileNotFoundError when there is none.
    """
    found = own_writers(path) or [writer for _, writers in runs_below(path) for writer in writers]
    if not found:
        what = "holds no run" if path.is_dir() else "is no folder"
        msg = f"{str(path)!r} {what}: give the folder of a run, or the folder of runs (OTEL_LOGGER_DIR)"
        raise FileNotFoundError(msg)
    return found


@dataclass(frozen=True, slots=True)
class Errand:
    """How folders are sent: to the endpoints of `launch`, each for `timeout` seconds.

    `wait` is called with the seconds until the next attempt, `advance` with the bytes that are done; what they raise
    ends the errand, with everything acknowledged so far marked. `exclusive` as in `Leftovers`.
    """

    launch: Launch
    clock: Clock
    wait: Callable[[float], object]
    timeout: float
    log: logging.Logger
    advance: Callable[[int], None] = lambda count: None
    exclusive: Exclusive = lambda key: nullcontext()

    def waiting(self, folder: Path) -> int:
        """Return the bytes of a writer's folder that have an endpoint and are not acknowledged, or are to be stored."""
        unread = sum(JournalReader(folder, signal, keep=True).unread for signal in self.launch.routes.endpoints)
        return unread + bytes_staged(folder)

    def is_due(self, folder: Path, writer: WriterFile) -> bool:
        """Tell whether a writer's folder holds journals to be deleted, which is so until all of them is sent."""
        signals = (signal for signal in self.launch.routes.endpoints if signal.value not in writer.kept)
        return any(segments_of(folder, signal) for signal in signals)

    def run(self, folder: Path, writer: WriterFile) -> Synced:
        """Send what waits in the folder of a dead writer, its end with it, and return what became of it.

        A writer that has not told its end is told to be lost, in its own journal.

        Nothing is sent twice: what an endpoint has acknowledged is marked, so that an interrupted errand goes on where
        it was. A journal that was a queue is deleted when it is empty, one that was kept locally stays.
        """
        sign = last_sign(folder)
        try:
            owner = Owner.claim(folder)
        except NotClaimable as error:
            return replace(self._result(folder, writer, {}, str(error)), retry_in=error.retry_in)
        except OSError as error:
            return self._result(folder, writer, {}, f"the folder cannot be opened: {error}")
        with _held(owner):
            try:
                tidy(folder)
                return self._send(folder, self._tell_death(folder, writer, sign))
            except OSError as error:
                return self._result(folder, writer, {}, f"the folder cannot be read or written: {error}")

    def tell(self, folder: Path, writer: WriterFile) -> None:
        """Record the end of a dead writer that has not told it; nothing of its folder is sent."""
        sign = last_sign(folder)
        with suppress(NotClaimable, OSError), _held(Owner.claim(folder)):
            tidy(folder)
            self._tell_death(folder, writer, sign)

    def _tell_death(self, folder: Path, writer: WriterFile, sign: LastSign) -> WriterFile:
        try:
            return tell_death(folder, writer, sign, self.launch.limits)
        except OSError as error:
            # What can be read is sent all the same; a full disk has room for the rest then.
            warn(self.log, f"The end of the run in {folder}, whose process is dead, cannot be recorded: {error}")
            return writer

    def _send(self, folder: Path, writer: WriterFile) -> Synced:
        """Store what waits for the blob store, and send the journals, which then tell of it."""
        deadline = self.clock.monotonic() + self.timeout
        leftovers = Leftovers(folder, writer, self.launch, self.clock, self.exclusive)
        backoff = Backoff()
        is_stored = leftovers.store(self.advance)
        result = self._send_journals(folder, writer, deadline)
        while not is_stored and not isinf(self.timeout):
            pause = backoff.next()
            if self.clock.monotonic() + pause >= deadline:
                break
            self.wait(pause)
            is_stored = leftovers.store(self.advance)
            again = self._send_journals(folder, writer, deadline)
            sent = {name: result.sent.get(name, 0) + again.sent.get(name, 0) for name in (*result.sent, *again.sent)}
            result = replace(again, sent=sent)
        if leftovers.stored or leftovers.failed:
            result = replace(result, sent={**result.sent, "blobs": leftovers.stored})
        if leftovers.failed and result.reason is None:
            result = replace(result, reason=f"{leftovers.failed} blobs could not be stored, their records say why")
        if leftovers.unreadable:
            what = f"{len(leftovers.unreadable)} manifests cannot be read, such as {leftovers.unreadable[0]}"
            result = replace(result, reason="; ".join(filter(None, (what, result.reason))))
        if not is_stored:
            reason = "; ".join(filter(None, (leftovers.reason, result.reason)))
            result = replace(result, reason=reason, left_bytes=self.waiting(folder), retry_in=CONFIGURATION_INTERVAL)
        return result

    def _send_journals(self, folder: Path, writer: WriterFile, deadline: float) -> Synced:
        ledger = Ledger(self.clock, self.log)
        complete = True
        for signal, endpoint in self.launch.routes.endpoints.items():
            lane = self._lane(folder, writer, signal, endpoint, ledger)
            try:
                complete &= deliver(lane, deadline=deadline, clock=self.clock, wait=self.wait, advance=self.advance)
                if signal.value not in writer.kept:
                    lane.reader.discard()
            finally:
                lane.close()
        stats = ledger.stats(frozenset(Signal))
        refused = sum(stats.refused.values())
        reason = None
        if not complete:
            reason = stats.last_error or "it has no resource: the run died before it was known"
        elif refused:
            reason = f"{refused} items were refused, see {folder / 'rejected'}: {stats.last_error}"
        sent = {name: count for name, count in stats.delivered.items() if count}
        return self._result(folder, writer, sent, reason)

    def _result(self, folder: Path, writer: WriterFile, sent: Mapping[str, int], reason: str | None) -> Synced:
        left = self.waiting(folder) if reason is not None else 0
        return Synced(folder, writer.run_id, writer.attempt, writer.rank, sent, left, reason)

    def _lane(self, folder: Path, writer: WriterFile, signal: Signal, endpoint: Endpoint, ledger: Ledger) -> Lane:
        return Lane(
            JournalReader(folder, signal, keep=signal.value in writer.kept),
            # Of most there is nothing to encode.
            batch_encoder(signal, metric_vocabulary(self.launch.settings), cache(partial(_resource, folder, signal))),
            lambda: open_transport(endpoint, user_agent(SCOPE_VERSION)),
            clock=self.clock,
            ledger=ledger,
            rejected=RejectedFolder(folder / "rejected", Space(self.launch.settings.journal_max_bytes).max_rejected),
            timeout=endpoint.timeout,
            schedule=self.launch.routes.of(signal).schedule,
        )


@contextmanager
def _held(owner: Owner) -> Iterator[None]:
    """Renew the ownership for as long as the block takes, and release it then."""
    renewal = Upkeep(owner.renew, interval=RENEWAL_INTERVAL)
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()
        owner.release()


def _resource(folder: Path, signal: Signal) -> bytes | None:
    """Return the resource of a journal; one that was never bound is bound by the hyperparameters that were recorded."""
    legacy = read_legacy(folder, signal)
    if legacy.resource is None:
        return None
    if legacy.resource.bound or signal is Signal.LOGS:
        return legacy.resource.message
    hyperparameters = legacy.hyperparameters or read_legacy(folder, Signal.METRICS).hyperparameters
    return encode_resource(decode_resource(legacy.resource.message) | resource_part(hyperparameters))
