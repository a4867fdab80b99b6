"""The pure parts of the agent's bench: reading the kernel's counters, checking the limits, rendering the tables."""

import os
import time

import pytest

from bench.agent import Floor, Results, judge, render_report
from bench.compare import Comparison, Measured, read_collectors
from bench.endurance import Endurance, Moment
from bench.exporters import ScrapeCost
from bench.measure import About, Memory, cpu_clock_of, parse_stat, parse_status, read_cpu_seconds
from bench.report import at_most, render_bars, render_table

STATUS = "Name:\tgpusteward\nVmPeak:\t  99 kB\nVmHWM:\t   43000 kB\nVmRSS:\t   42000 kB\nRssAnon:\t   28000 kB\n"


def measured(*, rss: int = 34_000, share: float = 0.002, scrape: float = 0.5, lone: float = 1.0) -> Measured:
    memory = Memory(rss, rss // 2, rss)
    return Measured(
        idle_shares={"5 s": [share, share, share * 9]},
        scraped_shares=[share, share],
        memory=dict.fromkeys(("started", "idle", "scraped"), memory),
        scrapes={"identity": [ScrapeCost(scrape, 2 * scrape)] * 3},
        lone_scrapes={"gzip": [ScrapeCost(lone, 2 * lone)] * 3},
        collectors={"nvml": [0.001]},
        page_bytes={"identity": 348_480},
        series=1594,
    )


def endurance(*rss: int, step: int = 0) -> Endurance:
    moments = [Moment(100 * n, 250 * n, 50 * n, Memory(kib, kib // 2, max(rss))) for n, kib in enumerate(rss, 1)]
    return Endurance(Memory(rss[0], rss[0] // 2, rss[0]), moments, [rss[0] + step * n for n in range(30)])


def results(agent: Measured, enduring: Endurance) -> Results:
    comparison = Comparison(
        8, 64, 64, (5.0,), [0.1], agent=agent, nvitop=measured(rss=33_500, share=0.009, scrape=14.0)
    )
    floor = Floor(8, 64, 145, [0.05], [1.0], [8.0], {"nvml": 1.0, "rest": 3.0})
    about = About("make bench", "2026-11-15", "a processor", 2, "Linux", "CPython", "glibc", {})
    return Results(about, [comparison], [floor], enduring)


def verdicts(agent: Measured, enduring: Endurance) -> list[str]:
    return [bar.verdict for bar in judge(results(agent, enduring))]


def test_memory_is_read_from_a_status_file():
    assert parse_status(STATUS) == Memory(rss=42000, anonymous=28000, peak=43000)


def test_a_busy_machine_is_read_from_its_stat_file():
    assert parse_stat("cpu  100 20 30 9000 400 5 6 7 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n", 100) == 1.68


def test_the_cpu_clock_of_a_process_is_the_one_the_c_library_makes():
    assert read_cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.5)
    assert time.clock_gettime(cpu_clock_of(os.getpid())) <= time.process_time()


def test_collector_durations_are_read_from_the_page():
    line = 'gpusteward_collector_duration_seconds{node="a",collector="nvml"} 0.001052\n'
    assert read_collectors(f"# HELP x\n{line}gpusteward_cycles_total 3\n") == {"nvml": 0.001052}


def test_a_bar_holds_up_to_its_limit_and_is_missed_above_it():
    assert at_most("RSS", 45, 45.0, "MB", "").verdict == "PASS"
    assert at_most("RSS", 45, 45.001, "MB", "").verdict == "MISSED"


def test_all_bars_hold_where_everything_is_within_its_limit():
    assert verdicts(measured(), endurance(*[34_000] * 40)) == ["PASS"] * 6


@pytest.mark.parametrize(
    ("agent", "enduring", "missed"),
    [
        (measured(), endurance(*[37_300] * 40), 0),
        (measured(rss=37_000), endurance(*[34_000] * 40), 1),
        (measured(share=0.004), endurance(*[34_000] * 40), 2),
        (measured(scrape=2.1), endurance(*[34_000] * 40), 3),
        (measured(lone=2.1), endurance(*[34_000] * 40), 3),
        (measured(), endurance(*[34_000] * 40, step=10), 4),
        (measured(), endurance(*range(30_000, 34_000, 100)), 5),
    ],
)
def test_each_bar_is_missed_by_itself(agent: Measured, enduring: Endurance, missed: int):
    assert [number for number, verdict in enumerate(verdicts(agent, enduring)) if verdict == "MISSED"] == [missed]


def test_growth_during_warm_up_does_not_count():
    assert endurance(*range(30_000, 40_000, 1000), *[40_000] * 30).growth_mb == 0


def test_the_source_text_of_a_table_is_aligned():
    assert render_table(("what", "ms"), [("a", "1.5"), ("longer", "10")]) == (
        "| what   |  ms |\n| ------ | --: |\n| a      | 1.5 |\n| longer |  10 |\n"
    )


def test_a_missed_bar_is_written_as_missed():
    row = render_bars([at_most("CPU of a scrape", 2, 2.5, "ms", "")]).splitlines()[2]
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["CPU of a scrape", "2 ms", "2.5", "MISSED"]


def test_the_report_shows_both_sides_of_every_ratio():
    page = render_report(results(measured(scrape=0.5), endurance(*[34_000] * 40)))
    row = next(line for line in page.splitlines() if line.startswith("| CPU of a scrape, identity"))
    assert [cell.strip() for cell in row.split("|")][2:5] == ["0.500", "14.0", "28.0"]
