"""What this process has seen of workloads in earlier cycles. Not stored: a new process has seen nothing yet, and is
careful for a while."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusteward.core.containers import WorkloadKey


@dataclass(slots=True)
class Sighting:
    """Of a workload in consecutive cycles."""

    uid: str
    cycles: int = 0  # in which it was idle, or had surplus replicas
    last_at: float = 0.0
    sampled_at: float | None = None  # when its idleness was last proven by sampled gauges only
    pods: frozenset[object] = frozenset()
    sampled_pods: dict[object, float] = field(default_factory=dict)  # the same of single pods


class Candidate(NamedTuple):
    """An idle workload, or a pool, in one result."""

    key: WorkloadKey
    uid: str
    is_sampled: bool
    pods: frozenset[object] = frozenset()  # names and uids
    sampled_pods: frozenset[object] = frozenset()


class Sightings:
    """Used by the thread that runs cycles."""

    def __init__(self) -> None:
        self._seen: dict[WorkloadKey, Sighting] = {}
        self._last_at: float | None = None

    def update(self, candidates: Iterable[Candidate], *, at: float) -> None:
        """A workload that is not among them, or has another uid, starts again, and is seen for the first time if it has
        new pods. The same result twice counts once."""
        if at == self._last_at:
            return
        self._last_at = at
        seen: dict[WorkloadKey, Sighting] = {}
        for key, uid, is_sampled, pods, sampled_pods in candidates:
            before = self._seen.get(key)
            sighting = before if before is not None and before.uid == uid else Sighting(uid)
            sighting.cycles = sighting.cycles + 1 if pods <= sighting.pods else 1
            sighting.pods = pods
            sighting.last_at = at
            sighting.sampled_at = at if is_sampled else sighting.sampled_at
            known = {pod: last for pod, last in sighting.sampled_pods.items() if pod in pods}
            sighting.sampled_pods = known | dict.fromkeys(sampled_pods, at)
            seen[key] = sighting
        self._seen = seen

    def find(self, key: WorkloadKey) -> Sighting:
        return self._seen.get(key) or Sighting("")


@dataclass(slots=True)
class _Series:
    known_since: float
    points: deque[tuple[float, int]] = field(default_factory=deque)


class PoolHistory:
    """How many replicas of a pool were active at once, over the last hours."""

    LONGEST_SECONDS = 86_400.0

    def __init__(self) -> None:
        self._series: dict[WorkloadKey, _Series] = {}

    def add(self, key: WorkloadKey, *, active: int, at: float, most_gap_seconds: float) -> None:
        """After a gap it starts again: what happened meanwhile is not known."""
        series = self._series.get(key)
        if series is None or (series.points and at - series.points[-1][0] > most_gap_seconds):
            series = self._series[key] = _Series(at)
        if not series.points or series.points[-1][0] < at:
            series.points.append((at, active))
        while series.points[0][0] < at - self.LONGEST_SECONDS:
            series.points.popleft()
        series.known_since = max(series.known_since, at - self.LONGEST_SECONDS)

    def find_most_active(self, key: WorkloadKey, *, now: float, seconds: float) -> int | None:
        """The most replicas that were active at once; None if the whole time is not known."""
        series = self._series.get(key)
        if series is None or series.known_since > now - seconds:
            return None
        return max((active for at, active in series.points if at >= now - seconds), default=None)

    def forget(self, keys: Iterable[WorkloadKey]) -> None:
        """All others."""
        kept = set(keys)
        self._series = {key: series for key, series in self._series.items() if key in kept}
