"""Verdicts of workloads that differ from the last recorded ones: only those are written.

Idle time that begins later under the same verdict is a change too: after a gap that nobody measured, or with a new pod.
Otherwise a restart would restore the earlier begin, and reclaim would count time that nobody has seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.ledger.identities import clean_text
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STATES
from gpusteward.core.node.containers import WorkloadKey

LATER_MS = 1000
"""A begin that moves by less is the same one, rounded in another way."""


class LastVerdict(NamedTuple):
    """What counts as a change if it differs; of idle time, if it begins later."""

    activity: str
    signature: str
    state: str
    idle_since_ms: int | None = None

    def is_followed_by(self, new: "LastVerdict") -> bool:
        """Whether there is nothing new in it."""
        if self[:3] != new[:3]:
            return False
        before, now = self.idle_since_ms, new.idle_since_ms
        return before is None or now is None or now <= before + LATER_MS


@lru_cache(maxsize=1000)
def share_verdict(activity: str, signature: str, state: str) -> LastVerdict:
    """The same object for the same words: 50,000 workloads share a few."""
    return LastVerdict(activity, signature, state)


class VerdictChange(NamedTuple):
    """A row of `verdict_changes` without its id and time; the fields have the names of the columns."""

    cluster: str
    owner_kind: str
    namespace: str
    owner_name: str
    activity: str
    signature: str
    state: str
    score: float | None
    gpus: int  # allocations, under the name of the column
    idle_gpus: int
    idle_since_ms: int | None

    @property
    def verdict(self) -> LastVerdict:
        shared = share_verdict(self.activity, self.signature, self.state)
        return shared if self.idle_since_ms is None else shared._replace(idle_since_ms=self.idle_since_ms)


@dataclass
class VerdictChanges:
    """The changes of one cycle."""

    changed: dict[WorkloadKey, VerdictChange] = field(default_factory=dict)
    removed: list[WorkloadKey] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.changed) + len(self.removed)


class LastVerdicts:
    """The last verdict of every workload that exists."""

    def __init__(self, verdicts: dict[WorkloadKey, LastVerdict] | None = None) -> None:
        self._verdicts = verdicts or {}

    def copy(self) -> "LastVerdicts":
        return LastVerdicts(dict(self._verdicts))

    def compare(self, workloads: WorkloadTable) -> VerdictChanges:
        """A workload that disappeared and reappears is new: its earlier verdict no longer counts."""
        codes = (workloads.activity.tolist(), workloads.signature.tolist(), workloads.state.tolist())
        begins = np.nan_to_num(workloads.idle_since * 1000, nan=_NEVER).tolist()
        changes = VerdictChanges()
        for row, (key, begin, code) in enumerate(zip(workloads.keys, begins, zip(*codes, strict=True), strict=True)):
            last, words = self._verdicts.get(key), _VERDICTS[code]
            since = last.idle_since_ms if last is not None else None
            is_same = last is not None and last[:3] == words[:3]
            if not is_same or (since is not None and begin > since + LATER_MS):
                changes.changed[key] = _make_change(workloads, row)
        if len(self._verdicts) + sum(key not in self._verdicts for key in changes.changed) > len(workloads):
            existing = set(workloads.keys)
            changes.removed = [key for key in self._verdicts if key not in existing]
        return changes

    def select_unrecorded(self, changes: VerdictChanges) -> Iterator[VerdictChange]:
        """Those of the changes that differ from the last verdicts."""
        for key, change in changes.changed.items():
            last = self._verdicts.get(key)
            if last is None or not last.is_followed_by(change.verdict):
                yield change

    def apply(self, changes: VerdictChanges) -> None:
        for key in changes.removed:
            self._verdicts.pop(key, None)
        self._verdicts.update((key, change.verdict) for key, change in changes.changed.items())


_NEVER = -1.0
_VERDICTS: dict[tuple[int, int, int], LastVerdict] = {
    (activity, signature, state): share_verdict(
        ACTIVITIES[activity].value, SIGNATURES[signature].value, STATES[state].value
    )
    for activity in range(len(ACTIVITIES))
    for signature in range(len(SIGNATURES))
    for state in range(len(STATES))
}
"""By the codes of every possible verdict."""


def _make_change(workloads: WorkloadTable, row: int) -> VerdictChange:
    key = workloads.keys[row]
    score, since = workloads.score[row], workloads.idle_since[row]
    words = _VERDICTS[int(workloads.activity[row]), int(workloads.signature[row]), int(workloads.state[row])]
    return VerdictChange(
        cluster=clean_text(key.cluster),
        owner_kind=clean_text(key.kind),
        namespace=clean_text(key.namespace),
        owner_name=clean_text(key.name),
        activity=words.activity,
        signature=words.signature,
        state=words.state,
        score=None if np.isnan(score) else float(score),
        gpus=int(workloads.allocations[row]),
        idle_gpus=int(workloads.idle_allocations[row]),
        idle_since_ms=None if np.isnan(since) else int(since * 1000),
    )
