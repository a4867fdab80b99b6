"""Actions and their journal, the table `actions` of the ledger. A state is written before its step and after it.

A row begins with a warning (or with a dry run in observe mode) and lives until its object is restored. What is not in
the journal has not happened: without a database nothing is done.

Analyzers of several clusters may share a ledger. Each row has the uid of its cluster, and rows of others are never read
or changed: their objects do not exist here, and would be taken for removed.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.json import decode
from sqlalchemy import ColumnElement, Engine, Row, case, select, update
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import describe_error, with_write_lock
from gpusteward.analyzer.ledger.database.schema import actions
from gpusteward.analyzer.ledger.spells.idle_spells import mark_reclaimed
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.errors import GpustewardError, SourceError
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages import reclaim as messages


class ActionState(StrEnum):
    """Where an action is; each move is written before and after its step."""

    PLANNED = "planned"  # in observe mode the last one
    WARNED = "warned"
    ACTING = "acting"
    ACTED = "acted"
    VERIFIED = "verified"  # its pods are gone
    FAILED = "failed"
    RESTORING = "restoring"
    RESTORED = "restored"
    REFUSED = "refused"
    REVERTED = "reverted"  # somebody else changed the object back
    ENDED = "ended"  # the object is gone, or the idle spell of a warning has ended


OPEN_STATES = frozenset({ActionState.ACTING, ActionState.ACTED, ActionState.VERIFIED, ActionState.RESTORING})
"""The object is changed, or may be."""
RESTORABLE_STATES = frozenset({ActionState.ACTED, ActionState.VERIFIED})


class ReclaimError(GpustewardError):
    """What a person asked for is refused; the text says why."""


class TargetObject(NamedTuple):
    """The object that an action changes; not always the workload: a Job of a CronJob, a Workload of Kueue."""

    kind: str
    name: str
    uid: str
    path: str  # in the API of Kubernetes


class Warned(NamedTuple):
    """A warning about an action. Times are unix seconds."""

    keys: tuple[str, ...]  # of the outbox, one per address
    sent_at: float
    delivered_at: float | None = None  # at the first address; None: not yet


class JournalStep(NamedTuple):
    """A move from one state to the next."""

    state: ActionState
    at: float
    by: str
    note: Message = Message("", "")


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the table `actions`: what is planned for, or was done to, one object."""

    id: str
    workload: WorkloadKey
    uid: str  # of the workload
    action: ReclaimAction
    mode: Mode
    state: ActionState
    policy: str
    gpus: float
    idle_since: float
    created_at: float
    updated_at: float
    target: TargetObject | None = None  # None: not chosen yet
    original: Mapping[str, Any] = field(default_factory=dict)  # JSON pointer -> value before; None: absent
    patch: Mapping[str, Any] = field(default_factory=dict)  # JSON pointer -> our value
    evidence: Mapping[str, Any] = field(default_factory=dict)  # proof, signature, guards, reasons, allocations
    warnings: tuple[Warned, ...] = ()
    by: str = ""  # gpusteward, or the person who asked
    acted_at: float | None = None
    ended_at: float | None = None  # restored, reverted, failed
    error: str = ""  # in English; the note of its step has both languages
    steps: tuple[JournalStep, ...] = ()
    waiting_gpus: float | None = None  # restored, and its pods wait for so many GPUs; None: they run

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def pod_uids(self) -> frozenset[str]:
        """Of the pods that its warnings are about. What was said of other pods, of the same name or not, does not
        count."""
        return frozenset(map(str, self.evidence.get("pods", ())))

    @property
    def begun_at(self) -> float:
        """When its change was begun last."""
        found = (step.at for step in reversed(self.steps) if step.state is ActionState.ACTING)
        return next(found, self.updated_at)

    @property
    def failure(self) -> Message:
        """`error` in both languages."""
        found = (step.note for step in reversed(self.steps) if self.error and step.note.en.startswith(self.error))
        return next(found, Message(self.error, self.error))


SELF = "gpusteward"
"""Who acts where no person asked for it."""
EARLIER, GPUS_SINCE = "earlier", "gpus_since"
"""In the evidence of a pool that has moved: since when, until when and how many GPUs it gave back before; and since
when it gives back those of now."""
MAX_STEPS = 50
"""Of one action; a loop of reverts is stopped long before."""


UNDONE_STATES = (ActionState.RESTORED, ActionState.REVERTED, ActionState.FAILED, ActionState.REFUSED)
_NAMES = ("id", "cluster", "namespace", "owner_kind", "owner_name", "owner_uid", "state", "acted_ms", "ended_ms")
_IS_POOL = (actions.c.action == ReclaimAction.SCALE_TO_KEEP.value) & (actions.c.state == ActionState.RESTORED.value)
_PAST_ACTION = (*(actions.c[name] for name in _NAMES), case((_IS_POOL, actions.c.steps_json), else_="").label("steps"))


_OPEN_STATES = [state.value for state in (*OPEN_STATES, ActionState.PLANNED, ActionState.WARNED)]


class PastAction(NamedTuple):
    """What became of an action: the columns that are read in every cycle."""

    workload: WorkloadKey
    uid: str
    state: ActionState
    acted_at: float | None
    ended_at: float | None
    was_needed: bool  # a pool, restored by its own rule


class Journal:
    """Safe to use from any thread. Methods raise SourceError."""

    def __init__(self, engine: Engine, read_cluster_uid: Callable[[], str]) -> None:
        """`read_cluster_uid`: of the cluster that is changed; raises SourceError if it is not known."""
        self._engine, self._writing, self._read_cluster_uid = engine, with_write_lock(engine), read_cluster_uid
        self.writes = 0
        """How often this process has begun to write."""
        self._open: Mapping[str, tuple[tuple[Any, ...], Action]] = {}  # the rows that were open last, and their actions

    def _is_own(self) -> ColumnElement[bool]:
        return actions.c.cluster_uid == self._read_cluster_uid()

    def add(self, action: Action) -> Action:
        row = _make_row(action) | {"cluster_uid": self._read_cluster_uid()}
        self.writes += 1
        with _translated(), self._writing.begin() as connection:
            connection.execute(actions.insert(), row)
        return action

    def move(
        self,
        action: Action,
        state: ActionState,
        *,
        at: float,
        by: str = SELF,
        note: Message | None = None,
        **changes: Any,
    ) -> Action:
        """The action in its next state, stored. Raises SourceError also if it was moved since it was read, if only from
        a state to the same one: another replica or a person was faster, and the whole row is written."""
        steps = (*action.steps, JournalStep(state, at, by, note or Message("", "")))[-MAX_STEPS:]
        self.writes += 1
        moved = replace(action, state=state, updated_at=at, steps=steps, **changes)
        is_same = (actions.c.state == action.state.value) & (actions.c.updated_ms == _ms(action.updated_at))
        with _translated(), self._writing.begin() as connection:
            query = update(actions).where(actions.c.id == action.id, is_same, self._is_own())
            if connection.execute(query.values(_make_row(moved))).rowcount != 1:
                raise SourceError(messages.ACTION_MOVED, action=action.id)
        return moved

    def read(self, action_id: str) -> Action | None:
        query = select(actions).where(actions.c.id == action_id, self._is_own())
        with _translated(), self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _make_action(row)

    def list_newest(
        self, *, workload: WorkloadKey | None = None, states: Sequence[ActionState] = (), limit: int = 100
    ) -> list[Action]:
        """The newest first; where only states of a changed object are asked for, before all others those that are still
        open: evicted pods keep such a state, and any number of them must not hide what can be restored."""
        query = select(actions).where(self._is_own()).limit(limit)
        if states and OPEN_STATES.issuperset(states):
            query = query.order_by(actions.c.ended_ms.is_not(None))
        query = query.order_by(actions.c.created_ms.desc(), actions.c.id)
        if workload is not None:
            query = query.where(
                actions.c.owner_kind == workload.kind,
                actions.c.namespace == workload.namespace,
                actions.c.owner_name == workload.name,  # the cluster is known by its uid: its name may have changed
            )
        if states:
            query = query.where(actions.c.state.in_([state.value for state in states]))
        return self._list(query)

    def list_open(self) -> list[Action]:
        """Those whose objects are changed, or may be, and those that wait for their grace period; the oldest first."""
        query = select(actions).where(actions.c.state.in_(_OPEN_STATES), actions.c.ended_ms.is_(None), self._is_own())
        with _translated(), self._engine.connect() as connection:
            rows = connection.execute(query.order_by(actions.c.created_ms, actions.c.id)).all()
        before = self._open
        self._open = found = {row.id: _make_again(row, before.get(row.id)) for row in rows}
        return [action for _, action in found.values()]

    def list_waiting(self) -> list[Action]:
        """Those that were restored and whose pods do not run yet."""
        return self._list(select(actions).where(actions.c.waiting_gpus.is_not(None), self._is_own()))

    def has_open(self) -> bool:
        """Whether an action of any cluster is open, or waits for its pods: without one, nothing has to be asked of the
        API server."""
        is_open = actions.c.state.in_(_OPEN_STATES) & actions.c.ended_ms.is_(None)
        query = select(actions.c.id).where(is_open | actions.c.waiting_gpus.is_not(None)).limit(1)
        with _translated(), self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def list_past(self, since: float, *, acted_since: float) -> list[PastAction]:
        """Of actions that were undone, failed or were refused since then, and of all that have changed an object since
        `acted_since`. Read in every cycle: without original, evidence and steps, and not through every idle spell that
        has ended by itself."""
        was_undone = actions.c.state.in_([state.value for state in UNDONE_STATES]) & (actions.c.ended_ms >= _ms(since))
        # Each part has an index of its own; `OR` would read the whole table.
        own = select(*_PAST_ACTION).where(self._is_own())
        query = own.where(was_undone).union(own.where(actions.c.acted_ms >= _ms(acted_since)))
        with _translated(), self._engine.connect() as connection:
            return [_make_past_action(row) for row in connection.execute(query)]

    def mark_spells(self, action: Action) -> None:
        """The idle spells of its allocations were ended by us, not by their owner."""
        found = [one.get("allocation_id") for one in action.evidence.get("allocations", ())]
        ids = [number for number in found if isinstance(number, int)]
        if ids and action.acted_at is not None:
            with _translated(), self._writing.begin() as connection:
                mark_reclaimed(connection, ids, since_ms=round(action.idle_since * 1000))

    def _list(self, query: Any) -> list[Action]:
        with _translated(), self._engine.connect() as connection:
            return [_make_action(row) for row in connection.execute(query)]


def read_message(stored: Sequence[str]) -> Message:
    """A text of the JSON columns: English and Chinese."""
    english, chinese = stored
    return Message(english, chinese)


def read_keep(action: Action) -> int:
    """The replicas of a pool that stay."""
    return int(next(iter(action.patch.values()), 0))


def read_original(action: Action) -> int:
    """The replicas of a pool before any were lowered."""
    return int(next(iter(action.original.values())) or 0)


def make_action_id() -> str:
    """Also part of the names of Events and annotations."""
    return os.urandom(8).hex()


def _make_row(action: Action) -> dict[str, Any]:
    target = action.target or TargetObject("", "", "", "")
    return {
        "id": action.id,
        "cluster": action.workload.cluster,
        "namespace": action.workload.namespace,
        "owner_kind": action.workload.kind,
        "owner_name": action.workload.name,
        "owner_uid": action.uid,
        "action": action.action.value,
        "mode": action.mode.value,
        "state": action.state.value,
        "policy": action.policy,
        "gpus": action.gpus,
        "idle_since_ms": _ms(action.idle_since),
        "created_ms": _ms(action.created_at),
        "updated_ms": _ms(action.updated_at),
        "acted_ms": _ms(action.acted_at),
        "ended_ms": _ms(action.ended_at),
        "object_kind": target.kind,
        "object_name": target.name,
        "object_uid": target.uid,
        "object_path": target.path,
        "original_json": _dump(action.original),
        "patch_json": _dump(action.patch),
        "evidence_json": _dump(action.evidence),
        "warnings_json": _dump([list(each) for each in action.warnings]),
        "steps_json": _dump([list(each) for each in action.steps]),
        "actor": action.by,
        "error": action.error[:1000],
        "waiting_gpus": action.waiting_gpus,
    }


def _make_past_action(row: Row[Any]) -> PastAction:
    workload = WorkloadKey(row.owner_kind, row.namespace, row.owner_name, row.cluster)
    steps = decode(row.steps) if row.steps else []  # later ones say when its pods run again
    restored_by = next((by for state, _, by, _ in steps if state == ActionState.RESTORED.value), "")
    times = _seconds(row.acted_ms), _seconds(row.ended_ms)
    return PastAction(workload, row.owner_uid, ActionState(row.state), *times, was_needed=restored_by == SELF)


def _make_again(row: Row[Any], before: tuple[tuple[Any, ...], Action] | None) -> tuple[tuple[Any, ...], Action]:
    """Open actions are read twice in every cycle, and few have changed: the same row gives the same action."""
    return before if before is not None and before[0] == tuple(row) else (tuple(row), _make_action(row))


def _make_action(row: Row[Any]) -> Action:
    target = TargetObject(row.object_kind, row.object_name, row.object_uid, row.object_path)
    return Action(
        id=row.id,
        workload=WorkloadKey(row.owner_kind, row.namespace, row.owner_name, row.cluster),
        uid=row.owner_uid,
        action=ReclaimAction(row.action),
        mode=Mode(row.mode),
        state=ActionState(row.state),
        policy=row.policy,
        gpus=row.gpus,
        idle_since=row.idle_since_ms / 1000,
        created_at=row.created_ms / 1000,
        updated_at=row.updated_ms / 1000,
        target=target if target.path else None,
        original=decode(row.original_json),
        patch=decode(row.patch_json),
        evidence=decode(row.evidence_json),
        warnings=tuple(Warned(tuple(keys), sent, delivered) for keys, sent, delivered in decode(row.warnings_json)),
        by=row.actor,
        acted_at=_seconds(row.acted_ms),
        ended_at=_seconds(row.ended_ms),
        error=row.error,
        steps=tuple(
            JournalStep(ActionState(state), at, by, read_message(note))
            for state, at, by, note in decode(row.steps_json)
        ),
        waiting_gpus=row.waiting_gpus,
    )


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise SourceError(messages.JOURNAL_UNREADABLE, reason=describe_error(error)) from error


SAVING_STATES = (
    *sorted(RESTORABLE_STATES),
    *(ActionState.RESTORING, ActionState.RESTORED, ActionState.REVERTED, ActionState.ENDED),
)
"""An action that failed has given nothing back."""
PriceOf = Callable[[str, str], int]
"""Model and namespace -> millionths per GPU-hour; 0: unknown."""


class Saving(NamedTuple):
    """Of one action within a period."""

    gpu_hours: float
    cost_micros: int | None  # None: a model has no price
    is_open: bool  # the GPUs are still given back


def measure_saving(action: Action, price_of: PriceOf, *, since: float, now: float) -> Saving | None:
    """From the action to its restore, or until now. None: it gave nothing back in the period."""
    if action.mode is not Mode.ENFORCE or action.acted_at is None or action.state not in SAVING_STATES:
        return None
    end = now if action.ended_at is None else min(action.ended_at, now)
    if end < max(action.acted_at, since):
        return None
    # Of a pool that has moved, what it gave back before; else the GPUs from the action on.
    spans = [*action.evidence.get(EARLIER, ()), (action.evidence.get(GPUS_SINCE, action.acted_at), end, action.gpus)]
    hours = sum(max(0.0, until - max(begin, since)) * gpus for begin, until, gpus in spans) / 3600
    price = _mean_price(action, price_of)
    return Saving(hours, None if price is None else round(hours * price), action.ended_at is None)


def _mean_price(action: Action, price_of: PriceOf) -> float | None:
    """Of the GPUs that it held, as its evidence lists them."""
    models = [str(each.get("model", "")) for each in action.evidence.get("allocations") or ()]
    prices = [price_of(model, action.workload.namespace) for model in models]
    return sum(prices) / len(prices) if prices and all(prices) else None
