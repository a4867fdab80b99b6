"""For any node: no duplicate series, no duplicate label, every page readable by Prometheus' own parser."""

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions, parse_devices
from gpusteward.agent.field_list import FieldList, LabelRow, MetricRow
from gpusteward.core import dcgm
from gpusteward.core.exposition import LabelCache, render_page
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, MigIdentity, Place, Share
from gpusteward.core.node.signals import SIGNALS
from tests.agent.dialects.snapshot_views import read_labels, view

EVERYTHING = FieldList(
    tuple(MetricRow(one.name, one, one.kind) for one in dcgm.FIELDS)
    + tuple(MetricRow(one.name, one, one.kind) for one in dcgm.EVENTS),
    tuple(LabelRow(label.name, label) for label in dcgm.LABELS),
)

numbers = st.floats(0, 1e12)
signals = st.dictionaries(st.sampled_from([*SIGNALS]), numbers, max_size=12)
label_keys = st.sampled_from(
    ["gpu", "pod", "pod_label_pod", "a.b", "a/b", "a_b", "UUID", "xid", "vgpu", "1x", "é", "dra_x"]
)
containers = st.builds(
    Container,
    namespace=st.sampled_from(["", "n"]),
    pod=st.sampled_from(["", "a", "b"]),
    pod_uid=st.sampled_from(["", "u", "v"]),
    name=st.sampled_from(["", "c", "d"]),
    pod_labels=st.dictionaries(label_keys, st.text(max_size=3), max_size=5).map(lambda labels: tuple(labels.items())),
)


@st.composite
def readings(draw: st.DrawFn) -> list[GpuReading]:
    found: list[GpuReading] = []
    for index in range(draw(st.integers(0, 3))):
        slices = draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=3))
        found.append(draw_reading(draw, Gpu("n", index, f"GPU-{index}", "H100"), is_parent=bool(slices)))
        for number, compute in sorted(slices):
            mig = MigIdentity(f"GPU-{index}", "1g.10gb", number, compute)
            found.append(draw_reading(draw, Gpu("n", index, f"MIG-{index}-{number}-{compute}", "H100", mig=mig)))
    return found


def draw_reading(draw: st.DrawFn, gpu: Gpu, *, is_parent: bool = False) -> GpuReading:
    return GpuReading(
        gpu,
        draw(signals),
        lost=draw(st.integers(0, 9)) == 0,
        is_mig_parent=is_parent,
        xid_counts=draw(st.dictionaries(st.integers(1, 99), st.integers(1, 5), max_size=3)),
        peer_status=draw(st.dictionaries(st.integers(0, 3), st.integers(0, 7), max_size=3)),
    )


def allocations(found: list[GpuReading]) -> st.SearchStrategy[list[GpuAllocation]]:
    if not found:
        return st.just([])
    uuids = st.sampled_from([one.gpu.uuid for one in found])
    replicas = st.sampled_from(["", "0", "1"])
    one = st.builds(GpuAllocation, containers, uuids, st.sampled_from(Share), replica=replicas)
    return st.lists(one, max_size=6)


options = st.builds(
    DcgmOptions,
    names=st.sampled_from(["classic", "v4.9", "both"]),
    hostname_label=st.sampled_from(["Hostname", "hostname", "both"]),
    hostname=st.sampled_from(["", "n"]),
    device_per_pod=st.booleans(),
    old_labels=st.booleans(),
    pod_labels=st.booleans(),
    pod_uid=st.booleans(),
    devices=st.sampled_from(["f", "g", "i", "g+i", "g:0", "i:0,8-9"]).map(parse_devices),
)


@settings(max_examples=150, deadline=None)
@given(options, readings(), st.data())
def test_no_series_and_no_label_is_duplicated(
    chosen: DcgmOptions, found: list[GpuReading], data: st.DataObject
) -> None:
    held = data.draw(allocations(found))
    used = [
        GpuProcess(pid, one.gpu_uuid, memory_bytes=pid, sm_ratio=0.1, place=Place.CONTAINER, container=one.container)
        for pid, one in enumerate(held)
    ]
    cache = LabelCache()
    dialect = DcgmDialect(chosen, EVERYTHING, labels=cache)
    for now in (0.0, 5.0):
        cache.start_cycle()
        families = dialect.families(view(found, held, processes=used, taken_at=now))
        names = [family.metric.name for family in families]
        assert len(names) == len(set(names))
        for family in families:
            series = {frozenset(pair for pair in read_labels(text).items() if pair[1]) for text, _ in family.samples}
            assert len(series) == len(family.samples), family.metric.name
        list(text_string_to_metric_families(render_page(families).text.decode()))
