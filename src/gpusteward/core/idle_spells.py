"""Idle spells: the periods of an allocation without work, from the last work seen to the next."""

from enum import StrEnum


class SpellEnd(StrEnum):
    """What ended an idle spell."""

    WORK = "work"  # work was seen again
    RELEASED = "released"  # the allocation ended: its pod was deleted, or finished
    RECLAIMED = "reclaimed"  # gpusteward took the GPU back
    LOST = "lost"  # the data ended: whether there was work is unknown
