"""A machine without Kubernetes: nobody claims a GPU there, so whoever has a process on it holds it. Pure.

A process in a container is the container's, any other its user's under the name of its program. They are told in the
words of a cluster, so that everything made for one works: the user is the namespace, the container or program the pod.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusteward.agent.proc.table import ProcessIdentity
from gpusteward.core.allocations import Allocation, Share
from gpusteward.core.containers import Container, Workload
from gpusteward.core.processes import GpuProcess, Place

SHORT_ID = 12  # characters of a container's id, as docker and crictl show it


def seat_residents(
    processes: Sequence[GpuProcess], identities: Mapping[int, ProcessIdentity]
) -> tuple[tuple[GpuProcess, ...], tuple[Allocation, ...]]:
    """The processes with their holders named, and what each holder has: one claim for each GPU it is on."""
    seated = tuple(_seat(process, identities.get(process.pid)) for process in processes)
    holders = dict.fromkeys((each.gpu_uuid, each.container) for each in seated if each.container)
    on_gpu = Counter(uuid for uuid, _ in holders)
    return seated, tuple(
        Allocation(container, uuid, Share.EXCLUSIVE if on_gpu[uuid] == 1 else Share.TIME_SLICED)
        for uuid, container in holders
        if container is not None
    )


def _seat(process: GpuProcess, identity: ProcessIdentity | None) -> GpuProcess:
    """One whose identity could not be read stays unattributed."""
    if identity is None or identity.place is Place.UNKNOWN:
        return process
    return replace(process, place=Place.CONTAINER, container=_holder(identity), outside_allocation=False)


def _holder(identity: ProcessIdentity) -> Container:
    kind, name = ("Container", identity.container_id[:SHORT_ID]) if identity.container_id else ("Program", "")
    name = name or identity.name.rpartition("/")[2] or identity.name  # a program may call itself `x/`
    return Container(identity.user, name, workload=Workload(kind, identity.user, name), user=identity.user)
