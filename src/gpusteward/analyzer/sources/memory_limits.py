"""What may be kept of everything that other systems send: plain caps, all of them from one number.

`memory.budget_bytes` stays a setting because it is the one number that a larger site raises, together with the memory
limit of its container; settings for each cap would only let them contradict it. Of the budget, 128 MiB are the
program's: 100 MB without any data, and what API, ledger and notifications need. The divisors of the rest were chosen by
the growth of VmHWM of `gpusteward serve` with the sites that it must hold at the default of 512 MiB (50,000 GPUs of an
engine, 1,000 scraped nodes of 8 GPUs), and with engines and pages that are made to fill it.
"""

from dataclasses import dataclass, replace
from typing import Self

MIB = 1 << 20
DEFAULT_BUDGET_BYTES = 512 * MIB
"""The memory limit of the manifest; used where the process has no limit."""
SMALLEST_BUDGET_BYTES = 192 * MIB
_PROGRAM_BYTES = 128 * MIB
TARGET_SHARE = 16
"""One target may fill this part of what is kept of all, so that a few hostile ones cannot fill it."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Numbers of rows and series, and bytes as they are sent or stored."""

    budget: int
    rows: int  # holders of an engine and their details; as many of its devices
    row_label_bytes: int  # the labels of its holders, as they are sent; as many of its devices
    response: int  # a response that is read in pieces; three are read at once
    whole_response: int  # a response that is decoded as a whole, which takes up to 18 times its size
    series: int  # of all scraped targets
    label_bytes: int  # the labels of these series, as they are on the pages
    window_bytes: int  # their values
    pages: int  # pages that are being received at the same time
    page: int  # one page, as it is sent and decoded

    @classmethod
    def of_budget(cls, budget: int) -> Self:
        rest = max(budget, SMALLEST_BUDGET_BYTES) - _PROGRAM_BYTES
        return cls(
            budget,
            rows=rest // 2000,
            row_label_bytes=rest // 6,
            response=rest // 8,
            whole_response=rest // 64,
            series=rest // 2400,
            label_bytes=rest // 8,
            window_bytes=rest * 5 // 12,
            pages=rest // 16,
            page=rest // 32,
        )

    def divide(self, count: int) -> Self:
        """The limits of each of several engines, which are read at the same time."""
        return replace(
            self,
            rows=self.rows // count,
            row_label_bytes=self.row_label_bytes // count,
            response=self.response // count,
            whole_response=self.whole_response // count,
        )


DEFAULT_LIMITS = MemoryLimits.of_budget(DEFAULT_BUDGET_BYTES)
