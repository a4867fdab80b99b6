"""Reads recorded idle spells, in columns."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, Row, or_, select

from gpusteward.analyzer.ledger.database.periods import RECORDED, read_progress
from gpusteward.analyzer.ledger.database.schema import allocations, idle_spells
from gpusteward.analyzer.spell_table import ENDS, STILL_IDLE, HeldTable, SpellTable
from gpusteward.analyzer.tables import PROOFS, SIGNATURES
from gpusteward.core.node.containers import WorkloadKey

_BLOCK_ROWS = 20_000
_ENDS = {None: STILL_IDLE} | {each.value: code for code, each in enumerate(ENDS)}
_PROOFS = {each.value: code for code, each in enumerate(PROOFS)}
_SIGNATURES = {each.value: code for code, each in enumerate(SIGNATURES)}


class _Allocations:
    """Workloads, models and pods of allocations by number: texts are read once for each allocation."""

    def __init__(self, connection: Connection, since_ms: int) -> None:
        """Those that were held since then."""
        self.workloads: dict[WorkloadKey, int] = {}
        self.models: dict[str, int] = {}
        self.pods: dict[tuple[str, str, str], int] = {}  # cluster, namespace, name
        self.numbers: dict[int, tuple[int, int, int]] = {}
        self.times: dict[int, tuple[float, float]] = {}
        held = allocations.c
        owner = (held.owner_kind, held.namespace, held.owner_name, held.cluster)
        columns = (held.id, held.model, held.pod, held.first_ms, held.ended_ms, *owner)
        is_concerned = or_(held.ended_ms.is_(None), held.ended_ms >= since_ms)
        for id_, model, pod, first_ms, ended_ms, *names in connection.execute(select(*columns).where(is_concerned)):
            key = WorkloadKey(*names)
            self.times[id_] = first_ms / 1000, np.inf if ended_ms is None else ended_ms / 1000
            self.numbers[id_] = (
                self.workloads.setdefault(key, len(self.workloads)),
                self.models.setdefault(model, len(self.models)),
                self.pods.setdefault((key.cluster, key.namespace, pod), len(self.pods)),
            )

    def make_table(self, gpus: dict[int, float]) -> HeldTable:
        """`gpus`: the fraction of each, where a spell tells it; else a whole GPU."""
        numbers = np.array(list(self.numbers.values()), np.intp).reshape(-1, 3)
        times = np.array(list(self.times.values()), np.float64).reshape(-1, 2)
        return HeldTable(
            workload=numbers[:, 0],
            pod=numbers[:, 2],
            allocation_id=np.array(list(self.numbers), np.int64),
            began_at=times[:, 0],
            ended_at=times[:, 1],
            gpus=np.array([gpus.get(id_, 1.0) for id_ in self.numbers], np.float64),
        )


def read_spells(engine: Engine, *, since: float) -> SpellTable:
    """All spells that lasted beyond `since` (unix seconds). Raises SQLAlchemyError."""
    since_ms = int(since * 1000)
    columns = idle_spells.c
    query = select(idle_spells).where(or_(columns.ended_ms.is_(None), columns.ended_ms >= since_ms))
    with engine.connect() as connection:
        recorded_ms = read_progress(connection, RECORDED) or 0
        held = _Allocations(connection, since_ms)
        rows = connection.execution_options(yield_per=_BLOCK_ROWS).execute(query)
        blocks = [_make_columns(part, held, recorded_ms) for part in rows.partitions(_BLOCK_ROWS)]
        blocks = blocks or [_make_columns([], held, recorded_ms)]
    joined = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    gpus = dict(zip(joined["allocation_id"].tolist(), joined["gpus"].tolist(), strict=True))
    return SpellTable(
        at=recorded_ms / 1000,
        workloads=list(held.workloads),
        models=list(held.models),
        pods=[name for *_, name in held.pods],
        **joined,
        held=held.make_table(gpus),
    )


def _make_columns(rows: Iterable[Row[Any]], held: _Allocations, recorded_ms: int) -> dict[str, NDArray[Any]]:
    """The arrays of a spell table. A spell of an allocation that is not known any more is left out."""
    known = [row for row in rows if row.allocation_id in held.numbers]
    ids, started, until, ended, ended_by, proof, signature, gpus = zip(*known, strict=True) if known else [()] * 8
    numbers = np.array([held.numbers[id_] for id_ in ids], np.intp).reshape(-1, 3)
    ends = [end if end is not None else idle_until or recorded_ms for end, idle_until in zip(ended, until, strict=True)]
    return {
        "workload": numbers[:, 0],
        "model": numbers[:, 1],
        "pod": numbers[:, 2],
        "allocation_id": np.array(ids, np.int64),
        "started_at": np.array(started, np.float64) / 1000,
        "ended_at": np.array(ends, np.float64) / 1000,
        "ended_by": np.array([_ENDS[each] for each in ended_by], np.int8),
        "proof": np.array([_PROOFS[each] for each in proof], np.int8),
        "signature": np.array([_SIGNATURES[each] for each in signature], np.int8),
        "gpus": np.array(gpus, np.float64),
    }
