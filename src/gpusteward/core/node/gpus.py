"""GPUs and MIG instances, their readings at one moment, the processes on them, and their allocations to containers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.node.containers import Container


@dataclass(frozen=True, slots=True)
class MigIdentity:
    """The MIG part of a `Gpu` that is an instance of another one."""

    parent_uuid: str
    profile: str  # "1g.10gb"
    gpu_instance_id: int
    compute_instance_id: int
    placement_start: int | None = None  # the memory slice of the GPU at which it begins
    video_engines: int | None = None  # decoders, encoders, JPEG and optical flow engines; None: not known


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that can be allocated to a container: a whole GPU or a MIG instance."""

    node: str
    index: int  # NVML's index; of the parent for a MIG instance
    uuid: str
    model: str
    pci_bus_id: str = ""
    minor: int | None = None  # N of /dev/nvidiaN, which may differ from the index
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    mig: MigIdentity | None = None
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Texts that do not change until the driver is loaded again: `driver_version`, `serial`, ... (`signals.FACTS`)."""

    @property
    def device_uuid(self) -> str:
        """The uuid of the physical device."""
        return self.mig.parent_uuid if self.mig else self.uuid


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. Values that could not be measured are absent from `signals`, never 0."""

    gpu: Gpu
    signals: Mapping[str, float] = field(default_factory=dict)  # names and units: `signals.SIGNALS`
    lost: bool = False  # fallen off the bus
    is_mig_parent: bool = False  # allocations and processes are on its MIG instances
    processes_known: bool = True  # False: the process list could not be read
    is_mps: bool = False  # shared by an MPS server
    supports_gpm: bool = True  # False: NVML has no profiling signals of it (before Hopper)
    xid_counts: Mapping[int, int] = field(default_factory=dict)  # since the agent started
    clock_event_counts: Mapping[str, int] = field(default_factory=dict)  # rising edges since the agent started
    peer_status: Mapping[int, int] = field(default_factory=dict)  # other GPU's index -> nvmlGpuP2PStatus_t, if wanted
    unsupported: frozenset[str] = frozenset()  # wanted signals that the device and its MIG instances do not have


class Place(StrEnum):
    """Where a process runs, according to its cgroup."""

    CONTAINER = "container"
    HOST = "host"
    UNKNOWN = "unattributed"  # ended before it could be read, or in another PID namespace


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one GPU. `None` is unknown, 0 is measured."""

    pid: int
    gpu_uuid: str  # the device or the MIG instance it runs on
    name: str = ""
    memory_bytes: int | None = None
    sm_ratio: float | None = None
    memory_ratio: float | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None
    container_id: str = ""
    pod_uid: str = ""
    place: Place = Place.UNKNOWN
    container: Container | None = None
    outside_allocation: bool = False  # its pod does not hold this GPU
    works_for: Container | None = None  # the holder of this GPU, if that is another pod and they are a pair


MPS_SERVER = "nvidia-cuda-mps-server"


def is_mps_server(name: str) -> bool:
    """Whether a process of this name is an MPS server. The device plugin's runs in its own pod, on behalf of the pods
    that hold the GPU."""
    return name.rpartition("/")[2] == MPS_SERVER


class Share(StrEnum):
    """How a GPU is shared."""

    EXCLUSIVE = "exclusive"
    MIG = "mig"
    TIME_SLICED = "time-sliced"
    MPS = "mps"
    HAMI = "hami"
    RATIO = "ratio"  # k8s-vgpu-monitor's ratio file
    FRACTION = "fraction"  # KAI / run:ai

    @property
    def is_shared(self) -> bool:
        """Whether others may hold the same device."""
        return self not in (Share.EXCLUSIVE, Share.MIG)


@dataclass(frozen=True, slots=True)
class GpuAllocation:
    """One GPU or MIG instance allocated to one container."""

    container: Container
    gpu_uuid: str
    share: Share = Share.EXCLUSIVE
    resource: str = ""  # "nvidia.com/gpu"
    replica: str = ""  # number of the replica of a shared GPU, if the device id contains it
    memory_limit_bytes: int | None = None
    core_limit_ratio: float | None = None
    claim: tuple[tuple[str, str], ...] = ()  # dra_* labels of a dynamic resource claim
    used_by: str = ""  # the other pod of its pair, in the same namespace: it uses the GPU in place of its holder


@dataclass(frozen=True, slots=True)
class UnlistedDevices:
    """Devices that a pod holds and the kubelet does not list: which GPU they are is unknown."""

    container: Container  # without a name
    resource: str
    count: int
