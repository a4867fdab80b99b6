"""Allocations from the kubelet's claims and pod annotations: holder, share and limits."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.agent.kubernetes.kubelet import Claim
from gpusteward.agent.kubernetes.pods import Pod
from gpusteward.agent.shares.resolver import Resolution, Resolver, resolve_allocations
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuReading, MigIdentity, Share

GIB, MIB = 1 << 30, 1 << 20
A, B, M = "GPU-aaaaaaaa", "GPU-bbbbbbbb", "MIG-cccccccc"
READING_A = GpuReading(Gpu("node-a", 0, A, "A100", minor=0, memory_total_bytes=80 * GIB))
READING_B = GpuReading(Gpu("node-a", 1, B, "A100", minor=1, memory_total_bytes=80 * GIB), is_mig_parent=True)
READING_M = GpuReading(Gpu("node-a", 1, M, "A100", memory_total_bytes=20 * GIB, mig=MigIdentity(B, "2g.20gb", 3, 0)))
READINGS = (READING_A, READING_B, READING_M)
HAMI, VOLCANO = "hami.io/vgpu-devices-allocated", "volcano.sh/vgpu-ids-new"


def claim(device_id: str, pod: str = "trainer", container: str = "main", resource: str = "nvidia.com/gpu") -> Claim:
    return Claim("ml", pod, container, resource, device_id, ())


def pod(name: str = "trainer", *, namespace: str = "ml", **more: Any) -> Pod:
    known = Pod(namespace, name, f"uid-{name}", phase="Running", container_names=("main",))
    return replace(known, **more)


def by_uid(*pods: Pod) -> Mapping[str, Pod]:
    return {each.uid: each for each in pods}


def resolve(*claims: Claim, pods: Mapping[str, Pod] | None = None, ratio: float | None = None) -> Resolution:
    return resolve_allocations(claims, pods or {}, READINGS, ratio=ratio)


def only(resolution: Resolution) -> GpuAllocation:
    assert len(resolution.allocations) == 1
    return resolution.allocations[0]


def test_a_whole_gpu_is_held_exclusively_and_named_after_the_pod() -> None:
    workload = Workload("Job", "ml", "train")
    known = pod(workload=workload, exported_labels=(("team", "vision"),), started_at=5.0)
    held = only(resolve(claim(A), pods=by_uid(known)))
    assert held == GpuAllocation(
        Container("ml", "trainer", "uid-trainer", "main"), A, Share.EXCLUSIVE, "nvidia.com/gpu"
    )
    assert held.container.workload == workload
    assert (held.container.pod_labels, held.container.started_at) == ((("team", "vision"),), 5.0)


@pytest.mark.parametrize("pods", [{}, by_uid(pod("another"))])
def test_a_claim_of_a_pod_not_seen_yet_is_kept_without_a_uid(pods: Mapping[str, Pod]) -> None:
    assert only(resolve(claim(A), pods=pods)).container == Container("ml", "trainer", "", "main")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing_though_the_kubelet_still_lists_it(phase: str) -> None:
    finished = pod(phase=phase, annotations={HAMI: f"{A},NVIDIA,100,10:;"})
    assert resolve(claim(A), claim("unknown"), pods=by_uid(finished)) == Resolution()


def test_an_unresolved_device_id_is_reported_and_does_not_affect_others() -> None:
    resolution = resolve(claim("GPU-elsewhere"), claim(A), claim("GPU-elsewhere", "other"))
    assert resolution.unresolved == ("GPU-elsewhere",)
    assert resolution.unplaced == {("ml", "trainer"), ("ml", "other")}
    assert only(resolution).gpu_uuid == A


def test_a_mig_instance_has_its_own_share() -> None:
    held = only(resolve(claim(M, resource="nvidia.com/mig-2g.20gb")))
    assert (held.gpu_uuid, held.share) == (M, Share.MIG)


def test_replicas_of_one_gpu_in_one_container_are_one_allocation() -> None:
    held = only(resolve(claim(f"{A}::10"), claim(f"{A}::9"), claim(f"{A}::9")))
    assert (held.share, held.replica) == (Share.TIME_SLICED, "9,10")


@pytest.mark.parametrize(("is_mps", "share"), [(False, Share.TIME_SLICED), (True, Share.MPS)])
def test_replicas_are_time_sliced_unless_an_mps_server_shares_the_gpu(is_mps: bool, share: Share) -> None:
    readings = [replace(READING_A, is_mps=is_mps)]
    resolution = resolve_allocations([claim(f"{A}::0"), claim(f"{A}::1", "other")], {}, readings, ratio=None)
    assert [each.share for each in resolution.allocations] == [share, share]


def test_a_gpu_held_whole_by_two_containers_is_not_exclusive() -> None:
    resolution = resolve(claim(A), claim(A, "other"))
    assert {each.share for each in resolution.allocations} == {Share.TIME_SLICED}


def test_a_gpu_held_by_two_containers_of_one_pod_is_exclusive_to_the_pod() -> None:
    resolution = resolve(claim(A), claim(A, container="sidecar"))
    assert {each.share for each in resolution.allocations} == {Share.EXCLUSIVE}


def test_the_labels_of_a_dynamic_resource_claim_are_kept() -> None:
    dra = (("dra_claim_name", "one-gpu"),)
    assert only(resolve(Claim("ml", "trainer", "main", "", "gpu-0", dra))).claim == dra


def test_a_dynamic_resource_claim_of_a_mig_instance_has_its_profile_and_uuid() -> None:
    dra = (("dra_claim_name", "slice"),)
    held = only(resolve(Claim("ml", "trainer", "main", "", "gpu-1-mig-2g20gb-14-0", dra)))
    assert held.claim == (*dra, ("dra_mig_profile", "2g.20gb"), ("dra_mig_device_uuid", M))
    assert only(resolve(Claim("ml", "trainer", "main", "nvidia.com/mig-2g.20gb", M))).claim == ()


@pytest.mark.parametrize("annotation", [HAMI, VOLCANO])
def test_the_schedulers_grant_takes_precedence_over_the_kubelets_device_id(annotation: str) -> None:
    known = pod(annotations={annotation: f"{A},NVIDIA,3000,30:;"})
    held = only(resolve(claim(f"{B}-7", resource="volcano.sh/vgpu-number"), pods=by_uid(known)))
    assert (held.gpu_uuid, held.share, held.resource) == (A, Share.HAMI, "volcano.sh/vgpu-number")
    assert (held.memory_limit_bytes, held.core_limit_ratio) == (3000 * MIB, 0.3)


def test_grants_are_used_without_the_kubelet() -> None:
    known = pod(
        container_names=("main", "helper"), annotations={HAMI: f"{A},NVIDIA,1,0:;{A},NVIDIA,2,0:{B},NVIDIA,0,0:;"}
    )
    found = {(each.container.name, each.gpu_uuid): each for each in resolve(pods=by_uid(known)).allocations}
    assert set(found) == {("main", A), ("helper", A), ("helper", B)}
    assert found["helper", B].memory_limit_bytes is found["helper", B].core_limit_ratio is None


def test_grants_count_init_containers_where_there_are_as_many() -> None:
    known = pod(init_container_names=("fetch",), annotations={HAMI: f";{A},NVIDIA,1,0:;"})
    assert only(resolve(pods=by_uid(known))).container.name == "main"
    early = replace(known, annotations={HAMI: f"{A},NVIDIA,1,0:;;"})
    assert only(resolve(pods=by_uid(early))).container.name == "fetch"
    late = replace(early, finished_init_containers=frozenset({"fetch"}))
    assert resolve(pods=by_uid(late)).allocations == ()


@pytest.mark.parametrize(("annotation", "holder"), [(HAMI, "main"), (VOLCANO, "proxy")])
def test_containers_left_out_of_the_grants_are_the_first_for_hami_only(annotation: str, holder: str) -> None:
    known = pod(container_names=("proxy", "main"), annotations={annotation: f"{A},NVIDIA,1,0:"})
    assert only(resolve(pods=by_uid(known))).container.name == holder


def test_a_container_without_a_gpu_has_an_empty_grant() -> None:
    """`;;` since HAMi v2.6, a device without a name before."""
    for text in (f";{A},NVIDIA,3000,30:;;", f",,0,0:;{A},NVIDIA,3000,30:;,,0,0:;"):
        known = pod(container_names=("proxy", "main", "logs"), annotations={HAMI: text})
        assert only(resolve(pods=by_uid(known))).container.name == "main"


def test_instances_that_hami_made_are_found_by_their_uuid() -> None:
    made = json.dumps([{"containerIndex": 0, "deviceIndex": 0, "gpuUUID": B, "profile": "2g.20gb", "migUUID": M}])
    known = pod(annotations={HAMI: f"{B},NVIDIA,20000,0:;", "hami.io/vgpu-mig-allocations": made})
    held = only(resolve(pods=by_uid(known)))
    assert (held.gpu_uuid, held.share) == (M, Share.MIG)


@pytest.mark.parametrize("text", ["", ";", "nonsense", f"{A},NVIDIA,much,1:;", f"{A},NVIDIA,1", "GPU-x,NVIDIA,1,1:;"])
def test_without_a_usable_grant_the_kubelets_claims_are_used(text: str) -> None:
    held = only(resolve(claim(f"{A}-3"), pods=by_uid(pod(annotations={HAMI: text}))))
    assert (held.gpu_uuid, held.share, held.replica) == (A, Share.HAMI, "3")


def reservation(**more: Any) -> Pod:
    return pod("gpu-reservation", namespace="kai-resource-reservation", labels={"runai-gpu-group": "g1"}, **more)


def reserved(device_id: str = A) -> Claim:
    return Claim("kai-resource-reservation", "gpu-reservation", "resource-reservation", "nvidia.com/gpu", device_id, ())


def test_a_reserved_gpu_is_held_by_the_pods_of_its_group() -> None:
    half = pod("half", labels={"runai-gpu-group": "g1"}, annotations={"gpu-fraction": "0.5"})
    some = pod(
        "some", labels={"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}, annotations={"gpu-memory": "2000"}
    )
    done = pod("done", phase="Succeeded", labels={"runai-gpu-group": "g1"})
    other = pod("other", labels={"runai-gpu-group": "g3"})
    resolution = resolve(reserved(), pods=by_uid(reservation(), half, some, done, other))
    limits = {each.container.pod: each.memory_limit_bytes for each in resolution.allocations}
    assert limits == {"half": 40 * GIB, "some": 2000 * MIB}
    assert {(each.share, each.core_limit_ratio) for each in resolution.allocations} == {(Share.FRACTION, None)}


def test_the_container_that_gets_the_fraction_can_be_named() -> None:
    annotations = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "second"}
    user = pod("user", labels={"runai-gpu-group": "g1"}, annotations=annotations, container_names=("first", "second"))
    assert only(resolve(reserved(), pods=by_uid(reservation(), user))).container.name == "second"


def test_a_reservation_holds_its_gpu_while_its_users_are_unknown() -> None:
    held = only(resolve(reserved()))
    assert (held.container.pod, held.share) == ("gpu-reservation", Share.FRACTION)


def test_a_reservation_is_found_by_its_annotation_without_the_kubelet() -> None:
    user = pod("user", labels={"runai-gpu-group": "g1"}, annotations={"gpu-fraction": "0.25"})
    noted = reservation(annotations={"run.ai/reserve_for_gpu_index": A})
    held = only(resolve(pods=by_uid(replace(noted, namespace="renamed"), user)))
    assert (held.container.pod, held.memory_limit_bytes) == ("user", 20 * GIB)


def test_the_ratio_limits_every_pod_on_a_whole_gpu() -> None:
    resolution = resolve(claim(A), claim(f"{A}::1", "other"), claim(M, "third"), ratio=2)
    limits = [(each.share, each.memory_limit_bytes) for each in resolution.allocations]
    assert limits == [(Share.RATIO, 40 * GIB), (Share.RATIO, 40 * GIB), (Share.MIG, None)]


def test_another_limit_takes_precedence_over_the_ratio() -> None:
    held = only(resolve(pods=by_uid(pod(annotations={HAMI: f"{A},NVIDIA,3000,30:;"})), ratio=4))
    assert (held.share, held.memory_limit_bytes) == (Share.HAMI, 3000 * MIB)


def test_a_ratio_of_one_does_not_make_a_gpu_shared() -> None:
    held = only(resolve(claim(A), ratio=1))
    assert (held.share, held.memory_limit_bytes) == (Share.EXCLUSIVE, 80 * GIB)


def test_a_gpu_of_unknown_size_has_no_limit_rather_than_a_wrong_one() -> None:
    bare = GpuReading(Gpu("node-a", 0, A, "A100"))
    held = resolve_allocations([claim(A)], {}, [bare], ratio=2).allocations[0]
    assert (held.share, held.memory_limit_bytes) == (Share.RATIO, None)


def test_unchanged_input_is_not_resolved_again() -> None:
    resolver, pods = Resolver(), by_uid(pod())
    first = resolver.resolve([claim(A)], pods, READINGS, ratio=None)
    busier = [replace(each, signals={"utilization_ratio": 0.9}) for each in READINGS]
    assert resolver.resolve([claim(A)], pods, busier, ratio=None) is first


@pytest.mark.parametrize("changed", ["claims", "pods", "readings", "ratio"])
def test_every_change_is_noticed(changed: str) -> None:
    resolver, pods = Resolver(), by_uid(pod())
    first = resolver.resolve([claim(f"{A}::0")], pods, READINGS, ratio=None)
    second = resolver.resolve(
        [claim(f"{A}::1" if changed == "claims" else f"{A}::0")],
        by_uid(pod(phase="Failed")) if changed == "pods" else pods,
        [replace(READING_A, is_mps=True)] if changed == "readings" else READINGS,
        ratio=2 if changed == "ratio" else None,
    )
    assert second != first


KEYS = (HAMI, VOLCANO, "hami.io/vgpu-mig-allocations", "gpu-fraction", "gpu-memory", "gpu-fraction-container-name")
ANY_TEXT = st.text(st.characters(codec="utf-8")) | st.from_regex(rf"({A}|{M}|x)(,|:|;|[0-9])*") | st.just("9" * 5000)


@given(
    annotations=st.dictionaries(st.sampled_from([*KEYS, "run.ai/reserve_for_gpu_index"]), ANY_TEXT),
    groups=st.dictionaries(st.sampled_from(["runai-gpu-group", "runai-gpu-group/g1"]), st.sampled_from(["g1", ""])),
    ids=st.lists(st.sampled_from([A, f"{A}::1", f"{A}-2", M, "nvidia0", "nvidia1/gi3"]) | ANY_TEXT),
    ratio=st.none() | st.floats(min_value=5e-324, max_value=1e308),
)
def test_any_text_is_handled_and_keys_stay_unique(
    annotations: dict[str, str], groups: dict[str, str], ids: list[str], ratio: float | None
) -> None:
    user = pod("user", annotations=annotations, labels=groups, container_names=("main", "helper"))
    holder = reservation(annotations=annotations)
    claims = [reserved(), *(claim(each, name) for each in ids for name in ("user", "trainer"))]
    allocations = resolve(*claims, pods=by_uid(user, holder), ratio=ratio).allocations
    assert len({(each.container, each.gpu_uuid) for each in allocations}) == len(allocations)
