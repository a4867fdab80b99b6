"""One UUID for several GPUs of a node: cloned virtual GPUs, or a label that relabeling made constant."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql import fleet
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from tests.analyzer.engines import Sample, import_samples, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.analyzer.sources.promql.test_site_checks import find, gpu, held, read, up
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times(2400)


def clones(node: str, times: Iterable[float] = TIMES, **labels: str) -> Iterator[Sample]:
    """Two GPUs with the UUID of the first one, each with a pod."""
    times = list(times)
    for index, pod in enumerate(("a", "b")):
        yield from gpu(node, index, 80, times, **{"UUID": f"GPU-{node}-0", **held(f"{node}-{pod}"), **labels})


def list_gpus(table: UsageTable) -> list[tuple[str, str, bool]]:
    """Pod, GPU, and whether it is unknown."""
    return sorted((one.container.pod, one.gpu_uuid, row in table.unknown) for row, one in enumerate(table.allocations))


CLONES = [("n1-a", "n1/0", False), ("n1-b", "n1/1", False)]
OTHER = ("c", "GPU-n2-0", False)


def other(times: Iterable[float] = TIMES) -> Iterator[Sample]:
    yield from gpu("n2", core=80, times=list(times), **held("c"))


def test_gpus_of_one_uuid_are_identified_by_node_and_index_and_it_is_said(tmp_path: Path):
    table = read(tmp_path, clones("n1"), other(), up("n1"), up("n2"))
    assert find(table) == [("warning", "source-incomplete")]
    text = table.findings[0].message.en
    assert "one UUID stands for several GPUs of a node (n1)" in text
    assert "(Hostname, gpu)" in text
    assert sum(table.fleet.values()) == 3
    assert list_gpus(table) == [OTHER, *CLONES], "other nodes keep their UUIDs"


def test_a_label_of_the_uuid_that_is_the_same_everywhere_is_no_gpu_on_two_nodes(tmp_path: Path):
    parts = (clones(node, UUID="GPU-0") for node in ("n1", "n2"))
    table = read(tmp_path, *parts, up("n1"), up("n2"))
    assert find(table) == [("warning", "source-incomplete")]
    assert [gpu for _, gpu, _ in list_gpus(table)] == ["n1/0", "n1/1", "n2/0", "n2/1"]
    assert sum(table.fleet.values()) == 4


def test_with_many_such_nodes_all_gpus_are_identified_by_node_and_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fleet, "MAX_NODES", 0)
    table = read(tmp_path, clones("n1"), other(), up("n1"), up("n2"))
    assert list_gpus(table) == [("c", "n2/0", False), *CLONES]
    assert sum(table.fleet.values()) == 3


def test_never_said_of_a_gpu_that_has_another_index_after_a_restart(tmp_path: Path):
    """Engines return the series of before for five minutes."""
    before, after = ([at for at in TIMES if (at < AT - 100) is is_before] for is_before in (True, False))
    own = {"UUID": "GPU-n1", **held("a")}
    table = read(tmp_path, gpu("n1", 0, 80, before, **own), gpu("n1", 1, 80, after, **own), up("n1"))
    assert find(table) == []
    assert {one.gpu_uuid for one in table.allocations} == {"GPU-n1"}


def test_victoriametrics_says_the_same(tmp_path: Path):
    samples = [*clones("n1"), *other(), *up("n1"), *up("n2")]
    with running_victoria(tmp_path) as engine:
        import_samples(engine.url, samples)
        with closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
            table = source.read(AT)
    assert find(table) == [("warning", "source-incomplete")]
    assert list_gpus(table) == [OTHER, *CLONES]


def test_a_node_that_appears_later_is_told_apart_after_the_next_discovery(tmp_path: Path):
    late = [at for at in TIMES if at > AT - 700]
    samples = [*clones("n1", late), *other(), *up("n1", times=late), *up("n2")]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, relearn_cycles=3))) as source,
    ):
        tables = [source.read(AT - age) for age in (900, 600, 300, 0)]
    assert [list_gpus(table) for table in (tables[0], tables[3])] == [[OTHER], [OTHER, *CLONES]]
    assert find(tables[3]) == [("warning", "source-incomplete")]


def test_such_a_node_that_does_not_report_is_unknown_and_not_gone(tmp_path: Path):
    early = [at for at in TIMES if at < AT - 1200]
    samples = [*clones("n1", early), *other(), *up("n1", times=early), *up("n1", 0, TIMES[len(early) :]), *up("n2")]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, relearn_cycles=1))) as source,
    ):
        tables = [source.read(AT - age) for age in (1260, 900, 300, 0)]
    assert list_gpus(tables[0]) == [OTHER, *CLONES]
    assert list_gpus(tables[3]) == [OTHER, ("n1-a", "n1/0", True), ("n1-b", "n1/1", True)]


def test_it_ends_when_each_gpu_has_its_uuid(tmp_path: Path):
    early, late = ([at for at in TIMES if (at < AT - 1500) is is_early] for is_early in (True, False))
    fixed = (gpu("n1", index, 80, late, **held(f"n1-{pod}")) for index, pod in enumerate("ab"))
    samples = [*clones("n1", early), *(each for part in fixed for each in part), *other(), *up("n1"), *up("n2")]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, relearn_cycles=1))) as source,
    ):
        before, after = (source.read(AT - age) for age in (1560, 0))
    assert list_gpus(before) == [OTHER, *CLONES]
    assert list_gpus(after) == [OTHER, ("n1-a", "GPU-n1-0", False), ("n1-b", "GPU-n1-1", False)]
    assert find(after) == []


def test_a_refused_comparison_costs_nothing_else(tmp_path: Path):
    samples = [*clones("n1"), *other(), *up("n1"), *up("n2")]
    with (
        running_prometheus(tmp_path, samples) as engine,
        faulty(engine.url) as proxy,
        closing(
            PrometheusSource(make_settings(PrometheusSettings, url=proxy.url, relearn_cycles=1, retries=0))
        ) as source,
    ):
        first = source.read(AT - 300)
        proxy.fault = fails("timestamp(DCGM", status=422)
        second = source.read(AT)
    assert list_gpus(first) == list_gpus(second) == [OTHER, *CLONES]


def test_gpusteward_s_agent_too(tmp_path: Path):
    def agent(index: int) -> Iterator[Sample]:
        device = {"node": "n1", "gpu": str(index), "uuid": "GPU-0", "job": "agent", "instance": "n1:9500"}
        own = {**device, **held(f"pod-{index}")}
        yield from steady("gpusteward_gpu_info", 1, TIMES, model="A100", **device)
        yield from steady("gpusteward_allocation_info", 1, TIMES, **own)
        yield from steady("gpusteward_use_utilization_ratio", 0.8, TIMES, by="container", **own)

    table = read(tmp_path, agent(0), agent(1), up("n1", job="agent", instance="n1:9500"))
    assert find(table)[0] == ("warning", "source-incomplete")
    assert list_gpus(table) == [("pod-0", "n1/0", False), ("pod-1", "n1/1", False)]
    assert sum(table.fleet.values()) == 2
