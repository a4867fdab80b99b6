"""What a person writes for a workload -> the one that is meant, or the nearest that there is."""

from typing import NamedTuple
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_page
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError, SourceError

PATH = "/api/v1/workloads"
NO_NAME = "-"  # stands in a path for an empty part
MOST_NAMED = 5
MOST_COMPARED = 1000


class WorkloadName(NamedTuple):
    """A root owner."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        parts = [quote(part, safe="", errors="surrogatepass") if part else NO_NAME for part in self]
        return "/".join([PATH, *parts])

    def __str__(self) -> str:
        return clean("/".join(self))


def name_of(row: Row) -> WorkloadName:
    """As it is: only what is shown is made fit for a terminal."""
    kind, namespace, name = (row.get(key) for key in ("kind", "namespace", "name"))
    return WorkloadName(*(part if isinstance(part, str) else "" for part in (kind, namespace, name)))


def find_workload(client: Client, written: str) -> WorkloadName:
    """NAME, NAMESPACE/NAME or KIND/NAMESPACE/NAME -> the workload.

    Raises ConfigurationError for what is no name and for one that several have; SourceError for one that nobody has.
    """
    parts = _split(written)
    rows = read_page(client, PATH, [("q", parts[-1]), ("limit", str(MOST_COMPARED)), ("sort", "name")]).rows
    found = [name for name in map(name_of, rows) if _is_meant(name, parts)]
    if not found:
        raise SourceError(f"no workload {written!r} holds a GPU{_suggest(client, written)}")
    if len(found) > 1:
        raise ConfigurationError(f"{written!r} is the name of {len(found)} workloads: {_list(found)}")
    return found[0]


def _split(written: str) -> list[str]:
    parts = written.strip().strip("/").split("/")
    if len(parts) > 3 or not parts[-1]:
        raise ConfigurationError(f"{written!r} is not a workload: write NAMESPACE/NAME or KIND/NAMESPACE/NAME")
    return parts


def _is_meant(name: WorkloadName, parts: list[str]) -> bool:
    """Kinds in any case, as kubectl takes them; names as they are."""
    asked = parts[-2:]
    if list(name[-len(asked) :]) != asked:
        return False
    return len(parts) < 3 or name.kind.lower() == parts[0].lower()


def _list(found: list[WorkloadName]) -> str:
    more = ", ..." if len(found) > MOST_NAMED else ""
    return "write one of " + ", ".join(map(str, found[:MOST_NAMED])) + more


def _suggest(client: Client, written: str) -> str:
    """The nearest name, written with as many parts."""
    names = map(name_of, read_page(client, PATH, [("limit", str(MOST_COMPARED))]).rows)
    parts = written.count("/") + 1
    return suggest(written, ["/".join(name[-parts:]) for name in names])
