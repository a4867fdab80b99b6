"""Idle spells: the periods of an allocation without work, from the last work seen to the next."""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature


class SpellEnd(StrEnum):
    """What ended an idle spell."""

    WORK = "work"  # work was seen again
    RELEASED = "released"  # the allocation ended: its pod was deleted, or finished
    RECLAIMED = "reclaimed"  # gpusteward took the GPU back
    LOST = "lost"  # the data ended: whether there was work is unknown


@dataclass(frozen=True, slots=True)
class IdleSpell:
    """One period without work of one allocation. Times are unix seconds."""

    workload: WorkloadKey
    allocation_id: int
    started_at: float  # the last work seen, or the start of the data where none was seen
    ended_at: float | None  # None: still idle
    proof: Proof  # of its last verdict: energy proves idleness only after a while
    signature: Signature  # the last one
    ended_by: SpellEnd | None  # None: still idle
    gpus: float  # the fraction of a GPU that the allocation holds
    model: str
    pod: str = ""

    def lasted(self, now: float) -> float:
        """Its length in seconds, until now where it is still going on."""
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)
