"""otel_logger puts a training run's telemetry on OpenTelemetry.

`OTelLogger` records it, `read_run` reads a run's folder back. Everything is loaded on first use: importing the
package costs no more than its names.
"""

from typing import TYPE_CHECKING, Any

from otel_logger._version import __version__

if TYPE_CHECKING:
    from otel_logger.contract import LoggerDestination
    from otel_logger.logger import OTelLogger
    from otel_logger.reading import Run, Table, read_run
    from otel_logger.settings import Settings
    from otel_logger_exporters.errors import ConfigurationError
    from otel_logger_exporters.ledger import Stats

__all__ = [
    "ConfigurationError",
    "LoggerDestination",
    "OTelLogger",
    "Run",
    "Settings",
    "Stats",
    "Table",
    "__version__",
    "read_run",
]

_OWNERS = {
    "ConfigurationError": "otel_logger_exporters.errors",
    "LoggerDestination": "otel_logger.contract",
    "OTelLogger": "otel_logger.logger",
    "Run": "otel_logger.reading",
    "Settings": "otel_logger.settings",
    "Stats": "otel_logger_exporters.ledger",
    "Table": "otel_logger.reading",
    "read_run": "otel_logger.reading",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that owns it (PEP 562)."""
    if name not in _OWNERS:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    value = getattr(import_module(_OWNERS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted(__all__)
