"""To whom, when and how often: the channels of a namespace, quiet hours, and which notices were sent when.

The history is kept in memory; at a start it is filled from the ledger's table `notices`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpusteward.analyzer.notify.notices.formatting import safe_label
from gpusteward.analyzer.notify.outbox.records import NoticeKind, channel_target
from gpusteward.analyzer.setting_values import read_zone, split_hours
from gpusteward.analyzer.settings.notify import EVERY_OTHER, NotifySettings, split_names, urls_of
from gpusteward.analyzer.sources.owners.owner_resolver import NOTIFY_ANNOTATION
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log

log = Log(__name__)

_MAX_WARNINGS = 1000


class ChannelRouter:
    """The channel named by the pod's annotation, else those of its namespace in the settings, else the default ones.

    An annotation can name a channel of the settings. Any other value is ignored, so no tenant can choose an address.
    """

    def __init__(self, settings: NotifySettings) -> None:
        self._by_namespace: dict[str, tuple[str, ...]] = {
            namespace: tuple(split_names(names)) for namespace, names in settings.namespaces.items()
        }
        named = {name for names in self._by_namespace.values() for name in names}
        others = self._by_namespace.pop(EVERY_OTHER, ())
        self.default = others or tuple(name for name in settings.channels if name not in named)
        self._addresses = {name: len(urls_of(secret)) for name, secret in settings.channels.items()}
        self._warned: set[tuple[str, str]] = set()

    def find(self, namespace: str, *, annotation: str = "") -> tuple[str, ...]:
        """Names of channels."""
        if annotation in self._addresses:
            return (annotation,)
        if annotation:
            self._warn(namespace, annotation)
        return self._by_namespace.get(namespace) or self.default

    def namespaces_by_channel(self) -> Mapping[str, tuple[str, ...]]:
        """The namespaces of each channel; empty: all namespaces."""
        channels: dict[str, tuple[str, ...]] = {}
        for namespace, names in self._by_namespace.items():
            for name in names:
                channels[name] = (*channels.get(name, ()), namespace)
        return channels | dict.fromkeys(self.default, ())

    def targets(self, channel: str) -> list[str]:
        """One per address of the channel."""
        return [channel_target(channel, number) for number in range(self._addresses.get(channel, 0))]

    def _warn(self, namespace: str, annotation: str) -> None:
        """Once per value and in total bounded: a tenant must not be able to fill the log."""
        if (namespace, annotation) in self._warned or len(self._warned) >= _MAX_WARNINGS:
            return
        self._warned.add((namespace, annotation))
        value = safe_label(annotation, max_length=63)
        log.warning("channel_unknown", annotation=NOTIFY_ANNOTATION, namespace=namespace, value=value)


def is_quiet(at: float, hours: str, zone: str) -> bool:
    """Whether a time lies within the quiet hours, which may span midnight."""
    span = split_hours(hours)
    if span is None:
        return False
    now = datetime.fromtimestamp(at, read_zone(zone)).time()
    begin, end = span
    return begin <= now < end if begin <= end else now >= begin or now < end


RateKey = tuple[str, str, str, str]  # kind of notice, channel, cluster, namespace


class NoticeHistory:
    """The repeat interval of a workload, and the rate limit of a channel and namespace. Times are milliseconds.

    Not thread-safe: `notifier.Notifier` has the lock.
    """

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
