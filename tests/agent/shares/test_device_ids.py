"""Every form of device id that plugins and schedulers write, and the GPU it means."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.agent.shares.resolver import DeviceTable
from gpusteward.core.node.gpus import Gpu, GpuReading, MigIdentity, Share

WHOLE = "GPU-8c1f2a3b-0000-4444-8888-0123456789ab"
SLICED = "GPU-deadbeef-1111-4444-8888-0123456789ab"
SMALL, TWIN, LARGE, MEDIA = (f"MIG-{letter * 8}-2222-5555-9999-0123456789ab" for letter in "abcd")


def instance(uuid: str, profile: str, gpu_instance: int, compute_instance: int = 0) -> GpuReading:
    mig = MigIdentity(SLICED, profile, gpu_instance, compute_instance)
    return GpuReading(Gpu("node-a", 1, uuid, "A100", mig=mig))


# The minor numbers are crossed on purpose: index 0 is /dev/nvidia1.
READINGS = (
    GpuReading(Gpu("node-a", 0, WHOLE, "A100", minor=1)),
    GpuReading(Gpu("node-a", 1, SLICED, "A100", minor=0), is_mig_parent=True),
    instance(SMALL, "1g.5gb", 7),
    instance(TWIN, "1g.5gb", 8),
    instance(LARGE, "3g.20gb", 2),
    instance(MEDIA, "1g.5gb+me", 9),
)
TABLE = DeviceTable(READINGS)

CASES = {
    WHOLE: (WHOLE, Share.EXCLUSIVE, ""),
    WHOLE.removeprefix("GPU-"): (WHOLE, Share.EXCLUSIVE, ""),
    WHOLE.lower(): (WHOLE, Share.EXCLUSIVE, ""),
    SMALL: (SMALL, Share.MIG, ""),
    SMALL.removeprefix("MIG-"): (SMALL, Share.MIG, ""),
    f"MIG-{SLICED}/2/0": (LARGE, Share.MIG, ""),
    f"{WHOLE}::3": (WHOLE, Share.TIME_SLICED, "3"),
    f"{TWIN}::0": (TWIN, Share.TIME_SLICED, "0"),
    "nvidia1": (WHOLE, Share.EXCLUSIVE, ""),
    "nvidia1/vgpu12": (WHOLE, Share.TIME_SLICED, "12"),
    "nvidia0/gi2": (LARGE, Share.MIG, ""),
    "nvidia0/gi8/vgpu0": (TWIN, Share.TIME_SLICED, "0"),
    f"{WHOLE}-9": (WHOLE, Share.HAMI, "9"),
    f"{SLICED}[0-1]": (TWIN, Share.MIG, ""),
    f"{SLICED}[group2-2]": (LARGE, Share.MIG, ""),
    "gpu-1": (WHOLE, Share.EXCLUSIVE, ""),
    "gpu-0-mig-3g20gb-9-4": (LARGE, Share.MIG, ""),
    "gpu-0-mig-1g5gb-me-20-6": (MEDIA, Share.MIG, ""),
    "gpu-0-mig-9-4-4": (LARGE, Share.MIG, ""),
    "gpu-0-mig-20-6-1": (MEDIA, Share.MIG, ""),
}


@pytest.mark.parametrize("device_id", CASES)
def test_a_device_id_resolves_to_one_gpu_and_its_share(device_id: str) -> None:
    device = TABLE.find(device_id)
    assert device is not None
    assert (device.gpu.uuid, device.share, device.replica) == CASES[device_id]


@pytest.mark.parametrize(
    "device_id",
    [
        "",
        "GPU-of-another-node",
        "nvidia2",
        "nvidia0/gi99",
        "nvidia0/gi",
        f"{WHOLE}::x",
        f"{WHOLE}-x",
        f"{WHOLE}[0-0]",
        f"{SLICED}[0-7]",
        f"MIG-{SLICED}/2/5",
        "gpu-5",
        "gpu-0-mig-1g5gb-19-4",  # two instances have this profile: the name is ambiguous
        "gpu-0-mig-19-4-1",
        "gpu-0-mig-14-4-2",
        "gpu-0-mig-9-4-2",  # no card has a profile of this id and size
        "gpu-0-mig-3g20gb-gfx-9-4",
        f"gpu-0-mig-{'9' * 5000}-4-4",
        "gpu-vfio-0",
        "mlx5_0",
        f"nvidia{'9' * 5000}",
        f"{WHOLE}::{'9' * 5000}",
        "nvidia\u0663",
    ],
)
def test_an_ambiguous_device_id_resolves_to_none(device_id: str) -> None:
    assert TABLE.find(device_id) is None


@pytest.mark.parametrize("device_id", ["gpu-0-mig-1g5gb-19-4", "gpu-0-mig-19-4-1"])
def test_equal_profiles_are_told_apart_by_their_placement_where_it_is_known(device_id: str) -> None:
    def place(reading: GpuReading) -> GpuReading:
        starts = {SMALL: 0, TWIN: 4}
        mig = reading.gpu.mig and replace(reading.gpu.mig, placement_start=starts.get(reading.gpu.uuid))
        return replace(reading, gpu=replace(reading.gpu, mig=mig))

    device = DeviceTable([place(reading) for reading in READINGS]).find(device_id)
    assert device is not None
    assert device.gpu.uuid == TWIN


def test_gke_names_follow_the_minor_number_and_never_the_index() -> None:
    unknown = DeviceTable([GpuReading(Gpu("node-a", 0, WHOLE, "A100", minor=None))])
    assert unknown.find("nvidia0") is None


def test_a_driver_that_names_instances_the_old_way_is_matched_as_it_is() -> None:
    old = f"MIG-{SLICED}/7/0"
    device = DeviceTable([instance(old, "1g.5gb", 7)]).find(f"{old}::1")
    assert device is not None
    assert (device.gpu.uuid, device.replica) == (old, "1")


@given(st.text(st.characters(codec="utf-8")) | st.from_regex(r"(GPU|MIG|gpu|nvidia)[-/:\[\]0-9a-fgimvpu]*"))
def test_any_text_is_handled(device_id: str) -> None:
    TABLE.find(device_id)
