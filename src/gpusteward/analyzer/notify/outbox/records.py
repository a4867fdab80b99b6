"""What goes into the outbox, and what comes out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One event for one target. `key` is the same whenever the same event is told."""

    stream: str
    key: str
    kind: str  # control or notice
    target: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoticeRecord:
    """What somebody was told, for the record and against telling it too often."""

    key: str
    kind: str
    namespace: str
    owner_kind: str
    owner_name: str
    channel: str
    body: str


@dataclass(frozen=True, slots=True)
class PendingDelivery:
    """A row that is due."""

    id: int
    stream: str
    key: str
    kind: str
    target: str
    headers: Mapping[str, str]
    body: str
    created_ms: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row as people see it: nothing of what is told, of an address only the host."""

    id: int
    stream: str
    kind: str
    target: str
    created_ms: int
    attempts: int
    next_ms: int
    state: str
    error: str
    host: str = ""  # empty: the target is not in the settings any more


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row."""

    id: int
    state: str  # pending: to be tried again
    attempts: int
    next_ms: int
    error: str = ""
