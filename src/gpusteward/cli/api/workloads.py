"""Names of workloads as people type them -> the workload."""

from typing import NamedTuple
from urllib.parse import quote

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_page
from gpusteward.cli.json_access import Row
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.did_you_mean import make_suggestion
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.messages import Message
from gpusteward.messages import cli as messages

PATH = "/api/v1/workloads"
NO_NAME = "-"  # an empty part of a name in a path
MAX_LISTED = 5
MAX_COMPARED = 1000


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
    """Not yet safe for a terminal."""
    kind, namespace, name = (row.get(key) for key in ("kind", "namespace", "name"))
    return WorkloadName(*(part if isinstance(part, str) else "" for part in (kind, namespace, name)))


def find_workload(client: Client, text: str) -> WorkloadName:
    """NAME, NAMESPACE/NAME or KIND/NAMESPACE/NAME -> the workload.

    Raises ConfigurationError for an invalid or ambiguous name, SourceError for an unknown one.
    """
    parts = _split(text)
    rows = read_page(client, PATH, [("q", parts[-1]), ("limit", str(MAX_COMPARED)), ("sort", "name")]).rows
    found = [name for name in map(name_of, rows) if _matches(name, parts)]
    if not found:
        raise SourceError(messages.UNKNOWN_WORKLOAD, name=text, suggestion=_suggest(client, text) or "")
    if len(found) > 1:
        raise ConfigurationError(messages.AMBIGUOUS_WORKLOAD, name=text, count=len(found), names=_list(found))
    return found[0]


def _split(text: str) -> list[str]:
    parts = text.strip().strip("/").split("/")
    if len(parts) > 3 or not parts[-1]:
        raise ConfigurationError(messages.INVALID_WORKLOAD, name=text)
    return parts


def _matches(name: WorkloadName, parts: list[str]) -> bool:
    """Kinds are case-insensitive, as in kubectl; names are not."""
    wanted = parts[-2:]
    if list(name[-len(wanted) :]) != wanted:
        return False
    return len(parts) < 3 or name.kind.lower() == parts[0].lower()


def _list(found: list[WorkloadName]) -> str:
    return ", ".join(map(str, found[:MAX_LISTED])) + (", ..." if len(found) > MAX_LISTED else "")


def _suggest(client: Client, text: str) -> Message | None:
    """The nearest name with as many parts."""
    names = map(name_of, read_page(client, PATH, [("limit", str(MAX_COMPARED))]).rows)
    parts = text.count("/") + 1
    return make_suggestion(text, ["/".join(name[-parts:]) for name in names])
