"""The courier: background threads that carry what is staged to a store, and try again for as long as it takes."""

import contextlib
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from otel_logger_exporters.backoff import CONFIGURATION_INTERVAL, Backoff
from otel_logger_exporters.blob_meta import BlobForbiddenError, BlobUnavailableError
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.errors import quoted
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.threads import can_wait_for

__all__ = ["Courier", "Load"]

WORKERS = 4
"""Threads at most: a checkpoint that takes minutes must not keep images waiting. Each transfer has connections of its
own besides."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What is to be carried; of those with one `key` one is carried at a time, in their order.

    One that `follows` is carried when all that were put before it are.
    """

    key: str
    carry: Callable[[], None]
    follows: bool = False


class Courier:
    """Carries loads, several at a time, once `is_open` says that it may.

    A BlobUnavailableError stops all of them for a while that grows, a BlobForbiddenError for a minute; then the same
    load is tried again, for ever, but after those that wait. Any other error is the load's own, which should have dealt
    with it: that load is not carried any more, and what it was to carry stays where it is.

    Threads are daemons and start with the first loads. Where none can be started, as at the exit of the interpreter
    since Python 3.12, `drain` carries itself.
    """

    def __init__(
        self,
        is_open: Callable[[], bool],
        clock: Clock,
        ledger: Ledger,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._is_open = is_open
        self._clock = clock
        self._ledger = ledger
        self._backoff = Backoff(jitter)
        # Reentrant: a collection of garbage within may close the logger.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: dict[str, deque[tuple[int, Load]]] = {}
        self._turns: deque[str] = deque()
        """Keys of which something waits, perhaps some that are busy."""
        self._numbers = itertools.count()
        self._left: dict[int, None] = {}
        """The numbers of all that is not carried, in the order in which it was put."""
        self._busy: dict[str, threading.Thread] = {}
        self._carrying = 0
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._retry_at = 0.0
        self._stopped = False

    def put(self, load: Load) -> None:
        """Take a load; after `stop` it stays where it is."""
        with self._changed:
            if self._stopped:
                return
            number = next(self._numbers)
            self._left[number] = None
            if load.key not in self._waiting and load.key not in self._busy:
                self._turns.append(load.key)
            self._waiting.setdefault(load.key, deque()).append((number, load))
            if not self._idle and len(self._threads) < WORKERS:
                number = len(self._threads) + 1
                thread = threading.Thread(target=self._run, name=f"otel_logger uploads {number}", daemon=True)
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._threads.append(thread)
            self._changed.notify_all()

    def wake(self) -> None:
        """Look again whether work may begin."""
        with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """Keep loads of a key from being carried meanwhile, after the one that is."""
        with self._changed:
            while key in self._busy:
                self._changed.wait()
            self._busy[key] = threading.current_thread()
        try:
            yield
        finally:
            self._release(key)

    def drain(self, timeout: float) -> int:
        """Carry what waits, at once even if a pause was due, within `timeout` seconds; return how many are left."""
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            self._retry_at = 0.0
            self._changed.notify_all()
        if not self._threads:
            while self._clock.monotonic() < deadline and self._carry_next():
                pass
        with self._changed:
            if threading.current_thread() in self._threads:
                # What it carries closes the logger, or a collection of garbage that it sets off.
                return len(self._left)
            while self._left and self._is_worth_waiting(deadline):
                self._changed.wait(deadline - self._clock.monotonic())
            return len(self._left)

    def stop(self) -> int:
        """Begin with no load any more; return how many are not carried."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            return len(self._left)

    def _is_worth_waiting(self, deadline: float) -> bool:
        if self._clock.monotonic() >= deadline or sys.is_finalizing() or not self._is_open():
            return False
        if self._carrying:
            return any(can_wait_for(thread) for thread in self._busy.values())
        return not self._stopped and self._retry_at < deadline and any(map(can_wait_for, self._threads))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and self._next() is None:
                    self._idle += 1
                    try:
                        self._changed.wait(self._pause())
                    finally:
                        self._idle -= 1
                if self._stopped:
                    return
            self._carry_next()

    def _pause(self) -> float | None:
        pause = self._retry_at - self._clock.monotonic()
        # Where no pause is due, what waits is of a key that is carried: the end of that is told.
        return pause if self._left and pause > 0 else None

    def _next(self) -> Load | None:
        if self._stopped or not self._is_open() or self._clock.monotonic() < self._retry_at:
            return None
        for _ in range(len(self._turns)):
            key = self._turns[0]
            if key in self._busy or key not in self._waiting:
                # It gets its turn again when it is not busy any more.
                self._turns.popleft()
                continue
            number, load = self._waiting[key][0]
            if not load.follows or number == next(iter(self._left)):
                return load
            self._turns.rotate(-1)
        return None

    def _carry_next(self) -> bool:
        with self._changed:
            load = self._next()
            if load is None:
                return False
            self._turns.popleft()
            self._busy[load.key] = threading.current_thread()
            self._carrying += 1
        try:
            load.carry()
        except (BlobUnavailableError, BlobForbiddenError) as error:
            self._hold(error)
        except BaseException as error:
            # BaseException: a panic of Rust code is one, and would end the thread with all that waits.
            self._ledger.warn(
                "blob", f"An image, table or file is not stored by this process, it stays on disk: {quoted(error)}"
            )
            self._done(load)
        else:
            self._backoff_is_over()
            self._done(load)
        finally:
            self._release(load.key, carried=1)
        return True

    def _backoff_is_over(self) -> None:
        with self._changed:
            self._backoff.reset()
            self._retry_at = 0.0

    def _done(self, load: Load) -> None:
        with self._changed:
            number, _ = self._waiting[load.key].popleft()
            if not self._waiting[load.key]:
                del self._waiting[load.key]
            del self._left[number]

    def _hold(self, error: OSError) -> None:
        said = error.strerror or str(error)
        is_forbidden = isinstance(error, BlobForbiddenError)
        with self._changed:
            # Others that fail in the same outage do not make it longer.
            if self._clock.monotonic() >= self._retry_at:
                pause = CONFIGURATION_INTERVAL if is_forbidden else self._backoff.next()
                self._retry_at = self._clock.monotonic() + pause
        self._ledger.blobs.retry()
        if is_forbidden:
            self._ledger.warn(
                "store configuration",
                f"The blob store does not take what it is given: {said}. Nothing is lost: everything stays on disk, "
                "and one attempt a minute is made until this is mended.",
            )
        else:
            self._ledger.warn(
                "store", f"Storing fails for now: {said}. Nothing is lost: it is on disk and is tried again."
            )

    def _release(self, key: str, carried: int = 0) -> None:
        with self._changed:
            self._busy.pop(key, None)
            self._carrying -= carried
            if key in self._waiting:
                self._turns.append(key)
            self._changed.notify_all()
