"""Labels of pods that reports can be grouped by. Existing rows have none."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("allocations", sa.Column("labels", sa.Text, nullable=False, server_default="{}"))
