"""Which cluster an action of the journal belongs to. Existing rows belong to no cluster that is known."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("actions", sa.Column("cluster_uid", sa.Text, nullable=False, server_default=""))
