"""The adopter, a background thread that tells the ends of earlier attempts at a run and sends what they have left."""

import logging
import threading
from contextlib import suppress
from pathlib import Path

from otel_logger.folders import WriterFile, writers_of
from otel_logger.launch import Launch
from otel_logger.leftovers import Exclusive
from otel_logger.syncing import Errand
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.ledger import warn
from otel_logger_exporters.owner import is_owned
from otel_logger_exporters.threads import can_wait_for

__all__ = ["Adopter"]


class _Stopped(Exception):
    """The session ends; what is not sent yet waits for the next."""


class Adopter:
    """Records the end of writers that died in a run's folder, stores what they had for the blob store, and sends their
    journals where there is an endpoint, the oldest first, for as long as the session is open.

    One process of a node does it (local rank 0). The thread is a daemon: what it has not sent stays on disk, marked as
    far as it was acknowledged.
    """

    def __init__(self, launch: Launch, clock: Clock, log: logging.Logger, exclusive: Exclusive) -> None:
        self._launch = launch
        self._log = log
        self._closing = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._errand = Errand(
            launch,
            clock,
            wait=self._wait,
            timeout=float("inf"),
            log=log,
            advance=self._advance,
            exclusive=exclusive,
        )

    def start(self, run_folder: Path, own: Path) -> None:
        """Begin with what is in `run_folder`, apart from the folder `own`."""
        if self._launch.ranks.local_rank != 0 or self._thread is not None:
            return
        thread = threading.Thread(target=self._run, args=(run_folder, own), name="otel_logger adopter", daemon=True)
        # Since Python 3.12 none starts at the exit of the interpreter; what is left waits for the next attempt.
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def finish(self, timeout: float) -> None:
        """Give it `timeout` seconds to get done, unless it waits for an endpoint, and then stop it at its next step."""
        self._closing.set()
        thread = self._thread
        if thread is not None and can_wait_for(thread):
            thread.join(timeout)
        self._stopping.set()

    def _run(self, run_folder: Path, own: Path) -> None:
        try:
            while (pause := self._send(run_folder, own)) is not None:
                self._wait(pause)
        except _Stopped:
            pass
        except Exception as error:
            warn(self._log, f"What earlier attempts have left in {run_folder} is not sent: {error!r}")

    def _send(self, run_folder: Path, own: Path) -> float | None:
        """Send what can be sent now; return in how many seconds to look again, None when nobody may die meanwhile."""
        pauses = []
        found = writers_of(run_folder)
        attempt = next((writer.attempt for folder, writer in found if folder == own), 0)
        others = [(folder, writer) for folder, writer in found if folder != own]
        # Of this attempt there are ranks that live.
        untold = [folder for folder, writer in others if writer.ended_ns is None and writer.attempt < attempt]
        # All of them first: what the oldest has left may wait for its endpoint as long as this process lives.
        for folder, writer in others:
            if folder in untold:
                self._errand.tell(folder, writer)
        for folder, writer in others:
            is_untold = folder in untold
            waits = self._errand.waiting(folder) > 0
            if waits or is_untold or self._errand.is_due(folder, writer):
                result = self._errand.run(folder, writer)
                pause = result.retry_in
                if is_untold and result.reason is not None and pause is None and not is_owned(folder):
                    told = WriterFile.read(folder)
                    if told is None or told.ended_ns is None:
                        warn(self._log, f"How the attempt in {folder} ended is not told, {result.reason}")
                    else:
                        warn(self._log, f"Not all that the attempt in {folder} has left is taken: {result.reason}")
                # A live writer of whom nothing waits is no reason to look again.
                pauses += [pause] if (waits or is_untold) and pause is not None else []
        return min(pauses, default=None)

    def _wait(self, seconds: float) -> None:
        if self._closing.wait(seconds):
            raise _Stopped

    def _advance(self, count: int) -> None:
        if self._stopping.is_set():
            raise _Stopped
