"""The journal of reclaim, and the switch that stops it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False, server_default=""),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("namespace", "owner_kind", "owner_name", "owner_uid")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("action", "mode", "state", "policy")),
        sa.Column("gpus", sa.Float(53), nullable=False),
        *(sa.Column(name, Number, nullable=False) for name in ("idle_since_ms", "created_ms", "updated_ms")),
        *(sa.Column(name, Number) for name in ("acted_ms", "ended_ms")),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in (
                *("object_kind", "object_name", "object_uid", "object_path"),
                *("original_json", "patch_json", "evidence_json", "warnings_json", "steps_json", "actor", "error"),
            )
        ),
    )
    op.create_index("actions_by_state", "actions", ["state"])
    op.create_index("actions_by_time", "actions", ["created_ms"])
    op.create_index("actions_by_acted", "actions", ["acted_ms"])
    op.create_index("actions_by_owner", "actions", ["cluster", "namespace", "owner_kind", "owner_name", "created_ms"])
    op.create_table(
        "reclaim_switch",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("is_off", sa.Integer, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("at_ms", Number, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
