"""Thousands of scrapes while pods, their claims and their processes come and go: memory must not grow."""

import itertools
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.nodes import PODS, Node, seat_tenant
from bench.progress import say
from bench.readings import read_memory
from bench.results import Endurance, Moment
from bench.scrapes import Scraper
from bench.sides import Side
from gpusteward.agent.kubernetes import podresources_pb2 as messages
from tests.fakes.kubelet import device_claim, response
from tests.fakes.machines import NodePod, write_process
from tests.fakes.nvml_scenarios import crowd

ROUNDS = 40
SCRAPES_A_ROUND = 250
REPLACED, CHANGED = 17, 16  # pods a round: 17 end, 17 begin, 16 change
CHANGES_A_ROUND = 2 * REPLACED + CHANGED
FIRST_PID = 5_000_000  # above what a kernel gives out
SEEN_SECONDS, PAUSE_SECONDS = 20.0, 0.02


@dataclass
class Town:
    """The pods of a node, some of which move out each round for others to move in."""

    node: Node
    tenants: list[NodePod]
    changes: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _seats: Iterator[int] = field(default_factory=lambda: itertools.cycle(range(PODS)))

    def move(self) -> Iterator[None]:
        """One round, a step for each change: kubelet, driver and /proc first, then the API server pod by pod."""
        seats = [next(self._seats) for _ in range(REPLACED)]
        leaving = [self.tenants[seat] for seat in seats]
        for seat in seats:
            self.tenants[seat] = self._new_tenant(seat)
        coming = [self.tenants[seat] for seat in seats]
        self._tell_node(leaving, coming)
        yield from self._tell_pods(leaving, coming)

    @property
    def newest(self) -> str:
        return max((tenant.pod for tenant in self.tenants), key=lambda name: int(name.split("-")[1]))

    def _new_tenant(self, seat: int) -> NodePod:
        number = next(self._numbers)
        world = crowd(self.node.gpus, 0)
        return seat_tenant(world, seat, name=f"job-{number}-7d9f8b6c5d-z9z9z", pids=[FIRST_PID + number])

    def _tell_node(self, leaving: list[NodePod], coming: list[NodePod]) -> None:
        proc = self.node.running.proc
        for tenant in coming:
            cgroup = f"/kubepods/burstable/pod{tenant.uid}/{tenant.container_id}"
            write_process(proc, tenant.pids[0], cgroup=cgroup, argv0="/usr/bin/python3")
        crowd(self.node.gpus, PODS, pids=[tenant.pids[0] for tenant in self.tenants]).write(self.node.scenario)
        self.node.running.kubelet.response = response(*map(_claim, self.tenants))
        for tenant in leaving:
            shutil.rmtree(proc / str(tenant.pids[0]))

    def _tell_pods(self, leaving: list[NodePod], coming: list[NodePod]) -> Iterator[None]:
        api = self.node.running.api
        staying = [tenant for tenant in self.tenants if tenant not in coming][:CHANGED]
        for tenant in staying:
            tenant.annotations["changed"] = str(self.changes)
            api.modify_pod(tenant.as_json())
            self.changes += 1
            yield
        for gone, new in zip(leaving, coming, strict=True):
            api.delete_pod(gone.pod, gone.namespace)
            self.changes += 1
            yield
            api.add_pod(new.as_json())
            self.changes += 1
            yield


def endure(side: Side, town: Town) -> Endurance:
    """Scrape and change, round after round; memory after each."""
    before, moments, scrapes = read_memory(side.pid), [], 0
    with Scraper(side) as scraper:
        for number in range(ROUNDS):
            for _change in town.move():
                scrapes += _scrape(scraper, SCRAPES_A_ROUND // CHANGES_A_ROUND)
            scrapes += _scrape_until(scraper, town.newest)
            moments.append(Moment(scrapes, town.changes, read_memory(side.pid)))
            if number % 10 == 9:
                say(f"  {scrapes} scrapes, {town.changes} pod changes")
    return Endurance(before, moments)


def _scrape(scraper: Scraper, count: int) -> int:
    for number in range(count):
        scraper.scrape(("identity", "gzip")[number % 2])
    return count


def _scrape_until(scraper: Scraper, pod: str) -> int:
    """Until this pod is on the page: what has not been collected cannot have been kept."""
    for scrapes in range(1, round(SEEN_SECONDS / PAUSE_SECONDS)):
        if pod.encode() in scraper.scrape("identity"):
            return scrapes
        time.sleep(PAUSE_SECONDS)
    raise RuntimeError(f"the agent did not tell of the pod {pod} within {SEEN_SECONDS:g} s")


def _claim(tenant: NodePod) -> messages.PodResources:
    return device_claim(tenant.namespace, tenant.pod, tenant.container, *tenant.gpus, resource=tenant.resource)
