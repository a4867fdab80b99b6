"""Everything that belongs to an owner counts, on a real control plane: its pods without GPUs, and the devices of its
ResourceClaims."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.live_readings import HostUse
from tests.analyzer.reclaim.custom_kinds import add_pods, create, custom, define, reference_to
from tests.analyzer.reclaim.test_real_prohibitions import expect_nothing, start
from tests.analyzer.reclaim.world import World, enforce_rules
from tests.analyzer.sources.owners.test_real_owners import make_job, make_set
from tests.kubernetes.cluster import Cluster, Json, path_of, pod

pytestmark = pytest.mark.slow

GPU_DRIVER = "gpu.nvidia.com"


def start_ray_cluster(world: World) -> Json:
    """Two workers with a GPU each, and a head without one."""
    define(world.kubernetes, "ray.io", "RayCluster")
    item = create(world.kubernetes, custom("ray.io/v1", "RayCluster", "one", world.namespace, {"headGroupSpec": {}}))
    add_pods(world.kubernetes, item)
    world.kubernetes.apply(pod("one-head", world.namespace, ownerReferences=[reference_to(item)]))
    world.kubernetes.wait_for_pods(world.namespace, 3)
    return item


def start_job_set(world: World) -> Json:
    """A Job with a GPU, and one without: the head belongs to the JobSet through it."""
    define(world.kubernetes, "jobset.x-k8s.io", "JobSet")
    item = create(world.kubernetes, custom("jobset.x-k8s.io/v1", "JobSet", "one", world.namespace, {}))
    for name in ("one-workers", "one-head"):
        job = make_job(name, world.namespace)
        job["metadata"]["ownerReferences"] = [reference_to(item)]
        if name == "one-head":
            job["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
        world.kubernetes.apply(job)
    world.kubernetes.wait_for_pods(world.namespace, 2)
    return item


def start_deployment(world: World) -> Json:
    """Its new pod template asks for a GPU. The pods of the old one are still there: the rollout has stopped."""
    item = make_set("Deployment", "one", world.namespace)
    template = item["spec"]["template"]["spec"]["containers"][0]
    resources, template["resources"] = template["resources"], {}
    template["name"] = "head"
    item["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    item["spec"]["minReadySeconds"] = 500
    world.kubernetes.apply(item)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    template["resources"] = resources
    [created] = world.kubernetes.apply(item)
    world.kubernetes.wait_for_pods(world.namespace, 2)
    return created


STARTS = {"RayCluster": start_ray_cluster, "JobSet": start_job_set, "Deployment": start_deployment}


@pytest.mark.parametrize("kind", STARTS)
def test_never_stops_pods_without_gpus_unless_the_policy_says_so(world: World, node: str, kind: str) -> None:
    item = STARTS[kind](world)
    others = [
        each["metadata"]["name"]
        for each in world.kubernetes.list_pods(world.namespace)
        if not each["spec"]["containers"][0].get("resources", {}).get("limits")
    ]
    assert len(others) == 1
    world.source.hosts = {others[0]: HostUse(cpu_cores=0.25)}
    world.work()
    world.rest(minutes=75)
    expect_nothing(world, item, "other_pods")
    [answer] = [each for each in world.decision("one").failed if each.guard == "other_pods"]
    assert others[0] in answer.reason.en
    assert f"{others[0]} (CPU: 0.25 cores; disk: unknown, no signal;" in answer.reason.en, "what it uses is shown"
    assert f"{others[0]}（CPU 0.25 核；磁盘：未知，没有信号；" in answer.reason.zh
    assert world.sender.kinds() == []

    world.policies.policy = replace(world.policies.policy, stops_other_pods=True)
    [action] = world.run_until_acted()
    assert f"{others[0]} (CPU: 0.25 cores" in next(iter(world.sender.notices.values())).text.en, "the warning names it"
    assert [(each["name"], each["cpu_cores"]) for each in action.evidence["other_pods"]] == [(others[0], 0.25)]
    assert any(others[0] in each["reason"][0] for each in action.evidence["guards"]), "and so does the journal"


def test_pods_without_gpus_of_others_do_not_matter(world: World, node: str) -> None:
    """Of the same namespace, also one with the same labels."""
    item = start(world, "web")
    labels = world.kubernetes.list_pods(world.namespace)[0]["metadata"]["labels"]
    alike = {name: value for name, value in labels.items() if name != "pod-template-hash"}
    world.kubernetes.apply(pod("alone", world.namespace, labels=alike))
    other = make_set("StatefulSet", "db", world.namespace)
    other["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    world.kubernetes.apply(other)
    world.kubernetes.wait_for_pods(world.namespace, 3)
    world.run_until_acted()
    assert world.kubernetes.request("GET", path_of(item))["spec"]["replicas"] == 0


def offer_devices(world: World, node: str) -> None:
    """Four GPUs and a NIC of the node, as drivers publish them."""
    group = "resource.k8s.io/v1"
    for driver, names in {GPU_DRIVER: [f"gpu-{number}" for number in range(4)], "dra.net": ["nic-0"]}.items():
        devices = [{"name": name} for name in names]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        name = f"{node}-{driver}"
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        world.kubernetes.apply(
            {"apiVersion": group, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec},
            {"apiVersion": group, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": [selector]}},
        )


def start_claiming(world: World, node: str, *, gpus: int) -> Json:
    """A Deployment whose pod has a claim on GPUs and on a NIC, from a template; the scheduler allocates them."""
    offer_devices(world, node)
    requests = [
        {
            "name": name,
            "exactly": {"deviceClassName": f"{node}-{driver}", "allocationMode": "ExactCount", "count": count},
        }
        for name, driver, count in (("gpus", GPU_DRIVER, gpus), ("net", "dra.net", 1))
    ]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "devices", "namespace": world.namespace},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    item = make_set("Deployment", "web", world.namespace)
    spec = item["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "devices", "resourceClaimTemplateName": "devices"}]
    spec["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
    _, created = world.kubernetes.apply(template, item)
    world.kubernetes.wait_for_pods(world.namespace, 1)
    return created


def test_never_complete_with_one_of_four_claimed_devices_reported(world: World, node: str) -> None:
    """The three others may be at work. With all four it is suspended: the NIC of the same claim is no GPU."""
    item = start_claiming(world, node, gpus=4)
    world.reported_claims = 1
    world.work()
    world.rest(minutes=75)
    expect_nothing(world, item, "complete")
    world.reported_claims = 4
    world.run_until_acted()
    assert world.kubernetes.request("GET", path_of(item))["spec"]["replicas"] == 0


def test_never_complete_where_claims_cannot_be_read(kubernetes: Cluster, tmp_path: Path, node: str) -> None:
    rules = [rule for rule in enforce_rules() if rule["resources"] != ["resourceclaims"]]
    account = kubernetes.add_account(kubernetes.add_namespace("gpusteward"), rules)
    world = World(kubernetes, tmp_path, account=account)
    item = start_claiming(world, node, gpus=4)
    world.reported_claims = 4
    world.work()
    world.rest(minutes=75)
    expect_nothing(world, item, "complete")
    [answer] = [each for each in world.decision("web").failed if each.guard == "complete"]
    assert "403" in answer.reason.en
    world.close()
