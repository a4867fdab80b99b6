"""Rows that are written to the outbox and read from it, the names of their targets, and why a delivery failed."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from gpusteward.core.node.containers import WorkloadKey

CONTROL = "control"
"""Target and kind of calls to the control webhook."""
SUPERSEDED = "superseded by a later cycle"
"""Error text of what was not sent because it was no longer true."""
NOTICE = "notice"
"""Kind of messages to channels."""
BUTTONS = "buttons"
"""Among the headers of a notice: its buttons, as JSON. Channels without buttons get them as lines of text."""
SUBJECT = "subject"
"""Among the headers of a notice about idle workloads: which ones, as JSON."""


class NoticeKind(StrEnum):
    """What a notice is about. The last four are those of reclaim."""

    IDLE = "idle-found"
    STALLED = "stalled-found"
    OUTAGE = "source-lost"
    RECOVERY = "source-found"
    DIGEST = "digest"
    WARNING = "warning"
    ACTION = "action"
    RESTORED = "restored"
    REFUSED = "refused"


_STATES = frozenset({NoticeKind.IDLE, NoticeKind.WARNING, NoticeKind.OUTAGE, NoticeKind.RECOVERY})
"""Notices that say how things are. The others say what has happened, and stay true."""
_CHECKED = (NoticeKind.IDLE, NoticeKind.WARNING)
"""Those that are sent only while a cycle has said that they are true."""


ASKED = "asked"
"""In place of `NoticeKind.IDLE` in the stream of a notice that somebody has asked for: it does not wait for a cycle."""


def make_stream(target: str, kind: str) -> str:
    """Of a notice. Those that may wait or be withdrawn have a stream of their own, so that no other waits for them."""
    return f"{target}/{kind}" if kind in (*_STATES, ASKED) else target


class Subject(msgspec.Struct, frozen=True):
    """What a notice about idle workloads is about."""

    message: str  # with which the keys of its records begin
    idle_minutes: float  # the idle time that it needs
    workloads: tuple[WorkloadKey, ...]


def write_subject(subject: Subject) -> dict[str, str]:
    """As headers of an event."""
    return {SUBJECT: msgspec.json.encode(subject).decode()}


def read_subject(headers: Mapping[str, str]) -> Subject:
    return msgspec.json.decode(headers[SUBJECT], type=Subject)


class Button(msgspec.Struct, array_like=True, frozen=True):
    """A link in a notice."""

    label: str
    url: str


def write_buttons(buttons: Sequence[Button]) -> dict[str, str]:
    """As headers of an event."""
    return {BUTTONS: msgspec.json.encode(buttons).decode()} if buttons else {}


def read_buttons(headers: Mapping[str, str]) -> list[Button]:
    text = headers.get(BUTTONS, "")
    return msgspec.json.decode(text, type=list[Button]) if text else []


def channel_target(channel: str, number: int) -> str:
    """Each address of a channel is its own target: when one fails, the message is not sent to the others again."""
    return f"channel/{channel}/{number}"


def read_channel(target: str) -> str:
    """The name of the channel of a target."""
    return target.split("/")[1]


MAX_ADDRESSES = 16
"""Of a channel, whose deliveries `list_delivery_keys` finds."""


def list_delivery_keys(notice_key: str, channel: str) -> list[str]:
    """The keys of the events that belong to the record of a notice; there may be fewer."""
    message_key = notice_key.partition("/")[0]
    return [make_event_key(message_key, channel_target(channel, number)) for number in range(MAX_ADDRESSES)]


def make_event_key(*parts: str) -> str:
    """A key that is always the same for the same event and reveals nothing about it."""
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """One event for one target. Events of a stream are delivered in order; an event is stored once per key."""

    stream: str
    key: str
    kind: str  # CONTROL or NOTICE
    target: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)  # of a control call; of a notice its buttons or subject


@dataclass(frozen=True, slots=True)
class NoticeRecord:
    """A row of the table `notices`: who was notified about which workload. The fields are its columns."""

    key: str
    kind: str
    cluster: str
    namespace: str
    owner_kind: str
    owner_name: str
    channel: str
    body: str


@dataclass(slots=True)
class OutboxBatch:
    """Events and the records of their notices, stored in one transaction."""

    events: list[OutboxEvent] = field(default_factory=list)
    notices: list[NoticeRecord] = field(default_factory=list)

    def add_notice(
        self,
        kind: NoticeKind,
        channel: str,
        targets: Sequence[str],
        records: Mapping[str, WorkloadKey],
        *,
        key: str,
        body: str,
        headers: Mapping[str, str],
    ) -> None:
        """One message to a channel: an event for each of its addresses, a record for each workload by the key of the
        record. Only the first record keeps the text."""
        for target in targets:
            stream = make_stream(target, kind)
            self.events.append(OutboxEvent(stream, make_event_key(key, target), NOTICE, target, body, headers))
        for record_key, workload in records.items():
            owner_kind, namespace, owner_name, cluster = workload
            self.notices.append(
                NoticeRecord(record_key, kind, cluster, namespace, owner_kind, owner_name, channel, body)
            )
            body = ""

    def extend(self, other: "OutboxBatch") -> None:
        self.events += other.events
        self.notices += other.notices


@dataclass(frozen=True, slots=True)
class PendingDelivery:
    """A row that is due, with everything a sender needs."""

    id: int
    stream: str
    key: str
    kind: str
    target: str
    headers: Mapping[str, str]
    body: str
    created_ms: int
    attempts: int

    @property
    def is_checked(self) -> bool:
        """Whether it is sent only while a cycle has said that it is true."""
        return self.kind == CONTROL or any(self.stream == make_stream(self.target, kind) for kind in _CHECKED)


@dataclass(frozen=True, slots=True)
class Review:
    """What a cycle says about notices that wait for their receiver."""

    renewed: Sequence[OutboxEvent] = ()  # with their present text
    withdrawn: Sequence[str] = ()  # keys of those that are not true any more
    records: Sequence[str] = ()  # keys of records about workloads that are not idle any more
    forgotten: Sequence[tuple[str, WorkloadKey]] = ()  # the same as channel and workload


ReviewNotices = Callable[[Sequence[PendingDelivery]], Review]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row as the API shows it: without its content, and with the host instead of the address."""

    id: int
    stream: str
    kind: str
    target: str
    created_ms: int
    attempts: int
    next_ms: int
    state: str
    error: str
    host: str = ""  # empty: the target is no longer in the settings


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The new state of a row after an attempt."""

    id: int
    state: str  # pending: will be retried
    attempts: int
    next_ms: int
    error: str = ""


class DeliveryError(Exception):
    """The receiver did not accept the message. The text never contains an address: addresses may contain tokens.

    `is_refusal`: the receiver works but rejects this message; retrying helps only after the receiver has changed.
    `wait_seconds`: the delay before the next attempt that the receiver requested (Retry-After).
    """

    def __init__(self, reason: str, *, is_refusal: bool = False, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal
        self.wait_seconds = wait_seconds


DELIVERY_RESULTS = ("sent", "failed", "dead", "refused", "superseded")


@dataclass
class DeliveryCounters:
    """Written by the threads that deliver, read by any thread. `pending` is a gauge, the others are counters."""

    sent: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # attempts
    dead: Counter[str] = field(default_factory=Counter)  # given up after too many attempts or too much time
    refused: Counter[str] = field(default_factory=Counter)  # never stored: outbox full, or the database refused it
    superseded: Counter[str] = field(default_factory=Counter)  # not sent: a later cycle replaced it
    pending: Mapping[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, result: str, kind: str, number: int = 1) -> None:
        """`result` is sent, failed, dead, refused or superseded."""
        with self._lock:
            counter: Counter[str] = getattr(self, result)
            if number:
                counter[kind] += number

    def counts(self) -> dict[str, dict[str, int]]:
        """result -> kind -> number."""
        with self._lock:
            counters = {name: dict(getattr(self, name)) for name in DELIVERY_RESULTS}
        return {**counters, "pending": dict(self.pending)}
