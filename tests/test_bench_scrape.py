"""The pure parts of the embedded source's bench: pages of other nodes, the limits, the report."""

import gzip

import pytest

from bench.measure import About, Memory
from bench.scrape import Parts, Results, judge, measure_parts, render_report
from bench.scrape_nodes import GOLDEN, GPUS_PER_NODE, VARIANTS, pack_pages, read_variants, rename
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource

ABOUT = About("make bench", "2026-11-15", "a processor", 2, "Linux", "CPython", "glibc", {})
PARTS = Parts(100.0, 5.0, 400.0, [200.0], 121_000, 128_000_000)


def results(*, share: float = 0.1, peak: int = 400_000, failed: int = 0) -> Results:
    return Results(
        about=ABOUT,
        nodes=1000,
        interval=15,
        seconds=120,
        page_bytes=129_006,
        packed_bytes=8192,
        first_round_seconds=9,
        first_round_cpu=8,
        shares=[share] * 4,
        others=[0.1] * 4,
        memory=Memory(peak, peak, peak),
        scrapes_ok=9000,
        scrapes_failed=failed,
        cycle_seconds=[0.5],
        allocations=7000,
        parts=PARTS,
    )


def test_every_node_has_its_own_page_with_changing_values():
    first, second = (gzip.decompress(pages[0]) for pages in pack_pages(2))
    assert first.count(b"\n") == second.count(b"\n") == GOLDEN.read_bytes().count(b"\n")
    assert len(set(read_variants())) == VARIANTS
    source = ScrapeSource(ScrapeSettings(selector=""), window_seconds=600)
    for number, page in enumerate((first, second)):
        source.ingest(str(number), page, 1e9)
    table = source.read(1e9)
    assert sum(table.fleet.values()) == 2 * GPUS_PER_NODE
    assert len(table) == len({one.gpu_uuid for one in table.allocations}) == 14
    assert b"node-00007" in rename(first.replace(b"node-00000", b"node-a"), 7)


@pytest.mark.parametrize(
    ("measured", "missed"),
    [(results(), []), (results(share=1.1), [0]), (results(peak=600_000), [1]), (results(failed=1), [2])],
)
def test_each_bar_is_missed_by_itself(measured: Results, missed: list[int]):
    assert [number for number, bar in enumerate(judge(measured)) if bar.verdict == "MISSED"] == missed


def test_the_report_names_its_command_and_its_bars():
    page = render_report(results())
    assert "Made by `make bench`" in page
    assert page.count("PASS") == 3


def test_the_parts_are_measured_on_a_few_nodes_too():
    parts = measure_parts(2, interval=60)
    assert parts.series == 2 * 145
    assert 0 < parts.steady_microseconds < parts.first_milliseconds * 1000
