"""The ledger: what became of everything that was recorded, as numbers; and warnings, one per kind and minute."""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_logger_exporters.blob_counts import BlobCounts, BlobStats
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.signals import Signal
from otel_logger_exporters.watermarks import Watermarks

__all__ = ["Ledger", "Stats", "warn"]

_WARNING_INTERVAL = 60.0


def warn(log: logging.Logger, message: str) -> None:
    """Write a warning, which never raises; where the program has no handlers, with the name of who speaks."""
    # Without handlers Python prints the bare message.
    name = "" if log.hasHandlers() else f"{log.name}: "
    # A handler or filter of the program's may raise, and a warning must not end what it warns of.
    with contextlib.suppress(Exception):
        log.warning("%s%s", name, message)


@dataclass(frozen=True, slots=True)
class Stats:
    """What became of a writer's data: counts of metric values, spans and log records, by signal (`"metrics"`, ...).

    `recorded` is what calls accepted; of it `delivered` was acknowledged by the endpoint, `refused` was not taken by
    it (kept in the folder `rejected/` where a whole record was refused), `waiting` is on disk to be sent. A signal
    that is kept locally has all of it in `kept`. `dropped` counts by reason what was lost; `adjusted` what was recorded
    otherwise than given (`overflow`, `step`), by way of memory because no file was ready (`memory`), or by setting not
    at all (`excluded`); `coalesced` values that shared a series and millisecond with a later one when sent; `blobs`
    says what became of images, tables and files.

    `bytes_on_disk` are the bytes of journals and refused requests in the writer's folder, `oldest` is the age in
    seconds of what has waited longest, None when nothing waits: both as of about a second ago. `last_error` is the last
    warning.
    """

    recorded: Mapping[str, int]
    delivered: Mapping[str, int]
    refused: Mapping[str, int]
    waiting: Mapping[str, int]
    kept: Mapping[str, int]
    dropped: Mapping[str, int] = field(default_factory=dict)
    adjusted: Mapping[str, int] = field(default_factory=dict)
    coalesced: int = 0
    blobs: BlobStats = field(default_factory=BlobStats)
    bytes_on_disk: int = 0
    oldest: float | None = None
    last_error: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything recorded is delivered or kept, and nothing was dropped."""
        is_left = any(self.refused.values()) or any(self.waiting.values()) or self.blobs.waiting
        return not (is_left or any(self.dropped.values()) or self.blobs.failed)


class Ledger:
    """Counts and warns for one writer; `blobs` counts images, tables and files. Thread-safe; never raises."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._lock = threading.RLock()
        self._warned: dict[str, float] = {}
        self._recorded: Counter[Signal] = Counter()
        self._delivered: Counter[Signal] = Counter()
        self._refused: Counter[Signal] = Counter()
        self._lost: Counter[Signal] = Counter()
        self._dropped: Counter[str] = Counter()
        self._adjusted: Counter[str] = Counter()
        self._coalesced = 0
        self.blobs = BlobCounts(clock.monotonic)
        self._bytes_on_disk = 0
        self._watermarks = {signal: Watermarks() for signal in Signal}
        self._last_error: str | None = None

    def record(self, signal: Signal, items: int) -> None:
        """Count items that a call put into the journal."""
        with self._lock:
            self._recorded[signal] += items

    def deliver(self, signal: Signal, items: int, refused: int = 0) -> None:
        """Count items that the endpoint acknowledged; `refused` of them it did not take."""
        with self._lock:
            self._delivered[signal] += max(0, items - refused)
            self._refused[signal] += min(items, refused)

    def coalesce(self, values: int) -> None:
        """Count values that gave way to a later one of the same series and millisecond."""
        with self._lock:
            self._coalesced += values

    def drop(self, reason: str, items: int, explanation: str) -> None:
        """Count what was lost and say why, once per reason and minute."""
        with self._lock:
            if items:
                self._dropped[reason] += items
            total = self._dropped[reason]
        self.warn(reason, f"{explanation} ({total} so far)")

    def lose(self, signal: Signal, items: int, reason: str, explanation: str) -> None:
        """Count what was recorded and is lost nevertheless, and say why, once per reason and minute."""
        with self._lock:
            self._lost[signal] += items
        self.drop(reason, items, explanation)

    def outstanding(self, signal: Signal) -> int:
        """Return how many of the items recorded are not delivered, refused or lost."""
        with self._lock:
            return self._recorded[signal] - self._delivered[signal] - self._refused[signal] - self._lost[signal]

    def weigh(self, bytes_on_disk: int) -> None:
        """Take note of how large the journals are; to be called about once a second, for the age of the oldest too."""
        now = self._clock.monotonic()
        with self._lock:
            self._bytes_on_disk = bytes_on_disk
            for signal in Signal:
                recorded = self._recorded[signal]
                self._watermarks[signal].note(now, recorded, recorded - self.outstanding(signal))

    def adjust(self, reason: str, items: int, explanation: str | None = None) -> None:
        """Count what was recorded otherwise than given; an `explanation` is told once per reason and minute."""
        with self._lock:
            self._adjusted[reason] += items
        if explanation is not None:
            self.warn(reason, explanation)

    def warn(self, kind: str, message: str) -> None:
        """Write a warning unless one of this kind was written within the last minute."""
        now = self._clock.monotonic()
        with self._lock:
            self._last_error = message
            if now - self._warned.get(kind, -_WARNING_INTERVAL) < _WARNING_INTERVAL:
                return
            self._warned[kind] = now
        warn(self._log, message)

    def abandon(self) -> None:
        """Take a new lock in the child of a fork, where the parent's may be held for ever."""
        self._lock = threading.RLock()
        self.blobs.abandon()

    def stats(self, sent: frozenset[Signal]) -> Stats:
        """Return the counts; signals in `sent` wait for an endpoint, the others are kept where they are."""
        with self._lock:
            # An exception of a signal handler may end a call between its record and its count.
            rest = {s: max(0, self.outstanding(s)) for s in Signal}
            return Stats(
                recorded={s.value: self._recorded[s] + max(0, -self.outstanding(s)) for s in Signal},
                delivered={s.value: self._delivered[s] for s in Signal},
                refused={s.value: self._refused[s] for s in Signal},
                waiting={s.value: rest[s] if s in sent else 0 for s in Signal},
                kept={s.value: 0 if s in sent else rest[s] for s in Signal},
                dropped=dict(self._dropped),
                adjusted=dict(self._adjusted),
                coalesced=self._coalesced,
                blobs=self.blobs.stats(),
                bytes_on_disk=self._bytes_on_disk,
                oldest=self._oldest(sent),
                last_error=self._last_error,
            )

    def _oldest(self, sent: frozenset[Signal]) -> float | None:
        now = self._clock.monotonic()
        ages = []
        for signal in sent:
            recorded = self._recorded[signal]
            ages.append(self._watermarks[signal].age(now, recorded, recorded - self.outstanding(signal)))
        return max((age for age in ages if age is not None), default=None)
