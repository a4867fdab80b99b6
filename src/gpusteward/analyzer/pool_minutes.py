"""What the replicas of a pool did in each minute: what the ledger keeps, and what the pool rule reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.core.node.containers import WorkloadKey

Counts = NDArray[np.int16]

MINUTE = 60.0
UNKNOWN = -1
"""Of a minute without a sample. Never 0."""
WEEK_MINUTES = 7 * 1440
LONGEST_MINUTES = WEEK_MINUTES + 240
"""How far back a decision looks: a week, and the minutes before the same time of day."""


@dataclass(frozen=True, slots=True)
class PoolMinutes:
    """Minute by minute without a break."""

    first: int  # the minute of the first entry: unix seconds / 60
    active: Counts  # the most that were at work at once; those that are starting count
    ready: Counts  # at the end of the minute
    wanted: Counts  # also those that are lowered at the moment
    gpus: float = 1.0  # of one replica
    start_seconds: float | None = None  # from creation to Ready; None: not known
    worked_at: Mapping[str, float] = field(default_factory=dict)  # the last work of each replica that is there now

    def __len__(self) -> int:
        return len(self.active)

    @property
    def end(self) -> int:
        """The minute after the last one."""
        return self.first + len(self.active)

    def slice(self, first: int, end: int) -> "PoolMinutes":
        """From one minute to before another; what is not there is left out."""
        begin, stop = max(0, first - self.first), max(0, end - self.first)
        return replace(
            self,
            first=self.first + min(begin, len(self)),
            active=self.active[begin:stop],
            ready=self.ready[begin:stop],
            wanted=self.wanted[begin:stop],
        )

    def append(self, later: "PoolMinutes") -> "PoolMinutes":
        """With the minutes after these; those between the two are not known, and what overlaps stays as it was."""
        later = later.slice(self.end, later.end)
        gap = np.full(max(0, later.first - self.end) if len(later) else 0, UNKNOWN, np.int16)
        return replace(
            later,
            first=self.first,
            active=np.concatenate((self.active, gap, later.active)),
            ready=np.concatenate((self.ready, gap, later.ready)),
            wanted=np.concatenate((self.wanted, gap, later.wanted)),
        )


RAISED_SECONDS = 1800.0
"""A replica that was given back this short a time ago starts because of us, and not because of more work."""
_NONE = np.empty(0, np.int16)
NO_MINUTES = PoolMinutes(0, _NONE, _NONE, _NONE)


class ManagedPool(NamedTuple):
    """What reclaim knows of a pool."""

    wanted: int | None = None  # replicas before any were lowered; None: none are
    raised_at: float | None = None  # when some were given back last
    start_seconds: float | None = None  # from creation to Ready


def find_renamed(keys: Iterable[WorkloadKey], wanted: WorkloadKey) -> WorkloadKey:
    """The only one of its name in any cluster: an action that was begun before its cluster had a name has none."""
    named = [key for key in keys if key.without_cluster == wanted.without_cluster]
    return named[0] if len(named) == 1 else wanted
