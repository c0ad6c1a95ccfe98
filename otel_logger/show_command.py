"""The command `otel-logger show`: what is in one run's folder, as tables or as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_logger import readable
from otel_logger.announce import shown
from otel_logger.contents import Contents, contents_of
from otel_logger.overview import RunOverview, find_run
from otel_logger.settings import Settings
from otel_logger_exporters.clock import Clock
from otel_logger_exporters.signals import Signal

__all__ = ["show_run"]

_FOLDED = {"metric", "hyperparameter", "value", "event", "last", "span", "blob", "segment", "reason", "folder"}
"""The columns of text that may take several lines; the others are short."""

_TEXTS = _FOLDED | {"state", "started", "kind", "signal"}
"""The columns that stand to the left; all others are numbers, to the right."""


def show_run(environ: Mapping[str, str], name: str, *, clock: Clock, as_json: bool) -> None:
    """Print what is in the run that `name` is the path of, or in OTEL_LOGGER_DIR the id or the beginning of it.

    FileNotFoundError when there is none, AmbiguousRunError when there are several.
    """
    folder = find_run(name, Settings.from_environ(environ).directory)
    contents = contents_of(folder, clock.time_ns())
    if as_json:
        rest = {f.name: getattr(contents, f.name) for f in fields(contents) if f.name != "run"}
        print(readable.as_json({f.name: getattr(contents.run, f.name) for f in fields(contents.run)} | rest))  # noqa: T201
        return
    console = Console(highlight=False)
    _print_head(console, contents.run)
    _print_recorded(console, contents)
    _print_trouble(console, contents)


def _print_head(console: Console, run: RunOverview) -> None:
    title = run.run_id if run.run_id is not None else f"{run.folder.name} (its run is not known)"
    state = Text(readable.text(run.state), style=readable.STATE_STYLES.get(run.state, ""))
    console.print(Text.assemble((readable.text(title), "bold cyan"), "  ", state), soft_wrap=True)
    lines = [("folder", shown(run.folder.absolute()))]
    if run.run_name is not None and not (run.run_id or "").startswith(run.run_name):
        lines.insert(0, ("name", run.run_name))
    lines.append(("started", f"{readable.moment(run.started_ns)}, took {readable.duration(run.duration_ns)}"))
    unsent = f", {readable.size(run.unsent_bytes)} of it unsent" if run.unsent_bytes else ""
    lines.append(("size", f"{readable.size(run.size_bytes)}{unsent}"))
    for label, value in lines:
        console.print(Text.assemble((f"  {label:<9}", "dim"), readable.text(value)), soft_wrap=True)
    _print_table(
        console,
        "Writers",
        ("attempt", "rank", "state", "started", "took", "size", "unsent", "folder"),
        (
            (
                str(writer.attempt),
                str(writer.rank),
                Text(readable.text(writer.state), style=readable.STATE_STYLES.get(writer.state, "")),
                readable.moment(writer.started_ns),
                readable.duration(writer.duration_ns),
                readable.size(writer.size_bytes),
                readable.size(writer.unsent_bytes) if writer.unsent_bytes else "",
                writer.folder.name,
            )
            for writer in run.writers
        ),
    )


def _print_recorded(console: Console, contents: Contents) -> None:
    kept = set.intersection(*(set(writer.kept) for writer in contents.run.writers))
    sent = ", ".join(signal.value for signal in Signal if signal.value not in kept)
    if sent:
        note = f"Sent to an endpoint: {sent}. What it has taken is deleted from the folder and not shown."
        console.print(Text(f"\n{note}", style="dim"), soft_wrap=True)
    _print_table(
        console,
        "Metrics",
        ("metric", "values", "steps", "first", "last value"),
        (
            (
                m.key,
                f"{m.count:,}",
                _range(m.first_step, m.last_step),
                *map(readable.number, (m.first_value, m.last_value)),
            )
            for m in contents.metrics
        ),
    )
    _print_table(
        console,
        "Hyperparameters",
        ("hyperparameter", "value"),
        ((h.key, " -> ".join(str(value) for value in (*h.earlier, h.value))) for h in contents.hyperparameters),
    )
    _print_table(
        console,
        "Events",
        ("event", "count", "step", "last"),
        ((e.name, f"{e.count:,}", _step(e.last_step), e.last_text) for e in contents.events),
    )
    _print_table(
        console,
        "Spans",
        ("span", "count", "total", "longest", "errors"),
        (
            (s.name, f"{s.count:,}", *map(readable.duration, (s.total_ns, s.longest_ns)), str(s.errors or ""))
            for s in contents.spans
        ),
    )
    _print_table(
        console,
        "Images, tables, files",
        ("blob", "kind", "count", "size", "last step", "not stored"),
        (
            (b.name, b.kind, f"{b.count:,}", readable.size(b.size_bytes), _step(b.last_step), str(b.not_stored or ""))
            for b in contents.blobs
        ),
    )


def _print_trouble(console: Console, contents: Contents) -> None:
    _print_table(
        console,
        "Damage",
        ("segment", "unreadable"),
        ((shown(d.segment.absolute()), readable.size(d.unreadable_bytes)) for d in contents.damage),
    )
    _print_table(
        console,
        "Refused by the endpoint",
        ("signal", "requests", "size", "reason"),
        ((r.signal, f"{r.requests:,}", readable.size(r.size_bytes), r.reason) for r in contents.rejected),
    )
    for folder in dict.fromkeys(r.folder for r in contents.rejected):
        console.print(Text(f"  kept in {shown(folder.absolute())}", style="dim"), soft_wrap=True)


def _print_table(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(
            name, justify="left" if name in _TEXTS else "right", no_wrap=name not in _FOLDED, overflow="fold"
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(readable.text(cell)) for cell in row))
    if table.row_count:
        console.print(Text(f"\n{title}", style="bold"))
        console.print(table)


def _range(first: int | None, last: int | None) -> str:
    return _step(first) if first == last else f"{_step(first) or '-'}..{_step(last) or '-'}"


def _step(step: int | None) -> str:
    return "" if step is None else str(step)
