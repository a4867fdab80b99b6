"""Thousands of cycles and scrapes while pods, their claims and processes are replaced: memory must not grow."""

import itertools
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from bench.cycles import EVERY, FAST_CYCLES
from bench.exporters import Exporter, Scraper
from bench.measure import KIB, MB, Memory, print_progress, read_memory
from bench.nodes import PODS, Node, create_pod
from tests.fakes import podresources_pb2 as messages
from tests.fakes.kubelet import device_claim, response
from tests.fakes.machines import NodePod, write_process
from tests.fakes.nvml_scenarios import crowd

ROUNDS = 40
SCRAPES_A_ROUND = 250
REPLACED, CHANGED = 17, 16  # pods a round: 17 end, 17 begin, 16 change
CHANGES_A_ROUND = 2 * REPLACED + CHANGED
FIRST_PID = 5_000_000  # above the kernel's limit
SEEN_SECONDS, PAUSE_SECONDS = 20.0, 0.02


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory after so many cycles, scrapes and changes."""

    cycles: int
    scrapes: int
    pod_changes: int
    memory: Memory


@dataclass(frozen=True, slots=True)
class Endurance:
    """Memory of the agent while pods come and go under scrapes."""

    before: Memory
    moments: list[Moment]
    fast_rss: list[int]  # KiB after each `bench.cycles.EVERY` of 6,000 cycles without a pause, in a process of its own

    @property
    def warm_up(self) -> int:
        """Moments that do not count: the first quarter."""
        return len(self.moments) // 4

    @property
    def growth_mb(self) -> float:
        """From the first five moments after the warm-up to the last five, median to median."""
        after = [moment.memory.rss for moment in self.moments[self.warm_up :]]
        return (median(after[-5:]) - median(after[:5])) * KIB / MB

    @property
    def cycles(self) -> int:
        """After the warm-up."""
        return self.moments[-1].cycles - self.moments[self.warm_up].cycles

    @property
    def bytes_a_cycle(self) -> float:
        """Growth over 5,000 fast cycles after the first 1,000."""
        first, last = 1000 // EVERY - 1, FAST_CYCLES // EVERY - 1
        return (self.fast_rss[last] - self.fast_rss[first]) * KIB / (FAST_CYCLES - 1000)


@dataclass
class PodChurn:
    """The pods of a node; some of them are replaced or changed in each round."""

    node: Node
    pods: list[NodePod]
    changes: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _slots: Iterator[int] = field(default_factory=lambda: itertools.cycle(range(PODS)))

    def change_pods(self) -> Iterator[None]:
        """One round, a step for each change: kubelet, driver and /proc first, then the API server pod by pod."""
        slots = [next(self._slots) for _ in range(REPLACED)]
        removed = [self.pods[slot] for slot in slots]
        for slot in slots:
            self.pods[slot] = self._new_pod(slot)
        added = [self.pods[slot] for slot in slots]
        self._update_node(removed, added)
        yield from self._update_pods(removed, added)

    @property
    def newest(self) -> str:
        return max((pod.pod for pod in self.pods), key=lambda name: int(name.split("-")[1]))

    def _new_pod(self, slot: int) -> NodePod:
        number = next(self._numbers)
        scenario = crowd(self.node.gpus, 0)
        return create_pod(scenario, slot, name=f"job-{number}-7d9f8b6c5d-z9z9z", pids=[FIRST_PID + number])

    def _update_node(self, removed: list[NodePod], added: list[NodePod]) -> None:
        proc = self.node.running.proc
        for pod in added:
            cgroup = f"/kubepods/burstable/pod{pod.uid}/{pod.container_id}"
            write_process(proc, pod.pids[0], cgroup=cgroup, argv0="/usr/bin/python3")
        crowd(self.node.gpus, PODS, pids=[pod.pids[0] for pod in self.pods]).write(self.node.scenario)
        self.node.running.kubelet.response = response(*map(_claim, self.pods))
        for pod in removed:
            shutil.rmtree(proc / str(pod.pids[0]))

    def _update_pods(self, removed: list[NodePod], added: list[NodePod]) -> Iterator[None]:
        api = self.node.running.api
        staying = [pod for pod in self.pods if pod not in added][:CHANGED]
        for pod in staying:
            pod.annotations["changed"] = str(self.changes)
            api.modify_pod(pod.as_json())
            self.changes += 1
            yield
        for removed_pod, added_pod in zip(removed, added, strict=True):
            api.delete_pod(removed_pod.pod, removed_pod.namespace)
            self.changes += 1
            yield
            api.add_pod(added_pod.as_json())
            self.changes += 1
            yield


def endure(agent: Exporter, churn: PodChurn, *, fast_rss: list[int]) -> Endurance:
    """Scrape and change pods in each round; record memory after each."""
    before, moments, scrapes = read_memory(agent.pid), [], 0
    with Scraper(agent) as scraper:
        for number in range(ROUNDS):
            for _change in churn.change_pods():
                scrapes += _scrape(scraper, SCRAPES_A_ROUND // CHANGES_A_ROUND)
            scrapes += _scrape_until(scraper, churn.newest)
            cycles = _read_cycles(scraper.scrape("identity"))
            moments.append(Moment(cycles, scrapes + 1, churn.changes, read_memory(agent.pid)))
            scrapes += 1
            if number % 10 == 9:
                print_progress(f"  {cycles} cycles, {scrapes} scrapes, {churn.changes} pod changes")
    return Endurance(before, moments, fast_rss)


def _scrape(scraper: Scraper, count: int) -> int:
    for number in range(count):
        scraper.scrape(("identity", "gzip")[number % 2])
    return count


def _scrape_until(scraper: Scraper, pod: str) -> int:
    """Scrape until this pod is on the page."""
    for scrapes in range(1, round(SEEN_SECONDS / PAUSE_SECONDS)):
        if pod.encode() in scraper.scrape("identity"):
            return scrapes
        time.sleep(PAUSE_SECONDS)
    raise RuntimeError(f"the agent did not export the pod {pod} within {SEEN_SECONDS:g} s")


def _read_cycles(page: bytes) -> int:
    """How many cycles the agent has finished."""
    line = next(line for line in page.splitlines() if line.startswith(b"gpusteward_cycles_total{"))
    return int(line.rpartition(b" ")[2])


def _claim(pod: NodePod) -> messages.PodResources:
    return device_claim(pod.namespace, pod.pod, pod.container, *pod.gpus, resource=pod.resource)
