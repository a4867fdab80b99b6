"""The kubelet's pod-resources response -> claims: which container was assigned which device (pure)."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpusteward.agent.kubernetes import podresources as messages

DRA_DRIVER = "gpu.nvidia.com"
RESOURCE_NAMES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", DRA_DRIVER)
"""Resources of NVIDIA's device plugin and its DRA driver. A `*` at the end matches any rest."""

_UUID_IN_CDI_NAME = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Accepts = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Claim:
    """One device that the kubelet lists for one container; not to be confused with a ResourceClaim object of DRA."""

    namespace: str
    pod: str
    container: str
    resource: str  # "nvidia.com/gpu"; the driver's name for a dynamic resource
    device_id: str
    dra: tuple[tuple[str, str], ...] = ()  # dra_* labels of a dynamic resource claim


@dataclass(frozen=True, slots=True)
class Listing:
    """One response of the kubelet: the claims, and the namespace and name of every pod in it, with or without one."""

    claims: tuple[Claim, ...] = ()
    pods: frozenset[tuple[str, str]] = frozenset()


def decode_listing(response: messages.ListPodResourcesResponse, accepts: Accepts) -> Listing:
    """The claims on accepted resources and the names of all pods."""
    pods = frozenset((pod.namespace, pod.name) for pod in response.pod_resources)
    return Listing(decode_claims(response, accepts), pods)


def decode_claims(response: messages.ListPodResourcesResponse, accepts: Accepts) -> tuple[Claim, ...]:
    """The claims on accepted resources, without duplicates. Entries without a name are skipped."""
    return tuple(
        dict.fromkeys(
            claim
            for pod in response.pod_resources
            if pod.name and pod.namespace
            for container in pod.containers
            if container.name
            for claim in (*_plugin_claims(pod, container, accepts), *_dynamic_claims(pod, container, accepts))
            if claim.device_id
        )
    )


def _plugin_claims(
    pod: messages.PodResources, container: messages.ContainerResources, accepts: Accepts
) -> Iterator[Claim]:
    for devices in container.devices:
        if accepts(devices.resource_name):
            for device_id in devices.device_ids:
                yield Claim(pod.namespace, pod.name, container.name, devices.resource_name, device_id)


def _dynamic_claims(
    pod: messages.PodResources, container: messages.ContainerResources, accepts: Accepts
) -> Iterator[Claim]:
    for dynamic in container.dynamic_resources:
        for device in dynamic.claim_resources:
            if accepts(device.driver_name):
                yield Claim(
                    pod.namespace,
                    pod.name,
                    container.name,
                    device.driver_name,
                    _find_device_id(device),
                    _dra_labels(dynamic, device),
                )


def _find_device_id(device: messages.ClaimResource) -> str:
    """The uuid if the CDI name contains one, else the device name of the ResourceSlice.

    NVIDIA's driver (v25.3 to 2026) writes `k8s.gpu.nvidia.com/claim=<claim uid>-gpu-0`, earlier also `/device=gpu-0`,
    so in practice it is the name: `gpu-<minor>`, `gpu-<minor>-mig-<profile>-<profile id>-<start>`. The container
    toolkit writes a uuid (`nvidia.com/gpu=GPU-<uuid>`); that a DRA driver does so too is a guess. `gpu-vfio-<n>` is
    passed to a virtual machine and not visible to NVML, so it is skipped.
    """
    for cdi in device.cdi_devices:
        if match := _UUID_IN_CDI_NAME.search(cdi.name):
            return match[0]
    return "" if device.device_name.startswith("gpu-vfio-") else device.device_name


def _dra_labels(dynamic: messages.DynamicResource, device: messages.ClaimResource) -> tuple[tuple[str, str], ...]:
    labels = (
        ("dra_claim_name", dynamic.claim_name),
        ("dra_claim_namespace", dynamic.claim_namespace),
        ("dra_driver_name", device.driver_name),
        ("dra_pool_name", device.pool_name),
        ("dra_device_name", device.device_name),
    )
    return tuple(label for label in labels if label[1])


def accept_names(more: Iterable[str]) -> Accepts:
    """A predicate: whether a name is one of `RESOURCE_NAMES` or of `more`."""
    wanted = {name.strip() for name in (*RESOURCE_NAMES, *more)} - {""}
    prefixes = tuple(name.removesuffix("*") for name in wanted if name.endswith("*"))
    return lambda name: name in wanted or name.startswith(prefixes)
