"""Whether a namespace is known: one that holds GPUs now, or one that the ledger has."""

from collections.abc import Sequence

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import StatusError
from gpusteward.cli.api.pagination import MAX_PAGE_ROWS, read_page
from gpusteward.cli.json_access import as_object, get_objects, get_text
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError

PATH = "/api/v1/namespaces"
REPORT_PATH = "/api/v1/reports"
LEDGER_RANGE = "30d"


def check_namespaces(client: Client, names: Sequence[str]) -> list[str]:
    """Those of the namespaces that hold GPUs now. Raises ConfigurationError if one of them is unknown, SourceError."""
    holding = [name for name in dict.fromkeys(names) if read_page(client, PATH, [("namespace", name)]).total]
    for name in names:
        if name not in holding and not _is_in_ledger(client, name):
            rows = read_page(client, PATH, [("limit", str(MAX_PAGE_ROWS))]).rows
            suggestion = suggest(name, [get_text(row, "namespace") for row in rows])
            raise ConfigurationError(f"no namespace {name!r} holds or held a GPU{suggestion}")
    return holding


def _is_in_ledger(client: Client, name: str) -> bool:
    query = [("by", "namespace"), ("namespace", name), ("since", LEDGER_RANGE), ("rows", "1"), ("top", "0")]
    try:
        report = as_object(client.read(REPORT_PATH, query))
    except StatusError:
        return False  # it is disabled, or cannot be read
    return any(get_text(group, "name") == name for group in get_objects(report, "groups"))
