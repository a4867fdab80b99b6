"""`EndedRecord`: the part of a cycle record about holders that ended before the cycle.

Their time is recorded once: a cycle records what lies between the cycle before and itself, and nothing else. On one
device it never adds up to more than the time of the device: a holder that ended yields to the one that is there now,
and of two that ended the later one begins when the earlier one has ended.

Pods that followed each other under one name are holders of their own. Where no source knows their uids they have one
id, and one row in the tables.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.judge.gpu_fraction import compute_gpu_fractions
from gpusteward.analyzer.ledger.identities import NewAllocations, PodLabels, make_allocation_id
from gpusteward.analyzer.tables import Column, EndedHolder, UsageTable
from gpusteward.core.usages import AllocationKey

IntColumn = NDArray[np.int64]
PriceOf = Callable[[str, str], int]  # model, namespace -> micros per GPU-hour
_NO_IDS: IntColumn = np.empty(0, np.int64)
_NO_ROWS: NDArray[np.int32] = np.empty(0, np.int32)
_NEVER_MS = 1 << 62
_LEAST_SECONDS = 60.0
"""By which a pod must have samples before its start to be another one of its name before: clocks differ, and the first
sample is known to half a scrape interval."""


@dataclass(frozen=True, kw_only=True)
class EndedRecord:
    """One row per holder, in the order of their ids; several may have the same."""

    ids: IntColumn = field(default_factory=lambda: _NO_IDS)
    began_ms: IntColumn = field(default_factory=lambda: _NO_IDS)  # 0: it was there in the last record
    ended_ms: IntColumn = field(default_factory=lambda: _NO_IDS)
    has_worked: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    gpu_fractions: Column = field(default_factory=lambda: np.empty(0))
    prices: IntColumn = field(default_factory=lambda: _NO_IDS)  # micros per GPU-hour
    fleet_rows: NDArray[np.int32] = field(default_factory=lambda: _NO_ROWS)  # as in the cycle record
    identities: NewAllocations = field(default_factory=NewAllocations)

    def __len__(self) -> int:
        return len(self.ids)


NONE_ENDED = EndedRecord()


@dataclass(frozen=True, slots=True)
class Span:
    """A holder that ended, and its time on the device."""

    holder: EndedHolder
    id: int
    began_ms: int
    ended_ms: int


def name_ended(ended: Sequence[EndedHolder], before: Sequence[AllocationKey], *, before_ms: int) -> list[EndedHolder]:
    """The same with owner, uid and start of their pods, as far as the cycle before knew them: an ended pod is often
    gone from the API server. Another pod of the same name had the same owner, and another uid."""
    gpus = {each.allocation.gpu_uuid for each in ended}
    known = {one.names: one for one in before if one.gpu_uuid in gpus} if gpus else {}
    named: list[EndedHolder] = []
    for each in ended:
        own, earlier = each.allocation.container, known.get(each.allocation.names)
        if earlier is None:
            named.append(each)
            continue
        is_same = own.pod_uid == earlier.container.pod_uid if own.pod_uid else _was_there(each, before_ms)
        container = replace(earlier.container, pod_uid=own.pod_uid, started_at=own.started_at)
        named.append(replace(each, allocation=earlier if is_same else replace(earlier, container=container)))
    return named


def _was_there(ended: EndedHolder, at_ms: int) -> bool:
    return int(ended.sampled_at * 1000) <= at_ms < ended.ended_at * 1000


def find_replaced(
    new: Sequence[AllocationKey],
    before: Sequence[AllocationKey],
    ended: Sequence[EndedHolder],
    *,
    before_ms: int,
    at: float,
) -> list[EndedHolder]:
    """Pods whose place a new one of the same name took so quickly that no sample is missing between them: they ended
    when that one started. Whether they worked is not known."""
    gpus = {one.gpu_uuid for one in new if one.container.started_at is not None}
    known = {one.names: one for one in before if one.gpu_uuid in gpus and one.container.pod_uid} if gpus else {}
    returned_at = {each.allocation.names: each.returned_at for each in ended}  # after the last one of each name
    has_ended = {each.allocation.names for each in ended if each.ended_at * 1000 > before_ms}
    found: list[EndedHolder] = []
    for one in new:
        started_at, names = one.container.started_at, one.names
        earlier, begin, least = known.get(names), before_ms / 1000, 0.0
        if names in has_ended:  # then it was another one, which no cycle has seen
            earlier = replace(one, container=replace(one.container, pod_uid="", started_at=None))
            begin, least = returned_at[names], _LEAST_SECONDS
        if earlier is not None and started_at is not None and begin + least < started_at <= at:
            found.append(EndedHolder(earlier, started_at, 0.0, started_at - begin, has_worked=False))
    return found


def find_gpu(allocation: AllocationKey) -> Hashable:
    return allocation.cluster, allocation.gpu_uuid or (allocation.node, allocation.gpu_index)


def place_ended(
    ended: Sequence[EndedHolder],
    held_ids: IntColumn,
    held_since: Mapping[Hashable, Mapping[str, int]],
    *,
    before_ms: int,
) -> list[Span]:
    """The time of each, without overlaps. `held_ids`: of the last record, which was at `before_ms`. `held_since`: when
    those began who hold a GPU now, by its MIG instance; "" is the whole GPU, which excludes all instances."""
    by_gpu = defaultdict[Hashable, list[Span]](list)
    was_held = set(held_ids.tolist()) if len(ended) else set[int]()
    ended_at: dict[Hashable, float] = {}  # the last one of each name
    for each in sorted(ended, key=lambda one: one.last_at):
        names, gpu, id_ = each.allocation.names, find_gpu(each.allocation), make_allocation_id(each.allocation)
        is_known = id_ in was_held and _was_there(each, before_ms)
        began_ms = 0 if is_known else int(each.find_begin(ended_at.get(names, 0.0)) * 1000)
        ended_at[names] = each.ended_at
        until_ms = min(_list_conflicts(held_since.get(gpu, {}), each.allocation.gpu_instance), default=_NEVER_MS)
        by_gpu[gpu].append(Span(each, id_, began_ms, min(int(each.ended_at * 1000), until_ms)))
    placed: list[Span] = []
    for spans in by_gpu.values():
        last_ms: dict[str, int] = {}  # by MIG instance
        for span in sorted(spans, key=lambda one: (one.ended_ms, one.began_ms)):
            instance = span.holder.allocation.gpu_instance
            began_ms = max((span.began_ms, *_list_conflicts(last_ms, instance)))
            if began_ms < span.ended_ms:
                placed.append(replace(span, began_ms=began_ms))
                last_ms[instance] = span.ended_ms
    return sorted(placed, key=lambda span: span.id)


def _list_conflicts(times: Mapping[str, int], instance: str) -> list[int]:
    """The times of those that cannot have been on the GPU together with this instance."""
    return [time for other, time in times.items() if not instance or other in ("", instance)]


def make_ended_record(
    spans: Sequence[Span],
    *,
    pod_labels: PodLabels,
    price_of: PriceOf,
    fleet_rows: NDArray[np.int32],
) -> EndedRecord:
    """`fleet_rows`: the position of each span's GPU in the fleet."""
    if not spans:
        return NONE_ENDED
    allocations = [span.holder.allocation for span in spans]
    ids = np.array([span.id for span in spans], np.int64)
    return EndedRecord(
        ids=ids,
        began_ms=np.array([span.began_ms for span in spans], np.int64),
        ended_ms=np.array([span.ended_ms for span in spans], np.int64),
        has_worked=np.array([span.holder.has_worked for span in spans], np.bool_),
        # Alone on its device: those before and after it did not share it.
        gpu_fractions=np.concatenate([compute_gpu_fractions(UsageTable(0.0, 0.0, [one])) for one in allocations]),
        prices=list_prices(allocations, price_of),
        fleet_rows=fleet_rows,
        identities=NewAllocations(ids, allocations, pod_labels.read),
    )


def list_prices(allocations: Sequence[AllocationKey], price_of: PriceOf) -> IntColumn:
    prices = (price_of(one.model, one.container.namespace) for one in allocations)
    return np.fromiter(prices, np.int64, len(allocations))
