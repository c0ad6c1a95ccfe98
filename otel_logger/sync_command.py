"""The command `otel-logger sync`: its progress, its table and its JSON."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from otel_logger import readable
from otel_logger.announce import shown
from otel_logger.launch import Launch, read_launch
from otel_logger.leftovers import bytes_staged
from otel_logger.syncing import Errand, Synced, writers_below
from otel_logger_exporters.blob_url import parse_blob_store
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.errors import ConfigurationError

__all__ = ["run_sync"]


def run_sync(environ: Mapping[str, str], path: Path | None, *, timeout: float, as_json: bool) -> bool:
    """Send what waits below `path` and print what became of it; return whether nothing stays.

    ConfigurationError when there is no endpoint to send to, FileNotFoundError when there is no run.
    """
    launch = read_launch(environ, None)
    store = launch.settings.blob_store
    if store is not None and not parse_blob_store(store).lasts:
        msg = f"OTEL_LOGGER_BLOB_STORE={store!r} would be gone with this command: set it to a store that lasts"
        raise ConfigurationError(msg)
    writers = writers_below(path if path is not None else launch.directory)
    if not launch.routes.endpoints and not any(bytes_staged(folder) for folder, _ in writers):
        msg = "OTEL_EXPORTER_OTLP_ENDPOINT is not set: set it to where the data is to go, such as http://localhost:4318"
        raise ConfigurationError(msg)
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
            print(readable.as_json(result))  # noqa: T201
    else:
        _print(results, launch)
    return all(result.reason is None for result in results)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _print(results: list[Synced], launch: Launch) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "attempt", "rank", "sent", "left"):
        table.add_column(heading, justify="left" if heading in ("run", "sent") else "right", overflow="fold")
    for result in results:
        sent = ", ".join(f"{count} {signal}" for signal, count in result.sent.items()) or "nothing"
        left = f"{result.left_bytes} bytes" if result.reason is not None else ""
        # No markup: an id may hold brackets, and so may a server's words.
        table.add_row(Text(result.run_id or "not known"), str(result.attempt), str(result.rank), sent, left)
    console.print(table)
    for result in results:
        if result.reason is not None:
            console.print(Text.assemble((shown(result.folder), "red"), f": {result.reason}"), soft_wrap=True)
    where = sorted({endpoint.describe() for endpoint in launch.routes.endpoints.values()}) or ["the blob store alone"]
    console.print(f"to {', '.join(where)}", markup=False)
