"""Columns made from the allocations: identity, GPU model, owner kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusteward.core.node.containers import Container, WorkloadKey
from gpusteward.core.node.gpus import Share
from gpusteward.core.usages import AllocationKey

AllocationHashes = NDArray[np.int64]
"""The hash of cluster, namespace, pod, container, GPU uuid and MIG instance of each row: 50,000 texts take 10 MB.
Python hashes to 64 bits with a random key per process, so a collision cannot be provoked; by chance two of 50,000
rows collide in one of fourteen billion clusters."""
Mask = NDArray[np.bool_]
Counts = NDArray[np.intp]

_WHOLE_SHARES = ("", Share.EXCLUSIVE)


@dataclass(frozen=True)
class CodedColumn:
    """A column of few different texts: the text of a row is `names[codes[row]]`."""

    names: tuple[str, ...]
    codes: NDArray[np.intp]

    def among(self, wanted: Sequence[str]) -> Mask:
        """Which rows have one of these texts."""
        return self.where(lambda name: name in wanted)

    def where(self, is_wanted: Callable[[str], bool]) -> Mask:
        """Which rows have a text of this kind."""
        return np.array([is_wanted(name) for name in self.names], dtype=bool)[self.codes]


@dataclass(frozen=True)
class AllocationColumns:
    """What the rules need of each allocation, one entry per row."""

    hashes: AllocationHashes
    models: CodedColumn
    owner_kinds: CodedColumn  # "" where the owner is unknown
    is_device: Mask  # not a MIG instance: memory and power are those of the board
    is_whole: Mask  # a device that is not shared


def read_allocation_columns(allocations: Sequence[AllocationKey]) -> AllocationColumns:
    """The only loop over all allocations in `judge`."""
    is_device = np.array([not allocation.gpu_instance for allocation in allocations], dtype=bool)
    shares = encode([allocation.share for allocation in allocations])
    return AllocationColumns(
        np.fromiter(map(_hash, allocations), np.int64, len(allocations)),
        encode([allocation.model for allocation in allocations]),
        encode([owner.kind if (owner := allocation.container.workload) else "" for allocation in allocations]),
        is_device,
        is_device & shares.among(_WHOLE_SHARES),
    )


def find_owners(containers: Sequence[Container]) -> tuple[list[WorkloadKey], Counts]:
    """The root owners, and the number of the owner of each row; a pod without an owner is its own workload."""
    numbers: dict[WorkloadKey, int] = {}
    different = {id(each): each for each in containers}  # rows of one pod share it
    codes = {id_: numbers.setdefault(each.workload_key, len(numbers)) for id_, each in different.items()}
    return list(numbers), np.fromiter((codes[id(each)] for each in containers), np.intp, len(containers))


def _hash(allocation: AllocationKey) -> int:
    one = allocation.container
    return hash((one.cluster, one.namespace, one.pod, one.name, allocation.gpu_uuid, allocation.gpu_instance))


def encode(texts: Sequence[str]) -> CodedColumn:
    """The different texts in order of appearance, and the number of the text of each row."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return CodedColumn(tuple(numbers), np.fromiter(map(numbers.__getitem__, texts), np.intp, len(texts)))
