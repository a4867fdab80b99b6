"""What the reclaimer uses."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.execution.executor import OnStep
from gpusteward.analyzer.reclaim.execution.journal import Journal
from gpusteward.analyzer.reclaim.permission import ActorLease, Switch
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.core.node.containers import WorkloadKey


def no_chance(_key: WorkloadKey, _age_seconds: float, _now: float) -> Chance:
    """Unknown."""
    return Chance()


def _no_snoozes(_now: float) -> Mapping[WorkloadKey, float]:
    return {}


@dataclass(frozen=True)
class ReclaimComponents:
    """What the reclaimer uses."""

    cluster: Cluster
    journal: Journal
    switch: Switch
    lease: ActorLease
    policies: WatchedPolicies
    sender: Notifier | None = None  # None: nobody can be warned, so nothing is ever done
    source: UsageSource | None = None  # to read usage once more before an action; None: it is not
    read_chance: Callable[[WorkloadKey, float, float], Chance] = no_chance
    read_snoozes: Callable[[float], Mapping[WorkloadKey, float]] = _no_snoozes  # may raise SourceError
    own_namespace: str = ""  # always protected
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    on_step: OnStep = lambda _step, _action: None  # called between any two steps of an action; for tests
