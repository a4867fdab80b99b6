"""A process on a GPU."""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.containers import Container


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
