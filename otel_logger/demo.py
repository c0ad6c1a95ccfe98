"""The demo: a small training that is logged, then looked for where it was logged to, and shown."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from otel_logger.launch import Launch, read_launch
from otel_logger.logger import OTelLogger
from otel_logger_exporters.routes import Destination
from otel_logger_exporters.signals import Signal

__all__ = ["DemoError", "run_demo"]

RUN_NAME = "demo"
"""The run's name, where OTEL_LOGGER_RUN_NAME gives none."""

_NEEDED = "the demo needs scikit-learn, for its digits: pip install 'otel-logger-destination[demo]'"


class DemoError(Exception):
    """The demo cannot run, or what it logged is not where it should be; the message says why."""


def run_demo(console: Console, environ: Mapping[str, str], *, epochs: int | None = None) -> None:
    """Train, log, check and show.

    Raises:
        DemoError: scikit-learn is missing, nothing is to be recorded, or not everything that was logged is there.
        ConfigurationError: a variable in `environ` is wrong.
    """
    launch = read_launch(environ, None)
    _refuse_useless(launch)
    # Late, for they load NumPy, which takes longer than to say what is wrong with the configuration.
    from otel_logger.demo_check import model_problems, problems
    from otel_logger.demo_model import Measured, load_digits
    from otel_logger.demo_summary import print_curves, print_grafana, print_record
    from otel_logger.demo_training import Plan, train
    from otel_logger.demo_witness import Witness

    plan = Plan() if epochs is None else Plan(epochs=epochs)
    try:
        with console.status("Loading the digits", spinner="line"):
            digits = load_digits(plan.seed)
    except ImportError as error:
        msg = f"{_NEEDED} ({error})"
        raise DemoError(msg) from error

    with OTelLogger(run_name=launch.settings.run_name or RUN_NAME, environ=environ) as log:
        witness = Witness(log)
        with _progress(console) as progress:
            task = progress.add_task("training", total=plan.steps(digits), shown="")

            def show(epoch: int, measured: Measured) -> None:
                shown = f"epoch {epoch}  loss {measured.loss:.3f}"
                progress.update(task, advance=1, shown=shown)

            network = train(witness, digits, plan, show)

    found = problems(witness, launch) + model_problems(witness, network, digits)
    print_curves(console, witness)
    print_record(console, witness, launch)
    if found:
        msg = "\n  ".join(["not everything that was logged is there:", *found])
        raise DemoError(msg)
    print_grafana(console, witness, launch)
    console.print("\n[green]Everything that was logged is there[/green]; the model, downloaded, predicts the same.")


def _refuse_useless(launch: Launch) -> None:
    if launch.routes.disabled:
        msg = "OTEL_SDK_DISABLED=true: nothing would be recorded, so there is nothing to show; unset it"
        raise DemoError(msg)
    if all(launch.routes.of(signal).destination is Destination.NONE for signal in Signal):
        variables = ", ".join(f"OTEL_{signal.name}_EXPORTER" for signal in Signal)
        msg = f"{variables} are all none: nothing would be recorded, so there is nothing to show; unset one of them"
        raise DemoError(msg)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shown]}"),
        TimeElapsedColumn(),
        console=console,
    )
