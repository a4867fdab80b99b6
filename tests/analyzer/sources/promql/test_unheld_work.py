"""A GPU that works and that nobody holds is a contradiction, which is said; the exporter's own pod holds nothing."""

from collections.abc import Iterator
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

TIMES = scrape_times()
EXPORTER = {"pod": "dcgm-exporter-x7", "namespace": "gpu-operator", "container": "exporter"}


def gpu(number: int, core: float, times: list[float] = TIMES, **holder: str) -> Iterator[Sample]:
    labels = {"UUID": f"GPU-{number}", "Hostname": "n1", "gpu": str(number), "modelName": "A100", "job": "dcgm"}
    labels |= {"instance": "n1:9400", **holder}
    yield from steady("DCGM_FI_DEV_GPU_UTIL", core, times, **labels)
    yield from steady("DCGM_FI_DEV_FB_USED", 40_000, times, **labels)


def up(**labels: str) -> Iterator[Sample]:
    yield from steady("up", 1, TIMES, job="dcgm", instance="n1:9400", **labels)


def read(folder: Path, *samples: Iterator[Sample]) -> UsageTable:
    with (
        running_prometheus(folder, (each for part in samples for each in part)) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        return source.read(AT)


def find(table: UsageTable) -> list[tuple[str, str]]:
    return [(one.level, one.code) for one in table.findings]


def held(name: str) -> dict[str, str]:
    return {"pod": name, "namespace": "ml", "container": "main"}


def test_a_gpu_on_two_nodes_counts_once_and_is_named_and_unknown(tmp_path: Path):
    there = steady("DCGM_FI_DEV_FB_USED", 0, TIMES, UUID="GPU-1", Hostname="n2", gpu="1", modelName="A100", job="dcgm")
    table = read(tmp_path, gpu(0, 80, **held("a")), gpu(1, 70, **held("b")), there, up())
    assert find(table) == [("warning", "gpu-on-two-nodes")]
    assert "n1, n2" in table.findings[0].message.en
    assert sum(table.fleet.values()) == 2
    names = [one.container.pod for one in table.allocations]
    assert {names[row]: reason for row, reason in table.unknown.items()} == {"b": unknown_reasons.REPORTED_BY_TWO_NODES}


def test_free_gpus_that_work_are_used_by_nobody_known_and_the_labels_are_shown(tmp_path: Path):
    table = read(tmp_path, gpu(0, 80, my_pod="a"), gpu(1, 60, my_pod="b"), gpu(2, 0), up())
    assert find(table) == [("degraded", "used-by-nobody-known")]
    text = table.findings[0].message.en
    assert "2 GPUs without a holder" in text
    assert "my_pod" in text
    assert sum(table.fleet.values()) == 3


def test_fewer_than_half_of_the_working_gpus_are_a_warning(tmp_path: Path):
    table = read(tmp_path, gpu(0, 80, **held("a")), gpu(1, 60, **held("b")), gpu(2, 70), gpu(3, 0), up())
    assert find(table) == [("warning", "used-by-nobody-known")]
    assert "GPU-2" in table.findings[0].message.en


def test_never_said_of_a_gpu_that_was_held_within_the_window_or_that_rests(tmp_path: Path):
    ended = gpu(1, 90, TIMES[:-2], **held("b"))
    left = gpu(1, 90, TIMES[-2:])
    assert find(read(tmp_path, gpu(0, 80, **held("a")), ended, left, gpu(2, 0), up())) == []


@pytest.mark.parametrize(
    ("pod", "namespace", "container"),
    [
        ("PodName", "NamespaceName", "ContainerName"),
        ("job_pod_name", "job_pod_namespace", "job_container_name"),
        ("PodName", "PodNamespace", "ContainerName"),
    ],
)
def test_more_names_of_the_holder_are_known(tmp_path: Path, pod: str, namespace: str, container: str):
    """The namespace of the scraped target is another label, which does not show whether a GPU is held."""
    target = {"namespace": "monitoring"}
    holder = {pod: "a", namespace: "ml", container: "main"}
    table = read(tmp_path, gpu(0, 80, **holder, **target), gpu(1, 0, **target), up(**target))
    assert [(one.container.namespace, one.container.pod, one.container.name) for one in table.allocations] == [
        ("ml", "a", "main")
    ]
    assert find(table) == []


def test_only_the_pod_is_renamed_and_the_namespace_is_the_targets(tmp_path: Path):
    target = {"namespace": "monitoring"}
    table = read(tmp_path, gpu(0, 80, PodName="a", **target), gpu(1, 70, **target), up(**target))
    assert [one.container.pod for one in table.allocations] == ["a"]
    assert find(table) == [("degraded", "used-by-nobody-known")]


def test_a_namespace_alone_is_no_holder_while_other_nodes_name_pods(tmp_path: Path):
    """One node has lost the label of the pod, or calls it by another name, and kept its namespace."""
    lost = {"namespace": "ml", "container": "main", "my_pod": "b"}
    table = read(tmp_path, gpu(0, 80, **held("a")), gpu(1, 60, **lost), gpu(2, 70, **lost), gpu(3, 0), up())
    assert [one.container.pod for one in table.allocations] == ["a"]
    assert find(table) == [("degraded", "used-by-nobody-known")]
    assert "2 GPUs without a holder" in table.findings[0].message.en
    assert "my_pod" in table.findings[0].message.en


def test_an_exporter_that_became_the_holder_is_none_and_is_named(tmp_path: Path):
    """`exported_pod` was moved to `pod` with the regex `.+`, or the job has honor_labels."""
    table = read(tmp_path, gpu(0, 80, **held("a")), gpu(1, 0, **EXPORTER), up(**EXPORTER))
    assert [one.container.pod for one in table.allocations] == ["a"]
    assert find(table) == [("info", "exporter-is-holder")]
    assert "gpu-operator/dcgm-exporter-x7" in table.findings[0].message.en


def test_every_gpu_of_a_node_held_by_the_exporter_is_degraded_where_they_work(tmp_path: Path):
    """No pod-resources socket: the only pod label is that of the target."""
    table = read(tmp_path, gpu(0, 80, **EXPORTER), gpu(1, 70, **EXPORTER), gpu(2, 0, **EXPORTER), up(**EXPORTER))
    assert len(table) == 0
    assert find(table) == [("info", "exporter-is-holder"), ("degraded", "used-by-nobody-known")]


def test_an_exporter_whose_target_has_no_up_is_known_by_its_usual_name(tmp_path: Path):
    """Federation or remote write of GPU metrics only. A pod of another name may be a holder."""
    exporter = {**EXPORTER, "pod": "nvidia-dcgm-exporter-x7q2z"}
    table = read(tmp_path, gpu(0, 80, **held("a")), gpu(1, 0, **exporter), gpu(2, 0, **held("dcgm-exporter-x")))
    assert [one.container.pod for one in table.allocations] == ["a", "dcgm-exporter-x"]
    assert find(table) == [("info", "exporter-is-holder")]
    assert "gpu-operator/nvidia-dcgm-exporter-x7q2z" in table.findings[0].message.en


def test_a_holder_with_the_name_of_an_exporter_is_one_where_up_shows_that_it_is_not_scraped(tmp_path: Path):
    own = {**held("a"), "pod": "dcgm-exporter-x7q2z"}
    table = read(tmp_path, gpu(0, 0, **own), up(**EXPORTER))
    assert [one.container.pod for one in table.allocations] == ["dcgm-exporter-x7q2z"]
    assert find(table) == []


def test_only_exporters_without_up_hold_gpus_that_rest(tmp_path: Path):
    """No pod-resources socket: the only pods that series name are exporters."""
    exporter = {**EXPORTER, "pod": "nvidia-dcgm-exporter-x7q2z"}
    table = read(tmp_path, gpu(0, 0, **exporter), gpu(1, 0, **exporter))
    assert len(table) == 0
    assert find(table) == [("info", "exporter-is-holder"), ("warning", "no-holder-named")]
