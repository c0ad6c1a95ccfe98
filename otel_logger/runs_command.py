"""The command `otel-logger runs`: a folder of runs as a table or as JSON."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_logger import readable
from otel_logger.announce import shown
from otel_logger.overview import RUNNING, RunOverview, runs_in
from otel_logger.settings import Settings
from otel_logger_exporters.clock import Clock

__all__ = ["list_runs"]

_COLUMNS = ("run", "state", "attempts", "ranks", "started", "took", "size", "unsent")


def list_runs(environ: Mapping[str, str], path: Path | None, *, clock: Clock, as_json: bool) -> None:
    """Print the runs of `path`, by default of OTEL_LOGGER_DIR, the newest last.

    FileNotFoundError when there is none.
    """
    directory = path if path is not None else Settings.from_environ(environ).directory
    runs = runs_in(directory, clock.time_ns())
    if not as_json:
        _print(Console(highlight=False), runs, directory, path)
        return
    for run in runs:
        # One run a line; its writers are told by `show`.
        print(readable.as_json({f.name: getattr(run, f.name) for f in fields(run) if f.name != "writers"}))  # noqa: T201


def _print(console: Console, runs: list[RunOverview], directory: Path, path: Path | None) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in _COLUMNS:
        is_text = name in ("run", "state", "started")
        # Short in a column of small numbers.
        heading = "att." if name == "attempts" else name
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=name != "run", overflow="fold")
    for run in runs:
        table.add_row(
            _name(run),
            Text(readable.text(run.state), style=readable.STATE_STYLES.get(run.state, "")),
            str(run.attempts),
            str(run.ranks),
            readable.moment(run.started_ns),
            readable.duration(run.duration_ns),
            readable.size(run.size_bytes),
            readable.size(run.unsent_bytes) if run.unsent_bytes else "",
        )
    console.print(table)
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'} in {shown(directory.absolute())}"
    # By its id a run is found in OTEL_LOGGER_DIR alone.
    hint = "; `otel-logger show RUN` tells what is in one" if path is None else ""
    console.print(Text(f"\n{count}{hint}", style="dim"), soft_wrap=True)
    if any(run.unsent_bytes and run.state != RUNNING for run in runs):
        command = "otel-logger sync" if path is None else f"otel-logger sync {quote(str(path))}"
        console.print(Text(f"`{command}` sends what is unsent of runs that have ended", style="dim"), soft_wrap=True)


def _name(run: RunOverview) -> Text:
    if run.run_id is None:
        return Text.assemble((run.folder.name, "cyan"), ("\nits run is not known", "dim"))
    name = run.run_name or ""
    cell = Text(readable.text(run.run_id), style="cyan")
    # The id mostly begins with the name.
    return cell if run.run_id.startswith(name) else cell.append(f"\n{readable.text(name)}", style="dim")
