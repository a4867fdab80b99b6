"""Which names of clusters in the series are those of the API server's own cluster.

The API server knows the pods of one cluster, and the same names of pods may exist in each. Where the series have ever
named two, the one that is left is not "the only one": the exporters of the other may be down. So every name counts that
this process or the ledger has seen, and with several of them only `kubernetes.cluster` tells which one is meant.

A cluster may get its name later, or another one: its GPUs are the same then, and UUIDs are unique in the world.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log

log = Log(__name__)

NamedGpu = tuple[str, str]
"""The name of a cluster, and the UUID of one of its GPUs."""
_GENUINE = ("GPU-", "MIG-")
"""Begins of UUIDs of the driver; where series have none, node and index stand for it, which other clusters have too."""


class ClusterNames:
    """Belongs to the thread that runs cycles."""

    def __init__(self, own: str) -> None:
        """`own`: the name of the API server's cluster; empty: not known."""
        self.own = own
        self.read_recorded: Callable[[Collection[str]], Iterable[NamedGpu]] = lambda _: ()
        """What the ledger knows, given the names that are present: `ledger.spells.restore_state.read_clusters`. May
        raise SourceError."""
        self.clusters: list[frozenset[str]] = []  # every cluster that was seen, with all its names
        self._is_restored = False
        self._before: Sequence[AllocationKey] = ()  # the last allocations: those that a new name may belong to

    def find_own(self, table: UsageTable) -> frozenset[str]:
        """The names of the API server's cluster; empty: not known."""
        present = {one.cluster for one in table.allocations}.union(table.clusters)
        recorded = self._restore(present)
        known = frozenset[str]().union(*self.clusters)
        if recorded or not present <= known:
            held = ((one.cluster, one.gpu_uuid) for one in (*self._before, *table.allocations))
            self._add([*((name, "") for name in present), *recorded, *held])
        self._before = table.allocations or self._before
        if self.own:
            # Series without any name are those of the only cluster, until one of them has a name.
            return next((names for names in self.clusters if self.own in names or self.clusters == [{""}]), frozenset())
        return self.clusters[0] if len(self.clusters) == 1 else frozenset()

    def _restore(self, present: Collection[str]) -> list[NamedGpu]:
        """What earlier processes have seen; read once. Without the ledger nothing is reclaimed, so that this process
        alone decides until it can be read."""
        if self._is_restored:
            return []
        try:
            recorded = list(self.read_recorded(present))
        except SourceError as error:
            log.warning("clusters_not_restored", reason=error)
            return []
        self._is_restored = True
        return recorded

    def _add(self, gpus: Iterable[NamedGpu]) -> None:
        """Names with a GPU in common are one cluster."""
        first: dict[str, str] = {}  # by UUID: one of its names
        pairs = {(name, first.setdefault(uuid, name) if uuid.startswith(_GENUINE) else name) for name, uuid in gpus}
        for name, other in sorted(pairs):
            joined = [names for names in self.clusters if name in names or other in names]
            self.clusters = [names for names in self.clusters if names not in joined]
            self.clusters.append(frozenset({name, other}).union(*joined))
