"""The command line, `otel-logger`.

What a command needs is loaded by it: `otel-logger --help` must not wait for NumPy.
"""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from otel_logger._version import __version__

__all__ = ["app"]

FAILED = 1
MISUSED = 2
"""Exit codes; the second, which is also that of unknown options, is for configuration that is wrong."""

# Typer's tracebacks show local variables, among them the environment with its secrets.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"otel-logger {__version__}")
        raise typer.Exit


# A callback also keeps `demo` a command of its own: a Typer app of one command alone has no subcommands.
@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Put a training run's telemetry on OpenTelemetry."""


@app.command()
def demo(
    epochs: Annotated[int | None, typer.Option(min=1, max=100_000, help="Passes over the training digits.")] = None,
) -> None:
    """Train a small classifier of digits, log it, check that all of it is there, and show it.

    Needs scikit-learn, which the extra 'demo' brings.

    Keeps the run in OTEL_LOGGER_DIR (./otel_logs), or sends it to OTEL_EXPORTER_OTLP_ENDPOINT where that is set.

    Exits with 1 and the reason when what was logged is not there to be read back, or has not arrived.
    """
    from rich.console import Console

    from otel_logger.demo import DemoError, run_demo
    from otel_logger_exporters.errors import ConfigurationError

    try:
        run_demo(Console(highlight=False), os.environ, epochs=epochs)
    except DemoError as error:
        _fail("demo", error, FAILED)
    except ConfigurationError as error:
        _fail("demo", error, MISUSED)


@app.command()
def sync(
    path: Annotated[
        Path | None, typer.Argument(help="A run's folder, or a folder of runs; default OTEL_LOGGER_DIR.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to try for each writer's folder.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per writer's folder.")] = False,
) -> None:
    """Send what runs that have ended left on disk, to OTEL_EXPORTER_OTLP_ENDPOINT.

    Sends nothing twice: what has been acknowledged is marked. What was kept without an endpoint is sent too, and stays
    on disk. A run that is still going on is refused; it sends by itself.

    Exits with 1 and the reason when something stays.
    """
    from otel_logger.sync_command import run_sync
    from otel_logger_exporters.errors import ConfigurationError

    try:
        complete = run_sync(os.environ, path, timeout=timeout, as_json=as_json)
    except (ConfigurationError, OSError) as error:
        _fail("sync", error, MISUSED)
    if not complete:
        raise typer.Exit(FAILED)


@app.command()
def runs(
    path: Annotated[
        Path | None, typer.Argument(help="A folder of runs, or a run's folder; default OTEL_LOGGER_DIR.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """List the runs of a folder of runs, the newest last.

    A run is running, finished, failed, interrupted or preempted, or lost: then it died without an end. Unsent is what
    is recorded on disk and no endpoint has taken; of a run without an endpoint that is all of it.
    """
    from otel_logger.runs_command import list_runs
    from otel_logger_exporters.clock import SystemClock
    from otel_logger_exporters.errors import ConfigurationError

    try:
        list_runs(os.environ, path, clock=SystemClock(), as_json=as_json)
    except (ConfigurationError, OSError) as error:
        _fail("runs", error, MISUSED)


@app.command()
def show(
    run: Annotated[
        str, typer.Argument(help="A run's folder; or in OTEL_LOGGER_DIR a run's id, or the beginning of one.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what is in a run's folder: its writers, and what they recorded, by name.

    What an endpoint has taken is deleted from there, and so not shown; images, tables and files stay.
    """
    from otel_logger.overview import AmbiguousRunError
    from otel_logger.show_command import show_run
    from otel_logger_exporters.clock import SystemClock
    from otel_logger_exporters.errors import ConfigurationError

    try:
        show_run(os.environ, run, clock=SystemClock(), as_json=as_json)
    except (AmbiguousRunError, ConfigurationError, OSError) as error:
        _fail("show", error, MISUSED)


@app.command()
def doctor(
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Seconds for each attempt to reach a server.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per check.")] = False,
) -> None:
    """Try what a run would need here, and tell what is wrong and what helps.

    Reads the same environment as a run, and tries its endpoint, credentials, clock and folder. Makes no run and sends
    no data: each endpoint gets a request with nothing in it.

    Exits with 1 when there is a problem.
    """
    # gRPC's C core writes each failed handshake to standard error, and reads this when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from otel_logger.doctor_command import run_doctor
    from otel_logger_exporters.clock import SystemClock

    if not run_doctor(os.environ, timeout=timeout, clock=SystemClock(), as_json=as_json):
        raise typer.Exit(FAILED)


def _fail(command: str, error: Exception, code: int) -> NoReturn:
    typer.secho(f"otel-logger {command}: {error}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code)
