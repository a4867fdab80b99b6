"""The workload of a pod, derived from the pod alone, case by case."""

import pytest

from gpusteward.core.node.containers import Workload, weigh_reported
from gpusteward.kubernetes.owners import Reference, find_workload

CASES = {
    "a pod without an owner is its own workload": (None, {}, "Pod", "p-0"),
    "a mirror of a static pod, which its node owns, is its own workload": (("Node", "node-a"), {}, "Pod", "p-0"),
    "a replica set named after the hash of its pods belongs to a deployment": (
        ("ReplicaSet", "llm-web-6d4cf56db6"),
        {"pod-template-hash": "6d4cf56db6"},
        "Deployment",
        "llm-web",
    ),
    "a replica set without that hash is its own workload": (("ReplicaSet", "by-hand"), {}, "ReplicaSet", "by-hand"),
    "a hash that is not in the name proves nothing": (
        ("ReplicaSet", "by-hand"),
        {"pod-template-hash": "6d4cf56db6"},
        "ReplicaSet",
        "by-hand",
    ),
    "an argo rollout marks its pods with its own hash": (
        ("ReplicaSet", "llm-86666d6ffc"),
        {"rollouts-pod-template-hash": "86666d6ffc"},
        "Rollout",
        "llm",
    ),
    "a job named after a minute belongs to a cron job": (
        ("Job", "nightly-eval-29387520"),
        {},
        "CronJob",
        "nightly-eval",
    ),
    "a job named after a date was named by a user": (("Job", "train-20261115"), {}, "Job", "train-20261115"),
    "a job with a short number was named by a user": (("Job", "train-7"), {}, "Job", "train-7"),
    "a stateful set with a notebook's label belongs to a notebook": (
        ("StatefulSet", "alice"),
        {"notebook-name": "alice"},
        "Notebook",
        "alice",
    ),
    "a notebook's label on another kind proves nothing": (
        ("Job", "papermill"),
        {"notebook-name": "report"},
        "Job",
        "papermill",
    ),
    "a kubeflow workspace": (
        ("StatefulSet", "ws-alice-x7k"),
        {"notebooks.kubeflow.org/workspace-name": "alice"},
        "Workspace",
        "alice",
    ),
    "a stateful set alone": (("StatefulSet", "db"), {}, "StatefulSet", "db"),
    "an inference service, whatever deploys it": (
        ("ReplicaSet", "llama-predictor-00001-deployment-5b8f"),
        {"serving.kserve.io/inferenceservice": "llama", "pod-template-hash": "5b8f"},
        "InferenceService",
        "llama",
    ),
    "an inference service over several nodes is not the leader worker set below it": (
        ("StatefulSet", "llama-predictor-0"),
        {"serving.kserve.io/inferenceservice": "llama", "leaderworkerset.sigs.k8s.io/name": "llama-predictor"},
        "InferenceService",
        "llama",
    ),
    "a leader worker set": (
        ("StatefulSet", "vllm-0"),
        {"leaderworkerset.sigs.k8s.io/name": "vllm"},
        "LeaderWorkerSet",
        "vllm",
    ),
    "a job of a job set": (("Job", "sft-workers-0"), {"jobset.sigs.k8s.io/jobset-name": "sft"}, "JobSet", "sft"),
    "a ray cluster": (("RayCluster", "search"), {"ray.io/cluster": "search"}, "RayCluster", "search"),
    "a ray cluster whose pods name the object it was created for": (
        ("RayCluster", "tune-x2x9p"),
        {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "tune"},
        "RayJob",
        "tune",
    ),
    "a training operator's job owns its pods itself": (("PyTorchJob", "bert"), {}, "PyTorchJob", "bert"),
    "a daemon set": (("DaemonSet", "dcgm"), {}, "DaemonSet", "dcgm"),
    "a kind never heard of": (("SparkApplication", "etl"), {}, "SparkApplication", "etl"),
}


@pytest.mark.parametrize(("owner", "labels", "kind", "name"), CASES.values(), ids=CASES.keys())
def test_the_workload_is_the_outermost_owner_that_a_pod_names(
    owner: tuple[str, str] | None, labels: dict[str, str], kind: str, name: str
) -> None:
    owners = [Reference("v1", *owner, controller=True)] if owner else []
    found = find_workload("ml", "p-0", owners=owners, labels=labels)
    assert found == Workload(kind, "ml", name)
    assert found.evidence is weigh_reported(kind), "the analyzer knows only the kind"


def test_an_owner_that_is_not_the_controller_is_ignored() -> None:
    owners = [Reference("v1", "ConfigMap", "settings"), Reference("batch/v1", "Job", "train", controller=True)]
    assert find_workload("ml", "p-0", owners=owners, labels={}).name == "train"
