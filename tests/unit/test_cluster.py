"""What Slurm and Kubernetes say of where a process runs is on its resource."""

import pytest

from otel_logger.cluster import cluster_attributes

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NAME": "llm",
    "SLURM_JOB_PARTITION": "h200",
    "SLURM_JOB_NODELIST": "node[01-04]",
    "SLURM_STEP_ID": "0",
    "SLURM_CLUSTER_NAME": "alps",
    "SLURM_RESTART_COUNT": "2",
    "SLURM_ARRAY_JOB_ID": "70",
    "SLURM_ARRAY_TASK_ID": "7",
}


def test_slurm():
    """Job, step and cluster are told, the count of restarts as a number."""
    assert {
        "training.slurm.job.id": "77",
        "training.slurm.job.name": "llm",
        "training.slurm.job.partition": "h200",
        "training.slurm.job.nodelist": "node[01-04]",
        "training.slurm.job.restart_count": 2,
        "training.slurm.step.id": "0",
        "training.slurm.cluster.name": "alps",
        "training.slurm.array.job.id": "70",
        "training.slurm.array.task.id": "7",
    } == cluster_attributes(SLURM)


@pytest.mark.parametrize("value", ["", "x", "-1", "²"])
def test_a_count_that_is_none_is_left_out(value):
    """Nothing depends on it."""
    assert {"training.slurm.job.id": "77"} == cluster_attributes({"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": value})


def test_without_a_job_slurms_variables_are_of_something_else():
    """A login node has names of clusters too."""
    assert {} == cluster_attributes({"SLURM_CLUSTER_NAME": "alps", "SLURM_JOB_NAME": "x"})


def test_a_long_list_of_nodes_is_cut():
    """A resource goes with every request."""
    found = cluster_attributes({"SLURM_JOB_ID": "1", "SLURM_NODELIST": "n" * 5000})
    assert "n" * 1024 == found["training.slurm.job.nodelist"]


K8S = {
    "K8S_POD_NAME": "llm-0",
    "K8S_POD_UID": "0ab",
    "K8S_NAMESPACE_NAME": "ml",
    "K8S_NODE_NAME": "gpu-1",
    "K8S_CONTAINER_NAME": "trainer",
    "K8S_JOB_NAME": "llm",
    "K8S_JOB_UID": "9cd",
    "K8S_CLUSTER_NAME": "prod",
    "JOB_COMPLETION_INDEX": "3",
}


def test_kubernetes():
    """The usual names of the downward API become the attributes of OpenTelemetry."""
    assert {
        "k8s.pod.name": "llm-0",
        "k8s.pod.uid": "0ab",
        "k8s.namespace.name": "ml",
        "k8s.node.name": "gpu-1",
        "k8s.container.name": "trainer",
        "k8s.job.name": "llm",
        "k8s.job.uid": "9cd",
        "k8s.cluster.name": "prod",
        "k8s.pod.label.batch.kubernetes.io/job-completion-index": "3",
    } == cluster_attributes(K8S)


def test_general_names_count_in_a_pod_alone():
    """Others, as build servers, use them too; where both are given the particular one counts."""
    general = {"POD_NAME": "llm-0", "POD_NAMESPACE": "ml", "NODE_NAME": "gpu-1", "K8S_NODE_NAME": "gpu-2"}
    assert {"k8s.node.name": "gpu-2"} == cluster_attributes(general)
    assert {"k8s.pod.name": "llm-0", "k8s.namespace.name": "ml", "k8s.node.name": "gpu-2"} == cluster_attributes(
        general | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    )
