"""The demo's summary: what was recorded, where it is, and how to see it."""

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_logger.conventions import METRIC_KEY, RUN_ID, RUN_NAME, STEP
from otel_logger.demo_witness import Witness
from otel_logger.launch import Launch
from otel_logger_exporters.routes import Destination
from otel_logger_exporters.signals import Signal

__all__ = ["print_curves", "print_grafana", "print_record", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 20

_WORDS = {Signal.METRICS: "metric values", Signal.LOGS: "log records", Signal.TRACES: "spans"}
_READ = {
    Signal.METRICS: 'run.metrics.where(key="loss/train")["value"]',
    Signal.LOGS: 'run.events["name"]',
    Signal.TRACES: 'run.spans["name"]',
}


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """Return a curve as a line of bars: means over equal stretches, from the lowest to the highest of them."""
    width = min(width, len(values))
    bounds = [len(values) * column // width for column in range(width + 1)] if width else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means, default=0), max(means, default=0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def print_curves(console: Console, witness: Witness) -> None:
    """Print each curve: how many values it has, its first and last, and its shape."""
    curves: dict[str, list[float]] = {}
    for key, _, value in witness.metrics:
        curves.setdefault(key, []).append(value)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("curve", style="cyan", no_wrap=True)
    for name in ("values", "first", "last"):
        table.add_column(name, justify="right", no_wrap=True)
    # A terminal that knows no more than ASCII cannot show the bars.
    shapes = not console.options.ascii_only
    if shapes:
        table.add_column("", style="green", no_wrap=True)
    for key, values in curves.items():
        cells = [key, f"{len(values):,}", f"{values[0]:,.4g}", f"{values[-1]:,.4g}"]
        table.add_row(*cells, *([sparkline(values)] if shapes else []))
    console.print(table)


def print_record(console: Console, witness: Witness, launch: Launch) -> None:
    """Print counts of what was recorded, what became of it, and where it is."""
    stats, folder = witness.log.stats(), _shown(witness.log.run_dir)
    for signal in Signal:
        route, count = launch.routes.of(signal), stats.recorded[signal.value]
        if route.destination is Destination.NONE:
            fate = f"not recorded (OTEL_{signal.name}_EXPORTER=none)"
        elif route.destination is Destination.SEND:
            where = route.endpoint.describe() if route.endpoint is not None else "standard output"
            fate = f"{stats.delivered[signal.value]:,} of {count:,} delivered to {where}"
        else:
            fate = f"{count:,}, kept in the run's folder"
        _line(console, _WORDS[signal], fate)
    if stats.coalesced:
        _line(console, "coalesced", f"{stats.coalesced:,} values gave way to a later one of the same millisecond")
    images, tables, files = sum(witness.images.values()), len(witness.tables), len(witness.files)
    store = launch.settings.blob_store or f"{folder}/blobs"
    galleries = f"{images} {'gallery' if images == 1 else 'galleries'} of images with masks"
    counts = f"{galleries}, {_count(tables, 'table')}, {_count(files, 'file')}"
    waiting = f"; {stats.blobs.waiting} of them wait for it" if stats.blobs.waiting else ""
    _line(console, "blobs", f"{counts}, in {store}{waiting}")
    _line(console, "run", str(witness.log.run_id))
    _line(console, "folder", folder)
    kept = [_READ[signal] for signal in Signal if launch.routes.of(signal).destination is Destination.KEEP]
    if kept:
        console.print("\n[bold]Read it back[/bold]")
        for line in ("from otel_logger import read_run", f"run = read_run({folder!r})", kept[0]):
            _code(console, line)


def print_grafana(console: Console, witness: Witness, launch: Launch) -> None:
    """Print how to see the run, or in local mode the next one, in Grafana."""
    signals = list(launch.routes.endpoints)
    console.print("\n[bold]See it in Grafana[/bold]")
    if not signals:
        console.print("  Nothing was sent: no endpoint is set. Start an OpenTelemetry Collector,")
        console.print("  or for a first look Collector, backends and Grafana in one container:")
        _code(console, "docker run -p 3000:3000 -p 4317:4317 -p 4318:4318 grafana/otel-lgtm")
        console.print("  and run the demo again, with more epochs for a curve that takes longer:")
        _code(console, "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 otel-logger demo --epochs 1000")
        signals = list(Signal)
        match, run = RUN_NAME, witness.log.state_dict()["run_name"]
    else:
        match, run = RUN_ID, str(witness.log.run_id)
    console.print("  In Explore, for each data source (for curves of seconds, set the step to 1s):")
    service = _quoted(launch.user_resource["service.name"])
    namespace = launch.user_resource.get("service.namespace")
    job = _quoted(f"{namespace}/{launch.user_resource['service.name']}") if namespace else service
    queries = {
        Signal.METRICS: [
            ("Prometheus", f"loss_train{{job={job}}}"),
            ("", f'{_label(STEP)}{{job={job}, {_label(METRIC_KEY)}="loss/train"}}'),
        ],
        Signal.LOGS: [("Loki", f"{{service_name={service}}} | {_label(match)}={_quoted(run)}")],
        Signal.TRACES: [("Tempo", f"{{ resource.{match} = {_quoted(run)} }}")],
    }
    for signal in signals:
        for source, query in queries[signal]:
            _code(console, f"{source:<12}{query}")


def _line(console: Console, label: str, text: str) -> None:
    console.print(Text.assemble("  ", (f"{label:<15}", "bold"), text), soft_wrap=True)


def _code(console: Console, text: str) -> None:
    # Not wrapped: it is there to be copied.
    console.print(Text(f"    {text}", style="cyan"), soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown(folder: Path | None) -> str:
    relative = os.path.relpath(folder) if folder is not None else ""
    return relative if not relative.startswith("..") else str(folder)


def _label(name: str) -> str:
    return name.replace(".", "_")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
