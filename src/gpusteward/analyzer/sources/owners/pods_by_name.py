"""Pods whose metrics name them without their uid (dcgm-exporter): their uids, and whether it is the same pod.

A pod that is created again under the same name is another one: its idle time, its warnings and its row of the ledger
are its own. So uids are listed freshly in every cycle, only names and uids, namespace by namespace. A pod that is not
listed any more keeps its last uid as long as metrics name it, and so do all pods while the API server cannot be read:
the row of an ended pod must not change its identity.

Two clusters may have pods of the same name; a pod has one node for its whole life. How metrics name a node depends on
the exporter and the scrape job, so that only these are compared:

- a name: the same, or one is the other without its domain (`gpu-1`, `gpu-1.example.com`); a port is ignored;
- an address: the same as one of the node's. Another address may be that of the exporter's pod, or of a second network,
  and says nothing;
- a name that Kubernetes has generated for a pod (`dcgm-exporter-x7k2p`, without `NODE_NAME`) says nothing.
"""

import re
from collections.abc import Callable, Collection
from ipaddress import ip_address

import msgspec

from gpusteward.analyzer.sources.owners.owner_resolver import Budget, PodName
from gpusteward.kubernetes.api import ApiServer, GoneError, ObjectError, TooLargeError, make_path
from gpusteward.logs import Log

log = Log(__name__)

REQUESTS, SECONDS = 300, 10.0
"""Of one cycle: in a large cluster the namespaces that were listed longest ago come first."""
_GENERATED = re.compile("-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_PORT = re.compile(r"^(?:\[(?P<v6>.+)\]|(?P<host>[^:]+))(?::\d+)?$")
ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class _PodIdentity(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _ListedIdentity(msgspec.Struct):
    metadata: _PodIdentity


class PodUids:
    """Belongs to the thread that runs cycles."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._uids: dict[tuple[str, str], str] = {}  # by namespace and name
        self._listed_at: dict[str, float] = {}  # by namespace
        self._unreadable: set[str] = set()  # namespaces that were logged

    def find(self, namespace: str, pod: str) -> str:
        """Empty: not known."""
        return self._uids.get((namespace, pod), "")

    def refresh(self, pods: Collection[PodName]) -> None:
        """List the pods of these namespaces; all others are forgotten. Raises SourceError if the server fails."""
        wanted = {(pod.namespace, pod.name) for pod in pods}
        namespaces = {namespace for namespace, _ in wanted}
        self._uids = {name: uid for name, uid in self._uids.items() if name in wanted}
        self._listed_at = {name: at for name, at in self._listed_at.items() if name in namespaces}
        budget = Budget(REQUESTS, SECONDS)
        for namespace in sorted(namespaces, key=lambda each: (self._listed_at.get(each, 0.0), each)):
            if budget.is_spent:
                return
            try:
                found = self._list(namespace, budget)
            except (ObjectError, GoneError, TooLargeError) as error:
                self._log_unreadable(namespace, error)
                continue
            self._unreadable.discard(namespace)
            self._listed_at[namespace] = self._clock()
            self._uids |= {name: uid for name, uid in found.items() if name in wanted}

    def _list(self, namespace: str, budget: Budget) -> dict[tuple[str, str], str]:
        path = make_path("v1", "Pod", namespace)
        found: dict[tuple[str, str], str] = {}
        began = self._clock()
        try:
            for page in self._api.read_pages(path, _ListedIdentity, accept=ACCEPT):
                budget.requests -= 1
                found |= {(namespace, one.metadata.name): one.metadata.uid for one in page if one.metadata.uid}
        finally:
            budget.seconds -= self._clock() - began
        return found

    def _log_unreadable(self, namespace: str, error: Exception) -> None:
        if namespace not in self._unreadable:
            self._unreadable.add(namespace)
            log.warning("pods_not_listed", namespace=namespace, reason=error, effect="pods without uid and start")


def is_on_node(reported: str, node: str, addresses: Collection[str]) -> bool | None:
    """Whether `reported` means this node, or one of these addresses; None: that cannot be told."""
    name, node = _without_port(reported).lower().rstrip("."), node.lower()
    if not name or not node:  # a pod without a node has not been scheduled yet
        return None
    if name == node or name in addresses:
        return True
    if is_address(name):
        return None
    if name.startswith(f"{node}.") or (node.startswith(f"{name}.") and not is_address(node)):
        return True
    return None if _GENERATED.search(name) else False


def is_address(reported: str) -> bool:
    """With or without a port."""
    try:
        ip_address(_without_port(reported))
    except ValueError:
        return False
    return True


def _without_port(reported: str) -> str:
    found = _PORT.match(reported)
    return found["v6"] or found["host"] if found else reported
