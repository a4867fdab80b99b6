"""What the holdings say, in columns: who holds what, which model, which kind of owner."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusteward.core.allocations import Share
from gpusteward.core.usages import AllocationKey

AllocationKeys = NDArray[np.int64]
"""Of each row the hash of namespace, pod, container, gpu uuid and MIG instance: as texts 50,000 are 10 MB. Python
hashes to 64 bits under a key drawn at every start, so nobody can aim for a collision; by chance two of 50,000 rows meet
in one of fourteen billion clusters."""
Mask = NDArray[np.bool_]

_WHOLE_SHARES = ("", Share.EXCLUSIVE)


@dataclass(frozen=True)
class Coded:
    """A column of few different texts: each row's text is `names[codes[row]]`."""

    names: tuple[str, ...]
    codes: NDArray[np.intp]

    def among(self, wanted: Sequence[str]) -> Mask:
        """Which rows have one of these texts."""
        return np.array([name in wanted for name in self.names], dtype=bool)[self.codes]


@dataclass(frozen=True)
class Keys:
    """One entry a row."""

    allocations: AllocationKeys
    models: Coded
    owner_kinds: Coded  # "" where the owner is unknown
    is_device: Mask  # not an instance: the board's own memory and power are spoken of
    is_whole: Mask  # a device that nobody shares


def read_keys(allocations: Sequence[AllocationKey]) -> Keys:
    """The only look at each holding that `judge` takes."""
    is_device = np.array([not allocation.gpu_instance for allocation in allocations], dtype=bool)
    shares = encode([allocation.share for allocation in allocations])
    return Keys(
        np.fromiter(map(_hash, allocations), np.int64, len(allocations)),
        encode([allocation.model for allocation in allocations]),
        encode([owner.kind if (owner := allocation.container.workload) else "" for allocation in allocations]),
        is_device,
        is_device & shares.among(_WHOLE_SHARES),
    )


def _hash(allocation: AllocationKey) -> int:
    container = allocation.container
    return hash((container.namespace, container.pod, container.name, allocation.gpu_uuid, allocation.gpu_instance))


def encode(texts: Sequence[str]) -> Coded:
    names, codes = number_texts(texts)
    return Coded(tuple(names), codes)


def number_texts(texts: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The different texts in order of appearance, and which of them each row has. Nothing is sorted."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(numbers), np.fromiter(map(numbers.__getitem__, texts), np.intp, len(texts))
