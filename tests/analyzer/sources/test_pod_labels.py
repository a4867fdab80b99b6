"""Labels of pods from an engine and from scraped exporters: only those that are wanted, whatever their exporter calls
them."""

from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.label_mapping import ClusterChoice, map_labels
from gpusteward.analyzer.tables import UsageTable
from gpusteward.simulate.fleets import default_node
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, STEP, WINDOW, scrape_history, scrape_times
from tests.analyzer.sources.scrape.page_server import pages_of

pytestmark = pytest.mark.slow

WANTED = ("team", "org/cost-center")
HOSTILE = r"\"} 1\n=x"


def make_samples(dialect: str) -> tuple[Sample, ...]:
    """Every series of a holder has two wanted labels and another one."""
    prefix = "label_" if dialect == "native" else ""
    added = f'{prefix}team="vision",{prefix}org_cost_center="{HOSTILE}",{prefix}app="x"'
    change = lambda labels: labels.replace("{", "{" + added + ",", 1) if 'namespace="' in labels else labels  # noqa: E731
    return tuple(scrape_history([default_node(1)], scrape_times(), dialects=dialect, change=change))


def list_labels(table: UsageTable) -> set[tuple[tuple[str, str], ...]]:
    assert len(table)
    return {tuple(sorted(one.container.pod_labels)) for one in table.allocations}


@pytest.mark.parametrize("dialect", ["native", "dcgm"])
def test_both_sources_read_the_wanted_labels(tmp_path: Path, dialect: str):
    samples = make_samples(dialect)
    prefix = "label_" if dialect == "native" else ""
    expected = {((f"{prefix}org_cost_center", '"} 1\n=x'), (f"{prefix}team", "vision"))}
    with running_prometheus(tmp_path, samples) as engine:
        settings = PrometheusSettings(url=engine.url)
        with closing(PrometheusSource(settings, pod_labels=WANTED)) as source:
            assert list_labels(source.read(AT)) == expected
            assert list_labels(source.read(AT)) == expected  # details of the last cycle
        with closing(PrometheusSource(settings)) as source:
            assert list_labels(source.read(AT)) == {()}
    scraped = ScrapeSource(
        ScrapeSettings(interval=STEP, selector=""),
        window_seconds=WINDOW,
        clusters=ClusterChoice(pod_labels=WANTED),
    )
    with closing(scraped):
        for target, page, at in pages_of(samples):
            scraped.ingest(target, page, at)
        assert list_labels(scraped.read(AT)) == expected


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (("label_team", "app"), "label_team"),
        (("cost_center",), ""),
        (("org_cost_center", "team"), "org_cost_center,team"),
        (("team", "exported_team"), "exported_team"),  # the plain one is of the exporter's own pod
        (("pod_label_team",), "pod_label_team"),
        (("pod", "namespace", "cluster"), ""),
    ],
)
def test_a_label_is_found_by_every_name(labels: tuple[str, ...], found: str):
    assert map_labels(labels, pod_labels=WANTED).pod_labels == found


def test_a_label_with_another_meaning_is_not_a_pod_label():
    assert map_labels(("node", "instance"), pod_labels=("node", "instance")).pod_labels == ""
