"""Thousands of workloads without an API server: their objects in memory, and results in which some of them are idle."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from sqlalchemy import Engine

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.execution.journal import Journal
from gpusteward.analyzer.reclaim.kinds.objects import Json, KubeObject, split_pointer
from gpusteward.analyzer.reclaim.permission import ActorLease, Switch
from gpusteward.analyzer.reclaim.policies.policy import Policy
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import Container, OwnerEvidence, Workload
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import make_path
from gpusteward.kubernetes.writes import ApiWriter
from tests.analyzer.reclaim.world import FakeSource, FixedPolicies
from tests.analyzer.usage_tables import AT, DAY, resting, working

NAMESPACES = 200
STEP = 300.0
WINDOW = 600.0


class MemoryCluster(Cluster):
    """Deployments, each with a ReplicaSet and a pod that holds a GPU."""

    def __init__(self, count: int) -> None:
        super().__init__(ApiWriter("http://127.0.0.1:1"))
        self.requests = 0
        self._by_path: dict[str, KubeObject] = {}
        self._pods: dict[str, list[KubeObject]] = {}
        for number in range(count):
            self._add(number)

    def _add(self, number: int) -> None:
        deployment = self._keep("apps/v1", "Deployment", number, None, {"replicas": 1})
        owner = self._keep("apps/v1", "ReplicaSet", number, deployment, {"replicas": 1})
        container = {"name": "main", "image": "cuda", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        pod = self._keep("v1", "Pod", number, owner, {"nodeName": "node", "containers": [container]})
        self._pods.setdefault(pod.namespace, []).append(pod)

    def _keep(self, version: str, kind: str, number: int, owner: KubeObject | None, spec: Json) -> KubeObject:
        name, namespace = f"w-{number}", f"team-{number % NAMESPACES}"
        about: Json = {"name": name, "namespace": namespace, "uid": f"{kind}-{number}", "resourceVersion": "1"}
        if owner is not None:
            reference = {"apiVersion": owner.version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            about["ownerReferences"] = [{**reference, "controller": True}]
        status = {"phase": "Running", "startTime": "2020-01-01T00:00:00Z"} if kind == "Pod" else {}
        one = KubeObject(version, kind, {"metadata": about, "spec": spec, "status": status})
        self._by_path[make_path(version, kind, namespace, name)] = one
        return one

    def annotate(self, kind: str, number: int, annotations: Mapping[str, str]) -> None:
        """Of an owner. Who has read it before has it as it was."""
        one = next(each for each in self._by_path.values() if each.uid == f"{kind}-{number}")
        about = {**one.metadata, "annotations": dict(annotations)}
        self._by_path[one.path] = KubeObject(one.version, one.kind, {**one.json, "metadata": about})

    def read_uid(self) -> str:
        return "cluster"

    def keeping_connections(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, path: str) -> KubeObject | None:
        self.requests += 1
        return self._by_path.get(path)

    def list_objects(self, version: str, kind: str, namespace: str, *, query: str = "") -> list[KubeObject]:
        self.requests += 1
        return self._pods.get(namespace, []) if kind == "Pod" and not query else []

    def patch(self, one: KubeObject, fields: Mapping[str, Any], *, dry_run: bool = False) -> KubeObject:
        assert dry_run, "nothing here is ever changed"
        self.requests += 1
        json = copy.deepcopy(one.json)
        for pointer, value in fields.items():
            *above, last = split_pointer(pointer)
            place = json
            for part in above:
                place = place.setdefault(part, {})
            place[last] = value
        return KubeObject(one.version, one.kind, json)


class MemoryFleet:
    """Usage of the workloads of a `MemoryCluster`: the first ones are idle."""

    def __init__(self, settings: Settings, count: int, *, idle: int) -> None:
        self.settings = settings
        self._history, self._number = VerdictHistory(), 0
        self._allocations = [_allocate(number) for number in range(count)]
        rows = [resting(0.0, processes=0.0, watts=60.0)] * idle + [working()] * (count - idle)
        names = {name for row in rows[:1] + rows[-1:] for name in row}
        self._stats = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}

    def read(self, at: float) -> UsageTable:
        return UsageTable(at, WINDOW, self._allocations, self._stats, np.ones(len(self._allocations)))

    def judge(self, at: float) -> Result:
        verdicts, self._history = judge(self.read(at), self.settings.rules, self._history, now=at)
        self._number += 1
        workloads = judge_workloads(verdicts, self.settings.rules)
        return Result(self._number, at, 0.1, self.settings, verdicts, workloads)


def _allocate(number: int) -> AllocationKey:
    namespace = f"team-{number % NAMESPACES}"
    owner = Workload("Deployment", namespace, f"w-{number}", evidence=OwnerEvidence.READ, uid=f"Deployment-{number}")
    container = Container(namespace, f"w-{number}", f"Pod-{number}", "main", owner, (), AT - DAY)
    return AllocationKey(f"GPU-{number}", "", container, "node", "0", "NVIDIA H100 80GB HBM3", "exclusive")


class SourceOfHosts(FakeSource):
    """Nothing is known of any host; usage cannot be read again, so that nothing is acted on."""

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        raise SourceError("no usage")


def make_reclaimer(
    settings: Settings,
    cluster: Cluster,
    engine: Engine,
    *,
    policy: Policy | None = None,
    clock: Callable[[], float],
) -> Reclaimer:
    policies = FixedPolicies() if policy is None else FixedPolicies(policy)
    components = ReclaimComponents(
        cluster=cluster,
        journal=Journal(engine, cluster.read_uid),
        switch=Switch(engine, None, namespace=""),
        lease=ActorLease(cluster, namespace="x", name="x", holder="x"),
        policies=policies,
        source=SourceOfHosts(),
        clock=clock,
    )
    return Reclaimer(settings.reclaim, components)
