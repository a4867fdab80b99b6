"""A GPU, a MIG instance of one, and what it read at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.containers import Container


@dataclass(frozen=True, slots=True)
class MigInstance:
    """What makes a `Gpu` a slice of another one."""

    parent_uuid: str
    profile: str  # "1g.10gb"
    gpu_instance_id: int
    compute_instance_id: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device a container can be given: a whole GPU, or one MIG instance of it."""

    node: str
    index: int  # NVML's index; of the parent for a MIG instance
    uuid: str
    model: str
    pci_bus_id: str = ""
    minor: int | None = None  # N of /dev/nvidiaN, which is not always the index
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    mig: MigInstance | None = None
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Texts that never change while the driver runs: `driver_version`, `serial`, ... (see `signals.FACTS`)."""

    @property
    def device_uuid(self) -> str:
        """The uuid of the physical device."""
        return self.mig.parent_uuid if self.mig else self.uuid


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. What could not be measured is absent from `signals`, never 0."""

    gpu: Gpu
    signals: Mapping[str, float] = field(default_factory=dict)  # names and units: `signals.SIGNALS`
    lost: bool = False  # fallen off the bus
    is_mig_parent: bool = False  # sliced: holders and processes live on its instances
    processes_known: bool = True  # False: the process list could not be read
    is_mps: bool = False  # an MPS server shares it
    xid_counts: Mapping[int, int] = field(default_factory=dict)  # since the agent started
    clock_event_counts: Mapping[str, int] = field(default_factory=dict)  # rising edges since the agent started
    peer_status: Mapping[int, int] = field(default_factory=dict)  # other index -> nvmlGpuP2PStatus_t, if asked for


class Place(StrEnum):
    """Where a process lives, as its cgroup tells."""

    CONTAINER = "container"
    HOST = "host"
    UNKNOWN = "unattributed"  # gone before it could be asked, or in a PID namespace not ours


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one GPU. `None` is unknown; 0 was measured."""

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
    outside_allocation: bool = False  # its pod holds no claim on this GPU
