"""A node whose driver reports no memory of the GPU (DGX Spark) is judged all the same: from NVML to the verdict."""

from contextlib import closing
from pathlib import Path

import numpy as np

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from tests.agent.test_golden_pages import START, collection
from tests.analyzer.tables import of_pod
from tests.fakes.machine_examples import unified_memory
from tests.fakes.machines import NODE
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import GIB

STEP, WINDOW = 15.0, 600.0


def test_pods_on_a_gpu_without_memory_info_are_active_or_idle_with_their_memory(fake_nvml: FakeNvml, tmp_path: Path):
    machine = unified_memory()
    fake_nvml.load(machine.scenario)
    end = START + WINDOW
    with (
        collection(machine, tmp_path, interval_seconds=STEP) as (cycles, pages),
        closing(ScrapeSource(ScrapeSettings(selector=""), window_seconds=WINDOW)) as source,
    ):
        for at in np.arange(START, end + STEP, STEP):
            cycles.run_cycle(now=float(at), monotonic=0.0)
            source.ingest(f"{NODE}:9400", pages.render(openmetrics=False, gzip=False), float(at))
        table = source.read(end)
    verdicts, _ = judge(table, Rules(), VerdictHistory(), now=end)
    found = {
        each.container.pod: (ACTIVITIES[activity], bool(np.isfinite(score)))
        for each, activity, score in zip(table.allocations, verdicts.activity, verdicts.score, strict=True)
    }
    assert found == {"llm-0": (Activity.ACTIVE, True), "notebook-0": (Activity.IDLE, True)}
    memory = [of_pod(table, pod).stats[Measure.MEMORY_USED, Stat.MEAN] for pod in ("llm-0", "notebook-0")]
    assert memory == [42 * GIB, 3 * GIB]
