"""The verdicts of the demo: from the pages of its nodes through the embedded source to the judge."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.host_witnesses import add_host_use
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.tables import SIGNATURES, VerdictTable
from gpusteward.core.node.gpus import Share
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Signature
from gpusteward.local.demo_settings import INTERVAL_SECONDS, WINDOW_MINUTES, make_config
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.fleets import KEPT_BUSY_RATIO, fleet
from gpusteward.simulate.ground_truth import allocation_key
from gpusteward.simulate.workloads import Kind

pytestmark = pytest.mark.slow

NOW = 1_790_000_000.0
WINDOW = WINDOW_MINUTES * 60.0
CYCLES = 8


def judge_demo(folder: Path, *, nodes: int, seed: int) -> list[VerdictTable]:
    """A window that is filled at once and the cycles after it, as `gpusteward demo` does it."""
    rules = Settings.model_validate(make_config(folder, "http://127.0.0.1:1", "en")).rules
    simulated = SimulatedFleet(fleet(nodes, seed, demo_at=NOW), ready_timeout_seconds=1)
    settings = ScrapeSettings(interval=INTERVAL_SECONDS, selector="")
    history, found = VerdictHistory(), []
    with closing(ScrapeSource(settings, window_seconds=WINDOW)) as source:
        first = NOW - WINDOW - INTERVAL_SECONDS
        for at in np.arange(first, NOW + CYCLES * INTERVAL_SECONDS, INTERVAL_SECONDS).tolist():
            for node in simulated.nodes:
                source.ingest(node.name, simulated.render_metrics(node.name, at), at, node=node.name)
            if at >= NOW:
                usage = add_host_use(source.read(at), history, source, rules=rules)
                verdicts, history = judge(usage, rules, history, now=at)
                found.append(verdicts)
    return found


def find_stalled(verdicts: VerdictTable) -> set[tuple[str, str, str]]:
    """Pod, container and GPU of each row that is called stalled."""
    is_stalled = verdicts.signature == SIGNATURES.index(Signature.STALLED)
    held = (verdicts.usage.allocations[row] for row in np.flatnonzero(is_stalled).tolist())
    return {(each.container.pod, each.container.name, each.gpu_uuid) for each in held}


def test_the_servers_that_nobody_asks_have_their_words_at_once(tmp_path: Path):
    simulated = SimulatedFleet(fleet(40, 7, demo_at=NOW), ready_timeout_seconds=1)
    servers = simulated.find_servers(NOW)
    assert len(servers) == 2
    settings = ScrapeSettings(interval=INTERVAL_SECONDS, kubernetes="never")
    rules = Settings.model_validate(make_config(tmp_path, "http://127.0.0.1:1", "en")).rules
    nodes = {one.node for one in servers.values()}
    with closing(ScrapeSource(settings, window_seconds=WINDOW)) as source:
        for at in np.arange(NOW - WINDOW - INTERVAL_SECONDS, NOW + 1, INTERVAL_SECONDS).tolist():
            for node in nodes:
                source.ingest(node, simulated.render_metrics(node, at), at, node=node)
            for pod, one in servers.items():
                labels = {"namespace": one.container.namespace, "pod": pod}
                source.ingest(pod, one.render_metrics(), at, pod_labels=labels)
        verdicts, _ = judge(join_servers(source.read(NOW)), rules, VerdictHistory(), now=NOW)
    words = {
        one.container.pod: SIGNATURES[code]
        for one, code in zip(verdicts.usage.allocations, verdicts.signature.tolist(), strict=True)
    }
    assert {pod.rsplit("-", 3)[0]: words[pod] for pod in servers} == {
        "chat-preview": Signature.NO_REQUESTS,
        "chat-nightly": Signature.ASLEEP,
    }


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
    held = [each for node in fleet(nodes, seed, demo_at=NOW) for each in node.ownerships(NOW)]
    kept_busy = {
        allocation_key(each.allocation)
        for each in held
        if each.kind is Kind.KEEP_ALIVE and each.allocation.share is Share.EXCLUSIVE
    }
    since = cycles[-1].ineffective_since
    known = [cycles[-1].usage.allocations[row] for row in np.flatnonzero(~np.isnan(since)).tolist()]
    assert {(one.container.pod, one.container.name, one.gpu_uuid) for one in known} == spinning | {
        key[1:] for key in kept_busy
    }, "on whole GPUs, and with the host as a witness, it is proven at any level"
    if nodes > 18:
        levels = cycles[-1].usage.stats[Measure.CORE, Stat.MEAN][~np.isnan(since)]
        assert np.isclose(levels, KEPT_BUSY_RATIO, atol=0.02).any(), "as busy as a training"
