"""Whether this analyzer may act at this moment: the mode, the Lease, the panic switch, the policy file."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import describe_error, with_write_lock
from gpusteward.analyzer.ledger.database.schema import reclaim_switch
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.kinds.objects import DOMAIN, Json, KubeObject
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.kubernetes.writes import ConflictError, ReplacedError
from gpusteward.logs import Log
from gpusteward.messages import reclaim as messages

log = Log(__name__)

DURATION_SECONDS = 60
"""Longer than an action takes between its renewal and its write, whose request may take 10 s."""
ANNOTATION = f"{DOMAIN}reclaim"
_NAME = "switch"


class Mode(StrEnum):
    """How far reclaim goes; chosen by a person."""

    OFF = "off"
    OBSERVE = "observe"  # plans and server-side dry runs
    ENFORCE = "enforce"


class ActorLease:
    """The Lease of Kubernetes that decides which analyzer acts; renewed before each action.

    The ledger's lease decides who records; it is a row of a database that several clusters may share, or a file that
    only one process has. This one is in the cluster that is changed. A holder that stops renewing loses it after
    `DURATION_SECONDS`, measured by the one that waits: clocks of different machines are never compared. Belongs to the
    thread that acts.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        holder: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.holder = holder
        self.current = ""  # who held it when it was read last
        self.error: SourceError | None = None  # why it could not be renewed last time
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._clock, self._wall_clock = clock, wall_clock
        self._seen: tuple[str, str] = ("", "")  # holder and renewal of somebody else
        self._seen_at = 0.0
        self._valid_until = 0.0

    @property
    def is_valid(self) -> bool:
        """Whether nobody else can hold it at this moment."""
        return self._clock() < self._valid_until

    def renew(self) -> bool:
        """Take it if it is free, or renew it; whether this analyzer may act now. Never raises."""
        started = self._clock()
        try:
            is_held = self._try()
            self.error = None
        except SourceError as error:
            if str(error) != str(self.error or ""):
                log.warning("lease_not_renewed", lease=self._name, reason=error)
            self.error, is_held = error, False
        self._valid_until = started + DURATION_SECONDS * 0.75 if is_held else 0.0
        return is_held

    def _try(self) -> bool:
        found = self._cluster.read_lease(self._namespace, self._name)
        if found is None:
            self._cluster.create_lease(self._namespace, self._name, self._make_spec(0))
            self.current = self.holder
            return True
        spec = found.spec
        self.current = str(spec.get("holderIdentity") or "")
        if self.current not in (self.holder, "") and not self._has_expired(found):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (self.current != self.holder)
        fields = {f"/spec/{name}": value for name, value in self._make_spec(transitions).items()}
        if self.current == self.holder:
            del fields["/spec/acquireTime"]
        try:
            self._cluster.patch(found, fields)
        except (ConflictError, ReplacedError):
            return False  # somebody else was faster
        self.current = self.holder
        return True

    def _has_expired(self, found: KubeObject) -> bool:
        """Whether its holder has not renewed it for its whole duration, as seen from here."""
        seen = (str(found.spec.get("holderIdentity")), str(found.spec.get("renewTime")))
        now = self._clock()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration = float(found.spec.get("leaseDurationSeconds") or DURATION_SECONDS)
        return now - self._seen_at >= duration

    def release(self) -> None:
        """So that another replica need not wait. Never raises."""
        if not self.is_valid:
            return
        self._valid_until = 0.0
        try:
            found = self._cluster.read_lease(self._namespace, self._name)
            if found is not None and found.spec.get("holderIdentity") == self.holder:
                self._cluster.patch(found, {"/spec/holderIdentity": None})
        except SourceError as error:
            log.debug("lease_not_released", lease=self._name, reason=error)

    def _make_spec(self, transitions: int) -> Json:
        now = datetime.fromtimestamp(self._wall_clock(), UTC).isoformat(timespec="microseconds")
        now = now.replace("+00:00", "Z")
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


class SwitchState(NamedTuple):
    """The panic switch."""

    is_off: bool  # no action may happen
    by: str = ""
    at: float | None = None
    reason: str = ""


class Switch:
    """The panic switch: an annotation on the analyzer's namespace, or a row of the ledger. Either one stops all
    actions. Both are read before each action, and what cannot be read counts as off. Safe to use from any thread."""

    def __init__(self, engine: Engine | None, cluster: Cluster | None, *, namespace: str) -> None:
        """`engine`: the ledger's; None: only the annotation counts. `namespace`: the analyzer's; empty: not known."""
        self._engine, self._cluster, self._namespace = engine, cluster, namespace

    def find_reason(self) -> Message | None:
        """Why nothing may be done now; None: it may."""
        try:
            if self._cluster is not None and self._namespace:
                value = self._cluster.read_namespace(self._namespace).get(ANNOTATION, "")
                if value.strip().lower() in ("off", "false", "disabled"):
                    return messages.SWITCHED_OFF_BY_ANNOTATION.fill(annotation=ANNOTATION, namespace=self._namespace)
            state = self.read()
        except SourceError as error:
            return messages.SWITCH_UNREADABLE.fill(reason=error.as_message())
        return messages.SWITCHED_OFF.fill(by=state.by or "?", reason=state.reason or "-") if state.is_off else None

    def read(self) -> SwitchState:
        """The row of the ledger. Raises SourceError."""
        if self._engine is None:
            return SwitchState(False)
        try:
            with self._engine.connect() as connection:
                row = connection.execute(select(reclaim_switch).where(reclaim_switch.c.name == _NAME)).one_or_none()
        except SQLAlchemyError as error:
            raise SourceError(messages.JOURNAL_UNREADABLE, reason=describe_error(error)) from error
        return (
            SwitchState(False)
            if row is None
            else SwitchState(bool(row.is_off), row.actor, row.at_ms / 1000, row.reason)
        )

    def set(self, *, is_off: bool, by: str, reason: str, at: float) -> SwitchState:
        """Raises SourceError."""
        if self._engine is None:
            raise SourceError(messages.NO_JOURNAL)
        state = SwitchState(is_off, by[:200], at, reason[:500])
        row = {
            "name": _NAME,
            "is_off": int(is_off),
            "actor": state.by,
            "at_ms": round(at * 1000),
            "reason": state.reason,
        }
        try:
            with with_write_lock(self._engine).begin() as connection:
                connection.execute(reclaim_switch.delete().where(reclaim_switch.c.name == _NAME))
                connection.execute(reclaim_switch.insert(), row)
        except SQLAlchemyError as error:
            raise SourceError(messages.JOURNAL_UNREADABLE, reason=describe_error(error)) from error
        return state


class Stop(NamedTuple):
    """Why this analyzer may do nothing at all; None: it may."""

    leader: Message | None = None  # another one acts, or the Lease cannot be renewed
    switch: Message | None = None  # nobody may act
    policies: Message | None = None  # there are none

    @property
    def reason(self) -> Message | None:
        return self.leader or self.switch or self.policies


class Permission:
    """Of the thread that acts."""

    def __init__(self, lease: ActorLease, switch: Switch, policies: WatchedPolicies) -> None:
        self.mode = Mode.OFF
        self._lease, self._switch, self._policies = lease, switch, policies

    @property
    def is_leader(self) -> bool:
        """Whether the Lease is still held; asks nobody."""
        return self._lease.is_valid

    def find_stop(self, *, renews: bool = True) -> Stop:
        """What stops all actions. `renews`: the Lease, which is only for one that acts."""
        leader = switch = None
        if not renews or self._lease.renew():
            switch = self._switch.find_reason()
        else:
            error = self._lease.error
            leader = error.as_message() if error else messages.LEASE_LOST.fill(holder=self._lease.current or "?")
        self._policies.poll()
        return Stop(leader, switch, self._policies.error)

    def find_objection(self) -> Message | None:
        """Why this analyzer may not act at this moment. Renews the Lease, reads the switch and the policy file. Giving
        back needs the Lease only."""
        return self.find_stop().reason if self.mode is Mode.ENFORCE else messages.NOT_ON.fill(mode=self.mode.value)
