"""The contract of a logger destination, as Composer 0.20 and later call it, for programs without Composer."""

from pathlib import Path
from typing import Any

__all__ = ["LoggerDestination"]


class LoggerDestination:
    """What a trainer's logger calls: the methods of Composer's class of this name, each doing nothing.

    Subclass it to write a destination that works with and without Composer.
    """

    def run_event(self, event: Any, state: Any, logger: Any) -> None:
        """Handle a trainer's event (an enum with the name of the event as value, or that name)."""

    def init(self, state: Any, logger: Any) -> None:
        """Take note of the trainer's state, before anything else."""

    def log_hyperparameters(self, hyperparameters: dict[str, Any]) -> None:
        """Log hyperparameters, nested or flat."""

    def log_table(
        self, columns: list[str], rows: list[list[Any]], name: str = "Table", step: int | None = None
    ) -> None:
        """Log a table."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log metrics of a step; None is the trainer's."""

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Log what an algorithm or profiler did."""

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
        masks: dict[str, Any] | None = None,
        mask_class_labels: dict[int, str] | None = None,
        use_table: bool = True,
    ) -> None:
        """Log one image or several."""

    def upload_file(self, state: Any, remote_file_name: str, file_path: Path, *, overwrite: bool = False) -> None:
        """Store a file under a name."""

    def download_file(
        self, remote_file_name: str, destination: str, overwrite: bool = False, progress_bar: bool = True
    ) -> None:
        """Write a stored file to `destination`; NotImplementedError where files are not stored."""
        msg = f"{type(self).__name__} does not store files"
        raise NotImplementedError(msg)

    def can_upload_files(self) -> bool:
        """Tell whether files are stored."""
        return False

    def close(self, state: Any = None, logger: Any = None) -> None:
        """End logging; others may still log."""

    def post_close(self) -> None:
        """End logging after all others are closed."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint should hold."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what a checkpoint holds."""
