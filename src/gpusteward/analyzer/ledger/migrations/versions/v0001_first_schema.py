"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_STORED_IN_KEY_ORDER = {"sqlite_with_rowid": False}


def upgrade() -> None:
    op.create_table(
        "progress",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("at_ms", Number, nullable=False),
    )
    _create_allocations()
    for name, time in (("usage_hourly", "hour_ms"), ("usage_daily", "day_ms")):
        _create_usage(name, time)
    for name, time in (("fleet_hourly", "hour_ms"), ("fleet_daily", "day_ms")):
        _create_fleet(name, time)
    _create_verdict_changes()
    _create_notices()
    _create_outbox()


def _create_allocations() -> None:
    op.create_table(
        "allocations",
        sa.Column("id", Number, primary_key=True, autoincrement=False),
        *_texts("namespace", "pod", "pod_uid", "container", "owner_kind", "owner_name", "user_name", "node"),
        *_texts("gpu_uuid", "gpu_instance", "gpu_index", "model", "share"),
        *_numbers("first_ms", "last_ms"),
        sa.Column("ended_ms", Number),
    )
    op.create_index("allocations_by_end", "allocations", ["ended_ms"])


def _create_usage(name: str, time: str) -> None:
    op.create_table(
        name,
        *_numbers(time, "allocation_id", "allocated_ms", "active_ms", "idle_ms", "unknown_ms"),
        *_numbers("active_cost", "idle_cost", "unknown_cost"),
        sa.Column("energy_mj", Number),
        *_numbers("energy_ms", "score_ms_sum", "scored_ms"),
        sa.Column("core_peak", sa.Float(53)),
        sa.Column("memory_peak_bytes", Number),
        sa.Column("memory_total_bytes", Number),
        sa.PrimaryKeyConstraint(time, "allocation_id"),
        sa.CheckConstraint("allocated_ms = active_ms + idle_ms + unknown_ms", name=f"{name}_adds_up"),
        **_STORED_IN_KEY_ORDER,
    )


def _create_fleet(name: str, time: str) -> None:
    op.create_table(
        name,
        *_numbers(time),
        *_texts("node", "model"),
        *_numbers("gpu_ms"),
        sa.PrimaryKeyConstraint(time, "node", "model"),
        **_STORED_IN_KEY_ORDER,
    )


def _create_verdict_changes() -> None:
    op.create_table(
        "verdict_changes",
        sa.Column("id", Number, primary_key=True),
        *_numbers("at_ms"),
        *_texts("owner_kind", "namespace", "owner_name", "activity", "signature", "state"),
        sa.Column("score", sa.Float(53)),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("idle_gpus", sa.Integer, nullable=False),
        sa.Column("idle_since_ms", Number),
    )
    op.create_index("verdict_changes_by_time", "verdict_changes", ["at_ms"])
    op.create_index("verdict_changes_by_owner", "verdict_changes", ["namespace", "owner_kind", "owner_name", "at_ms"])


def _create_notices() -> None:
    op.create_table(
        "notices",
        sa.Column("id", Number, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        *_texts("kind", "namespace", "owner_kind", "owner_name", "channel"),
        *_numbers("created_ms"),
        *_texts("body"),
    )
    op.create_index("notices_by_time", "notices", ["created_ms"])


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", Number, primary_key=True),
        *_texts("stream"),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        *_texts("kind", "target", "headers_json", "body"),
        *_numbers("created_ms"),
        sa.Column("attempts", sa.Integer, nullable=False),
        *_numbers("next_ms"),
        *_texts("state", "error"),
        sa.CheckConstraint("kind IN ('control', 'notice', 'alert')", name="outbox_kind"),
        sa.CheckConstraint("state IN ('pending', 'done', 'dead')", name="outbox_state"),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_waiting", "outbox", ["state", "next_ms"])
    op.create_index("outbox_by_stream", "outbox", ["stream", "id"])


def _texts(*names: str) -> "list[sa.Column[str]]":
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _numbers(*names: str) -> "list[sa.Column[int]]":
    return [sa.Column(name, Number, nullable=False) for name in names]
