"""The table of kinds, without a cluster: what is set, when it is refused, which rights it takes. Pure."""

from pathlib import Path

import pytest
import yaml

from docs.kinds_page import KINDS_PAGES, write_kinds_page
from gpusteward.analyzer.reclaim.execution.changes import make_restoring_fields
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject, keep_original, make_patch
from gpusteward.analyzer.reclaim.kinds.rights import Right, list_enforce_rights
from gpusteward.analyzer.reclaim.kinds.targets import WorkloadObjects, choose_targets, find_kind_at
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.kinds import KINDS
from gpusteward.kubernetes.api import make_path
from tests.analyzer.reclaim.test_guards import OPEN
from tests.kubernetes.cluster import Json

ROOT = Path(__file__).parents[3]
SUSPEND = ReclaimAction.SUSPEND


def make(
    version: str, kind: str, spec: Json | None = None, status: Json | None = None, **metadata: object
) -> KubeObject:
    about = {"name": "one", "namespace": "team", "uid": "uid", **metadata}
    return KubeObject(version, kind, {"metadata": about, "spec": spec or {}, "status": status or {}})


def refuse(one: KubeObject, *chain: KubeObject, action: ReclaimAction = SUSPEND) -> str:
    objects = WorkloadObjects(one, [make("v1", "Pod")], [[*chain, one]])
    chosen, reason = choose_targets(objects, action, lambda *_: [])
    assert bool(chosen) == (reason is None)
    return "" if reason is None else reason.en


FINISHED = {"conditions": [{"type": "Complete", "status": "True"}]}
SUCCEEDED = {"conditions": [{"type": "Succeeded", "status": "True"}]}
CASES = {
    "a finished Job": (make("batch/v1", "Job", status=FINISHED), "is finished"),
    "a finished TrainJob": (make("trainer.kubeflow.org/v1alpha1", "TrainJob", status=FINISHED), "is finished"),
    "a JobSet with a terminal state": (
        make("jobset.x-k8s.io/v1", "JobSet", status={"terminalState": "x"}),
        "is finished",
    ),
    "a finished PyTorchJob": (make("kubeflow.org/v1", "PyTorchJob", status=SUCCEEDED), "is finished"),
    "a finished RayJob": (make("ray.io/v1", "RayJob", status={"jobDeploymentStatus": "Complete"}), "is finished"),
    "a Job of another controller": (make("batch/v1", "Job", {"managedBy": "x/y"}), "managedBy is x/y"),
    "a PyTorchJob of another controller": (
        make("kubeflow.org/v1", "PyTorchJob", {"runPolicy": {"managedBy": "x/y"}}),
        "managedBy is x/y",
    ),
    "a job in another cluster": (
        make("kubeflow.org/v1", "PyTorchJob", {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
        "MultiKueue",
    ),
    "a Job that is suspended": (make("batch/v1", "Job", {"suspend": True}), "is suspended already"),
    "a Deployment without replicas": (make("apps/v1", "Deployment", {"replicas": 0}), "is suspended already"),
    "an InferenceService that is stopped": (
        make("serving.kserve.io/v1beta1", "InferenceService", annotations={"serving.kserve.io/stop": "True"}),
        "is suspended already",
    ),
    "a notebook that is stopped": (
        make("kubeflow.org/v1", "Notebook", annotations={"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"}),
        "is stopped already",
    ),
    "an object that keeps the original of another action": (
        make("apps/v1", "Deployment", {"replicas": 3}, annotations={"gpusteward.io/action": "4711"}),
        "changed by action 4711",
    ),
    "an object that is being deleted": (
        make("apps/v1", "Deployment", {"replicas": 1}, deletionTimestamp="2026-01-01T00:00:00Z"),
        "is being deleted",
    ),
    "an aborted job of Volcano": (
        make("batch.volcano.sh/v1alpha1", "Job", status={"state": {"phase": "Aborted"}}),
        "phase of the job is Aborted",
    ),
    "a Workspace of another project": (make("kaito.sh/v1beta1", "Workspace"), "does not know how to suspend"),
    "a Workflow": (make("argoproj.io/v1alpha1", "Workflow"), "does not know how to suspend"),
    "a pod that must not be evicted": (
        make("v1", "Pod", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        "forbids its eviction",
    ),
    "a static pod": (make("v1", "Pod", annotations={"kubernetes.io/config.mirror": "x"}), "a static pod"),
    "a pod in a queue": (make("v1", "Pod", labels={"kueue.x-k8s.io/queue-name": "gpus"}), "queue of Kueue"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    one, reason = CASES[case]
    action = ReclaimAction.EVICT if one.kind == "Pod" else SUSPEND
    assert reason in refuse(one, action=action)


def test_an_action_that_does_not_fit_the_kind_is_refused() -> None:
    deployment = make("apps/v1", "Deployment", {"replicas": 3})
    assert refuse(deployment) == ""
    assert refuse(deployment, action=ReclaimAction.SCALE_TO_KEEP) == ""
    assert "is for bare pods" in refuse(deployment, action=ReclaimAction.EVICT)
    assert "gone for good" in refuse(make("v1", "Pod"))
    stateful = make("apps/v1", "StatefulSet", {"replicas": 3})
    assert "cannot be chosen" in refuse(stateful, action=ReclaimAction.SCALE_TO_KEEP)


def test_a_field_whose_parent_did_not_exist_is_restored_with_it_unless_others_have_used_it() -> None:
    pointer = "/spec/runPolicy/suspend"
    original = keep_original({"spec": {}}, {pointer: True})
    assert original == {"/spec/runPolicy": None}
    from dataclasses import replace

    action = replace(OPEN, original=original, patch={pointer: True})
    ours = make("kubeflow.org/v1", "TFJob", {"runPolicy": {"suspend": True}})
    assert make_patch(make_restoring_fields(action, ours)) == {"spec": {"runPolicy": None}}
    shared = make("kubeflow.org/v1", "TFJob", {"runPolicy": {"suspend": True, "ttlSecondsAfterFinished": 5}})
    assert make_patch(make_restoring_fields(action, shared)) == {"spec": {"runPolicy": {"suspend": None}}}


def test_every_kind_is_found_by_its_path_and_is_in_the_guide_in_both_languages() -> None:
    suspended = {key: kind for key, kind in KINDS.items() if kind.loss}
    assert len(suspended) > 20
    for (group, name), kind in suspended.items():
        path = make_path(f"{group}/v1" if group else "v1", name, "team", "one")
        assert find_kind_at(path, name) is kind
        for page in ("docs/reclaim-kinds.md", "docs/zh-CN/reclaim-kinds.md"):
            assert name in (ROOT / page).read_text(encoding="utf-8"), (name, page)


@pytest.mark.parametrize("page", KINDS_PAGES, ids=KINDS_PAGES.get)
def test_the_guide_has_the_table_of_kinds(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == write_kinds_page(page), "stale: run `make docs`"


def test_the_rights_allow_no_deletion_and_the_chart_grants_all_of_them() -> None:
    rights = list_enforce_rights()
    assert {verb for right in rights for verb in right.verbs} == {"patch", "create"}
    assert Right("", "pods/eviction", ("create",)) in rights
    rules = yaml.safe_load((ROOT / "deploy/chart/gpusteward/files/rbac/enforce.yaml").read_text())
    granted = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(right.group, right.resource, verb) for right in rights for verb in right.verbs} == granted
