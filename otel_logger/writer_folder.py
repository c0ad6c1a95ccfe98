"""The folder of one writer: made before its run is known, then moved into the run's, and given up at the end."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_logger.folders import STARTING, WriterFile, all_writers, create_runs_folder, run_folder
from otel_logger.identity import Identity, Known
from otel_logger_exporters.blob_files import make_private_folder
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.owner import Owner
from otel_logger_exporters.owner_folder import LOCK_NAME

__all__ = ["WriterFolder"]


class WriterFolder:
    """Creates `<directory>/.starting/<identifier>/`, owns it, and keeps its `writer.json` true.

    Raises ConfigurationError when it cannot be created; nothing raises after that.
    """

    def __init__(
        self, directory: Path, identifier: str, started_ns: int, rank: int, kept: tuple[str, ...], ledger: Ledger
    ) -> None:
        self._path = directory / STARTING / identifier
        self._moving = threading.RLock()
        self.writer = WriterFile(identifier[:6], started_ns, rank=rank, kept=kept)
        self._directory = directory
        self._ledger = ledger
        try:
            create_runs_folder(directory)
            make_private_folder(self.path)
            # Owned before it is described: a folder that says whose it is and has no owner looks like a dead writer's.
            self._owner = Owner(self.path)
            self.writer.write(self.path)
        except OSError as error:
            msg = (
                f"OTEL_LOGGER_DIR={os.path.relpath(directory)!r} cannot be written: {error}. Name a folder that can, "
                "on a disk of this machine where there is one."
            )
            raise ConfigurationError(msg) from error

    @property
    def path(self) -> Path:
        """Where the folder is: never where it has just ceased to be."""
        with self._moving:
            return self._path

    def known(self) -> tuple[Known, ...]:
        """Return the other writers of the folder of runs; reads all of them."""
        found = all_writers(self._directory)
        return tuple(Known(writer, alive) for path, writer, alive in found if path != self.path)

    def move_in(self, identity: Identity, relocate: Callable[[Path], None]) -> None:
        """Move into the run's folder; `relocate` renames the folder and tells whoever works in it."""
        target = run_folder(self._directory, identity.run_id) / (
            f"{identity.ranks.rank}-{identity.attempt}-{identity.writer}"
        )
        try:
            with self._moving:
                relocate(target)
                self._path = target
        except OSError as error:
            self._ledger.warn("folder", f"The run's folder cannot be made, its data stays in {self.path}: {error}")
        self.describe(
            run_id=identity.run_id,
            run_name=identity.run_name,
            attempt=identity.attempt,
            parent_id=identity.parent_id,
        )

    def describe(self, **changes: Any) -> None:
        """Change what `writer.json` says."""
        self.writer = replace(self.writer, **changes)
        try:
            self.writer.write(self.path)
        except OSError as error:
            self._ledger.warn("folder", f"The run's folder does not take writer.json: {error}")

    def restore(self) -> None:
        """Make the folder again after somebody has deleted it, or what is in it."""
        try:
            with self._moving:
                make_private_folder(self._path)
                if not (self._path / LOCK_NAME).exists():
                    self._owner.release()
                    self._owner = Owner(self._path)
                self.writer.write(self._path)
        except OSError as error:
            self._ledger.warn("folder", f"The run's folder {self._path} cannot be made again: {error}")

    def renew(self) -> None:
        """Show that the writer lives; for a thread of the background, every `RENEWAL_INTERVAL` of its owner."""
        if not self._owner.renew():
            self._ledger.warn(
                "owner",
                f"This process did not run for so long that another took it for dead, which now sends what is in "
                f"{self.path}: what is recorded from here on may be sent twice or not at all.",
            )

    def release(self, *, unused: bool) -> None:
        """Give the folder up; an unused one is removed."""
        self._owner.release()
        if unused:
            _remove(self.path)

    def abandon(self) -> None:
        """Let the owner's lock be the parent's, in the child of a fork."""
        self._moving = threading.RLock()
        self._owner.abandon()


def _remove(folder: Path) -> None:
    try:
        for path in sorted(folder.glob("**/*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        folder.parent.rmdir()
    except OSError:
        # `.starting` may hold other writers; and a folder that cannot be removed does no harm.
        pass
