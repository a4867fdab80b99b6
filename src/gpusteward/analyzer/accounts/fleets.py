"""GPUs that nobody held: all there are, less what was allocated; unknown where nobody said how many there are."""

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, func, select

from gpusteward.analyzer.accounts.ranges import Books
from gpusteward.analyzer.accounts.reports import Unused
from gpusteward.analyzer.accounts.sums import Rows, within
from gpusteward.analyzer.keep.periods import HOUR_MS, Period, floor_hour
from gpusteward.analyzer.keep.schema import allocations, fleet_daily, fleet_hourly, usage_hourly

Place = tuple[str, str]  # node, model


def choose_fleet(period: Period) -> Rows:
    """The rows of the fleet that go with those of the usage."""
    parts = [(fleet_hourly, fleet_hourly.c.hour_ms, each) for each in period.hourly]
    if period.daily[0] < period.daily[1]:
        parts.append((fleet_daily, fleet_daily.c.day_ms, period.daily))
    return [(table, (moment >= since) & (moment < until)) for table, moment, (since, until) in parts]


def read_unallocated(connection: Connection, period: Period, held: Mapping[Place, int]) -> dict[Place, int]:
    """By node and model; nothing of a place whose size nobody told. `held`: allocated time there."""
    fleet: dict[Place, int] = {}
    for table, chosen in choose_fleet(period):
        keys = (table.c.node, table.c.model)
        statement = select(*keys, func.sum(table.c.gpu_ms)).where(chosen).group_by(*keys)
        for node, model, gpu_ms in connection.execute(statement):
            fleet[node, model] = fleet.get((node, model), 0) + int(gpu_ms)
    return subtract_held(fleet, held)


def subtract_held(fleet: Mapping[Place, int], held: Mapping[Place, int]) -> dict[Place, int]:
    """What is left of each place.

    Holders of the one model of a node are told by the node alone: who read their names may spell the model otherwise,
    or not at all. Where the size became known halfway more may be held than is said to exist: that leaves nothing.
    """
    models = Counter(node for node, _ in fleet)
    held_on: Counter[str] = Counter()
    for (node, _), gpu_ms in held.items():
        held_on[node] += gpu_ms
    return {
        (node, model): max(0, gpu_ms - (held_on[node] if models[node] == 1 else held.get((node, model), 0)))
        for (node, model), gpu_ms in fleet.items()
    }


def read_fleet_steps(connection: Connection, rows: Rows, *, step_ms: int) -> dict[int, int]:
    """The time of all GPUs by step."""
    steps: dict[int, int] = {}
    for table, chosen in rows:
        moment = next(iter(table.c))
        sums = select(moment, func.sum(table.c.gpu_ms)).where(chosen).group_by(moment)
        for at_ms, gpu_ms in connection.execute(sums):
            step = at_ms - at_ms % step_ms
            steps[step] = steps.get(step, 0) + int(gpu_ms)
    return steps


def read_unused(connection: Connection, namespaces: Sequence[str], *, books: Books) -> Unused | None:
    """Of the last full hour in the books; None without one. The first hour of all may have begun before them."""
    if books.booked_ms is None:
        return None
    hour_ms = floor_hour(books.booked_ms) - HOUR_MS
    if hour_ms == books.begin_ms:
        return None
    held, idle = _read_hour(connection, hour_ms, namespaces)
    fleet_of = select(func.sum(fleet_hourly.c.gpu_ms)).where(fleet_hourly.c.hour_ms == hour_ms)
    fleet = None if namespaces else connection.execute(fleet_of).scalar()
    if held is None and fleet is None:
        return None
    return _count(hour_ms, held=int(held or 0), idle=int(idle or 0), fleet=None if fleet is None else int(fleet))


def _read_hour(connection: Connection, hour_ms: int, namespaces: Sequence[str]) -> tuple[int | None, int | None]:
    usage = usage_hourly.c
    joined = usage_hourly.join(allocations, allocations.c.id == usage.allocation_id)
    sums = select(func.sum(usage.allocated_ms), func.sum(usage.idle_ms)).select_from(joined)
    held, idle = connection.execute(within(sums.where(usage.hour_ms == hour_ms), namespaces)).one()
    return held, idle


def _count(hour_ms: int, *, held: int, idle: int, fleet: int | None) -> Unused:
    gpus = round(max(held, fleet or 0) / HOUR_MS)
    idle_gpus = min(gpus, round(idle / HOUR_MS))
    if fleet is None:
        return Unused(hour_ms, gpus, idle_gpus, None)
    return Unused(hour_ms, gpus, idle_gpus, min(gpus - idle_gpus, round(max(0, fleet - held) / HOUR_MS)))
