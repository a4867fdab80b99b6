"""Verdicts of workloads that differ from the last recorded ones: only those are written."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.ledger.identities import clean_text
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STATES
from gpusteward.core.node.containers import WorkloadKey


class VerdictWords(NamedTuple):
    """What counts as a change if it differs."""

    activity: str
    signature: str
    state: str


@lru_cache(maxsize=1000)
def share_words(activity: str, signature: str, state: str) -> VerdictWords:
    """The same object for the same words: 50,000 workloads share a few."""
    return VerdictWords(activity, signature, state)


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
    def words(self) -> VerdictWords:
        return share_words(self.activity, self.signature, self.state)


@dataclass
class VerdictChanges:
    """The changes of one cycle."""

    changed: dict[WorkloadKey, VerdictChange] = field(default_factory=dict)
    removed: list[WorkloadKey] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.changed) + len(self.removed)


class LastVerdicts:
    """The last verdict of every workload that exists."""

    def __init__(self, words: dict[WorkloadKey, VerdictWords] | None = None) -> None:
        self._words = words or {}

    def copy(self) -> "LastVerdicts":
        return LastVerdicts(dict(self._words))

    def compare(self, workloads: WorkloadTable) -> VerdictChanges:
        """A workload that disappeared and reappears is new: its earlier verdict no longer counts."""
        codes = (workloads.activity.tolist(), workloads.signature.tolist(), workloads.state.tolist())
        changes = VerdictChanges()
        for row, (key, code) in enumerate(zip(workloads.keys, zip(*codes, strict=True), strict=True)):
            if self._words.get(key) != _WORDS[code]:
                changes.changed[key] = _make_change(workloads, row)
        if len(self._words) + sum(key not in self._words for key in changes.changed) > len(workloads):
            existing = set(workloads.keys)
            changes.removed = [key for key in self._words if key not in existing]
        return changes

    def select_unrecorded(self, changes: VerdictChanges) -> Iterator[VerdictChange]:
        """Those of the changes that differ from the last verdicts."""
        return (change for key, change in changes.changed.items() if self._words.get(key) != change.words)

    def apply(self, changes: VerdictChanges) -> None:
        for key in changes.removed:
            self._words.pop(key, None)
        self._words.update((key, change.words) for key, change in changes.changed.items())


_WORDS: dict[tuple[int, int, int], VerdictWords] = {
    (activity, signature, state): share_words(
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
    words = _WORDS[int(workloads.activity[row]), int(workloads.signature[row]), int(workloads.state[row])]
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
