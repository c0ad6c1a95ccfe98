"""The launcher: what is the same for all processes that it starts together, and for no others."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_logger.ranks import Ranks

__all__ = ["LaunchMark", "Restarts", "describe_process", "launch_mark", "launch_seed"]

_MEETING = "~"

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_JOB_UID = re.compile(r"(?:^|,)\s*k8s\.job\.uid\s*=\s*([^,\s]+)")


def launch_seed(environ: Mapping[str, str], ranks: Ranks, parent: str | None) -> str | None:
    """Return what is the same for all ranks of this launch and for no other, or None.

    The first of TORCHELASTIC_RUN_ID (unless `none`), SLURM_JOB_ID with SLURM_STEP_ID, the Kubernetes job's uid (as
    K8S_JOB_UID, or as `k8s.job.uid` in OTEL_RESOURCE_ATTRIBUTES), and on one node MASTER_ADDR and MASTER_PORT with
    `parent`, a text that tells the launcher's process from any other.
    """
    elastic = environ.get("TORCHELASTIC_RUN_ID", "")
    if elastic and elastic != "none":
        return f"torchelastic {elastic}"
    if environ.get("SLURM_JOB_ID"):
        return f"slurm {environ['SLURM_JOB_ID']} {environ.get('SLURM_STEP_ID', '')}"
    if uid := environ.get("K8S_JOB_UID", "").strip():
        return f"k8s {uid}"
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


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often this program was started again, as torchrun (`elastic`) and Slurm (`slurm`) count; None: neither says.

    torchrun begins anew when Slurm starts the job again.
    """

    elastic: int | None = None
    slurm: int | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Restarts":
        """Return what TORCHELASTIC_RESTART_COUNT and SLURM_RESTART_COUNT say; what is no number is left out."""
        return cls(_count(environ, "TORCHELASTIC_RESTART_COUNT"), _count(environ, "SLURM_RESTART_COUNT"))

    @property
    def count(self) -> int | None:
        """The count of the launcher that is nearest to the program."""
        return self.elastic if self.elastic is not None else self.slurm

    @property
    def total(self) -> int:
        """How many attempts there were before this one, at least."""
        return (self.elastic or 0) + (self.slurm or 0)


def _count(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else None


@dataclass(frozen=True, slots=True)
class LaunchMark:
    """What a process says of its launch for others to compare; each part but `restarts` is a digest.

    `seed` is that of the launch, or where none holds beyond one parent, after a tilde, where its ranks meet; `host` the
    machine's or container's name, `parent` the process that started this one ("": it tells nothing).
    """

    seed: str
    restarts: int
    host: str
    parent: str

    def __str__(self) -> str:
        return f"{self.seed}.{self.restarts}.{self.host}.{self.parent}"

    @classmethod
    def parse(cls, text: str | None) -> "LaunchMark | None":
        """Return the mark that `str` has written, None for anything else."""
        parts = (text or "").split(".")
        if len(parts) != 4 or not parts[1].isdecimal() or len(parts[1]) > 9:
            return None
        return cls(parts[0], int(parts[1]), parts[2], parts[3])

    def is_of(self, other: "LaunchMark", *, alive: bool) -> bool:
        """Tell whether the process of `other` is of our launch.

        Of another host a live one is whatever its count of restarts, on which nodes do not always agree. Without a seed
        a live one is that meets where we do, and a dead one of the same parent.
        """
        if self.seed != other.seed:
            return False
        is_same_time = self.restarts == other.restarts
        is_beside_us = self.host == other.host and self.parent == other.parent
        if self.seed.startswith(_MEETING):
            return alive or (is_beside_us and is_same_time)
        if self.host == other.host:
            return is_beside_us and is_same_time
        return alive or is_same_time


def launch_mark(
    environ: Mapping[str, str], ranks: Ranks, *, seed: str | None, restarts: Restarts, host: str, parent: str | None
) -> LaunchMark | None:
    """Return the mark of this launch; None for a process that is alone, which is a launch by itself."""
    if ranks.world_size <= 1:
        return None
    kind = (seed or "").partition(" ")[0]
    # What is made of the parent says no more than that does, and of Slurm's tasks each may have a shell of its own.
    is_told_by_seed, is_told_by_parent = kind not in ("", "node"), kind != "slurm"
    # A launcher that starts its processes again where they were, without counting, mostly takes another port.
    port = environ.get("MASTER_PORT", "")
    master = f"{environ.get('MASTER_ADDR', '')}:{port}"
    if is_told_by_seed:
        # torchrun counts anew when Slurm starts the job again: the sum of both may be what it was before.
        told = _digest(f"{seed} {restarts.slurm or 0}")
    else:
        # Not by the address, of which ranks that are started by hand may have several.
        told = _MEETING + _digest(f"{host} {port}" if kind == "node" else port)
    return LaunchMark(
        seed=told,
        restarts=restarts.total,
        host=_digest(host),
        parent=_digest(f"{parent} {master}") if is_told_by_parent else "",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
