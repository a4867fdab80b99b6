"""The native dialect on simulated nodes: labels, sums, no duplicates."""

from collections import defaultdict
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.dialects.pod_metrics import Pid2PodDialect, VgpuMonitorDialect
from gpusteward.agent.usage_counters import SnapshotView, UsageCounters
from gpusteward.core.exposition import Family, LabelCache, render_page
from gpusteward.core.metrics import METRICS
from gpusteward.core.node.gpus import GpuProcess, Place
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.simulate.fleets import default_node, fleet
from tests.agent.dialects.snapshot_views import Page, claim, reading
from tests.agent.dialects.snapshot_views import view as make_view

AT = 1_800_000_000.0
DOCUMENTED = {metric.name: metric for metric in METRICS}
DIALECTS = (NativeDialect, VgpuMonitorDialect, Pid2PodDialect)


def view_of(snapshots: list[Snapshot]) -> SnapshotView:
    meters = UsageCounters(longest_gap_seconds=60)
    for snapshot in snapshots:
        view = meters.advance(snapshot)
    return view


@pytest.fixture(scope="module", params=range(11))
def view(request: pytest.FixtureRequest) -> SnapshotView:
    node = [default_node(7), *fleet(10, seed=3)][request.param]
    return view_of([node.snapshot(AT + 5 * i) for i in range(3)])


def samples(view: SnapshotView, dialect: type) -> list:
    families: list[Family] = dialect(LabelCache()).families(view)
    return [sample for family in parse_text(render_page(families).text.decode()) for sample in family.samples]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_series_is_in_the_metric_table_with_only_its_labels(view: SnapshotView, dialect: type):
    for sample in samples(view, dialect):
        assert sample.labels.keys() <= set(DOCUMENTED[sample.name].labels), sample


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_series_is_exported_twice(view: SnapshotView, dialect: type):
    keys = [(sample.name, *sorted(sample.labels.items())) for sample in samples(view, dialect)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("gpusteward_use_utilization_ratio", "gpusteward_gpu_utilization_ratio"),
        ("gpusteward_use_memory_bytes", "gpusteward_gpu_memory_used_bytes"),
        ("gpusteward_use_busy_seconds_total", "gpusteward_gpu_busy_seconds_total"),
    ],
)
def test_parts_sum_to_the_device(view: SnapshotView, part: str, whole: str):
    sums: dict[str, float] = defaultdict(float)
    totals: dict[str, float] = {}
    for sample in samples(view, NativeDialect):
        if sample.name == part:
            sums[sample.labels["uuid"]] += sample.value
        if sample.name == whole:
            totals[sample.labels["uuid"]] = sample.value
    assert totals
    assert {uuid: sums[uuid] for uuid in totals} == pytest.approx(totals, rel=1e-5, abs=1e-5)


def test_power_of_all_users_is_the_power_of_all_boards(view: SnapshotView):
    found = samples(view, NativeDialect)
    used = sum(sample.value for sample in found if sample.name == "gpusteward_use_power_estimated_watts")
    drawn = sum(sample.value for sample in found if sample.name == "gpusteward_gpu_power_watts")
    assert used == pytest.approx(drawn, rel=1e-5)


def test_memory_of_a_mig_device_is_exported_by_its_instances_only(view: SnapshotView):
    parents = {reading.gpu.uuid for reading in view.snapshot.readings if reading.is_mig_parent}
    exported = {s.labels["uuid"] for s in samples(view, NativeDialect) if s.name == "gpusteward_gpu_memory_total_bytes"}
    assert not parents & exported


def test_a_pod_that_holds_a_gpu_without_using_it_has_an_explicit_zero():
    view = view_of([default_node(7).snapshot(AT)])
    busy = {process.container for process in view.snapshot.processes}
    unused = next(a.container for a in view.snapshot.allocations if a.container not in busy)
    found = {
        sample.name: sample.value
        for dialect in (NativeDialect, VgpuMonitorDialect)
        for sample in samples(view, dialect)
        if (sample.labels.get("pod") == unused.pod and "use_memory" in sample.name)
        or sample.name == "pod_gpu_memory_used"
    }
    assert found["gpusteward_use_memory_bytes"] == 0


def test_a_process_on_two_gpus_has_one_pid2pod_sample_with_the_sum_of_its_memory(view: SnapshotView):
    rows = {sample.labels["pid"]: sample.value for sample in samples(view, Pid2PodDialect)}
    held: dict[str, int] = defaultdict(int)
    for process in view.snapshot.processes:
        if process.container and process.container.pod and process.memory_bytes is not None:
            held[str(process.pid)] += process.memory_bytes
    assert rows == {pid: total // 2**20 for pid, total in held.items()}


def test_exported_pod_labels_are_on_the_allocation():
    labelled = claim("a", labels={"cost-center": "7", "cost.center": "8", "team": "v", "empty": ""})
    page = Page(NativeDialect(LabelCache(), pod_labels=True).families(make_view([reading()], [labelled])))
    labels, _ = page.only("gpusteward_allocation_info")
    assert {name: value for name, value in labels.items() if name.startswith("label_")} == {
        "label_cost_center": "8",
        "label_team": "v",
    }


def test_a_process_whose_memory_the_driver_hides_has_its_line():
    """Also on MIG, where its utilization is unknown too."""
    own = GpuProcess(7, "GPU-0", "python", place=Place.CONTAINER, container=claim("a").container)
    other = replace(own, pid=8, memory_bytes=1 << 30)
    page = Page(NativeDialect(LabelCache()).families(make_view([reading()], [claim("a")], processes=[own, other])))
    labels, value = page.only("gpusteward_process_memory_unknown")
    assert (labels["pid"], labels["process"], labels["pod"], value) == ("7", "python", "a", 1)
    assert page.only("gpusteward_process_memory_bytes")[0]["pid"] == "8"
