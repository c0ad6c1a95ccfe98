"""The libraries that benchmarks/blobs.py compares, each behind the same four calls.

Each is used as its documentation says, with its defaults, and everything of it is kept below one folder. What a
library has no call for is not in its `CAN`.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

__all__ = ["LIBRARIES", "Library", "open_library"]

PATIENCE = 600.0
"""Seconds that what goes on in the background may take."""


class Library(Protocol):
    """A library that logs. `settle` waits until nothing of what was logged is still going on in the background."""

    CAN: frozenset[str]

    def log_images(self, images: Any, masks: Mapping[str, Any] | None, labels: Mapping[int, str]) -> None:
        """Log images of one call: a tensor of shape count, channels, height, width; masks: count, height, width."""

    def log_table(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Log a table."""

    def upload_file(self, name: str, path: Path) -> None:
        """Upload a file under a name that is new."""

    def settle(self) -> None:
        """Wait for the background."""

    def close(self) -> None:
        """End the run."""


class OTel:
    """otel_logger, with the store that it has by default, or with a bucket."""

    CAN = frozenset({"images", "masks", "table", "mixed table", "upload"})

    def __init__(self, folder: Path, blob_store: str | None) -> None:
        from otel_logger import OTelLogger

        environ = {**os.environ, "OTEL_LOGGER_DIR": str(folder)}
        if blob_store is not None:
            environ["OTEL_LOGGER_BLOB_STORE"] = blob_store
        self._log = OTelLogger(run_name="blobs", environ=environ)
        self._step = 0

    def log_images(self, images: Any, masks: Mapping[str, Any] | None, labels: Mapping[int, str]) -> None:
        """Log images."""
        self._step += 1
        self._log.log_images(
            images, step=self._step, masks=None if masks is None else dict(masks), mask_class_labels=dict(labels)
        )

    def log_table(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Log a table."""
        self._step += 1
        self._log.log_table(columns, rows, step=self._step)

    def upload_file(self, name: str, path: Path) -> None:
        """Upload a file."""
        self._log.upload_file(None, name, path)

    def settle(self) -> None:
        """Wait for the background; RuntimeError when anything was lost."""
        is_done = self._log.flush(PATIENCE)
        if not is_done or self._log.stats().dropped:
            msg = f"otel_logger lost something: {self._log.stats()}"
            raise RuntimeError(msg)

    def close(self) -> None:
        """End the run."""
        self._log.close()


class WandB:
    """W&B without a server. Its images and tables are encoded within the call, and files become artifacts."""

    CAN = frozenset({"images", "masks", "table", "mixed table", "upload"})

    def __init__(self, folder: Path) -> None:
        places = dict.fromkeys(("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"), str(folder))
        os.environ.update(places, WANDB_MODE="offline", WANDB_SILENT="true")
        import wandb

        self._wandb = wandb
        self._run = wandb.init(project="blobs")

    def log_images(self, images: Any, masks: Mapping[str, Any] | None, labels: Mapping[int, str]) -> None:
        """Log images."""
        logged = []
        for index, image in enumerate(images.permute(0, 2, 3, 1).numpy()):
            of_image = {
                name: {"mask_data": of_name[index].numpy(), "class_labels": dict(labels)}
                for name, of_name in (masks or {}).items()
            }
            logged.append(self._wandb.Image(image, masks=of_image or None))
        self._run.log({"images": logged})

    def log_table(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Log a table."""
        self._run.log({"table": self._wandb.Table(columns=columns, data=rows)})

    def upload_file(self, name: str, path: Path) -> None:
        """Upload a file as an artifact of its own."""
        artifact = self._wandb.Artifact(name.replace("/", "-"), type="model")
        artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def settle(self) -> None:
        """Leave a moment to what happens in W&B's own process, of which nothing can be asked without a server."""
        time.sleep(0.2)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class TensorBoard:
    """PyTorch's writer for TensorBoard. It makes one picture of all images of a call, within the call."""

    CAN = frozenset({"images"})

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))
        self._step = 0

    def log_images(self, images: Any, masks: Mapping[str, Any] | None, labels: Mapping[int, str]) -> None:
        """Log images, which have no masks."""
        self._step += 1
        self._writer.add_images("images", images, self._step)

    def log_table(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Never called: it has no tables."""
        raise NotImplementedError

    def upload_file(self, name: str, path: Path) -> None:
        """Never called: it takes no files."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all is written."""
        self._writer.flush()

    def close(self) -> None:
        """End the run."""
        self._writer.close()


class Uploader:
    """Composer's RemoteUploaderDownloader, which copies a file and uploads the copy in a process of its own."""

    CAN = frozenset({"upload"})

    def __init__(self, folder: Path, uri: str, bucket: Path) -> None:
        from composer.loggers import RemoteUploaderDownloader

        place, _, self._prefix = uri.removeprefix("s3://").partition("/")
        self._bucket = bucket
        self._awaited: list[Path] = []
        self._staging = folder / "staging"
        self._uploader = RemoteUploaderDownloader(
            f"s3://{place}", backend_kwargs={"prefix": self._prefix}, upload_staging_folder=str(self._staging)
        )
        self._uploader.init(SimpleNamespace(run_name="blobs"), None)

    def log_images(self, images: Any, masks: Mapping[str, Any] | None, labels: Mapping[int, str]) -> None:
        """Never called: it takes files alone."""
        raise NotImplementedError

    def log_table(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Never called: it takes files alone."""
        raise NotImplementedError

    def upload_file(self, name: str, path: Path) -> None:
        """Upload a file."""
        self._uploader.upload_file(None, name, path, overwrite=False)
        self._awaited.append(self._bucket / self._prefix / name)

    def settle(self) -> None:
        """Wait until the objects are in the server's folder, and their copies are gone."""
        deadline = time.monotonic() + PATIENCE
        while any(self._staging.iterdir()) or not all(path.exists() for path in self._awaited):
            # Raises when its process has failed.
            self._uploader.batch_end(None, None)
            if time.monotonic() > deadline:
                msg = f"uploads did not end within {PATIENCE:.0f} s"
                raise RuntimeError(msg)
            time.sleep(0.02)
        self._awaited.clear()

    def close(self) -> None:
        """End the run."""
        self._uploader.post_close()


LIBRARIES: dict[str, Callable[[Path, str, Path], Library]] = {
    "otel_logger": lambda folder, uri, bucket: OTel(folder, None),
    "otel_logger, S3": lambda folder, uri, bucket: OTel(folder, uri),
    "W&B": lambda folder, uri, bucket: WandB(folder),
    "TensorBoard": lambda folder, uri, bucket: TensorBoard(folder),
    "RemoteUploaderDownloader, S3": Uploader,
}
"""What opens each library: with a folder of its own, a URI in a bucket, and the folder in which its server keeps it."""


def open_library(name: str, folder: Path, uri: str, bucket: Path) -> Library:
    """Open a library."""
    return LIBRARIES[name](folder, uri, bucket)
