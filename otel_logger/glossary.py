"""The glossary: what each name of the conventions is, what it is carried by, and what others call the same.

tools/conventions_page.py writes the tables of docs/conventions.md from here and from `attribute_glossary`, and tests
hold what is recorded against it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from otel_logger import conventions as names

__all__ = [
    "EVENTS",
    "EVERY_EVENT",
    "EVERY_SPAN",
    "METRICS",
    "PROGRAM_LOG",
    "RESOURCE",
    "SPANS",
    "SPAN_EVENTS",
    "Entry",
    "Kind",
    "places",
]


class Kind(Enum):
    """What a name is the name of."""

    GAUGE = "gauge"
    SUM = "sum, monotonic"
    EVENT = "event"
    SPAN = "span"
    SPAN_EVENT = "span event"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name.

    `unit` is UCUM as OpenTelemetry writes it, `cardinality` how many series a metric has or how many values an
    attribute, `synonym` the nearest name of OpenTelemetry's or NVIDIA's, `carries` the attributes that it may have,
    `values` the only ones that an attribute may have, `body` what an event has as its body.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    cardinality: str = ""
    synonym: str = ""
    carries: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    body: str = ""


def _gauge(name: str, unit: str, cardinality: str, meaning: str, **rest: Any) -> Entry:
    return Entry(name, Kind.GAUGE, meaning, unit=unit, cardinality=cardinality, **rest)


def _sum(name: str, unit: str, cardinality: str, meaning: str, **rest: Any) -> Entry:
    return Entry(name, Kind.SUM, meaning, unit=unit, cardinality=cardinality, **rest)


def _event(name: str, meaning: str, **rest: Any) -> Entry:
    return Entry(name, Kind.EVENT, meaning, **rest)


def _span(name: str, meaning: str, **rest: Any) -> Entry:
    return Entry(name, Kind.SPAN, meaning, **rest)


_BY_SIGNAL = (names.SELF_SIGNAL,)
_BY_REASON = (names.SELF_REASON,)
_A_PROCESS = "1 per process"
_A_RUN = "1 per run"
_A_SIGNAL = "3 per process"

METRICS: Final = (
    _gauge(
        names.STEP,
        names.STEP_UNIT,
        "1 per key",
        "the step of the value of the same key and time; absent when the call had none",
        synonym="`nv.dl.training.step`, an attribute there",
        carries=(names.METRIC_KEY,),
    ),
    _gauge(
        names.POSITION_STEP,
        names.STEP_UNIT,
        _A_PROCESS,
        "where the training is: batches done; without a trainer the last step that was logged",
        synonym="`nv.dl.training.step`, an attribute there",
    ),
    _gauge(names.POSITION_EPOCH, "{epoch}", _A_PROCESS, "where the trainer is: epochs done"),
    _gauge(
        names.PROGRESS,
        "1",
        _A_PROCESS,
        "how much of the training is done, from 0 to 1; absent when its duration is not known",
    ),
    _gauge(names.LAST_STEP_TIMESTAMP, "s", _A_PROCESS, "when the last step was done, in seconds since 1970"),
    _sum(names.PHASE_TIME, "s", "5 per process", "time spent in each phase of the training", carries=(names.PHASE,)),
    _gauge(
        names.STATE,
        "",
        "1 per state and process",
        "1 for the state that the run is in, 0 for the others",
        synonym="`cicd.pipeline.run.state`",
        carries=(names.STATE,),
    ),
    _gauge(
        names.RUN_INFO,
        "",
        _A_PROCESS,
        "always 1: the run's identity, to join with on `job` and `instance`",
        carries=(names.RUN_ID, names.RUN_NAME, names.RUN_ATTEMPT, names.RANK, names.WORLD_SIZE),
    ),
    _gauge(
        names.HPARAM_INFO,
        "",
        "1 per hyperparameter",
        "always 1: a hyperparameter, for tables",
        carries=(names.HPARAM_KEY, names.HPARAM_VALUE),
    ),
    _sum(
        names.SELF_RECORDED,
        "{item}",
        _A_SIGNAL,
        "metric values, log records and spans that calls recorded",
        synonym="`otel.sdk.log.created`, `otel.sdk.span.started`",
        carries=_BY_SIGNAL,
    ),
    _sum(
        names.SELF_DELIVERED,
        "{item}",
        _A_SIGNAL,
        "of these, acknowledged by the endpoint",
        synonym="`otel.sdk.exporter.log.exported` and its like",
        carries=_BY_SIGNAL,
    ),
    _sum(
        names.SELF_REFUSED,
        "{item}",
        _A_SIGNAL,
        "of these, not taken by the endpoint",
        synonym="`otel.sdk.exporter.log.exported` with `error.type`",
        carries=_BY_SIGNAL,
    ),
    _gauge(
        names.SELF_WAITING,
        "{item}",
        _A_SIGNAL,
        "of these, waiting for the endpoint",
        synonym="`otel.sdk.processor.log.queue.size`",
        carries=_BY_SIGNAL,
    ),
    _sum(
        names.SELF_DROPPED,
        "{item}",
        "1 per reason that occurred",
        "lost, by reason",
        synonym="`otel.sdk.processor.log.processed` with `error.type`",
        carries=_BY_REASON,
    ),
    _sum(
        names.SELF_ADJUSTED,
        "{item}",
        "1 per reason that occurred",
        "recorded otherwise than given, or by way of memory",
        carries=_BY_REASON,
    ),
    _sum(
        names.SELF_COALESCED,
        "{item}",
        _A_PROCESS,
        "values that gave way to a later one of the same series and millisecond",
    ),
    _sum(names.SELF_BLOB_STORED, "{blob}", _A_PROCESS, "images, tables and files that were stored"),
    _sum(names.SELF_BLOB_SIZE, "By", _A_PROCESS, "bytes of those"),
    _sum(names.SELF_BLOB_FAILED, "{blob}", _A_PROCESS, "images, tables and files that could not be stored as asked"),
    _sum(names.SELF_BLOB_RETRIES, "{attempt}", _A_PROCESS, "attempts to store that failed, and are made again"),
    _gauge(names.SELF_BLOB_WAITING, "{blob}", _A_PROCESS, "what is on disk to be stored"),
    _gauge(names.SELF_BLOB_WAITING_SIZE, "By", _A_PROCESS, "bytes of that"),
    _gauge(names.SELF_BLOB_AGE, "s", _A_PROCESS, "age of what has waited longest for the store, 0 when nothing waits"),
    _gauge(
        names.SELF_SIZE,
        "By",
        _A_PROCESS,
        "bytes of the journals in the writer's folder",
        synonym="`otel.sdk.processor.log.queue.size`, in records there",
    ),
    _gauge(names.SELF_AGE, "s", _A_PROCESS, "age of what has waited longest for the endpoint, 0 when nothing waits"),
)
"""The metrics of otel_logger's own; each other one is a key's."""

RESOURCE: Final = (
    "service.name",
    "service.instance.id",
    names.RUN_ID,
    names.RUN_NAME,
    names.RUN_ATTEMPT,
    names.RUN_PARENT_ID,
    names.RANK,
    names.LOCAL_RANK,
    names.NODE_RANK,
    names.WORLD_SIZE,
    names.RESTART_COUNT,
    names.WRITER_ID,
    f"{names.HPARAM_PREFIX}*",
    "host.name",
    names.PROCESS_PID,
    names.SLURM_JOB_ID,
    names.SLURM_JOB_NAME,
    names.SLURM_JOB_PARTITION,
    names.SLURM_JOB_NODELIST,
    names.SLURM_JOB_RESTART_COUNT,
    names.SLURM_STEP_ID,
    names.SLURM_CLUSTER_NAME,
    names.SLURM_ARRAY_JOB_ID,
    names.SLURM_ARRAY_TASK_ID,
    "k8s.cluster.name",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.pod.label.batch.kubernetes.io/job-completion-index",
    "k8s.container.name",
    "k8s.job.name",
    "k8s.job.uid",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
)
"""What a resource may have, apart from what the user has put there."""

EVERY_EVENT: Final = (
    names.LOG_RECORD_UID,
    names.PROCESS_PID,
    names.RANK,
    names.RUN_ID,
    names.RUN_NAME,
    names.RUN_ATTEMPT,
    names.STEP,
)
"""What every log record may have, those of the program included."""

_EXCEPTION = (names.EXCEPTION_TYPE, names.EXCEPTION_MESSAGE, names.EXCEPTION_STACKTRACE)

PROGRAM_LOG: Final = (
    names.CODE_FILE_PATH,
    names.CODE_LINE_NUMBER,
    names.CODE_FUNCTION_NAME,
    names.CODE_STACKTRACE,
    names.THREAD_NAME,
    *_EXCEPTION,
)
"""What a log record of the program may have besides, apart from the `extra` that the program gives."""

_BLOB = (
    names.NAME,
    names.BLOB_URI,
    names.URL_FULL,
    names.BLOB_DIGEST,
    names.BLOB_SIZE,
    names.BLOB_MEDIA_TYPE,
    names.BLOB_OUTCOME,
    names.BLOB_REASON,
    names.BLOB_DURATION,
    names.EPOCH,
)

_MASKS = (names.MASK_NAMES, names.MASK_LABELS)

EVENTS: Final = (
    _event(names.EVENT_RUN_START, "the run begins; again once it is known which run it is"),
    _event(
        names.EVENT_RUN_END,
        "the run ends",
        carries=(names.RUN_OUTCOME, names.RUN_DURATION, names.RUN_REASON, *_EXCEPTION),
    ),
    _event(
        names.EVENT_HYPERPARAMETERS,
        "hyperparameters were logged; a large set is divided between several records",
        body="all hyperparameters so far, nested as logged",
        carries=(
            names.HPARAMS_COUNT,
            names.HPARAMS_EVENT_ONLY,
            names.HPARAMS_PART,
            names.HPARAMS_PARTS,
            names.HPARAMS_PREVIOUS,
            names.HPARAMS_ADDED,
            names.HPARAMS_REMOVED,
            names.HPARAMS_CHANGED,
            names.HPARAMS_REDACTED,
        ),
    ),
    _event(names.EVENT_VALUES, "what a call of `log_metrics` got that is no number", body="that, by key"),
    _event(
        names.EVENT_TRACE, "an entry of `log_traces` as a log record", body="its value", carries=(names.TRACE_NAME,)
    ),
    _event(
        names.EVENT_IMAGE,
        "an image was stored with its masks, or several as a gallery, or could not be",
        body="a thumbnail as data URI, masks beside it; of a gallery 16 of its images",
        carries=(
            names.IMAGE_INDEX,
            names.IMAGE_COUNT,
            names.IMAGE_WIDTH,
            names.IMAGE_HEIGHT,
            names.IMAGE_URIS,
            names.MASK_URIS,
            names.MASK_ENCODINGS,
            names.OVERLAY_URIS,
            *_MASKS,
            *_BLOB,
        ),
    ),
    _event(
        names.EVENT_TABLE,
        "a table was stored, or could not be",
        body="its first rows as JSON lines, up to 8 KiB",
        carries=(names.TABLE_ROWS, names.TABLE_COLUMNS, *_BLOB),
    ),
    _event(
        names.EVENT_FILE,
        "a file was stored, or could not be",
        carries=(names.FILE_NAME, names.FILE_SIZE, names.BLOB_REPLACED_ATTEMPT, *_BLOB),
    ),
)

EVERY_SPAN: Final = (names.SPAN_PART,)
"""What every span may have, those of the user included."""

_POSITION = (names.EPOCH, names.STEP)
_EVALUATION = (names.EVALUATOR, names.STEP)

SPANS: Final = (
    _span(
        names.SPAN_RUN,
        "short, at the first metric or the beginning of the fit",
        synonym="`application` of NVIDIA's one-logger",
        carries=(names.RUN_ID, names.RUN_NAME, names.RUN_ATTEMPT, names.RANK),
    ),
    _span(names.SPAN_FIT, "a fit", synonym="`training_loop` of one-logger", carries=_POSITION),
    _span(
        names.SPAN_EPOCH,
        "an epoch; a trace of its own, linked to the fit's",
        synonym="`nv.dl.training.iter_block`",
        carries=_POSITION,
    ),
    _span(names.SPAN_BATCH, "a batch, thinned", synonym="`nv.dl.training.iteration`", carries=_POSITION),
    _span(names.SPAN_DATA, "loading a batch", synonym="`data_loading` of one-logger", carries=_POSITION),
    _span(
        names.SPAN_FORWARD,
        "the forward pass of a batch",
        synonym="`nv.dl.training.iteration.forward_backward`",
        carries=_POSITION,
    ),
    _span(
        names.SPAN_BACKWARD,
        "the backward pass of a batch",
        synonym="`nv.dl.training.iteration.forward_backward`",
        carries=_POSITION,
    ),
    _span(names.SPAN_EVAL, "an evaluation", synonym="`nv.dl.training.evaluate`", carries=_EVALUATION),
    _span(names.SPAN_PREDICT, "a prediction", carries=_EVALUATION),
    _span(names.SPAN_CHECKPOINT, "saving a checkpoint", synonym="`nv.dl.training.checkpoint.save`", carries=_POSITION),
    _span(names.SPAN_UPLOAD, "storing a file", carries=(names.NAME, names.STEP, names.BLOB_SIZE, names.BLOB_OUTCOME)),
)
"""The trainer's spans; each other one has the name that `OTelLogger.span` was given, and the attributes."""

SPAN_EVENTS: Final = (
    Entry(names.EVENT_EXCEPTION, Kind.SPAN_EVENT, "an exception came out of the span", carries=_EXCEPTION),
)
"""The span events of otel_logger's own; each other one is an entry of `log_traces`, named by its key."""


def places(attribute: str) -> list[str]:
    """Return what carries an attribute, by name or as a group."""
    groups = [
        place
        for place, carried in (
            ("resource", RESOURCE),
            ("all events", EVERY_EVENT),
            ("program logs", PROGRAM_LOG),
            ("all spans", EVERY_SPAN),
        )
        if attribute in carried
    ]
    if attribute == names.METRIC_KEY:
        groups.append("metrics of keys")
    if attribute in (names.TRACE_VALUE, names.STEP):
        groups.append("span events of `log_traces`")
    return groups + [
        f"`{entry.name}`" for entry in (*METRICS, *EVENTS, *SPANS, *SPAN_EVENTS) if attribute in entry.carries
    ]
