"""Pages of real dcgm-exporters through the embedded source: number of GPUs and values."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from gpusteward.analyzer.sources.scrape import page_parser
from gpusteward.analyzer.sources.scrape.page_parser import FAMILIES
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.sources.scrape.test_page_parser import AT, parse_errors, read, scraped
from tests.analyzer.tables import of_pod

COLLECTION = Path(__file__).parents[5] / "shared" / "data" / "dcgm-exporter-pages"
"""The whole collection is outside of the repository; a clone has some lines of one page."""
EXCERPT = Path(__file__).parents[2] / "data" / "t4-with-pod-excerpt.prom"

Value = tuple[str, str, str]  # metric, UUID, GPU instance
ERROR = b"ERROR - FAILED TO CONVERT TO STRING"
CUT_OFF = {page_parser.CUT_OFF: 1}  # the last newline is missing in the collected page

HELD, FREE = "GPU-7a2e92f2-be71-d37e-a744-541600ffc722", "GPU-5f587dd4-6505-0873-c6db-8324dbfe5ba9"
MIG_PARENT = "GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd"
T4 = {
    ("DCGM_FI_DEV_POWER_USAGE", HELD, ""): 28.722,
    ("DCGM_FI_DEV_FB_USED", HELD, ""): 128.0,
    ("DCGM_FI_DEV_FB_FREE", FREE, ""): 14955.0,
    ("DCGM_FI_DEV_GPU_UTIL", FREE, ""): 0.0,
}


class Expected(NamedTuple):
    """What a page contains."""

    gpus: Mapping[tuple[str, str], int]  # by node and model
    values: Mapping[Value, float]  # some of them
    parse_errors: Mapping[str, int]


EXPECTED = {
    EXCERPT: Expected({("nvidia-dcgm-exporter-s228n", "Tesla T4"): 2}, T4, {}),
    COLLECTION / "t4-with-pod-runai.prom": Expected({("nvidia-dcgm-exporter-s228n", "Tesla T4"): 2}, T4, CUT_OFF),
    COLLECTION / "t4-elastic.prom": Expected(
        {("924e17218b6f", "Tesla T4"): 1},
        {
            ("DCGM_FI_DEV_POWER_USAGE", "GPU-2492e3fa-2252-1730-0d1a-8d12ab32cdf0", ""): 12.63,
            ("DCGM_FI_DEV_FB_FREE", "GPU-2492e3fa-2252-1730-0d1a-8d12ab32cdf0", ""): 14923.0,
        },
        {},
    ),
    COLLECTION / "t4-datadog.prom": Expected(
        {("424773df46e0", "Tesla T4"): 1},
        {
            ("DCGM_FI_DEV_POWER_USAGE", "GPU-20c56d28-0da5-6d26-a36a-e7af1ce2586e", ""): 8.969,
            ("DCGM_FI_DEV_FB_TOTAL", "GPU-9ef1b6d0-3643-5dd7-b823-c0ec20dcf2d5", ""): 15109.0,
        },
        {},
    ),
    COLLECTION / "a100-mig-4-workloads-runai.prom": Expected(
        {("nvidia-dcgm-exporter-tl46n", "NVIDIA A100-SXM4-40GB"): 1},
        {
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", MIG_PARENT, "8"): 0.408493,
            ("DCGM_FI_DEV_FB_USED", MIG_PARENT, "8"): 4384.0,
            ("DCGM_FI_DEV_FB_USED", MIG_PARENT, "5"): 13.0,
            ("DCGM_FI_DEV_SM_CLOCK", MIG_PARENT, "7"): 1410.0,
        },
        CUT_OFF,
    ),
}
PAGES = [EXCERPT, *sorted(COLLECTION.glob("*.prom"))]
every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


def list_values(source: ScrapeSource) -> dict[Value, float]:
    """The last value of every series that is kept."""
    window, rows, _ = source.store.read_window(AT + 60, 600)
    columns = zip(window.family.tolist(), window.device.tolist(), window.last.tolist(), strict=True)
    return {(FAMILIES[family].name, *rows.devices.keys[device][:2]): last for family, device, last in columns}


@every_page
def test_a_real_page_gives_its_gpus_and_values(path: Path):
    source = scraped(path.read_bytes())
    expected = EXPECTED[path]
    assert {(key.node, key.model): gpus for key, gpus in read(source).fleet.items()} == expected.gpus
    found = list_values(source)
    assert {key: found.get(key) for key in expected.values} == expected.values
    assert parse_errors(source) == expected.parse_errors


@every_page
def test_a_value_that_dcgm_could_not_write_affects_no_other(path: Path):
    page = path.read_bytes()
    whole = list_values(scraped(page))
    start = page.index(b"\nDCGM_FI_DEV_POWER_USAGE{") + 1
    end = page.index(b"\n", start)
    line = page[start:end]
    source = scraped(page[:start] + line[: line.rindex(b" ") + 1] + ERROR + page[end:])
    lost = {key for key, value in list_values(source).items() if value != whole[key]}
    assert [metric for metric, _, _ in lost] == ["DCGM_FI_DEV_POWER_USAGE"]
    assert list_values(source).keys() == whole.keys()
    assert parse_errors(source) == {page_parser.NOT_A_NUMBER: 1, **EXPECTED[path].parse_errors}


@every_page
def test_only_named_pods_hold_a_gpu(path: Path):
    table = read(scraped(path.read_bytes()))
    if HELD not in path.read_text():
        assert len(table) == 0
        return
    usage = of_pod(table, "runai-reservation-gpu-qa-mig-worker-gpu-1-kvltw")
    assert (usage.allocation.gpu_uuid, usage.allocation.node) == (HELD, "nvidia-dcgm-exporter-s228n")
    assert usage.stats[Measure.MEMORY_USED, Stat.MEAN] == 128 * 2**20
    assert usage.stats[Measure.CORE, Stat.PEAK] == 0.0
