"""The cluster is part of the identity of allocations, workloads and nodes. Existing rows have none."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for name in ("allocations", "verdict_changes", "notices"):
        op.add_column(name, _cluster())
    op.drop_index("verdict_changes_by_owner", "verdict_changes")
    owner = ["cluster", "namespace", "owner_kind", "owner_name", "at_ms"]
    op.create_index("verdict_changes_by_owner", "verdict_changes", owner)
    for name, time in (("fleet_hourly", "hour_ms"), ("fleet_daily", "day_ms")):
        if op.get_bind().dialect.name == "sqlite":
            _copy_fleet(name, time)
        else:
            op.add_column(name, _cluster())
            op.drop_constraint(f"{name}_pkey", name)
            op.create_primary_key(f"{name}_pkey", name, [time, "cluster", "node", "model"])


def _copy_fleet(name: str, time: str) -> None:
    """SQLite cannot change a primary key."""
    op.rename_table(name, f"{name}_old")
    columns: list[sa.Column[Any]] = [
        sa.Column(time, Number, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("gpu_ms", Number, nullable=False),
        sa.Column("known_ms", Number),
        sa.Column("held_ms", Number),
    ]
    key = sa.PrimaryKeyConstraint(time, "cluster", "node", "model")
    table = op.create_table(name, *columns, _cluster(), key, sqlite_with_rowid=False)
    names = [column.name for column in columns]
    old = sa.table(f"{name}_old", *(sa.column(each) for each in names))
    op.execute(sa.insert(table).from_select(names, sa.select(old)))
    op.drop_table(f"{name}_old")


def _cluster() -> "sa.Column[str]":
    return sa.Column("cluster", sa.Text, nullable=False, server_default="")
