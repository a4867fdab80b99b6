"""For how long the number of GPUs was known, what was allocated in that time, and the currency of the costs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Existing rows get NULL: computing the values would read the whole ledger at a start."""
    for name in ("fleet_hourly", "fleet_daily"):
        op.add_column(name, sa.Column("known_ms", Number))
        op.add_column(name, sa.Column("held_ms", Number))
    op.create_table(
        "currencies",
        sa.Column("since_ms", Number, primary_key=True, autoincrement=False),
        sa.Column("currency", sa.Text, nullable=False),
    )
