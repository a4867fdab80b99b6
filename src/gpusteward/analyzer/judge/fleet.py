"""All GPUs of a result, held or not: how many are active, idle, unknown and unallocated."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.tables import ACTIVITIES, Codes, Column, NodeModel, UsageTable
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many whole GPUs there are, held or not: sources count all, and name only those that are held."""

    gpus: int | None  # None: the source does not count them
    free: Mapping[NodeModel, int]  # only where there are any

    @property
    def free_gpus(self) -> int | None:
        return None if self.gpus is None else sum(self.free.values())


UNKNOWN_FLEET = Fleet(None, {})


@dataclass(frozen=True, slots=True)
class GpuCounts:
    """Numbers of GPUs; a share of a GPU is a fraction. Their sum is the number of all GPUs."""

    active: float
    idle: float
    unknown: float
    unallocated: float | None  # free GPUs, and free parts of shared ones; None: the source does not count GPUs


NO_GPUS = GpuCounts(0.0, 0.0, 0.0, None)


def count_gpus(workloads: WorkloadTable, fleet: Fleet) -> GpuCounts:
    return sum_gpus(workloads.verdicts.activity, workloads.fractions, fleet)


def sum_gpus(activity: Codes, fractions: Column, fleet: Fleet) -> GpuCounts:
    """Of some allocations, and of the fleet they belong to."""
    by_activity = np.bincount(activity, weights=fractions, minlength=len(ACTIVITIES)).tolist()
    active, idle, unknown = (by_activity[ACTIVITIES.index(each)] for each in Activity)
    unallocated = None if fleet.gpus is None else max(0.0, fleet.gpus - float(fractions.sum()))
    return GpuCounts(active, idle, unknown, unallocated)


def count_fleet(table: UsageTable) -> Fleet:
    """A GPU with one held MIG instance is held."""
    counted, allocations = table.fleet, table.allocations
    if not counted:
        return UNKNOWN_FLEET
    held = _count_held(allocations, counted)
    # A source may count seldom: GPUs that are held exist, even if it counted fewer last time.
    gpus = sum(max(count, held[key]) for key, count in counted.items())
    elsewhere = sum(count for key, count in held.items() if key not in counted)
    return Fleet(gpus + elsewhere, {key: count - held[key] for key, count in counted.items() if count > held[key]})


def _count_held(allocations: Sequence[AllocationKey], counted: Mapping[NodeModel, int]) -> Counter[NodeModel]:
    """On a node with one model, the node alone decides: an allocation may have the model in another spelling, or none
    at all."""
    models = Counter((key.cluster, key.node) for key in counted)
    only_model = {node: key for key in counted if models[node := (key.cluster, key.node)] == 1}
    # Each device once. By the texts that are there already: new keys of 50,000 GPUs take 10 MB for a moment.
    devices: defaultdict[str, dict[str, AllocationKey]] = defaultdict(dict)  # by cluster and uuid
    for one in allocations:
        devices[one.container.cluster][one.gpu_uuid] = one
    held = Counter[NodeModel]()
    for cluster, own in devices.items():
        for (node, model), gpus in Counter(map(_NODE_MODEL, own.values())).items():
            held[only_model.get((cluster, node), NodeModel(node, model, cluster))] += gpus
    return held


_NODE_MODEL = attrgetter("node", "model")
