"""The energy counter from minute to minute: short work shows, the noise of an idle GPU does not."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Doubt
from tests.analyzer.engines import Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.constants import make_settings

SECONDS = 4800
ADDED = {
    "quiet": (600, 0, 0.0),
    "requests": (600, 3, 180.0),
    "video": (600, 20, 40.0),
    "lately": (60, 3, 180.0),  # in the last quarter of an hour only
}
"""Of each pod: a period in seconds, for how many of them it draws more, and how many watts."""


def write_energy(step: float) -> Iterator[Sample]:
    """Idle by all gauges at 15 to 60 s; an exporter that collects every 30 s."""
    times = scrape_times(SECONDS - 60, step=step)
    begin = int(AT) - SECONDS
    seconds = np.arange(begin, int(AT) + 60)
    for number, (pod, (period, length, watts)) in enumerate(ADDED.items()):
        noise = np.random.default_rng(number).normal(0, 2, len(seconds))
        is_on = ((seconds + 290) % period < length) & ((pod != "lately") | (seconds > AT - 900))
        joules = np.cumsum(70 + noise + watts * is_on)
        labels = {"gpu": str(number), "UUID": f"GPU-{number}", "Hostname": "n1", "namespace": "ml", "pod": pod}
        labels |= {"container": "main", "job": "dcgm", "instance": "n1:9400"}
        for name in ("GPU_UTIL", "ENC_UTIL", "DEC_UTIL"):
            yield from steady(f"DCGM_FI_DEV_{name}", 0, times, **labels)
        for at in times:
            collected = int(at // 30 * 30) - begin
            value = float(1e6 + joules[collected] * 1000)
            yield from steady("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value, [at], **labels)
    yield from steady("up", 1, times, job="dcgm", instance="n1:9400")


def read(kind: str, folder: Path, step: float, others: Sequence[Sample] = ()) -> UsageTable:
    samples = [*write_energy(step), *others]
    with ExitStack() as opened:
        if kind == "pages":
            return opened.enter_context(closing(fed_source(samples, interval=step))).read(AT)
        run = running_prometheus if kind == "prometheus" else running_victoria
        engine = opened.enter_context(run(folder, samples))
        settings = PrometheusSettings(url=engine.url)
        return opened.enter_context(closing(PrometheusSource(settings))).read(AT)


def doubt_of(table: UsageTable) -> dict[str, tuple[Activity, Doubt]]:
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
    codes = zip(table.allocations, verdicts.activity, verdicts.doubt, strict=True)
    return {one.container.pod: (ACTIVITIES[activity], DOUBTS[doubt]) for one, activity, doubt in codes}


@pytest.mark.parametrize("step", [15.0, 30.0, 60.0])
@pytest.mark.parametrize("kind", ["pages", "prometheus", "victoria"])
def test_never_idle_while_a_minute_draws_more_than_the_others(tmp_path: Path, kind: str, step: float):
    found = doubt_of(read(kind, tmp_path, step))
    assert found["quiet"] == (Activity.IDLE, Doubt.NONE)
    assert found["requests"] == found["video"] == found["lately"] == (Activity.UNKNOWN, Doubt.ENERGY)


@pytest.mark.parametrize("kind", ["pages", "prometheus"])
@pytest.mark.parametrize("works", [False, True])
def test_on_a_shared_gpu_energy_contradicts_where_no_holder_works(tmp_path: Path, kind: str, *, works: bool):
    """Whose it was, is unknown; a neighbour that works explains it."""
    copies = [
        (name, labels.replace('pod="requests"', 'pod="neighbour"'), 50.0 if works and "GPU_UTIL" in name else value, at)
        for name, labels, value, at in write_energy(30.0)
        if 'pod="requests"' in labels
    ]
    found = doubt_of(read(kind, tmp_path, 30.0, copies))
    assert found["requests"] == ((Activity.IDLE, Doubt.NONE) if works else (Activity.UNKNOWN, Doubt.ENERGY))
    assert works or found["neighbour"] == (Activity.UNKNOWN, Doubt.ENERGY)


def test_the_embedded_source_measures_it_as_prometheus_does(tmp_path: Path):
    key = (Measure.ENERGY, Stat.PEAK)
    here, there = (read(kind, tmp_path, 15.0) for kind in ("pages", "prometheus"))
    rows = [[one.container.pod for one in table.allocations].index("requests") for table in (here, there)]
    assert here.stats[key][rows[0]] == pytest.approx(there.stats[key][rows[1]], rel=1e-3)


def test_an_interval_that_does_not_divide_a_minute_compares_nothing():
    with closing(fed_source(write_energy(45.0), interval=45.0)) as source:
        assert doubt_of(source.read(AT))["requests"] == (Activity.IDLE, Doubt.NONE)


def test_a_failed_query_for_new_values_of_energy_leaves_no_proof(tmp_path: Path):
    """Engine activity would otherwise count as measured without gaps while nobody knows how often it is collected."""
    with running_prometheus(tmp_path, list(write_energy(15.0))) as engine, faulty(engine.url) as proxy:
        settings = make_settings(PrometheusSettings, url=proxy.url, retries=1)
        with closing(PrometheusSource(settings)) as source:
            known = source.read(AT).column(Measure.ENERGY, Stat.STEP)
            proxy.fault = fails("changes(")
            failed = source.read(AT).column(Measure.ENERGY, Stat.STEP)
    assert known[0] == pytest.approx(30, rel=0.1)
    assert failed.tolist() == [0.0] * len(ADDED)
