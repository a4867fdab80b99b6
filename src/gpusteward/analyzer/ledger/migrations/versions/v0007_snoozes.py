"""Snoozes of workloads."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "snoozes",
        sa.Column("id", Number, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False, server_default=""),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("owner_kind", sa.Text, nullable=False),
        sa.Column("owner_name", sa.Text, nullable=False),
        sa.Column("until_ms", Number, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("created_ms", Number, nullable=False),
        sa.Column("ended_ms", Number),
        sa.Column("ended_by", sa.Text),
    )
    owner = ["cluster", "namespace", "owner_kind", "owner_name", "created_ms"]
    op.create_index("snoozes_by_owner", "snoozes", owner)
    op.create_index("snoozes_by_time", "snoozes", ["until_ms"])
