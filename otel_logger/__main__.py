"""`python -m otel_logger` is the command line."""

from otel_logger.cli import app

__all__: list[str] = []

if __name__ == "__main__":
    app(prog_name="python -m otel_logger")
