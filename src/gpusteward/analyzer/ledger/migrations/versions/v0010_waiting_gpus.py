"""GPUs that the pods of a restored workload wait for. Workloads that were restored before count as running."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("actions", sa.Column("waiting_gpus", sa.Float(53)))
    op.create_index("actions_by_waiting", "actions", ["waiting_gpus"])
