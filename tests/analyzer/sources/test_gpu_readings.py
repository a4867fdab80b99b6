"""The GPUs of a node now: the same from an engine and from the agents' pages, with dcgm-exporter's names too."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.live_readings import (
    DCGM_LABELS,
    NATIVE_LABELS,
    LiveSample,
    ReportedGpu,
    collect_readings,
)
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.simulate.fleets import default_node, fleet
from gpusteward.simulate.nodes import SimulatedNode
from tests.analyzer.engines import running_prometheus
from tests.analyzer.scraped_history import AT, rename_labels, scrape_history, scrape_times
from tests.analyzer.sources.test_pod_processes import scraping

pytestmark = pytest.mark.slow

NODES = [default_node(1, name="showcase"), *fleet(4)]
LAST, TIMES = scrape_times()[-1], scrape_times(seconds=60)
RENAMED = rename_labels(namespace="exported_namespace", pod="exported_pod", container="exported_container")


GPUS_WITH_MIG = {
    one.gpu.mig.parent_uuid for node in NODES for one in node.snapshot(LAST).readings if one.gpu.mig is not None
}


def list_truly(node: SimulatedNode) -> dict[str, float]:
    """The temperature of every whole GPU of a node, by uuid."""
    readings = node.snapshot(LAST).readings
    return {
        one.gpu.uuid: float(one.signals["temperature_celsius"])
        for one in readings
        if one.gpu.mig is None and one.signals.get("temperature_celsius") is not None
    }


def by_uuid(readings: Sequence[ReportedGpu]) -> dict[str, float]:
    return {
        one.uuid: one.values["temperature_celsius"]
        for one in readings
        if not one.instance and "temperature_celsius" in one.values
    }


@pytest.mark.parametrize("dialects", ["dcgm,native", "dcgm"])
def test_the_pages_of_the_exporters_give_every_gpu_of_their_node(dialects: str):
    with scraping(tuple(scrape_history(NODES, [LAST], dialects=dialects))) as (server, source):
        for node in NODES:
            before = len(server.requests)
            found, truth = by_uuid(source.read_gpus(node.name, "", time.time())), list_truly(node)
            assert found.items() <= truth.items()
            # dcgm-exporter reports the MIG instances of a divided GPU, and not the GPU.
            assert truth.keys() - found.keys() <= (GPUS_WITH_MIG if dialects == "dcgm" else set())
            assert {path for path, _ in server.requests[before:]} == {f"/{node.name}:9400"}
        assert source.read_gpus("nowhere", "", time.time()) == []


@pytest.mark.parametrize("change", [str, RENAMED], ids=["plain", "renamed"])
def test_an_engine_gives_the_same(tmp_path: Path, change):
    samples = tuple(scrape_history(NODES, TIMES, change=change))
    with (
        running_prometheus(tmp_path, samples) as running,
        closing(PrometheusSource(PrometheusSettings(url=running.url, time_window_min=1))) as source,
    ):
        for node in NODES:
            found = source.read_gpus(node.name, "", AT)
            assert by_uuid(found) == pytest.approx(list_truly(node))
            assert all("memory_used_bytes" in one.values for one in found if one.uuid not in GPUS_WITH_MIG)
            assert {one.model for one in found} == {each.gpu.model for each in node.snapshot(LAST).readings}


def test_values_of_the_agent_win_and_units_are_base_units():
    device = {"gpu": "0", "UUID": "GPU-a", "modelName": "H100"}
    (reading,) = collect_readings(
        [
            (LiveSample("DCGM_FI_DEV_GPU_TEMP", device, 40.0), DCGM_LABELS),
            (LiveSample("DCGM_FI_DEV_SM_CLOCK", device, 1410.0), DCGM_LABELS),
            (LiveSample("DCGM_FI_DEV_FB_USED", device, 2.0), DCGM_LABELS),
            (LiveSample("DCGM_FI_DEV_POWER_USAGE", device, float("nan")), DCGM_LABELS),
            (LiveSample("gpusteward_gpu_temperature_celsius", {"gpu": "0", "uuid": "GPU-a"}, 41.0), NATIVE_LABELS),
        ]
    )
    assert reading.values == {
        "temperature_celsius": 41.0,
        "sm_clock_hertz": 1.41e9,
        "memory_used_bytes": 2.0 * 2**20,
    }
    assert (reading.uuid, reading.model) == ("GPU-a", "H100")


@pytest.mark.parametrize("code", ["", "x", "-1", "9999999", "٣x"])
def test_an_invalid_code_of_an_error_is_left_out(code: str):
    sample = LiveSample("gpusteward_gpu_xid_errors_total", {"gpu": "0", "uuid": "GPU-a", "xid": code}, 1.0)
    (reading,) = collect_readings([(sample, NATIVE_LABELS)])
    assert reading.xid_errors == {}


def test_errors_are_counted_by_code():
    labels = {"gpu": "0", "uuid": "GPU-a"}
    samples = [LiveSample("gpusteward_gpu_xid_errors_total", {**labels, "xid": "79"}, 2.0)]
    samples.append(LiveSample("gpusteward_gpu_xid_errors_total", {**labels, "xid": "31"}, 0.0))
    (reading,) = collect_readings((each, NATIVE_LABELS) for each in samples)
    assert reading.xid_errors == {79: 2}
