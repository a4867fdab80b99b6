"""What idle GPUs have cost in the last week, from the analyzer's books; unknown where it keeps none or has no price."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.json_access import Row, each, inner, number, text
from gpusteward.core.errors import SourceError

PATH = "/api/v1/reports"
MICROS = 1_000_000


class Cost(NamedTuple):
    """An amount of money."""

    amount: float
    currency: str


def read_idle_costs(client: Client) -> Mapping[WorkloadName, Cost]:
    """By owner. Books that are closed, slow or lost cost only this column."""
    try:
        answer = client.read(PATH, [("by", "owner"), ("since", "7d"), ("rows", "10000"), ("top", "0")])
    except SourceError:
        return {}
    report = answer if isinstance(answer, dict) else {}
    return dict(_costs(report))


def _costs(report: Row) -> Iterator[tuple[WorkloadName, Cost]]:
    for group in each(report, "groups"):
        micros = number(inner(group, "amounts"), "idle_cost_micros")
        if micros is not None:
            yield name_of(group), Cost(micros / MICROS, text(report, "currency"))
