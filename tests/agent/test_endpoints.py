"""What the web is told of the agent's health: the truth, and one lost GPU is not the end of it."""

import threading

from gpusteward.agent.collection import Collection, CollectionThread, DialectSet
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.endpoints import AgentEndpoints
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.core.exposition import LabelCache
from gpusteward.core.gpus import Gpu, GpuReading
from gpusteward.core.snapshots import Failure, Snapshot

NO_DRIVER = Failure("nvml", "the driver is not loaded")
LOST = Failure("nvml", "GPU 1 is lost: it fell off the bus before the agent saw it")
UPGRADED = Failure("nvml", "the driver's library and its kernel module have different versions", needs_restart=True)
ALIVE = GpuReading(Gpu("node-a", 0, "GPU-0", "NVIDIA A100-SXM4-80GB"))


class Source:
    """Gives the same snapshot each time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        return self.snapshot

    def release(self, *, seconds: float) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""


def collection(snapshot: Snapshot) -> tuple[Collection, MetricsPage]:
    pages = MetricsPage(node="node-a", interval_seconds=5, clock=lambda: 0.0)
    return Collection(Source(snapshot), DialectSet([], LabelCache()), pages, interval_seconds=5), pages


def ready(*, readings: tuple[GpuReading, ...], failures: tuple[Failure, ...]) -> tuple[bool, str]:
    cycles, pages = collection(Snapshot("node-a", 1.0, readings, failures=failures))
    cycles.run_cycle(now=1.0, monotonic=0.0)
    return AgentEndpoints(cycles, pages, threading.current_thread()).ready()


def test_it_is_not_ready_while_nvml_does_not_answer():
    assert ready(readings=(), failures=(NO_DRIVER,)) == (False, "NVML: the driver is not loaded")


def test_one_gpu_that_does_not_answer_leaves_it_ready_for_the_others():
    assert ready(readings=(ALIVE,), failures=(LOST,)) == (True, "ok")


def test_a_node_without_gpus_is_ready():
    assert ready(readings=(), failures=()) == (True, "ok")


def health(*snapshots: Snapshot) -> tuple[bool, str]:
    cycles, pages = collection(snapshots[0])
    for number, snapshot in enumerate(snapshots):
        cycles._source = Source(snapshot)
        cycles.run_cycle(now=float(number + 1), monotonic=0.0)
    return AgentEndpoints(cycles, pages, threading.current_thread()).health()


def test_a_driver_upgraded_under_the_agent_makes_it_unhealthy_because_a_restart_mends_that():
    worked, upgraded = Snapshot("node-a", 1.0, (ALIVE,)), Snapshot("node-a", 2.0, failures=(UPGRADED,))
    assert health(worked, upgraded) == (False, UPGRADED.reason)
    assert health(worked, upgraded, worked) == (True, "ok")


def test_versions_that_never_fitted_are_not_mended_by_a_restart():
    assert health(Snapshot("node-a", 1.0, failures=(UPGRADED,))) == (True, "ok")


def test_cycles_asked_for_in_between_do_not_put_off_the_next_one():
    cycles, _pages = collection(Snapshot("node-a", 1.0))
    ran = threading.Semaphore(0)
    run_cycle = cycles.run_cycle

    def count(*, now: float, monotonic: float) -> None:
        run_cycle(now=now, monotonic=monotonic)
        ran.release()

    cycles.run_cycle = count
    worker = CollectionThread(cycles, interval_seconds=0.2, release_seconds=1)
    worker.start()
    try:
        for _asked in range(50):
            assert ran.acquire(timeout=5)
            worker.request_cycle()
        for _own in range(2):
            assert ran.acquire(timeout=5), "the next cycle of its own was put off"
    finally:
        worker.stop(timeout_seconds=5)
