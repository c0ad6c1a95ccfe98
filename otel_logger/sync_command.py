"""The command `otel-logger sync`: its progress, its table and its JSON."""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from otel_logger.announce import shown
from otel_logger.launch import Launch, read_launch
from otel_logger.syncing import Errand, Synced, writers_below
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.signals import Signal

__all__ = ["run_sync"]


def run_sync(environ: Mapping[str, str], path: Path | None, *, timeout: float, as_json: bool) -> bool:
    """Send what waits below `path` and print what became of it; return whether nothing stays.

    ConfigurationError when there is no endpoint to send to, FileNotFoundError when there is no run.
    """
    launch = read_launch(environ, None)
    endpoints = {launch.routes.of(signal).endpoint for signal in Signal} - {None}
    if not endpoints:
        msg = "OTEL_EXPORTER_OTLP_ENDPOINT is not set: set it to where the data is to go, such as http://localhost:4318"
        raise ConfigurationError(msg)
    writers = writers_below(path if path is not None else launch.directory)
    # On standard error, so that what is printed can be piped.
    with _progress() as progress:
        errand = Errand(
            launch,
            SystemClock(),
            wait=time.sleep,
            timeout=timeout,
            log=logging.getLogger("otel_logger.sync"),
            advance=lambda count: progress.advance(task, count),
        )
        task = progress.add_task("sending", total=sum(errand.waiting(folder) for folder, _ in writers))
        results = [errand.run(folder, writer) for folder, writer in writers]
    if as_json:
        for result in results:
            print(json.dumps(_plain(result)))  # noqa: T201
    else:
        _print(results, launch)
    return all(result.reason is None for result in results)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _plain(result: Synced) -> dict[str, Any]:
    return {
        "folder": str(result.folder),
        "run_id": result.run_id,
        "attempt": result.attempt,
        "rank": result.rank,
        "sent": dict(result.sent),
        "left_bytes": result.left,
        "reason": result.reason,
    }


def _print(results: list[Synced], launch: Launch) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "attempt", "rank", "sent", "left"):
        table.add_column(heading, justify="left" if heading in ("run", "sent") else "right", overflow="fold")
    for result in results:
        sent = ", ".join(f"{count} {signal}" for signal, count in result.sent.items()) or "nothing"
        left = f"{result.left} bytes" if result.reason is not None else ""
        table.add_row(result.run_id or "not known", str(result.attempt), str(result.rank), sent, left)
    console.print(table)
    for result in results:
        if result.reason is not None:
            console.print(f"[red]{shown(result.folder)}[/red]: {result.reason}", markup=True, soft_wrap=True)
    where = sorted({e.describe() for s in Signal if (e := launch.routes.of(s).endpoint) is not None})
    console.print(f"to {', '.join(where)}", markup=False)
