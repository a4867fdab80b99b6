"""Holders in the dcgm dialect: exclusive holders, shared GPUs, labels of pods."""

import pytest

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.usage_counters import PartKey, UsageCounters
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, Place, Share
from gpusteward.core.node.snapshots import Snapshot
from tests.agent.dialects.snapshot_views import GIB, SIGNALS, claim, fields, instance, reading, render, view

PER_POD = DcgmOptions(device_per_pod=True)
SHARED = [share for share in Share if share not in (Share.EXCLUSIVE, Share.MIG)]


def process(pid: int, holder: GpuAllocation, *, memory: float, sm: float) -> GpuProcess:
    container = holder.container
    return GpuProcess(pid, holder.gpu_uuid, "python", int(memory), sm, place=Place.CONTAINER, container=container)


@pytest.mark.parametrize("share", SHARED)
def test_a_shared_gpu_has_no_pod_label_even_with_one_holder(share: Share) -> None:
    labels, _ = render(view([reading()], [claim("a", share=share)])).only("DCGM_FI_DEV_GPU_UTIL")
    assert "pod" not in labels


def test_a_gpu_held_by_two_pods_has_no_pod_label() -> None:
    labels, _ = render(view([reading()], [claim("a"), claim("b")])).only("DCGM_FI_DEV_GPU_UTIL")
    assert "pod" not in labels


def test_two_containers_of_one_pod_make_one_sample() -> None:
    both = [claim("a", container="main"), claim("a", container="init")]
    labels, _ = render(view([reading()], both)).only("DCGM_FI_DEV_GPU_UTIL")
    assert (labels["pod"], labels["container"]) == ("a", "init")


def test_a_dynamic_resource_claim_is_labelled() -> None:
    dra = {"dra_driver_name": "gpu.nvidia.com", "dra_claim_name": "one", "dra_pool_name": ""}
    labels, _ = render(view([reading()], [claim("a", dra=dra)])).only("DCGM_FI_DEV_GPU_UTIL")
    assert list(labels)[-5:] == ["container", "dra_claim_name", "dra_driver_name", "namespace", "pod"]


def test_unknown_values_of_the_holder_have_no_label() -> None:
    unnamed = GpuAllocation(Container(pod_uid="uid-1"), "GPU-0")
    labels, _ = render(view([reading()], [unnamed]), DcgmOptions(pod_uid=True)).only("DCGM_FI_DEV_GPU_UTIL")
    assert list(labels)[-1] == "pod_uid"
    assert "pod" not in labels


def test_pod_labels_are_sorted_with_the_label_rows() -> None:
    chosen = fields("DCGM_FI_DRIVER_VERSION,label,", "DCGM_FI_DEV_SERIAL,label,", "DCGM_FI_DEV_GPU_TEMP")
    held = claim("a", labels={"app.kubernetes.io/name": "x", "Dx": "y", "zone": "z"})
    labels, _ = render(view([reading()], [held]), DcgmOptions(pod_labels=True), chosen).only("DCGM_FI_DEV_GPU_TEMP")
    assert list(labels)[5:] == [
        "DCGM_FI_DEV_SERIAL",
        "DCGM_FI_DRIVER_VERSION",
        "Dx",
        "app_kubernetes_io_name",
        "zone",
        "container",
        "namespace",
        "pod",
    ]


def test_pod_labels_are_off_by_default() -> None:
    labels, _ = render(view([reading()], [claim("a", labels={"app": "x"})])).only("DCGM_FI_DEV_GPU_TEMP")
    assert "app" not in labels


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ({"gpu": "x"}, {"pod_label_gpu": "x"}),
        ({"pod": "x", "pod_label_pod": "y"}, {"pod_label_pod": "x", "pod_label_pod_label_pod": "y"}),
        ({"a.b": "x", "a/b": "y", "a-b": "z"}, {"a_b": "z", "pod_label_a_b": "x", "pod_label_a_b_2": "y"}),
        ({"1st": "x"}, {"_1st": "x"}),
        ({"dra_claim_name": "x"}, {"pod_label_dra_claim_name": "x"}),
        (
            {"xid": "x", "UUID": "y", "Hostname": "z"},
            {f"pod_label_{n}": v for n, v in zip(("xid", "UUID", "Hostname"), "xyz", strict=True)},
        ),
        ({"DCGM_FI_DRIVER_VERSION": "x"}, {"pod_label_DCGM_FI_DRIVER_VERSION": "x"}),
    ],
)
def test_a_pod_label_never_takes_the_name_of_another_label(written: dict[str, str], shown: dict[str, str]) -> None:
    options = DcgmOptions(pod_labels=True, hostname="node-1")
    labels, _ = render(view([reading()], [claim("a", labels=written)]), options).only("DCGM_FI_DEV_GPU_TEMP")
    assert shown.items() <= labels.items()
    assert labels["gpu"] == "0"
    assert labels["pod"] == "a"


def sliced(pod: str, replica: str) -> GpuAllocation:
    return claim(pod, share=Share.TIME_SLICED, replica=replica)


def test_the_per_pod_form_has_the_usage_of_each_pod_and_the_rest_without_a_pod() -> None:
    a, b = sliced("a", "0"), sliced("b", "1")
    used = [process(1, a, memory=6 * GIB, sm=0.3), process(2, b, memory=3 * GIB, sm=0.1)]
    energy: dict[PartKey, float] = {("GPU-0", Place.CONTAINER, a.container): 5.0}
    page = render(view([reading()], [a, b], processes=used, energy=energy), PER_POD)
    by_pod = {name: {x.get("pod"): value for x, value in page.samples(name)} for name in page.names()}
    assert by_pod["DCGM_FI_DEV_GPU_UTIL"] == {"a": 30, "b": 10, None: 2}
    assert by_pod["DCGM_FI_DEV_FB_USED"] == {"a": 6144, "b": 3072, None: 1024}
    assert by_pod["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == {"a": 5000}  # of b it is unknown: absent
    assert sum(by_pod["DCGM_FI_DEV_POWER_USAGE"].values()) == pytest.approx(SIGNALS["power_watts"])
    assert by_pod["DCGM_FI_DEV_GPU_TEMP"] == {"a": 36, "b": 36}
    assert [x["vgpu"] for x, _ in page.samples("DCGM_FI_DEV_GPU_TEMP")] == ["0", "1"]


def test_a_pod_that_holds_a_share_without_using_it_has_0() -> None:
    a, b = sliced("a", "0"), sliced("b", "1")
    page = render(view([reading()], [a, b], processes=[process(1, a, memory=GIB, sm=0.3)]), PER_POD)
    assert page.values("DCGM_FI_DEV_GPU_UTIL") == [30, 0, 12]


def test_unknown_values_of_a_pod_are_absent_in_the_per_pod_form() -> None:
    unattributed = GpuProcess(9, "GPU-0", memory_bytes=None, sm_ratio=None, place=Place.UNKNOWN)
    page = render(view([reading()], [sliced("a", "0"), sliced("b", "1")], processes=[unattributed]), PER_POD)
    assert [(x.get("pod"), value) for x, value in page.samples("DCGM_FI_DEV_GPU_UTIL")] == [(None, 42)]
    assert page.values("DCGM_FI_DEV_FB_USED") == [10 * 1024]
    assert len(page.values("DCGM_FI_DEV_GPU_TEMP")) == 2


def test_the_rest_has_the_host_pods_that_hold_nothing_and_what_nobody_is_known_for() -> None:
    a, intruder = sliced("a", "0"), claim("intruder")
    used = [
        process(1, a, memory=GIB, sm=0.1),
        process(2, intruder, memory=2 * GIB, sm=0.2),
        GpuProcess(3, "GPU-0", memory_bytes=3 * GIB, sm_ratio=0.05, place=Place.HOST),
    ]
    page = render(view([reading()], [a], processes=used), PER_POD)
    assert page.values("DCGM_FI_DEV_GPU_UTIL") == [10, 32]
    assert page.values("DCGM_FI_DEV_FB_USED") == [1024, 9 * 1024]


def test_the_energy_of_the_rest_goes_on_when_one_of_the_others_leaves() -> None:
    a, intruder = sliced("a", "0"), claim("intruder")
    used = [process(1, a, memory=GIB, sm=0.1), process(2, intruder, memory=GIB, sm=0.2)]
    device = reading(signals={name: value for name, value in SIGNALS.items() if name != "energy_joules_total"})
    counters, energy = UsageCounters(longest_gap_seconds=60), []
    for cycle, running in enumerate((used, used, used[:1], used[:1])):
        snapshot = Snapshot("node-1", 1000.0 + 10 * cycle, (device,), tuple(running), (a,))
        page = render(counters.advance(snapshot), PER_POD)
        energy.append(sum(page.values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")) / 1000)
    joules = 10 * SIGNALS["power_watts"]
    assert energy == pytest.approx([0, joules, 2 * joules, 3 * joules])


def test_events_and_device_values_of_a_shared_gpu_are_not_repeated_for_the_rest() -> None:
    page = render(view([reading()], [sliced("a", "0")]), PER_POD)
    assert [x.get("pod") for x, _ in page.samples("DCGM_FI_DEV_XID_ERRORS")] == ["a"]


def test_two_replicas_of_one_container_do_not_count_its_use_twice() -> None:
    first, second = sliced("a", "0"), sliced("a", "1")
    page = render(view([reading()], [first, second], processes=[process(1, first, memory=8 * GIB, sm=0.4)]), PER_POD)
    assert page.values("DCGM_FI_DEV_GPU_UTIL") == [20, 20, 2]
    assert page.values("DCGM_FI_DEV_FB_USED") == [4096, 4096, 2048]


def test_claims_with_identical_labels_are_summed_in_one_sample() -> None:
    first, second = sliced("a", ""), sliced("a", "")
    page = render(view([reading()], [first, second], processes=[process(1, first, memory=8 * GIB, sm=0.4)]), PER_POD)
    assert page.values("DCGM_FI_DEV_GPU_UTIL") == [40, 2]


def test_the_per_pod_form_leaves_exclusive_and_free_gpus_as_they_are() -> None:
    readings = [reading(0), reading(1)]
    assert render(view(readings, [claim("a")]), PER_POD).samples("DCGM_FI_DEV_FB_USED") == render(
        view(readings, [claim("a")])
    ).samples("DCGM_FI_DEV_FB_USED")


def test_a_shared_mig_instance_has_a_copy_per_pod_and_the_gpu_its_power_once() -> None:
    a, b = (claim(pod, "MIG-0-7-0", share=Share.TIME_SLICED, replica=pod) for pod in "ab")
    readings = [reading(0, is_mig_parent=True), instance(0, 7)]
    page = render(view(readings, [a, b], processes=[process(1, a, memory=GIB, sm=0.0)]), PER_POD)
    assert [(x.get("pod"), x["GPU_I_ID"], value) for x, value in page.samples("DCGM_FI_DEV_FB_USED")] == [
        ("a", "7", 1024),
        ("b", "7", 0),
        (None, "7", 1024),
    ]
    assert page.values("DCGM_FI_DEV_POWER_USAGE") == [112.252]
