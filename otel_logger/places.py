"""Places: which blob store a writer's images, tables and files go to, and where files are looked for."""

from collections.abc import Iterator
from pathlib import Path

from otel_logger.delivery import is_earlier
from otel_logger.folders import STARTING, WriterFile, blobs_folder, run_folder, runs_below, writers_of
from otel_logger.shelf import Place, Stage
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
        self._started_ns: int | None = None
        launch = writer.launch
        url = launch.settings.blob_store
        self._fixed = open_blob_store(url, launch.environ) if url is not None else None

    @property
    def uri(self) -> str | None:
        """The URI of the store that is set."""
        return self._fixed.uri if self._fixed is not None else None

    def started_ns(self) -> int:
        """When the attempt began, which is earlier than this writer where another rank was there first."""
        if self._started_ns is None and (identity := self._writer.identity) is not None:
            # Once: who was there before is there now.
            writers = _writers(run_folder(self._writer.launch.directory, identity.run_id))
            others = [writer.started_ns for _, writer in writers if writer.attempt == identity.attempt]
            self._started_ns = min([self._writer.started_ns, *others])
        return self._started_ns or self._writer.started_ns

    def own(self) -> Stage:
        """Return the folder in which this writer's own things wait."""
        identity = self._writer.identity
        run_id, attempt = (identity.run_id, identity.attempt) if identity is not None else (None, 1)
        return Stage(self._writer.folder / STAGED, run_id, attempt, self.started_ns())

    def writing(self) -> BlobStore | None:
        """Return the store to write to, or None while the run is not known."""
        if self._fixed is not None:
            return self._fixed
        # The run's, shared by its ranks and attempts: `<run>/blobs`.
        return FileBlobStore(blobs_folder(self._writer.folder)) if self._writer.identity is not None else None

    def reading(self) -> Iterator[Place]:
        """Yield the places to look into: of this run, or while none is known of all, same name first, newest first."""
        runs = list(self._runs())
        if self._fixed is not None:
            yield Place(self._fixed, _staged([writer for _, writers in runs for writer in writers]))
            return
        for blobs, writers in runs:
            yield Place(FileBlobStore(blobs), _staged(writers))

    def may_replace(self, known: BlobMeta) -> bool:
        """Tell whether a stored file may be replaced without asking: one of an earlier attempt at this run.

        While it is not settled which run this is, it may be that one; then it is decided when the file is stored.
        """
        identity = self._writer.identity
        if identity is None:
            return known.run_id is not None
        return known.run_id == identity.run_id and is_earlier(known, identity.attempt, self.started_ns())

    def _runs(self) -> Iterator[tuple[Path, list[tuple[Path, WriterFile]]]]:
        """Yield the default stores of runs with the writers of each."""
        identity = self._writer.identity
        folder = self._writer.folder
        directory = self._writer.launch.directory
        if identity is not None:
            own = blobs_folder(folder)
            run = run_folder(directory, identity.run_id)
            if own.parent != run:
                # It could not be moved there. What those before it have stored is there all the same.
                yield own, [found for found in _writers(folder.parent) if found[0] == folder]
            yield run / "blobs", _writers(run)
            return
        runs: list[list[tuple[Path, WriterFile]]] = []
        for place, writers in runs_below(directory):
            # Those whose run is not known yet have nothing to do with each other.
            runs += [[writer] for writer in writers] if place.name == STARTING else [writers]
        runs.sort(key=lambda run: (run[-1][1].run_name == self._writer.run_name, run[-1][1].started_ns), reverse=True)
        for writers in runs:
            yield blobs_folder(writers[0][0]), writers


def _staged(writers: list[tuple[Path, WriterFile]]) -> tuple[Stage, ...]:
    return tuple(Stage(folder / STAGED, writer.run_id, writer.attempt, writer.started_ns) for folder, writer in writers)


def _writers(folder: Path) -> list[tuple[Path, WriterFile]]:
    try:
        return writers_of(folder)
    except OSError:
        # It may be another user's.
        return []
