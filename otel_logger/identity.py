"""Identity: which run this is, and which attempt at it.

The rules are the ones of docs/design.md, "Identity". Everything here is a function of values; what the folder of runs
holds comes as `Known` writers.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_logger.conventions import OUTCOME_LOST, OUTCOME_PREEMPTED
from otel_logger.folders import WriterFile
from otel_logger.launcher import LaunchMark
from otel_logger.ranks import Ranks

__all__ = ["Checkpoint", "Identity", "Known", "settle"]


@dataclass(frozen=True, slots=True)
class Known:
    """A writer found in the folder of runs, and whether its process lives."""

    writer: WriterFile
    alive: bool
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The identity that a loaded checkpoint carries."""

    run_id: str
    run_name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: the run's id and name, the attempt (1 is the first), the writer's six hex digits, the parent run.

    `twin` is a live writer of the same run and rank, where there is one.
    """

    run_id: str
    run_name: str
    attempt: int
    writer: str
    ranks: Ranks
    parent_id: str | None = None
    note: str | None = None
    twin: Known | None = None

    @property
    def instance_id(self) -> str:
        """The `service.instance.id`: unique by construction, for two writers of one series overwrite each other."""
        return f"{self.run_id}/{self.ranks.rank}/{self.attempt}/{self.writer}"


def settle(
    *,
    run_name: str,
    run_id: str | None,
    writer: str,
    ranks: Ranks,
    known: Iterable[Known],
    checkpoint: Checkpoint | None,
    seed: str | None,
    draw: Callable[[], str],
    parent_id: str | None = None,
    launch: LaunchMark | None = None,
    restarts: int = 0,
) -> Identity:
    """Return the identity of a writer.

    The run id is the first of: `run_id` (argument or OTEL_LOGGER_RUN_ID); the checkpoint's, when its run name is
    ours (else it becomes the parent); that of a writer of this launch; that of the newest run of this name that died
    without an end or was preempted; and `<run name>-<6 hex>`, where the digits are drawn for a process alone and a
    digest of the launch's `seed` for one of several, so that ranks agree without talking.

    A `parent_id` says that the run is a fork of that one: neither it nor a run of another parent is gone on with.

    The attempt is one more than the highest that is known, from the checkpoint, from `restarts` (the launcher's count)
    and from writers of other launches; what writers of this `launch` have taken is shared.
    """
    known = tuple(known)
    note = None
    parent = parent_id
    if checkpoint is not None and checkpoint.run_id == parent_id != run_id:
        # What a fork begins from is no run to go on with.
        checkpoint = None
    if (
        parent is None
        and checkpoint is not None
        and checkpoint.run_id != run_id
        and (run_id is not None or checkpoint.run_name != run_name)
    ):
        parent = checkpoint.run_id
    if run_id is None and checkpoint is not None and checkpoint.run_name == run_name:
        run_id = checkpoint.run_id
    if run_id is None:
        candidates = [item for item in known if _is_candidate(item.writer, run_name, parent_id)]
        run_id = _of_this_launch(candidates, launch) or _restarted(candidates, launch, is_alone=ranks.world_size == 1)
    is_drawn = run_id is None and ranks.world_size == 1
    if run_id is None:
        if is_drawn:
            run_id = f"{run_name}-{draw()}"
        elif seed is not None:
            run_id = f"{run_name}-{_digest(seed if parent_id is None else f'{seed} fork of {parent_id}')}"
        else:
            run_id = run_name if parent_id is None else f"{run_name}-{_digest(f'fork of {parent_id}')}"
            what = "the run name alone" if parent_id is None else "the run name and a digest of its parent's alone"
            note = (
                f"The run id is {what} ({run_id!r}), because nothing tells the ranks of this launch from "
                "those of another: set OTEL_LOGGER_RUN_ID to one value on all ranks to tell runs of this name apart."
            )
    of_run = sorted((item for item in known if item.writer.run_id == run_id), key=lambda item: item.writer.started_ns)
    attempts, shared = _attempts(of_run, ranks.rank, launch)
    if checkpoint is not None and checkpoint.run_id == run_id:
        attempts.append(checkpoint.attempt)
    if not is_drawn:
        # A run that has just been made up was not started before, whatever was.
        attempts.append(restarts)
    if parent is None:
        # The fork was said of an earlier attempt.
        parent = next((item.writer.parent_id for item in reversed(of_run) if item.writer.parent_id), None)
    twins = [item for item in of_run if item.alive and item.writer.rank == ranks.rank]
    return Identity(
        run_id,
        run_name,
        max(1 + max(attempts, default=0), shared),
        writer,
        ranks,
        parent if parent != run_id else None,
        note,
        twins[-1] if twins else None,
    )


def _attempts(of_run: Sequence[Known], rank: int, launch: LaunchMark | None) -> tuple[list[int], int]:
    """Return the attempts at a run that came before ours, and the one that others of our launch make; 0 for none."""
    before, shared = [], 0
    for item in of_run:
        if item.writer.rank == rank:
            # Also of our launch: it is opened again then.
            before.append(item.writer.attempt)
        elif _is_of_launch(item, launch):
            shared = max(shared, item.writer.attempt)
        else:
            before.append(item.writer.attempt)
    return before, shared


def _is_of_launch(item: Known, launch: LaunchMark | None) -> bool:
    theirs = LaunchMark.parse(item.writer.launch)
    if launch is None or theirs is None:
        # Nothing tells but its life: a live writer of another rank is of this very attempt.
        return item.alive
    return launch.is_of(theirs, alive=item.alive)


def _is_candidate(writer: WriterFile, run_name: str, parent_id: str | None) -> bool:
    """Tell whether a writer's run is one that a run of this name may go on with."""
    if writer.run_id is None or writer.run_name != run_name:
        return False
    return parent_id is None or (writer.parent_id == parent_id and writer.run_id != parent_id)


def _of_this_launch(known: Sequence[Known], launch: LaunchMark | None) -> str | None:
    """Return the id of the run that a writer of our launch has begun last, which may be over already."""
    if launch is None:
        return None
    ours = [item.writer for item in known if LaunchMark.parse(item.writer.launch) and _is_of_launch(item, launch)]
    return max(ours, key=lambda writer: writer.started_ns).run_id if ours else None


def _restarted(known: Sequence[Known], launch: LaunchMark | None, *, is_alone: bool) -> str | None:
    """Return the id of the newest dead run when a writer of its last attempt was cut short, else None.

    A run that another launch goes on with already is left to it: of several that start at once after one has died, each
    is a run of its own but the first.
    """
    taken = {item.writer.run_id for item in known if item.alive and (is_alone or not _is_of_launch(item, launch))}
    groups: dict[tuple[str | None, int], list[Known]] = {}
    for item in known:
        if item.writer.run_id not in taken:
            groups.setdefault((item.writer.run_id, item.writer.attempt), []).append(item)
    # A group with a live writer is our own launch (a rank that was quicker) or another run: not one to restart.
    dead = {key: items for key, items in groups.items() if not any(item.alive for item in items)}
    if not dead:
        return None
    (run_id, _), newest = max(dead.items(), key=lambda entry: max(item.writer.started_ns for item in entry[1]))
    return run_id if any(_is_cut_short(item.writer) for item in newest) else None


def _is_cut_short(writer: WriterFile) -> bool:
    # Who preempts a run starts it again where there is room. That it was lost another process has found.
    return writer.ended_ns is None or writer.outcome in (OUTCOME_PREEMPTED, OUTCOME_LOST)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
