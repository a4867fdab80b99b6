"""The dcgm dialect on whole GPUs and MIG instances: names, units, labels and their order."""

import pytest

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.field_list import default_fields
from gpusteward.core.exposition import LabelCache, render_page
from tests.agent.dialects.snapshot_views import (
    GIB,
    SIGNALS,
    claim,
    fields,
    instance,
    read_labels,
    reading,
    render,
    view,
)

# One sample of each of three real pages (elastic integrations; run-ai fake-gpu-operator, twice), labels and value.
REAL_PLAIN = (
    '{gpu="0",UUID="GPU-2492e3fa",pci_bus_id="00000000:00:04.0",device="nvidia0",modelName="Tesla T4",'
    'Hostname="924e17218b6f",DCGM_FI_DRIVER_VERSION="525.105.17"}'
)
REAL_POD = (
    '{gpu="0",UUID="GPU-7a2e92f2",device="nvidia0",modelName="Tesla T4",Hostname="nvidia-dcgm-exporter-s228n",'
    'DCGM_FI_DRIVER_VERSION="525.60.13",container="runai-reservation",namespace="runai-reservation",pod="runai-kvltw"}'
)
REAL_MIG = (
    '{gpu="0",UUID="GPU-473571f2",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",'
    'GPU_I_ID="7",Hostname="nvidia-dcgm-exporter-tl46n",DCGM_FI_DRIVER_VERSION="520.56.06",container="",namespace="",'
    'pod=""}'
)
DASHBOARD_12239 = {
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}
"""Metrics used by NVIDIA's Grafana dashboard, each with the labels `instance` and `gpu`."""


def test_every_metric_of_dashboard_12239_is_exported() -> None:
    page = render(view([reading(0), reading(1)]))
    assert page.names() >= DASHBOARD_12239
    for name in DASHBOARD_12239:
        assert [labels["gpu"] for labels, _ in page.samples(name)] == ["0", "1"]


def test_values_have_dcgm_exporters_units() -> None:
    page = render(view([reading()]))
    shown = {name: page.values(name) for name in page.names()}
    assert shown["DCGM_FI_DEV_SM_CLOCK"] == [1980]
    assert shown["DCGM_FI_DEV_GPU_UTIL"] == [42]
    assert shown["DCGM_FI_DEV_FB_USED"] == [10240]
    assert shown["DCGM_FI_DEV_POWER_USAGE"] == [112.252]
    assert shown["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == [6018625593]
    assert shown["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == [0.408493]


def test_the_last_xid_is_0_from_the_start_and_changes_no_label() -> None:
    quiet, _ = before = render(view([reading()])).only("DCGM_FI_DEV_XID_ERRORS")
    loud, value = render(view([reading(signals=SIGNALS | {"last_xid": 31.0})])).only("DCGM_FI_DEV_XID_ERRORS")
    assert before[1] == 0
    assert value == 31
    assert quiet == loud
    assert "err_code" not in loud


def test_labels_are_the_real_ones_in_their_order() -> None:
    page = render(view([reading()]), DcgmOptions(hostname="node-1"))
    labels, _ = page.only("DCGM_FI_DEV_GPU_TEMP")
    assert list(labels) == list(read_labels(REAL_PLAIN))
    assert labels["device"] == "nvidia0"  # by index, though the minor number is another one


def test_labels_of_a_held_gpu_are_the_real_ones_and_the_bus_id() -> None:
    page = render(view([reading()], [claim("train")]), DcgmOptions(hostname="node-1"))
    labels, _ = page.only("DCGM_FI_DEV_GPU_TEMP")
    assert [name for name in labels if name != "pci_bus_id"] == list(read_labels(REAL_POD))
    assert (labels["namespace"], labels["pod"], labels["container"]) == ("team", "train", "main")


def test_labels_of_a_mig_instance_are_the_real_ones_with_the_parents_uuid() -> None:
    readings = [reading(0, is_mig_parent=True), instance(0, 7)]
    page = render(view(readings, [claim("train", "MIG-0-7-0")]), DcgmOptions(hostname="node-1"))
    labels, value = page.only("DCGM_FI_DEV_FB_USED")
    assert [name for name in labels if name != "pci_bus_id"] == list(read_labels(REAL_MIG))
    assert labels["UUID"] == "GPU-0"
    assert (labels["GPU_I_PROFILE"], labels["GPU_I_ID"], labels["pod"]) == ("1g.10gb", "7", "train")
    assert value == 2048


def test_an_unallocated_gpu_has_no_pod_labels() -> None:
    labels, _ = render(view([reading()])).only("DCGM_FI_DEV_GPU_TEMP")
    assert not {"pod", "namespace", "container"} & labels.keys()


def test_power_of_a_mig_device_is_exported_once_and_its_temperature_per_instance() -> None:
    page = render(view([reading(0, is_mig_parent=True), instance(0, 7), instance(0, 8)]))
    labels, watts = page.only("DCGM_FI_DEV_POWER_USAGE")
    assert watts == 112.252
    assert "GPU_I_ID" not in labels
    assert page.values("DCGM_FI_DEV_GPU_TEMP") == [36, 36]
    assert page.values("DCGM_FI_PROF_GR_ENGINE_ACTIVE") == [0.5, 0.5]
    assert [labels["GPU_I_ID"] for labels, _ in page.samples("DCGM_FI_DEV_FB_USED")] == ["7", "8"]


def test_mig_instances_have_no_gpu_util() -> None:
    parent = reading(0, is_mig_parent=True, signals={**SIGNALS} | {"utilization_ratio": 0.1})
    without = reading(1, is_mig_parent=True, signals={n: v for n, v in SIGNALS.items() if n != "utilization_ratio"})
    page = render(view([parent, instance(0, 7), without, instance(1, 7)]))
    assert all("GPU_I_ID" not in labels for labels, _ in page.samples("DCGM_FI_DEV_GPU_UTIL"))
    assert len(page.values("DCGM_FI_DEV_GPU_UTIL")) == 1


def test_two_compute_instances_of_one_gpu_instance_have_different_labels() -> None:
    readings = [reading(0, is_mig_parent=True), instance(0, 7, compute=0), instance(0, 7, compute=1), instance(0, 8)]
    page = render(view(readings))
    found = [labels.get("GPU_CI_ID") for labels, _ in page.samples("DCGM_FI_DEV_FB_USED")]
    assert found == ["0", "1", None]


def test_a_lost_gpu_has_only_its_last_xid_and_does_not_affect_others() -> None:
    page = render(view([reading(0, lost=True, signals={"last_xid": 79.0}), reading(1)]))
    of_lost = {name for name in page.names() for labels, _ in page.samples(name) if labels["gpu"] == "0"}
    assert of_lost == {"DCGM_FI_DEV_XID_ERRORS"}


def test_what_was_not_measured_is_absent() -> None:
    page = render(view([reading(0, signals={"temperature_celsius": 36.0}), reading(1)]))
    assert [labels["gpu"] for labels, _ in page.samples("DCGM_FI_DEV_FB_USED")] == ["1"]


@pytest.mark.parametrize(
    ("names", "used", "driver"),
    [
        ("classic", {"DCGM_FI_DEV_FB_USED": 10240}, {"DCGM_FI_DRIVER_VERSION"}),
        ("v4.9", {"DCGM_FI_DEV_FB_USED_BYTES": 10 * GIB}, {"DCGM_FI_SYSTEM_DRIVER_VERSION"}),
        (
            "both",
            {"DCGM_FI_DEV_FB_USED": 10240, "DCGM_FI_DEV_FB_USED_BYTES": 10 * GIB},
            {"DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"},
        ),
    ],
)
def test_names_follow_the_option(names: str, used: dict[str, float], driver: set[str]) -> None:
    page = render(view([reading()]), DcgmOptions(names=names), default_fields(names))
    assert {name: page.values(name)[0] for name in page.names() if "FB_USED" in name} == used
    labels, _ = page.only(next(iter(used)))
    assert {name for name in labels if "DRIVER" in name} == driver
    assert ("DCGM_FI_DEV_FB_CAPACITY_BYTES" in page.names()) == (names != "classic")


def test_a_name_in_the_list_is_exported_as_written_and_only_once() -> None:
    chosen = fields("dcgm_fb_used", "DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_FREE_BYTES", "DCGM_FI_DEV_FB_FREE")
    page = DcgmDialect(DcgmOptions(names="both"), chosen, labels=LabelCache()).families(view([reading()]))
    assert [family.metric.name for family in page] == [
        "dcgm_fb_used",
        "DCGM_FI_DEV_FB_USED_BYTES",
        "DCGM_FI_DEV_FB_FREE_BYTES",
        "DCGM_FI_DEV_FB_FREE",
    ]


def test_type_and_help_of_the_list_reach_the_page() -> None:
    chosen = fields("DCGM_FI_DEV_GPU_TEMP,untyped,How hot", "DCGM_FI_DEV_FB_USED")
    families = DcgmDialect(DcgmOptions(), chosen, labels=LabelCache()).families(view([reading()]))
    text = render_page(families).text.decode()
    assert "# HELP DCGM_FI_DEV_GPU_TEMP How hot\n# TYPE DCGM_FI_DEV_GPU_TEMP untyped\n" in text
    assert "# HELP DCGM_FI_DEV_FB_USED Memory in use, without what the driver reserves (in MiB).\n" in text


def test_label_rows_are_sorted_and_absent_where_unknown() -> None:
    chosen = fields(
        "DCGM_FI_DRIVER_VERSION,label,",
        "DCGM_FI_DEV_SERIAL,label,",
        "DCGM_FI_DEV_BRAND,label,",
        "DCGM_FI_DEV_MINOR_NUMBER,label,",
        "DCGM_FI_DEV_GPU_TEMP",
    )
    labels, _ = render(view([reading()]), None, chosen).only("DCGM_FI_DEV_GPU_TEMP")
    assert list(labels)[5:] == ["DCGM_FI_DEV_MINOR_NUMBER", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DRIVER_VERSION"]
    assert labels["DCGM_FI_DEV_MINOR_NUMBER"] == "7"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (DcgmOptions(), []),
        (DcgmOptions(hostname="n"), ["Hostname"]),
        (DcgmOptions(hostname="n", hostname_label="hostname"), ["hostname"]),
        (DcgmOptions(hostname="n", hostname_label="both"), ["Hostname", "hostname"]),
    ],
)
def test_the_hostname_label_follows_the_option(options: DcgmOptions, found: list[str]) -> None:
    labels, _ = render(view([reading()]), options).only("DCGM_FI_DEV_GPU_TEMP")
    assert [name for name in labels if name.lower() == "hostname"] == found


def test_old_labels_and_dashes_in_the_model_name() -> None:
    options = DcgmOptions(old_labels=True, replace_blanks=True, pod_uid=True)
    labels, _ = render(view([reading()], [claim("train")]), options).only("DCGM_FI_DEV_GPU_TEMP")
    assert list(labels)[-4:] == ["container_name", "pod_name", "pod_namespace", "pod_uid"]
    assert (labels["uuid"], labels["modelName"]) == ("GPU-0", "NVIDIA-H100-80GB-HBM3")


def test_new_fields_are_used_from_the_next_view_on() -> None:
    dialect = DcgmDialect(DcgmOptions(), fields("DCGM_FI_DEV_GPU_TEMP"), labels=LabelCache())
    assert dialect.wanted == {"temperature_celsius"}
    dialect.use(fields("DCGM_FI_DEV_FB_USED_PERCENT", "DCGM_EXP_P2P_STATUS"))
    assert dialect.wanted == {"memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes", "peer_status"}
    [family, _] = dialect.families(view([reading()]))
    assert family.samples[0][1] == pytest.approx(10 / 79)
