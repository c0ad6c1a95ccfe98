"""A training in several attempts, each but the last of which is killed: how it is driven, and what has to be so."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from resuming import BATCHES_IN_ALL, LATEST, Attempt
from s3 import S3Server

from otel_logger import conventions as names
from otel_logger import read_run
from otel_logger.folders import STARTING, runs_below
from otel_logger.staging import STAGED
from otel_logger_exporters.blob_store import BlobStore, open_blob_store
from otel_logger_exporters.consignments import Consignment, consignments_in

__all__ = ["SYMLINK", "Child", "Nursery", "Outage", "Saga", "Warehouse", "in_a_bucket", "in_a_folder"]

SYMLINK = f"{LATEST}.symlink"
"""The file that holds the name of the newest checkpoint."""

PATIENCE = 60.0
"""Seconds that anything takes at most, unless it hangs."""

POLL_SECONDS = 0.01


class Child:
    """A process that makes an attempt, and what it has noted."""

    def __init__(self, attempt: Attempt, pid: int, wait: Callable[[], int]) -> None:
        self.attempt = attempt
        self._pid = pid
        self._wait = wait
        self._status: int | None = None

    @property
    def notes(self) -> list[list[str]]:
        """The words of each line."""
        path = self.attempt.notes
        return [line.split() for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    @property
    def printed(self) -> str:
        """What it has printed."""
        return (Path(self.attempt.folder) / "printed.txt").read_text("utf-8")

    def noted(self, what: str) -> list[list[str]]:
        """What stands behind a word, of each line that begins with it."""
        return [line[1:] for line in self.notes if line[0] == what]

    @property
    def loaded(self) -> int | None:
        """The batch that it goes on from, None if it died before that was loaded."""
        return next((int(batch) for (batch,) in self.noted("loaded")), None)

    @property
    def losses(self) -> dict[str, str]:
        """What tells the loss of each batch from others."""
        return {batch: loss for batch, loss in self.noted("batch")}

    @property
    def uploads(self) -> list[tuple[int, str]]:
        """Batch and name of each upload that has returned."""
        return [(int(batch), name) for batch, name in self.noted("uploaded")]

    def wait_for(self, what: str) -> None:
        """Wait for a line that begins with this word; fails when the process dies first."""
        self.wait_until(lambda: bool(self.noted(what)))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what this process does; fails when it dies first."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert Path(f"/proc/{self._pid}").exists(), self.printed
            assert time.monotonic() < deadline, (self.notes[-3:], self.printed)
            time.sleep(POLL_SECONDS)

    def let_go_on(self) -> None:
        """Open the FIFO that it waits for."""
        self.wait_for("holds")
        with self.attempt.word.open("wb"):
            pass

    def kill(self) -> None:
        """End it as cannot be caught; until then it lived."""
        os.kill(self._pid, signal.SIGKILL)
        assert -signal.SIGKILL == self.status(), self.printed

    def end(self) -> None:
        """Wait for its end, which is a good one."""
        assert 0 == self.status(), self.printed

    def status(self) -> int:
        """Wait for its end; returns its status, negative for a signal."""
        if self._status is None:
            self._status = self._wait()
        return self._status

    def clear_away(self) -> None:
        """End it, if a test that failed has left it alive."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self.status()


class Nursery:
    """The process that forks children, so that they need not import Composer each for itself.

    `uninterrupted` is for the training that nobody kills, once it has been made.
    """

    def __init__(self) -> None:
        self.uninterrupted: Child | None = None
        self._process: subprocess.Popen[str] | None = None
        self._last: Child | None = None

    def begin(self, attempt: Attempt) -> Child:
        """Start an attempt, after the one before."""
        self._clear_away()
        # Started by the first test and not before, so that its environment is a clean one.
        self._process = self._process or subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("resuming.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(attempt.to_json() + "\n")
        self._process.stdin.flush()
        self._last = Child(attempt, self._answer(), lambda: os.waitstatus_to_exitcode(self._answer()))
        return self._last

    def close(self) -> None:
        """End the process."""
        self._clear_away()
        if self._process is not None:
            self._process.communicate(timeout=PATIENCE)

    def _clear_away(self) -> None:
        if self._last is not None:
            self._last.clear_away()

    def _answer(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the process that forks children has died"
        return int(answer)


@dataclass(frozen=True)
class Outage:
    """A time in which nothing gets into a store, and how many uploads return in it before the process is killed.

    With `outlives` the next attempt begins in it too.
    """

    uploads: int
    of_store: Callable[[], AbstractContextManager[None]]
    outlives: bool = False


@dataclass(frozen=True)
class Warehouse:
    """A blob store, as an environment names it, the outages it has, and how heavy the checkpoints are that it gets."""

    environ: dict[str, str]
    outages: list[Outage]
    ballast: int = 0

    @property
    def store(self) -> BlobStore:
        """The store."""
        return open_blob_store(self.environ["OTEL_LOGGER_BLOB_STORE"], self.environ)


def in_a_folder(folder: Path) -> Warehouse:
    """A folder, into which nothing gets while its lock is held."""
    folder.mkdir()

    @contextmanager
    def locked() -> Iterator[None]:
        with (folder / ".lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # What waits is read without the store, and what is in it without its lock.
    outages = [Outage(1, locked), Outage(2, locked, outlives=True), Outage(4, locked)]
    return Warehouse({"OTEL_LOGGER_BLOB_STORE": folder.as_uri()}, outages)


def in_a_bucket(server: S3Server, ballast: int = 0) -> Warehouse:
    """A bucket of a real server, which is killed, or stopped in the midst of whatever it does."""

    @contextmanager
    def killed() -> Iterator[None]:
        server.kill()
        try:
            yield
        finally:
            server.start()

    @contextmanager
    def stopped() -> Iterator[None]:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server.pid, signal.SIGCONT)

    environ = {"OTEL_LOGGER_BLOB_STORE": f"{server.url}/team", **server.environ}
    return Warehouse(environ, [Outage(1, killed), Outage(2, stopped), Outage(4, killed)], ballast)


class Saga:
    """A training in several attempts, in a folder. With `moves` none has what another had on disk."""

    def __init__(self, nursery: Nursery, folder: Path, warehouse: Warehouse, *, moves: bool = False) -> None:
        self._nursery = nursery
        self._folder = folder
        self._moves = moves
        self.warehouse = warehouse
        self.children: list[Child] = []

    def begin(self, **options: Any) -> Child:
        """Start the next attempt, which has no checkpoint of its own."""
        if self.children:
            shutil.rmtree(Path(self.children[-1].attempt.folder) / "checkpoints", ignore_errors=True)
        folder = self._folder / f"attempt-{len(self.children) + 1}"
        folder.mkdir()
        logs = (folder if self._moves else self._folder) / "logs"
        environ = self.warehouse.environ | {"OTEL_LOGGER_DIR": str(logs)}
        attempt = Attempt(str(folder), environ, ballast=self.warehouse.ballast, **options)
        os.mkfifo(attempt.word)
        self.children.append(self._nursery.begin(attempt))
        return self.children[-1]

    @property
    def logs(self) -> list[Path]:
        """The folders of runs."""
        return sorted({Path(child.attempt.environ["OTEL_LOGGER_DIR"]) for child in self.children})

    @property
    def uploads(self) -> list[tuple[int, str]]:
        """Batch and name of each upload that has returned, of all attempts."""
        return list(chain.from_iterable(child.uploads for child in self.children))

    @property
    def newest(self) -> int:
        """The newest checkpoint that is known to be accepted: its upload and that of the file that names it returned.

        Or it was loaded before.
        """
        named = [batch for batch, name in self.uploads if name == SYMLINK]
        return max([0, *named, *(child.loaded or 0 for child in self.children)])

    @property
    def waiting(self) -> dict[str, Consignment]:
        """What is on any disk to be stored, by the identity of its upload."""
        folders = chain.from_iterable(logs.glob(f"*/*/{STAGED}") for logs in self.logs)
        return {consignment.uid: consignment for folder in folders for _, consignment in consignments_in(folder)}

    def not_stored(self) -> set[tuple[int | None, str]]:
        """Step and name of what is on any disk to be stored, and has not been."""
        store = self.warehouse.store
        stored = {uid: store.meta(consignment.name) for uid, consignment in self.waiting.items()}
        return {
            (consignment.step, consignment.name)
            for uid, consignment in self.waiting.items()
            if (known := stored.get(uid)) is None or known.upload != uid
        }

    def named(self) -> int:
        """The batch of the checkpoint that the store names as the newest, which is there."""
        target = self._folder / "named"
        store = self.warehouse.store
        if store.meta(SYMLINK) is None:
            return 0
        store.copy_to(SYMLINK, target)
        name = target.read_text("utf-8")
        assert store.meta(name) is not None, f"{name} is named, and is not there"
        return int(name.rpartition("-ba")[2].partition("-")[0])

    def without_run(self) -> set[str]:
        """The folders of loggers that were of no run when they ended."""
        return {path.name for logs in self.logs for path in (logs / STARTING).glob("*")}

    def check_end(self, uninterrupted: Child) -> None:
        """Assert that the last attempt, which has ended, came to what an uninterrupted training comes to, bit by bit.

        And that all files are stored that any attempt has uploaded, but for those that were on a lost disk.
        """
        self._adopt_after_torn_adoption()
        last = self.children[-1]
        assert uninterrupted.noted("weights") == last.noted("weights")
        assert [[]] == last.noted("complete"), last.notes[-1]
        expected = uninterrupted.losses
        for child in self.children:
            assert child.losses.items() <= expected.items()
        assert BATCHES_IN_ALL == self.named()
        for name in {name for _, name in self.uploads}:
            assert self._moves or self.warehouse.store.copy_to(name, self._folder / "read back").name == name
        assert self._moves or {} == self.waiting
        self._check_records()

    def _adopt_after_torn_adoption(self) -> None:
        """Let a minute pass where an adopter was killed as it began: until then it may be alive, for all one knows."""
        for logs in self.logs:
            torn = [lock for lock in logs.glob("*/*/adopter-*.lock") if lock.stat().st_size == 0]
            for lock in torn:
                os.utime(lock, times=(0, 0))
            if torn:
                environ = os.environ | self.warehouse.environ | {"OTEL_LOGGER_DIR": str(logs)}
                subprocess.run([sys.executable, "-m", "otel_logger", "sync"], env=environ, check=True, timeout=PATIENCE)

    def _check_records(self) -> None:
        runs = [folder for logs in self.logs for folder, _ in runs_below(logs) if folder.name != STARTING]
        read = [read_run(folder) for folder in runs]
        assert 1 == len({run.run_id for run in read}), "all attempts are at one run"
        events = [event for run in read for event in run.events.where(name=names.EVENT_FILE)]
        assert {1} == set(Counter(event["attributes"][names.LOG_RECORD_UID] for event in events).values())
        outcomes = Counter(event["attributes"][names.BLOB_OUTCOME] for event in events)
        assert set(outcomes) <= {names.OUTCOME_STORED, names.OUTCOME_SUPERSEDED}, outcomes
        told = Counter((event["step"], event["attributes"][names.NAME]) for event in events)
        accepted = Counter(self.uploads)
        lost = Counter((each.step, each.name) for each in self.waiting.values())
        assert Counter() == accepted - told - lost
        # A call that had not returned when its process was killed may have been carried out all the same.
        assert len(self.children) > (told - accepted).total()
