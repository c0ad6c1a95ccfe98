"""The command line: what it says of itself, and how light it is."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from otel_logger import __version__
from otel_logger.cli import app

runner = CliRunner()


def test_version_is_printed() -> None:
    """`--version` prints the package's version and nothing else."""
    result = runner.invoke(app, ["--version"])
    assert (0, f"otel-logger {__version__}\n") == (result.exit_code, result.output)


def test_without_a_command_the_help_names_the_commands() -> None:
    """Called with nothing, the command line shows its help, with each command."""
    result = runner.invoke(app, [])
    assert "demo" in result.output


def test_demo_is_a_command_of_its_own() -> None:
    """`demo` is a subcommand with help of its own, not the whole program."""
    result = runner.invoke(app, ["demo", "--help"])
    assert 0 == result.exit_code
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in result.output


@pytest.mark.parametrize("arguments", [["nonsense"], ["demo", "--epochs", "0"]])
def test_misuse_exits_with_2(arguments: list[str]) -> None:
    """An unknown command, or an option's impossible value, is told from a failure by its exit code."""
    assert 2 == runner.invoke(app, arguments).exit_code


def test_module_is_the_command_line_and_loads_nothing_heavy() -> None:
    """`python -m otel_logger` is the same program, and printing a version loads none of the heavy packages."""
    # In a process of its own: here all of them are loaded already.
    heavy = ("numpy", "sklearn", "grpc", "PIL", "opentelemetry")
    program = (
        "import runpy, sys\n"
        "sys.argv = ['otel_logger', '--version']\n"
        "try:\n"
        "    runpy.run_module('otel_logger', run_name='__main__')\n"
        "except SystemExit as end:\n"
        f"    print(end.code, [name for name in {heavy!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20)
    assert f"otel-logger {__version__}\n0 []\n" == done.stdout
