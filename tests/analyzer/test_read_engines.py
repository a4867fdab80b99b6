"""The same data through Prometheus and VictoriaMetrics, by query, by export and by recording rule: the same table."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
import yaml

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.read.prometheus.rules import write_rules
from gpusteward.analyzer.read.prometheus.settings import PrometheusSettings
from gpusteward.analyzer.read.prometheus.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.exposition import render_labels
from gpusteward.core.usages import Measure, Stat
from gpusteward.simulate.fleets import default_node, fleet
from tests.analyzer.engines import RunningEngine, Sample, import_samples, running_prometheus, running_victoria
from tests.analyzer.faults import faulty
from tests.analyzer.histories import AT, WINDOW, moments, tell_history
from tests.analyzer.tables import assert_alike, places

RULES = Path(__file__).parents[2] / "deploy/rules/recording.yaml"
NODES = [default_node(1, name="showcase"), *fleet(10)]
NATIVE = tuple(tell_history(NODES, moments()))
DCGM = tuple(tell_history(NODES, moments(), dialects="dcgm", options=DcgmOptions(device_per_pod=True)))
ENGINES = ("prometheus-native", "prometheus-dcgm", "victoria-native", "victoria-dcgm")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningEngine]]:
    with ExitStack() as stack:
        yield {
            f"{kind}-{name}": stack.enter_context(start(tmp_path_factory.mktemp(kind), samples))
            for kind, start in (("prometheus", running_prometheus), ("victoria", running_victoria))
            for name, samples in (("native", NATIVE), ("dcgm", DCGM))
        }


def read(engine: RunningEngine, at: float = AT, **settings: object) -> UsageTable:
    with closing(PrometheusSource(PrometheusSettings(url=engine.url, **settings))) as source:
        return source.read(at)


@pytest.mark.parametrize("name", ["native", "dcgm"])
def test_prometheus_and_victoriametrics_give_the_same_table(engines: dict[str, RunningEngine], name: str):
    assert_alike(read(engines[f"prometheus-{name}"]), read(engines[f"victoria-{name}"], use_export=False))


@pytest.mark.parametrize("name", ["native", "dcgm"])
def test_the_export_gives_the_same_table_as_the_queries(engines: dict[str, RunningEngine], name: str):
    engine = engines[f"victoria-{name}"]
    assert_alike(read(engine, use_export=True), read(engine, use_export=False))


@pytest.mark.parametrize("name", ENGINES)
def test_the_work_cut_into_small_pieces_gives_the_same_table(engines: dict[str, RunningEngine], name: str):
    assert_alike(read(engines[name]), read(engines[name], series_limit=100, max_concurrent_queries=4))


@pytest.mark.parametrize("name", ["prometheus-native", "prometheus-dcgm"])
def test_every_allocation_of_the_truth_is_a_row_and_none_else(engines: dict[str, RunningEngine], name: str):
    """In the DCGM dialect a MIG instance is named by its parent, so there the containers are compared."""
    told = {(one.container.namespace, one.container.pod, one.container.name) for one in read(engines[name]).holdings}
    last = moments()[-1]
    true = {key[:3] for node in NODES for key in node.truths(last)}
    assert told == true


def test_who_truly_did_nothing_reads_zero_and_nobody_else_does(engines: dict[str, RunningEngine]):
    table = read(engines["prometheus-native"])
    truths = {key[:3]: [] for node in NODES for key in node.truths(AT)}
    for node in NODES:
        for key, truth in node.truths(AT).items():
            truths[key[:3]].append(truth)
    for row, one in enumerate(table.holdings):
        theirs = truths[one.container.namespace, one.container.pod, one.container.name]
        if row not in table.unknown and not any(truth.worked(AT - WINDOW - 60, AT) for truth in theirs):
            assert table.usage(row).stats[Measure.CORE, Stat.PEAK] == 0
        if row not in table.unknown and all(truth.busy_seconds(AT - WINDOW, AT) > WINDOW / 10 for truth in theirs):
            assert table.usage(row).stats[Measure.CORE, Stat.PEAK] > 0


def test_native_rows_know_workload_share_model_and_start(engines: dict[str, RunningEngine]):
    table = read(engines["prometheus-native"])
    for holding in table.holdings:
        assert holding.container.workload is not None
        assert holding.model.startswith(("NVIDIA", "Tesla"))
        assert holding.share
        assert holding.node
        assert holding.container.started_at is not None
    assert {one.share for one in table.holdings} >= {
        "exclusive",
        "mig",
        "time-sliced",
        "mps",
        "hami",
        "ratio",
        "fraction",
    }


def test_a_mig_row_names_its_parent_and_its_core_is_the_engines_activity(engines: dict[str, RunningEngine]):
    for name in ("prometheus-native", "prometheus-dcgm"):
        table = read(engines[name])
        rows = [row for row, one in enumerate(table.holdings) if one.gpu_instance]
        rows = [row for row in rows if (Measure.ENGINE, Stat.MEAN) in table.usage(row).stats]
        assert rows
        for row in rows:
            usage = table.usage(row)
            assert usage.holding.gpu_uuid.startswith("GPU-")
            for stat in (Stat.MEAN, Stat.PEAK):
                assert usage.stats[Measure.CORE, stat] == pytest.approx(usage.stats[Measure.ENGINE, stat], abs=1e-6)
            assert usage.stats[Measure.MEMORY_COPY, Stat.MEAN] == usage.stats[Measure.DRAM, Stat.MEAN]


def test_native_and_dcgm_agree_on_whole_gpus(engines: dict[str, RunningEngine]):
    native, dcgm = read(engines["prometheus-native"]), read(engines["prometheus-dcgm"])
    theirs = places(dcgm)
    rows = [(row, theirs[place]) for place, row in places(native).items() if native.holdings[row].share == "exclusive"]
    assert rows
    here, there = map(list, zip(*rows, strict=True))
    for measure, tolerance in (
        (Measure.CORE, 0.1),  # the driver's last sample against its mean since the last look
        (Measure.MEMORY_USED, 2**26),
        (Measure.POWER, 1e-6),
        (Measure.SM_CLOCK, 1e6),
    ):
        mine, other = native.column(measure, Stat.MEAN)[here], dcgm.column(measure, Stat.MEAN)[there]
        np.testing.assert_allclose(mine, other, rtol=0.02, atol=tolerance)


def test_a_window_of_any_length_counts_every_sample_once(engines: dict[str, RunningEngine]):
    """Also when the window begins and ends right on a sample."""
    for name in ENGINES:
        table = read(engines[name], at=moments()[-1], time_window_min=5)
        known = [row for row in range(len(table)) if row not in table.unknown]
        assert set(table.coverage[known].tolist()) == {1.0}, name


def test_pods_that_ended_in_the_window_are_left_out_and_silent_nodes_are_unknown(engines: dict[str, RunningEngine]):
    later = AT + 420
    for name in ("prometheus-native", "prometheus-dcgm"):
        table = read(engines[name], at=later)
        assert len(table)
        assert set(table.unknown) == set(range(len(table)))
        assert set(table.unknown.values()) == {"no sample now: its exporter or its node is silent"}
        assert table.coverage.max() < 0.5


def test_the_course_of_one_workload_is_bounded_and_in_base_units(engines: dict[str, RunningEngine]):
    for name in ENGINES:
        with closing(PrometheusSource(PrometheusSettings(url=engines[name].url))) as source:
            check_charts(source)


def check_charts(source: PrometheusSource) -> None:
    table = source.read(AT)
    for instance in (False, True):
        row = next(
            row
            for row, one in enumerate(table.holdings)
            if bool(one.gpu_instance) is instance and row not in table.unknown
        )
        chart = source.read_series(table.holdings[row], AT, seconds=WINDOW)
        points = chart.lines[Measure.CORE]
        assert 15 <= len(points) <= 500
        assert all(0 <= value <= 1 for _, value in points)
        assert points[-1][1] == pytest.approx(table.usage(row).stats[Measure.CORE, Stat.LAST])


def test_recorded_windows_are_read_instead_of_computed_and_say_the_same(tmp_path: Path):
    samples = [*tell_history(NODES[:1], moments()), *tell_history(NODES[4:6], moments(), dialects="dcgm")]
    with running_victoria(tmp_path, samples) as engine:
        plain = read(engine, use_export=False)
        import_samples(engine.url, evaluate_rules(engine, AT))
        with faulty(engine.url) as proxy, closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source:
            recorded = source.read(AT)
            assert source.describe()["recording_rules"]
        assert_alike(plain, recorded)
    windows = [asked for asked in proxy.asked if "_over_time(" in asked and "up[" not in asked]
    assert windows == []


def evaluate_rules(engine: RunningEngine, at: float) -> Iterator[Sample]:
    """What a ruler would write."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        form = urllib.parse.urlencode({"query": rule["expr"], "time": at, "nocache": 1})
        with urllib.request.urlopen(f"{engine.url}/api/v1/query?{form}", timeout=20) as answer:
            for row in json.load(answer)["data"]["result"]:
                labels = {name: value for name, value in row["metric"].items() if name != "__name__"}
                yield rule["record"], render_labels(labels.items()), float(row["value"][1]), at - 1


def test_the_shipped_rules_are_those_of_the_plan_and_promtool_has_nothing_to_say(component: Callable[[str], str]):
    assert RULES.read_text() == write_rules()
    checked = subprocess.run(
        [component("promtool"), "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
