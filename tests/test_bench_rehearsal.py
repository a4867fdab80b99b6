"""The scale rehearsal's own parts: its nodes, the comparison with the truth, what counts as flat, the report."""

import gzip
import urllib.request
from collections.abc import Iterator

import pytest

from bench.measure import About
from bench.programs import run_module
from bench.rehearsal_nodes import GPUS_PER_NODE, create_nodes
from bench.rehearsal_report import ANALYZER, PROGRAMS, Cycle, Reading, Results, Scraped, judge, render_report
from bench.rehearsal_truth import EDGE, ENDED, RESTED, WORKED, YOUNG, Comparison, compare, list_truths, name_truth
from gpusteward.simulate.ground_truth import Truth
from gpusteward.simulate.load_curves import Between
from gpusteward.simulate.workloads import Kind

ABOUT = About("make bench", "2026-11-16", "a processor", 2, "Linux", "CPython", "glibc", {})
AT, WINDOW, EDGE_SECONDS = 1e9, 600.0, 15.0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with run_module("bench.rehearsal_nodes", 2, 12) as (_, port):
        yield port


def results(*, analyzer_growth_kib: int = 0, failed: int = 0, wrong: int = 0, unknown: int = 3) -> Results:
    readings = [
        Reading(60.0 * n, (n * 1.0, n * 0.5, n * 0.1), (900_000, 150_000 + n * analyzer_growth_kib, 80_000), 0.1, n, n)
        for n in range(31)
    ]
    return Results(
        about=ABOUT,
        nodes=500,
        gpus=4000,
        minutes=30,
        cycle_seconds=60,
        window_seconds=WINDOW,
        scrape_seconds=15,
        readings=readings,
        cycles=[Cycle(60.0, 1.5, 6000, unknown, 1.0)],
        failed_cycles=failed,
        comparisons=[Comparison(AT, {WORKED: {"active": 5, "idle": wrong}}, 0)],
        scraped=Scraped(300_000, 20_000, 0, [5, 9], [20, 30], 40_000, 160_000, 11_000),
    )


def test_every_node_has_eight_gpus_and_a_name_of_its_own():
    nodes = create_nodes(20, seed=1)
    assert {node.gpu_count for node in nodes} == {GPUS_PER_NODE}
    assert len({node.name for node in nodes}) == 20
    truths = list_truths(nodes, AT)
    assert len(truths) > 20 * GPUS_PER_NODE * 0.8
    assert any("/" in gpu for *_, gpu in truths)  # a MIG instance, as the API names it
    assert truths.keys() == list_truths(create_nodes(20, seed=1), AT).keys()


def test_a_page_is_rendered_for_each_scrape(port: int):
    name = create_nodes(2, seed=12)[1].name
    pages = [read_page(f"http://127.0.0.1:{port}/{name}/metrics") for _ in range(2)]
    assert all(f'node="{name}"'.encode() in page for page in pages)
    assert pages[0] != pages[1]


def read_page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        return gzip.decompress(response.read())


@pytest.mark.parametrize(
    ("begins", "ends", "name"),
    [
        (AT - 300, AT - 200, WORKED),
        (AT - 900, AT - 700, RESTED),
        (AT - 10, AT, EDGE),
        (AT - 700, AT - 590, EDGE),
    ],
)
def test_work_counts_where_the_samples_cover_it(begins: float, ends: float, name: str):
    truth = Truth(Kind.NOTEBOOK, Between(begins, ends), AT - 5000)
    assert name_truth(truth, AT, window=WINDOW, edge=EDGE_SECONDS) == name


def test_young_and_ended_pods_are_rows_of_their_own():
    young = Truth(Kind.NOTEBOOK, Between(AT - 100, AT), AT - 100)
    assert name_truth(young, AT, window=WINDOW, edge=EDGE_SECONDS) == YOUNG
    assert name_truth(None, AT, window=WINDOW, edge=EDGE_SECONDS) == ENDED


def test_a_comparison_counts_wrong_verdicts_and_missing_allocations():
    working = Truth(Kind.NOTEBOOK, Between(AT - 300, AT - 200), AT - 5000)
    row = {"namespace": "a", "pod": "b", "container": "c", "gpu": "GPU-1", "activity": "idle"}
    truths = {("a", "b", "c", "GPU-1"): working, ("a", "b", "c", "GPU-2"): working}
    found = compare([row], truths, at=AT, window=WINDOW, edge=EDGE_SECONDS)
    assert (found.wrongly_idle, found.missing, found.count("idle")) == (1, 1, 1)


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        (results(), []),
        (results(failed=1), ["failed cycles"]),
        (results(wrong=2), ["working allocations judged idle"]),
        (results(unknown=6000), ["unknown allocations"]),
        (results(analyzer_growth_kib=500), ["growth of the analyzer's memory"]),
    ],
)
def test_each_limit_is_missed_by_itself(measured: Results, missed: list[str]):
    assert [bar.promise for bar in judge(measured) if bar.verdict == "MISSED"] == missed


def test_the_slope_is_that_of_the_time_after_the_warm_up():
    grown, own = results(analyzer_growth_kib=1000), PROGRAMS.index(ANALYZER)
    assert grown.slope_mb_per_hour(own) == pytest.approx(60 * 1.024)
    assert grown.cpu_share(own) == pytest.approx(0.5 / 60)
    assert [results().is_flat(number) for number in range(3)] == [True] * 3
    assert not grown.is_flat(own)


def test_the_report_has_its_command_and_every_program():
    page = render_report(results())
    assert "Made by `make bench`" in page
    assert all(f"| {name}" in page for name in PROGRAMS)
