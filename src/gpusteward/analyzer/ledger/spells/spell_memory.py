"""The idle spells of the last two weeks in memory, for chances of resumption. Updated after each recorded cycle.

What ended in the last half hour is read again each time: a spell whose data ended is known to be lost only later. What
ended before is kept, so that a cycle costs as much as the spells that end in half an hour.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, and_, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.judge.resumption import NO_HISTORY, PastSpells, SpellHistory
from gpusteward.analyzer.ledger.database.db_engine import describe_error
from gpusteward.analyzer.ledger.database.periods import FILLED_FROM, FILLED_TO, read_progress
from gpusteward.analyzer.ledger.database.schema import allocations, idle_spells
from gpusteward.analyzer.results import Result
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log

log = Log(__name__)

KEPT_MS = 14 * 86_400_000
READ_AGAIN_MS = 1_800_000
SPARE_WORKLOADS = 10_000
MOST_SPELLS = 300_000
"""Older ones are left out: 17 bytes each, and a sort of a few hundredths of a second per cycle."""


class _Spells(NamedTuple):
    """Ended spells, by time of their end."""

    workload: NDArray[np.int32]
    started_ms: NDArray[np.int64]
    ended_ms: NDArray[np.int64]
    has_resumed: NDArray[np.bool_]
    is_over: NDArray[np.bool_]

    def take(self, chosen: NDArray[np.bool_] | slice) -> "_Spells":
        return _Spells._make(column[chosen] for column in self)

    def join(self, later: "_Spells") -> "_Spells":
        pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(self, later, strict=True)
        return _Spells._make(map(np.concatenate, pairs))


_NONE = _Spells._make(np.empty(0, kind) for kind in (np.int32, np.int64, np.int64, np.bool_, np.bool_))


class SpellMemory:
    """`update` is for the thread that runs cycles; `history` for all."""

    def __init__(self, engine: Engine) -> None:
        self.history: SpellHistory = NO_HISTORY
        self._engine = engine
        self._numbers: dict[WorkloadKey, int] = {}
        self._spells = _NONE
        self._filled: tuple[int | None, int | None] = (None, None)
        self._error = ""

    def update(self, result: Result) -> None:
        """With what ended since the last time, and what is idle now. A database that fails leaves it as it was."""
        at_ms = int(result.at * 1000)
        try:
            self._forget_before_fill()
            since_ms = int(self._spells.ended_ms[-1]) - READ_AGAIN_MS if len(self._spells.ended_ms) else at_ms - KEPT_MS
            ended = self._read(max(since_ms, at_ms - KEPT_MS))
            self._error = ""
        except SQLAlchemyError as error:
            if not self._error:
                log.warning("spells_not_read", reason=describe_error(error), consequence="chances are not updated")
            self._error = describe_error(error)
            return
        kept = self._spells.take((self._spells.ended_ms < since_ms) & (self._spells.ended_ms >= at_ms - KEPT_MS))
        self._spells = kept.join(ended).take(slice(-MOST_SPELLS, None))
        self._forget_workloads()
        self.history = self._make_history(result)

    def _forget_before_fill(self) -> None:
        """Read everything again if older spells were back-filled since the last time."""
        with self._engine.connect() as connection:
            filled = read_progress(connection, FILLED_FROM), read_progress(connection, FILLED_TO)
        if filled != self._filled:
            self._filled, self._spells = filled, _NONE

    def _read(self, since_ms: int) -> _Spells:
        """The last ones of them, by the time of their end. GPUs of a workload that rest together count once."""
        spells, held = idle_spells.c, allocations.c
        owner = (held.owner_kind, held.namespace, held.owner_name, held.cluster)
        query = (
            select(*owner, spells.started_ms, spells.ended_ms, spells.ended_by)
            .join(allocations, and_(held.id == spells.allocation_id))
            .where(spells.ended_ms >= since_ms)
            .distinct()
            .order_by(spells.ended_ms.desc())
            .limit(MOST_SPELLS)
        )
        numbers, workload, started, ended, by = self._numbers, [], [], [], []
        with self._engine.connect() as connection:
            for kind, namespace, name, cluster, *spell in connection.execute(query):
                workload.append(numbers.setdefault(WorkloadKey(kind, namespace, name, cluster), len(numbers)))
                started.append(spell[0])
                ended.append(spell[1])
                by.append(spell[2])
        has_resumed = np.array([each == SpellEnd.WORK.value for each in by], np.bool_)
        is_over = has_resumed | np.array([each == SpellEnd.RELEASED.value for each in by], np.bool_)
        found = _Spells(
            np.array(workload, np.int32), np.array(started, np.int64), np.array(ended, np.int64), has_resumed, is_over
        )
        return found.take(slice(None, None, -1))

    def _forget_workloads(self) -> None:
        """Those without a spell, once they are many: jobs come and go."""
        if len(self._numbers) < SPARE_WORKLOADS + 2 * len(self._spells.workload):
            return
        used = np.zeros(len(self._numbers), np.bool_)
        used[self._spells.workload] = True
        numbers = np.cumsum(used, dtype=np.int32) - 1
        self._numbers = {key: int(numbers[number]) for key, number in self._numbers.items() if used[number]}
        self._spells = self._spells._replace(workload=numbers[self._spells.workload])

    def _make_history(self, result: Result) -> SpellHistory:
        """With the spells that go on: of those that are idle for long, none has ended."""
        table, spells, numbers = result.workloads, self._spells, self._numbers
        idle = np.flatnonzero(~np.isnan(table.idle_since))
        mine = [numbers.setdefault(table.keys[row], len(numbers)) for row in idle.tolist()]
        since = table.idle_since[idle]
        none = np.zeros(len(idle), np.bool_)
        codes = np.concatenate((spells.workload.astype(np.intp), np.array(mine, np.intp)))
        started = np.concatenate((spells.started_ms / 1000, since))
        seconds = np.concatenate(((spells.ended_ms - spells.started_ms) / 1000, result.at - since))
        past = PastSpells(
            started, seconds, np.concatenate((spells.has_resumed, none)), np.concatenate((spells.is_over, none))
        )
        order = np.argsort(codes, kind="stable")
        return SpellHistory(
            at=result.at,
            workloads=tuple(numbers),
            codes=codes[order],
            past=past.take(order),
            zone=result.settings.notify.time_zone,
        )
