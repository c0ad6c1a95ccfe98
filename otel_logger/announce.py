"""The two lines a user sees: where the data goes, and what became of it."""

import contextlib
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from otel_logger_exporters.ledger import Stats
from otel_logger_exporters.routes import Destination, Routes
from otel_logger_exporters.signals import Signal

__all__ = ["announce", "destinations", "outcome", "shown"]


def announce(log: logging.Logger, line: str) -> None:
    """Write one line for the user: as INFO where the program shows it, else to standard error."""
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        # A handler or filter of the program's may raise.
        with contextlib.suppress(Exception):
            log.info("%s", line)
    elif sys.stderr is not None:
        try:
            sys.stderr.write(f"otel_logger: {line}\n")
        except (OSError, ValueError):
            # A closed or broken standard error is no reason to disturb a training run.
            pass


def shown(folder: Path) -> str:
    """Return a folder as a user would write it: relative where it is below the working directory."""
    try:
        return str(folder.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(folder)


def destinations(routes: Routes, folder: str, scraped: str | None = None) -> str:
    """Return where each signal goes, signals of one destination together, and where metrics are scraped besides.

    Never a secret.
    """
    words: dict[str, list[str]] = {}
    for signal in Signal:
        words.setdefault(_destination(routes, signal, folder), []).append(signal.value)
    places = [f"{', '.join(signals)} {where}" for where, signals in words.items()]
    return "; ".join([*places, f"metrics scraped at {scraped}"] if scraped is not None else places)


def _destination(routes: Routes, signal: Signal, folder: str) -> str:
    route = routes.of(signal)
    if route.destination is Destination.NONE:
        return f"not recorded (OTEL_{signal.name}_EXPORTER=none)"
    if route.destination is Destination.KEEP:
        is_scraped = signal is Signal.METRICS and routes.scrape is not None
        why = "OTEL_METRICS_EXPORTER has no otlp" if is_scraped else "no OTEL_EXPORTER_OTLP_ENDPOINT is set"
        return f"kept in {folder} ({why})"
    if route.endpoint is None:
        return "printed"
    return f"to {route.endpoint.describe()}{' and printed' if route.is_printed else ''}"


def outcome(stats: Stats, folder: str) -> str:
    """Return what became of a run's data, in one sentence."""
    parts = []
    if any(stats.delivered.values()):
        parts.append(f"delivered {_counts(stats.delivered)}")
    if any(stats.kept.values()):
        parts.append(f"{_counts(stats.kept)} kept in {folder}")
    if any(stats.waiting.values()):
        parts.append(
            f"{_counts(stats.waiting)} not delivered, they wait; send them with `otel-logger sync {quote(folder)}`"
        )
    if any(stats.refused.values()):
        parts.append(f"{_counts(stats.refused)} refused by the endpoint")
    if stats.dropped:
        parts.append("lost " + ", ".join(f"{count} ({reason})" for reason, count in sorted(stats.dropped.items())))
    if stats.blobs.stored:
        parts.append(f"{_blobs(stats.blobs.stored)} stored")
    if stats.blobs.failed:
        parts.append(f"{_blobs(stats.blobs.failed)} not stored")
    if stats.blobs.waiting:
        wait = "waits" if stats.blobs.waiting == 1 else "wait"
        parts.append(
            f"{_blobs(stats.blobs.waiting)} {wait} for the blob store; send with `otel-logger sync {quote(folder)}`"
        )
    return "; ".join(parts) or "nothing was recorded"


_WORDS: Mapping[str, str] = {"metrics": "value", "logs": "log record", "traces": "span"}


def _blobs(count: int) -> str:
    return f"{count} blob{'' if count == 1 else 's'}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count} {_WORDS[signal]}{'' if count == 1 else 's'}" for signal, count in counts.items() if count
    )
