"""Which workloads are snoozed now: read from the ledger once for all requests, and again after a change."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.ledger.snoozes import Snooze, clean_workload
from gpusteward.core.containers import WorkloadKey

FRESH_SECONDS = 15.0
"""A snooze of another replica is shown after this time at the latest; one of this replica at once."""
_NAME = "snoozes"


@dataclass(frozen=True, slots=True)
class ActiveSnoozes:
    """The snoozes at one time."""

    by_workload: Mapping[WorkloadKey, Snooze]
    version: bytes  # changes with them

    def find(self, workload: WorkloadKey) -> Snooze | None:
        return self.by_workload.get(clean_workload(workload)) if self.by_workload else None

    def find_end(self, workload: WorkloadKey) -> float | None:
        found = self.find(workload)
        return found.until if found else None


NO_SNOOZES = ActiveSnoozes({}, b"")


async def find_snoozes(dependencies: ApiDependencies) -> ActiveSnoozes:
    """Of what the client may see; none while the ledger cannot be read."""
    key, now = (_NAME, dependencies.visible), dependencies.clock()
    read = await dependencies.reads.find(
        key, lambda: dependencies.ledger.read_snoozes(now), fresh_seconds=FRESH_SECONDS
    )
    active = {workload: one for workload, one in read.value.items() if one.until > now} if read else {}
    if not active:
        return NO_SNOOZES
    version = " ".join(
        sorted(f"{workload.path} {workload.cluster} {one.until:.0f}" for workload, one in active.items())
    )
    return ActiveSnoozes(active, version.encode("utf-8", "surrogatepass"))


def forget_snoozes(dependencies: ApiDependencies) -> None:
    """After a change."""
    dependencies.reads.forget(_NAME)
