"""The panic switch: an annotation on the analyzer's namespace, or a row of the ledger. Either one stops all actions.

Both are read before each action. What cannot be read counts as off.
"""

from typing import NamedTuple

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.db_engine import describe_error, with_write_lock
from gpusteward.analyzer.ledger.schema import reclaim_switch
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.kinds.objects import DOMAIN
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim as messages

ANNOTATION = f"{DOMAIN}reclaim"
_NAME = "switch"


class SwitchState(NamedTuple):
    """The panic switch."""

    is_off: bool  # no action may happen
    by: str = ""
    at: float | None = None
    reason: str = ""


class Switch:
    """Safe to use from any thread."""

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
