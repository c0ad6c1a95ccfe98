"""Ranks: which of a run's processes this one is, as its launcher says."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_logger_exporters.errors import ConfigurationError

__all__ = ["Ranks"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of a process in a run: global, local and node rank, number of processes in all and on this node."""

    rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Ranks":
        """Return what the launcher says; without one the process is alone. ConfigurationError for what makes no sense.

        The first of these that is there counts, and nothing of the others: RANK or LOCAL_RANK (torchrun, Composer's
        launcher, Lightning, accelerate), OMPI_COMM_WORLD_RANK (Open MPI), PMI_RANK (MPICH, Intel MPI), a step of
        several tasks that srun has started. Of a Slurm job without srun, or of one task, there is one process: a batch
        script or an interactive shell sees the tasks of the job too, and is none of them.
        """
        readers: tuple[Callable[[Mapping[str, str]], Ranks | None], ...] = (_torchrun, _open_mpi, _pmi, _slurm)
        for read in readers:
            if (found := read(environ)) is not None:
                return found
        # Of these alone nothing but a size or a node is known.
        return _from_torchruns_variables(environ)

    def sends(self, which: str) -> bool:
        """Tell whether this process sends metrics under the setting `zero`, `node` or `all`."""
        return {"zero": self.rank == 0, "node": self.local_rank == 0, "all": True}[which]


def _torchrun(environ: Mapping[str, str]) -> Ranks | None:
    # Batch scripts export WORLD_SIZE and NODE_RANK for programs that take the rest from Slurm.
    return _from_torchruns_variables(environ) if _is_set(environ, "RANK") or _is_set(environ, "LOCAL_RANK") else None


def _from_torchruns_variables(environ: Mapping[str, str]) -> Ranks:
    world_size = _number(environ, "WORLD_SIZE", 1)
    local_rank = _number(environ, "LOCAL_RANK", 0)
    local_world_size = _number(environ, "LOCAL_WORLD_SIZE", world_size)
    node_rank = _number(environ, "NODE_RANK", _number(environ, "GROUP_RANK", 0))
    rank = _number(environ, "RANK", 0)
    if not _is_set(environ, "RANK") and world_size > 1 and _is_set(environ, "LOCAL_RANK"):
        # Lightning starts the processes of a node without saying their rank.
        if node_rank > 0 and not _is_set(environ, "LOCAL_WORLD_SIZE"):
            msg = (
                f"LOCAL_RANK={local_rank} of node {node_rank}, but neither RANK nor LOCAL_WORLD_SIZE is set, so that "
                "the rank is not known: set LOCAL_WORLD_SIZE to the number of processes of each node, or RANK in each."
            )
            raise ConfigurationError(msg)
        rank = node_rank * local_world_size + local_rank if node_rank > 0 else local_rank
    return Ranks(rank, local_rank, node_rank, world_size, local_world_size)


def _open_mpi(environ: Mapping[str, str]) -> Ranks | None:
    return _mpi(environ, *(f"OMPI_COMM_WORLD_{part}" for part in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")))


def _pmi(environ: Mapping[str, str]) -> Ranks | None:
    return _mpi(environ, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def _mpi(environ: Mapping[str, str], rank: str, size: str, local_rank: str, local_size: str) -> Ranks | None:
    if not (_is_set(environ, rank) and _is_set(environ, size)):
        return None
    number, world_size = _number(environ, rank, 0), _number(environ, size, 1)
    _check_bounds(rank, number, size, world_size)
    # Without srun's word for the place on the node (PMI alone has none) that is Slurm's.
    local = _number(environ, local_rank, _number(environ, "SLURM_LOCALID", 0))
    local_world_size = _number(environ, local_size, world_size)
    # Nobody says the node: this is its number where nodes are filled one after another, as they are by default.
    node = (number - local) // local_world_size if number >= local and local_world_size else 0
    return Ranks(number, local, node, world_size, local_world_size)


_SPECIAL_STEP = 4_294_967_200
"""Steps of a number from here on are no launches: the batch script, an interactive shell, what runs beside tasks."""


def _slurm(environ: Mapping[str, str]) -> Ranks | None:
    if not (_is_set(environ, "SLURM_PROCID") and _is_set(environ, "SLURM_STEP_ID")):
        return None
    step = environ["SLURM_STEP_ID"].strip()
    if not step.isdecimal() or int(step[:20]) >= _SPECIAL_STEP:
        return None
    # Of the step first: SLURM_NTASKS may be what the job was asked for.
    size = "SLURM_STEP_NUM_TASKS" if _is_set(environ, "SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    world_size = _number(environ, size, 1)
    if world_size <= 1:
        return None
    rank, node = _number(environ, "SLURM_PROCID", 0), _number(environ, "SLURM_NODEID", 0)
    _check_bounds("SLURM_PROCID", rank, size, world_size)
    tasks = next((name for name in _TASKS if _is_set(environ, name)), None)
    local_world_size = world_size if tasks is None else min(world_size, _tasks_of(environ[tasks], node, tasks))
    return Ranks(rank, _number(environ, "SLURM_LOCALID", 0), node, world_size, local_world_size)


_TASKS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
_TASKS_PART = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


def _tasks_of(value: str, node: int, name: str) -> int:
    """Return the tasks of a node in a list such as `4(x2),3`, by its number; nodes beyond the list are as its last."""
    parts = []
    for part in value.split(","):
        match = _TASKS_PART.fullmatch(part.strip())
        if match is None:
            msg = (
                f"{name}={value!r} is not understood: Slurm writes the tasks of each node as in 4(x2),3. Unset it "
                "where it is not Slurm's."
            )
            raise ConfigurationError(msg)
        parts.append((int(match[1]), int(match[2] or 1)))
    for tasks, count in parts:
        if node < count:
            return tasks
        node -= count
    return parts[-1][0]


def _check_bounds(name: str, rank: int, size_name: str, size: int) -> None:
    if rank >= size:
        msg = (
            f"{name}={rank}, but {size_name}={size}: ranks count from 0 to one less than the number of processes. The "
            "launcher sets both; set RANK and WORLD_SIZE where they are not of this program's launch."
        )
        raise ConfigurationError(msg)


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return bool(environ.get(name, "").strip())


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        msg = f"{name}={value!r} is not a whole number. The launcher sets it; unset it for a process that runs alone."
        raise ConfigurationError(msg)
    return int(value)
