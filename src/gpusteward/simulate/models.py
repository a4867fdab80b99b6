"""GPU models: memory, power, clocks and supported signals.

Names are NVML's. Numbers are typical values of nvidia-smi: drivers differ by some MiB and boards by some watts, so the
last digits are not reliable. MIG memory was checked against `nvidia-smi mig -lgip` for H100 only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

MIB = 1 << 20
COMPUTE_SLICES = 7


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    name: str
    compute_slices: int  # of 7
    memory_mib: int

    @property
    def first_instance_id(self) -> int:
        """The first GPU instance id of this size; NVML numbers instances by size."""
        return {7: 0, 4: 1, 3: 1, 2: 3, 1: 7}[self.compute_slices]


@dataclass(frozen=True, slots=True)
class GpuModel:
    name: str  # as NVML spells it
    memory_mib: int
    reserved_mib: int
    power_limit_watts: float
    idle_watts: float
    context_watts: float  # on top of idle, once any process holds a context
    sm_clock_mhz: int
    idle_sm_clock_mhz: int
    memory_clock_mhz: int
    idle_memory_clock_mhz: int  # HBM keeps its clock
    idle_performance_state: int
    pcie_generation: int
    nvlinks: int = 0
    nvlink_bytes_per_second: float = 0.0  # all links, one way
    has_gpm: bool = False  # profiling signals through NVML: Hopper and newer
    has_hostengine: bool = False  # profiling signals as if a DCGM hostengine were configured
    has_hbm: bool = False  # and so a memory temperature
    has_ecc: bool = True
    retires_pages: bool = False  # before Ampere; later ones remap rows
    has_fan: bool = False
    mig_profiles: tuple[InstanceProfile, ...] = ()

    @property
    def is_profiled(self) -> bool:
        return self.has_gpm or self.has_hostengine

    def with_hostengine(self) -> "GpuModel":
        """The same model on a node with a DCGM hostengine."""
        return replace(self, has_hostengine=True)

    def mig_profile(self, name: str) -> InstanceProfile:
        """Raises KeyError for a profile the model does not have."""
        return {profile.name: profile for profile in self.mig_profiles}[name]


def _profiles(gigabytes: tuple[int, int, int, int], mib: tuple[int, int, int, int]) -> tuple[InstanceProfile, ...]:
    """The four common shapes: 1g, 2g, 3g, 7g."""
    shapes = zip((1, 2, 3, 7), gigabytes, mib, strict=True)
    return tuple(InstanceProfile(f"{slices}g.{size}gb", slices, mib) for slices, size, mib in shapes)


T4 = GpuModel("Tesla T4", 15360, 426, 70, 9.5, 16, 1590, 300, 5001, 405, 8, 3, retires_pages=True)
V100 = GpuModel(
    "Tesla V100-SXM2-32GB", 32768, 258, 300, 42, 14, 1530, 135, 877, 877, 0, 3,
    nvlinks=6, nvlink_bytes_per_second=150e9, has_hbm=True, retires_pages=True,
)  # fmt: skip
A10 = GpuModel("NVIDIA A10", 23028, 497, 150, 16, 38, 1695, 210, 6251, 405, 8, 4)
A100_40GB = GpuModel(
    "NVIDIA A100-SXM4-40GB", 40960, 571, 400, 46, 12, 1410, 210, 1215, 1215, 0, 4,
    nvlinks=12, nvlink_bytes_per_second=300e9, has_hbm=True,
    mig_profiles=_profiles((5, 10, 20, 40), (4864, 9984, 20096, 40448)),
)  # fmt: skip
A100_80GB = GpuModel(
    "NVIDIA A100-SXM4-80GB", 81920, 617, 400, 62, 14, 1410, 210, 1593, 1593, 0, 4,
    nvlinks=12, nvlink_bytes_per_second=300e9, has_hbm=True,
    mig_profiles=_profiles((10, 20, 40, 80), (9728, 19968, 40192, 80640)),
)  # fmt: skip
L4 = GpuModel("NVIDIA L4", 23034, 455, 72, 12, 15, 2040, 210, 6251, 405, 8, 4)
L40S = GpuModel("NVIDIA L40S", 46068, 586, 350, 33, 46, 2520, 210, 9001, 405, 8, 4)
H100 = GpuModel(
    "NVIDIA H100 80GB HBM3", 81559, 551, 700, 71, 44, 1980, 345, 2619, 2619, 0, 5,
    nvlinks=18, nvlink_bytes_per_second=450e9, has_gpm=True, has_hbm=True,
    mig_profiles=_profiles((10, 20, 40, 80), (9984, 20091, 40448, 81152)),
)  # fmt: skip
H200 = GpuModel(
    "NVIDIA H200", 143771, 610, 700, 76, 42, 1980, 345, 3201, 3201, 0, 5,
    nvlinks=18, nvlink_bytes_per_second=450e9, has_gpm=True, has_hbm=True,
    mig_profiles=_profiles((18, 35, 71, 141), (16384, 33280, 71168, 142848)),
)  # fmt: skip
B200 = GpuModel(
    "NVIDIA B200", 183359, 720, 1000, 142, 52, 1965, 120, 3996, 3996, 0, 5,
    nvlinks=18, nvlink_bytes_per_second=900e9, has_gpm=True, has_hbm=True,
    mig_profiles=_profiles((23, 45, 90, 180), (22016, 45056, 91136, 182272)),
)  # fmt: skip
RTX_4090 = GpuModel(
    "NVIDIA GeForce RTX 4090", 24564, 442, 450, 18, 40, 2520, 210, 10501, 405, 8, 4, has_ecc=False, has_fan=True
)

MODELS: Mapping[str, GpuModel] = {
    "t4": T4,
    "v100": V100,
    "a10": A10,
    "a100-40gb": A100_40GB,
    "a100-80gb": A100_80GB,
    "l4": L4,
    "l40s": L40S,
    "h100": H100,
    "h200": H200,
    "b200": B200,
    "rtx4090": RTX_4090,
}
"""By short name; node names begin with it."""
