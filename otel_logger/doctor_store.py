"""The check of the blob store: whether it can be written, read, and told to keep what it has."""

import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from otel_logger.doctor_folder import check_store_folder
from otel_logger.findings import OK, Finding, fine, problem, warning
from otel_logger_exporters.blob_probe import CREATE, DELETE, READ, WRITE, ProbeStep, probe
from otel_logger_exporters.blob_store import BlobStore, open_blob_store
from otel_logger_exporters.blob_url import BlobUrl
from otel_logger_exporters.errors import ConfigurationError
from otel_logger_exporters.file_store import FileBlobStore

__all__ = ["check_blob_store"]

_CHECK = "blob store"

_PATIENCE = 30.0
"""Seconds for all steps. A store that takes a connection and does not answer would be waited for much longer."""

_SEE_TO_IT = (
    "Correct OTEL_LOGGER_BLOB_STORE, or what the store asks of who comes. Until then images, tables and files wait on "
    "disk."
)


def check_blob_store(url: BlobUrl, environ: Mapping[str, str], patience: float = _PATIENCE) -> Finding:
    """Return whether OTEL_LOGGER_BLOB_STORE takes images, tables and files, by storing one that is deleted again.

    A folder is tried in one of its own within it, or where it would be made; neither is left behind. `patience` are
    the seconds that the store has.
    """
    if url.scheme != "file":
        try:
            return _tried(open_blob_store(url.uri(), environ), patience)
        except ConfigurationError as error:
            return problem(_CHECK, str(error), _SEE_TO_IT)
    folder = Path(url.place)
    finding, place = check_store_folder(folder)
    if finding.verdict != OK or place is None:
        return finding
    attempt = Path(tempfile.mkdtemp(prefix=".otel-logger-doctor-", dir=place))
    try:
        found = _tried(FileBlobStore(attempt), patience)
        return finding if found.verdict == OK else found
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _tried(store: BlobStore, patience: float) -> Finding:
    steps: dict[str, ProbeStep] = {}
    trial = threading.Thread(
        target=lambda: steps.update((step.what, step) for step in probe(store)), name="otel_logger probe", daemon=True
    )
    trial.start()
    trial.join(patience)
    if trial.is_alive():
        return problem(_CHECK, f"{store.uri} has not answered within {patience:g} s", _SEE_TO_IT)
    for what in (WRITE, READ):
        if (error := _error(steps.get(what))) is not None:
            return problem(_CHECK, f"{store.uri}, {what}: {error}", _SEE_TO_IT)
    if (error := _error(steps.get(CREATE))) is not None:
        return warning(
            _CHECK,
            f"{store.uri}, {CREATE}: {error}",
            "Of two runs that upload one name at the same moment both will think that they have stored theirs: give "
            "each run names of its own, with {run_name} in save_folder, or use a store that knows conditional puts.",
        )
    if (error := _error(steps.get(DELETE))) is not None:
        return warning(
            _CHECK,
            f"{store.uri}, {DELETE}: {error}",
            "Large files that are not to be replaced will each leave a small claim behind: let this user delete there.",
        )
    return fine(_CHECK, f"{store.uri} can be written and read, keeps what it has, and deletes")


def _error(step: ProbeStep | None) -> str | None:
    return (step.error.strerror or str(step.error)) if step is not None and step.error is not None else None
