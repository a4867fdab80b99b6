"""GPUs that nobody held: all there are, less what was allocated while somebody said how many there are.

Rows of the fleet say how long that was, and what was held meanwhile. Those of version 0001 do not: they are taken to
speak of the whole hour, or day, and what was held in it is added up here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, Table, exists, func, select

from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS, Period, floor_hour
from gpusteward.analyzer.ledger.schema import allocations, fleet_daily, fleet_hourly, usage_daily, usage_hourly
from gpusteward.analyzer.reports.ledger_extent import Books
from gpusteward.analyzer.reports.period_totals import Rows, within
from gpusteward.analyzer.reports.report import Range, Unused

Place = tuple[str, str]  # node, model


def choose_fleet(period: Period) -> Rows:
    """The rows of the fleet that go with those of the usage."""
    parts = [(fleet_hourly, fleet_hourly.c.hour_ms, each) for each in period.hourly]
    if period.daily[0] < period.daily[1]:
        parts.append((fleet_daily, fleet_daily.c.day_ms, period.daily))
    return [(table, (moment >= since) & (moment < until)) for table, moment, (since, until) in parts]


def read_unallocated(connection: Connection, period: Period) -> dict[Place, int]:
    """By node and model; nothing of a place whose size nobody told."""
    fleet, held, untold = Counter[Place](), Counter[Place](), Counter[Place]()
    for table, chosen in choose_fleet(period):
        keys = (table.c.node, table.c.model)
        sums = (func.sum(table.c.gpu_ms), func.sum(table.c.held_ms), func.count(), func.count(table.c.held_ms))
        rows = connection.execute(select(*keys, *sums).where(chosen).group_by(*keys)).all()
        for node, model, gpu_ms, held_ms, *_ in rows:
            fleet[node, model] += int(gpu_ms)
            held[node, model] += int(held_ms or 0)
        if any(told < count for *_, count, told in rows):
            untold.update(_add_up_held(connection, table, chosen))
    return _subtract(fleet, held, untold)


def _add_up_held(connection: Connection, fleet: Table, chosen: ColumnElement[bool]) -> Mapping[Place, int]:
    """What was allocated on a node in the hours, or days, whose rows do not say it themselves."""
    usage = usage_hourly if fleet is fleet_hourly else usage_daily
    moment, at = next(iter(usage.c)), next(iter(fleet.c))
    untold = select(at).where(chosen, fleet.c.held_ms.is_(None)).distinct()  # an index leads to them
    is_there = exists().where(at == moment, fleet.c.node == allocations.c.node, fleet.c.held_ms.is_(None), chosen)
    joined = usage.join(allocations, allocations.c.id == usage.c.allocation_id)
    keys = (allocations.c.node, allocations.c.model)
    sums = (
        select(*keys, func.sum(usage.c.allocated_ms))
        .select_from(joined)
        .where(moment.in_(untold), is_there)
        .group_by(*keys)
    )
    return {(node, model): int(held) for node, model, held in connection.execute(sums)}


def _subtract(fleet: Mapping[Place, int], held: Mapping[Place, int], untold: Mapping[Place, int]) -> dict[Place, int]:
    """What is left of each place. Holders of the one model of a node are told by the node alone, as in the ledger."""
    models = Counter(node for node, _ in fleet)
    untold_on = Counter[str]()
    for (node, _), gpu_ms in untold.items():
        untold_on[node] += gpu_ms
    return {
        (node, model): max(
            0, gpu_ms - held[node, model] - (untold_on[node] if models[node] == 1 else untold.get((node, model), 0))
        )
        for (node, model), gpu_ms in fleet.items()
    }


def read_coverage(connection: Connection, period: Period, covered: Range) -> float | None:
    """For how much of the time in the books somebody said how many GPUs there are; None: nothing is in the books."""
    if covered.first_ms is None or covered.last_ms is None or covered.last_ms <= covered.first_ms:
        return None
    known_ms = 0
    for table, chosen in choose_fleet(period):
        moment, whole_ms = next(iter(table.c)), HOUR_MS if table is fleet_hourly else DAY_MS
        longest = select(func.max(func.coalesce(table.c.known_ms, whole_ms))).where(chosen).group_by(moment)
        known_ms += sum(int(each) for each in connection.scalars(longest))
    return min(1.0, known_ms / (covered.last_ms - covered.first_ms))


def read_fleet_steps(connection: Connection, rows: Rows, *, step_ms: int) -> dict[int, tuple[int, int | None]]:
    """By step: the time of all GPUs, and what was held of it; None where some row does not say."""
    steps: dict[int, tuple[int, int | None]] = {}
    for at_ms, gpu_ms, held_ms in _read_moments(connection, rows):
        step = at_ms - at_ms % step_ms
        fleet, held = steps.get(step, (0, 0))
        steps[step] = fleet + gpu_ms, None if held is None or held_ms is None else held + held_ms
    return steps


def _read_moments(connection: Connection, rows: Rows) -> Iterator[tuple[int, int, int | None]]:
    for table, chosen in rows:
        moment = next(iter(table.c))
        sums = (func.sum(table.c.gpu_ms), func.sum(table.c.held_ms), func.count(), func.count(table.c.held_ms))
        for at_ms, gpu_ms, held_ms, count, told in connection.execute(
            select(moment, *sums).where(chosen).group_by(moment)
        ):
            yield int(at_ms), int(gpu_ms), int(held_ms) if told == count else None


def read_unused(connection: Connection, namespaces: Sequence[str], *, books: Books, until_ms: int) -> Unused | None:
    """Of the last full hour that is asked for and in the books; None without one. The first hour of all may have begun
    before them."""
    if books.booked_ms is None or books.begin_ms is None:
        return None
    hour_ms = floor_hour(min(books.booked_ms, until_ms)) - HOUR_MS
    if hour_ms <= books.begin_ms:
        return None
    held, idle = _read_hour(connection, hour_ms, namespaces)
    fleet = None if namespaces else _read_fleet_hour(connection, hour_ms, held=int(held or 0))
    if held is None and fleet is None:
        return None
    return _count(hour_ms, held=int(held or 0), idle=int(idle or 0), fleet=fleet)


def _read_hour(connection: Connection, hour_ms: int, namespaces: Sequence[str]) -> tuple[int | None, int | None]:
    usage = usage_hourly.c
    joined = usage_hourly.join(allocations, allocations.c.id == usage.allocation_id)
    sums = select(func.sum(usage.allocated_ms), func.sum(usage.idle_ms)).select_from(joined)
    held, idle = connection.execute(within(sums.where(usage.hour_ms == hour_ms), namespaces)).one()
    return held, idle


def _read_fleet_hour(connection: Connection, hour_ms: int, *, held: int) -> tuple[float, float] | None:
    """The time of all GPUs and of those nobody held, as if what was known of a part were true of the whole hour."""
    row = fleet_hourly.c
    asked = select(row.gpu_ms, row.held_ms, row.known_ms).where(row.hour_ms == hour_ms)
    rows = connection.execute(asked).all()
    if not rows:
        return None
    fleet = sum(gpu_ms * HOUR_MS / (known_ms or HOUR_MS) for gpu_ms, _, known_ms in rows)
    if any(held_ms is None for _, held_ms, _ in rows):
        return fleet, fleet - held
    return fleet, sum((gpu_ms - held_ms) * HOUR_MS / (known_ms or HOUR_MS) for gpu_ms, held_ms, known_ms in rows)


def _count(hour_ms: int, *, held: int, idle: int, fleet: tuple[float, float] | None) -> Unused:
    there, free = fleet or (0.0, 0.0)
    gpus = round(max(held, there) / HOUR_MS)
    idle_gpus = min(gpus, round(idle / HOUR_MS))
    if fleet is None:
        return Unused(hour_ms, gpus, idle_gpus, None)
    return Unused(hour_ms, gpus, idle_gpus, min(gpus - idle_gpus, round(max(0.0, free) / HOUR_MS)))
