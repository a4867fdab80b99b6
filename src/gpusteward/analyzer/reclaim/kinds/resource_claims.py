"""ResourceClaims of pods (dynamic resource allocation): which devices a pod holds through them (pure)."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpusteward.analyzer.reclaim.kinds.objects import KubeObject

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
RESOURCE_CLAIM = "ResourceClaim"


class ClaimedDevice(NamedTuple):
    """A device as a driver publishes it: a GPU, or a MIG instance of one."""

    driver: str
    pool: str
    name: str


class UnknownClaimError(Exception):
    """A claim of a pod does not exist, or has no allocation: what the pod holds is not known."""

    def __init__(self, claim: str) -> None:
        super().__init__(claim)
        self.claim = claim


def is_gpu_driver(driver: str) -> bool:
    """`gpu.nvidia.com`, `gpu.amd.com`; not `compute-domain.nvidia.com` (IMEX channels) nor the driver of a NIC."""
    return "gpu" in driver


def list_claim_names(pod: KubeObject) -> Iterator[str]:
    """The claims of a pod, also those made from a template. Raises UnknownClaimError."""
    made = {each.get("name"): each for each in pod.status.get("resourceClaimStatuses") or ()}
    for each in pod.spec.get("resourceClaims") or ():
        name = each.get("resourceClaimName")
        if name is None and each.get("name") not in made:
            raise UnknownClaimError(str(each.get("name")))
        # A template for which no claim was needed has an entry without a name.
        if name := name or made[each["name"]].get("resourceClaimName"):
            yield str(name)


def list_claimed_gpus(pod: KubeObject, claims: Mapping[str, KubeObject]) -> frozenset[ClaimedDevice]:
    """The GPUs that a pod holds through claims; a device in two of them is one. Raises UnknownClaimError."""
    devices: set[ClaimedDevice] = set()
    for name in list_claim_names(pod):
        allocation = claims[name].status.get("allocation") if name in claims else None
        if allocation is None:
            raise UnknownClaimError(name)
        for each in (allocation.get("devices") or {}).get("results") or ():
            device = ClaimedDevice(str(each.get("driver", "")), str(each.get("pool", "")), str(each.get("device", "")))
            if is_gpu_driver(device.driver):
                devices.add(device)
    return frozenset(devices)
