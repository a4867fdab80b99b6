"""Every kind on a real control plane: suspended so that its GPUs are free, and restored to exactly the original spec.

Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs and evictions are those of the real controllers. Custom resources
are small ones of these tests, with the test as their controller. With GPUSTEWARD_WRITE_RESULTS=1 the times from the
decision to free GPUs are written to bench/results/reclaim-kinds.md.
"""

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.measure import describe_run
from bench.report import render_head, render_table
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.kinds.objects import ACTION
from gpusteward.analyzer.reclaim.kinds.refusals import STOPPED
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from tests.analyzer.reclaim.custom_kinds import add_pods, create, custom, define, reference_to, run_controller
from tests.analyzer.reclaim.world import World, pool_policy, suspend_policy
from tests.analyzer.sources.owners.test_real_owners import make_job, make_set
from tests.analyzer.usage_tables import working
from tests.documents import ROOT
from tests.kubernetes.cluster import Json, path_of, pod, wait_for

pytestmark = pytest.mark.slow

FREE_SECONDS = 10.0
RESULT = ROOT / "bench/results/reclaim-kinds.md"
TIMES: dict[str, float] = {}
"""By kind: from the decision to free GPUs."""


@pytest.fixture(scope="module", autouse=True)
def written_times() -> Iterator[None]:
    yield
    if os.environ.get("GPUSTEWARD_WRITE_RESULTS") != "1":
        return
    head = render_head(
        "From the decision to free GPUs",
        describe_run("make bench-reclaim-kinds"),
        "From the start of the cycle that acts (usage judged, objects read again, dry run, patch) until no pod of the"
        " workload is left, on a real control plane with real controllers and kwok nodes."
        f" Limit: {FREE_SECONDS:g} s for each kind.",
        "Of a kind that is tried in several ways, the longest time.",
        "Custom resources are those of the tests, with the test as their controller: how fast the controller of a site"
        " is, and the grace period of its pods, come on top.",
    )
    rows = [[kind, f"{seconds:.2f} s"] for kind, seconds in sorted(TIMES.items())]
    RESULT.write_text(f"{head}\n{render_table(['kind', 'seconds'], rows)}")


def read(world: World, item: Json) -> Json:
    return world.kubernetes.request("GET", path_of(item))


def spec_text(item: Json) -> str:
    return json.dumps(item["spec"], sort_keys=True)


def suspend_and_restore(
    world: World, item: Json, *, pods: int, controller: Any = None, target: Json | None = None
) -> None:
    """The whole way of one object; `controller`: run once after each change."""
    target = target or item
    before = read(world, target)
    action = world.run_until_acted()[0]
    if controller is not None:
        controller()
    wait_for(lambda: not world.kubernetes.list_pods(world.namespace), 60)
    seconds = time.monotonic() - world.decided_at
    TIMES[item["kind"]] = max(seconds, TIMES.get(item["kind"], 0.0))
    assert seconds < FREE_SECONDS, "from the decision to free GPUs"
    changed = read(world, target)
    assert changed["metadata"]["annotations"][ACTION] == action.id
    assert action.target is not None
    assert (action.target.uid, action.uid) == (target["metadata"]["uid"], item["metadata"]["uid"])
    world.cycle()
    assert [each.state for each in world.list_actions()] == [ActionState.VERIFIED], world.explain()
    restored = world.reclaimer.restore(action.id, by="alice")
    assert restored.state is ActionState.RESTORED
    after = read(world, target)
    assert spec_text(after) == spec_text(before)
    ours = [name for name in after["metadata"].get("annotations", {}) if name.startswith("gpusteward.io/")]
    assert ours == []
    if controller is not None:
        controller()
    world.kubernetes.wait_for_pods(world.namespace, pods)
    assert world.sender.kinds() == ["warning", "action", "restored"]
    events = world.kubernetes.request("GET", f"/api/v1/namespaces/{world.namespace}/events")["items"]
    ours = [event["reason"] for event in events if event.get("reportingComponent") == "gpusteward"]
    assert sorted(ours) == ["Reclaimed", "Restored"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_owners_with_replicas(world: World, node: str, kind: str) -> None:
    item = make_set(kind, "web", world.namespace)
    item["spec"]["replicas"] = 3
    [created] = world.kubernetes.apply(item)
    world.kubernetes.wait_for_pods(world.namespace, 3)
    suspend_and_restore(world, created, pods=3)


def test_a_job(world: World, node: str) -> None:
    [created] = world.kubernetes.apply(make_job("train", world.namespace))
    world.kubernetes.wait_for_pods(world.namespace, 1)
    suspend_and_restore(world, created, pods=1)


def test_the_running_job_of_a_cron_job_is_suspended_and_the_cron_job_is_not(world: World, node: str) -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": world.namespace},
        "spec": {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": make_job("unused", world.namespace)["spec"]}},
    }
    [created] = world.kubernetes.apply(cron)
    job = make_job("nightly-1", world.namespace)
    job["metadata"]["ownerReferences"] = [reference_to(created)]
    [running] = world.kubernetes.apply(job)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    suspend_and_restore(world, created, pods=1, target=running)
    assert read(world, created)["spec"].get("suspend") is False


CUSTOM: dict[str, tuple[str, str, Json, Json]] = {
    # kind: version, JSON pointer that suspends, value, spec
    "Workspace": ("kubeflow.org/v1", "/spec/paused", {"value": True}, {"kind": "jupyterlab", "paused": False}),
    "RayCluster": ("ray.io/v1", "/spec/suspend", {"value": True}, {"headGroupSpec": {}}),
    "RayJob": ("ray.io/v1", "/spec/suspend", {"value": True}, {"entrypoint": "x", "suspend": False}),
    "RayService": ("ray.io/v1", "/spec/suspend", {"value": True}, {}),
    "TrainJob": ("trainer.kubeflow.org/v1", "/spec/suspend", {"value": True}, {"runtimeRef": {"name": "x"}}),
    "JobSet": ("jobset.x-k8s.io/v1", "/spec/suspend", {"value": True}, {"replicatedJobs": []}),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "/spec/replicas", {"value": 0}, {"replicas": 2}),
    "Rollout": ("argoproj.io/v1", "/spec/replicas", {"value": 0}, {"replicas": 2, "strategy": {"canary": {}}}),
    **{
        kind: ("kubeflow.org/v1", "/spec/runPolicy/suspend", {"value": True}, spec)
        for kind, spec in (
            ("PyTorchJob", {"runPolicy": {"cleanPodPolicy": "None"}}),
            ("TFJob", {}),  # without a runPolicy: what we add is removed again as a whole
            ("MPIJob", {"runPolicy": {"suspend": False}}),
            ("XGBoostJob", {}),
            ("PaddleJob", {}),
            ("JAXJob", {}),
        )
    },
    "InferenceService": (
        "serving.kserve.io/v1",
        "/metadata/annotations/serving.kserve.io~1stop",
        {"value": "true"},
        {"predictor": {"minReplicas": 1}},
    ),
}


@pytest.mark.parametrize("kind", CUSTOM)
def test_custom_resources(world: World, node: str, kind: str) -> None:
    version, pointer, value, spec = CUSTOM[kind]
    define(world.kubernetes, version.partition("/")[0], kind)
    item = create(world.kubernetes, custom(version, kind, "one", world.namespace, spec))
    add_pods(world.kubernetes, item)
    world.kubernetes.wait_for_pods(world.namespace, 2)
    suspended = {pointer: value["value"]}
    suspend_and_restore(
        world, item, pods=2, controller=lambda: run_controller(world.kubernetes, item, suspended=suspended)
    )


def test_a_notebook_is_stopped_by_its_annotation_and_its_stateful_set_is_left_to_its_controller(
    world: World, node: str
) -> None:
    define(world.kubernetes, "kubeflow.org", "Notebook")
    notebook = create(
        world.kubernetes, custom("kubeflow.org/v1", "Notebook", "alice", world.namespace, {"template": {}})
    )
    stateful = make_set("StatefulSet", "alice", world.namespace)
    stateful["metadata"]["ownerReferences"] = [reference_to(notebook)]
    world.kubernetes.apply(stateful)
    world.kubernetes.wait_for_pods(world.namespace, 1)

    def follow() -> None:
        annotations = read(world, notebook)["metadata"].get("annotations") or {}
        stateful["spec"]["replicas"] = 0 if STOPPED in annotations else 1
        world.kubernetes.apply(stateful)

    suspend_and_restore(world, notebook, pods=1, controller=follow)


def test_a_train_job_is_suspended_and_neither_its_job_set_nor_its_job(world: World, node: str) -> None:
    for group, kind in (("trainer.kubeflow.org", "TrainJob"), ("jobset.x-k8s.io", "JobSet")):
        define(world.kubernetes, group, kind)
    train = create(world.kubernetes, custom("trainer.kubeflow.org/v1", "TrainJob", "sft", world.namespace, {}))
    jobs = custom("jobset.x-k8s.io/v1", "JobSet", "sft", world.namespace, {}, ownerReferences=[reference_to(train)])
    job = make_job("sft-node-0", world.namespace)
    job["metadata"]["ownerReferences"] = [reference_to(create(world.kubernetes, jobs))]
    [job] = world.kubernetes.apply(job)
    world.kubernetes.wait_for_pods(world.namespace, 1)

    def follow() -> None:
        patch = {"spec": {"suspend": read(world, train)["spec"].get("suspend", False)}}
        world.kubernetes.request("PATCH", path_of(job), patch, media="application/merge-patch+json")

    suspend_and_restore(world, train, pods=1, controller=follow)


def test_a_job_in_a_queue_of_kueue_is_stopped_through_its_workload(world: World, node: str) -> None:
    define(world.kubernetes, "kueue.x-k8s.io", "Workload", "v1beta1")
    job = make_job("train", world.namespace)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    [created] = world.kubernetes.apply(job)
    labels = {"kueue.x-k8s.io/job-uid": created["metadata"]["uid"]}
    workload = custom(
        "kueue.x-k8s.io/v1beta1", "Workload", "job-train", world.namespace, {"queueName": "gpus"}, labels=labels
    )
    workload = create(world.kubernetes, workload)
    world.kubernetes.wait_for_pods(world.namespace, 1)

    def follow() -> None:
        is_active = read(world, workload)["spec"].get("active", True)
        patch = {"spec": {"suspend": not is_active}}
        world.kubernetes.request("PATCH", path_of(created), patch, media="application/merge-patch+json")

    suspend_and_restore(world, created, pods=1, controller=follow, target=workload)


def test_a_deployment_that_keda_scales_is_paused_at_its_scaled_object(world: World, node: str) -> None:
    define(world.kubernetes, "keda.sh", "ScaledObject", "v1alpha1")
    [created] = world.kubernetes.apply(make_set("Deployment", "web", world.namespace))
    spec = {"scaleTargetRef": {"name": "web"}, "triggers": []}
    scaled = create(world.kubernetes, custom("keda.sh/v1alpha1", "ScaledObject", "web", world.namespace, spec))
    world.kubernetes.wait_for_pods(world.namespace, 1)

    def follow() -> None:
        paused = (read(world, scaled)["metadata"].get("annotations") or {}).get("autoscaling.keda.sh/paused-replicas")
        patch = {"spec": {"replicas": 1 if paused is None else int(paused)}}
        world.kubernetes.request("PATCH", path_of(created), patch, media="application/merge-patch+json")

    suspend_and_restore(world, created, pods=1, controller=follow, target=scaled)


def test_a_job_of_volcano_is_aborted_and_resumed_by_commands(world: World, node: str) -> None:
    define(world.kubernetes, "batch.volcano.sh", "Job")
    define(world.kubernetes, "bus.volcano.sh", "Command", "v1alpha1")
    job = create(world.kubernetes, custom("batch.volcano.sh/v1", "Job", "mpi", world.namespace, {"minAvailable": 2}))
    add_pods(world.kubernetes, job)
    world.kubernetes.wait_for_pods(world.namespace, 2)
    commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{world.namespace}/commands"
    seen: list[str] = []

    def follow() -> None:
        for command in world.kubernetes.request("GET", commands)["items"]:
            assert command["target"]["uid"] == job["metadata"]["uid"]
            seen.append(command["action"])
            world.kubernetes.delete({"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", **command})
            status = {"state": {"phase": "Aborted" if seen[-1] == "AbortJob" else "Running"}}
            world.kubernetes.request("PATCH", path_of(job), {"status": status}, media="application/merge-patch+json")
            run_controller(world.kubernetes, job, suspended={}, is_suspended=lambda _: seen[-1] == "AbortJob")

    suspend_and_restore(world, job, pods=2, controller=follow)
    assert seen == ["AbortJob", "ResumeJob"]


def test_a_bare_pod_is_evicted_only_where_the_policy_says_so(world: World, node: str) -> None:
    world.kubernetes.apply(pod("lonely", world.namespace, node=node, gpus=1))
    world.kubernetes.wait_for_pods(world.namespace, 1)
    world.rest(minutes=65)
    world.cycle()
    world.cycle()
    assert world.list_failed("lonely") == ["kind", "warned"]
    world.policies.policy = suspend_policy(action=ReclaimAction.EVICT)
    [action] = world.run_until_acted()
    wait_for(lambda: not world.kubernetes.list_pods(world.namespace))
    world.cycle()
    [action] = world.list_actions()
    assert (action.state, action.target and action.target.kind) == (ActionState.VERIFIED, "Pod")
    with pytest.raises(Exception, match="cannot be restored"):
        world.reclaimer.restore(action.id, by="alice")


def test_surplus_replicas_of_a_pool_go_the_longest_idle_first_and_come_back_when_they_are_needed(
    world: World, node: str
) -> None:
    item = make_set("Deployment", "pool", world.namespace)
    item["spec"]["replicas"] = 6
    [created] = world.kubernetes.apply(item)
    names = sorted(each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 6))
    world.policies.policy = pool_policy(KeepRule(3600.0, headroom=1.25, patience_seconds=600.0))
    world.put_to_work(names[:2])  # at most two of six at once: ceil(2.5) + 1 = 4 are kept
    for _ in range(16):
        world.cycle()
    acted = world.list_actions(ActionState.ACTED, ActionState.VERIFIED)
    assert len(acted) == 1, world.explain()
    assert read(world, created)["spec"]["replicas"] == 4
    wait_for(lambda: len(world.kubernetes.list_pods(world.namespace)) == 4)
    left = {each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)}
    assert set(names[:2]) <= left, "the busy ones stay"
    world.cycle()
    assert [each.state for each in world.list_actions(ActionState.VERIFIED)] == [ActionState.VERIFIED], world.explain()
    world.rows = dict.fromkeys(left, working())
    world.cycle()
    assert read(world, created)["spec"]["replicas"] == 6
    [restored] = world.list_actions()
    assert (restored.state, restored.error) == (ActionState.RESTORED, "")
    assert [step.note.en for step in restored.steps if step.state is ActionState.RESTORING] == [
        "replicas that are needed again: 6 in all"
    ]


def test_a_pool_that_an_autoscaler_scales_is_left_alone(world: World, node: str) -> None:
    item = make_set("Deployment", "pool", world.namespace)
    item["spec"]["replicas"] = 6
    [created] = world.kubernetes.apply(item)
    names = sorted(each["metadata"]["name"] for each in world.kubernetes.wait_for_pods(world.namespace, 6))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "pool"}
    autoscaler = custom(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "pool",
        world.namespace,
        {"scaleTargetRef": target, "minReplicas": 6, "maxReplicas": 6},
    )
    world.kubernetes.apply(autoscaler)
    world.policies.policy = pool_policy(KeepRule(3600.0, headroom=1.25, patience_seconds=600.0))
    world.put_to_work(names[:2])
    for _ in range(16):
        world.cycle()
    assert world.list_actions(ActionState.ACTED, ActionState.VERIFIED) == []
    assert "kind" in world.list_failed("pool"), world.explain()
    assert read(world, created)["spec"]["replicas"] == 6
