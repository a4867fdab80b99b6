"""What the rows of a report are grouped by: columns of `allocations`, a label of their pods, or teams of namespaces."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import JSON, BindParameter, ColumnElement, Text, bindparam, cast, func

from gpusteward.analyzer.ledger.database.schema import allocations
from gpusteward.analyzer.reports.ledger_sums.amounts import Sums, add
from gpusteward.analyzer.reports.report_query import find_grouping, find_label

GroupKey = tuple[str, ...]
"""The values of the columns of a grouping, or the team."""
WORKLOAD = ("owner_kind", "namespace", "owner_name", "cluster")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "cluster": ("cluster",),
    "namespace": ("namespace", "cluster"),
    "workload": WORKLOAD,
    "model": ("model",),
    "node": ("node", "cluster"),
    "user": ("user_name",),
    "team": ("namespace",),
}


@dataclass(frozen=True, slots=True)
class Grouping:
    """`name`: one of `report.GROUPINGS`, or `label`. `columns`: none for groups that are not made of allocations: days.
    `teams`: names of namespaces or patterns -> teams, if rows are grouped by team."""

    name: str
    columns: Sequence[ColumnElement[str]]
    teams: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_unallocated(self) -> bool:
        """Whether unallocated time belongs to a group."""
        return self.name in ("cluster", "node", "model")

    @property
    def needs_all_rows(self) -> bool:
        """Whether all groups must be read, also if only a few are shown. Nodes, models and namespaces are few."""
        return self.has_unallocated or self.name == "team"

    def sum_groups(self, rows: Sequence[tuple[GroupKey, Sums]]) -> list[tuple[GroupKey, Sums]]:
        """The groups of these rows, which are in order of waste; so are the groups."""
        if self.name != "team":
            return list(rows)
        parts: dict[GroupKey, list[Sums]] = {}
        for key, sums in rows:
            parts.setdefault(self.find_key(key), []).append(sums)
        groups = [(key, add(each)) for key, each in parts.items()]
        return sorted(groups, key=lambda group: (_order_of(group[1]), group[0]))

    def sum_idle(self, rows: Sequence[tuple[GroupKey, int]]) -> Mapping[GroupKey, int]:
        idle = Counter[GroupKey]()
        for key, idle_ms in rows:
            idle[self.find_key(key)] += idle_ms
        return idle

    def name_group(self, key: GroupKey) -> dict[str, Any]:
        """Name, kind, namespace and cluster of a row of a report; only a workload has a kind and a namespace."""
        if self.name == "workload":
            kind, namespace, name, cluster = key
            return {"name": name, "kind": kind, "namespace": namespace, "cluster": cluster}
        columns = _COLUMNS.get(self.name, ())
        cluster = key[columns.index("cluster")] if "cluster" in columns else ""
        return {"name": key[0], "kind": "", "namespace": "", "cluster": cluster}

    def find_key(self, key: GroupKey) -> GroupKey:
        """The group of a row."""
        return (find_team(self.teams, key[0]),) if self.name == "team" else key


def make_grouping(by: str, teams: Mapping[str, str], *, dialect: str) -> Grouping:
    """`dialect`: the name of the database."""
    name = find_grouping(by)
    if name == "label":
        return Grouping(name, [_read_label(find_label(by), dialect)])
    return Grouping(name, [allocations.c[column] for column in _COLUMNS.get(name, ())], teams)


def _read_label(key: str, dialect: str) -> ColumnElement[str]:
    """Empty where a pod has no such label. The key is part of the statement: PostgreSQL does not recognize two
    parameters of the same value as the same group."""
    value: ColumnElement[str]
    if dialect == "postgresql":
        value = cast(allocations.c.labels, JSON).op("->>")(_write_literal(key))
    else:
        value = func.json_extract(allocations.c.labels, _write_literal(f'$."{key}"'))
    return func.coalesce(value, _write_literal("")).label("label")


def _write_literal(text: str) -> BindParameter[str]:
    return bindparam(None, text, Text, literal_execute=True)


def find_team(teams: Mapping[str, str], namespace: str) -> str:
    """The team of the name, else of the first pattern that matches; empty if there is none."""
    if namespace in teams:
        return teams[namespace]
    return next((team for pattern, team in teams.items() if fnmatchcase(namespace, pattern)), "")


def _order_of(sums: Sums) -> tuple[int, ...]:
    """The most waste first, as the database orders other groups."""
    return -sums["idle_cost"], -sums["idle_ms"], -sums["allocated_ms"]
