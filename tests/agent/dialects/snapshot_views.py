"""Snapshot views for tests, and access to what the dcgm dialect renders from them."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.field_list import FieldList, default_fields, parse_fields
from gpusteward.agent.usage_counters import PartCounters, PartKey, SnapshotView
from gpusteward.core.exposition import Family, LabelCache
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, MigIdentity, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import split_usage

H100 = "NVIDIA H100 80GB HBM3"
GIB = float(2**30)
SIGNALS = {
    "sm_clock_hertz": 1.98e9,
    "memory_clock_hertz": 2.619e9,
    "temperature_celsius": 36.0,
    "memory_temperature_celsius": 45.0,
    "power_watts": 112.252,
    "energy_joules_total": 6018625.593,
    "utilization_ratio": 0.42,
    "memory_copy_ratio": 0.17,
    "encoder_ratio": 0.0,
    "decoder_ratio": 0.0,
    "memory_total_bytes": 80 * GIB,
    "memory_free_bytes": 69 * GIB,
    "memory_used_bytes": 10 * GIB,
    "memory_reserved_bytes": 1 * GIB,
    "last_xid": 0.0,
    "pcie_replays_total": 3.0,
    "gr_engine_ratio": 0.408493,
    "tensor_ratio": 0.25,
    "dram_ratio": 0.1,
    "clock_event_reasons": 1.0,
}

NOTHING: Mapping[Any, Any] = MappingProxyType({})

Samples = list[tuple[dict[str, str], float]]


def gpu(index: int = 0, *, mig: MigIdentity | None = None, model: str = H100) -> Gpu:
    uuid = f"GPU-{index}" if mig is None else f"MIG-{index}-{mig.gpu_instance_id}-{mig.compute_instance_id}"
    facts = {"driver_version": "550.144.03", "serial": f"15649200{index}"}
    return Gpu("node-1", index, uuid, model, f"00000000:8{index}:00.0", minor=7 - index, mig=mig, facts=facts)


def reading(
    index: int = 0,
    *,
    signals: Mapping[str, float] = SIGNALS,
    lost: bool = False,
    is_mig_parent: bool = False,
    xid_counts: Mapping[int, int] = NOTHING,
    clock_event_counts: Mapping[str, int] = NOTHING,
    peer_status: Mapping[int, int] = NOTHING,
) -> GpuReading:
    return GpuReading(
        gpu(index),
        signals,
        lost=lost,
        is_mig_parent=is_mig_parent,
        xid_counts=xid_counts,
        clock_event_counts=clock_event_counts,
        peer_status=peer_status,
    )


def instance(index: int, instance_id: int, *, compute: int = 0, profile: str = "1g.10gb") -> GpuReading:
    own = {"memory_used_bytes": 2 * GIB, "memory_total_bytes": 10 * GIB, "gr_engine_ratio": 0.5}
    return GpuReading(gpu(index, mig=MigIdentity(f"GPU-{index}", profile, instance_id, compute)), own)


def claim(
    pod: str,
    gpu_uuid: str = "GPU-0",
    *,
    share: Share = Share.EXCLUSIVE,
    container: str = "main",
    replica: str = "",
    labels: Mapping[str, str] = NOTHING,
    dra: Mapping[str, str] = NOTHING,
) -> GpuAllocation:
    holder = Container("team", pod, f"uid-{pod}", container, pod_labels=tuple(labels.items()))
    return GpuAllocation(holder, gpu_uuid, share, "nvidia.com/gpu", replica, claim=tuple(dra.items()))


def view(
    readings: Iterable[GpuReading],
    allocations: Iterable[GpuAllocation] = (),
    *,
    processes: Iterable[GpuProcess] = (),
    energy: Mapping[PartKey, float] = NOTHING,
    taken_at: float = 1000.0,
) -> SnapshotView:
    snapshot = Snapshot("node-1", taken_at, tuple(readings), tuple(processes), tuple(allocations))
    parts = {key: PartCounters(energy_joules=joules) for key, joules in energy.items()}
    return SnapshotView(snapshot, split_usage(snapshot), parts=parts)


def fields(*rows: str) -> FieldList:
    """A field list of these names, as gauges; a name with a comma is a whole row."""
    return parse_fields("\n".join(row if "," in row else f"{row},gauge," for row in rows), where="test")


class Page:
    """The families of one view."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = {family.metric.name: family for family in families}

    def names(self) -> set[str]:
        return {name for name, family in self.families.items() if family.samples}

    def samples(self, name: str) -> Samples:
        return [(read_labels(text), value) for text, value in self.families[name].samples]

    def values(self, name: str) -> list[float]:
        return [value for _, value in self.families[name].samples]

    def only(self, name: str) -> tuple[dict[str, str], float]:
        [sample] = self.samples(name)
        return sample


def read_labels(text: str) -> dict[str, str]:
    pairs = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', text)
    assert len(pairs) == len(dict(pairs)), f"a label twice in {text}"
    return dict(pairs)


def render(seen: SnapshotView, options: DcgmOptions | None = None, chosen: FieldList | None = None) -> Page:
    """Render one view with a new dialect."""
    dialect = DcgmDialect(options or DcgmOptions(), chosen or default_fields(), labels=LabelCache())
    return Page(dialect.families(seen))
