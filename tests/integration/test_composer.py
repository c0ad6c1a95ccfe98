"""The example with real Composer: all that it logs arrives, once and whole, at a real Collector or in a folder."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from collector import Collector
from facts import Facts, RecordFact, SpanFact, facts_of_folder, facts_received

from otel_logger import conventions as names
from otel_logger import read_run
from otel_logger.table_files import read_table

pytestmark = pytest.mark.composer

WITNESS = Path(__file__).with_name("witness.py")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "composer_digits.py"

EPOCHS = 2
BATCHES = 24
STEPS = range(EPOCHS * BATCHES)
# In fit() every tenth step, and once more after it, as the last is no tenth.
EVALUATIONS = (10, 20, 30, 40, 48)

# More than there are, so that each batch has its span.
ALL_BATCH_SPANS = "1000000"

# Longer than the interval in which data is sent: what waits for hyperparameters must wait for them all.
PAUSE_SECONDS = 5.0
PROGRAM_SECONDS = 150


@pytest.mark.collector
def test_everything_arrives_over_grpc(collector: Collector, tmp_path: Path) -> None:
    """A process of its own, which pauses before fit() and ends without closing anything, is at the Collector whole."""
    environ = os.environ | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_LOGGER_BATCH_SPANS": ALL_BATCH_SPANS,
    }

    done = run_program([str(WITNESS), "notes.json", str(PAUSE_SECONDS)], tmp_path, environ)

    received = collector.stop_and_read()
    check_everything(facts_received(received), read_notes(tmp_path))
    check_resources_of_logs([record.resource for record in received.logs])
    assert "delivered" in done.stderr
    assert "lost" not in done.stderr
    (folder,) = (tmp_path / "otel_logs").glob("digits-*")
    assert 0 == len(read_run(folder).metrics), "what is acknowledged is not kept"


@pytest.mark.collector
def test_everything_arrives_over_http(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that is closed is at the Collector whole."""
    monkeypatch.chdir(tmp_path)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.http_endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}

    run_here(tmp_path, endpoint | {"OTEL_LOGGER_BATCH_SPANS": ALL_BATCH_SPANS})

    received = collector.stop_and_read()
    check_everything(facts_received(received), read_notes(tmp_path))
    check_resources_of_logs([record.resource for record in received.logs])


def test_everything_is_kept_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an endpoint the run's folder holds the very facts that a Collector would have received."""
    monkeypatch.chdir(tmp_path)

    folder = run_here(tmp_path, {"OTEL_LOGGER_BATCH_SPANS": ALL_BATCH_SPANS})

    run = read_run(folder)
    check_everything(facts_of_folder(run), notes := read_notes(tmp_path))
    assert flat(notes["hyperparameters"]) == {row["key"]: row["value"] for row in run.hyperparameters}
    assert Counter(image=len(notes["images"]), table=5, file=4) == Counter(run.blobs["kind"])
    assert ["finished"] == run.writers["outcome"]


def test_traces_of_batches_without_a_span_are_log_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one batch span a second, as it is by default, the traces of all other batches are log records; none lost."""
    monkeypatch.chdir(tmp_path)

    facts = facts_of_folder(read_run(run_here(tmp_path, {})))

    check_traces(facts, read_notes(tmp_path))
    with_span = {span.attributes[names.STEP] for span in facts.spans_named(names.SPAN_BATCH)}
    as_records = {record.attributes[names.STEP] for record in facts.records_named(names.EVENT_TRACE)}
    assert 0 in with_span
    assert set(STEPS) - with_span == as_records, "either a span or records, never both"


def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    """As users start it, the example trains, says where its data is when it starts and ends, and leaves a whole run."""
    done = run_program([str(EXAMPLE)], tmp_path, dict(os.environ))

    (folder,) = (tmp_path / "otel_logs").glob("digits-*")
    run = read_run(folder)
    assert ["finished"] == run.writers["outcome"]
    assert list(STEPS) == run.metrics.where(key="loss/train/total")["step"]
    assert {"file", "image", "table"} == set(run.blobs["kind"])
    first, last = (line for line in done.stderr.splitlines() if line.startswith("otel_logger: "))
    assert "kept in otel_logs" in first
    assert f"{len(run.metrics)} values" in last
    assert f"kept in otel_logs{os.sep}{folder.name}" in last


def run_program(arguments: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in a folder; returns its end, which is a good one."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done


def run_here(folder: Path, environ: dict[str, str]) -> Path:
    """Runs the example beside witnesses in this process; returns the run's folder."""
    import witness

    trainer = witness.run_digits(
        folder / "notes.json", pause=0, environ={"OTEL_LOGGER_DIR": str(folder / "otel_logs"), **environ}
    )
    trainer.close()
    (log,) = (each for each in trainer.logger.destinations if isinstance(each, witness.OTelLogger))
    stats = log.stats()
    assert stats.is_complete, stats
    assert log.run_dir is not None
    return log.run_dir


def read_notes(folder: Path) -> dict[str, Any]:
    """What the witnesses noted."""
    notes: dict[str, Any] = json.loads((folder / "notes.json").read_text("utf-8"))
    return notes


def check_everything(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts that what was logged is there, once and as it was, and nothing else."""
    check_values(facts, notes)
    check_identity(facts, notes)
    check_spans(facts, notes)
    check_traces(facts, notes)
    check_blobs(facts, notes)
    check_records(facts, notes)


def check_values(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts that each key has the steps and values it was logged with, in that order, at the times of their calls."""
    windows = call_windows(notes["calls"])
    calls_of_key: dict[str, list[int]] = {}
    for number, call in enumerate(notes["calls"]):
        for key in call["keys"]:
            calls_of_key.setdefault(key, []).append(number)
    words = {key for key, of_key in notes["metrics"].items() if isinstance(of_key[0][1], str)}
    assert {"odd/word"} == words
    arrived: dict[str, list[Any]] = {}
    for value in sorted(facts.values, key=lambda value: value.time_ns):
        arrived.setdefault(value.key, []).append(value)

    assert set(notes["metrics"]) - words == set(arrived)
    times_of_calls: dict[int, set[int]] = {}
    for key, values in arrived.items():
        expected = [(step, comparable(value)) for step, value in notes["metrics"][key]]
        assert expected == [(value.step, comparable(value.value)) for value in values], key
        for value, call in zip(values, calls_of_key[key], strict=True):
            earliest, latest = windows[call]
            assert earliest <= value.time_ns <= latest, f"{value} is not of the time of its call"
            times_of_calls.setdefault(call, set()).add(value.time_ns)
    assert {1} == {len(times) for times in times_of_calls.values()}, "values of one call share its time"
    times = [min(times_of_calls[call]) for call in sorted(times_of_calls)]
    assert all(earlier < later for earlier, later in pairwise(times)), "no two calls share a time"


def call_windows(calls: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """For each call the earliest and the latest time it can have: whole milliseconds, no two the same."""
    windows = []
    latest = 0
    for call in calls:
        latest = max(call["left_ns"] // 1_000_000, latest + 1)
        windows.append((call["came_ns"] // 1_000_000 * 1_000_000, latest * 1_000_000))
    return windows


def check_identity(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts that all metrics and spans carry one resource: who wrote them, and every hyperparameter."""
    (resource,) = facts.resources
    run_id = resource[names.RUN_ID]
    writer = resource[names.WRITER_ID]
    assert {
        names.RUN_ID: run_id,
        names.RUN_NAME: "digits",
        names.RUN_ATTEMPT: 1,
        names.RANK: 0,
        names.LOCAL_RANK: 0,
        names.NODE_RANK: 0,
        names.WORLD_SIZE: 1,
        "service.name": "training",
        "service.instance.id": f"{run_id}/0/1/{writer}",
    }.items() <= resource.items()
    assert run_id.startswith("digits-")
    logged = flat(notes["hyperparameters"])
    assert {"composer_version", "optimizer.lr", "enabled_algorithms/LabelSmoothing"} < set(logged)
    assert {f"{names.HPARAM_PREFIX}{key}": value for key, value in logged.items()} == {
        key: value for key, value in resource.items() if key.startswith(names.HPARAM_PREFIX)
    }


def check_resources_of_logs(resources: list[dict[str, Any]]) -> None:
    """Asserts that log records carry identity and no hyperparameters; before it is settled the run's name is known."""
    for resource in resources:
        assert not [key for key in resource if key.startswith(names.HPARAM_PREFIX)]
        settled = f"{resource.get(names.RUN_ID)}/0/1/{resource[names.WRITER_ID]}"
        assert resource["service.instance.id"] in (settled, f"starting/{resource[names.WRITER_ID]}")
        assert "digits" == resource[names.RUN_NAME]


def check_spans(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts the tree of spans: the run's, fit in it, epochs with traces of their own, batches and evaluations."""
    (run,) = facts.spans_named(names.SPAN_RUN)
    assert "" == run.parent_span_id
    assert run.end_ns - run.start_ns < 1_000_000_000, "the run's span is short, so that it is seen at once"
    (fit,) = facts.spans_named(names.SPAN_FIT)
    assert is_child(fit, run)
    assert {names.EPOCH: 0, names.STEP: 0} == fit.attributes

    epochs = facts.spans_named(names.SPAN_EPOCH)
    assert [{names.EPOCH: epoch, names.STEP: epoch * BATCHES} for epoch in range(EPOCHS)] == [
        epoch.attributes for epoch in epochs
    ]
    assert 1 + EPOCHS == len({span.trace_id for span in (run, *epochs)})
    for before, epoch in zip((None, *epochs), epochs, strict=False):
        linked = [fit] if before is None else [fit, before]
        assert ("", tuple((span.trace_id, span.span_id) for span in linked)) == (epoch.parent_span_id, epoch.links)
        assert is_within(epoch, fit)

    batches = facts.spans_named(names.SPAN_BATCH)
    assert [{names.STEP: step, names.EPOCH: step // BATCHES} for step in STEPS] == [each.attributes for each in batches]
    for batch in batches:
        around = epochs[batch.attributes[names.EPOCH]]
        assert is_child(batch, around)
        assert is_within(batch, around)
    assert all(earlier.end_ns <= later.start_ns for earlier, later in pairwise(batches))
    for name in (names.SPAN_FORWARD, names.SPAN_BACKWARD):
        for part, batch in zip(facts.spans_named(name), batches, strict=True):
            assert is_child(part, batch)
            assert is_within(part, batch)

    # Composer asks for one batch more at the end of each epoch, and does not get it.
    loading = facts.spans_named(names.SPAN_DATA)
    asked = [*STEPS, *(BATCHES * (epoch + 1) for epoch in range(EPOCHS))]
    assert sorted(asked) == [span.attributes[names.STEP] for span in loading]
    for span in loading:
        around = epochs[span.attributes[names.EPOCH]]
        assert is_child(span, around)
        assert is_within(span, around)

    saving = facts.spans_named(names.SPAN_CHECKPOINT)
    assert [BATCHES * (epoch + 1) for epoch in range(EPOCHS)] == [span.attributes[names.STEP] for span in saving]
    uploads = facts.spans_named(names.SPAN_UPLOAD)
    assert [name for name, *_ in notes["files"]] == [span.attributes[names.NAME] for span in uploads]
    for number, span in enumerate(uploads):
        # A checkpoint, and the link to the latest.
        assert is_child(span, saving[number // 2])

    *in_fit, after_fit = facts.spans_named(names.SPAN_EVAL)
    assert [{names.EVALUATOR: "eval", names.STEP: step} for step in EVALUATIONS] == [
        each.attributes for each in (*in_fit, after_fit)
    ]
    for evaluation in in_fit:
        around = epochs[(evaluation.attributes[names.STEP] - 1) // BATCHES]
        assert is_child(evaluation, around)
        assert is_within(evaluation, around)
    assert is_child(after_fit, run), "Composer evaluates at the end of fit() after it"
    assert fit.end_ns <= after_fit.start_ns

    counted = 2 + EPOCHS + 3 * len(STEPS) + len(loading) + len(EVALUATIONS) + len(saving) + len(uploads)
    assert counted == len({span.span_id for span in facts.spans}) == len(facts.spans)
    for span in facts.spans:
        assert notes["started_ns"] <= span.start_ns <= span.end_ns <= notes["ended_ns"]


def check_traces(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts that each trace is there once: an event of its batch's span or, where that has none, a log record."""
    epochs = facts.spans_named(names.SPAN_EPOCH)
    arrived = []
    for span in facts.spans:
        for name, time_ns, attributes in span.events:
            assert (names.SPAN_BATCH, attributes[names.STEP]) == (span.name, span.attributes[names.STEP])
            assert span.start_ns <= time_ns <= span.end_ns
            assert {names.TRACE_VALUE, names.STEP} == set(attributes)
            arrived.append((name, attributes[names.TRACE_VALUE], attributes[names.STEP]))
    for record in facts.records_named(names.EVENT_TRACE):
        step = record.attributes[names.STEP]
        assert is_in(record, epochs[step // BATCHES])
        arrived.append((record.attributes[names.TRACE_NAME], record.body, step))
    assert 2 * len(STEPS) == len(notes["traces"])
    assert Counter(map(tuple, notes["traces"])) == Counter(arrived)


def check_blobs(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts that each image, table and file has one record, and that the blob it links to is what was logged."""
    evaluations = {span.attributes[names.STEP]: span for span in facts.spans_named(names.SPAN_EVAL)}

    images = facts.records_named(names.EVENT_IMAGE)
    assert Counter(map(tuple, notes["images"])) == Counter(
        tuple(record.attributes[key] for key in (names.NAME, names.STEP, names.IMAGE_COUNT)) for record in images
    )
    for record in images:
        count = record.attributes[names.IMAGE_COUNT]
        if count == 1:
            assert blob_of(record, "image/png").startswith(b"\x89PNG")
            assert (8, 8) == (record.attributes[names.IMAGE_WIDTH], record.attributes[names.IMAGE_HEIGHT])
        else:
            listed = json.loads(blob_of(record, "application/json"))["images"]
            assert [(8, 8)] * count == [(image["width"], image["height"]) for image in listed]
            assert [f"{image['path']}" for image in listed] == [
                "sha256" + uri.partition("/sha256")[2] for uri in record.attributes[names.IMAGE_URIS]
            ]
        assert ["taken for"] == list(record.attributes[names.MASK_NAMES])
        assert record.body.startswith("data:image/png;base64,")
        assert is_in(record, evaluations[record.attributes[names.STEP]])

    tables = facts.records_named(names.EVENT_TABLE)
    assert list(EVALUATIONS) == [step for _, step, _, _ in notes["tables"]]
    for record, (name, step, columns, rows) in zip(tables, notes["tables"], strict=True):
        assert (name, step) == (record.attributes[names.NAME], record.attributes[names.STEP])
        assert (columns, rows) == read_table(io.BytesIO(blob_of(record, "application/jsonl+gzip")))
        assert is_in(record, evaluations[step])

    files = facts.records_named(names.EVENT_FILE)
    last = {name: digest for name, _, digest, _ in notes["files"]}
    for record, (name, step, digest, size) in zip(files, notes["files"], strict=True):
        assert {
            names.NAME: name,
            names.STEP: step,
            names.BLOB_DIGEST: f"sha256:{digest}",
            names.BLOB_SIZE: size,
            names.BLOB_OUTCOME: names.OUTCOME_STORED,
        }.items() <= record.attributes.items()
        if last[name] == digest:
            blob_of(record, "text/plain" if name.endswith(".symlink") else "application/octet-stream")
    assert [24, 24, 48, 48] == [step for _, step, _, _ in notes["files"]]


def check_records(facts: Facts, notes: dict[str, Any]) -> None:
    """Asserts the start and end events, whose each log record is, and that none is there twice."""
    (resource,) = facts.resources
    identity = {key: resource[key] for key in (names.RUN_NAME, names.RANK)}
    settled = {key: resource[key] for key in (names.RUN_ID, names.RUN_ATTEMPT)}
    before, start = facts.records_named(names.EVENT_RUN_START)
    assert names.RUN_ID not in before.attributes, "said before the run's id is known, and again then"
    for record in facts.records:
        assert (identity if record is before else identity | settled).items() <= record.attributes.items()
        assert isinstance(record.attributes[names.PROCESS_PID], int)
        assert notes["started_ns"] <= record.time_ns <= notes["ended_ns"] + 1_000_000
    assert len(facts.records) == len({record.attributes[names.LOG_RECORD_UID] for record in facts.records})

    (end,) = facts.records_named(names.EVENT_RUN_END)
    assert names.OUTCOME_FINISHED == end.attributes[names.RUN_OUTCOME]
    assert names.RUN_REASON not in end.attributes
    assert len(STEPS) == end.attributes[names.STEP]
    assert 0 < end.attributes[names.RUN_DURATION] * 1e9 <= notes["ended_ns"] - notes["started_ns"]
    assert before.time_ns <= start.time_ns <= end.time_ns
    (hyperparameters,) = facts.records_named(names.EVENT_HYPERPARAMETERS)
    assert notes["hyperparameters"] == hyperparameters.body
    (words,) = facts.records_named(names.EVENT_VALUES)
    assert ({"odd/word": "text"}, len(STEPS)) == (words.body, words.attributes[names.STEP])
    known = {names.EVENT_RUN_START, names.EVENT_RUN_END, names.EVENT_HYPERPARAMETERS, names.EVENT_VALUES} | {
        names.EVENT_IMAGE,
        names.EVENT_TABLE,
        names.EVENT_FILE,
    }
    assert known == {record.name for record in facts.records}


def blob_of(record: RecordFact, media_type: str) -> bytes:
    """The bytes that a record links to; asserts that they are of the digest and size it states."""
    assert (media_type, names.OUTCOME_STORED) == (
        record.attributes[names.BLOB_MEDIA_TYPE],
        record.attributes[names.BLOB_OUTCOME],
    )
    uri = urlsplit(record.attributes[names.BLOB_URI])
    assert "file" == uri.scheme
    content = Path(unquote(uri.path)).read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == record.attributes[names.BLOB_DIGEST]
    assert len(content) == record.attributes[names.BLOB_SIZE]
    return content


def is_child(span: SpanFact, parent: SpanFact) -> bool:
    """Whether a span hangs below another, in the same trace."""
    return (parent.trace_id, parent.span_id) == (span.trace_id, span.parent_span_id)


def is_within(span: SpanFact, around: SpanFact) -> bool:
    """Whether a span begins and ends while another is open."""
    return around.start_ns <= span.start_ns <= span.end_ns <= around.end_ns


def is_in(record: RecordFact, span: SpanFact) -> bool:
    """Whether a log record was made in a span."""
    return (span.trace_id, span.span_id) == (record.trace_id, record.span_id)


def comparable(value: float | int) -> float | int | str:
    """A number that equals itself, NaN too."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested hyperparameters under keys joined with dots."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
