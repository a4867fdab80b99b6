"""The limits of the agent, and whether a run meets them."""

from dataclasses import dataclass

from bench.results import Results

KIB = 1024
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Bar:
    """An upper limit and the measured value."""

    promise: str
    limit: float
    measured: float
    unit: str
    judged_by: str

    @property
    def verdict(self) -> str:
        return "PASS" if self.measured <= self.limit else "MISSED"


def judge(results: Results) -> list[Bar]:
    """The limits of the agent on the first node: 8 GPUs, 64 processes, 64 pods."""
    agent, nvitop, endurance = results.comparisons[0].agent, results.comparisons[0].nvitop, results.endurance
    highest = max(agent.peak_rss, endurance.peak_rss)
    return [
        Bar("RSS", 38, highest * KIB / MB, "MB", "VmHWM: the most it ever had, start-up and endurance included"),
        Bar(
            "RSS compared with nvitop-exporter",
            1.1,
            agent.peak_rss / nvitop.peak_rss,
            "times",
            "VmHWM of both while they ran side by side",
        ),
        Bar("CPU at the 5 s interval", 0.25, agent.cpu_share(5) * 100, "% of a core", "median of the idle windows"),
        Bar("CPU of a scrape", 2, agent.highest_scrape_cpu, "ms", "the highest of the ways to scrape below"),
        Bar("RSS over 5,000 cycles", 50, endurance.bytes_a_cycle, "bytes a cycle", "after the first 1,000"),
        Bar(
            "RSS stays flat under scrapes and pod changes",
            1,
            endurance.growth_kib * KIB / MB,
            "MB of growth",
            "first five readings after the warm-up to the last five, median to median",
        ),
    ]
