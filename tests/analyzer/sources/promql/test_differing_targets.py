"""Sites whose targets differ: in the metrics they have, in their labels, and in what they label with the pod. The same
table from every engine and from the embedded source."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import NodeModel, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import Sample, import_samples, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times, steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, faulty
from tests.analyzer.sources.scrape.page_server import fed_source
from tests.analyzer.tables import assert_alike, of_pod

pytestmark = pytest.mark.slow

TIMES = scrape_times()
ALL = {"GPU_UTIL": 50.0, "FB_USED": 30_000.0, "FB_FREE": 10_000.0, "POWER_USAGE": 300.0, "SM_CLOCK": 1400.0}
WITHOUT_MEMORY = {name: value for name, value in ALL.items() if name != "FB_USED"}
WITHOUT_CORE = {name: value for name, value in WITHOUT_MEMORY.items() if name != "GPU_UTIL"}
MODEL = "NVIDIA A100-SXM4-40GB"
GPUS = 8


def gpu(node: str, number: int, signals: dict[str, float], pod: str = "", **more: str) -> Iterator[Sample]:
    """One GPU of a node, as dcgm-exporter reports it."""
    labels = {"UUID": f"GPU-{node}-{number}", "Hostname": node, "gpu": str(number), "modelName": MODEL}
    labels |= {"instance": f"{node}:9400", "job": "dcgm"}
    labels |= {"pod": pod, "namespace": "ml", "container": "main"} if pod else {}
    for name, value in signals.items():
        metric = name if name.startswith("DCGM") else f"DCGM_FI_DEV_{name}"
        yield from steady(metric, value, TIMES, **{key: value for key, value in (labels | more).items() if value})


def node(name: str, signals: dict[str, float], **more: str) -> Iterator[Sample]:
    """Eight GPUs, the first one held by a pod of the same name as the node."""
    for number in range(GPUS):
        yield from gpu(name, number, signals, name if not number else "", **more)
    yield from steady("up", 1, TIMES, instance=f"{name}:9400", job=more.get("job", "dcgm"))


def mig_node(name: str) -> Iterator[Sample]:
    engine = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.25}
    yield from gpu(name, 0, engine, name, GPU_I_ID="1", GPU_I_PROFILE="3g.20gb")
    yield from gpu(name, 0, {"POWER_USAGE": 90.0}, f"{name}-unmeasured", GPU_I_ID="2", GPU_I_PROFILE="3g.20gb")
    for number in range(1, GPUS):
        yield from gpu(name, number, engine)
    yield from steady("up", 1, TIMES, instance=f"{name}:9400", job="dcgm")


def site() -> Iterator[Sample]:
    yield from node("usual", ALL)
    yield from node("no-memory", WITHOUT_MEMORY)
    yield from node("no-core", WITHOUT_CORE)
    yield from node("other-job", WITHOUT_MEMORY, job="another")
    yield from node("renamed", ALL, Hostname="", hostname="renamed")
    yield from node("renamed-no-memory", WITHOUT_MEMORY, Hostname="", hostname="renamed-no-memory")
    yield from mig_node("mig")
    # One exporter sees the devices only, another one the pods.
    yield from node("two", WITHOUT_MEMORY)
    for number in range(GPUS):
        yield from gpu("two", number, {"FB_USED": 30_000.0}, instance="two:9401", job="devices")
    yield from steady("up", 1, TIMES, instance="two:9401", job="devices")
    # dcgm-exporter leaves out a value that the driver does not give.
    for number in range(GPUS):
        yield from gpu("one-blank", number, WITHOUT_MEMORY if not number else ALL, "" if number else "one-blank")
    yield from steady("up", 1, TIMES, instance="one-blank:9400", job="dcgm")
    yield from scrape_history(fleet(2), TIMES, dialects="native", job="agents")


NODES = ("usual", "no-memory", "no-core", "other-job", "renamed", "renamed-no-memory", "mig", "two", "one-blank")
SOURCES = ("prometheus", "victoria", "scrape")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, UsageTable]]:
    samples = tuple(site())
    folder = tmp_path_factory.mktemp
    with ExitStack() as stack:
        prometheus = stack.enter_context(running_prometheus(folder("prometheus"), samples))
        victoria = stack.enter_context(running_victoria(folder("victoria"), samples))
        sources: dict[str, UsageSource] = {
            "prometheus": PrometheusSource(PrometheusSettings(url=prometheus.url)),
            "victoria": PrometheusSource(PrometheusSettings(url=victoria.url)),
            "scrape": fed_source(samples),
        }
        yield {name: stack.enter_context(closing(source)).read(AT) for name, source in sources.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_every_gpu_with_a_pod_on_any_line_is_held_and_has_its_details(tables: dict[str, UsageTable], name: str):
    for pod in NODES:
        allocation = of_pod(tables[name], pod).allocation
        assert (allocation.node, allocation.gpu_index, allocation.model) == (pod, "0", MODEL)


@pytest.mark.parametrize("name", SOURCES)
def test_a_held_gpu_is_never_counted_as_free(tables: dict[str, UsageTable], name: str):
    table = tables[name]
    for pod in NODES:
        held = {one.gpu_uuid for one in table.allocations if (one.node, one.model) == (pod, MODEL)}
        assert (table.fleet[NodeModel(pod, MODEL)], len(held)) == (GPUS, 1)


@pytest.mark.parametrize("name", SOURCES)
def test_a_held_gpu_without_utilization_is_unknown_and_the_others_are_known(tables: dict[str, UsageTable], name: str):
    table = tables[name]
    reasons = {table.allocations[row].container.pod: reason for row, reason in table.unknown.items()}
    mine = {pod: reason for pod, reason in reasons.items() if pod.startswith(NODES)}
    assert mine == {"no-core": unknown_reasons.NO_CORE, "mig-unmeasured": unknown_reasons.UNEXPORTED_MIG}
    for pod in set(NODES) - {"no-core", "mig"}:
        assert of_pod(table, pod).stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.5)
        assert of_pod(table, pod).coverage == 1.0
    assert of_pod(table, "mig").stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.25)


def test_every_source_gives_the_same_table(tables: dict[str, UsageTable]):
    assert_alike(tables["scrape"], tables["prometheus"], rtol=1e-5)
    for name in SOURCES[1:]:
        assert tables[name].fleet == tables["prometheus"].fleet


@contextmanager
def watched(folder: Path, samples: list[Sample]) -> Iterator[tuple[PrometheusSource, FaultyEngine]]:
    """A source, and the proxy in front of its engine that notes the queries."""
    with (
        running_prometheus(folder, samples) as engine,
        faulty(engine.url) as proxy,
        closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source,
    ):
        yield source, proxy


def list_pods(source: PrometheusSource, at: float) -> set[str]:
    return {one.container.pod for one in source.read(at).allocations}


def test_an_allocation_ends_when_its_gpu_reports_without_it_also_without_used_memory(tmp_path: Path):
    later = [AT + 30 * number for number in range(1, 11)]
    with (
        running_victoria(tmp_path, [*node("usual", ALL), *node("no-memory", WITHOUT_MEMORY)]) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        assert list_pods(source, AT) == {"usual", "no-memory"}
        free = [(name, labels, value, at) for name, labels, value, _ in unheld() for at in later]
        import_samples(engine.url, free)
        assert list_pods(source, later[-1] + 5) == {"usual"}


def unheld() -> Iterator[Sample]:
    """One sample of each series: the pod on the node without used memory has ended, the other one still runs."""
    samples = [
        *(one for number in range(GPUS) for one in gpu("no-memory", number, WITHOUT_MEMORY)),
        *gpu("usual", 0, ALL, "usual"),
        *(one for number in range(1, GPUS) for one in gpu("usual", number, ALL)),
    ]
    return (one for one in samples if one[3] == TIMES[-1])


def test_no_query_is_added_where_every_target_has_the_main_metric(tmp_path: Path):
    with watched(tmp_path, [*node("usual", ALL), *node("other", ALL)]) as (source, proxy):
        source.read(AT)
        proxy.queries.clear()
        source.read(AT)
    assert not [query for query in proxy.queries if "unless" in query or "__name__" in query]


def test_one_query_finds_the_holders_of_all_targets_that_lack_the_main_metric(tmp_path: Path):
    with watched(tmp_path, [*node("usual", ALL), *node("no-memory", WITHOUT_MEMORY)]) as (source, proxy):
        source.read(AT)
        proxy.queries.clear()
        source.read(AT)
    assert len([query for query in proxy.queries if "__name__" in query]) == 1


def test_many_holders_without_the_main_metric_are_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpusteward.analyzer.sources.promql.scheme_reader.MAX_SELECTED", 4)
    names = [f"no-memory-{number}" for number in range(12)]
    samples = [sample for name in names for sample in node(name, WITHOUT_MEMORY)]
    with watched(tmp_path, [*samples, *node("usual", ALL), *node("no-core", WITHOUT_CORE)]) as (source, proxy):
        table = source.read(AT)
        assert len([query for query in proxy.queries if "unless on (UUID, namespace" in query]) == 1
    assert {one.node for one in table.allocations} == {*names, "usual", "no-core"}
    assert set(table.fleet.values()) == {GPUS}


def test_never_takes_video_for_exported_where_versions_of_dcgm_name_memory_differently(tmp_path: Path) -> None:
    """Two versions on one site: the holders of each are listed by another metric, and only one exports video."""
    video = {"ENC_UTIL": 0.0, "DEC_UTIL": 0.0}
    later = {name: value for name, value in ALL.items() if name != "FB_USED"} | {"FB_USED_BYTES": 3e10}
    samples = [*node("earlier", ALL | video | {"GPU_UTIL": 0.0}), *node("later", later | {"GPU_UTIL": 0.0})]
    with running_prometheus(tmp_path, samples) as engine:
        settings = PrometheusSettings(url=engine.url)
        with closing(PrometheusSource(settings)) as source, closing(fed_source(samples)) as pages:
            tables = [source.read(AT), pages.read(AT)]
    for table in tables:
        counts = {pod: of_pod(table, pod).stats.get((Measure.VIDEO, Stat.COUNT)) for pod in ("earlier", "later")}
        assert counts == {"earlier": None, "later": 0.0}
