"""Pod annotations of GPU sharing schedulers: grants of HAMi and Volcano, fractions of KAI (run:ai) (pure).

HAMi and Volcano choose the GPU in the scheduler and pass it to their device plugin in an annotation; the device id that
the kubelet picks is one of many equal ones and often names another GPU. KAI holds a whole GPU with a reservation pod
and lets the pods of the same group use it.

Nothing here raises: anyone can write annotations, and an invalid one is ignored.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from gpusteward.agent.kubernetes.pods import Pod

HAMI_ANNOTATION = "hami.io/vgpu-devices-allocated"
GRANT_ANNOTATIONS = (HAMI_ANNOTATION, "volcano.sh/vgpu-ids-new")
MIG_ANNOTATION = "hami.io/vgpu-mig-allocations"
GROUP_LABEL = "runai-gpu-group"
RESERVED_GPU_ANNOTATION = "run.ai/reserve_for_gpu_index"  # despite its name it contains the uuid
RESERVATION_NAMESPACES = frozenset({"kai-resource-reservation", "runai-reservation"})
_MAX_INT32 = 2**31  # both schedulers count in 32 bits
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Grant:
    """The part of a device granted to a container."""

    container: str
    device_id: str
    memory_limit_bytes: int | None = None  # None: not limited
    core_limit_ratio: float | None = None


class _MigGrant(msgspec.Struct, rename="camel"):
    container_index: int
    device_index: int
    mig_uuid: str = msgspec.field(default="", name="migUUID")  # empty until the instance has been made


def read_grants(pod: Pod) -> list[Grant]:
    """Grants of HAMi or Volcano to the containers of this pod.

    Containers are separated by `;`, devices of a container by `:`, and a device is `uuid,type,MiB,percent`.
    """
    for annotation in GRANT_ANNOTATIONS:
        if pod.annotations.get(annotation):
            return list(_parse_grants(pod, annotation))
    return []


def _parse_grants(pod: Pod, annotation: str) -> Iterator[Grant]:
    groups = pod.annotations[annotation].split(";")
    if not groups[-1].strip():
        groups.pop()
    instances = _read_instances(pod)
    names = _container_names(pod, len(groups), is_hami=annotation == HAMI_ANNOTATION)
    for index, (name, group) in enumerate(zip(names, groups, strict=False)):
        if name in pod.finished_init_containers:
            continue
        for position, device in enumerate(part for part in group.split(":") if part.strip()):
            if grant := _parse_grant(name, device, instances.get((index, position), "")):
                yield grant


def _container_names(pod: Pod, groups: int, *, is_hami: bool) -> tuple[str, ...]:
    """The container of each group. Since v2.9 HAMi lists init containers first; Volcano never lists them.

    Until v2.6 HAMi omitted the containers before the first one with a GPU. Volcano omits all containers without a GPU;
    with fewer groups than containers, the first containers are the best guess.
    """
    if groups > len(pod.container_names):
        return pod.init_container_names + pod.container_names
    return pod.container_names[-groups:] if is_hami and groups else pod.container_names


def _parse_grant(container: str, text: str, instance: str) -> Grant | None:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 4 or not parts[0]:
        return None
    memory, cores = _parse_whole(parts[2]), _parse_whole(parts[3])
    if memory is None or cores is None:
        return None
    return Grant(container, instance or parts[0], memory * _MIB or None, cores / 100 or None)


def _read_instances(pod: Pod) -> dict[tuple[int, int], str]:
    """MIG instances that HAMi created for this pod, by container and device."""
    try:
        grants = msgspec.json.decode(pod.annotations.get(MIG_ANNOTATION, "[]").encode(), type=list[_MigGrant])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return {(each.container_index, each.device_index): each.mig_uuid for each in grants}


def gpu_groups(pod: Pod) -> frozenset[str]:
    """The KAI groups of a pod, one per GPU. A pod on several GPUs has a label `runai-gpu-group/<group>` for each."""
    return frozenset(
        group
        for label, group in pod.labels.items()
        if group and (label == GROUP_LABEL or label.startswith(f"{GROUP_LABEL}/"))
    )


def is_reservation(namespace: str, pod: Pod | None) -> bool:
    """Whether a pod only reserves a GPU for others. The namespace is configurable in KAI, the annotation is not."""
    return namespace in RESERVATION_NAMESPACES or (
        pod is not None and RESERVED_GPU_ANNOTATION in pod.annotations and GROUP_LABEL in pod.labels
    )


def read_fraction(pod: Pod, device_id: str, *, memory_bytes: int | None) -> Grant:
    """The part of a GPU of this size for a KAI pod. KAI limits memory, not compute."""
    container = pod.annotations.get("gpu-fraction-container-name") or next(iter(pod.container_names), "")
    if mebibytes := _parse_whole(pod.annotations.get("gpu-memory", "")):
        return Grant(container, device_id, mebibytes * _MIB)
    fraction = _parse_fraction(pod.annotations.get("gpu-fraction", ""))
    limit = None if fraction is None or memory_bytes is None else int(memory_bytes * fraction)
    return Grant(container, device_id, limit)


def _parse_whole(text: str) -> int | None:
    """A non-negative number that fits into 32 bits."""
    text = text.strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
    return number if number is not None and number < _MAX_INT32 else None


def _parse_fraction(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 < number <= 1 else None
