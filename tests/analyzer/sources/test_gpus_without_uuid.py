"""Relabeling has dropped the label with the UUID: GPUs are identified by node and index, or by node and bus id."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.label_mapping import map_labels
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import Measure
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import running_prometheus
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import assert_alike, words_of

pytestmark = pytest.mark.slow

NODES = fleet(4)


def drop(*names: str) -> Callable[[str], str]:
    pattern = re.compile(rf'(?<=[{{,])(?:{"|".join(names)})="[^"]*",?')
    return lambda labels: pattern.sub("", labels)


def judge_holders(table: UsageTable) -> list[tuple[object, ...]]:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    names = [(one.node, one.gpu_index, one.container.pod, one.gpu_instance) for one in table.allocations]
    return sorted((*name, *words[:3]) for name, words in zip(names, words_of(verdicts), strict=True))


def test_gpus_without_a_uuid_are_identified_by_node_and_index_in_both_sources(tmp_path: Path):
    folders = [tmp_path / "whole", tmp_path / "dropped"]
    for folder in folders:
        folder.mkdir()
    whole = list(scrape_history(NODES, scrape_times(), dialects="dcgm"))
    samples = list(scrape_history(NODES, scrape_times(), dialects="dcgm", change=drop("UUID")))
    with (
        running_prometheus(folders[0], whole) as original,
        running_prometheus(folders[1], samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=original.url))) as complete,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        expected, table = complete.read(AT), queried.read(AT)
        assert judge_holders(table) == judge_holders(expected)
        assert len({one.gpu_uuid for one in table.allocations}) == len({one.gpu_uuid for one in expected.allocations})
        assert table.fleet == expected.fleet
        assert_alike(scraped.read(AT), table, rtol=1e-5)
        assert "identified by node and index (Hostname, gpu)" in queried.describe()["failures"]["identity"]
        assert "identity" not in complete.describe()["failures"]
        held = next(one for one in table.allocations if not one.gpu_instance)
        assert held.gpu_uuid == f"{held.node}/{held.gpu_index}"
        assert queried.read_series(held, AT, seconds=600).lines[Measure.CORE]
        assert queried.read_work([held], AT, seconds=600)[0].lines
        assert len(queried.read_gpus(NODES[0].name, "", AT)) >= len(
            {one.gpu_index for one in table.allocations if one.node == NODES[0].name}
        )


@pytest.mark.parametrize("dropped", [("UUID",), ("UUID", "uuid")])
def test_a_gpu_of_the_agent_is_not_counted_again_where_another_exporter_lacks_the_uuid(
    tmp_path: Path, dropped: tuple[str, ...]
):
    samples = [
        *scrape_history(NODES[:2], scrape_times(), dialects="native", change=drop(*dropped)),
        *scrape_history(NODES[:2], scrape_times(), dialects="dcgm", job="dcgm", change=drop(*dropped)),
    ]
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        table = source.read(AT)
        assert {one["name"] for one in source.describe()["dialects"]} == {"native"}
    held = [(one.node, one.gpu_index, one.gpu_instance, one.container.pod) for one in table.allocations]
    assert len(held) == len(set(held))
    assert sum(table.fleet.values()) == sum(
        each.gpu.mig is None for node in NODES[:2] for each in node.snapshot(AT).readings
    )


def test_without_an_index_the_bus_id_identifies_a_gpu():
    assert map_labels({"Hostname", "pci_bus_id", "pod"}).uuid == "Hostname,pci_bus_id"
    assert map_labels({"Hostname", "gpu", "pci_bus_id", "pod"}).uuid == "Hostname,gpu"
    assert map_labels({"Hostname", "gpu", "UUID"}).uuid == "UUID"
    assert map_labels({"pod"}).uuid == ""
