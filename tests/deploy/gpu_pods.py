"""Pages of an agent for the pods of a real control plane: kwok plays the kubelet, this plays the GPUs.

Every pod that requests a GPU gets one, as a device plugin would assign it; the agent's dialects render the pages.
"""

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import Share
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.applications import Application, ApplicationPod, Program
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.devices import PlacementRequest
from gpusteward.simulate.load_curves import DAY, Lifetimes
from gpusteward.simulate.models import MODELS
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import Kind

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
GPUS = 8
SHARED_GPU = GPUS - 1  # of all pods that request a shared one


@dataclass
class ChangingLoad:
    """A load curve whose utilization is set while time passes."""

    _starts: list[float] = field(default_factory=lambda: [0.0])
    _levels: list[float] = field(default_factory=lambda: [0.0])
    _done: list[float] = field(default_factory=lambda: [0.0])  # work until each start

    def set(self, level: float, at: float) -> None:
        if level != self._levels[-1]:
            self._done.append(self(at))
            self._starts.append(at)
            self._levels.append(level)

    def __call__(self, at: float) -> float:
        last = max(bisect_right(self._starts, at) - 1, 0)
        return self._done[last] + self._levels[last] * (at - self._starts[last])


@dataclass(frozen=True, slots=True)
class ClusterPod(Application):
    """An application that consists of one pod of the control plane."""

    container: Container | None = None

    def pod(self, generation: int, ordinal: int) -> ApplicationPod:
        assert self.container is not None
        return ApplicationPod(self.container, self.random.hexadecimal(64, "container"))


class GpuNode:
    """A node of the control plane with simulated GPUs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fleet = SimulatedFleet([self._build([])], ready_timeout_seconds=5)
        self.fleet.set_ready()
        self._gpus: dict[str, int] = {}  # by pod uid
        self._loads: dict[str, ChangingLoad] = {}

    def update(self, pods: Iterable[Mapping[str, Any]], utilization: Mapping[str, float]) -> None:
        """These pods run now; `utilization` of a GPU by the pods of each workload."""
        now = time.time()
        running = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        self._assign_gpus(running)
        requests: list[list[PlacementRequest]] = [[] for _ in range(GPUS)]
        for pod in running:
            uid = pod["metadata"]["uid"]
            load = self._loads.setdefault(uid, ChangingLoad())
            load.set(utilization.get(_workload_of(pod).name, 0.0), now)
            requests[self._gpus[uid]].append(_request(pod, load))
        self.fleet.replace_node(self._build(requests))

    def _assign_gpus(self, pods: Sequence[Mapping[str, Any]]) -> None:
        running = {pod["metadata"]["uid"]: pod for pod in pods}
        self._gpus = {uid: gpu for uid, gpu in self._gpus.items() if uid in running}
        for uid, pod in running.items():
            if uid not in self._gpus:
                free = set(range(SHARED_GPU)) - set(self._gpus.values())
                self._gpus[uid] = SHARED_GPU if _is_shared(pod) else min(free)

    def _build(self, requests: Sequence[Sequence[PlacementRequest]]) -> SimulatedNode:
        plans = [GpuPlan(tuple(each)) for each in requests] or [GpuPlan()] * GPUS
        return SimulatedNode(self.name, plans, model=MODELS["h100"], seed=1)


def _request(pod: Mapping[str, Any], load: ChangingLoad) -> PlacementRequest:
    about, workload = pod["metadata"], _workload_of(pod)
    container = Container(about["namespace"], about["name"], about["uid"], "main", workload)
    application = ClusterPod(
        Kind.INFERENCE,
        Program(workload.kind, workload.name, "main", "python3"),
        about["namespace"],
        "tests",
        SeededRandom(0).child(about["uid"]),
        Lifetimes(4000 * DAY, 0.0, 4000 * DAY),
        load,
        container=container,
    )
    is_shared = _is_shared(pod)
    return PlacementRequest(
        application, 0, Share.TIME_SLICED if is_shared else Share.EXCLUSIVE, 0.5 if is_shared else 1.0
    )


def _workload_of(pod: Mapping[str, Any]) -> Workload:
    """Of a Deployment the tests name by the label `app`; another pod is its own workload."""
    about = pod["metadata"]
    is_deployed = "ownerReferences" in about
    kind, name = ("Deployment", about["labels"]["app"]) if is_deployed else ("Pod", about["name"])
    return Workload(kind, about["namespace"], name)


def _is_running(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _requested_gpus(pod: Mapping[str, Any]) -> set[str]:
    return {*pod["spec"]["containers"][0].get("resources", {}).get("limits", ())} & {GPU, SHARED}


def _is_shared(pod: Mapping[str, Any]) -> bool:
    return SHARED in _requested_gpus(pod)
