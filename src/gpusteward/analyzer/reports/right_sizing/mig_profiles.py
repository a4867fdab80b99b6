"""MIG profiles by board: the share of compute and memory of each.

Names and fractions are those of NVIDIA's MIG user guide ("Supported MIG Profiles") and of the GPU operator's default
configuration. Profiles with media extensions have the same size as those without; the profile of the whole board is
omitted, since it is not smaller. Boards whose profiles are not documented there are left out rather than guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusteward.analyzer.judge.gpu_models import split_words

MIB = 1 << 20
USABLE_OF_NOMINAL = 0.9
"""An instance has less memory than its fraction of the board: 9.5 of 10 GiB on an A100 80GB, 16.0 of 17.5 on an H200,
which is the lowest known. A profile is only suggested for what certainly fits."""
SAME_MEMORY_RATIO = 0.06  # driver and ECC reserve some; the closest two boards of one name differ by a sixth


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A part of a board."""

    name: str
    compute_fraction: float
    memory_fraction: float

    @property
    def board_fraction(self) -> float:
        """The part that is unavailable to others: the larger of the two."""
        return max(self.compute_fraction, self.memory_fraction)


@dataclass(frozen=True, slots=True)
class MigBoard:
    """A board that can be divided."""

    words: frozenset[str]  # all of them occur in the model name
    memory_mib: int
    profiles: tuple[MigProfile, ...]  # smallest first


_OF_SEVEN = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4))  # compute slices of 7, memory slices of 8
_OF_FOUR = ((1, 1), (2, 2))


def _board(words: str, memory_mib: int, names: str) -> MigBoard:
    profiles = names.split()
    shapes, compute, memory = (_OF_SEVEN, 7, 8) if len(profiles) == len(_OF_SEVEN) else (_OF_FOUR, 4, 4)
    made = [
        MigProfile(name, compute_slices / compute, memory_slices / memory)
        for name, (compute_slices, memory_slices) in zip(profiles, shapes, strict=True)
    ]
    return MigBoard(frozenset(words.split()), memory_mib, tuple(made))


_40_GB = "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb"
_80_GB = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb"
_94_GB = "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb"
_96_GB = "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb"
_141_GB = "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb"

BOARDS: tuple[MigBoard, ...] = (
    _board("A30", 24576, "1g.6gb 2g.12gb"),
    _board("A100", 40960, _40_GB),
    _board("A100", 81920, _80_GB),
    _board("A800", 40960, _40_GB),
    _board("A800", 81920, _80_GB),
    _board("H100", 81559, _80_GB),
    _board("H800", 81559, _80_GB),
    _board("H100", 95830, _94_GB),
    _board("H800", 95830, _94_GB),
    _board("GH200", 97871, _96_GB),
    _board("H20", 97871, _96_GB),
    _board("H200", 143771, _141_GB),
    _board("B200", 183359, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb"),
    _board("GB200", 189471, "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb"),
    _board("RTX PRO 6000", 97887, "1g.24gb 2g.48gb"),
)


def find_board(model: str, memory_bytes: float, boards: Sequence[MigBoard] = BOARDS) -> MigBoard | None:
    """The board with this name and memory; None if it has no MIG or is not known."""
    words = set(split_words(model))
    return next((board for board in boards if words >= board.words and _is_near(board, memory_bytes)), None)


def _is_near(board: MigBoard, memory_bytes: float) -> bool:
    return abs(memory_bytes / MIB - board.memory_mib) <= SAME_MEMORY_RATIO * board.memory_mib
