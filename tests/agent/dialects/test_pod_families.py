"""k8s-vgpu-monitor's and nvidia-pid2pod's families where a pod has more than one container, process or GPU."""

from dataclasses import replace

from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.dialects.pod_metrics import Pid2PodDialect, VgpuMonitorDialect
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.core.exposition import LabelCache
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, Place, Share
from gpusteward.core.node.snapshots import Snapshot

GIB = 1 << 30
GPUS = tuple(Gpu("node-a", index, f"GPU-{index}", "A100", memory_total_bytes=80 * GIB) for index in range(2))
MAIN, HELPER = (Container("research", "alice-0", "uid-a", name) for name in ("main", "helper"))


def snapshot(*processes: GpuProcess, allocations: tuple[GpuAllocation, ...] = ()) -> Snapshot:
    return Snapshot("node-a", 1.0, tuple(GpuReading(gpu) for gpu in GPUS), processes, allocations)


def process(pid: int, gpu: Gpu, memory: int | None) -> GpuProcess:
    return GpuProcess(pid, gpu.uuid, "python", memory, place=Place.CONTAINER, container=MAIN)


def values(dialect: VgpuMonitorDialect | Pid2PodDialect, seen: Snapshot, name: str) -> list[float]:
    families = dialect.families(UsageCounters(longest_gap_seconds=15).advance(seen))
    return [value for family in families if family.metric.name == name for _labels, value in family.samples]


def lent(*allocations: GpuAllocation) -> list[float]:
    return values(VgpuMonitorDialect(LabelCache()), snapshot(allocations=allocations), "pod_total_gpu_memory")


def test_memory_allocated_to_a_pod_never_exceeds_its_gpu():
    slices = [GpuAllocation(who, "GPU-0", Share.TIME_SLICED) for who in (MAIN, HELPER)]
    assert lent(*slices) == [81920]
    assert lent(*(replace(each, memory_limit_bytes=10 * GIB) for each in slices)) == [20480]


def test_a_process_on_two_gpus_is_one_sample_with_the_sum():
    running = (process(7, GPUS[0], 2 * GIB), process(7, GPUS[1], GIB), process(8, GPUS[0], GIB))
    assert values(Pid2PodDialect(LabelCache()), snapshot(*running), "nvidia_pid_pod") == [3072, 1024]


def test_a_process_whose_memory_is_unknown_on_one_of_its_gpus_has_no_sum():
    running = (process(7, GPUS[0], 2 * GIB), process(7, GPUS[1], None), process(8, GPUS[0], GIB))
    assert values(Pid2PodDialect(LabelCache()), snapshot(*running), "nvidia_pid_pod") == [1024]


def test_a_gpu_that_changes_its_index_has_the_new_one_on_every_series():
    labels = LabelCache()
    dialect, meters = NativeDialect(labels), UsageCounters(longest_gap_seconds=15)
    held = GpuAllocation(MAIN, "GPU-1", memory_limit_bytes=GIB)
    for index in (1, 0):
        labels.start_cycle()
        reading = GpuReading(
            replace(GPUS[1], index=index),
            {"utilization_ratio": 0.5},
            xid_counts={79: 1},
            clock_event_counts={"gpu_idle": 1},
        )
        seen = Snapshot("node-a", float(index), (reading,), (process(7, GPUS[1], GIB),), (held,))
        families = dialect.families(meters.advance(seen))
    lines = {text for family in families for text, _value in family.samples if "uuid=" in text}
    assert len(lines) > 5
    assert {text for text in lines if 'gpu="0"' not in text} == set()
