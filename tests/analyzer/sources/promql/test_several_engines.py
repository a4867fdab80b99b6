"""`prometheus.url`: several engines, each with a part of the site, give one table."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.several_engines import EngineShard, SeveralEngines, join_tables
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.tables import ServerPod
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import Container
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times
from tests.analyzer.sources.promql.test_stale_allocations import gpu
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import assert_alike
from tests.analyzer.usage_tables import allocation, resting, table_of, working
from tests.constants import make_settings

pytestmark = pytest.mark.slow

NODES = fleet(4)
HALVES = (NODES[:2], NODES[2:])
CLUSTER = "east"


def name_cluster(labels: str) -> str:
    """As `external_labels` do."""
    return f'{labels[:-1]},cluster="{CLUSTER}"}}'


@pytest.fixture
def halves(tmp_path: Path) -> Iterator[list[RunningEngine]]:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one, other = (scrape_history(nodes, scrape_times(), change=name_cluster) for nodes in HALVES)
    with running_prometheus(folders[0], one) as first, running_prometheus(folders[1], other) as second:
        yield [first, second]


def open_both(engines: list[RunningEngine]) -> SeveralEngines:
    return SeveralEngines(make_settings(PrometheusSettings, url=tuple(engine.url for engine in engines), retries=0))


def test_two_halves_give_the_table_of_the_whole_and_a_lost_half_is_unknown_not_absent(halves, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    with (
        running_prometheus(whole, scrape_history(NODES, scrape_times(), change=name_cluster)) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        expected = source.read(AT)
    with closing(open_both(halves)) as source:
        table = source.read(AT)
        assert_alike(table, expected)
        assert table.fleet == expected.fleet
        halves[1].stop()
        after = source.read(AT)
        lost_nodes = {node.name for node in HALVES[1]}
        assert [one.container for one in after.allocations] == [one.container for one in table.allocations]
        assert after.fleet == expected.fleet
        for row, held in enumerate(after.allocations):
            if held.node in lost_nodes:
                assert "its engine could not be read" in str(after.unknown[row])
                assert halves[1].url in str(after.unknown[row])
            else:
                assert after.unknown.get(row) == table.unknown.get(row)
        assert halves[1].url in source.describe()["failures"]
        (finding,) = [one for one in after.findings if one.level == "warning"]
        assert halves[1].url in finding.message.en, "the failing engine is named"
        assert not table.findings
        halves[0].stop()
        with pytest.raises(SourceError, match=r"check prometheus\.url"):
            source.read(AT)


def test_an_engine_that_could_never_be_read_fails_the_cycle_because_workloads_may_have_gpus_there(halves):
    halves[1].stop()
    with closing(open_both(halves)) as source, pytest.raises(SourceError, match=halves[1].url):
        source.read(AT)


def test_charts_come_from_the_engine_that_has_them_also_while_another_is_down(halves):
    with closing(open_both(halves)) as source:
        table = source.read(AT)
        for nodes in HALVES:
            held = next(one for one in table.allocations if one.node == nodes[0].name)
            assert source.read_series(held, AT, seconds=600).lines[Measure.CORE]
        assert source.request_counts["ok"] > 0
        assert source.request_counts["failed"] == 0
        halves[0].stop()
        lost, held = (next(one for one in table.allocations if one.node == nodes[0].name) for nodes in HALVES)
        assert source.read_series(held, AT, seconds=600).lines[Measure.CORE], "the other engine has it"
        with pytest.raises(SourceError):
            source.read_series(lost, AT, seconds=600)
        lost_pod, held_pod = (PodKey(one.container.namespace, one.container.pod, CLUSTER) for one in (lost, held))
        assert source.read_processes([held_pod], AT).reported == {held_pod}
        assert source.read_processes([held_pod, lost_pod], AT).reported == {held_pod}, "the other one is unknown"
        with pytest.raises(SourceError):
            source.read_processes([lost_pod], AT)


def test_an_allocation_in_two_engines_is_one_row_and_work_seen_by_one_of_them_counts():
    idle, busy = (table_of(values) for values in (resting(), working(peak=0.7)))
    joined = join_tables([idle, busy])
    assert len(joined) == 1
    assert joined.column(Measure.CORE, Stat.PEAK).tolist() == [0.7]


def test_an_allocation_that_two_exporters_report_is_one_row_with_the_uid_of_its_pod():
    held = allocation()
    reported = [replace(held, container=replace(held.container, pod_uid=uid)) for uid in ("", "7f1c")]
    joined = join_tables([table_of(resting(), allocations=[each]) for each in reported])
    assert joined.allocations == reported[1:]
    lost = table_of(resting(), allocations=reported[1:], unknown={0: "the engine could not be read"})
    assert join_tables([lost, table_of(resting(), allocations=reported[:1])]).allocations == reported[:1]


@pytest.mark.parametrize("url", ["http://a:1/ http://b:1 http://a:1", ["http://a:1/", "http://b:1", "http://a:1"]])
def test_the_addresses_of_several_engines_are_a_list_or_a_text_without_repetition(url: str | list[str]):
    assert PrometheusSettings(url=url).addresses == ("http://a:1", "http://b:1")
    with pytest.raises(ValueError, match="write a URL"):
        PrometheusSettings(url="http://a:1 b:1")


def change_gpus(labels: str) -> str:
    """Another cluster with the same names: only the GPUs differ."""
    return re.sub('(?i)(uuid="(?:GPU|MIG)-)', r"\1b-", labels)


def test_engines_whose_series_name_no_cluster_are_clusters_of_their_own_named_by_address(tmp_path: Path):
    """With the same names in both: nothing of one hides anything of the other."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one = list(scrape_history(NODES[:2], scrape_times(), dialects="native"))
    other = scrape_history(NODES[:2], scrape_times(), dialects="native", change=change_gpus)
    with (
        running_prometheus(folders[0], one) as first,
        running_prometheus(folders[1], other) as second,
        closing(open_both([first, second])) as source,
        closing(PrometheusSource(PrometheusSettings(url=first.url))) as alone,
    ):
        expected = alone.read(AT)
        table = source.read(AT)
        addresses = [engine.url.removeprefix("http://") for engine in (first, second)]
        assert table.clusters == tuple(sorted(addresses))
        assert [one.cluster for one in table.allocations] == [each for each in addresses for _ in range(len(expected))]
        assert sum(table.fleet.values()) == 2 * sum(expected.fleet.values())
        keys = judge_workloads(judge(table, Rules(), VerdictHistory(), now=AT)[0], Rules()).keys
        assert len(keys) == 2 * len(
            judge_workloads(judge(expected, Rules(), VerdictHistory(), now=AT)[0], Rules()).keys
        )
        described = source.describe()
        assert [engine["cluster"] for engine in described["engines"]] == addresses
        assert "they are read as two clusters" in described["warnings"][0]
        assert described["failures"] == {}
        for held in (table.allocations[0], table.allocations[-1]):
            assert source.read_series(held, AT, seconds=600).lines[Measure.CORE]
            pod = PodKey(held.container.namespace, held.container.pod, held.cluster)
            found = source.read_processes([pod], AT)
            assert found.reported == {pod}
            assert {each.pod for each in found.processes} <= {pod}
        gpus = [source.read_gpus(NODES[0].name, address, AT) for address in addresses]
        assert all(gpus)
        assert {each.uuid for each in gpus[0]}.isdisjoint(each.uuid for each in gpus[1])
        again = source.read(AT)
        assert all(now is before for now, before in zip(again.allocations, table.allocations, strict=True))


def test_replicas_of_one_prometheus_stay_one_cluster_without_a_name(tmp_path: Path):
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    samples = list(scrape_history(NODES[:2], scrape_times()))
    with (
        running_prometheus(folders[0], samples) as first,
        running_prometheus(folders[1], samples) as second,
        closing(open_both([first, second])) as source,
        closing(PrometheusSource(PrometheusSettings(url=first.url))) as alone,
    ):
        table = source.read(AT)
        assert_alike(table, alone.read(AT))
        assert table.clusters == ()
        assert source.describe()["warnings"] == []


def drop_uuid(labels: str) -> str:
    return re.sub('(?i)[a-z_]*uuid="[^"]*",?', "", labels)


def test_engines_whose_gpus_have_no_uuid_are_never_taken_for_replicas(tmp_path: Path):
    """Nodes of two clusters may have the same names: their GPUs are then named alike."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    samples = list(scrape_history(NODES[:2], scrape_times(), dialects="dcgm", change=drop_uuid))
    with (
        running_prometheus(folders[0], samples) as first,
        running_prometheus(folders[1], samples) as second,
        closing(open_both([first, second])) as source,
        closing(PrometheusSource(PrometheusSettings(url=first.url))) as alone,
    ):
        assert len(source.read(AT)) == 2 * len(alone.read(AT))
        assert "they are read as two clusters" in source.describe()["warnings"][0]


def move_pod(at: float) -> list[Sample]:
    """One node with two GPUs; its only pod is on the first one, and from then on on the second one."""
    times = scrape_times(3000, at=AT + 1200)
    before, after = [time for time in times if time < at], [time for time in times if time >= at]
    holders = [(0, "job-1", before), (0, "", after), (1, "", before), (1, "job-2", after)]
    return [
        sample
        for number, pod, during in holders
        for sample in gpu(number, pod, 0.0, during, Hostname="n0", gpu=str(number))
    ]


def test_a_replica_that_is_down_stays_in_its_cluster_when_the_only_workload_moves(tmp_path: Path):
    """Its last table has the pod on another GPU than the present one of the other replica."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    with (
        running_prometheus(folders[0], move_pod(AT)) as first,
        running_prometheus(folders[1], move_pod(AT)) as second,
        closing(open_both([first, second])) as source,
    ):
        assert {one.cluster for one in source.read(AT - 30).allocations} == {""}
        second.stop()
        table = source.read(AT + 900)
        assert {one.container.pod for one in table.allocations} == {"job-1", "job-2"}
        assert {one.cluster for one in table.allocations} == {""}
        assert [engine["cluster"] for engine in source.describe()["engines"]] == ["", ""]


def test_replicas_with_different_holders_are_one_cluster_by_all_gpus_of_their_nodes(tmp_path: Path):
    """One has scraped the node before the pod moved, the other one after that; another cluster has nodes of these names
    and other GPUs."""
    folders = [tmp_path / name for name in ("one", "other", "foreign")]
    for folder in folders:
        folder.mkdir()
    foreign = [(name, labels.replace("GPU-", "GPU-b-"), value, at) for name, labels, value, at in move_pod(AT - 3000)]
    with (
        running_prometheus(folders[0], move_pod(AT - 3000)) as first,
        running_prometheus(folders[1], move_pod(AT + 3000)) as second,
        running_prometheus(folders[2], foreign) as third,
        closing(open_both([first, second])) as replicas,
        closing(open_both([first, third])) as clusters,
    ):
        table = replicas.read(AT)
        assert {one.container.pod for one in table.allocations} == {"job-1", "job-2"}
        assert {one.cluster for one in table.allocations} == {""}
        addresses = {engine.url.removeprefix("http://") for engine in (first, third)}
        for _cycle in range(2):
            assert {one.cluster for one in clusters.read(AT).allocations} == addresses


@pytest.mark.parametrize("label", ["cluster", "k8s_cluster_name", "cluster_name"])
def test_clusters_of_one_engine_are_told_apart_by_the_usual_labels(tmp_path: Path, label: str):
    def name(cluster: str) -> Callable[[str], str]:
        return lambda labels: f"{change_gpus(labels) if cluster == 'b' else labels}"[:-1] + f',{label}="{cluster}"}}'

    samples = [
        sample
        for cluster in ("a", "b")
        for sample in scrape_history(NODES[:2], scrape_times(), job=f"gpus-{cluster}", change=name(cluster))
    ]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        assert source.read(AT).clusters == ("a", "b")
        assert source.describe()["failures"] == {}


def test_the_same_pod_on_two_nodes_is_unknown_and_said_in_both_sources(tmp_path: Path):
    """Two clusters in one engine whose series do not name them; their nodes have different names."""

    def move(labels: str) -> str:
        return change_gpus(labels).replace(f'"{NODES[0].name}', '"elsewhere')

    samples = [
        *scrape_history(NODES[:1], scrape_times(), dialects="native"),
        *scrape_history(NODES[:1], scrape_times(), dialects="native", change=move, job="other"),
    ]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        table = queried.read(AT)
        assert_alike(scraped.read(AT), table, rtol=1e-5)
        assert len(table.unknown) == len(table)
        assert unknown_reasons.POD_ON_TWO_NODES in table.unknown.values()
        assert "(elsewhere, " in queried.describe()["failures"]["clusters"]


@pytest.mark.parametrize("are_names_equal", [True, False])
def test_two_clusters_of_one_name_in_two_engines_are_said(tmp_path: Path, are_names_equal: bool):
    """A label was copied from one cluster to the other. Their pods have the same names, or only their nodes."""

    def change(labels: str) -> str:
        changed = name_cluster(change_gpus(labels))
        return changed if are_names_equal else re.sub('(,|{)pod="', r'\1pod="other-', changed)

    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one = scrape_history(NODES[:1], scrape_times(), dialects="native", change=name_cluster)
    other = scrape_history(NODES[:1], scrape_times(), dialects="native", change=change)
    with (
        running_prometheus(folders[0], one) as first,
        running_prometheus(folders[1], other) as second,
        closing(open_both([first, second])) as source,
        closing(PrometheusSource(PrometheusSettings(url=second.url))) as alone,
    ):
        expected, table = alone.read(AT), source.read(AT)
        assert len(table) == 2 * len(expected)
        found = {one.code: one.message.en for one in table.findings}
        if are_names_equal:
            assert len(table.unknown) == len(table)
            assert unknown_reasons.POD_ON_TWO_NODES in table.unknown.values()
            assert "two clusters seem to be read as one" in found["source-incomplete"]
            assert "two clusters seem to be read as one" in source.describe()["failures"]["clusters"]
        else:
            assert len(table.unknown) == 2 * len(expected.unknown)
            assert NODES[0].name in found["two-gpus-one-index"]
            assert source.describe()["failures"] == {}


def test_a_server_in_two_engines_counts_once_and_is_silent_only_if_both_say_so():
    one = ServerPod("vLLM", Container("team", "pod-0"), requests=3, tokens=9, is_silent=True)
    other = replace(one, requests=4, tokens=nan, is_silent=False)
    joined = join_tables([replace(table_of(resting()), servers=[each]) for each in (one, other)])
    [found] = joined.servers
    assert (found.requests, found.tokens, found.is_silent) == (4, 9, False)
    assert join_servers(joined).column(Measure.REQUESTS, Stat.COUNT).tolist() == [4.0]


def test_a_server_has_the_cluster_of_its_engine_where_series_name_none():
    silent = [ServerPod("vLLM", Container("team", "pod-0"), requests=0, is_silent=True)]
    served = [replace(silent[0], requests=5, is_silent=False)]
    shard = EngineShard("http://one", None, cluster="one")  # type: ignore[arg-type]
    other = EngineShard("http://other", None, cluster="other")  # type: ignore[arg-type]
    tables = [
        each.name_cluster(replace(table_of(resting(), allocations=[held]), servers=servers))
        for each, held, servers in ((shard, allocation(0), silent), (other, allocation(0), served))
    ]
    joined = join_servers(join_tables(tables))
    found = dict(
        zip((one.cluster for one in joined.allocations), joined.column(Measure.SILENT, Stat.LOWEST), strict=True)
    )
    assert found == {"one": 1.0, "other": 0.0}
