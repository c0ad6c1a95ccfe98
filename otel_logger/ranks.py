"""Ranks: which of a run's processes this one is, as its launcher says."""

from collections.abc import Mapping
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
        """Return what RANK, LOCAL_RANK, NODE_RANK (or GROUP_RANK), WORLD_SIZE and LOCAL_WORLD_SIZE say.

        These are set by torchrun, by Composer's launcher and by Lightning; without them the process is alone.
        """
        world_size = _number(environ, "WORLD_SIZE", 1)
        return cls(
            rank=_number(environ, "RANK", 0),
            local_rank=_number(environ, "LOCAL_RANK", 0),
            node_rank=_number(environ, "NODE_RANK", _number(environ, "GROUP_RANK", 0)),
            world_size=world_size,
            local_world_size=_number(environ, "LOCAL_WORLD_SIZE", world_size),
        )

    def sends(self, which: str) -> bool:
        """Tell whether this process sends metrics under the setting `zero`, `node` or `all`."""
        return {"zero": self.rank == 0, "node": self.local_rank == 0, "all": True}[which]


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        msg = f"{name}={value!r} is not a whole number. The launcher sets it; unset it for a process that runs alone."
        raise ConfigurationError(msg)
    return int(value)
