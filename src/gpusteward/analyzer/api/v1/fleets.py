"""How many GPUs exist and how many nobody holds, by node and model: sources count all, and name the held ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.results import Result
from gpusteward.core.usages import AllocationKey

Place = tuple[str, str]  # node, model

MADE = "fleet"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole GPUs of one result."""

    gpus: int | None  # held or not; None: no source says it
    free: Mapping[Place, int]  # only where there are any

    @property
    def free_gpus(self) -> int | None:
        return None if self.gpus is None else sum(self.free.values())


NO_FLEET = Fleet(None, {})


def count_fleet(result: Result) -> Fleet:
    """A GPU with one held MIG instance is held."""
    told, allocations = result.verdicts.usage.fleet, result.verdicts.usage.allocations
    if not told:
        return NO_FLEET
    held = _count_held(allocations, told)
    # A source may count seldom: who holds more than it counted last is there all the same.
    gpus = sum(max(count, held[place]) for place, count in told.items())
    elsewhere = sum(count for place, count in held.items() if place not in told)
    return Fleet(gpus + elsewhere, {place: count - held[place] for place, count in told.items() if count > held[place]})


def _count_held(allocations: Sequence[AllocationKey], told: Mapping[Place, int]) -> Counter[Place]:
    """Holders of the one model of a node are told by the node alone: who read their names may spell the model
    otherwise, or not at all."""
    models = Counter(node for node, _ in told)
    alone = {node: (node, model) for node, model in told if models[node] == 1}
    places = {one.gpu_uuid: (one.node, one.model) for one in allocations}
    return Counter(alone.get(place[0], place) for place in places.values())


def view_fleet(published: PublishedResult) -> Fleet:
    return published.once(MADE, count_fleet)
