"""The tables. Times are milliseconds since 1970, durations GPU-milliseconds, amounts of money millionths of the
currency, energy millijoules: all integers, so that sums are exact."""

from collections.abc import Iterator

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

METADATA = MetaData()
Number = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite generates ids only for INTEGER columns; its integers have 64 bits anyway."""


def _texts(*names: str) -> Iterator[Column[str]]:
    """Columns that always have a text, which may be empty."""
    return (Column(name, Text, nullable=False) for name in names)


def _cluster() -> Column[str]:
    """Empty: the only cluster, or unknown."""
    return Column("cluster", Text, nullable=False, server_default="")


progress = Table(
    "progress",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("at_ms", Number, nullable=False),
)
"""How far the ledger is recorded ("booked"), rolled up ("rolled") and pruned ("pruned"); since when it is recorded
("began"), and the time whose idle spells were back-filled ("filled_from", "filled_to"). No row means not yet."""

allocations = Table(
    "allocations",
    METADATA,
    Column("id", Number, primary_key=True, autoincrement=False),
    *_texts("namespace", "pod", "pod_uid", "container", "owner_kind", "owner_name", "user_name"),
    *_texts("node", "gpu_uuid", "gpu_instance", "gpu_index", "model", "share"),
    Column("first_ms", Number, nullable=False),
    Column("last_ms", Number, nullable=False),
    Column("ended_ms", Number),
    _cluster(),
    Column("labels", Text, nullable=False, server_default="{}"),  # a JSON object: `ledger.labels` of the pod
    Index("allocations_by_end", "ended_ms"),
)
"""`id` is a hash of what identifies the allocation (`identities.make_allocation_id`). `first_ms` and `last_ms` are its
first and last observation, the latter written when it ends; `ended_ms` is NULL while it is held."""


def _usage(name: str, time: str) -> Table:
    return Table(
        name,
        METADATA,
        Column(time, Number, nullable=False),
        Column("allocation_id", Number, nullable=False),
        *(
            Column(amount, Number, nullable=False)
            for amount in (
                *("allocated_ms", "active_ms", "idle_ms", "unknown_ms"),
                *("active_cost", "idle_cost", "unknown_cost"),
                *("ineffective_ms", "ineffective_cost"),  # parts of active
            )
        ),
        Column("energy_mj", Number),  # NULL: the power was never known
        Column("energy_ms", Number, nullable=False),  # the time for which it was known
        Column("score_ms_sum", Number, nullable=False),  # score x time; divided by scored_ms it is the mean
        Column("scored_ms", Number, nullable=False),
        Column("tokens", Number),  # served by inference servers; NULL: never counted
        Column("served_ms", Number, nullable=False),  # the allocated time for which they were counted
        Column("served_cost", Number, nullable=False),  # and its cost
        Column("core_peak", Float(53)),
        Column("memory_peak_bytes", Number),
        Column("memory_total_bytes", Number),
        PrimaryKeyConstraint(time, "allocation_id"),
        CheckConstraint("allocated_ms = active_ms + idle_ms + unknown_ms", name=f"{name}_adds_up"),
        CheckConstraint(
            "ineffective_ms BETWEEN 0 AND active_ms AND ineffective_cost BETWEEN 0 AND active_cost",
            name=f"{name}_part_of_active",
        ),
        sqlite_with_rowid=False,  # rows are stored in key order: an hour is contiguous in the file
    )


def _fleet(name: str, time: str) -> Table:
    return Table(
        name,
        METADATA,
        Column(time, Number, nullable=False),
        Column("node", Text, nullable=False),
        Column("model", Text, nullable=False),
        Column("gpu_ms", Number, nullable=False),
        Column("known_ms", Number, nullable=False),  # for how long the number of GPUs was known
        Column("held_ms", Number, nullable=False),  # the time allocated while it was known
        _cluster(),
        PrimaryKeyConstraint(time, "cluster", "node", "model"),
        sqlite_with_rowid=False,
    )


usage_hourly = _usage("usage_hourly", "hour_ms")
usage_daily = _usage("usage_daily", "day_ms")
fleet_hourly = _fleet("fleet_hourly", "hour_ms")
fleet_daily = _fleet("fleet_daily", "day_ms")
"""The time of all existing GPUs, allocated or not; no row where their number is unknown."""


def time_column(table: Table) -> Column[int]:
    """The hour or the day of the rows of a usage or fleet table."""
    return table.c.hour_ms if "hour_ms" in table.c else table.c.day_ms


currencies = Table(
    "currencies",
    METADATA,
    Column("since_ms", Number, primary_key=True, autoincrement=False),
    Column("currency", Text, nullable=False),
)
"""The currency of all costs from `since_ms` on; the first row also covers the time before. No row: no costs yet."""

verdict_changes = Table(
    "verdict_changes",
    METADATA,
    Column("id", Number, primary_key=True),
    Column("at_ms", Number, nullable=False),
    *_texts("owner_kind", "namespace", "owner_name", "activity", "signature", "state"),
    Column("score", Float(53)),
    Column("gpus", Integer, nullable=False),
    Column("idle_gpus", Integer, nullable=False),
    Column("idle_since_ms", Number),
    _cluster(),
    Index("verdict_changes_by_time", "at_ms"),
    Index("verdict_changes_by_owner", "cluster", "namespace", "owner_kind", "owner_name", "at_ms"),
)

idle_spells = Table(
    "idle_spells",
    METADATA,
    Column("allocation_id", Number, nullable=False),
    Column("started_ms", Number, nullable=False),  # since when it is idle: the last work seen
    Column("idle_until_ms", Number),  # of a spell that has not ended; NULL: up to the last recorded cycle
    Column("ended_ms", Number),  # NULL: it has not ended
    Column("ended_by", Text),  # "work", "released", "reclaimed", "lost"
    Column("proof", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Column("gpu_fraction", Float(53), nullable=False),
    PrimaryKeyConstraint("allocation_id", "started_ms"),
    Index("idle_spells_by_end", "ended_ms"),
    sqlite_with_rowid=False,
)
"""Periods of allocations without work (`idle_spells.py`)."""

pool_hours = Table(
    "pool_hours",
    METADATA,
    Column("hour_ms", Number, nullable=False),
    _cluster(),
    *_texts("namespace", "owner_kind", "owner_name"),
    *_texts("active", "ready", "wanted"),  # JSON arrays: a number for each minute, -1 where it is not known
    Column("gpus", Float(53), nullable=False),  # of one replica
    Column("start_seconds", Float(53)),  # of a replica until it is ready; NULL: not known
    PrimaryKeyConstraint("hour_ms", "cluster", "namespace", "owner_kind", "owner_name"),
    sqlite_with_rowid=False,
)
"""What the replicas of pools did in each minute (`ledger/pool_hours.py`)."""

ineffective_spells = Table(
    "ineffective_spells",
    METADATA,
    Column("allocation_id", Number, nullable=False),
    Column("started_ms", Number, nullable=False),
    Column("ended_ms", Number),  # NULL: it has not ended
    PrimaryKeyConstraint("allocation_id", "started_ms"),
    Index("ineffective_spells_by_end", "ended_ms"),
    sqlite_with_rowid=False,
)
"""Periods of allocations whose active time is recorded as ineffective (`ineffective_time.py`)."""

notices = Table(
    "notices",
    METADATA,
    Column("id", Number, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    *_texts("kind", "namespace", "owner_kind", "owner_name", "channel"),
    Column("created_ms", Number, nullable=False),
    Column("body", Text, nullable=False),
    _cluster(),
    Index("notices_by_time", "created_ms"),
)
"""Notices that were sent, one per key."""

outbox = Table(
    "outbox",
    METADATA,
    Column("id", Number, primary_key=True),
    Column("stream", Text, nullable=False),
    Column("key", Text, nullable=False, unique=True),
    *_texts("kind", "target", "headers_json", "body"),
    Column("created_ms", Number, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("next_ms", Number, nullable=False),
    Column("state", Text, nullable=False, default="pending"),
    Column("error", Text, nullable=False, default=""),
    CheckConstraint("kind IN ('control', 'notice', 'alert')", name="outbox_kind"),
    CheckConstraint("state IN ('pending', 'done', 'dead')", name="outbox_state"),
    Index("outbox_waiting", "state", "next_ms"),
    Index("outbox_by_stream", "stream", "id"),
    sqlite_autoincrement=True,  # the order of sending: an id is never reused
)
"""Messages to send, in order per stream, at least once."""

snoozes = Table(
    "snoozes",
    METADATA,
    Column("id", Number, primary_key=True),
    _cluster(),
    *_texts("namespace", "owner_kind", "owner_name"),
    Column("until_ms", Number, nullable=False),
    Column("reason", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("created_ms", Number, nullable=False),
    Column("ended_ms", Number),  # before `until_ms`, by somebody or by a newer one; NULL: not
    Column("ended_by", Text),
    Index("snoozes_by_owner", "cluster", "namespace", "owner_kind", "owner_name", "created_ms"),
    Index("snoozes_by_time", "until_ms"),
)
"""Workloads about which nobody wants to hear for some time, and which are not touched meanwhile (`snoozes.py`)."""

leases = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until_ms", Number, nullable=False),
)
"""Which analyzer writes ("writer"), and the cluster it is in ("cluster"): see `leadership.py`. The time is that of the
database. Without rows in SQLite."""

actions = Table(
    "actions",
    METADATA,
    Column("id", Text, primary_key=True),
    _cluster(),
    *_texts("namespace", "owner_kind", "owner_name", "owner_uid", "action", "mode", "state", "policy"),
    Column("gpus", Float(53), nullable=False),
    Column("idle_since_ms", Number, nullable=False),
    Column("created_ms", Number, nullable=False),
    Column("updated_ms", Number, nullable=False),
    Column("acted_ms", Number),
    Column("ended_ms", Number),
    *_texts("object_kind", "object_name", "object_uid", "object_path"),
    *_texts("original_json", "patch_json", "evidence_json", "warnings_json", "steps_json"),
    *_texts("actor", "error"),
    Column("cluster_uid", Text, nullable=False, server_default=""),
    Column("waiting_gpus", Float(53)),  # NULL: its pods run, or it was not restored
    Index("actions_by_state", "state"),
    Index("actions_by_waiting", "waiting_gpus"),
    Index("actions_by_time", "created_ms"),
    Index("actions_by_acted", "acted_ms"),
    Index("actions_by_owner", "cluster", "namespace", "owner_kind", "owner_name", "created_ms"),
)
"""The journal of reclaim (`reclaim/journal.py`): a row per object that was warned about, changed or restored."""

reclaim_switch = Table(
    "reclaim_switch",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("is_off", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("reason", Text, nullable=False),
)
"""The switch that stops all actions; no row: it is on."""
