"""Which notices were sent when: the repeat interval of a workload and the rate limit of a channel and namespace.

Kept in memory; at a start it is filled from the ledger's table `notices`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpusteward.analyzer.ledger.identities import clean_text
from gpusteward.analyzer.notify.outbox.records import NoticeKind
from gpusteward.core.containers import WorkloadKey

RateKey = tuple[str, str, str, str]  # kind of notice, channel, cluster, namespace


class NoticeHistory:
    """Times are milliseconds. Not thread-safe: `notifier.Notifier` has the lock."""

    def __init__(self) -> None:
        self._workloads: dict[tuple[str, WorkloadKey], dict[str, int]] = {}  # by channel
        self._rates: dict[RateKey, int] = {}
        self._digest_keys: set[str] = set()
        self.outage_ms: int | None = None  # when an outage was announced; None: there is none, or not announced

    def clear(self) -> None:
        self._workloads, self._rates, self._digest_keys, self.outage_ms = {}, {}, set(), None

    def load(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Rows of the table `notices`, oldest first."""
        for record in records:
            names = (record["owner_kind"], record["namespace"], record["owner_name"], record["cluster"])
            workload = WorkloadKey(*names)
            self.add(record["kind"], record["channel"], workload, at_ms=record["created_ms"], key=record["key"])

    def add(self, kind: str, channel: str, workload: WorkloadKey, *, at_ms: int, key: str = "") -> None:
        """A notice was written to the outbox."""
        self._workloads.setdefault((kind, workload), {})[channel] = at_ms
        self._rates[kind, channel, workload.cluster, workload.namespace] = at_ms
        if kind == NoticeKind.DIGEST:
            self._digest_keys.add(key)
        if kind in (NoticeKind.OUTAGE, NoticeKind.RECOVERY):
            self.outage_ms = at_ms if kind == NoticeKind.OUTAGE else None

    def forget(self, kind: str, channel: str, workload: WorkloadKey) -> None:
        """A notice was withdrawn before its receiver got it."""
        self._workloads.get((kind, workload), {}).pop(channel, None)

    def is_due(self, kind: str, workload: WorkloadKey, *, now_ms: int, repeat_hours: float) -> bool:
        sent_ms = max(self._workloads.get((kind, workload), {}).values(), default=None)
        return sent_ms is None or now_ms - sent_ms >= repeat_hours * 3_600_000

    def is_within_rate(self, key: RateKey, *, now_ms: int, minutes: float) -> bool:
        sent_ms = self._rates.get(key)
        return sent_ms is None or now_ms - sent_ms >= minutes * 60_000

    def has_digest(self, key: str) -> bool:
        return key in self._digest_keys

    def prune(self, before_ms: int) -> None:
        """Forget what no interval needs any more."""
        recent = (
            (key, {name: ms for name, ms in sent.items() if ms >= before_ms}) for key, sent in self._workloads.items()
        )
        self._workloads = {key: sent for key, sent in recent if sent}
        self._rates = {key: ms for key, ms in self._rates.items() if ms >= before_ms}


def clean_key(workload: WorkloadKey) -> WorkloadKey:
    """The key as the ledger stores it."""
    return WorkloadKey(*map(clean_text, workload))
