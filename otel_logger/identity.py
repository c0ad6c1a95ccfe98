"""Identity: which run this is, and which attempt at it.

The rules are the ones of docs/design.md, "Identity". Everything here is a function of values; what the folder of runs
holds comes as `Known` writers.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_logger.conventions import OUTCOME_PREEMPTED
from otel_logger.folders import WriterFile
from otel_logger.ranks import Ranks

__all__ = ["Checkpoint", "Identity", "Known", "describe_process", "launch_seed", "settle"]


@dataclass(frozen=True, slots=True)
class Known:
    """A writer found in the folder of runs, and whether its process lives."""

    writer: WriterFile
    alive: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The identity that a loaded checkpoint carries."""

    run_id: str
    run_name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: the run's id and name, the attempt (1 is the first), the writer's six hex digits, the parent run."""

    run_id: str
    run_name: str
    attempt: int
    writer: str
    ranks: Ranks
    parent_id: str | None = None
    note: str | None = None

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
) -> Identity:
    """Return the identity of a writer.

    The run id is the first of: `run_id` (argument or OTEL_LOGGER_RUN_ID); the checkpoint's, when its run name is
    ours (else it becomes the parent); that of the newest run of this name that died without an end or was preempted;
    and `<run name>-<6 hex>`, where the digits are drawn for a process alone and a digest of the launch's `seed` for one
    of several, so that ranks agree without talking.
    """
    known = tuple(known)
    note = None
    parent = None
    if (
        checkpoint is not None
        and checkpoint.run_id != run_id
        and (run_id is not None or checkpoint.run_name != run_name)
    ):
        parent = checkpoint.run_id
    if run_id is None and checkpoint is not None and checkpoint.run_name == run_name:
        run_id = checkpoint.run_id
    if run_id is None:
        run_id = _restarted(run_name, known, is_alone=ranks.world_size == 1)
    if run_id is None:
        if ranks.world_size == 1:
            run_id = f"{run_name}-{draw()}"
        elif seed is not None:
            run_id = f"{run_name}-{hashlib.sha256(seed.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
        else:
            run_id = run_name
            note = (
                f"The run id is the run name alone ({run_name!r}), because nothing tells the ranks of this launch from "
                "those of another: set OTEL_LOGGER_RUN_ID to one value on all ranks to tell runs of this name apart."
            )
    attempts = [
        item.writer.attempt
        for item in known
        # A live writer of another rank is of this very attempt.
        if item.writer.run_id == run_id and (item.writer.rank == ranks.rank or not item.alive)
    ]
    if checkpoint is not None and checkpoint.run_id == run_id:
        attempts.append(checkpoint.attempt)
    return Identity(run_id, run_name, 1 + max(attempts, default=0), writer, ranks, parent, note)


def _restarted(run_name: str, known: Iterable[Known], *, is_alone: bool) -> str | None:
    """Return the id of the newest dead run of this name when a writer of its last attempt was cut short, else None.

    A process that is alone leaves a run that another process goes on with already: of several that start at once
    after one has died, each is a run of its own but the first. Ranks cannot tell such a one from their own first rank.
    """
    known = tuple(known)
    taken = {item.writer.run_id for item in known if item.alive} if is_alone else set()
    groups: dict[tuple[str, int], list[Known]] = {}
    for item in known:
        if item.writer.run_name == run_name and item.writer.run_id is not None and item.writer.run_id not in taken:
            groups.setdefault((item.writer.run_id, item.writer.attempt), []).append(item)
    # A group with a live writer is our own launch (a rank that was quicker) or another run: not one to restart.
    dead = {key: items for key, items in groups.items() if not any(item.alive for item in items)}
    if not dead:
        return None
    (run_id, _), newest = max(dead.items(), key=lambda entry: max(item.writer.started_ns for item in entry[1]))
    return run_id if any(_is_cut_short(item.writer) for item in newest) else None


def _is_cut_short(writer: WriterFile) -> bool:
    # Who preempts a run starts it again where there is room.
    return writer.ended_ns is None or writer.outcome == OUTCOME_PREEMPTED


_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_JOB_UID = re.compile(r"(?:^|,)\s*k8s\.job\.uid\s*=\s*([^,\s]+)")


def launch_seed(environ: Mapping[str, str], ranks: Ranks, parent: str | None) -> str | None:
    """Return what is the same for all ranks of this launch and for no other, or None.

    The first of TORCHELASTIC_RUN_ID (unless `none`), SLURM_JOB_ID with SLURM_STEP_ID, the Kubernetes job's uid (as
    `k8s.job.uid` in OTEL_RESOURCE_ATTRIBUTES), and on one node MASTER_ADDR and MASTER_PORT with `parent`, a text
    that tells the launcher's process from any other.
    """
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    if elastic and elastic != "none":
        return f"torchelastic {elastic}"
    if environ.get("SLURM_JOB_ID"):
        return f"slurm {environ['SLURM_JOB_ID']} {environ.get('SLURM_STEP_ID', '')}"
    if match := _JOB_UID.search(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")):
        return f"k8s {match[1]}"
    # Not every launcher says LOCAL_WORLD_SIZE; without it only a loopback address tells that there is one node.
    says_one_node = environ.get("LOCAL_WORLD_SIZE") or environ.get("MASTER_ADDR") in _LOOPBACK
    if says_one_node and ranks.local_world_size == ranks.world_size and environ.get("MASTER_PORT") and parent:
        return f"node {environ.get('MASTER_ADDR', '')}:{environ['MASTER_PORT']} {parent}"
    return None


def describe_process(pid: int) -> str | None:
    """Return the pid and start time of a process, which no later one shares until reboot; None where unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return f"{pid} {fields[19]}"
    except (OSError, IndexError):
        return None
