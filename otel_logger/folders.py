"""Folders of runs: where a run and its writers live, and what can be known of earlier ones from there.

`<dir>/<slug>-<8 hex>/<rank>-<attempt>-<writer>/` is a writer's folder, `<dir>/.starting/<uuid>/` one of a writer whose
run is not known yet. `writer.json` in it says whose it is.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from otel_logger_exporters.blob_files import make_private_folder
from otel_logger_exporters.owner import is_owned

__all__ = [
    "STARTING",
    "WriterFile",
    "all_writers",
    "blobs_folder",
    "create_runs_folder",
    "own_writers",
    "run_folder",
    "runs_below",
    "writers_of",
]

STARTING = ".starting"

_FILE = "writer.json"
_SLUG_LENGTH = 80
_NUMBERS = range(2**62)
"""Of anything beyond, and of what is one more, OTLP has no number."""

_NOT_IN_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class WriterFile:
    """What `writer.json` says of one writer: its run, its place in it, its times (ns), and how it ended (None: not).

    `kept` names the signals that have no endpoint, whose journals are the store; those of others are queues. `launch`
    tells the launches of several processes apart, see `otel_logger.launcher`.
    """

    writer: str
    started_ns: int
    run_id: str | None = None
    run_name: str | None = None
    attempt: int = 1
    rank: int = 0
    parent_id: str | None = None
    ended_ns: int | None = None
    outcome: str | None = None
    kept: tuple[str, ...] = ("metrics", "logs", "traces")
    launch: str | None = None

    def write(self, folder: Path) -> None:
        """Write it into `folder`, replacing what was there in one step."""
        temporary = folder / f"{_FILE}.tmp"
        temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        os.replace(temporary, folder / _FILE)

    @classmethod
    def read(cls, folder: Path) -> "WriterFile | None":
        """Return what `folder` says, or None when it is no writer's."""
        try:
            content = json.loads((folder / _FILE).read_text("utf-8"))
            found = cls(**{name: content[name] for name in cls.__slots__ if name in content})
            if isinstance(found.kept, list):
                found = replace(found, kept=tuple(found.kept))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        return found if found._is_typed() else None

    def _is_typed(self) -> bool:
        numbers = (self.started_ns, self.attempt, self.rank, self.ended_ns or 0)
        texts: tuple[object, ...] = (
            self.writer,
            self.run_id or "",
            self.run_name or "",
            self.parent_id or "",
            self.outcome or "",
            self.launch or "",
        )
        texts += self.kept if isinstance(self.kept, tuple) else (None,)
        is_counted = all(type(number) is int and number in _NUMBERS for number in numbers)
        return is_counted and all(type(text) is str for text in texts)


def run_folder(directory: Path, run_id: str) -> Path:
    """Return the folder of a run; any run id (`..`, blank, `a/b`, very long) has one of its own below `directory`."""
    slug = _NOT_IN_SLUG.sub("_", run_id)[:_SLUG_LENGTH].lstrip(".") or "run"
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return directory / f"{slug}-{digest}"


def blobs_folder(folder: Path) -> Path:
    """Return the folder of the default blob store of a writer's folder: its run's, or that of one without a run."""
    return (folder if folder.parent.name == STARTING else folder.parent) / "blobs"


def create_runs_folder(directory: Path) -> None:
    """Create `directory` for its owner alone, with a `.gitignore` that keeps runs out of version control."""
    if not directory.is_dir():
        make_private_folder(directory)
        (directory / ".gitignore").write_text("*\n", "ascii")


def writers_of(folder: Path) -> list[tuple[Path, WriterFile]]:
    """Return the writers' folders directly in `folder`, the oldest first."""
    read = ((path, WriterFile.read(path)) for path in (folder.iterdir() if folder.is_dir() else ()))
    found = [(path, writer) for path, writer in read if writer is not None]
    return sorted(found, key=lambda item: (item[1].started_ns, item[0].name))


def own_writers(folder: Path) -> list[tuple[Path, WriterFile]]:
    """Return the writers of a run's folder, the oldest first, or the one whose own folder it is."""
    own = WriterFile.read(folder)
    return [(folder, own)] if own is not None else writers_of(folder)


def runs_below(directory: Path) -> Iterator[tuple[Path, list[tuple[Path, WriterFile]]]]:
    """Yield the folders in `directory` that hold writers, with those; folders that cannot be read are passed over."""
    for folder in sorted(directory.iterdir()) if directory.is_dir() else ():
        try:
            writers = writers_of(folder)
        except OSError:
            # Another user's run, which is closed to all but its owner, or a folder that was just renamed.
            continue
        if writers:
            yield folder, writers


def all_writers(directory: Path) -> Iterator[tuple[Path, WriterFile, bool]]:
    """Yield the writers of all runs in `directory` with whether they live; folders that cannot be read have none."""
    for _, writers in runs_below(directory):
        for path, writer in writers:
            yield path, writer, is_owned(path)
