"""How much memory each part of a source may take: shares of one budget, `memory.budget_bytes`.

Everything that other systems send is limited by what it costs in memory, not only by its size as it is sent. The
factors were measured as the growth of VmHWM of `gpusteward serve`, or are sizes of CPython's objects; each stands with
its derivation where it is used.

    program    128 MiB: 100 MB without any data, and what API, ledger and notifications need
    rest       the budget without the program: of the default, 384 MiB
      engine   3/4 rows that are kept and everything computed from them; 1/4 responses that are being read
      scraping 25/32 series that are kept; 1/16 pages that are being received; 5/32 for decoding and parsing one of
               them, and for the table of a cycle
"""

from dataclasses import dataclass
from typing import Self

from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import source_errors as messages

MIB = 1 << 20
DEFAULT_BUDGET_BYTES = 512 * MIB
"""The memory limit of the manifest; used where the process has no limit."""
SMALLEST_BUDGET_BYTES = 192 * MIB
_PROGRAM_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """In bytes."""

    budget: int
    rows: int  # rows of an engine and what is computed from them
    response: int  # a response that is read in pieces
    whole_response: int  # a response that is decoded as a whole
    store: int  # series of all scraped targets
    target: int  # series of one target
    pages: int  # pages that are being received at the same time
    page: int  # one page, as it is sent and decoded

    @classmethod
    def of_budget(cls, budget: int) -> Self:
        rest = max(budget, SMALLEST_BUDGET_BYTES) - _PROGRAM_BYTES
        return cls(
            budget,
            rows=rest * 3 // 4,
            # Three are read at once (two queries that the engine computes, and one more). The rows of a result are
            # kept until it is complete: 24 bytes of at least 37 that a row has as text, so 0.65 bytes per byte.
            response=rest // 8,
            # The worst is a matrix: `[1,"ab"],` has 9 bytes and becomes a tuple, a number, a text and a reference to
            # them, 144 bytes. 16 times, and twice for the text itself while it is decoded.
            whole_response=rest // 64,
            store=rest * 25 // 32,
            # So that a few hostile targets cannot fill the store.
            target=rest * 25 // 32 // 16,
            pages=rest // 16,
            # Decoded page by page: its parts, the joined page, and up to three times its size for its lines.
            page=rest // 32,
        )

    def divide(self, count: int) -> Self:
        """The limits of each of several engines, which are read at the same time."""
        return type(self)(
            self.budget,
            self.rows // count,
            self.response // count,
            self.whole_response // count,
            self.store,
            self.target,
            self.pages,
            self.page,
        )


SERIES_BYTES = 2600
"""Of a counter that is kept for an hour at the default interval: 242 values of 8 bytes with spare columns, and
`scrape.target_samples.LINE_BYTES` with its labels."""


def measure_text(text: str | bytes) -> int:
    """The most that a text takes, as Python keeps it: one character outside Latin-1 makes all of them larger."""
    return len(text) if text.isascii() else 4 * len(text)


class RowMemory:
    """What the rows of one index may take. Not thread-safe."""

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits
        self.taken = 0
        self.reserved = 0  # by other indexes
        self._rows = 0

    def take(self, size: int, *, rows: int = 0) -> None:
        """Raises SourceError if it does not fit."""
        self.taken += size
        self._rows += rows
        if self.taken + self.reserved > self._limits.rows:
            budget = self._limits.budget
            raise SourceError(messages.TOO_MANY_ROWS, rows=self._rows, before=budget, budget=2 * budget)


DEFAULT_LIMITS = MemoryLimits.of_budget(DEFAULT_BUDGET_BYTES)
