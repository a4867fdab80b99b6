"""Who an allocation is: its number for ever, and what is written down of it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.core.containers import Container
from gpusteward.core.usages import AllocationKey

LONGEST_BYTES = 253
"""As Kubernetes allows for a name. Longer texts come from nobody honest, and an index has no room for them."""
_DIGEST_BYTES = 8
_63_BITS = (1 << 63) - 1


class Identity(NamedTuple):
    """In the order of the columns of `allocations`, up to the share."""

    id: int
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


def make_allocation_id(allocation: AllocationKey) -> int:
    """The same number for the same container on the same device, in every process and in every year."""
    one = allocation.container
    text = f"{one.namespace}\0{one.pod}\0{one.pod_uid}\0{one.name}\0{allocation.gpu_uuid}\0{allocation.gpu_instance}"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest, "big") & _63_BITS


def mark(allocation: AllocationKey, user: str) -> int:
    """Changes when something of an allocation changes that is not its identity: an owner is often learnt later."""
    kind, name = name_owner(allocation.container)
    return hash((kind, name, user, allocation.node, allocation.gpu_index, allocation.model, allocation.share))


def describe(allocation: AllocationKey, *, number: int, user: str) -> Identity:
    one = allocation.container
    texts = (
        *(one.namespace, one.pod, one.pod_uid, one.name, *name_owner(one), user),
        *(
            allocation.node,
            allocation.gpu_uuid,
            allocation.gpu_instance,
            allocation.gpu_index,
            allocation.model,
            allocation.share,
        ),
    )
    return Identity(number, *map(clean_text, texts))


@dataclass(frozen=True, slots=True)
class NewAllocations:
    """Who has to be written down. In words only some at a time: at the first cycle it is everybody."""

    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # rising
    allocations: Sequence[AllocationKey] = ()
    users: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def in_blocks(self, size: int) -> Iterator[list[Identity]]:
        rows = zip(self.ids.tolist(), self.allocations, self.users, strict=True)
        while block := [describe(one, number=number, user=user) for number, one, user in islice(rows, size)]:
            yield block


def name_owner(container: Container) -> tuple[str, str]:
    """Kind and name; a pod nobody owns is its own workload."""
    owner = container.workload
    return ("Pod", container.pod) if owner is None else (owner.kind, owner.name)


class Users:
    """Pod labels -> a user."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._ranks = {_flatten(label): rank for rank, label in reversed(list(enumerate(labels)))}

    def find(self, labels: tuple[tuple[str, str], ...]) -> str:
        """Of the first label in order that a pod has; empty: nobody is named."""
        if not labels:
            return ""
        ranks = self._ranks
        named = [(ranks[key], value) for name, value in labels if value and (key := _flatten(name)) in ranks]
        return min(named)[1] if named else ""


def _flatten(label: str) -> str:
    """Prometheus knows `hub.jupyter.org/username` as `label_hub_jupyter_org_username`."""
    return re.sub(r"[^a-z0-9]", "_", label.lower()).removeprefix("label_")


def clean_text(text: str) -> str:
    """What any database can keep: labels come from outside, and PostgreSQL refuses a NUL."""
    if len(text) <= LONGEST_BYTES // 4 and text.isprintable():
        return text
    return text.replace("\0", "?").encode("utf-8", "replace")[:LONGEST_BYTES].decode("utf-8", "ignore")
