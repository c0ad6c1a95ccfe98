"""A lane, the way of one signal to its endpoint: what is sent next, and what an answer means for it.

Decisions only: the network is behind `Transport`, waiting is the sender's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from otel_logger_exporters.answers import Answer, Verdict
from otel_logger_exporters.backoff import CONFIGURATION_INTERVAL, Backoff
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.journal_reader import Batch, JournalReader, Position
from otel_logger_exporters.ledger import Ledger
from otel_logger_exporters.rejected import RejectedFolder
from otel_logger_exporters.schedules import Schedule
from otel_logger_exporters.transports import Transport

__all__ = ["Encoded", "Lane", "Progress"]

MAX_RECORDS = 8192
"""Records of a batch at most; for rows of one value this is about 1 MiB of OTLP."""

LONGEST_RETRY_AFTER = 600.0
"""Seconds at most that a server's Retry-After is obeyed: a wrong header must not silence a run for days."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch as requests, with how many of its values were coalesced in them."""

    bodies: tuple[bytes, ...]
    coalesced: int = 0


class Progress(Enum):
    """What a step of a lane did."""

    EMPTY = "empty"
    DELIVERED = "delivered"
    HELD = "held"


class Lane:
    """Sends one journal, first in first out; acknowledges to it what the endpoint took.

    `encode` returns None while the resource of the batch is not known yet. An answer of class retry is tried again
    for ever, one of class configuration once a minute, and a refused batch is halved until what is refused stands
    alone, which then goes to `rejected`. Of `schedule`, `interval` is for the sender to keep.
    """

    def __init__(
        self,
        reader: JournalReader,
        encode: Callable[[Batch], Encoded | None],
        connect: Callable[[], Transport],
        *,
        clock: Clock,
        ledger: Ledger,
        rejected: RejectedFolder,
        timeout: float,
        schedule: Schedule | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self.signal = reader.signal
        self.reader = reader
        schedule = schedule or Schedule()
        self.interval = schedule.interval
        self.has_caught_up = False
        """Whether the last step has sent the last of what there was."""
        self.retry_at = 0.0
        self._encode = encode
        self._connect = connect
        self._transport: Transport | None = None
        self._clock = clock
        self._ledger = ledger
        self._rejected = rejected
        self._timeout = timeout
        self._backoff = Backoff(jitter)
        self._most = min(MAX_RECORDS, schedule.batch_size or MAX_RECORDS)
        self._limit = self._most
        self._partly: tuple[Position, int, int] | None = None

    def step(self, timeout: float | None = None) -> Progress:
        """Send the next batch once, within `timeout` seconds, each request within the endpoint's own timeout.

        What the endpoint took of a batch of several requests is not sent again with those that it did not.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        self.has_caught_up = False
        cut = self.reader.cut
        batch = self.reader.next_batch(self._limit)
        self._tell_damage(cut)
        if batch is None:
            return Progress.EMPTY
        encoded = self._encode(batch)
        if encoded is None:
            return Progress.HELD
        if self._transport is None:
            self._transport = self._connect()
        taken = refused = 0
        if self._partly is not None and self._partly[0] == batch.end:
            _, taken, refused = self._partly
        for body in encoded.bodies[taken:]:
            remaining = self._timeout if deadline is None else min(deadline - self._clock.monotonic(), self._timeout)
            if remaining <= 0:
                return Progress.HELD
            answer = self._transport.send(body, remaining)
            if answer.verdict is not Verdict.ACCEPTED:
                return self._not_accepted(batch, encoded, taken, answer)
            taken, refused = taken + 1, refused + self._partial(answer)
            self._partly = batch.end, taken, refused
        self._forget(batch, encoded, refused)
        return Progress.DELIVERED

    def send_aside(self, body: bytes, timeout: float) -> None:
        """Send a request that is in no journal, once, unless the lane has to wait; its answer changes nothing."""
        if self._clock.monotonic() >= self.retry_at:
            if self._transport is None:
                self._transport = self._connect()
            self._transport.send(body, min(timeout, self._timeout))

    def finish(self) -> None:
        """Tell what is damaged at the end of a journal that is sent and not written any more."""
        cut = self.reader.cut
        self.reader.finish()
        self._tell_damage(cut)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _tell_damage(self, before: int) -> None:
        if (cut := self.reader.cut) > before:
            self._ledger.warn(
                f"damage {self.signal.value}",
                f"{cut} bytes of recorded {self.signal.value} are damaged on disk and are not sent.",
            )

    def _forget(self, batch: Batch, encoded: Encoded, refused: int) -> None:
        self._ledger.deliver(self.signal, batch.items, refused)
        self._ledger.coalesce(encoded.coalesced)
        self._backoff.reset()
        self.retry_at = 0.0
        self._limit = min(self._most, self._limit * 2)
        self._partly = None
        self.has_caught_up = batch.is_last
        # Last: a full disk may refuse the mark, and the batch is delivered all the same.
        self.reader.acknowledge(batch)

    def _partial(self, answer: Answer) -> int:
        if answer.rejected:
            self._ledger.warn(
                f"partial {self.signal.value}",
                f"The endpoint took a request but refused {answer.rejected} of its {self.signal.value}: "
                f"{answer.message or 'it gave no reason'}. OTLP forbids to send them again.",
            )
        return answer.rejected

    def _not_accepted(self, batch: Batch, encoded: Encoded, taken: int, answer: Answer) -> Progress:
        said = f"{answer.code}: {answer.message}" if answer.message else answer.code
        if answer.verdict is Verdict.REFUSED:
            if len(batch.contents) > 1:
                self._limit = len(batch.contents) // 2
                return Progress.DELIVERED
            path = self._rejected.put(self.signal, encoded.bodies[taken:], said, self._clock.time_ns())
            kind, fate = "refused", f"kept in {path}"
            if path is None:
                kind, fate = "rejected", "lost from here on: what is kept has a tenth of OTEL_LOGGER_JOURNAL_MAX_BYTES"
            self._ledger.warn(
                f"{kind} {self.signal.value}",
                f"The endpoint refuses {self.signal.value} ({said}). What it refuses is {fate}.",
            )
            self._forget(batch, encoded, batch.items)
            return Progress.DELIVERED
        if answer.verdict is Verdict.CONFIGURATION:
            self.retry_at = self._clock.monotonic() + CONFIGURATION_INTERVAL
            self._ledger.warn(
                f"configuration {self.signal.value}",
                f"The endpoint does not take {self.signal.value} as configured ({said}). Nothing is lost: "
                "everything stays on disk, and one attempt a minute is made until this is mended.",
            )
            return Progress.HELD
        delay = self._backoff.next()
        if answer.retry_after is not None:
            delay = max(delay, min(answer.retry_after, LONGEST_RETRY_AFTER))
        self.retry_at = self._clock.monotonic() + delay
        self._ledger.warn(
            f"retry {self.signal.value}",
            f"Sending {self.signal.value} fails for now ({said}). Nothing is lost: it is on disk and is tried again.",
        )
        return Progress.HELD
