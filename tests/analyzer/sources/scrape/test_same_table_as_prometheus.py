"""The same samples through an engine and through the embedded source: the same table."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.core.usages import Measure, Stat
from gpusteward.simulate.fleets import default_node, fleet
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import (
    AT,
    WINDOW,
    Collect,
    collecting_once,
    scrape_history,
    scrape_times,
    with_target,
)
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import assert_alike, index_rows

pytestmark = pytest.mark.slow

NODES = [default_node(1, name="showcase"), *fleet(10)]
GOLDEN = Path(__file__).parents[3] / "agent/golden"
SINGLE = 1e-5
"""The embedded source keeps gauges in 32 bits, and its windows are a millisecond longer."""


def make_samples(kind: str, collect: Collect) -> tuple[Sample, ...]:
    scrape = partial(scrape_history, times=scrape_times(), collect=collect)
    match kind:
        case "native":
            return tuple(scrape(NODES))
        case "dcgm":
            return tuple(scrape(NODES, dialects="dcgm", options=DcgmOptions(device_per_pod=True)))
        case "renamed":
            return tuple(scrape(NODES, dialects="dcgm", options=DcgmOptions(names="v4.9")))
        case _:  # some nodes have the agent, others an exporter of DCGM
            return *scrape(NODES[:5]), *scrape(NODES[5:], dialects="dcgm", job="dcgm")


KINDS = ("native", "dcgm", "renamed", "mixed")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[PrometheusSource, ScrapeSource]]]:
    with ExitStack() as stack:
        sources = {}
        collect = collecting_once()
        for kind in KINDS:
            samples = make_samples(kind, collect)
            engine = stack.enter_context(running_prometheus(tmp_path_factory.mktemp(kind), samples))
            queried = stack.enter_context(closing(PrometheusSource(PrometheusSettings(url=engine.url))))
            sources[kind] = (queried, stack.enter_context(closing(fed_source(samples))))
        yield sources


@pytest.mark.parametrize("kind", KINDS)
def test_the_embedded_source_gives_the_same_table_as_prometheus(both, kind: str):
    queried, scraped = both[kind]
    assert_alike(scraped.read(AT), queried.read(AT), rtol=SINGLE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_are_the_same_when_the_window_begins_and_ends_at_a_sample(both, kind: str):
    queried, scraped = both[kind]
    assert_alike(scraped.read(scrape_times()[-1]), queried.read(scrape_times()[-1]), rtol=SINGLE)


@pytest.mark.parametrize("kind", KINDS)
def test_both_count_the_same_fleet(both, kind: str):
    queried, scraped = both[kind]
    mine = scraped.read(AT).fleet
    assert mine == queried.read(AT).fleet
    whole = [one for node in NODES for one in node.snapshot(AT).readings if one.gpu.mig is None]
    assert sum(mine.values()) == len(whole)


def test_both_give_the_same_chart(both):
    queried, scraped = both["native"]
    table, other = scraped.read(AT), queried.read(AT)
    for key, row in index_rows(table).items():
        mine = scraped.read_series(table.allocations[row], AT, seconds=WINDOW).lines
        theirs = queried.read_series(other.allocations[index_rows(other)[key]], AT, seconds=WINDOW).lines
        assert mine.keys() == theirs.keys()
        if Measure.CORE in mine:
            assert mine[Measure.CORE][-1][1] == pytest.approx(theirs[Measure.CORE][-1][1], rel=SINGLE)


def test_the_golden_pages_of_the_agent_give_the_same_table_in_both(tmp_path: Path):
    samples = tuple(golden_page_samples())
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        assert_alike(scraped.read(AT), queried.read(AT), rtol=SINGLE)


def golden_page_samples() -> Iterator[Sample]:
    """Each page as that of its own node, repeated; counters do not grow."""
    for number, path in enumerate(sorted(GOLDEN.glob("*.prom"))):
        page = path.read_text().replace('"node-a"', f'"node-{number}"').replace("-aaaa-bbbb-", f"-{number:04}-bbbb-")
        target = f'{{instance="node-{number}:9400",job="gpus"}}'
        for at in scrape_times():
            yield "up", target, 1.0, at
            for name, labels, value in re.findall(r"^(\w+)(\{.*\})? (\S+)$", page, re.MULTILINE):
                yield name, with_target(labels, target), float(value), at


def test_holders_without_samples_are_unknown_and_deleted_ones_are_absent_in_both(both, tmp_path: Path):
    """A node that stops responding while others continue, and pods that are no longer on a page."""
    times = scrape_times()
    samples = (
        *scrape_history(NODES[:1], times[:-5]),
        *scrape_history(NODES[1:4], times),
    )
    with (
        running_prometheus(tmp_path, samples) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as queried,
        closing(fed_source(samples)) as scraped,
    ):
        later = AT + 240
        mine, theirs = scraped.read(later), queried.read(later)
        assert_alike(mine, theirs, rtol=SINGLE)
        assert mine.unknown
        assert mine.column(Measure.CORE, Stat.MEAN).size == len(mine)
