"""The demo's witness: what was logged, remembered beside the logger, to be compared with what is read back."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from opentelemetry.trace import Span

from otel_logger.logger import OTelLogger
from otel_logger_exporters.blob_files import sha256_file

__all__ = ["Witness"]


class Witness:
    """Hands each call on to a logger and remembers what it was given.

    metrics: (key, step, value) of every value, in the order of logging.
    hyperparameters: what was logged, nested as it was.
    traces, spans: (name, value) of each trace, names of spans.
    images: how many calls by name, each of which makes one record; tables: columns and rows by name; files: SHA-256
    (hexadecimal) by remote name.
    """

    def __init__(self, log: OTelLogger) -> None:
        self.log = log
        self.metrics: list[tuple[str, int, float]] = []
        self.hyperparameters: dict[str, Any] = {}
        self.traces: list[tuple[str, Any]] = []
        self.spans: list[str] = []
        self.images: dict[str, int] = {}
        self.tables: dict[str, tuple[list[str], list[list[Any]]]] = {}
        self.files: dict[str, str] = {}

    @property
    def blobs(self) -> int:
        """The number of records of images, tables and files."""
        return sum(self.images.values()) + len(self.tables) + len(self.files)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Log metrics."""
        self.metrics += ((key, step, value) for key, value in metrics.items())
        self.log.log_metrics(metrics, step)

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Log hyperparameters."""
        self.hyperparameters |= hyperparameters
        self.log.log_hyperparameters(hyperparameters)

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Log traces."""
        self.traces += traces.items()
        self.log.log_traces(traces)

    def log_images(self, images: Any, name: str, step: int, masks: Mapping[str, Any], labels: dict[int, str]) -> None:
        """Log a batch of images with their masks, one at least."""
        self.images[name] = self.images.get(name, 0) + 1
        self.log.log_images(images, name, step=step, masks=dict(masks), mask_class_labels=labels)

    def log_table(self, columns: list[str], rows: list[list[Any]], name: str, step: int) -> None:
        """Log a table; each must have a name of its own."""
        self.tables[name] = (columns, rows)
        self.log.log_table(columns, rows, name, step)

    def upload_file(self, remote_file_name: str, path: Path) -> None:
        """Upload a file; each must have a name of its own."""
        self.files[remote_file_name] = sha256_file(path)
        # Overwritten, since the store may be one that all runs share (OTEL_LOGGER_BLOB_STORE).
        self.log.upload_file(None, remote_file_name, path, overwrite=True)

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        """Return a context manager that runs a block in a span."""
        self.spans.append(name)
        return self.log.span(name, **attributes)
