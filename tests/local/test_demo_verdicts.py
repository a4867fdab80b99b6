"""The verdicts of the demo: from the pages of its nodes through the embedded source to the judge."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import SIGNATURES, VerdictTable
from gpusteward.core.verdicts import Signature
from gpusteward.local.demo_settings import INTERVAL_SECONDS, WINDOW_MINUTES, make_config
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.workloads import Kind

pytestmark = pytest.mark.slow

NOW = 1_790_000_000.0
WINDOW = WINDOW_MINUTES * 60.0
CYCLES = 8


def judge_demo(folder: Path, *, nodes: int, seed: int) -> list[VerdictTable]:
    """A window that is filled at once and the cycles after it, as `gpusteward demo` does it."""
    rules = Settings.model_validate(make_config(folder, "http://127.0.0.1:1", "en")).rules
    simulated = SimulatedFleet(fleet(nodes, seed, demo_at=NOW), ready_timeout_seconds=1)
    settings = ScrapeSettings(interval=INTERVAL_SECONDS, kubernetes="never")
    history, found = VerdictHistory(), []
    with closing(ScrapeSource(settings, window_seconds=WINDOW)) as source:
        first = NOW - WINDOW - INTERVAL_SECONDS
        for at in np.arange(first, NOW + CYCLES * INTERVAL_SECONDS, INTERVAL_SECONDS).tolist():
            for node in simulated.nodes:
                source.ingest(node.name, simulated.render_metrics(node.name, at), at, node=node.name)
            if at >= NOW:
                verdicts, history = judge(source.read(at), rules, history, now=at)
                found.append(verdicts)
    return found


def find_stalled(verdicts: VerdictTable) -> set[tuple[str, str, str]]:
    """Pod, container and GPU of each row that is called stalled."""
    is_stalled = verdicts.signature == SIGNATURES.index(Signature.STALLED)
    held = (verdicts.usage.allocations[row] for row in np.flatnonzero(is_stalled).tolist())
    return {(each.container.pod, each.container.name, each.gpu_uuid) for each in held}


@pytest.mark.parametrize(("nodes", "seed"), [(40, 7), (12, 3)], ids=["by-default", "small"])
def test_within_minutes_the_spinning_gpus_of_the_stalled_training_are_called_stalled_and_nothing_else(
    tmp_path: Path, nodes: int, seed: int
):
    """Not at once: what a GPU draws that holds memory and rests is learned from the idle ones first."""
    cycles = judge_demo(tmp_path, nodes=nodes, seed=seed)
    truths = {key: truth for node in fleet(nodes, seed, demo_at=NOW) for key, truth in node.truths(NOW).items()}
    spinning = {key[1:] for key, truth in truths.items() if truth.kind is Kind.STALLED and truth.worked(NOW - 60, NOW)}
    assert len(spinning) == 7
    assert find_stalled(cycles[-1]) == spinning
    assert all(find_stalled(each) in (set(), spinning) for each in cycles)
    since = cycles[-1].ineffective_since
    assert np.count_nonzero(since >= NOW - WINDOW) == np.count_nonzero(~np.isnan(since)) == 7
