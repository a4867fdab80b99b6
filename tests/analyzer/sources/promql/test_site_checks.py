"""What is wrong with a whole site: exporters down, nobody named as a holder, names that two machines share, labels of
the exporter that look like those of a holder."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.messages import unknown_reasons
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_times, steady

pytestmark = pytest.mark.slow

TIMES = scrape_times(1500)
EARLIER = [at for at in TIMES if at < AT - 900]


def gpu(node: str, index: int = 0, core: float = 0, times: Iterable[float] = TIMES, **labels: str) -> Iterator[Sample]:
    """Labels may be replaced; empty ones do not exist."""
    own = {"UUID": f"GPU-{node}-{index}", "Hostname": node, "gpu": str(index), "modelName": "A100", "job": "dcgm"}
    own |= {"instance": f"{node}:9400", **labels}
    for name, value in (("GPU_UTIL", core), ("FB_USED", 40_000.0)):
        yield from steady(f"DCGM_FI_DEV_{name}", value, list(times), **own)


def up(node: str, value: float = 1, times: Iterable[float] = TIMES, **labels: str) -> Iterator[Sample]:
    yield from steady("up", value, times, **{"job": "dcgm", "instance": f"{node}:9400", **labels})


def held(pod: str) -> dict[str, str]:
    return {"pod": pod, "namespace": "ml", "container": "main"}


def read(folder: Path, *samples: Iterable[Sample]) -> UsageTable:
    with (
        running_prometheus(folder, (each for part in samples for each in part)) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        return source.read(AT)


def find(table: UsageTable) -> list[tuple[str, str]]:
    return [(one.level, one.code) for one in table.findings]


def pods(table: UsageTable) -> list[tuple[str, str]]:
    return sorted((one.container.namespace, one.container.pod) for one in table.allocations)


def test_an_exporter_that_cannot_be_scraped_is_named_also_by_an_analyzer_that_starts_later(tmp_path: Path):
    lost = [*gpu("n2", times=EARLIER, **held("b")), *up("n2", 0)]
    table = read(tmp_path, gpu("n1", core=80, **held("a")), up("n1"), lost)
    assert find(table) == [("warning", "exporters-down")]
    assert "(n2:9400)" in table.findings[0].message.en


def test_an_exporter_that_never_worked_is_named_where_the_job_scrapes_nothing_else(tmp_path: Path):
    table = read(tmp_path, gpu("n1", core=80, **held("a")), up("n1"), up("n2", 0))
    assert find(table) == [("warning", "exporters-down")]


def test_other_targets_of_the_same_job_may_be_down(tmp_path: Path):
    table = read(tmp_path, gpu("n1", core=80, **held("a")), up("n1"), up("n2", 0), up("n3"))
    assert find(table) == []


def test_an_exporter_that_is_up_and_reports_no_gpu_any_more_is_named(tmp_path: Path):
    """Its driver or hostengine fails, and its page is empty."""
    empty = gpu("n2", times=EARLIER, **held("b"))
    table = read(tmp_path, gpu("n1", core=80, **held("a")), up("n1"), empty, up("n2"))
    assert find(table) == [("warning", "exporters-silent")]
    assert "(n2:9400)" in table.findings[0].message.en


def test_never_of_an_agent_whose_gpus_are_free(tmp_path: Path):
    """Its GPUs had holders before, and only its series about GPUs are left."""

    def agent(node: str, times: Iterable[float], **labels: str) -> Iterator[Sample]:
        device = {"node": node, "gpu": "0", "uuid": f"GPU-{node}", "job": "agent", "instance": f"{node}:9500"}
        yield from steady("gpusteward_gpu_info", 1, TIMES, model="A100", **device)
        yield from steady("gpusteward_allocation_info", 1, list(times), **device, **labels)
        yield from steady("gpusteward_use_utilization_ratio", 0, list(times), by="container", **device, **labels)

    targets = [*up("n1", job="agent", instance="n1:9500"), *up("n2", job="agent", instance="n2:9500")]
    table = read(tmp_path, agent("n1", TIMES, **held("a")), agent("n2", EARLIER, **held("b")), targets)
    assert find(table) == []


def test_where_nobody_works_a_site_without_any_holder_is_a_warning_with_its_labels(tmp_path: Path):
    table = read(tmp_path, gpu("n1", my_pod="a"), gpu("n2"), up("n1"), up("n2"))
    assert find(table) == [("warning", "no-holder-named")]
    assert "my_pod" in table.findings[0].message.en


def test_where_nobody_works_exporters_that_hold_everything_are_a_warning(tmp_path: Path):
    exporter = {"pod": "dcgm-x7", "namespace": "gpu-operator"}
    table = read(tmp_path, gpu("n1", **exporter), up("n1", **exporter))
    assert find(table) == [("info", "exporter-is-holder"), ("warning", "no-holder-named")]


def test_never_said_of_a_site_whose_last_holder_has_ended(tmp_path: Path):
    table = read(tmp_path, gpu("n1", times=EARLIER, **held("a")), gpu("n1", times=TIMES[len(EARLIER) :]), up("n1"))
    assert (len(table), find(table)) == (0, [])


def test_two_gpus_of_one_index_are_machines_that_share_a_name(tmp_path: Path):
    """dcgm-exporter without NODE_NAME: every node is `localhost`."""
    one, other = (gpu(node, core=80, Hostname="localhost", **held(node)) for node in ("n1", "n2"))
    table = read(tmp_path, one, other, up("n1"), up("n2"))
    assert find(table) == [("warning", "two-gpus-one-index")]
    assert "localhost" in table.findings[0].message.en
    assert not table.unknown, "whose work it is, is known"


def test_the_same_pod_on_nodes_of_the_same_name_is_unknown(tmp_path: Path):
    """Two clusters with the same names, and no label tells them apart."""
    table = read(tmp_path, gpu("n1", core=80, **held("a")), gpu("n1", UUID="GPU-west", **held("a")), up("n1"))
    assert set(table.unknown.values()) == {unknown_reasons.POD_ON_TWO_NODES}
    assert len(table.unknown) == len(table) == 2


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"UUID": "", "gpu": "", "device": "nvidia0"}, "(Hostname, device)"),
        ({"UUID": "", "gpu": ""}, "no label tells the GPUs of a node apart"),
    ],
)
def test_without_uuid_and_index_it_is_said_what_identifies_a_gpu(tmp_path: Path, labels: dict[str, str], text: str):
    table = read(tmp_path, gpu("n1", core=80, **{**held("a"), **labels}), up("n1"))
    assert find(table) == [("warning", "source-incomplete")]
    assert text in table.findings[0].message.en


def test_nodes_whose_series_lack_the_uuid_are_named(tmp_path: Path):
    table = read(
        tmp_path, gpu("n1", core=80, **held("a")), gpu("n2", core=80, UUID="", **held("b")), up("n1"), up("n2")
    )
    assert find(table) == [("warning", "source-incomplete")]
    assert "no UUID (n2)" in table.findings[0].message.en


NOWHERE = {"Hostname": "", "instance": ""}


def test_gpus_whose_series_do_not_name_the_node_are_said_with_the_label_to_keep(tmp_path: Path):
    table = read(tmp_path, gpu("n1", core=80, **NOWHERE, **held("a")), gpu("n2", **NOWHERE), up("n1"), up("n2"))
    assert find(table) == [("warning", "source-incomplete")]
    assert "nodes (the series of 2 GPUs do not name the node" in table.findings[0].message.en
    assert "Hostname" in table.findings[0].message.en


def test_those_of_one_machine_too(tmp_path: Path):
    parts = gpu("n1", core=80, **held("a")), gpu("n2", core=80, **NOWHERE, **held("b"))
    table = read(tmp_path, *parts, up("n1"), up("n2"))
    assert find(table) == [("warning", "source-incomplete")]
    assert "the series of 1 GPU do not name the node" in table.findings[0].message.en


def test_never_where_the_address_of_the_exporter_stands_for_the_node(tmp_path: Path):
    table = read(tmp_path, gpu("n1", core=80, Hostname="", **held("a")), up("n1"))
    assert find(table) == []


def test_holders_of_a_source_without_free_gpus_too(tmp_path: Path):
    own = {"device_uuid": "GPU-1", "vdevice_index": "0", "podname": "a", "podnamespace": "ml", "job": "hami"}
    values = (("container_device_utilization_ratio", 80.0), ("vgpu_memory_used_bytes", 1e9))
    parts = [steady(f"hami_{name}", value, TIMES, **own) for name, value in values]
    table = read(tmp_path, *parts, up("n1", job="hami"))
    assert len(table) == 1
    assert "the series of 1 GPU do not name the node" in table.findings[0].message.en


@pytest.mark.parametrize(
    ("target", "holder"),
    [
        ({"pod_name": "dcgm-x7"}, held("a")),
        ({"pod_name": "dcgm-x7", "pod_namespace": "gpu-operator"}, held("a")),
        (
            {"pod_name": "dcgm-x7", "namespace": "gpu-operator"},
            {"pod": "a", "exported_namespace": "ml", "container": "main"},
        ),
    ],
)
def test_a_label_of_the_target_that_looks_like_a_holder_is_none(
    tmp_path: Path, target: dict[str, str], holder: dict[str, str]
):
    table = read(tmp_path, gpu("n1", core=80, **{**target, **holder}), gpu("n1", 1, **target), up("n1", **target))
    assert pods(table) == [("ml", "a")]
    assert find(table) in ([], [("info", "exporter-is-holder")]), "of the free GPU"


def test_impossible_samples_of_a_free_gpu_are_no_work(tmp_path: Path):
    """Drivers are known to report a single 808334905."""
    spike = ("DCGM_FI_DEV_GPU_UTIL", 808_334_905.0, [AT - 200])
    labels = {"UUID": "GPU-n1-1", "Hostname": "n1", "gpu": "1", "modelName": "A100", "job": "dcgm"}
    samples = [each for each in gpu("n1", 1) if each[3] != AT - 200]
    table = read(
        tmp_path, gpu("n1", core=80, **held("a")), samples, steady(*spike, **labels, instance="n1:9400"), up("n1")
    )
    assert find(table) == []
