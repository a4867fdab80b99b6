"""Verdicts about workloads, written down only when they change."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.workloads import WorkloadKey, WorkloadTable
from gpusteward.analyzer.ledger.identities import clean_text
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STATES

Message = tuple[str, str, str]  # activity, signature, state: what counts as a change


class Change(NamedTuple):
    """A row of `verdict_changes`, without its number and its moment."""

    owner_kind: str
    namespace: str
    owner_name: str
    activity: str
    signature: str
    state: str
    score: float | None
    gpus: int
    idle_gpus: int
    idle_since_ms: int | None

    @property
    def said(self) -> Message:
        return self.activity, self.signature, self.state


@dataclass
class Changes:
    """What one cycle changed."""

    made: dict[WorkloadKey, Change] = field(default_factory=dict)
    gone: list[WorkloadKey] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.made) + len(self.gone)


class Sayings:
    """What was last said of every workload that is there."""

    def __init__(self, said: dict[WorkloadKey, Message] | None = None) -> None:
        self._said = said or {}

    def copy(self) -> "Sayings":
        return Sayings(dict(self._said))

    def compare(self, workloads: WorkloadTable) -> Changes:
        """A workload that comes back is new: what was said of it is over."""
        codes = (workloads.activity.tolist(), workloads.signature.tolist(), workloads.state.tolist())
        changes = Changes()
        for number, (key, *code) in enumerate(zip(workloads.keys, *codes, strict=True)):
            if self._said.get(key) != _name(*code):
                changes.made[key] = _describe(workloads, number)
        if len(self._said) + sum(key not in self._said for key in changes.made) > len(workloads):
            there = set(workloads.keys)
            changes.gone = [key for key in self._said if key not in there]
        return changes

    def news(self, changes: Changes) -> Iterator[Change]:
        """Those of the changes that are not said yet."""
        return (change for key, change in changes.made.items() if self._said.get(key) != change.said)

    def adopt(self, changes: Changes) -> None:
        for key in changes.gone:
            self._said.pop(key, None)
        self._said.update((key, change.said) for key, change in changes.made.items())


_NAMES: dict[tuple[int, int, int], Message] = {
    (activity, signature, state): (ACTIVITIES[activity].value, SIGNATURES[signature].value, STATES[state].value)
    for activity in range(len(ACTIVITIES))
    for signature in range(len(SIGNATURES))
    for state in range(len(STATES))
}
"""Every verdict there can be, made once: 50,000 workloads then share a few tuples."""


def _name(activity: int, signature: int, state: int) -> Message:
    return _NAMES[activity, signature, state]


def _describe(workloads: WorkloadTable, number: int) -> Change:
    kind, namespace, name = workloads.keys[number]
    score, since = workloads.score[number], workloads.idle_since[number]
    said = _name(*(int(codes[number]) for codes in (workloads.activity, workloads.signature, workloads.state)))
    return Change(
        *(clean_text(kind), clean_text(namespace), clean_text(name), *said),
        None if np.isnan(score) else float(score),
        int(workloads.gpus[number]),
        int(workloads.idle_gpus[number]),
        None if np.isnan(since) else int(since * 1000),
    )
