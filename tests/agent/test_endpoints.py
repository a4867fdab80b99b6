"""Health and readiness of the agent, and the schedule of collection cycles."""

import threading

from gpusteward.agent.collection import Collection, CollectionThread, DialectSet
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.endpoints import STUCK_SECONDS, AgentEndpoints
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.core.exposition import LabelCache
from gpusteward.core.node.gpus import Gpu, GpuReading
from gpusteward.core.node.snapshots import Failure, Snapshot

NO_DRIVER = Failure("nvml", "the driver is not loaded")
LOST = Failure("nvml", "GPU 1 is lost: it fell off the bus before the agent saw it")
UPGRADED = Failure("nvml", "the driver library and the kernel module have different versions", needs_restart=True)
ALIVE = GpuReading(Gpu("node-a", 0, "GPU-0", "NVIDIA A100-SXM4-80GB"))


class FixedSource:
    """Returns the same snapshot each time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        return self.snapshot

    def release(self, *, seconds: float) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing to close."""


def collection(source: FixedSource) -> tuple[Collection, MetricsPage]:
    page = MetricsPage(node="node-a", interval_seconds=5, clock=lambda: 0.0)
    return Collection(source, DialectSet([], LabelCache()), page, interval_seconds=5), page


def ready(*, readings: tuple[GpuReading, ...], failures: tuple[Failure, ...]) -> tuple[bool, str]:
    cycles, page = collection(FixedSource(Snapshot("node-a", 1.0, readings, failures=failures)))
    cycles.run_cycle(now=1.0, monotonic=0.0)
    return AgentEndpoints(cycles, page, threading.current_thread()).ready()


def test_the_agent_is_not_ready_while_nvml_fails():
    assert ready(readings=(), failures=(NO_DRIVER,)) == (False, "NVML: the driver is not loaded")


def test_the_agent_is_ready_while_one_of_several_gpus_fails():
    assert ready(readings=(ALIVE,), failures=(LOST,)) == (True, "ok")


def test_a_node_without_gpus_is_ready():
    assert ready(readings=(), failures=()) == (True, "ok")


def health(*snapshots: Snapshot, requires_gpus: bool = False) -> tuple[bool, str]:
    source = FixedSource(snapshots[0])
    cycles, page = collection(source)
    for number, snapshot in enumerate(snapshots):
        source.snapshot = snapshot
        cycles.run_cycle(now=float(number + 1), monotonic=0.0)
    return AgentEndpoints(cycles, page, threading.current_thread(), requires_gpus=requires_gpus).health()


def test_a_driver_upgrade_makes_the_running_agent_unhealthy_because_a_restart_helps():
    worked, upgraded = Snapshot("node-a", 1.0, (ALIVE,)), Snapshot("node-a", 2.0, failures=(UPGRADED,))
    assert health(worked, upgraded) == (False, UPGRADED.reason)
    assert health(worked, upgraded, worked) == (True, "ok")


def test_a_version_mismatch_from_the_start_leaves_the_agent_healthy_because_a_restart_does_not_help():
    assert health(Snapshot("node-a", 1.0, failures=(UPGRADED,))) == (True, "ok")


def test_where_gpus_are_required_a_node_without_them_is_unhealthy():
    empty, found = Snapshot("node-a", 1.0), Snapshot("node-a", 2.0, (ALIVE,))
    assert health(empty) == (True, "ok")
    assert health(empty, requires_gpus=True) == (False, "there is no GPU (--health-require-gpus)")
    assert health(empty, found, requires_gpus=True) == (True, "ok")


def test_requested_cycles_do_not_delay_the_next_regular_one():
    cycles, _page = collection(FixedSource(Snapshot("node-a", 1.0)))
    ran = threading.Semaphore(0)
    run_cycle = cycles.run_cycle

    def count(*, now: float, monotonic: float) -> None:
        run_cycle(now=now, monotonic=monotonic)
        ran.release()

    cycles.run_cycle = count
    thread = CollectionThread(cycles, interval_seconds=0.2, release_seconds=1)
    thread.start()
    try:
        for _request in range(50):
            assert ran.acquire(timeout=5)
            thread.request_cycle()
        for _cycle in range(2):
            assert ran.acquire(timeout=5), "the next regular cycle was delayed"
    finally:
        thread.stop(timeout_seconds=5)


def test_a_cycle_that_hangs_for_minutes_ends_liveness_and_nothing_else():
    cycles, page = collection(FixedSource(Snapshot("node-a", 1.0, (ALIVE,))))
    now = 1000.0
    endpoints = AgentEndpoints(cycles, page, threading.current_thread(), clock=lambda: now)
    assert endpoints.live() == (True, "ok, but the first collection has not finished yet")
    cycles.running_since = 1000.0
    now = 1000.0 + STUCK_SECONDS
    assert endpoints.live()[0]
    now += 1
    assert endpoints.live() == (False, "a collection cycle has been running for 601 s; restart the agent")
    assert endpoints.health()[0]
    cycles.running_since = None
    assert endpoints.live()[0]


def test_lost_gpus_and_a_missing_driver_do_not_end_liveness():
    for readings, failures in (((ALIVE,), (LOST,)), ((), (NO_DRIVER,))):
        cycles, page = collection(FixedSource(Snapshot("node-a", 1.0, readings, failures=failures)))
        cycles.run_cycle(now=1.0, monotonic=0.0)
        assert AgentEndpoints(cycles, page, threading.current_thread()).live()[0]


def test_the_collection_thread_says_since_when_a_cycle_runs():
    running: list[float | None] = []

    class Observed(FixedSource):
        def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
            running.append(cycles.running_since)
            raise RuntimeError("an error ends the cycle too")

    cycles, _page = collection(Observed(Snapshot("node-a", 1.0)))
    thread = CollectionThread(cycles, interval_seconds=60, release_seconds=1)
    thread.start()
    while not running or cycles.running_since is not None:
        pass
    thread.stop(timeout_seconds=10)
    assert running[0] is not None
