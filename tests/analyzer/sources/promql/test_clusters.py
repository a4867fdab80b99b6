"""Several clusters in one engine: equal namespaces, names, nodes and uuids are never merged."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import WorkloadTable, judge_workloads
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, NodeModel, UsageTable
from gpusteward.core.usages import Measure
from gpusteward.core.verdicts import Activity
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times(seconds=1500)
PODS = 24
IDLE = {"east": set(range(9)), "west": set(range(9, 18))}  # no pod is idle in both
ENGINES = {"prometheus": running_prometheus, "victoria": running_victoria}


def gpu(number: int, *, is_idle: bool, times: Iterable[float] = TIMES, **cluster: str) -> Iterator[Sample]:
    """A GPU of dcgm-exporter; every cluster has it with the same uuid, on a node of the same name."""
    names = {"UUID": f"GPU-{number}", "Hostname": f"n{number // 8}", "gpu": str(number % 8), "modelName": "A100"}
    holder = {"namespace": f"team-{number % 3}", "pod": f"server-{number}", "container": "main"}
    times = list(times)
    for name, value in (("GPU_UTIL", 0.0 if is_idle else 60.0), ("FB_USED", 9000.0), ("POWER_USAGE", 60.0)):
        yield from steady(f"DCGM_FI_DEV_{name}", value, times, **names, **holder, job="dcgm", **cluster)


def two_clusters() -> Iterator[Sample]:
    for cluster, idle in IDLE.items():
        yield from steady("up", 1, TIMES, job="dcgm", instance="n0:9400", cluster=cluster)
        for number in range(PODS):
            yield from gpu(number, is_idle=number in idle, cluster=cluster)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param), two_clusters()) as running:
        yield running


def read(engine: RunningEngine, at: float = AT, **settings: object) -> UsageTable:
    with closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, **settings))) as source:
        return source.read(at)


def judged(table: UsageTable) -> WorkloadTable:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=table.at)
    return judge_workloads(verdicts, Rules())


def list_idle(workloads: WorkloadTable) -> list[tuple[str, str]]:
    codes = zip(workloads.keys, workloads.activity.tolist(), strict=True)
    return [(key.cluster, key.name) for key, code in codes if ACTIVITIES[code] is Activity.IDLE]


def test_workloads_of_the_same_name_in_two_clusters_are_two_and_the_idle_ones_are_found(engine: RunningEngine):
    table = read(engine)
    assert table.clusters == ("east", "west")
    assert not table.unknown
    workloads = judged(table)
    assert len(workloads) == 2 * PODS
    expected = {(cluster, f"server-{number}") for cluster, numbers in IDLE.items() for number in numbers}
    idle = list_idle(workloads)
    assert len(idle) == 18
    assert set(idle) == expected


def test_the_fleet_is_counted_by_cluster(engine: RunningEngine):
    nodes = Counter({NodeModel(f"n{node}", "A100", cluster): 8 for cluster in IDLE for node in range(PODS // 8)})
    assert read(engine).fleet == nodes


def test_prometheus_clusters_limits_every_query(engine: RunningEngine):
    table = read(engine, clusters=["west"])
    assert table.clusters == ("west",)
    assert len(table) == PODS
    assert set(list_idle(judged(table))) == {("west", f"server-{number}") for number in IDLE["west"]}
    assert {key.cluster for key in table.fleet} == {"west"}
    assert len(read(engine, clusters=["west", "east"])) == 2 * PODS
    assert len(read(engine, clusters=["ea.*"])) == 0, "a name is not a pattern"


def test_a_chart_shows_the_gpu_of_its_cluster(engine: RunningEngine):
    with closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
        table = source.read(AT)
        lasts = {}
        for one in table.allocations:
            if one.container.pod == "server-0":
                lasts[one.cluster] = source.read_series(one, AT, seconds=300).lines[Measure.CORE][-1][1]
    assert lasts == {"east": 0.0, "west": pytest.approx(0.6)}


def test_queries_split_by_node_keep_clusters_apart(engine: RunningEngine):
    table = read(engine, series_limit=100)
    assert len(list_idle(judged(table))) == 18


def test_each_cluster_may_name_itself_in_another_label(tmp_path: Path):
    samples = [
        *gpu(0, is_idle=True, cluster="east"),
        *gpu(0, is_idle=False, k8s_cluster="west"),
        *gpu(1, is_idle=False, region="north"),  # names no cluster
        *(sample for job in ("cluster", "k8s_cluster") for sample in steady("up", 1, TIMES, job="dcgm", **{job: "x"})),
    ]
    with running_prometheus(tmp_path, samples) as engine:
        table = read(engine)
        assert sorted(one.cluster for one in table.allocations) == ["", "east", "west"]
        assert list_idle(judged(table)) == [("east", "server-0")]
        assert {key.cluster for key in table.fleet} == {"", "east", "west"}
        assert sorted(one.cluster for one in read(engine, cluster_label="region").allocations) == ["", "north"]
        assert [one.cluster for one in read(engine, clusters=["west"]).allocations] == ["west"]
        with closing(PrometheusSource(PrometheusSettings(url=engine.url, clusters=["south"]))) as source:
            assert len(source.read(AT)) == 0
            assert "prometheus.clusters" in source.describe()["failures"]


def test_a_site_that_begins_to_name_its_cluster_counts_no_gpu_twice(tmp_path: Path):
    begin = AT - 300
    before, after = ([at for at in TIMES if (at < begin) is is_before] for is_before in (True, False))
    samples = [
        *gpu(0, is_idle=False, times=before),
        *gpu(0, is_idle=False, times=after, cluster="east"),
        *steady("up", 1, TIMES, job="dcgm", instance="n0:9400"),
    ]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, relearn_cycles=1))) as source,
    ):
        for at, cluster in ((begin - 15, ""), (begin + 60, "east"), (AT, "east"), (AT + 60, "east")):
            assert [one.cluster for one in source.read(at).allocations] == [cluster]
