"""Which of several analyzers on this ledger writes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("until_ms", Number, nullable=False),
    )
