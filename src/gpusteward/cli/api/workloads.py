"""Names of workloads as people type or paste them -> the workload: one that holds GPUs, or one that has ended; and
whether a namespace is known."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from gpusteward.cli.api.client import Client, StatusError
from gpusteward.cli.api.pagination import MAX_PAGE_ROWS, read_all, read_page
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError, SourceError

PATH = "/api/v1/workloads"
ENDED_PATH = "/api/v1/workloads/ended"
ALLOCATIONS_PATH = "/api/v1/allocations"
NO_NAME = "-"  # an empty part of a name
MAX_LISTED = 5
MAX_COMPARED = 1000
MAX_PARTS = 4
SHORT_KINDS: Mapping[str, str] = {
    "Deployment": "deploy",
    "StatefulSet": "sts",
    "DaemonSet": "ds",
    "ReplicaSet": "rs",
    "ReplicationController": "rc",
    "CronJob": "cj",
    "Pod": "po",
}
"""Short names of kubectl."""


class WorkloadReference(NamedTuple):
    """A root owner. As text [CLUSTER/]NAMESPACE/KIND/NAME, quoted for a shell where that is needed."""

    kind: str
    namespace: str
    name: str
    cluster: str = ""

    @property
    def path(self) -> str:
        """To be read with `query`."""
        parts = self.kind, self.namespace, self.name
        return "/".join([PATH, *(quote(one, safe="", errors="surrogatepass") if one else NO_NAME for one in parts)])

    @property
    def query(self) -> list[tuple[str, str]]:
        return [("cluster", self.cluster)] if self.cluster else []

    @property
    def filters(self) -> list[tuple[str, str]]:
        """Of a list, so that it has only this one."""
        return [("kind", self.kind), ("namespace", self.namespace), ("name", self.name), *self.query]

    @property
    def full(self) -> str:
        """Not yet safe for a terminal or a shell."""
        parts = [part or NO_NAME for part in (self.namespace, self.kind, self.name)]
        return "/".join([self.cluster, *parts] if self.cluster else parts)

    def __str__(self) -> str:
        return shlex.quote(clean(self.full))

    def matches(self, wanted: str, namespace: str = "") -> bool:
        """Whether people could mean it: its name, after its place, with its kind anywhere between."""
        if namespace and self.namespace != namespace:
            return False
        if wanted in (self.name, self.full):  # also if it contains a slash
            return True
        *before, last = wanted.split("/")
        place, kind = self.namespace or NO_NAME, self.kind.lower()
        places: list[list[str]] = [[], [place], [self.cluster], [self.cluster, place]]
        kinds = (kind, f"{kind}s", SHORT_KINDS.get(self.kind, kind))
        without_kind = [
            [*before[:number], *before[number + 1 :]] for number, part in enumerate(before) if part.lower() in kinds
        ]
        return last == self.name and any(given in places for given in (before, *without_kind))


def name_of(row: Row) -> WorkloadReference:
    """Not yet safe for a terminal."""
    parts = (row.get(key) for key in ("kind", "namespace", "name", "cluster"))
    return WorkloadReference(*(part if isinstance(part, str) else "" for part in parts))


def label_workloads(client: Client, names: Iterable[WorkloadReference]) -> dict[WorkloadReference, str]:
    """How workloads are printed: with their cluster only if there are several."""
    listed = list(names)
    is_named = any(name.cluster for name in listed)
    has_several = is_named and len(client.read("/api/v1/health").texts("clusters")) > 1
    return {name: str(name if has_several else name._replace(cluster="")) for name in listed}


class FoundWorkload(NamedTuple):
    """A workload; `ended` is what the ledger has of one that holds no GPU any more."""

    name: WorkloadReference
    ended: Row | None = None


def find_workload(client: Client, text: str, *, namespace: str = "", cluster: str = "") -> FoundWorkload:
    """The workload of a name: NAME, NAMESPACE/NAME, KIND/NAME, NAMESPACE/KIND/NAME, KIND/NAMESPACE/NAME, each also
    after CLUSTER/, or the name of a pod in its place. Kinds are matched in any case, also by their short names.

    Raises ConfigurationError for an invalid or ambiguous name, SourceError for an unknown one.
    """
    wanted = text.strip().strip("/")
    if not wanted or len(wanted.split("/")) > MAX_PARTS:
        raise ConfigurationError(f"{text!r} is not a workload: write NAMESPACE/NAME or NAMESPACE/KIND/NAME")
    query = [("q", wanted.rpartition("/")[2]), ("sort", "name"), *_in_namespace(namespace)]
    names = map(name_of, read_all(client, PATH, query).rows)
    found = [name for name in names if name.matches(wanted, namespace)] or _find_by_pod(client, wanted, namespace)
    running = [name for name in found if cluster in ("", name.cluster)]
    if running:
        return FoundWorkload(_choose(text, running))
    rows = _read_ended(client, wanted, namespace)
    ended = {name_of(row): row for row in rows if cluster in ("", row.get("cluster"))}
    if ended:
        name = _choose(text, list(ended))
        return FoundWorkload(name, ended[name])
    raise SourceError(f"no workload {text!r} holds or held a GPU{_suggest(client, wanted)}")


def _choose(text: str, found: Sequence[WorkloadReference]) -> WorkloadReference:
    if len(found) > 1:
        names = ", ".join(map(str, found[:MAX_LISTED])) + (", ..." if len(found) > MAX_LISTED else "")
        raise ConfigurationError(f"{len(found)} workloads match {text!r}: write one of {names}")
    return found[0]


def _find_by_pod(client: Client, wanted: str, namespace: str) -> list[WorkloadReference]:
    """The workloads with a pod of this name; NAMESPACE/POD/CONTAINER is a pod too."""
    found = []
    for row in read_all(client, ALLOCATIONS_PATH, [("q", wanted.rpartition("/")[2]), *_in_namespace(namespace)]).rows:
        held_in, pod, container, cluster = (
            str(row.get(key) or "") for key in ("namespace", "pod", "container", "cluster")
        )
        is_meant = WorkloadReference("Pod", held_in, pod, cluster).matches(wanted, namespace)
        if is_meant or wanted == f"{held_in}/{pod}/{container}":
            found.append(name_of(row.object("workload")))
    return list(dict.fromkeys(found))


def _in_namespace(namespace: str) -> list[tuple[str, str]]:
    return [("namespace", namespace)] if namespace else []


def _read_ended(client: Client, wanted: str, namespace: str) -> list[Row]:
    """Workloads of the ledger with this name. Raises SourceError if the ledger cannot be read."""
    for query in _list_ended_queries(wanted.split("/"), namespace):
        try:
            found = client.read(ENDED_PATH, query).objects("items")
        except StatusError as error:
            if client.read("/api/v1/health").get("ledger") is None:
                return []  # it is disabled
            raise SourceError(
                f"no workload {wanted!r} holds a GPU; whether one has ended is unknown: {error}"
            ) from error
        if found:
            return found
    return []


def _list_ended_queries(parts: Sequence[str], namespace: str) -> Iterator[list[tuple[str, str]]]:
    """The possible meanings of a name, the most likely first."""
    *before, name = parts
    cluster = {"cluster": before.pop(0)} if len(before) == MAX_PARTS - 1 else {}
    if not before:
        meanings: Iterable[Mapping[str, str]] = [{"name": name}]
    elif len(before) == 1:
        meanings = [{"namespace": before[0], "name": name}, {"kind": before[0], "name": name}]
    else:
        one, other = before
        meanings = [
            {"namespace": one, "kind": other, "name": name},
            {"namespace": other, "kind": one, "name": name},
            {"namespace": one, "name": other},  # NAMESPACE/POD/CONTAINER
        ]
    for meaning in meanings:
        if not namespace or meaning.get("namespace", namespace) == namespace:
            yield [*({**meaning, **cluster} | ({"namespace": namespace} if namespace else {})).items()]


def _suggest(client: Client, wanted: str) -> str:
    """The nearest name with as many parts, as it is printed elsewhere; the whole one has a cluster or not."""
    names = map(name_of, read_page(client, PATH, [("limit", str(MAX_COMPARED))]).rows)
    forms = ((name.name, f"{name.namespace}/{name.name}", name.full) for name in names)
    return suggest(wanted, [each[min(wanted.count("/"), 2)] for each in forms])


NAMESPACES_PATH = "/api/v1/namespaces"
REPORT_PATH = "/api/v1/reports"
LEDGER_RANGE = "30d"


def check_namespaces(client: Client, names: Sequence[str]) -> list[str]:
    """Those of the namespaces that hold GPUs now. Raises ConfigurationError if one of them is unknown, SourceError."""
    holding = [name for name in dict.fromkeys(names) if read_page(client, NAMESPACES_PATH, [("namespace", name)]).total]
    for name in names:
        if name not in holding and not _is_in_ledger(client, name):
            rows = read_page(client, NAMESPACES_PATH, [("limit", str(MAX_PAGE_ROWS))]).rows
            suggestion = suggest(name, [row.text("namespace") for row in rows])
            raise ConfigurationError(f"no namespace {name!r} holds or held a GPU{suggestion}")
    return holding


def _is_in_ledger(client: Client, name: str) -> bool:
    query = [("by", "namespace"), ("namespace", name), ("since", LEDGER_RANGE), ("rows", "1"), ("top", "0")]
    try:
        report = client.read(REPORT_PATH, query)
    except StatusError:
        return False  # it is disabled, or cannot be read
    return any(group.text("name") == name for group in report.objects("groups"))
