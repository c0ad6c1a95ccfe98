"""The demo's check: whether everything that was logged is there to be read back, or has been delivered."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from otel_logger import conventions as names
from otel_logger.demo_model import Digits, Network
from otel_logger.demo_training import MODEL_FILE
from otel_logger.demo_witness import Witness
from otel_logger.launch import Launch
from otel_logger.reading import Run, read_run
from otel_logger.redaction import Redactor
from otel_logger.settings import Settings
from otel_logger.table_files import read_table
from otel_logger.values import plain
from otel_logger_exporters.blob_files import sha256_file
from otel_logger_exporters.blob_url import parse_file_store
from otel_logger_exporters.ledger import Stats
from otel_logger_exporters.routes import Destination
from otel_logger_exporters.signals import Signal

__all__ = ["model_problems", "problems"]

WORDS: Mapping[Signal, str] = {Signal.METRICS: "values", Signal.LOGS: "log records", Signal.TRACES: "spans"}


def problems(witness: Witness, launch: Launch) -> list[str]:
    """Return a sentence for each thing that is not as it was logged; call it when the logger is closed.

    A signal that is kept is read back and compared piece by piece; of one that is sent, nothing is left to read, so
    that the count of what the endpoint acknowledged must be that of what was logged.
    """
    stats = witness.log.stats()
    found = list(_losses(stats, witness.blobs))
    sent = [signal for signal in Signal if launch.routes.of(signal).destination is Destination.SEND]
    kept = [signal for signal in Signal if launch.routes.of(signal).destination is Destination.KEEP]
    values = len(_expected_metrics(witness, launch.settings))
    if Signal.METRICS in (*sent, *kept) and stats.recorded["metrics"] != values:
        found.append(f"{values} metric values were logged, {stats.recorded['metrics']} recorded")
    found += _undelivered(stats, witness.log.run_dir)
    if kept:
        run = _own_part(witness)
        found += (f"{row['bytes']} bytes of {row['segment']} cannot be read" for row in run.damage)
        if Signal.METRICS in kept:
            found += _metric_problems(witness, run, launch.settings)
            found += _hyperparameter_problems(witness, run, launch.settings)
        if Signal.LOGS in kept:
            found += _event_problems(run)
            found += _blob_problems(witness, run)
        if Signal.TRACES in kept:
            found += _span_problems(witness, run)
        found += _trace_problems(witness, run, launch)
    if found and stats.last_error:
        found.append(f"The last warning was: {stats.last_error}")
    return found


def model_problems(witness: Witness, network: Network, digits: Digits) -> list[str]:
    """Return what is wrong with the model when it is downloaded: it must be the file, and predict the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        try:
            witness.log.download_file(MODEL_FILE, str(path), progress_bar=False)
        except OSError as error:
            return [f"the model cannot be downloaded: {error}"]
        if sha256_file(path) != witness.files[MODEL_FILE]:
            return [f"the downloaded {MODEL_FILE} is not the file that was uploaded"]
        restored = Network.load(path).probabilities(digits.test_images)
    if not np.array_equal(restored, network.probabilities(digits.test_images)):
        return [f"the model of the downloaded {MODEL_FILE} predicts otherwise than the trained one"]
    return []


def _losses(stats: Stats, blobs: int) -> Iterator[str]:
    for reason, count in sorted(stats.dropped.items()):
        yield f"{count} things were lost ({reason})"
    if stats.blobs.stored != blobs:
        yield f"{blobs} images, tables and files were logged, {stats.blobs.stored} stored"


def _undelivered(stats: Stats, folder: Path | None) -> Iterator[str]:
    if waiting := _counts(stats.waiting):
        remedy = f"see to the endpoint, then send them with `otel-logger sync {folder}`"
        yield f"{waiting} have not been delivered, they wait in {folder}: {remedy}"
    if refused := _counts(stats.refused):
        yield f"{refused} were refused by the endpoint"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[signal.value]} {WORDS[signal]}" for signal in Signal if counts[signal.value])


def _own_part(witness: Witness) -> Run:
    # A run id that is given, or that of a demo which was killed, has earlier attempts in the same folder.
    assert witness.log.run_dir is not None
    attempt = witness.log.state_dict()["attempt"]
    writers = read_run(witness.log.run_dir).writers.where(attempt=attempt)
    return read_run(writers["folder"][-1])


def _expected_metrics(witness: Witness, settings: Settings) -> dict[tuple[str, int], float]:
    return {
        (key, step): value
        for key, step, value in witness.metrics
        if not any(fnmatchcase(key, pattern) for pattern in settings.metrics_exclude)
    }


def _metric_problems(witness: Witness, run: Run, settings: Settings) -> Iterator[str]:
    expected = _expected_metrics(witness, settings)
    found = {(row["key"], row["step"]): row["value"] for row in run.metrics}
    if len(found) != len(run.metrics):
        yield f"{len(run.metrics) - len(found)} metric values are there twice"
    differing = [place for place, value in expected.items() if found.get(place) != value]
    if differing:
        key, step = differing[0]
        yield (
            f"{len(differing)} of {len(expected)} metric values are not as logged; the first, {key!r} at step {step}, "
            f"was logged as {expected[key, step]} and reads {found.get((key, step), 'nothing')}"
        )
    if more := len(found.keys() - expected.keys()):
        yield f"{more} metric values are there that were never logged"


def _hyperparameter_problems(witness: Witness, run: Run, settings: Settings) -> Iterator[str]:
    redactor = Redactor(settings.redact, settings.redact_allow)
    expected = dict(_flat("", redactor.redact("", plain(witness.hyperparameters))))
    found = {row["key"]: row["value"] for row in run.hyperparameters}
    for key in expected.keys() | found.keys():
        if expected.get(key) != found.get(key):
            # Not the values: one may be a secret that should have been redacted.
            yield f"the hyperparameter {key!r} is not as logged"


def _flat(prefix: str, nested: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield f"{prefix}{key}", value


def _event_problems(run: Run) -> Iterator[str]:
    counts = Counter(run.events["name"])
    for event in (names.EVENT_RUN_START, names.EVENT_HYPERPARAMETERS, names.EVENT_RUN_END):
        if not counts[event]:
            yield f"the log record {event} is missing"


def _blob_problems(witness: Witness, run: Run) -> Iterator[str]:
    expected = Counter({("image", name): count for name, count in witness.images.items()})
    expected += Counter(("table", name) for name in witness.tables) + Counter(("file", name) for name in witness.files)
    found = Counter((row["kind"], row["name"]) for row in run.blobs)
    for (kind, name), count in (expected - found).items():
        yield f"{count} log records of the {kind} {name!r} are missing"
    for row in run.blobs:
        what = f"the {row['kind']} {row['name']!r}"
        if row["outcome"] != names.OUTCOME_STORED:
            yield f"{what} was not stored ({row['outcome']})"
            continue
        if not row["uri"].startswith("file:"):
            # The store has checked what it took; the model is read back all the same.
            continue
        path = Path(parse_file_store(row["uri"]))
        if not path.is_file():
            yield f"{what} is missing: there is no {path}"
        elif (digest := f"sha256:{sha256_file(path)}") != row["digest"]:
            yield f"{what} is damaged: {path} has the digest {digest}, its log record says {row['digest']}"
        elif row["kind"] == "image" and (damaged := _damaged_image(path)) is not None:
            yield f"{what} is damaged: {damaged} is not there as its index says"
        elif row["kind"] == "table" and not _same_table(path, *witness.tables[row["name"]]):
            yield f"{what} is not as logged: see {path}"
        elif row["kind"] == "file" and row["digest"] != f"sha256:{witness.files[row['name']]}":
            yield f"{what} is not the file that was uploaded: see {path}"


def _damaged_image(index: Path) -> Path | None:
    """Return an image or a mask of a gallery that is not what its index says, or None."""
    store = index.parent.parent.parent
    for image in json.loads(index.read_bytes())["images"]:
        for blob in (image, *image["masks"], *(mask["overlay"] for mask in image["masks"])):
            path = store / str(blob["path"])
            if not path.is_file() or f"sha256:{sha256_file(path)}" != blob["digest"]:
                return path
    return None


def _same_table(path: Path, columns: list[str], rows: list[list[Any]]) -> bool:
    with path.open("rb") as file:
        read_columns, read_rows = read_table(file)
    return [list(read_columns), *map(list, read_rows)] == [columns, *rows]


def _span_problems(witness: Witness, run: Run) -> Iterator[str]:
    expected = Counter([*witness.spans, names.SPAN_RUN])
    for name, count in (expected - Counter(run.spans["name"])).items():
        yield f"{count} of {expected[name]} spans {name!r} are missing"


def _trace_problems(witness: Witness, run: Run, launch: Launch) -> Iterator[str]:
    """Look for what `log_traces` got where the settings send it: to span events, to log records, or to both."""
    routes, mode = launch.routes, launch.settings.trace_events
    has_spans = routes.traces.destination is not Destination.NONE
    expected = Counter((name, _text(value)) for name, value in witness.traces)
    if mode != "log" and routes.traces.destination is Destination.KEEP:
        events = [event for span in run.spans for event in span["events"]]
        found = Counter((event["name"], _text(event["attributes"].get(names.TRACE_VALUE))) for event in events)
        if missing := expected - found:
            yield f"{missing.total()} of {expected.total()} traces are missing among the events of spans"
    if (mode != "span" or not has_spans) and routes.logs.destination is Destination.KEEP:
        records = run.events.where(name=names.EVENT_TRACE)
        found = Counter((row["attributes"][names.TRACE_NAME], _text(row["body"])) for row in records)
        if missing := expected - found:
            yield f"{missing.total()} of {expected.total()} traces are missing among the log records"


def _text(value: Any) -> str:
    # A span event holds what is nested as JSON, a log record as it is.
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)
