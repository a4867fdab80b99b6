"""What was told when, so that nothing is told too often. In memory; at a start the record in the ledger fills it."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from gpusteward.analyzer.judge.workloads import WorkloadKey
from gpusteward.analyzer.ledger.identities import clean_text

Owner = tuple[str, str, str]  # kind of notice, channel, namespace


class NoticeKind(StrEnum):
    """What notices are about. The last four are for who reclaims."""

    IDLE = "idle-found"
    LOST = "source-lost"
    FOUND = "source-found"
    DIGEST = "digest"
    WARNING = "warning"
    ACTION = "action"
    RESTORED = "restored"
    REFUSED = "refused"


class NoticeHistory:
    """Moments are milliseconds. Written and read by the thread that runs cycles only."""

    def __init__(self) -> None:
        self._workloads: dict[tuple[str, WorkloadKey], int] = {}
        self._owners: dict[Owner, int] = {}
        self._keys: set[str] = set()  # of digests
        self.lost_ms: int | None = None  # when people were told that the source is lost; None: it is not, or not told

    def load(self, notes: Iterable[Mapping[str, Any]]) -> None:
        """The record, oldest first."""
        for note in notes:
            workload = (note["owner_kind"], note["namespace"], note["owner_name"])
            self.note(note["kind"], note["channel"], workload, at_ms=note["created_ms"], key=note["key"])

    def note(self, kind: str, channel: str, workload: WorkloadKey, *, at_ms: int, key: str = "") -> None:
        """Somebody was told about it."""
        self._workloads[kind, workload] = at_ms
        self._owners[kind, channel, workload[1]] = at_ms
        if kind == NoticeKind.DIGEST:
            self._keys.add(key)
        if kind in (NoticeKind.LOST, NoticeKind.FOUND):
            self.lost_ms = at_ms if kind == NoticeKind.LOST else None

    def is_due(self, kind: str, workload: WorkloadKey, *, now_ms: int, repeat_hours: float) -> bool:
        told_ms = self._workloads.get((kind, workload))
        return told_ms is None or now_ms - told_ms >= repeat_hours * 3_600_000

    def may_tell(self, owner: Owner, *, now_ms: int, minutes: float) -> bool:
        told_ms = self._owners.get(owner)
        return told_ms is None or now_ms - told_ms >= minutes * 60_000

    def has_told(self, key: str) -> bool:
        return key in self._keys

    def forget(self, before_ms: int) -> None:
        """What is older than any of the waits."""
        self._workloads = {key: ms for key, ms in self._workloads.items() if ms >= before_ms}
        self._owners = {key: ms for key, ms in self._owners.items() if ms >= before_ms}


def clean_key(workload: WorkloadKey) -> WorkloadKey:
    """As the record has it."""
    kind, namespace, name = workload
    return clean_text(kind), clean_text(namespace), clean_text(name)
