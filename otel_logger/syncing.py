"""Syncing: what is on disk of runs that have ended, sent by a later process."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_logger.folders import WriterFile, writers_of
from otel_logger.hyperparameters import resource_part
from otel_logger.launch import Launch
from otel_logger.vocabulary import metric_vocabulary
from otel_logger_exporters.adoption import deliver, read_legacy
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.decoding import decode_resource
from otel_logger_exporters.encoder import batch_encoder
from otel_logger_exporters.items import encode_resource
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.lane import Lane
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.owner import Owner
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.transports import Transport, open_transport, user_agent

__all__ = ["Synced", "sync", "writers_below"]

_log = logging.getLogger("otel_logger.sync")


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of one writer's folder: items sent by signal, bytes that are left, and why, if they are."""

    folder: Path
    run_id: str | None
    attempt: int
    rank: int
    sent: Mapping[str, int]
    left: int
    reason: str | None = None


def writers_below(path: Path) -> list[tuple[Path, WriterFile]]:
    """Return the writers of a writer's folder, a run's folder, or a folder of runs, the oldest of each run first.

    FileNotFoundError when there is none.
    """
    own = WriterFile.read(path)
    if own is not None:
        return [(path, own)]
    found = writers_of(path)
    if not found and path.is_dir():
        found = [writer for folder in sorted(path.iterdir()) for writer in writers_of(folder)]
    if not found:
        what = "holds no run" if path.is_dir() else "is no folder"
        msg = f"{str(path)!r} {what}: give the folder of a run, or the folder of runs (OTEL_LOGGER_DIR)"
        raise FileNotFoundError(msg)
    return found


def sync(
    writers: list[tuple[Path, WriterFile]],
    launch: Launch,
    *,
    clock: Clock,
    wait: Callable[[float], None],
    timeout: float,
    version: str,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[Synced]:
    """Send what waits in the folders of dead writers to the endpoints of `launch`; yield what became of each.

    Nothing is deleted: what an endpoint has acknowledged is marked, so that a second call sends nothing again and an
    interrupted one goes on where it was. A folder whose writer lives is refused. Each folder is tried for `timeout`
    seconds; `advance` is told the bytes that are done.
    """
    for folder, writer in writers:
        yield _sync_one(folder, writer, launch, clock, wait, timeout, version, advance)


def waiting(folder: Path, launch: Launch) -> int:
    """Return the bytes of a writer's folder that have an endpoint and are not acknowledged."""
    return sum(JournalReader(folder, s, keep=True).unread for s in Signal if launch.routes.of(s).endpoint is not None)


def _sync_one(
    folder: Path,
    writer: WriterFile,
    launch: Launch,
    clock: Clock,
    wait: Callable[[float], None],
    timeout: float,
    version: str,
    advance: Callable[[int], None],
) -> Synced:
    def result(sent: Mapping[str, int], reason: str | None) -> Synced:
        left = waiting(folder, launch) if reason is not None else 0
        return Synced(folder, writer.run_id, writer.attempt, writer.rank, sent, left, reason)

    try:
        owner = Owner.claim(folder)
    except OSError as error:
        return result({}, f"the folder cannot be opened: {error}")
    if owner is None:
        return result({}, "its writer is alive, or the file system cannot tell; it sends by itself")
    try:
        ledger = Ledger(clock, _log)
        deadline = clock.monotonic() + timeout
        complete = True
        for signal in Signal:
            if (lane := _lane(folder, signal, launch, clock, ledger, version)) is not None:
                try:
                    complete &= deliver(lane, deadline=deadline, clock=clock, wait=wait, advance=advance)
                finally:
                    lane.close()
        stats = ledger.stats(frozenset(Signal))
        refused = sum(stats.refused.values())
        reason = None
        if not complete:
            reason = stats.last_error or "it has no resource: the run died before it was known"
        elif refused:
            reason = f"{refused} items were refused, see {folder / 'rejected'}: {stats.last_error}"
        return result({name: count for name, count in stats.delivered.items() if count}, reason)
    except OSError as error:
        return result({}, f"the folder cannot be read or written: {error}")
    finally:
        owner.release()


def _lane(folder: Path, signal: Signal, launch: Launch, clock: Clock, ledger: Ledger, version: str) -> Lane | None:
    endpoint = launch.routes.of(signal).endpoint
    reader = JournalReader(folder, signal, keep=True)
    if endpoint is None or not reader.unread:
        return None
    resource = _resource(folder, signal)

    def connect() -> Transport:
        return open_transport(endpoint, user_agent(version))

    return Lane(
        reader,
        batch_encoder(signal, metric_vocabulary(launch.settings), lambda: resource),
        connect,
        clock=clock,
        ledger=ledger,
        rejected=RejectedFolder(folder / "rejected"),
        timeout=endpoint.timeout,
    )


def _resource(folder: Path, signal: Signal) -> bytes | None:
    """Return the resource of a journal; one that was never bound is bound by the hyperparameters that were recorded."""
    legacy = read_legacy(folder, signal)
    if legacy.resource is None:
        return None
    if legacy.resource.bound or signal is Signal.LOGS:
        return legacy.resource.message
    hyperparameters = legacy.hyperparameters or read_legacy(folder, Signal.METRICS).hyperparameters
    return encode_resource(decode_resource(legacy.resource.message) | resource_part(hyperparameters))
