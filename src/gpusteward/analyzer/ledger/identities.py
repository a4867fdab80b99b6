"""Ids and descriptive columns of allocations, as the table `allocations` stores them."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.core.node.containers import Container, normalize_label
from gpusteward.core.usages import AllocationKey

MAX_TEXT_BYTES = 253
"""The longest name Kubernetes allows. Longer texts are not genuine, and an index cannot hold them."""
NO_LABELS = "{}"
_DIGEST_BYTES = 8
_63_BITS = (1 << 63) - 1
_CACHE_LIMIT = 20_000

LabelPairs = tuple[tuple[str, str], ...]
"""Names and values of labels."""
TextColumns = dict[str, Sequence[Any]]


class AllocationFacts(NamedTuple):
    """Columns of `allocations` that describe an allocation; the fields have the names of the columns."""

    id: int
    cluster: str
    namespace: str
    pod: str
    pod_uid: str
    container: str
    owner_kind: str
    owner_name: str
    user_name: str
    node: str
    gpu_uuid: str
    gpu_instance: str
    gpu_index: str
    model: str
    share: str
    labels: str


class Attributes(NamedTuple):
    """Columns of `allocations` that can change while the id stays the same: an owner is often found later."""

    owner_kind: str
    owner_name: str
    user_name: str
    node: str
    gpu_index: str
    model: str
    share: str
    labels: str


class PodFacts(NamedTuple):
    """What the labels of a pod say: its user, and the recorded labels as a JSON object."""

    user: str = ""
    labels: str = NO_LABELS


def make_allocation_id(allocation: AllocationKey) -> int:
    """The same id for the same container on the same device, in every process. Without a cluster it is as it was
    before clusters were recorded."""
    one = allocation.container
    text = f"{one.namespace}\0{one.pod}\0{one.pod_uid}\0{one.name}\0{allocation.gpu_uuid}\0{allocation.gpu_instance}"
    text = f"{text}\0{one.cluster}" if one.cluster else text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest, "big") & _63_BITS


def hash_attributes(allocation: AllocationKey, facts: PodFacts) -> int:
    """Changes when an attribute changes. Valid within one process only."""
    kind, name = name_owner(allocation.container)
    attributes = Attributes(
        owner_kind=kind,
        owner_name=name,
        user_name=facts.user,
        node=allocation.node,
        gpu_index=allocation.gpu_index,
        model=allocation.model,
        share=allocation.share,
        labels=facts.labels,
    )
    return hash(attributes)


def make_identity(allocation: AllocationKey, *, allocation_id: int, facts: PodFacts) -> AllocationFacts:
    container = allocation.container
    kind, name = name_owner(container)
    return AllocationFacts(
        id=allocation_id,
        cluster=clean_text(container.cluster),
        namespace=clean_text(container.namespace),
        pod=clean_text(container.pod),
        pod_uid=clean_text(container.pod_uid),
        container=clean_text(container.name),
        owner_kind=clean_text(kind),
        owner_name=clean_text(name),
        user_name=clean_text(facts.user),
        node=clean_text(allocation.node),
        gpu_uuid=clean_text(allocation.gpu_uuid),
        gpu_instance=clean_text(allocation.gpu_instance),
        gpu_index=clean_text(allocation.gpu_index),
        model=clean_text(allocation.model),
        share=clean_text(allocation.share),
        labels=facts.labels,
    )


@dataclass(frozen=True, slots=True)
class NewAllocations:
    """Allocations whose row must be written. Texts are made in blocks: in the first cycle all allocations are new."""

    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # ascending
    allocations: Sequence[AllocationKey] = ()
    read_facts: Callable[[Container], PodFacts] = lambda _: PodFacts()

    def __len__(self) -> int:
        return len(self.ids)

    def in_blocks(self, size: int, chosen: Sequence[int] | None = None) -> Iterator[tuple[Sequence[int], TextColumns]]:
        """The numbers of each block, all or the chosen ones, and their columns by the names of `AllocationFacts`."""
        numbers = range(len(self)) if chosen is None else chosen
        for first in range(0, len(numbers), size):
            block = numbers[first : first + size]
            keys = [(int(self.ids[number]), self.allocations[number]) for number in block]
            rows = [make_identity(key, allocation_id=id_, facts=self.read_facts(key.container)) for id_, key in keys]
            yield block, dict(zip(AllocationFacts._fields, zip(*rows, strict=True), strict=True))


def name_owner(container: Container) -> tuple[str, str]:
    """Kind and name of the workload; a pod without an owner is its own workload."""
    owner = container.workload
    return ("Pod", container.pod) if owner is None else (owner.kind, owner.name)


class PodLabels:
    """Finds the user and the recorded labels of a pod."""

    def __init__(self, user_labels: Sequence[str], labels: Sequence[str] = ()) -> None:
        """`user_labels`: names of labels, the most important first. `labels`: those that are recorded."""
        self._users = UserLabels(user_labels)
        self._recorded = {normalize_label(label): label for label in labels}
        self._encoded: dict[LabelPairs, str] = {}

    def read(self, container: Container) -> PodFacts:
        labels = container.pod_labels
        if not labels:
            return PodFacts(container.user)
        return PodFacts(container.user or self._users.find_user(labels), self._encode(labels))

    def _encode(self, labels: LabelPairs) -> str:
        """The pods of a workload have the same labels, so results are cached."""
        encoded = self._encoded.get(labels)
        if encoded is None:
            if len(self._encoded) >= _CACHE_LIMIT:
                self._encoded.clear()
            encoded = self._encoded[labels] = self._select(labels)
        return encoded

    def _select(self, labels: LabelPairs) -> str:
        found = {normalize_label(name): clean_text(value) for name, value in labels if value}
        chosen = {label: found[name] for name, label in self._recorded.items() if name in found}
        return json.dumps(chosen, ensure_ascii=False, separators=(",", ":")) if chosen else NO_LABELS


class UserLabels:
    """Finds the user of a pod in its labels."""

    def __init__(self, labels: Sequence[str]) -> None:
        """`labels`: names of labels, the most important first."""
        self._ranks = {normalize_label(label): rank for rank, label in reversed(list(enumerate(labels)))}

    def find_user(self, labels: LabelPairs) -> str:
        """Empty if no label names a user."""
        if not labels:
            return ""
        ranks = self._ranks
        named = [(ranks[key], value) for name, value in labels if value and (key := normalize_label(name)) in ranks]
        return min(named)[1] if named else ""


def clean_text(text: str) -> str:
    """A text that every database can store: labels come from outside, and PostgreSQL refuses NUL."""
    if len(text) <= MAX_TEXT_BYTES // 4 and text.isprintable():
        return text
    return text.replace("\0", "?").encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore")
