"""From series of the agent in a real Prometheus, with those of hosts, to a stalled gang."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.host_witnesses import add_host_use
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import SIGNATURES
from gpusteward.core.verdicts import Signature
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.usage_tables import GIB

pytestmark = pytest.mark.slow

RULES = Rules()
CYCLE, HOURS = 300.0, 1.5
TIMES = scrape_times(HOURS * 3600)
GANGS = ("still", "reads", "unmeasured")


def gpu(number: int, pod: str, kind: str, *, core: float, watts: float, copy: float = 0.0) -> Iterator[Sample]:
    node = f"n{number // 8}"
    board = {"node": node, "gpu": str(number % 8), "uuid": f"GPU-{number}", "job": "gpusteward-agent"}
    held = board | {"namespace": "ml", "pod": pod, "container": "main", "pod_uid": f"uid-{pod}"}
    own = held | {"by": "container"}
    info = held | {"workload_kind": kind, "workload": pod, "share": "exclusive"}
    yield from steady("gpusteward_gpu_info", 1, TIMES, **board, model="NVIDIA H100 80GB HBM3")
    yield from steady("gpusteward_allocation_info", 1, TIMES, **info)
    yield from steady("gpusteward_allocation_start_time_seconds", AT - 86_400, TIMES, **held)
    yield from steady("gpusteward_use_utilization_ratio", core, TIMES, **own)
    yield from steady("gpusteward_use_memory_bytes", 60 * GIB, TIMES, **own)
    yield from steady("gpusteward_use_processes", 1, TIMES, **own)
    yield from steady("gpusteward_gpu_utilization_ratio", core, TIMES, **board)
    yield from steady("gpusteward_gpu_memory_copy_ratio", copy, TIMES, **board)
    yield from steady("gpusteward_gpu_memory_total_bytes", 80 * GIB, TIMES, **board)
    yield from steady("gpusteward_gpu_power_watts", watts, TIMES, **board)
    yield from steady("gpusteward_gpu_power_limit_watts", 700, TIMES, **board)
    yield from steady("gpusteward_gpu_sm_clock_hertz", 1.98e9, TIMES, **board)


def counters(pod: str, *, disk: float, network: float) -> Iterator[Sample]:
    """Bytes per second on top of what its start has read."""
    labels = {"node": "n0", "namespace": "ml", "pod": pod, "pod_uid": f"uid-{pod}", "job": "gpusteward-agent"}
    for name, rate in (("disk", disk), ("network", network)):
        for at in TIMES:
            yield from steady(f"gpusteward_pod_{name}_bytes_total", 5e8 + rate * (at - TIMES[0]), [at], **labels)


def site() -> Iterator[Sample]:
    for number in range(24):
        yield from gpu(number, f"model-{number}", "Deployment", core=0.0, watts=115 + number)
    yield from gpu(24, "works", "PyTorchJob", core=0.97, watts=600, copy=0.4)
    for place, gang in enumerate(GANGS):
        for rank in range(4):
            yield from gpu(32 + 8 * place + rank, gang, "PyTorchJob", core=1.0, watts=140)
    yield from counters("still", disk=50, network=900)
    yield from counters("reads", disk=3e7, network=900)
    yield from steady("up", 1, TIMES, job="gpusteward-agent", instance="n0:9400")


def test_a_gang_is_stalled_after_half_an_hour_where_its_host_is_known_to_be_still(tmp_path: Path):
    found: dict[str, list[set[Signature]]] = {gang: [] for gang in GANGS}
    with (
        running_prometheus(tmp_path, site()) as engine,
        closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source,
    ):
        history = VerdictHistory()
        for back in reversed(range(14)):
            at = AT - back * CYCLE
            table = add_host_use(source.read(at), history, source, rules=RULES)
            verdicts, history = judge(table, RULES, history, now=at)
            pods = [one.container.pod for one in table.allocations]
            for gang, signatures in found.items():
                rows = [row for row, pod in enumerate(pods) if pod == gang]
                assert len(rows) == 4
                signatures.append({SIGNATURES[verdicts.signature[row]] for row in rows})
    assert found["reads"] == found["unmeasured"] == [{Signature.STEADY}] * 14
    # The first cycle learns the power of a loaded GPU: it stands still from the window of the second one on.
    assert found["still"] == [{Signature.STEADY}] * 5 + [{Signature.STALLED}] * 9
