"""Samples over time: ring buffers, counters, gaps, targets and pods that come and go."""

import threading
import tracemalloc
from functools import partial

import numpy as np
import pytest

from gpusteward.analyzer.sources.scrape.page_parser import NO_LABELS, NO_MEMORY
from gpusteward.analyzer.sources.scrape.ring_buffers import measure_increase
from gpusteward.analyzer.sources.scrape.sample_store import PageOrigin, SampleStore, StoreOptions, TargetSummary
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.label_mapping import ClusterChoice
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons
from tests.analyzer.sources.scrape.test_page_parser import AT, STEP, of_one_target, page
from tests.analyzer.tables import of_pod
from tests.constants import make_settings

pytestmark = pytest.mark.slow


def idle_source(**settings: object) -> ScrapeSource:
    return ScrapeSource(make_settings(ScrapeSettings, selector="", **settings), window_seconds=600)


def feed(source: ScrapeSource, pages: list[str], *, target: str = "n1:9400", start: float = AT) -> float:
    """When the last one was scraped."""
    for number, text in enumerate(pages):
        source.ingest(target, text.encode(), start + STEP * number)
    return start + STEP * (len(pages) - 1)


def test_a_window_is_open_at_its_start_and_closed_at_its_end():
    source = idle_source()
    feed(source, [page(core="100"), *[page(core="10")] * 40])
    usage = of_pod(source.read(AT + 600), "one")
    assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.1)
    assert usage.coverage == 1.0
    assert of_pod(source.read(AT + 599), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(1.0)


def test_samples_after_the_end_of_the_window_are_not_used():
    source = idle_source()
    feed(source, [page(core="10")] * 10 + [page(core="90")])
    assert of_pod(source.read(AT + 9 * STEP + 1), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.1)


def test_a_ring_buffer_that_wrapped_many_times_still_has_the_window():
    source = idle_source(keep_windows=1)
    end = feed(source, [page(core=str(number % 50)) for number in range(500)])
    usage = of_pod(source.read(end), "one")
    last = [number % 50 for number in range(460, 500)]
    assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(sum(last) / 4000)
    assert usage.stats[Measure.CORE, Stat.SPREAD] == pytest.approx(np.std(last) / 100)


def test_a_failed_scrape_makes_its_rows_unknown_and_lowers_their_coverage():
    source = idle_source()
    end = feed(source, [page()] * 30)
    source.store.add_failed_scrape("n1:9400", end + STEP)
    table = source.read(end + STEP)
    assert table.unknown == {0: unknown_reasons.NO_CURRENT_SAMPLE}
    assert table.coverage[0] == pytest.approx(30 / 40)
    feed(source, [page()], start=end + 2 * STEP)
    assert source.read(end + 2 * STEP).unknown == {}


def test_a_pod_that_is_no_longer_on_the_page_has_ended_and_its_device_stays():
    source = idle_source()
    end = feed(source, [page("one")] * 10)
    free = page("one").replace('pod="one"', 'pod=""').replace('namespace="ml"', 'namespace=""')
    feed(source, [free], start=end + STEP)
    table = source.read(end + STEP)
    assert len(table) == 0
    assert table.fleet == {NodeModel("n1", "A100"): 1}


def test_a_page_without_gpus_gives_an_empty_table_and_its_parse_errors_are_kept():
    source = idle_source()
    feed(source, ["node_load1 0.5\nDCGM_FI_DEV_GPU_UTIL{broken} 5\n"] * 3)
    assert len(source.read(AT + 60)) == 0
    assert source.store.describe_target("n1:9400") == TargetSummary(
        0, {NO_LABELS: 3}, {NO_LABELS: "DCGM_FI_DEV_GPU_UTIL 5"}
    )


def test_reading_and_ingesting_at_the_same_time_do_not_affect_each_other():
    source = idle_source()
    feed(source, [page("steady")])
    is_over = threading.Event()

    def add_pods() -> None:
        number = 0
        while not is_over.is_set() and number < 3000:
            number += 1
            source.ingest("other", page(f"pod-{number}").encode(), AT + number / 100)

    adding = threading.Thread(target=add_pods)
    adding.start()
    try:
        for _ in range(60):
            assert "steady" in {one.container.pod for one in source.read(AT + 40).allocations}
    finally:
        is_over.set()
        adding.join()


def test_a_target_that_is_not_scraped_any_more_expires_with_all_its_samples():
    source = idle_source(keep_windows=1)
    end = feed(source, [page()] * 5)
    source.store.drop_expired(end + 599)
    assert source.store.series == 2
    source.store.drop_expired(end + 601)
    assert (source.store.series, len(source.store), source.store.nbytes) == (0, 0, 0)


def test_expired_series_no_longer_count_towards_the_limit():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=of_one_target(series=30)))
    for number in range(300):
        store.ingest("a", page(f"pod-{number}").encode(), AT + 15 * number)
    assert store.series <= 30
    assert NO_MEMORY not in str(store.describe_target("a").error_counts)


def test_one_target_cannot_fill_the_memory_with_long_labels():
    """A page may have as many long lines as its size allows, and different ones at every scrape."""
    store = SampleStore(StoreOptions(interval=15, keep_seconds=3600, limits=of_one_target(label_bytes=2 << 20)))
    tracemalloc.start()
    try:
        for number in range(8):
            text = "".join(page(f"{number}-{pod}" + "x" * 7_500) for pod in range(50))
            store.ingest("a", text.encode(), AT + 15 * number)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * (2 << 20)
    assert store.describe_target("a").error_counts[NO_MEMORY] == 8 * 100 - store.series


def test_long_labels_of_expired_series_are_dropped_even_if_they_are_few():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=15))
    tracemalloc.start()
    try:
        for number in range(40):
            text = "".join(page(f"{number}-{pod}" + "x" * 7_500) for pod in range(50))
            store.ingest("a", text.encode(), AT + 15 * number)
            store.read_window(AT + 15 * number, 15)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 15 << 20, "all labels ever scraped would be 30 MB"


def test_rows_of_pods_deleted_long_ago_are_dropped_and_the_others_keep_their_values():
    source = ScrapeSource(make_settings(ScrapeSettings, selector="", keep_windows=1), window_seconds=60)
    for number in range(70):
        gone = "".join(page(f"pod-{number}-{other}") for other in range(300))
        source.ingest("a", (page("steady", core="30") + gone).encode(), AT + 15 * number)
        source.ingest("b", page("other", core="60").encode(), AT + 15 * number)
    end = AT + 15 * 69
    rows = source.store.read_window(end, 60).rows
    assert sum(map(len, rows.holders.values())) < 5_000
    table = source.read(end)
    assert of_pod(table, "steady").stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.3)
    assert of_pod(table, "other").stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.6)
    assert of_pod(table, "pod-69-7").stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.5)


def test_label_values_that_change_with_every_page_are_dropped_too():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60))
    peaks = []
    for number in range(90):
        text = "".join(page(str(pod), modelName=f"{number}-{pod}", **{f"l{number}_{pod}": "x"}) for pod in range(300))
        store.ingest("a", text.encode(), AT + 15 * number)
        store.read_window(AT + 15 * number, 60)
        with store.lock_targets() as (series_labels, _):
            peaks.append(series_labels.interpreted)
    assert max(peaks) == max(peaks[:60]), "it grows no further"


def test_after_a_clock_was_set_back_the_window_starts_again():
    source = idle_source()
    feed(source, [page(core="90")] * 20)
    end = feed(source, [page(core="10")] * 4, start=AT - 3600)
    usage = of_pod(source.read(end), "one")
    assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.1)
    assert usage.coverage == pytest.approx(4 / 40)


def test_two_pages_with_the_same_time_count_once():
    source = idle_source()
    feed(source, [page(core="10")] * 4)
    assert source.ingest("n1:9400", page(core="90").encode(), AT + 3 * STEP) == 0
    assert of_pod(source.read(AT + 3 * STEP), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.1)


def test_only_series_that_match_the_condition_are_used():
    condition = parse_condition('{pod!="", namespace=~"m.", Hostname!="n2"}')
    source = ScrapeSource(ScrapeSettings(selector=""), window_seconds=600, condition=condition)
    feed(source, [page("one") + page("two", namespace="other") + page("three", Hostname="n2")])
    assert [one.container.pod for one in source.read(AT + 1).allocations] == ["one"]


def test_a_label_of_the_target_is_used_where_the_page_has_none():
    source = idle_source()
    nameless = page("one").replace('Hostname="n1",', "")
    source.store.ingest("10.0.0.7:9400", nameless.encode(), AT, make_origin=lambda: PageOrigin({"node": "gpu-7"}))
    source.store.ingest("10.0.0.8:9400", nameless.replace("one", "two").encode(), AT)
    assert {one.node for one in source.read(AT + 1).allocations} == {"gpu-7", "10.0.0.8:9400"}


def test_a_device_that_two_nodes_report_is_unknown():
    source = idle_source()
    feed(source, [page("one")], target="a")
    feed(source, [page("one", Hostname="n2")], target="b")
    assert source.read(AT + 1).unknown == {0: unknown_reasons.REPORTED_BY_TWO_NODES}


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([0, 10, 20, 30], 40.0),  # the ends are near: extrapolated to both
        ([100, 110, np.nan, 130], 40.0),
        ([50, 60, 5, 15], 100 / 3),  # 10, then from 0 to 5, then 10
        ([np.nan, np.nan, 7, 7], 0.0),
        ([np.nan, 7, np.nan, np.nan], np.nan),
    ],
)
def test_the_increase_of_a_counter_is_that_of_prometheus(values: list[float], grown: float):
    times = np.array([15.0, 30.0, 45.0, 60.0])
    block = np.array(values)[:, None] + (1000.0 if values[0] == 0 else 0.0)
    assert measure_increase(block, times, start=0.0, end=60.0)[0] == pytest.approx(grown, nan_ok=True)


def test_a_counter_is_never_extrapolated_to_below_zero():
    block, times = np.array([[1.0], [11.0], [21.0]]), np.array([15.0, 30.0, 45.0])
    assert measure_increase(block, times, start=0.0, end=45.0)[0] == pytest.approx(21.0)


def test_targets_of_several_clusters_are_kept_apart_and_can_be_limited():
    for choice, expected in ((ClusterChoice(), ["east", "west"]), (ClusterChoice(("west",)), ["west"])):
        store = SampleStore(StoreOptions(interval=STEP, keep_seconds=600, clusters=choice))
        for cluster, core in (("east", "0"), ("west", "50")):
            for number in range(40):
                labels = {"cluster": cluster}
                store.ingest(
                    f"{cluster}:9400",
                    page(core=core).encode(),
                    AT + STEP * number,
                    make_origin=partial(PageOrigin, labels),
                )
        source = idle_source()
        source.store = store
        table = source.read(AT + 39 * STEP)
        cores = {
            one.cluster: table.usage(row).stats[Measure.CORE, Stat.PEAK] for row, one in enumerate(table.allocations)
        }
        assert cores == {name: pytest.approx({"east": 0.0, "west": 0.5}[name]) for name in expected}
        assert {key.cluster for key in table.fleet} == set(expected)
