"""The same data through Prometheus and VictoriaMetrics, by query and by recording rule: the same table."""

import json
import math
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.judge.activity import ActivityRule, find_work, is_work
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.recording_rules import write_rules
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.exposition import render_labels
from gpusteward.core.node.gpus import Place
from gpusteward.core.node.usage_split import split_usage
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons
from gpusteward.simulate.fleets import default_node, fleet
from gpusteward.simulate.models import MIB
from gpusteward.simulate.readings import CONTEXT_MIB, EMPTY_MIB
from tests.analyzer.engines import RunningEngine, Sample, import_samples, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, STEP, WINDOW, collecting_once, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import faulty
from tests.analyzer.sources.test_ended_holders import STALE
from tests.analyzer.tables import assert_alike, index_rows, verdicts_of
from tests.constants import make_settings

pytestmark = pytest.mark.slow

RULES = Path(__file__).parents[4] / "deploy/chart/gpusteward/files/rules/recording.yaml"
NODES = [default_node(1, name="showcase"), *fleet(10)]
ENGINES = ("prometheus-native", "prometheus-dcgm", "victoria-native", "victoria-dcgm")
WITHOUT_ENGINE = "a100-40gb-003"
"""The node with MIG instances on a GPU before Hopper, where NVML has no engine activity per instance."""
ENERGY = ((Measure.ENERGY, Stat.PEAK), (Measure.ENERGY, Stat.STEP))
COUNTED = tuple(
    (measure, Stat.MEAN)
    for measure in (Measure.CORE, Measure.BUSY, Measure.MEMORY_COPY, Measure.ENGINE, Measure.TENSOR, Measure.DRAM)
)
"""What depends on the increase of a counter: the mean of the core, and a holder's part of device values."""
ONE_STEP = STEP / WINDOW


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningEngine]]:
    scrape = partial(scrape_history, NODES, scrape_times(), collect=collecting_once())
    native = list(scrape())
    dcgm = list(scrape(dialects="dcgm", options=DcgmOptions(device_per_pod=True)))
    with ExitStack() as stack:
        yield {
            f"{kind}-{name}": stack.enter_context(start(tmp_path_factory.mktemp(kind), samples))
            for kind, start in (("prometheus", running_prometheus), ("victoria", running_victoria))
            for name, samples in (("native", native), ("dcgm", dcgm))
        }


def read(engine: RunningEngine, at: float = AT, **settings: object) -> UsageTable:
    with closing(PrometheusSource(make_settings(PrometheusSettings, url=engine.url, **settings))) as source:
        return source.read(at)


@pytest.mark.parametrize("name", ["native", "dcgm"])
def test_prometheus_and_victoriametrics_give_the_same_table(engines: dict[str, RunningEngine], name: str):
    one, other = read(engines[f"prometheus-{name}"]), read(engines[f"victoria-{name}"])
    assert_alike(one, other, but=COUNTED if name == "native" else ENERGY)
    rows, others = index_rows(one), index_rows(other)
    here, there = list(rows.values()), [others[key] for key in rows]
    for key in COUNTED:
        # Prometheus extrapolates the increase between the first and the last sample to the ends of the window,
        # VictoriaMetrics starts from the sample before the window: a difference of about one step.
        if key in one.stats:
            np.testing.assert_allclose(one.stats[key][here], other.stats[key][there], atol=ONE_STEP, err_msg=str(key))
    step = (Measure.ENERGY, Stat.STEP)  # VictoriaMetrics counts a change since the sample before the window too
    if step in one.stats:
        changes = WINDOW / one.stats[step][here], WINDOW / other.stats[step][there]
        np.testing.assert_allclose(*changes, atol=1 + 1e-9)


@pytest.mark.parametrize("name", ["native", "dcgm"])
def test_verdicts_are_the_same_for_every_engine(engines: dict[str, RunningEngine], name: str):
    """For every GPU and workload; a difference of one step of a counter changes no verdict."""
    one, other = verdicts_of(read(engines[f"prometheus-{name}"])), verdicts_of(read(engines[f"victoria-{name}"]))
    assert one == other
    assert {words[0] for words, *_ in one.values()} >= {"active", "idle"}, "nothing was compared"


@pytest.mark.parametrize("name", ENGINES)
def test_sharded_queries_give_the_same_table(engines: dict[str, RunningEngine], name: str):
    assert_alike(read(engines[name]), read(engines[name], series_limit=100, max_concurrent_queries=4))


@pytest.mark.parametrize("name", ["prometheus-native", "prometheus-dcgm"])
def test_the_rows_are_exactly_the_simulated_allocations(engines: dict[str, RunningEngine], name: str):
    """DCGM reports a MIG instance under the uuid of its GPU, so containers are compared there."""
    reported = {
        (one.container.namespace, one.container.pod, one.container.name) for one in read(engines[name]).allocations
    }
    last = scrape_times()[-1]
    true = {key[:3] for node in NODES for key in node.truths(last)}
    assert reported == true


def test_exactly_the_idle_allocations_read_zero(engines: dict[str, RunningEngine]):
    table = read(engines["prometheus-native"])
    truths = {key[:3]: [] for node in NODES for key in node.truths(AT)}
    for node in NODES:
        for key, truth in node.truths(AT).items():
            truths[key[:3]].append(truth)
    for row, one in enumerate(table.allocations):
        theirs = truths[one.container.namespace, one.container.pod, one.container.name]
        if row not in table.unknown and not any(truth.worked(AT - WINDOW - 60, AT) for truth in theirs):
            assert table.usage(row).stats[Measure.CORE, Stat.PEAK] == 0
        if row not in table.unknown and all(truth.busy_seconds(AT - WINDOW, AT) > WINDOW / 10 for truth in theirs):
            assert table.usage(row).stats[Measure.CORE, Stat.PEAK] > 0


def test_native_rows_have_workload_share_model_and_start_time(engines: dict[str, RunningEngine]):
    table = read(engines["prometheus-native"])
    for allocation in table.allocations:
        assert allocation.container.workload is not None
        assert allocation.model.startswith(("NVIDIA", "Tesla"))
        assert allocation.share
        assert allocation.node
        assert allocation.container.started_at is not None
    assert {one.share for one in table.allocations} >= {
        "exclusive",
        "mig",
        "time-sliced",
        "mps",
        "hami",
        "ratio",
        "fraction",
    }


def test_a_mig_row_has_its_parent_gpu_and_engine_activity_as_core(engines: dict[str, RunningEngine]):
    for name in ("prometheus-native", "prometheus-dcgm"):
        table = read(engines[name])
        sliced = [row for row, one in enumerate(table.allocations) if one.gpu_instance]
        rows = [row for row in sliced if (Measure.ENGINE, Stat.MEAN) in table.usage(row).stats]
        assert rows
        assert {table.allocations[row].node for row in set(sliced) - set(rows)} == {WITHOUT_ENGINE}
        for row in rows:
            usage = table.usage(row)
            assert usage.allocation.gpu_uuid.startswith("GPU-")
            engine = {stat: usage.stats[Measure.ENGINE, stat] for stat in (Stat.MEAN, Stat.PEAK)}
            assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(engine[Stat.PEAK], abs=1e-6)
            counted = ONE_STEP if name == "prometheus-native" else 1e-6
            assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(engine[Stat.MEAN], abs=counted)
            assert usage.stats[Measure.MEMORY_COPY, Stat.MEAN] == usage.stats[Measure.DRAM, Stat.MEAN]


def exclusive_rows(engines: dict[str, RunningEngine]) -> tuple[UsageTable, UsageTable, list[tuple[int, int]]]:
    native, dcgm = read(engines["prometheus-native"]), read(engines["prometheus-dcgm"])
    theirs = index_rows(dcgm)
    rows = [
        (row, theirs[key]) for key, row in index_rows(native).items() if native.allocations[row].share == "exclusive"
    ]
    assert len(rows) > 20
    return native, dcgm, rows


def test_native_and_dcgm_agree_on_whole_gpus(engines: dict[str, RunningEngine]):
    """Except for known differences: DCGM counts whole MiB, and the memory of the driver itself is in the device total
    but in no holder's."""
    native, dcgm, rows = exclusive_rows(engines)
    here, there = map(list, zip(*rows, strict=True))
    for measure, stat in ((Measure.POWER, Stat.MEAN), (Measure.POWER, Stat.PEAK), (Measure.SM_CLOCK, Stat.MEAN)):
        np.testing.assert_allclose(native.column(measure, stat)[here], dcgm.column(measure, stat)[there], rtol=1e-6)
    for stat in (Stat.MEAN, Stat.PEAK):
        mine, other = (
            native.column(Measure.MEMORY_USED, stat)[here],
            dcgm.column(Measure.MEMORY_USED, stat)[there],
        )
        nobodys = np.where(mine > 0, EMPTY_MIB + CONTEXT_MIB, EMPTY_MIB) * MIB
        np.testing.assert_allclose(other - mine, nobodys, atol=MIB)
    totals = [table.column(Measure.MEMORY_TOTAL, Stat.LAST)[own] for table, own in ((native, here), (dcgm, there))]
    np.testing.assert_allclose(*totals, atol=2 * MIB)


def test_the_core_of_each_scheme_matches_its_simulated_signal(engines: dict[str, RunningEngine]):
    """Two different signals: DCGM has the last sample of the driver, the agent a counted mean."""
    native, dcgm, rows = exclusive_rows(engines)
    of_agent, of_driver = list_cores()
    for mine, other in rows:
        device = native.allocations[mine].gpu_uuid
        counted = of_agent[device][1:]  # a counter includes what happened between its samples
        stats = native.usage(mine).stats
        assert stats[Measure.CORE, Stat.MEAN] == pytest.approx(np.mean(counted), abs=1e-5)
        assert stats[Measure.CORE, Stat.PEAK] == pytest.approx(max(of_agent[device]), abs=1e-6)
        stats = dcgm.usage(other).stats
        assert stats[Measure.CORE, Stat.MEAN] == pytest.approx(np.mean(of_driver[device]), abs=1e-6)
        assert stats[Measure.CORE, Stat.PEAK] == pytest.approx(max(of_driver[device]), abs=1e-6)


Curves = dict[str, list[float]]


def list_cores() -> tuple[Curves, Curves]:
    """The use of each device by its containers at every sample of the window: seen by the agent, and by the driver."""
    of_agent: Curves = {}
    of_driver: Curves = {}
    for snapshot in [node.snapshot(at) for at in scrape_times() if AT - WINDOW < at <= AT for node in NODES]:
        for split in split_usage(snapshot):
            parts = [part.utilization_ratio or 0.0 for part in split.parts if part.by is Place.CONTAINER]
            of_agent.setdefault(split.gpu.uuid, []).append(sum(parts))
        for reading in snapshot.readings:
            of_driver.setdefault(reading.gpu.uuid, []).append(reading.signals.get("utilization_ratio", np.nan))
    return of_agent, of_driver


def test_a_window_of_any_length_counts_every_sample_once(engines: dict[str, RunningEngine]):
    """Also if the window starts and ends exactly at a sample."""
    for name in ENGINES:
        table = read(engines[name], at=scrape_times()[-1], time_window_min=5)
        known = [row for row in range(len(table)) if row not in table.unknown]
        assert set(table.coverage[known].tolist()) == {1.0}, name
        for row, reason in table.unknown.items():
            is_native = name.endswith("native")
            assert reason == (unknown_reasons.UNMEASURED_MIG if is_native else unknown_reasons.UNEXPORTED_MIG)
            assert table.allocations[row].gpu_instance
            assert table.allocations[row].node == WITHOUT_ENGINE


@pytest.mark.parametrize("name", ["victoria-native", "victoria-dcgm"])
def test_concurrent_exports_never_mix_their_series(engines: dict[str, RunningEngine], name: str):
    first = read(engines[name])
    for _ in range(12):
        assert_alike(read(engines[name]), first)


def test_pods_that_ended_in_the_window_are_left_out_and_stale_nodes_are_unknown(engines: dict[str, RunningEngine]):
    later = AT + 420
    for name in ("prometheus-native", "prometheus-dcgm"):
        table = read(engines[name], at=later)
        assert len(table)
        assert set(table.unknown) == set(range(len(table)))
        assert set(table.unknown.values()) == {unknown_reasons.NO_CURRENT_SAMPLE}
        assert table.coverage.max() < 0.5


@pytest.mark.parametrize("first", [STALE, math.inf, -math.inf], ids=["stale", "infinite", "negative"])
def test_a_series_that_begins_with_no_number_in_the_window_costs_the_others_nothing(tmp_path: Path, first: float):
    """Of a pod that ended when the window began only the end is left, and VictoriaMetrics writes NaN: no JSON."""
    times, held = scrape_times(), {"namespace": "ml", "container": "main"}
    samples: list[Sample] = []
    for name in ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"):
        for pod, value, at in (("works", 80.0, times), ("ended", first, [AT - WINDOW + 5])):
            labels = {"UUID": f"GPU-{pod}", "Hostname": "n1", "gpu": "0", "pod": pod, "job": "dcgm", "instance": "n1:1"}
            samples += steady(name, value, at, **labels, **held)
    samples += steady("up", 1.0, times, job="dcgm", instance="n1:1")
    with running_victoria(tmp_path, samples) as engine:
        table = read(engine)
    rows = [row for row, one in enumerate(table.allocations) if one.container.pod == "works"]
    assert [(table.unknown.get(row), table.column(Measure.CORE, Stat.MEAN)[row]) for row in rows] == [(None, 0.8)]
    assert not table.findings


def test_a_chart_has_a_bounded_number_of_points_in_base_units(engines: dict[str, RunningEngine]):
    for name in ENGINES:
        with closing(PrometheusSource(PrometheusSettings(url=engines[name].url))) as source:
            check_charts(source)


def check_charts(source: PrometheusSource) -> None:
    """A point for each sample of the window, and one at its start, which belongs to the previous window."""
    table = source.read(AT)
    for instance in (False, True):
        rows = [row for row, one in enumerate(table.allocations) if bool(one.gpu_instance) is instance]
        for row in [row for row in rows if row not in table.unknown][:3]:
            stats = table.usage(row).stats
            chart = source.read_series(table.allocations[row], AT, seconds=WINDOW)
            for measure in (Measure.CORE, Measure.MEMORY_USED):
                moments_drawn, values = zip(*chart.lines[measure], strict=True)
                assert moments_drawn == tuple(np.arange(AT - WINDOW, AT + 1, STEP))
                assert max(values[1:]) == pytest.approx(stats[measure, Stat.PEAK])
            assert np.mean(values[1:]) == pytest.approx(stats[Measure.MEMORY_USED, Stat.MEAN])
            assert max(value for _, value in chart.lines[Measure.CORE]) <= 1
    check_work(source, table)


def check_work(source: PrometheusSource, table: UsageTable) -> None:
    """What is read before an action says the same about work as the table, and has a core that proves idleness."""
    rule = ActivityRule()
    has_worked = find_work(table, rule)
    known = [row for row in range(len(table)) if row not in table.unknown]
    rows = [*[row for row in known if has_worked[row]][:4], *[row for row in known if not has_worked[row]][:4]]
    charts = source.read_work([table.allocations[row] for row in rows], AT, seconds=WINDOW)
    for row, lines in zip(rows, (chart.lines for chart in charts), strict=True):
        found = any(is_work(measure, value, rule) for measure, points in lines.items() for _, value in points)
        assert found == has_worked[row], table.allocations[row]
        assert lines[Measure.CORE][-1][0] == AT - AT % STEP, "the time of the sample, not that of the query"


@pytest.mark.parametrize("start", [running_prometheus, running_victoria])
def test_samples_before_an_action_have_their_own_times_up_to_the_newest(tmp_path: Path, start: Callable[..., Any]):
    """A point of a range query has the time of its step, so that a sample of five minutes ago looks new; and
    VictoriaMetrics hides the newest 30 s from all other queries."""
    now = time.time()
    times = [round(now - seconds, 3) for seconds in (150.0, 110.0, 60.0, 20.0, 3.0)]
    samples = [*scrape_history(NODES[:1], times), *scrape_history(NODES[4:6], times, dialects="dcgm")]
    with start(tmp_path, samples) as engine, closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
        found = source.read(now)
        charts = source.read_work(found.allocations, time.time(), seconds=120)
        later = source.read_work(found.allocations, now + 280, seconds=400)
    measured = [pair for pair in zip(charts, later, strict=True) if Measure.CORE in pair[0].lines]
    for chart, after in measured:
        moments_read = sorted({round(at, 2) for at, _ in chart.lines[Measure.CORE]})  # of both dialects
        assert moments_read == pytest.approx(times[1:], abs=0.02)
        assert after.lines[Measure.CORE][-1][0] == pytest.approx(times[-1], abs=0.01)
    assert len(measured) > 10


def test_recorded_windows_are_read_instead_of_computed_and_give_the_same_table(tmp_path: Path):
    samples = [*scrape_history(NODES[:1], scrape_times()), *scrape_history(NODES[4:6], scrape_times(), dialects="dcgm")]
    with running_victoria(tmp_path, samples) as engine:
        plain = read(engine)
        import_samples(engine.url, evaluate_rules(engine, AT))
        with faulty(engine.url) as proxy, closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source:
            recorded = source.read(AT)
            assert source.describe()["recording_rules"]
        assert_alike(plain, recorded)
    assert [query for query in proxy.queries if WINDOWED.search(query) and "(up" not in query] == []


def test_a_real_prometheus_records_what_the_analyzer_reads(tmp_path: Path):
    """Prometheus evaluates the shipped rules every second instead of every minute, over samples up to now."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.read_text().replace("interval: 1m", "interval: 1s"))
    times = scrape_times(at=time.time())
    samples = [*scrape_history(NODES[:1], times), *scrape_history(NODES[4:6], times, dialects="dcgm")]
    with running_prometheus(tmp_path, samples, rules=rules) as engine, faulty(engine.url) as proxy:
        at = wait_for_rules(engine)
        plain = read(engine, at=at, use_recording_rules=False)
        with closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source:
            recorded = source.read(at)
            found = source.describe()["recording_rules"]
    assert {name.split(":")[1] for name in found} >= {"DCGM_FI_DEV_GPU_UTIL", "gpusteward_use_busy_seconds_total"}
    assert_alike(plain, recorded, but=ENERGY)  # of a second earlier, when the rule was evaluated
    assert [query for query in proxy.queries if WINDOWED.search(query) and "(up" not in query] == []


WINDOWED = re.compile(r"(_over_time|increase)\(")


def wait_for_rules(engine: RunningEngine) -> float:
    """When the native rules were last evaluated: after DCGM's, with no sample in between."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        found = query_engine(engine, "max(timestamp(gpusteward:gpusteward_gpu_sm_clock_hertz:avg_over_time_10m))")
        when = float(found[0]["value"][1]) if found else 0.0
        if 3 < when % STEP < STEP - 3 and query_engine(
            engine, "gpusteward:DCGM_FI_DEV_SM_CLOCK:avg_over_time_10m", when
        ):
            return when
        time.sleep(0.2)
    raise AssertionError("the rules were not evaluated")


def query_engine(engine: RunningEngine, expression: str, at: float | None = None) -> list[dict[str, list[str]]]:
    form = urllib.parse.urlencode({"query": expression, "time": at or time.time()})
    with urllib.request.urlopen(f"{engine.url}/api/v1/query?{form}", timeout=20) as response:
        return json.load(response)["data"]["result"]


def evaluate_rules(engine: RunningEngine, at: float, *, rules: Path = RULES) -> Iterator[Sample]:
    """What Prometheus would record."""
    groups = yaml.safe_load(rules.read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        form = urllib.parse.urlencode({"query": rule["expr"], "time": at, "nocache": 1})
        with urllib.request.urlopen(f"{engine.url}/api/v1/query?{form}", timeout=20) as response:
            for row in json.load(response)["data"]["result"]:
                labels = {name: value for name, value in row["metric"].items() if name != "__name__"}
                yield rule["record"], render_labels(labels.items()), float(row["value"][1]), at - 1


def test_rules_are_written_for_the_given_window(tmp_path: Path, component: Callable[[str], str]):
    rules = tmp_path / "recording.yaml"
    command = [sys.executable, "-m", "gpusteward.analyzer.sources.promql.recording_rules", "--window-min"]
    rules.write_text(subprocess.run([*command, "30"], capture_output=True, text=True, check=True).stdout)
    checked = subprocess.run([component("promtool"), "check", "rules", rules], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with running_victoria(tmp_path, scrape_history(NODES[:1], scrape_times(1800))) as engine:
        import_samples(engine.url, evaluate_rules(engine, AT, rules=rules))
        with closing(PrometheusSource(PrometheusSettings(url=engine.url, time_window_min=30))) as source:
            source.read(AT)
            assert "gpusteward:gpusteward_use_busy_seconds_total:increase_30m" in source.describe()["recording_rules"]
    for window in ("0", "soon"):
        assert subprocess.run([*command, window], capture_output=True, check=False).returncode == 2


def test_the_shipped_rules_match_the_plan_and_pass_promtool(component: Callable[[str], str]):
    assert RULES.read_text() == write_rules()
    checked = subprocess.run(
        [component("promtool"), "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
