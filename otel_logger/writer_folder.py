"""The folder of one writer: made before its run is known, then moved into the run's, and given up at the end."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_logger.folders import STARTING, WriterFile, all_writers, create_runs_folder, run_folder, writers_of
from otel_logger.identity import Identity, Known
from otel_logger_exporters.blob_files import make_private_folder
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.owner import Owner, is_owned
from otel_logger_exporters.owner_folder import LOCK_NAME, open_file

__all__ = ["WriterFolder"]

_LOOKS = (*(0.002,) * 50, *(0.02,) * 45)
"""Seconds between attempts to enter a run's folder: one second in all."""


class WriterFolder:
    """Creates `<directory>/.starting/<identifier>/`, owns it, and keeps its `writer.json` true.

    Raises ConfigurationError when it cannot be created; nothing raises after that.
    """

    def __init__(
        self,
        directory: Path,
        identifier: str,
        started_ns: int,
        rank: int,
        kept: tuple[str, ...],
        ledger: Ledger,
        launch: str | None = None,
    ) -> None:
        self._path = directory / STARTING / identifier
        self._moving = threading.RLock()
        self.writer = WriterFile(identifier[:6], started_ns, rank=rank, kept=kept, launch=launch)
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
        """Return the other writers of the folder of runs, none when it cannot be read; reads all of them."""
        try:
            found = list(all_writers(self._directory))
        except OSError:
            return ()
        return tuple(Known(writer, alive, path) for path, writer, alive in found if path != self.path)

    def known_of(self, run_id: str) -> tuple[Known, ...]:
        """Return the other writers of one run, none when its folder cannot be read: it may be another user's."""
        try:
            found = writers_of(run_folder(self._directory, run_id))
        except OSError:
            return ()
        return tuple(Known(writer, is_owned(path), path) for path, writer in found if path != self.path)

    @contextmanager
    def entering(self, run_id: str) -> Iterator[None]:
        """Keep other processes of this rank from entering the run's folder meanwhile, where there are locks.

        Of several that start at once each sees those before it so.
        """
        lock = -1
        try:
            place = run_folder(self._directory, run_id)
            make_private_folder(place)
            lock = open_file(place / f".rank-{self.writer.rank}.lock", os.O_RDWR | os.O_CREAT)
            _lock(lock)
        except OSError:
            # It is for those alone who start within the same few milliseconds.
            pass
        try:
            yield
        finally:
            if lock >= 0:
                # Also where a child that was forked meanwhile has the descriptor.
                with suppress(OSError):
                    fcntl.flock(lock, fcntl.LOCK_UN)
                os.close(lock)

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


def _lock(file: int) -> None:
    """Take a lock that is held for milliseconds; OSError where it is not to be had."""
    for pause in (*_LOOKS, None):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if pause is None:
                raise
        time.sleep(pause)


def _remove(folder: Path) -> None:
    try:
        for path in sorted(folder.glob("**/*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        folder.parent.rmdir()
    except OSError:
        # `.starting` may hold other writers; and a folder that cannot be removed does no harm.
        pass
