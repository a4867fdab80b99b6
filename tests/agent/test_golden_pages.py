"""Complete /metrics pages of the example machines, compared with golden files.

After an intended change: `make golden`, then read the diff.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gpusteward import __version__
from gpusteward.agent.app import build_dialects
from gpusteward.agent.collection import Collection
from gpusteward.agent.host_use import HostUseReader
from gpusteward.agent.hpc_jobs import HpcJobs
from gpusteward.agent.kubernetes.kubelet import KubeletClient
from gpusteward.agent.kubernetes.pod_watch import PodWatch
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.agent.node_source import NodeProviders, NodeSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.processes import ProcessTable
from gpusteward.agent.settings.table import read_settings
from gpusteward.core.exposition import LabelCache
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.machine_examples import MACHINES
from tests.fakes.machines import NODE, Machine
from tests.fakes.nvml_library import FakeNvml
from tests.waiting import wait_until

GOLDEN = Path(__file__).parent / "golden"
START = 1_800_000_000.0


@contextmanager
def collection(
    machine: Machine, folder: Path, *flags: str, interval_seconds: float = 5
) -> Iterator[tuple[Collection, MetricsPage]]:
    """The whole agent but for the worker's clock and the HTTP server."""
    settings = read_settings(["--node-name", NODE, *flags], {})
    clock = iter(range(0, 100_000, 5))
    with machine.start(folder) as running:
        pods = PodWatch(ApiServer(running.api.url), NODE)
        kubelet = KubeletClient(running.kubelet.path)
        jobs = HpcJobs(settings.hpc_job_mapping_dir) if settings.hpc_job_mapping_dir else None
        host_use = HostUseReader(running.cgroup, running.proc)
        providers = NodeProviders(ProcessTable(running.proc), kubelet, pods, jobs=jobs, host_use=host_use)
        source = NodeSource(NODE, Nvml(NODE, clock=lambda: float(next(clock)), event_wait_milliseconds=10), providers)
        pages = MetricsPage(node=NODE, interval_seconds=interval_seconds, clock=lambda: 0.0)
        dialects = build_dialects(settings, None, LabelCache())
        try:
            pods.start()
            wait_until(lambda: pods.has_listed)
            yield Collection(source, dialects, pages, interval_seconds=interval_seconds), pages
        finally:
            source.close()


def render(machine: Machine, folder: Path, *flags: str, openmetrics: bool = False) -> str:
    """The page after two cycles: rates and profiling need a second look."""
    with collection(machine, folder, *flags) as (cycles, pages):
        for number in range(2):
            cycles.run_cycle(now=START + 5 * number, monotonic=0.0)
        page = pages.render(openmetrics=openmetrics, gzip=False).decode()
    kept = [line for line in page.splitlines() if not line.startswith("gpusteward_collector_duration_seconds{")]
    return "\n".join(kept).replace(f'version="{__version__}"', 'version="0"') + "\n"


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_equals_the_golden_file(name: str, fake_nvml: FakeNvml, tmp_path: Path):
    machine = MACHINES[name]()
    fake_nvml.load(machine.scenario)
    page = render(machine, tmp_path)
    golden = GOLDEN / f"{name}.prom"
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN") == "1":
        golden.write_text(page)
    assert page == golden.read_text()


def test_v49_names_and_per_pod_samples_equal_the_golden_file(fake_nvml: FakeNvml, tmp_path: Path):
    machine = MACHINES["time_sliced"]()
    fake_nvml.load(machine.scenario)
    page = render(machine, tmp_path, "--dialects=dcgm", "--dcgm-names=v4.9", "--kubernetes-virtual-gpus")
    golden = GOLDEN / "time_sliced.dcgm-v4.9-per-pod.prom"
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN") == "1":
        golden.write_text(page)
    assert page == golden.read_text()


@pytest.mark.parametrize("name", MACHINES)
def test_the_dcgm_dialect_alone_names_no_process_and_no_user(name: str, fake_nvml: FakeNvml, tmp_path: Path):
    machine = MACHINES[name]()
    fake_nvml.load(machine.scenario)
    page = render(machine, tmp_path, "--dialects=dcgm")
    assert not [label for label in ("pid", "process", "process_name", "user") if f'{label}="' in page]


def test_the_snapshot_has_ids_of_containers_and_error_texts_that_no_page_has(fake_nvml: FakeNvml, tmp_path: Path):
    """The reason why it is for local clients only."""
    ids, reasons = set[str](), set[str]()
    for name in ("exclusive", "lost_gpu"):
        machine = MACHINES[name]()
        fake_nvml.load(machine.scenario)
        with collection(machine, tmp_path / name) as (cycles, pages):
            cycles.run_cycle(now=START, monotonic=0.0)
            snapshot, page = cycles.last_snapshot, pages.render(openmetrics=False, gzip=False).decode()
        assert snapshot is not None
        ids |= {each.container_id for each in snapshot.processes if each.container_id}
        reasons |= {each.reason for each in snapshot.failures}
        assert not [text for text in (*ids, *reasons) if text in page]
    assert ids
    assert reasons


@pytest.mark.parametrize("name", MACHINES)
def test_every_page_is_valid_openmetrics(name: str, fake_nvml: FakeNvml, tmp_path: Path):
    machine = MACHINES[name]()
    fake_nvml.load(machine.scenario)
    page = render(machine, tmp_path, "--dcgm-names=both", openmetrics=True)
    series = [(s.name, *sorted(s.labels.items())) for family in parse_openmetrics(page) for s in family.samples]
    assert len(series) == len(set(series))
