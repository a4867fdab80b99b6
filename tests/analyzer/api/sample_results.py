"""A small cluster with one allocation of each kind, for tests of the API."""

from dataclasses import replace

from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import SIGNATURES
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.core.verdicts import Signature
from tests.analyzer.api.server import make_result
from tests.analyzer.usage_tables import AT, DAY, GIB, resting, signal, table_of, working

H100 = "NVIDIA H100 80GB HBM3"
TRAINER = Workload("Job", "vision", "trainer")
SERVER = Workload("Deployment", "chat", "server")

OPINION = Opinion("suspicious", 0.9123, "显存占用但没有计算", "ask the owner", 4.25, 5.57, "gpt-4", AT)


def hold(
    gpu: str, owner: Workload | None, *, namespace: str, pod: str, instance: str = "", node: str = "n1"
) -> AllocationKey:
    container = Container(namespace, pod, f"uid-{pod}", "main", owner, (), AT - DAY)
    share = "mig" if instance else "exclusive"
    return AllocationKey(gpu, instance, container, node, "0", H100, share)


def small_result(*, settings: Settings | None = None, number: int = 1, at: float = AT) -> Result:
    """Two GPUs of a trainer (one unused), a parked server, a pod without an owner on a MIG instance, an unknown one."""
    total = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)
    whole = total | signal(Measure.SM_CLOCK, 1.5e9)
    rows = (
        working(0.8, 1.0) | whole,
        resting(0.0, processes=0.0, watts=70) | whole,
        resting(16.0) | whole,
        signal(Measure.CORE, 0.25, 0.5, spread=0.1) | signal(Measure.MEMORY_USED, 5 * GIB),
        {},
    )
    allocations = (
        hold("GPU-a", TRAINER, namespace="vision", pod="trainer-0"),
        hold("GPU-b", TRAINER, namespace="vision", pod="trainer-0", node="n2"),
        hold("GPU-c", SERVER, namespace="chat", pod="server-x", node="n2"),
        hold("GPU-d", None, namespace="chat", pod="lonely", instance="7", node="n3"),
        hold("GPU-e", None, namespace="vision", pod="unread", node="n3"),
    )
    table = table_of(*rows, allocations=allocations, coverage=[1, 1, 1, 1, 0], at=at)
    return make_result(table, settings=settings, number=number, opinions={2: OPINION})


def suspicious_result(*, settings: Settings | None = None) -> Result:
    """The same, but the GPU of the trainer that works is kept busy artificially, and the pod without an owner waits for
    its data."""
    result = small_result(settings=settings)
    codes = result.verdicts.signature.copy()
    codes[[0, 3]] = [SIGNATURES.index(each) for each in (Signature.KEEP_ALIVE, Signature.STARVED)]
    verdicts = replace(result.verdicts, signature=codes)
    return replace(result, verdicts=verdicts, workloads=judge_workloads(verdicts, result.settings.rules))
