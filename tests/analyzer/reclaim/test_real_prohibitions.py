"""What reclaim never does, on a real control plane. Each test makes everything else right."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.policies.policy import Limits, ReclaimAction
from gpusteward.analyzer.tables import SIGNATURES
from gpusteward.core.usages import Measure
from gpusteward.core.verdicts import Signature
from tests.analyzer.reclaim.custom_kinds import create, custom, define, reference_to
from tests.analyzer.reclaim.world import STEP_SECONDS, World, read_rules, suspend_policy
from tests.analyzer.sources.owners.test_real_owners import make_job, make_set
from tests.analyzer.usage_tables import resting, signal, working
from tests.kubernetes.cluster import Cluster, Json, path_of, pod, wait_for

pytestmark = pytest.mark.slow


def start(
    world: World,
    name: str = "web",
    *,
    replicas: int = 1,
    gpus: int = 1,
    selector: dict[str, str] | None = None,
    resource: str = "nvidia.com/gpu",
) -> Json:
    """A Deployment whose pods are Running."""
    item = make_set("Deployment", name, world.namespace)
    item["spec"]["template"]["spec"]["nodeSelector"] = selector or {}
    item["spec"]["replicas"] = replicas
    item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {resource: str(gpus)}}
    [created] = world.kubernetes.apply(item)
    wait_for(lambda: _count_running(world, name) == replicas)
    wait_for(lambda: _is_settled(world, created))
    return created


def _is_settled(world: World, item: Json) -> bool:
    """Its controller writes no more: a write of ours would be a conflict with it."""
    status = world.kubernetes.request("GET", path_of(item)).get("status", {})
    reasons = {each.get("reason") for each in status.get("conditions", ())}
    return status.get("availableReplicas", 0) == item["spec"]["replicas"] and "NewReplicaSetAvailable" in reasons


def _count_running(world: World, name: str) -> int:
    pods = world.kubernetes.list_pods(world.namespace)
    return sum(each["metadata"]["name"].startswith(name) and each["status"].get("phase") == "Running" for each in pods)


def read_replicas(world: World, item: Json) -> int:
    return int(world.kubernetes.request("GET", path_of(item))["spec"]["replicas"])


def patch(world: World, item: Json, body: Json) -> Json:
    return world.kubernetes.request("PATCH", path_of(item), body, media="application/merge-patch+json")


def expect_nothing(world: World, item: Json, *guards: str, cycles: int = 12) -> None:
    """More cycles than a workload needs from the first warning to the action: nothing is written, and these guards are
    the reason."""
    for _ in range(cycles):
        world.cycle()
    assert world.list_writes() == [], world.explain()
    assert set(guards) <= set(world.list_failed(item["metadata"]["name"])), world.explain()


def test_an_idle_deployment_is_warned_about_and_then_suspended(world: World, node: str) -> None:
    item = start(world)
    world.rest(minutes=65)
    assert world.cycle() == {"web": Outcome.WAIT}, world.explain()
    assert world.list_failed("web") == ["seen", "warned"]
    assert world.cycle() == {"web": Outcome.WARN}, world.explain()
    assert world.sender.kinds() == ["warning"]
    assert read_replicas(world, item) == 1
    acted = world.run_until_acted()
    assert [each.state for each in acted] == [ActionState.ACTED]
    assert read_replicas(world, item) == 0
    assert {each["passed"] for each in acted[0].evidence["guards"]} == {True}


def test_never_on_first_sight(world: World, node: str) -> None:
    """A new process has the idle time from the ledger, and a delivered warning in the journal, and still waits."""
    item = start(world)
    world.rest(minutes=65)
    for _ in range(3):
        world.cycle()
    world.rest(minutes=40)
    world.start()
    world.cycle()
    assert world.list_failed("web") == ["seen"]
    assert read_replicas(world, item) == 1


def test_never_without_a_delivered_warning(world: World, node: str) -> None:
    item = start(world)
    world.sender.delivers = False
    world.rest(minutes=65)
    expect_nothing(world, item, "warned", cycles=20)
    assert set(world.sender.kinds()) == {"warning"}, "it was sent, and sent again"


def test_never_where_nobody_can_be_warned(world: World, node: str) -> None:
    item = start(world)
    world.sender.has_channel = False
    world.rest(minutes=65)
    expect_nothing(world, item, "warned")


def test_never_within_the_grace_period_and_not_before_all_warnings(world: World, node: str) -> None:
    item = start(world)
    world.policies.policy = suspend_policy(warnings=2, warning_interval_seconds=1200.0)
    world.rest(minutes=65)
    sent = []
    for _ in range(20):
        world.cycle()
        sent.append(len(world.sender.notices))
        if read_replicas(world, item) == 0:
            break
    assert sent[:2] == [0, 1]
    first, second = (each.at for each in list(world.sender.notices.values())[:2])
    assert second - first >= 1200
    acted = world.list_actions()[0].acted_at
    assert acted is not None
    assert acted - second >= 1800


def test_a_warning_of_an_earlier_idle_spell_does_not_count(world: World, node: str) -> None:
    item = start(world)
    world.rest(minutes=65)
    world.cycle()
    world.cycle()
    assert world.sender.kinds() == ["warning"]
    world.work()
    world.rest(minutes=75)
    world.cycle()
    world.cycle()
    assert world.sender.kinds() == ["warning", "warning"]
    assert read_replicas(world, item) == 1
    assert [each.state for each in world.list_actions()] == [ActionState.WARNED, ActionState.ENDED]


def test_never_on_partial_coverage(world: World, node: str) -> None:
    item = start(world)
    world.rest(minutes=65)
    world.coverage = 0.5
    for _ in range(12):
        world.cycle()
    assert world.list_writes() == []
    assert world.reclaimer.preview(_key(world, item)).outcome is not Outcome.ACT


def _key(world: World, item: Json):  # type: ignore[no-untyped-def]
    from gpusteward.core.node.containers import WorkloadKey

    return WorkloadKey(item["kind"], world.namespace, item["metadata"]["name"])


SAMPLED = signal(Measure.CORE, 0.0) | signal(Measure.MEMORY_COPY, 0.0) | signal(Measure.MEMORY_USED, 0.0)


def test_never_on_sampled_proof(world: World, node: str) -> None:
    item = start(world)
    world.other_row = SAMPLED
    world.rest(minutes=65)
    expect_nothing(world, item, "proof")


def test_never_before_the_window_has_passed_with_integrated_proof(world: World, node: str) -> None:
    """The first half of the idle time was sampled only."""
    item = start(world)
    world.other_row = SAMPLED
    world.rest(minutes=60)
    world.cycle()
    world.other_row = resting(0.0, processes=0.0)
    for _ in range(11):
        world.cycle()
    assert "window" in world.list_failed("web")
    assert world.list_writes() == []
    assert read_replicas(world, item) == 1


def test_never_with_one_active_gpu_among_eight(world: World, node: str) -> None:
    start(world, gpus=8)
    [name] = [each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)]
    world.rows[f"{name}/7"] = working()
    world.rest(minutes=65)
    for _ in range(12):
        assert world.cycle() == {}
    assert world.list_writes() == []


def test_never_with_one_busy_replica(world: World, node: str) -> None:
    start(world, replicas=3)
    names = [each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)]
    world.put_to_work(names[:1])
    world.rest(minutes=65)
    for _ in range(12):
        assert world.cycle() == {}
    assert world.list_writes() == []


def test_never_with_a_pod_that_is_not_in_the_verdict(world: World, node: str) -> None:
    """A replica on a node without an exporter may be at work."""
    item = start(world, replicas=2)
    world.rest(minutes=65)
    hidden = world.kubernetes.list_pods(world.namespace)[0]["metadata"]["name"]
    world.hidden.add(hidden)
    expect_nothing(world, item, "complete")


def read_signature(world: World) -> Signature:
    assert world.result is not None
    [code] = world.result.workloads.signature
    return SIGNATURES[code]


def start_job(world: World) -> Json:
    [item] = world.kubernetes.apply(make_job("train", world.namespace))
    world.kubernetes.wait_for_pods(world.namespace, 1)
    return item


UNSURE = {
    Signature.UNKNOWN: (start, {}),
    Signature.STARVED: (start_job, working(0.05, 0.3)),
    Signature.KEEP_ALIVE: (start, working(0.2, 0.2, spread=0.0) | signal(Measure.MEMORY_COPY, 0.0)),
}


@pytest.mark.parametrize("signature", UNSURE)
def test_never_on_what_is_not_surely_idle(world: World, node: str, signature: Signature) -> None:
    begin, world.other_row = UNSURE[signature]
    item = begin(world)
    world.rest(minutes=65)
    for _ in range(12):
        assert Outcome.ACT not in world.cycle().values()
    assert read_signature(world) is signature
    assert world.list_writes() == []
    assert len(world.kubernetes.list_pods(world.namespace)) == 1, item


def test_never_on_hung(world: World, node: str) -> None:
    """A job that holds memory and has stopped in the middle."""
    item = start_job(world)
    world.work()
    world.other_row = resting(40.0)
    world.rest(minutes=75)
    expect_nothing(world, item, "signature")
    assert read_signature(world) is Signature.HUNG


def test_never_on_starting(world: World, node: str) -> None:
    """It loads its weights for longer than a window and a grace period take, and has never worked."""
    item = start(world)
    world.judge()
    for number in range(30):
        world.other_row = resting(41.0 + number / 2)
        assert Outcome.ACT not in world.cycle().values()
        assert read_signature(world) is Signature.STARTING
    assert world.list_writes() == []
    assert read_replicas(world, item) == 1


@pytest.mark.parametrize("name", ["protected", "own"])
def test_never_in_a_protected_namespace(world: World, node: str, name: str) -> None:
    item = start(world)
    settings = world.settings.reclaim.model_copy(update={"protected_namespaces": ["team-*"]})
    if name == "own":
        world.own_namespace = world.namespace
        world.start()
    else:
        world.settings = world.settings.model_copy(update={"reclaim": settings})
    world.rest(minutes=65)
    expect_nothing(world, item, "protected")


@pytest.mark.parametrize("where", ["pod", "owner", "namespace"])
def test_never_against_an_owner_who_wants_to_keep_it(world: World, node: str, where: str) -> None:
    item = start(world)
    note = {"metadata": {"annotations": {"gpusteward.io/keep": "true"}}}
    place = {
        "owner": item,
        "namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.namespace}},
        "pod": {"apiVersion": "v1", "kind": "Pod", **world.kubernetes.list_pods(world.namespace)[0]},
    }[where]
    patch(world, place, note)
    world.rest(minutes=65)
    expect_nothing(world, item, "kept")


def test_an_owner_who_decides_in_the_last_moment_is_heard(world: World, node: str) -> None:
    """Plans use objects that were read some minutes ago; actions do not."""
    item = start(world)
    world.rest(minutes=65)
    for _ in range(7):
        world.cycle()
    assert world.list_failed("web") == ["warned"]
    world.now -= STEP_SECONDS
    patch(world, item, {"metadata": {"annotations": {"gpusteward.io/keep": "true"}}})
    for _ in range(4):
        world.now -= STEP_SECONDS / 2
        world.cycle()
    assert read_replicas(world, item) == 1
    assert all("patch" not in event["verb"] for event in world.list_writes())


def test_never_while_it_is_snoozed(world: World, node: str) -> None:
    item = start(world)
    world.snoozes[_key(world, item)] = world.now + 86_400
    world.rest(minutes=65)
    expect_nothing(world, item, "snoozed")
    assert world.sender.kinds() == []


def test_never_a_second_time_after_a_revert(world: World, node: str) -> None:
    """A GitOps tool puts the replicas back. It is left alone for the cool-down, and after a second time for good."""
    item = start(world)
    for count in (1, 2):
        world.run_until_acted()
        world.kubernetes.apply(make_set("Deployment", "web", world.namespace))  # takes the field with force
        wait_for(lambda: _count_running(world, "web") == 1)
        wait_for(lambda: _is_settled(world, item))
        world.cycle()
        reverted = world.list_actions(ActionState.REVERTED)
        assert len(reverted) == count, world.explain()
        annotations = world.kubernetes.request("GET", path_of(item))["metadata"].get("annotations", {})
        assert not [name for name in annotations if name.startswith("gpusteward.io/")]
        writes = len(world.list_writes())
        world.rest(minutes=75)
        world.cycle()
        world.cycle()
        assert "cool_down" in world.list_failed("web")
        assert len(world.list_writes()) == writes
        world.now += 86_400
        world.work()
    world.rest(minutes=75)
    for _ in range(12):
        world.cycle()
    assert "reverted" in world.list_failed("web")
    assert world.sender.kinds().count("refused") == 2
    assert read_replicas(world, item) == 1


def test_never_in_observe_mode(kubernetes: Cluster, tmp_path: Path, node: str) -> None:
    """The audit log shows no write but dry runs."""
    world = World(kubernetes, tmp_path, mode="observe")
    item = start(world)
    world.rest(minutes=65)
    for _ in range(12):
        outcomes = world.cycle()
    assert outcomes == {"web": Outcome.ACT}, world.explain()
    assert world.list_writes() == []
    events = [each for each in kubernetes.read_audit(world.account.user) if each["verb"] not in ("get", "list")]
    assert [each["verb"] for each in events] == ["patch"]
    assert all("dryRun=All" in each["requestURI"] for each in events)
    [action] = world.list_actions()
    assert (action.state, action.steps[-1].note.en) == (ActionState.PLANNED, "dry run: accepted")
    assert world.sender.kinds() == [], "nobody is warned of what will not happen"
    assert read_replicas(world, item) == 1
    world.close()


def test_observe_cannot_write_anything(kubernetes: Cluster, tmp_path: Path, node: str) -> None:
    """With the rights of observe the dry run shows the 403 that enforce would meet."""
    from gpusteward.analyzer.reclaim.kinds.rights import OBSERVE_RIGHTS

    rules = read_rules() + [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": list(each.verbs)} for each in OBSERVE_RIGHTS
    ]
    account = kubernetes.add_account(kubernetes.add_namespace("gpusteward"), rules)
    world = World(kubernetes, tmp_path, mode="observe", account=account)
    start(world)
    world.rest(minutes=65)
    for _ in range(12):
        world.cycle()
    [action] = world.list_actions()
    assert "403" in action.steps[-1].note.en, action.steps
    assert [
        each["responseStatus"]["code"] for each in kubernetes.read_audit(account.user) if each["verb"] == "patch"
    ] == [403]
    world.close()


def test_enforce_without_rights_is_refused_and_told(kubernetes: Cluster, tmp_path: Path, node: str) -> None:
    world = World(kubernetes, tmp_path)
    item = start(world)
    rules = [
        *read_rules(),
        {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
        {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["list"]},
    ]
    kubernetes.grant(world.account, rules)
    world.rest(minutes=65)
    for _ in range(12):
        world.cycle()
    assert world.list_actions()[0].state is ActionState.REFUSED, world.explain()
    assert "403" in world.list_actions()[0].error
    assert "refused" in world.sender.kinds()
    assert read_replicas(world, item) == 1
    world.close()


def test_never_with_a_stale_verdict(world: World, node: str) -> None:
    item = start(world)
    world.rest(minutes=65)
    for _ in range(3):
        world.cycle()
    result = world.judge()
    world.now += 7200
    world.reclaimer.reclaim(result)
    assert "fresh" in world.list_failed("web")
    assert read_replicas(world, item) == 1


def test_never_on_a_guessed_owner(world: World, node: str) -> None:
    """Without the right to read owners, the Deployment is derived from the names of its pods."""
    item = start(world)
    only_pods = [{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list"]}]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}
    world.kubernetes.grant(world.account, [*only_pods, leases])
    world.rest(minutes=65)
    expect_nothing(world, item, "owner")


def test_never_on_a_replaced_owner(world: World, node: str) -> None:
    """Deleted and created anew under the same name: its pods, and what they are owned by, are others."""
    item = start(world)
    world.rest(minutes=65)
    for _ in range(3):
        world.cycle()
    result = world.judge()
    world.kubernetes.delete(item)
    wait_for(lambda: not world.kubernetes.exists(item) and not world.kubernetes.list_pods(world.namespace))
    start(world)
    world.now += 2400
    world.reclaimer.reclaim(replace(result, at=world.now))
    assert read_replicas(world, item) == 1
    assert world.list_failed("web"), world.explain()
    assert [event["verb"] for event in world.list_writes()] == []


def test_never_two_leaders(world: World, node: str) -> None:
    """Another analyzer holds the Lease: this one plans, and neither warns nor acts."""
    item = start(world)
    world.rest(minutes=65)
    first = world.reclaimer
    for _ in range(3):
        world.cycle()
    second = world.start(holder="analyzer-1")
    for _ in range(12):
        result = world.judge()
        second.reclaim(result)
        world.now += STEP_SECONDS
    assert "leader" in world.list_failed("web")
    assert read_replicas(world, item) == 1
    assert second.describe()["holder"] == "analyzer-0"
    first.close()  # gives the Lease up
    second.reclaim(world.judge())
    assert second.describe()["is_holder"]


@pytest.mark.parametrize("how", ["annotation", "ledger"])
def test_never_when_it_is_switched_off(world: World, node: str, how: str) -> None:
    item = start(world)
    world.rest(minutes=65)
    for _ in range(3):
        world.cycle()
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.own}}
    if how == "annotation":
        patch(world, own, {"metadata": {"annotations": {"gpusteward.io/reclaim": "off"}}})
    else:
        world.reclaimer.switch_off(by="alice", reason="incident")
    expect_nothing(world, item, "switch")
    if how == "annotation":
        patch(world, own, {"metadata": {"annotations": {"gpusteward.io/reclaim": None}}})
    else:
        world.reclaimer.switch_on(by="alice")
    world.run_until_acted()


def test_limits_per_cycle_and_per_hour_hold(world: World, node: str) -> None:
    items = [start(world, name) for name in ("a", "b", "c")]
    world.policies.policy = suspend_policy(limits=Limits(per_cycle=1, per_namespace=1, per_hour=2))
    world.run_until_acted()
    assert sorted(read_replicas(world, item) for item in items) == [0, 1, 1]
    for _ in range(4):
        world.cycle()
    assert sorted(read_replicas(world, item) for item in items) == [0, 0, 1]


REFUSED = {
    "a StatefulSet that would lose its volumes": "whenScaled is Delete",
    "a Job that another controller manages": "managedBy is example.com/other",
    "a notebook with the lock of OpenShift": "a lock of OpenShift AI",
    "a pod of JupyterHub": "only the hub may stop it",
    "a Deployment of an unknown custom resource": "cannot be read",
    "a RayJob on a cluster of somebody else": "clusterSelector",
    "a job in a queue without a Workload": "number of its Workloads is 0",
    "an InferenceService of ModelMesh": "ModelMesh",
    "a Deployment that holds its GPU for a server": "holds its GPU for pod launcher-0",
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason(world: World, node: str, case: str) -> None:
    name = make_refused(world, case)
    world.work()
    world.rest(minutes=75)
    for _ in range(10):
        world.cycle()
    failed = {answer.guard: answer.reason.en for answer in world.decision(name).failed}
    reason = failed.get("kind", failed.get("owner", ""))
    assert REFUSED[case] in reason or (case.endswith("custom resource") and "owner" in failed), world.explain()
    assert world.list_writes() == []


def make_refused(world: World, case: str) -> str:
    cluster, namespace = world.kubernetes, world.namespace
    if "StatefulSet" in case:
        item = make_set("StatefulSet", "one", namespace)
        item["spec"]["persistentVolumeClaimRetentionPolicy"] = {"whenScaled": "Delete", "whenDeleted": "Retain"}
        cluster.apply(item)
    elif "another controller" in case or "queue" in case:
        item = make_job("one", namespace)
        if "queue" in case:
            define(cluster, "kueue.x-k8s.io", "Workload", "v1beta1")
            item["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
        else:
            item["spec"]["managedBy"] = "example.com/other"
        [created] = cluster.apply(item)
        if "queue" not in case:
            cluster.apply(pod("one-0", namespace, node="", gpus=1, ownerReferences=[reference_to(created)]))
    elif "JupyterHub" in case:
        labels = {"component": "singleuser-server", "hub.jupyter.org/username": "alice"}
        world.policies.policy = suspend_policy(action=ReclaimAction.EVICT)
        cluster.apply(pod("one", namespace, gpus=1, labels=labels))
    elif "for a server" in case:
        item = make_set("Deployment", "one", namespace)
        item["spec"]["template"]["metadata"]["labels"]["dual-pods.llm-d.ai/dual"] = "launcher-0"
        cluster.apply(item)
    elif "unknown custom" in case:
        define(cluster, "example.com", "Platform")
        owner = create(cluster, custom("example.com/v1", "Platform", "one", namespace, {}))
        item = make_set("Deployment", "one", namespace)
        item["metadata"]["ownerReferences"] = [reference_to(owner)]
        cluster.apply(item)
    else:
        group, kind = {
            "a no": ("kubeflow.org", "Notebook"),
            "a Ra": ("ray.io", "RayJob"),
            "an I": ("serving.kserve.io", "InferenceService"),
        }[case[:4]]
        define(cluster, group, kind)
        notes = {"kubeflow-resource-stopped": "odh-notebook-controller-lock"} if kind == "Notebook" else {}
        notes |= {"serving.kserve.io/deploymentMode": "ModelMesh"} if kind == "InferenceService" else {}
        spec = {"clusterSelector": {"ray.io/cluster": "shared"}} if kind == "RayJob" else {}
        owner = create(cluster, custom(f"{group}/v1", kind, "one", namespace, spec, annotations=notes))
        cluster.apply(pod("one-0", namespace, gpus=1, ownerReferences=[reference_to(owner)]))
    cluster.wait_for_pods(namespace, 1)
    return "one"


def test_a_pod_that_a_disruption_budget_protects_is_tried_again_and_never_deleted(world: World, node: str) -> None:
    world.kubernetes.apply(pod("lonely", world.namespace, node=node, gpus=1, labels={"app": "lonely"}))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "lonely", "namespace": world.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "lonely"}}},
    }
    world.kubernetes.wait_for_pods(world.namespace, 1)
    world.kubernetes.request("POST", f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets", budget)
    world.policies.policy = suspend_policy(action=ReclaimAction.EVICT)
    world.rest(minutes=65)
    for _ in range(12):
        world.cycle()
    [action] = world.list_actions()
    assert action.state is ActionState.WARNED
    assert "429" in action.steps[-1].note.en, action.steps
    assert "delete" not in {event["verb"] for event in world.list_writes()}
    assert len(world.kubernetes.list_pods(world.namespace)) == 1
