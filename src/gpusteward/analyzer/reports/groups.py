"""The rows of a report: the dearest idle time first, and what is left in one row. They add up to the total."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import RowMapping

from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.amounts import NO_SUMS, Sums, make_amounts, read_sums, settle_electricity, subtract
from gpusteward.analyzer.reports.period_totals import KEYS, Sheet
from gpusteward.analyzer.reports.previous_period import Before
from gpusteward.analyzer.reports.report import By, Group, ReportQuery
from gpusteward.analyzer.reports.unallocated import Place

Key = tuple[str, ...]
_PLACES: Mapping[By, int] = {"node": 0, "model": 1}  # which part of a place is the key


def read_groups(
    sheet: Sheet,
    query: ReportQuery,
    *,
    total: Sums,
    places: Mapping[Place, int],
    prices: PriceSettings,
    before: Before | None,
) -> tuple[list[Group], Group | None]:
    """The groups, and the others in one. `places`: unallocated time."""
    unallocated = _by_key(query.by, places)
    keyed = [(tuple(row[name] for name in KEYS[query.by]), read_sums(row)) for row in _read(sheet, query)]
    missing = sorted(unallocated.keys() - {key for key, _ in keyed})  # nobody held a GPU there
    keyed = [*keyed, *((key, NO_SUMS) for key in missing)]
    count = len(keyed) if query.by in _PLACES else sheet.count_groups(query.by)
    shown = keyed[: query.rows]
    groups = [_make(key, sums, unallocated.get(key), prices=prices, before=before) for key, sums in shown]
    rest = subtract(total, [sums for _, sums in shown])
    others = _sum_others(rest, keyed[query.rows :], unallocated, count=count - len(shown), prices=prices)
    return _settle(groups, others, prices)


def _read(sheet: Sheet, query: ReportQuery) -> Sequence[RowMapping]:
    """All nodes and models, which are few; of the others no more than are shown."""
    return sheet.read_groups(query.by, limit=None if query.by in _PLACES else query.rows)


def _by_key(by: By, places: Mapping[Place, int]) -> dict[Key, int]:
    if by not in _PLACES:
        return {}
    found: dict[Key, int] = {}
    for place, gpu_ms in places.items():
        key = (place[_PLACES[by]],)
        found[key] = found.get(key, 0) + gpu_ms
    return found


def _make(key: Key, sums: Sums, unallocated_ms: int | None, *, prices: PriceSettings, before: Before | None) -> Group:
    kind, namespace, name = key if len(key) == 3 else ("", "", key[0])
    amounts = make_amounts(sums, prices=prices, unallocated_ms=unallocated_ms)
    change = before.compare_group(key, sums["idle_ms"]) if before else None
    return Group(name, kind, namespace, amounts, change)


def _sum_others(
    rest: Sums,
    cut: Sequence[tuple[Key, Sums]],
    unallocated: Mapping[Key, int],
    *,
    count: int,
    prices: PriceSettings,
) -> Group | None:
    if count <= 0:
        return None
    known = [unallocated[key] for key, _ in cut if key in unallocated]
    amounts = make_amounts(rest, prices=prices, unallocated_ms=sum(known) if known else None)
    return Group(str(count), "others", "", amounts, None)


def _settle(groups: list[Group], others: Group | None, prices: PriceSettings) -> tuple[list[Group], Group | None]:
    rows = [*groups, others] if others else groups
    settled = settle_electricity([row.amounts for row in rows], prices)
    made = [replace(row, amounts=amounts) for row, amounts in zip(rows, settled, strict=True)]
    return (made[:-1], made[-1]) if others else (made, None)
