"""What a policy is looked up by: a workload with its labels and the annotations of everything around it."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Protocol

from gpusteward.analyzer.reclaim.kinds.registry import WorkloadObjects
from gpusteward.analyzer.reclaim.policies.annotations import KEEP, PREFIX, read_keep
from gpusteward.analyzer.reclaim.policies.effective import EffectivePolicy
from gpusteward.analyzer.reclaim.policies.file import WatchedPolicies
from gpusteward.analyzer.reclaim.policies.resolve import WorkloadFacts, resolve_policy
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.messages import Message


class Policies(Protocol):
    """The policies in effect."""

    @property
    def version(self) -> object:
        """Another object after every change."""

    @property
    def problem(self) -> Message | None:
        """Why there are no policies: nothing new is warned of or done meanwhile."""

    def refresh(self) -> None:
        """Take over changes; called once per cycle, and before an action."""

    def find_policy(self, subject: WorkloadFacts) -> EffectivePolicy:
        """The nearest setting wins; a tenant may only make it more careful."""


class FilePolicies:
    """Those of the policy file."""

    def __init__(self, file: WatchedPolicies) -> None:
        self._file = file

    @property
    def version(self) -> object:
        return self._file.current

    @property
    def problem(self) -> Message | None:
        return self._file.error

    def refresh(self) -> None:
        self._file.poll()

    def find_policy(self, subject: WorkloadFacts) -> EffectivePolicy:
        return resolve_policy(self._file.current, subject)


def make_subject(
    key: WorkloadKey, objects: WorkloadObjects, *, models: Iterable[str], namespace_annotations: Mapping[str, str]
) -> WorkloadFacts:
    """Of several annotations of one name, that of the pod wins over that of its owner; of `keep` the longest one."""
    nearest_last = [*reversed(objects.owners), *objects.pods]
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    keeps = [one.annotations[KEEP] for one in nearest_last if KEEP in one.annotations]
    for one in nearest_last:
        annotations |= {name: value for name, value in one.annotations.items() if name.startswith(PREFIX)}
        labels |= one.labels
    if keeps:
        annotations[KEEP] = max(keeps, key=_rank_keep)
    classes = {str(pod.spec.get("priorityClassName") or "") for pod in objects.pods}
    return WorkloadFacts(
        key,
        sorted(set(models) - {""}),
        labels,
        classes.pop() if len(classes) == 1 else "",
        annotations,
        namespace_annotations,
    )


def _rank_keep(value: str) -> float:
    """Until when it keeps; one that cannot be read keeps for ever."""
    try:
        return read_keep(value.strip())
    except (ValueError, OverflowError):
        return inf
