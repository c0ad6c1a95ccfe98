"""Places: which blob store a writer's images, tables and files go to, and where files are looked for."""

from collections.abc import Iterator
from pathlib import Path

from otel_logger.folders import WriterFile, run_folder, runs_below, writers_of
from otel_logger.shelf import Place
from otel_logger.staging import STAGED
from otel_logger.writer import Writer
from otel_logger_exporters.blob_meta import BlobMeta
from otel_logger_exporters.blob_store import BlobStore, open_blob_store
from otel_logger_exporters.file_store import FileBlobStore

__all__ = ["RunPlaces"]


class RunPlaces:
    """The store that is set, one for all runs, or else that in each run's folder."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        launch = writer.launch
        url = launch.settings.blob_store
        self._fixed = open_blob_store(url, launch.environ) if url is not None else None

    @property
    def run_id(self) -> str | None:
        """Which run this is, None while that is not settled."""
        identity = self._writer.identity
        return identity.run_id if identity is not None else None

    @property
    def uri(self) -> str | None:
        """The URI of the store that is set."""
        return self._fixed.uri if self._fixed is not None else None

    def writing(self) -> BlobStore | None:
        """Return the store to write to, or None while the run is not known."""
        if self._fixed is not None:
            return self._fixed
        # The run's, shared by its ranks and attempts: `<run>/blobs`.
        return FileBlobStore(self._writer.folder.parent / "blobs") if self._writer.identity is not None else None

    def reading(self) -> Iterator[Place]:
        """Yield the places to look into: of this run, or while none is known of all, same name first, newest first."""
        identity = self._writer.identity
        directory = self._writer.launch.directory
        if identity is not None:
            own = self._writer.folder.parent
            runs = [(own, _writers(own))]
            # The folder that it could not be moved to has those before it all the same.
            if own != (run := run_folder(directory, identity.run_id)):
                runs.append((run, _writers(run)))
        else:
            found = list(runs_below(directory))
            found.sort(key=lambda run: (run[1][-1][1].run_name == self._writer.run_name, run[1][-1][1].started_ns))
            runs = found[::-1]
        if self._fixed is not None:
            yield Place(self._fixed, _staged([writer for _, writers in runs for writer in writers]))
            return
        for folder, writers in runs:
            yield Place(FileBlobStore(folder / "blobs"), _staged(writers))

    def may_replace(self, known: BlobMeta) -> bool:
        """Tell whether a stored file may be replaced without asking: one of an earlier attempt at this run."""
        identity = self._writer.identity
        return identity is not None and known.run_id == identity.run_id and known.attempt < identity.attempt


def _staged(writers: list[tuple[Path, WriterFile]]) -> tuple[tuple[Path, str | None], ...]:
    return tuple((folder / STAGED, writer.run_id) for folder, writer in writers)


def _writers(folder: Path) -> list[tuple[Path, WriterFile]]:
    try:
        return writers_of(folder)
    except OSError:
        # It may be another user's.
        return []
