"""The same fleet over Prometheus, VictoriaMetrics, Thanos and Mimir: the same table and the same verdicts.

Also writes what was compared to bench/results/engines.md.
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import Measure, Stat
from gpusteward.simulate.fleets import default_node, fleet
from tests.analyzer.engines import RunningEngine, Sample, find_program, running_prometheus
from tests.analyzer.scraped_history import STEP, WINDOW, scrape_history, scrape_times
from tests.analyzer.tables import index_rows, verdicts_of
from tests.constants import make_settings
from tests.engines.programs import (
    TENANT,
    running_mimir,
    running_query,
    running_query_frontend,
    running_sidecar,
    running_victoria,
)

AT = time.time() // STEP * STEP - 2 * STEP + 15
"""Recent, because Mimir keeps only recent samples in memory; old enough for VictoriaMetrics' latency offset."""
NODES = [default_node(1, name="showcase"), *fleet(10)]
NAMES = ("native", "dcgm")
ROOT = Path(__file__).parents[2]
SCRIPT, REPORT = ROOT / ".ci/engines", ROOT / "bench/results/engines.md"


@dataclass(frozen=True)
class Site:
    """One engine as the analyzer sees it."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def read(self, **settings: object) -> UsageTable:
        with closing(PrometheusSource(self.settings(**settings))) as source:
            return source.read(AT)

    def settings(self, **settings: object) -> PrometheusSettings:
        return make_settings(PrometheusSettings, url=self.url, headers=dict(self.headers), retries=0, **settings)


@dataclass
class Sites:
    """All engines with the samples of one exporter, the plain Prometheus first."""

    plain: Site
    others: list[Site]
    replicas: list[RunningEngine]  # the Prometheus servers behind Thanos
    stores: list[str]


def make_samples(name: str) -> list[Sample]:
    options = DcgmOptions(device_per_pod=True) if name == "dcgm" else None
    return list(scrape_history(NODES, scrape_times(at=AT), dialects=name, options=options))


@pytest.fixture(scope="module", params=NAMES)
def sites(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    samples = make_samples(request.param)
    with ExitStack() as stack:
        enter, make = stack.enter_context, tmp_path_factory.mktemp
        folders = [make(f"replica-{number}") for number in range(2)]
        replicas = [
            enter(running_prometheus(folder, samples, external_labels=f"{{replica: r{number}}}"))
            for number, folder in enumerate(folders)
        ]
        sidecars = [enter(running_sidecar(one, folder)) for one, folder in zip(replicas, folders, strict=True)]
        stores = [store for _, store in sidecars]
        query = enter(running_query(stores))
        frontend = enter(running_query_frontend(query))
        victoria = enter(running_victoria(make("victoria"), samples))
        mimir = enter(running_mimir(make("mimir"), samples))
        others = [
            Site("Thanos Query over two replicas", query.url),
            Site("Thanos Query Frontend", frontend.url),
            Site("VictoriaMetrics", victoria.url),
            Site("Mimir", f"{mimir.url}/prometheus", TENANT),
        ]
        wait_for_stores(query, len(stores))
        yield Sites(Site("Prometheus", replicas[0].url), others, replicas, stores)


def wait_for_stores(query: RunningEngine, count: int) -> None:
    site = Site("query", query.url)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if len(site.read()) > 0:
                return
        except SourceError:
            pass
        time.sleep(0.5)
    pytest.fail(f"Thanos does not reach its {count} stores")


def test_every_engine_gives_the_verdicts_of_prometheus_for_every_gpu_and_workload(sites: Sites, report: list[str]):
    plain = sites.plain.read()
    expected = verdicts_of(plain)
    assert {words[0] for words, *_ in expected.values()} >= {"active", "idle"}, "nothing was compared"
    for site in sites.others:
        began = time.perf_counter()
        found = read_verdicts(site, plain)
        equal = sum(found.get(key) == verdict for key, verdict in expected.items())
        report.append(
            f"| {site.name} | {len(expected)} | {equal} | {len(found) - equal} | {time.perf_counter() - began:.2f} |"
        )
        assert found == expected, site.name


BUSY_TIME = tuple((measure, Stat.MEAN) for measure in (Measure.CORE, Measure.BUSY, Measure.MEMORY_COPY))
"""What is made from it; on a shared GPU the memory copy is divided by it."""


def read_verdicts(site: Site, expected: UsageTable, **settings: object) -> dict[tuple[str, ...], tuple[object, ...]]:
    """VictoriaMetrics does not extrapolate an increase to the ends of the window: its busy time is up to one step of
    the counter away, so that a row at a limit may be high there and normal elsewhere. Its verdicts are those with the
    busy time of Prometheus; the numbers themselves are compared below."""
    table = site.read(**settings)
    if site.name == "VictoriaMetrics":
        rows = index_rows(expected)
        order = [rows[key] for key in index_rows(table)]
        same = {key: expected.stats[key][order] for key in BUSY_TIME if key in expected.stats}
        table = replace(table, stats={**table.stats, **same})
    return verdicts_of(table)


COLLECTED = ((Measure.ENERGY, Stat.STEP), (Measure.POWER, Stat.STEP))
"""How often an exporter has new values: the window over the number of changes."""


def test_every_engine_gives_the_numbers_of_prometheus(sites: Sites):
    """Within one step of a counter: engines extrapolate its increase to the ends of the window differently, and
    VictoriaMetrics counts the change from the value before the window too."""
    expected = sites.plain.read()
    for site in sites.others:
        table = site.read()
        rows = index_rows(table)
        assert rows.keys() == index_rows(expected).keys()
        order = [rows[key] for key in index_rows(expected)]
        for key, column in expected.stats.items():
            if key in COLLECTED:
                changes, known = WINDOW / table.stats[key][order], WINDOW / column
                np.testing.assert_allclose(changes, known, atol=1.0, err_msg=f"{site.name} {key}")
                continue
            np.testing.assert_allclose(
                table.stats[key][order], column, atol=STEP / WINDOW, rtol=STEP / WINDOW, err_msg=f"{site.name} {key}"
            )
        np.testing.assert_allclose(table.coverage[order], expected.coverage, err_msg=site.name)


def test_small_queries_give_the_same_verdicts(sites: Sites):
    plain = sites.plain.read()
    for site in sites.others:
        assert read_verdicts(site, plain, series_limit=100) == verdicts_of(plain), site.name


def test_without_its_tenant_mimir_refuses_and_another_tenant_has_no_data(sites: Sites):
    mimir = sites.others[-1]
    with pytest.raises(SourceError, match=r"X-Scope-OrgID"):
        Site("no tenant", mimir.url).read()
    with pytest.raises(SourceError, match=r"X-Scope-OrgID"):
        Site("other tenant", mimir.url, {"X-Scope-OrgID": "somebody-else"}).read()


def test_a_lost_replica_changes_no_verdict_and_without_all_of_them_nothing_is_idle(sites: Sites, report: list[str]):
    """With strict endpoints Thanos reports the lost one as an error, although the other has all samples.

    What was unknown before may have another reason."""
    expected = words_of_verdicts(sites.plain.read())
    with running_query(sites.stores, endpoint="--endpoint-strict") as query:
        wait_for_stores(query, 2)
        with closing(PrometheusSource(Site("Thanos", query.url).settings())) as source:
            assert words_of_verdicts(source.read(AT)) == expected
            sites.replicas[1].stop()
            assert words_of_verdicts(source.read(AT)) == expected
            sites.replicas[0].stop()
            count = len(expected)
            report.append(f"| Thanos, strict endpoints, one replica lost | {count} | {count} | 0 | - |")
            try:
                table = source.read(AT)
            except SourceError:
                return
            assert {words[0] for words in words_of_verdicts(table).values()} == {"unknown"}


def words_of_verdicts(table: UsageTable) -> dict[tuple[str, ...], object]:
    """Activity, state, signature, step and idle since, without the reasons."""
    return {key: words for key, (words, *_) in verdicts_of(table).items()}


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines of the report; of both exporters one after the other."""
    lines = _REPORTED.setdefault(request.module.__name__, [])
    yield lines
    versions = {"prometheus": _read_prometheus_version(), **_read_built_versions()}
    REPORT.write_text(
        "# The contract of every engine\n\n"
        f"Made by `make test-engines` on {time.strftime('%Y-%m-%d', time.gmtime())}: {len(NODES)} simulated nodes,"
        f" window {WINDOW / 60:.0f} min, scraped every {STEP:.0f} s; first with the metrics of gpusteward's agent, then"
        " with those of dcgm-exporter. All verdicts are compared with those from Prometheus, those"
        " over VictoriaMetrics with its busy time: increases are not extrapolated there.\n\n"
        + "".join(f"- {name}: {version}\n" for name, version in versions.items())
        + "\n| engine | verdicts | equal | different | one read with discovery, s |\n| --- | --: | --: | --: | --: |\n"
        + "\n".join(lines)
        + "\n"
    )


_REPORTED: dict[str, list[str]] = {}


def _read_built_versions() -> dict[str, str]:
    """Of the modules that the script builds; the programs do not know their versions."""
    return dict(re.findall(r"^build (\S+) \S+ (\S+)", SCRIPT.read_text(), re.MULTILINE))


def _read_prometheus_version() -> str:
    command = [find_program("prometheus"), "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return next(word for word in (done.stdout + done.stderr).split() if word[0].isdigit())
