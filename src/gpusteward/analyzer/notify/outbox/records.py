"""Rows that are written to the outbox and read from it, and the names of their targets."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

CONTROL = "control"
"""Target and kind of calls to the control webhook."""
SUPERSEDED = "superseded by a later cycle"
"""Error text of a control call that was not sent because it was no longer true."""
NOTICE = "notice"
"""Kind of messages to channels."""
BUTTONS = "buttons"
"""Among the headers of a notice: its buttons, as JSON. Channels without buttons get them as lines of text."""


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
    headers: Mapping[str, str] = field(default_factory=dict)  # of a control call; of a notice its buttons


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
class Outcome:
    """The new state of a row after an attempt."""

    id: int
    state: str  # pending: will be retried
    attempts: int
    next_ms: int
    error: str = ""
