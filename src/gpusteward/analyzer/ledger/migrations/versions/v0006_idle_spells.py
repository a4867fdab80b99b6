"""Idle spells of allocations."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "idle_spells",
        sa.Column("allocation_id", Number, nullable=False),
        sa.Column("started_ms", Number, nullable=False),
        sa.Column("idle_until_ms", Number),
        sa.Column("ended_ms", Number),
        sa.Column("ended_by", sa.Text),
        sa.Column("proof", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.Column("gpu_fraction", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("allocation_id", "started_ms"),
        sqlite_with_rowid=False,
    )
    op.create_index("idle_spells_by_end", "idle_spells", ["ended_ms"])
