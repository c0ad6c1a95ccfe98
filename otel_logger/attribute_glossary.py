"""The glossary of attributes: what each attribute is, how many values it has, and what others call the same."""

from typing import Any, Final

from otel_logger import conventions as names
from otel_logger.glossary import Entry, Kind

__all__ = ["ATTRIBUTES"]


def _attribute(name: str, cardinality: str, meaning: str, **rest: Any) -> Entry:
    return Entry(name, Kind.ATTRIBUTE, meaning, cardinality=cardinality, **rest)


_A_PROCESS = "1 per process"
_A_RUN = "1 per run"

ATTRIBUTES: Final = (
    _attribute(
        names.METRIC_KEY,
        "1 per key",
        "the key given to `log_metrics`, whole",
        synonym="`nv.dl.training.objective.name`",
    ),
    _attribute(names.RUN_ID, _A_RUN, "which run", synonym="`nemo.run.id`, `cicd.pipeline.run.id`"),
    _attribute(names.RUN_NAME, _A_RUN, "what its user calls it", synonym="`cicd.pipeline.name`"),
    _attribute(names.RUN_ATTEMPT, "1 per restart", "which attempt at it; 1 is the first"),
    _attribute(names.RUN_PARENT_ID, _A_RUN, "the run that this one is a fork of, or whose checkpoint it began from"),
    _attribute(names.RANK, _A_PROCESS, "rank of the process among all", synonym="`nv.dl.rank`"),
    _attribute(names.LOCAL_RANK, "1 per GPU of a node", "its rank on its node", synonym="`dl.local_rank`"),
    _attribute(names.NODE_RANK, "1 per node", "rank of its node"),
    _attribute(names.WORLD_SIZE, _A_RUN, "how many processes there are", synonym="`nv.dl.world_size`"),
    _attribute(
        names.RESTART_COUNT,
        "1 per restart",
        "the launcher's own count of restarts, where it gives one",
        synonym="`k8s.container.restart_count`",
    ),
    _attribute(names.WRITER_ID, _A_PROCESS, "six hex digits of this writer"),
    _attribute(
        f"{names.HPARAM_PREFIX}*",
        "1 per run and key",
        "a hyperparameter, nested keys joined with dots, 60 at most; on metrics and traces, if logged before the first "
        "metric or the fit",
    ),
    _attribute(
        names.STEP,
        "unbounded; on no metric",
        "the step: of the call, else the batches that the trainer has done",
        unit=names.STEP_UNIT,
        synonym="`nv.dl.training.step`, one-based there",
    ),
    _attribute(names.EPOCH, "unbounded; on no metric", "epochs that the trainer has done", unit="{epoch}"),
    _attribute(
        names.SPAN_PART,
        "1 per part",
        "which part of a span that was divided to stay small: 2 and up, each linked to the last; the first has none",
    ),
    _attribute(names.EVALUATOR, "1 per evaluator", "name of the data of an evaluation"),
    _attribute(
        names.PHASE,
        "5",
        "what the time was spent on",
        values=(names.PHASE_DATA, names.PHASE_COMPUTE, names.PHASE_EVAL, names.PHASE_CHECKPOINT, names.PHASE_OTHER),
    ),
    _attribute(
        names.STATE,
        "8",
        "what the run is doing, or how it ended",
        synonym="`cicd.pipeline.run.state`",
        values=(
            names.STATE_STARTING,
            names.STATE_TRAINING,
            names.STATE_EVALUATING,
            names.STATE_CHECKPOINTING,
            names.OUTCOME_FINISHED,
            names.OUTCOME_FAILED,
            names.OUTCOME_INTERRUPTED,
            names.OUTCOME_PREEMPTED,
        ),
    ),
    _attribute(names.HPARAM_KEY, "1 per hyperparameter", "dotted key of a hyperparameter"),
    _attribute(names.HPARAM_VALUE, "1 per hyperparameter", "its value as text, cut at 256 characters"),
    _attribute(names.HPARAMS_COUNT, "", "how many hyperparameters there are in all"),
    _attribute(names.HPARAMS_EVENT_ONLY, "", "how many of them are not on the resource"),
    _attribute(names.HPARAMS_PART, "", "which part of the set the record has, 1 is the first"),
    _attribute(names.HPARAMS_PARTS, "", "in how many parts the set is told, if in several"),
    _attribute(names.HPARAMS_PREVIOUS, "", "the earlier attempt that the set is compared with"),
    _attribute(names.HPARAMS_ADDED, "", "hyperparameters that the earlier attempt had not, as `key: value`"),
    _attribute(names.HPARAMS_REMOVED, "", "those that it alone had, as `key: value`"),
    _attribute(names.HPARAMS_CHANGED, "", "those with another value now, as `key: old -> new`"),
    _attribute(names.HPARAMS_REDACTED, "", "those redacted in both, of which it cannot be told whether they changed"),
    _attribute(
        names.RUN_OUTCOME,
        "5",
        "how the run ended",
        synonym="`cicd.pipeline.result`",
        values=(
            names.OUTCOME_FINISHED,
            names.OUTCOME_FAILED,
            names.OUTCOME_INTERRUPTED,
            names.OUTCOME_PREEMPTED,
            names.OUTCOME_LOST,
        ),
    ),
    _attribute(names.RUN_DURATION, _A_RUN, "how long it took", unit="s"),
    _attribute(names.RUN_REASON, _A_RUN, "why it ended so", synonym="`error.type`"),
    _attribute(names.NAME, "1 per name", "the name that an image, a table or a file was given", synonym="`file.name`"),
    _attribute(names.BLOB_URI, "1 per blob", "where it is stored: `s3://...`, `file:///...`", synonym="`file.path`"),
    _attribute(names.URL_FULL, "1 per blob", "the same for a browser, by `OTEL_LOGGER_BLOB_URL`"),
    _attribute(names.BLOB_DIGEST, "1 per blob", "`sha256:<hex>` of its content", synonym="`oci.manifest.digest`"),
    _attribute(names.BLOB_SIZE, "1 per blob", "its size", unit="By", synonym="`file.size`"),
    _attribute(names.BLOB_MEDIA_TYPE, "a few", "its media type"),
    _attribute(
        names.BLOB_OUTCOME,
        "4",
        "what became of it: a later attempt has stored one of its name since, or its name was another's",
        values=(names.OUTCOME_STORED, names.OUTCOME_SUPERSEDED, names.OUTCOME_CONFLICT, names.OUTCOME_FAILED),
    ),
    _attribute(
        names.BLOB_REASON, "1 per failure", "why it is not stored, or not under its name", synonym="`error.type`"
    ),
    _attribute(names.BLOB_DURATION, "unbounded", "from the call until it was stored", unit="s"),
    _attribute(names.BLOB_REPLACED_ATTEMPT, "a few", "the earlier attempt at this run whose file it replaced"),
    _attribute(names.FILE_NAME, "1 per name", "the last part of a file's name"),
    _attribute(names.FILE_SIZE, "1 per file", "its size", unit="By"),
    _attribute(names.IMAGE_INDEX, "1 per image", "which of the images of a call, from 0"),
    _attribute(names.IMAGE_COUNT, "a few", "how many images the call had", unit="{image}"),
    _attribute(names.IMAGE_WIDTH, "a few", "width", unit="{pixel}"),
    _attribute(names.IMAGE_HEIGHT, "a few", "height", unit="{pixel}"),
    _attribute(
        names.IMAGE_URIS,
        "1 per gallery",
        "the images that a gallery shows, or the one with over 32 masks; the blob is an index of all",
    ),
    _attribute(
        names.MASK_NAMES, "a few", "the masks' names, in the order of the other lists; of an index the first 8 KiB"
    ),
    _attribute(names.MASK_URIS, "1 per image", "label images, exact"),
    _attribute(names.MASK_ENCODINGS, "3", "how labels are in them"),
    _attribute(names.MASK_LABELS, "a few", "names and colours of the labels by mask, as JSON"),
    _attribute(names.OVERLAY_URIS, "1 per image", "the image with each mask laid over it"),
    _attribute(names.TABLE_ROWS, "1 per table", "how many rows", unit="{row}"),
    _attribute(names.TABLE_COLUMNS, "a few", "how many columns", unit="{column}"),
    _attribute(names.TRACE_NAME, "1 per key", "the key of an entry of `log_traces`"),
    _attribute(names.TRACE_VALUE, "unbounded", "the value of an entry of `log_traces`"),
    _attribute(names.SELF_SIGNAL, "3", "what is counted", values=("metrics", "logs", "traces")),
    _attribute(
        names.SELF_REASON, "about 20", "why, in the words of `stats()` ([runs.md](runs.md))", synonym="`error.type`"
    ),
    _attribute("service.name", "", "from `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES`, else `training`"),
    _attribute(
        "service.instance.id",
        _A_PROCESS,
        "`<run id>/<rank>/<attempt>/<writer>`, unique; `starting/<writer>` on log records sent before the run is known",
    ),
    _attribute("host.name", "1 per node", "which machine"),
    _attribute(names.SLURM_JOB_ID, _A_RUN, "the Slurm job", synonym="`slurm.job.id`"),
    _attribute(names.SLURM_JOB_NAME, _A_RUN, "its name", synonym="`slurm.job.name`"),
    _attribute(names.SLURM_JOB_PARTITION, "1 per partition", "its partition", synonym="`slurm.partition`"),
    _attribute(
        names.SLURM_JOB_NODELIST, _A_RUN, "its nodes as Slurm lists them, 1024 characters", synonym="`slurm.nodelist`"
    ),
    _attribute(names.SLURM_JOB_RESTART_COUNT, "1 per restart", "how often Slurm has started it again"),
    _attribute(names.SLURM_STEP_ID, _A_RUN, "its step"),
    _attribute(names.SLURM_CLUSTER_NAME, "1 per cluster", "the Slurm cluster", synonym="`slurm.cluster.name`"),
    _attribute(names.SLURM_ARRAY_JOB_ID, _A_RUN, "the job array that the job is of"),
    _attribute(names.SLURM_ARRAY_TASK_ID, _A_RUN, "its index there"),
    _attribute("k8s.cluster.name", "1 per cluster", "from `K8S_CLUSTER_NAME`"),
    _attribute("k8s.namespace.name", "1 per namespace", "from `K8S_NAMESPACE_NAME`, `K8S_NAMESPACE`, `POD_NAMESPACE`"),
    _attribute("k8s.node.name", "1 per node", "from `K8S_NODE_NAME`, `NODE_NAME`"),
    _attribute("k8s.pod.name", "1 per pod", "from `K8S_POD_NAME`, `POD_NAME`"),
    _attribute("k8s.pod.uid", "1 per pod", "from `K8S_POD_UID`, `POD_UID`"),
    _attribute(
        "k8s.pod.label.batch.kubernetes.io/job-completion-index",
        "1 per pod",
        "from `JOB_COMPLETION_INDEX`, which an Indexed Job sets",
    ),
    _attribute("k8s.container.name", "1 per container", "from `K8S_CONTAINER_NAME`"),
    _attribute("k8s.job.name", _A_RUN, "from `K8S_JOB_NAME`"),
    _attribute("k8s.job.uid", _A_RUN, "from `K8S_JOB_UID`"),
    _attribute("telemetry.sdk.language", "1", "`python`"),
    _attribute("telemetry.sdk.name", "1", "`otel_logger`"),
    _attribute("telemetry.sdk.version", "1 per release", "the package's version"),
    _attribute(names.PROCESS_PID, _A_PROCESS, "the process; on the resource of spans alone"),
    _attribute(names.LOG_RECORD_UID, "1 per record", "by which a record that was sent twice is recognised"),
    _attribute(names.CODE_FILE_PATH, "", "the file of the call that logged"),
    _attribute(names.CODE_LINE_NUMBER, "", "its line"),
    _attribute(names.CODE_FUNCTION_NAME, "", "its function"),
    _attribute(names.CODE_STACKTRACE, "", "the stack, where `stack_info` was asked for"),
    _attribute(names.THREAD_NAME, "", "its thread"),
    _attribute(names.EXCEPTION_TYPE, "", "the exception's type"),
    _attribute(names.EXCEPTION_MESSAGE, "", "its message, redacted"),
    _attribute(names.EXCEPTION_STACKTRACE, "", "its traceback, redacted"),
)
"""The attributes: those of the `training` and `otel_logger` namespaces are ours, the others OpenTelemetry's."""
