"""Adoption: sending what a dead writer left in its journals."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_logger_exporters.clock import Clock
from otel_logger_exporters.journal_reader import end_of_segment
from otel_logger_exporters.lane import Lane, Progress
from otel_logger_exporters.payloads import ResourceRecord, unpack_hyperparameters
from otel_logger_exporters.records import Kind
from otel_logger_exporters.segments import is_begun, newest_segments, segments_of
from otel_logger_exporters.signals import Signal

__all__ = ["Legacy", "deliver", "read_legacy", "tidy"]


@dataclass(frozen=True, slots=True)
class Legacy:
    """What a journal says of its writer: the last resource, bound where one was, and the last hyperparameters."""

    resource: ResourceRecord | None
    hyperparameters: Mapping[str, Any]


def tidy(folder: Path) -> None:
    """Give back what the journals of a dead writer hold of the disk in vain: segments prepared for later, and zeros."""
    for _, path in (found for signal in Signal for found in segments_of(folder, signal)):
        if not is_begun(path):
            path.unlink(missing_ok=True)
            continue
        status = path.stat()
        if (end := end_of_segment(path)) < status.st_size:
            os.truncate(path, end)
            # Which tells when the writer died.
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def read_legacy(folder: Path, signal: Signal) -> Legacy:
    """Return what the journal of `signal` in `folder` says; each segment repeats it, so the newest that can be read."""
    for segment in newest_segments(folder, signal):
        resource: ResourceRecord | None = None
        hyperparameters: Mapping[str, Any] = {}
        for record in segment.records:
            # What is whole and yet makes no sense is passed over, as by every reader.
            with suppress(ValueError):
                if record.kind == Kind.RESOURCE:
                    resource = ResourceRecord.unpack(record.payload)
                elif record.kind == Kind.HYPERPARAMETERS:
                    hyperparameters, _ = unpack_hyperparameters(record.payload)
        if resource is not None:
            return Legacy(resource, hyperparameters)
    return Legacy(None, {})


def deliver(
    lane: Lane,
    *,
    deadline: float,
    clock: Clock,
    wait: Callable[[float], object],
    advance: Callable[[int], None],
) -> bool:
    """Send everything of a lane; return whether nothing is left. What is damaged is told.

    What fails is tried again, as the lane's back-off says and with `wait`, as long as the next attempt comes before
    `deadline` (of `clock.monotonic`). `advance` is told the bytes of the journal that each step has done with.
    """
    unread = lane.reader.unread
    while True:
        progress = lane.step(max(0.0, deadline - clock.monotonic()))
        if progress is Progress.EMPTY:
            lane.finish()
            advance(unread)
            return True
        left = lane.reader.unread
        advance(unread - left)
        unread = left
        if progress is Progress.HELD:
            pause = lane.retry_at - clock.monotonic()
            if pause <= 0 or clock.monotonic() + pause >= deadline:
                return False
            wait(pause)
