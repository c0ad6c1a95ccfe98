"""The overview of runs: what can be said of each without reading what it recorded."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_logger.conventions import (
    OUTCOME_FAILED,
    OUTCOME_FINISHED,
    OUTCOME_INTERRUPTED,
    OUTCOME_LOST,
    OUTCOME_PREEMPTED,
)
from otel_logger.deaths import last_write
from otel_logger.folders import STARTING, WriterFile, own_writers, runs_below
from otel_logger_exporters.journal_reader import JournalReader
from otel_logger_exporters.owner import is_owned
from otel_logger_exporters.signals import Signal

__all__ = [
    "LOST",
    "RUNNING",
    "AmbiguousRunError",
    "RunOverview",
    "WriterOverview",
    "find_run",
    "overview_of",
    "runs_in",
]

RUNNING = "running"
LOST = OUTCOME_LOST
"""States beside the outcomes: a writer that lives, and one that died without an end, which others may have told."""

_WEIGHT = (RUNNING, OUTCOME_FAILED, OUTCOME_INTERRUPTED, LOST, OUTCOME_PREEMPTED, OUTCOME_FINISHED)
"""The state of several writers is that of the first here: a rank that told how it failed says more than those that
died with it, and one that was lost more than those that finished, or that the launcher ended for it."""

_LISTED = 10
"""Candidates at most that an error lists."""

_Writers = Sequence[tuple[Path, WriterFile]]


class AmbiguousRunError(LookupError):
    """Raised when a name is the beginning of several runs' names; the message lists them."""


@dataclass(frozen=True, slots=True)
class WriterOverview:
    """One writer: its place in the run, its state, times in ns, bytes on disk, and bytes that no endpoint has taken.

    Of a lost one `ended_ns` is None and the duration that until its last sign of life. `kept` names the signals that
    were given no endpoint.
    """

    folder: Path
    attempt: int
    rank: int
    state: str
    started_ns: int
    ended_ns: int | None
    duration_ns: int
    size_bytes: int
    unsent_bytes: int
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunOverview:
    """One run, all ranks and attempts together: state is that of the last attempt, duration the sum of all.

    `run_id` is None while it is not known yet. Blobs count in `size_bytes` where they are in the run's folder, and
    never in `unsent_bytes`.
    """

    folder: Path
    run_id: str | None
    run_name: str | None
    state: str
    attempts: int
    ranks: int
    started_ns: int
    duration_ns: int
    size_bytes: int
    unsent_bytes: int
    writers: tuple[WriterOverview, ...]


def runs_in(path: Path, now_ns: int) -> list[RunOverview]:
    """Return the runs of a folder of runs, or the one of a run's own folder, the oldest first.

    FileNotFoundError when there is none.
    """
    own = own_writers(path)
    found = [(path, own)] if own else list(_runs_below(path))
    if not found:
        what = "holds no run" if path.is_dir() else "is no folder"
        msg = f"{str(path)!r} {what}: give the folder of runs that OTEL_LOGGER_DIR names where runs are recorded"
        raise FileNotFoundError(msg)
    overviews = (_overview(folder, writers, now_ns) for folder, writers in found)
    return sorted(overviews, key=lambda run: (run.started_ns, run.folder))


def overview_of(folder: Path, now_ns: int) -> RunOverview:
    """Return the overview of one run's (or one writer's) folder; FileNotFoundError when it is none."""
    writers = own_writers(folder)
    if not writers:
        msg = f"{str(folder)!r} holds no run: `otel-logger runs` lists the folders of those that there are"
        raise FileNotFoundError(msg)
    return _overview(folder, writers, now_ns)


def find_run(name: str, directory: Path) -> Path:
    """Return the folder that `name` is the path of, or in `directory` the id, the folder or the beginning of either.

    Raises:
        AmbiguousRunError: it is the beginning of several.
        FileNotFoundError: it is none of these; the message names the remedy.
    """
    path = Path(name)
    if own_writers(path):
        return path
    runs = {
        folder: {folder.name, writers[-1][1].run_id or folder.name}
        for folder, writers in sorted(_runs_below(directory))
    }
    found = [folder for folder, names in runs.items() if name in names]
    found = found or [folder for folder, names in runs.items() if any(n.startswith(name) for n in names)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = "".join(f"\n  {folder.name}" for folder in found[:_LISTED])
        more = f"\n  and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        msg = f"{name!r} is the beginning of {len(found)} runs in {str(directory)!r}, give more of one:{listed}{more}"
        raise AmbiguousRunError(msg)
    below = sorted(folder for folder, _ in _runs_below(path))
    if below:
        msg = f"{name!r} is a folder of runs, not a run: give one in it, such as {str(below[-1])!r}"
        raise FileNotFoundError(msg)
    msg = (
        f"{name!r} is neither a run's folder nor the beginning of a run in {str(directory)!r}: `otel-logger runs` "
        "lists those that there are, and OTEL_LOGGER_DIR names the folder that is searched"
    )
    raise FileNotFoundError(msg)


def _runs_below(directory: Path) -> Iterator[tuple[Path, list[tuple[Path, WriterFile]]]]:
    for folder, writers in runs_below(directory):
        if folder.name == STARTING:
            # Each of these is a run of its own, whose name is not known.
            yield from ((path, [(path, writer)]) for path, writer in writers)
        else:
            yield folder, writers


def _overview(folder: Path, writers: _Writers, now_ns: int) -> RunOverview:
    seen = tuple(_writer(path, writer, now_ns) for path, writer in writers)
    attempts = sorted({writer.attempt for writer in seen})
    by_attempt = [[writer for writer in seen if writer.attempt == attempt] for attempt in attempts]
    states = {writer.state for writer in by_attempt[-1]}
    last = writers[-1][1]
    return RunOverview(
        folder=folder,
        run_id=last.run_id,
        run_name=last.run_name,
        state=next((state for state in _WEIGHT if state in states), min(states)),
        attempts=len(attempts),
        ranks=len({writer.rank for writer in seen}),
        started_ns=min(writer.started_ns for writer in seen),
        duration_ns=sum(_together(group) for group in by_attempt),
        size_bytes=_size(folder),
        unsent_bytes=sum(writer.unsent_bytes for writer in seen),
        writers=seen,
    )


def _together(writers: Sequence[WriterOverview]) -> int:
    begin = min(writer.started_ns for writer in writers)
    return max(writer.started_ns + writer.duration_ns for writer in writers) - begin


def _writer(folder: Path, writer: WriterFile, now_ns: int) -> WriterOverview:
    if writer.ended_ns is not None:
        # Whoever owns the folder now sends what its writer left.
        state, until = writer.outcome or OUTCOME_FINISHED, writer.ended_ns
    elif is_owned(folder):
        state, until = RUNNING, now_ns
    else:
        state, until = LOST, last_write(folder)
    return WriterOverview(
        folder=folder,
        attempt=writer.attempt,
        rank=writer.rank,
        state=state,
        started_ns=writer.started_ns,
        ended_ns=None if state == LOST else writer.ended_ns,
        duration_ns=max(0, until - writer.started_ns),
        size_bytes=_size(folder),
        unsent_bytes=sum(JournalReader(folder, signal, keep=True).unread for signal in Signal),
        kept=writer.kept,
    )


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile counts nothing."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return size
