"""Every name that otel_logger gives to data, and how a key becomes the name of a metric.

The table for readers is docs/conventions.md. Dashboards and tests take names from here and from nowhere else.
"""

import hashlib
import re
from typing import Final

from otel_logger._version import __version__

__all__ = [
    "BLOB_DIGEST",
    "BLOB_DURATION",
    "BLOB_MEDIA_TYPE",
    "BLOB_OUTCOME",
    "BLOB_REASON",
    "BLOB_REPLACED_ATTEMPT",
    "BLOB_SIZE",
    "BLOB_URI",
    "CODE_FILE_PATH",
    "CODE_FUNCTION_NAME",
    "CODE_LINE_NUMBER",
    "CODE_STACKTRACE",
    "EPOCH",
    "EVALUATOR",
    "EVENT_EXCEPTION",
    "EVENT_FILE",
    "EVENT_HYPERPARAMETERS",
    "EVENT_IMAGE",
    "EVENT_RUN_END",
    "EVENT_RUN_START",
    "EVENT_TABLE",
    "EVENT_TRACE",
    "EVENT_VALUES",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "FILE_NAME",
    "FILE_SIZE",
    "HPARAMS_ADDED",
    "HPARAMS_CHANGED",
    "HPARAMS_COUNT",
    "HPARAMS_EVENT_ONLY",
    "HPARAMS_PART",
    "HPARAMS_PARTS",
    "HPARAMS_PREVIOUS",
    "HPARAMS_REDACTED",
    "HPARAMS_REMOVED",
    "HPARAM_INFO",
    "HPARAM_KEY",
    "HPARAM_PREFIX",
    "HPARAM_VALUE",
    "IMAGE_COUNT",
    "IMAGE_HEIGHT",
    "IMAGE_INDEX",
    "IMAGE_URIS",
    "IMAGE_WIDTH",
    "LAST_STEP_TIMESTAMP",
    "LOCAL_RANK",
    "LOG_RECORD_UID",
    "LONGEST_NAME",
    "MASK_ENCODINGS",
    "MASK_LABELS",
    "MASK_NAMES",
    "MASK_URIS",
    "METRIC_KEY",
    "NAME",
    "NODE_RANK",
    "OUTCOME_CONFLICT",
    "OUTCOME_FAILED",
    "OUTCOME_FINISHED",
    "OUTCOME_INTERRUPTED",
    "OUTCOME_LOST",
    "OUTCOME_PREEMPTED",
    "OUTCOME_STORED",
    "OUTCOME_SUPERSEDED",
    "OVERLAY_URIS",
    "PHASE",
    "PHASE_CHECKPOINT",
    "PHASE_COMPUTE",
    "PHASE_DATA",
    "PHASE_EVAL",
    "PHASE_OTHER",
    "PHASE_TIME",
    "POSITION_EPOCH",
    "POSITION_STEP",
    "PROCESS_PID",
    "PROGRESS",
    "RANK",
    "RESTART_COUNT",
    "RUN_ATTEMPT",
    "RUN_DURATION",
    "RUN_ID",
    "RUN_INFO",
    "RUN_NAME",
    "RUN_OUTCOME",
    "RUN_PARENT_ID",
    "RUN_REASON",
    "SCHEMA_URL",
    "SCOPE_NAME",
    "SCOPE_VERSION",
    "SELF_ADJUSTED",
    "SELF_AGE",
    "SELF_BLOB_AGE",
    "SELF_BLOB_FAILED",
    "SELF_BLOB_RETRIES",
    "SELF_BLOB_SIZE",
    "SELF_BLOB_STORED",
    "SELF_BLOB_WAITING",
    "SELF_BLOB_WAITING_SIZE",
    "SELF_COALESCED",
    "SELF_DELIVERED",
    "SELF_DROPPED",
    "SELF_REASON",
    "SELF_RECORDED",
    "SELF_REFUSED",
    "SELF_SIGNAL",
    "SELF_SIZE",
    "SELF_WAITING",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_RESTART_COUNT",
    "SLURM_STEP_ID",
    "SPAN_BACKWARD",
    "SPAN_BATCH",
    "SPAN_CHECKPOINT",
    "SPAN_DATA",
    "SPAN_EPOCH",
    "SPAN_EVAL",
    "SPAN_FIT",
    "SPAN_FORWARD",
    "SPAN_PART",
    "SPAN_PREDICT",
    "SPAN_RUN",
    "SPAN_UPLOAD",
    "STATE",
    "STATE_CHECKPOINTING",
    "STATE_EVALUATING",
    "STATE_STARTING",
    "STATE_TRAINING",
    "STEP",
    "STEP_UNIT",
    "TABLE_COLUMNS",
    "TABLE_ROWS",
    "THREAD_NAME",
    "TRACE_NAME",
    "TRACE_VALUE",
    "URL_FULL",
    "WORLD_SIZE",
    "WRITER_ID",
    "metric_name",
]

SCOPE_NAME: Final = "otel_logger"
SCOPE_VERSION: Final = __version__
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of OpenTelemetry's conventions whose names are used beside ours: `host.name`, `exception.message`."""

RUN_ID: Final = "training.run.id"
RUN_NAME: Final = "training.run.name"
RUN_ATTEMPT: Final = "training.run.attempt"
RUN_PARENT_ID: Final = "training.run.parent.id"
RUN_OUTCOME: Final = "training.run.outcome"
RUN_DURATION: Final = "training.run.duration"
RUN_REASON: Final = "training.run.reason"
RESTART_COUNT: Final = "training.restart_count"
RANK: Final = "training.rank"
LOCAL_RANK: Final = "training.local_rank"
NODE_RANK: Final = "training.node_rank"
WORLD_SIZE: Final = "training.world_size"
WRITER_ID: Final = "training.writer.id"
HPARAM_PREFIX: Final = "training.hparam."

SLURM_JOB_ID: Final = "training.slurm.job.id"
SLURM_JOB_NAME: Final = "training.slurm.job.name"
SLURM_JOB_PARTITION: Final = "training.slurm.job.partition"
SLURM_JOB_NODELIST: Final = "training.slurm.job.nodelist"
SLURM_JOB_RESTART_COUNT: Final = "training.slurm.job.restart_count"
SLURM_STEP_ID: Final = "training.slurm.step.id"
SLURM_CLUSTER_NAME: Final = "training.slurm.cluster.name"
SLURM_ARRAY_JOB_ID: Final = "training.slurm.array.job.id"
SLURM_ARRAY_TASK_ID: Final = "training.slurm.array.task.id"

METRIC_KEY: Final = "training.metric.key"
STEP: Final = "training.step"
STEP_UNIT: Final = "{step}"

EVENT_RUN_START: Final = "training.run.start"
EVENT_RUN_END: Final = "training.run.end"
EVENT_HYPERPARAMETERS: Final = "training.hyperparameters"
EVENT_VALUES: Final = "training.values"
EVENT_IMAGE: Final = "training.image"
EVENT_TABLE: Final = "training.table"
EVENT_FILE: Final = "training.file"
EVENT_TRACE: Final = "training.trace"

POSITION_STEP: Final = "training.position.step"
POSITION_EPOCH: Final = "training.position.epoch"
PROGRESS: Final = "training.progress"
LAST_STEP_TIMESTAMP: Final = "training.last_step.timestamp"
STATE: Final = "training.state"
RUN_INFO: Final = "training.run.info"
HPARAM_INFO: Final = "training.hparam.info"
HPARAM_KEY: Final = "training.hyperparameter.key"
HPARAM_VALUE: Final = "training.hyperparameter.value"
HPARAMS_COUNT: Final = "training.hyperparameters.count"
HPARAMS_EVENT_ONLY: Final = "training.hyperparameters.event_only"
HPARAMS_PART: Final = "training.hyperparameters.part"
HPARAMS_PARTS: Final = "training.hyperparameters.parts"
HPARAMS_PREVIOUS: Final = "training.hyperparameters.previous_attempt"
HPARAMS_ADDED: Final = "training.hyperparameters.added"
HPARAMS_REMOVED: Final = "training.hyperparameters.removed"
HPARAMS_CHANGED: Final = "training.hyperparameters.changed"
HPARAMS_REDACTED: Final = "training.hyperparameters.redacted"
PHASE_TIME: Final = "training.phase.time"
PHASE: Final = "training.phase"

NAME: Final = "training.name"
BLOB_URI: Final = "training.blob.uri"
URL_FULL: Final = "url.full"
FILE_NAME: Final = "file.name"
FILE_SIZE: Final = "file.size"
BLOB_DIGEST: Final = "training.blob.digest"
BLOB_SIZE: Final = "training.blob.size"
BLOB_MEDIA_TYPE: Final = "training.blob.media_type"
BLOB_OUTCOME: Final = "training.blob.outcome"
BLOB_REASON: Final = "training.blob.reason"
BLOB_DURATION: Final = "training.blob.duration"
BLOB_REPLACED_ATTEMPT: Final = "training.blob.replaced.attempt"
IMAGE_COUNT: Final = "training.image.count"
IMAGE_INDEX: Final = "training.image.index"
IMAGE_WIDTH: Final = "training.image.width"
IMAGE_HEIGHT: Final = "training.image.height"
IMAGE_URIS: Final = "training.image.uris"
MASK_NAMES: Final = "training.mask.names"
MASK_URIS: Final = "training.mask.uris"
MASK_ENCODINGS: Final = "training.mask.encodings"
MASK_LABELS: Final = "training.mask.labels"
OVERLAY_URIS: Final = "training.mask.overlay.uris"
TABLE_ROWS: Final = "training.table.rows"
TABLE_COLUMNS: Final = "training.table.columns"
TRACE_NAME: Final = "training.trace.name"
TRACE_VALUE: Final = "training.trace.value"
EPOCH: Final = "training.epoch"
EVALUATOR: Final = "training.evaluator"

LOG_RECORD_UID: Final = "log.record.uid"
PROCESS_PID: Final = "process.pid"
CODE_FILE_PATH: Final = "code.file.path"
CODE_FUNCTION_NAME: Final = "code.function.name"
CODE_LINE_NUMBER: Final = "code.line.number"
CODE_STACKTRACE: Final = "code.stacktrace"
THREAD_NAME: Final = "thread.name"
EVENT_EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

SPAN_RUN: Final = "training.run"
SPAN_FIT: Final = "training.fit"
SPAN_EPOCH: Final = "training.epoch"
SPAN_BATCH: Final = "training.batch"
SPAN_EVAL: Final = "training.eval"
SPAN_PREDICT: Final = "training.predict"
SPAN_DATA: Final = "training.data"
SPAN_FORWARD: Final = "training.forward"
SPAN_BACKWARD: Final = "training.backward"
SPAN_CHECKPOINT: Final = "training.checkpoint"
SPAN_UPLOAD: Final = "training.upload"
SPAN_PART: Final = "training.span.part"

PHASE_DATA: Final = "data"
PHASE_COMPUTE: Final = "compute"
PHASE_EVAL: Final = "eval"
PHASE_CHECKPOINT: Final = "checkpoint"
PHASE_OTHER: Final = "other"

STATE_STARTING: Final = "starting"
STATE_TRAINING: Final = "training"
STATE_EVALUATING: Final = "evaluating"
STATE_CHECKPOINTING: Final = "checkpointing"

OUTCOME_FINISHED: Final = "finished"
OUTCOME_FAILED: Final = "failed"
OUTCOME_INTERRUPTED: Final = "interrupted"
OUTCOME_PREEMPTED: Final = "preempted"
OUTCOME_LOST: Final = "lost"
OUTCOME_STORED: Final = "stored"
OUTCOME_SUPERSEDED: Final = "superseded"
OUTCOME_CONFLICT: Final = "conflict"

SELF_RECORDED: Final = "otel_logger.items.recorded"
SELF_DELIVERED: Final = "otel_logger.items.delivered"
SELF_REFUSED: Final = "otel_logger.items.refused"
SELF_WAITING: Final = "otel_logger.items.waiting"
SELF_DROPPED: Final = "otel_logger.items.dropped"
SELF_ADJUSTED: Final = "otel_logger.items.adjusted"
SELF_COALESCED: Final = "otel_logger.items.coalesced"
SELF_BLOB_STORED: Final = "otel_logger.blob.stored"
SELF_BLOB_SIZE: Final = "otel_logger.blob.size"
SELF_BLOB_FAILED: Final = "otel_logger.blob.failed"
SELF_BLOB_RETRIES: Final = "otel_logger.blob.retries"
SELF_BLOB_WAITING: Final = "otel_logger.blob.waiting"
SELF_BLOB_WAITING_SIZE: Final = "otel_logger.blob.waiting_size"
SELF_BLOB_AGE: Final = "otel_logger.blob.age"
SELF_SIZE: Final = "otel_logger.journal.size"
SELF_AGE: Final = "otel_logger.journal.age"
SELF_SIGNAL: Final = "otel_logger.signal"
SELF_REASON: Final = "otel_logger.reason"

LONGEST_NAME: Final = 255
"""Characters of an instrument's name at most: OpenTelemetry API, "Instrument name syntax"."""

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_./\-]")
_NOT_IN_PROMETHEUS = re.compile(r"[^a-z0-9]+")
_RESERVED_PREFIXES = ("training_", "otel_", "scrape_")
_RESERVED_NAMES = frozenset({"target_info", "up"})


def metric_name(key: str) -> str:
    """Return the name of the metric that carries `key`; the key itself travels as `training.metric.key`.

    The name is the key where OpenTelemetry allows it. Other characters become `_`, a first character that is no
    letter gets `m_` before it, a name of over 255 characters is cut and ends in eight hex digits of the key's digest,
    and the empty key is `user.empty`. A key that a backend would fold into a name of ours or its own (`training.*`,
    `otel.*`, `otel_logger.*`, `target_info`, `up`, `scrape_*`) gets the prefix `user.`. Stateless: one key has one
    name in every process.
    """
    if not key:
        return "user.empty"
    name = _NOT_ALLOWED.sub("_", key)
    folded = _NOT_IN_PROMETHEUS.sub("_", name.lower())
    if folded in _RESERVED_NAMES or folded.startswith(_RESERVED_PREFIXES):
        name = f"user.{name}"
    elif not name[0].isalpha():
        name = f"m_{name}"
    if len(name) > LONGEST_NAME:
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: LONGEST_NAME - 9]}_{digest}"
    return name
