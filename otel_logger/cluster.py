"""The cluster: what Slurm and Kubernetes say of where a process runs, as attributes of its resource."""

from collections.abc import Mapping

from otel_logger import conventions as names

__all__ = ["cluster_attributes"]

LONGEST = 1024
"""Characters of a value at most: a list of ten thousand nodes with odd numbers would weigh on every request."""

SLURM: Mapping[str, tuple[str, ...]] = {
    names.SLURM_JOB_ID: ("SLURM_JOB_ID",),
    names.SLURM_JOB_NAME: ("SLURM_JOB_NAME",),
    names.SLURM_JOB_PARTITION: ("SLURM_JOB_PARTITION",),
    names.SLURM_JOB_NODELIST: ("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    names.SLURM_JOB_RESTART_COUNT: ("SLURM_RESTART_COUNT",),
    names.SLURM_STEP_ID: ("SLURM_STEP_ID",),
    names.SLURM_CLUSTER_NAME: ("SLURM_CLUSTER_NAME",),
    names.SLURM_ARRAY_JOB_ID: ("SLURM_ARRAY_JOB_ID",),
    names.SLURM_ARRAY_TASK_ID: ("SLURM_ARRAY_TASK_ID",),
}
"""For each attribute the variables that give it, the first that is set."""

KUBERNETES: Mapping[str, tuple[str, ...]] = {
    "k8s.pod.name": ("K8S_POD_NAME",),
    "k8s.pod.uid": ("K8S_POD_UID",),
    "k8s.namespace.name": ("K8S_NAMESPACE_NAME", "K8S_NAMESPACE"),
    "k8s.node.name": ("K8S_NODE_NAME",),
    "k8s.container.name": ("K8S_CONTAINER_NAME",),
    "k8s.job.name": ("K8S_JOB_NAME",),
    "k8s.job.uid": ("K8S_JOB_UID",),
    "k8s.cluster.name": ("K8S_CLUSTER_NAME",),
    "k8s.pod.label.batch.kubernetes.io/job-completion-index": ("JOB_COMPLETION_INDEX",),
}
"""The same of Kubernetes: what a pod's downward API is usually given these names for, and what an Indexed Job sets."""

IN_A_POD: Mapping[str, tuple[str, ...]] = {
    "k8s.pod.name": ("POD_NAME", "MY_POD_NAME"),
    "k8s.pod.uid": ("POD_UID", "MY_POD_UID"),
    "k8s.namespace.name": ("POD_NAMESPACE", "MY_POD_NAMESPACE"),
    "k8s.node.name": ("NODE_NAME", "MY_NODE_NAME"),
}
"""Names that other programs use for other things, and so count inside Kubernetes alone."""

WHOLE_NUMBERS = frozenset({names.SLURM_JOB_RESTART_COUNT})


def cluster_attributes(environ: Mapping[str, str]) -> dict[str, str | int]:
    """Return what the environment tells of a Slurm job and of a Kubernetes pod."""
    found: dict[str, str | int] = {}
    if environ.get("SLURM_JOB_ID", "").strip():
        found |= _given(environ, SLURM)
    if environ.get("KUBERNETES_SERVICE_HOST", "").strip():
        found |= _given(environ, IN_A_POD)
    return found | _given(environ, KUBERNETES)


def _given(environ: Mapping[str, str], table: Mapping[str, tuple[str, ...]]) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for attribute, variables in table.items():
        value = next((text for name in variables if (text := environ.get(name, "").strip())), "")
        if attribute in WHOLE_NUMBERS:
            if value.isascii() and value.isdigit() and len(value) <= 9:
                found[attribute] = int(value)
        elif value:
            found[attribute] = value[:LONGEST]
    return found
