"""What the idle GPUs of each workload have cost in the last seven days, from the ledger."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.json_access import Row, as_object, get_number, get_object, get_objects, get_text
from gpusteward.core.errors import SourceError

REPORT_PATH = "/api/v1/reports"
QUERY = (("by", "owner"), ("since", "7d"), ("rows", "10000"), ("top", "0"))


@dataclass(frozen=True, slots=True)
class IdleCosts:
    """Millionths of the currency by workload; one that is missing has no price."""

    currency: str = ""
    micros: Mapping[WorkloadName, float] = field(default_factory=dict)


def read_idle_costs(client: Client) -> IdleCosts:
    """Empty without a ledger or prices."""
    try:
        report = as_object(client.read(REPORT_PATH, QUERY))
    except SourceError:
        return IdleCosts()
    return IdleCosts(get_text(report, "currency"), dict(_list_costs(report)))


def _list_costs(report: Row) -> Iterator[tuple[WorkloadName, float]]:
    for group in get_objects(report, "groups"):
        micros = get_number(get_object(group, "amounts"), "idle_cost_micros")
        if micros is not None:
            yield name_of(group), micros
