"""A malformed line affects no other, and is counted with its reason."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, TARGET_SHARE, MemoryLimits
from gpusteward.analyzer.sources.scrape import page_parser
from gpusteward.analyzer.sources.scrape.page_parser import parse_labels, parse_line
from gpusteward.analyzer.sources.scrape.sample_store import SampleStore, StoreOptions
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.tables import of_pod
from tests.documents import ROOT

AT = 1_790_000_000.0
STEP = 15.0

MIG_PAGE = b"""4 Active Workloads

# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd",device="nvidia0",\
modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",Hostname="nvidia-dcgm-exporter-tl46n",\
DCGM_FI_DRIVER_VERSION="520.56.06",container="main",namespace="ml",pod="sliced"} 12
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active (in %).
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-473571f2-fb37-ef7e-50fe-9885b74a23cd",device="nvidia0",\
modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",Hostname="nvidia-dcgm-exporter-tl46n",\
DCGM_FI_DRIVER_VERSION="520.56.06",container="main",namespace="ml",pod="sliced"} 0.25
"""
"""Two lines of a page of the run-ai fake-gpu-operator's tests, its title included; the holder is made up."""


def device(pod: str, **more: str) -> str:
    labels = {"gpu": "0", "UUID": f"GPU-{pod}", "modelName": "A100", "Hostname": "n1", "namespace": "ml", "pod": pod}
    return ",".join(f'{name}="{value}"' for name, value in (labels | more).items())


def page(pod: str = "one", core: str = "50", **more: str) -> str:
    inside = device(pod, **more)
    return f"DCGM_FI_DEV_GPU_UTIL{{{inside}}} {core}\nDCGM_FI_DEV_FB_USED{{{inside}}} 1024\n"


def scraped(*pages: str | bytes) -> ScrapeSource:
    source = ScrapeSource(ScrapeSettings(selector=""), window_seconds=600)
    for number, one in enumerate(pages):
        source.ingest("n1:9400", one if isinstance(one, bytes) else one.encode(), AT + STEP * number)
    return source


def read(source: ScrapeSource) -> UsageTable:
    return source.read(AT + 60)


def parse_errors(source: ScrapeSource) -> dict[str, int]:
    return dict(source.store.describe_target("n1:9400").error_counts)


def test_values_are_scaled_to_base_units_and_the_window_is_aggregated():
    usage = of_pod(read(scraped(page(core="10"), page(core="30"), page(core="80"))), "one")
    assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.4)
    assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.8)
    assert usage.stats[Measure.CORE, Stat.SPREAD] == pytest.approx(math.sqrt(2600 / 3) / 100)
    assert usage.stats[Measure.MEMORY_USED, Stat.MEAN] == 2**30
    assert usage.coverage == pytest.approx(3 / 40)


def test_a_title_on_the_page_is_ignored_and_the_engine_activity_of_a_mig_instance_is_its_core_utilization():
    usage = of_pod(read(scraped(MIG_PAGE)), "sliced")
    assert usage.allocation.gpu_instance == "7"
    assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("ERROR - FAILED TO CONVERT TO STRING", page_parser.NOT_A_NUMBER),
        ("", page_parser.NOT_A_NUMBER),
        ("0x1g", page_parser.NOT_A_NUMBER),
        ("1 2 3", page_parser.NOT_A_NUMBER),
        ("NaN", page_parser.NOT_FINITE),
        ("+Inf", page_parser.NOT_FINITE),
        ("1e300", page_parser.NOT_FINITE),
        (f"5 {(AT - 7200) * 1000:.0f}", page_parser.TOO_OLD),
    ],
)
def test_a_bad_value_affects_no_other_whether_the_series_is_new_or_known(bad: str, reason: str):
    for before in ([], [page()]):
        source = scraped(*before, page(core=bad) + page("two", core="70"))
        assert of_pod(read(source), "two").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.7)
        assert of_pod(read(source), "one").stats[Measure.MEMORY_USED, Stat.PEAK] == 2**30
        assert parse_errors(source) == {reason: 1}


def test_the_last_bad_line_of_each_reason_is_kept_without_its_labels():
    source = scraped(page(core="ERROR - FAILED TO CONVERT TO STRING"))
    assert source.store.describe_target("n1:9400").error_examples == {
        page_parser.NOT_A_NUMBER: "DCGM_FI_DEV_GPU_UTIL ERROR - FAILED TO CONVERT TO STRING"
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="0} 5', page_parser.NO_LABELS),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="0"', page_parser.NO_LABELS),
        (b"DCGM_FI_DEV_GPU_UTIL{gpu=0} 5", page_parser.NO_LABELS),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="\xff"} 5', page_parser.NO_LABELS),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="%s"} 5' % (b"x" * 20_000), page_parser.TOO_LONG),
    ],
)
def test_a_line_that_cannot_be_parsed_affects_no_other(line: bytes, reason: str):
    source = scraped(line + b"\n" + page().encode())
    assert of_pod(read(source), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.5)
    assert parse_errors(source) == {reason: 1}


def test_present_timestamps_carriage_returns_and_tabs_are_accepted():
    text = page(core=f"50 {AT * 1000:.0f}").replace("\n", "\r\n").replace("} 1024", "} \t1024")
    source = scraped(text)
    assert of_pod(read(source), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.5)
    assert parse_errors(source) == {}


def test_a_number_cut_off_by_the_end_of_the_page_is_not_used_whether_the_series_is_new_or_known():
    whole = page() + f"DCGM_FI_DEV_FB_FREE{{{device('one')}}} 40960"
    for before in ([], [whole + "\n"]):
        source = scraped(*before, whole[:-2])
        free = of_pod(read(source), "one").stats.get((Measure.MEMORY_TOTAL, Stat.LAST))
        assert free in (None, (1024 + 40960) * 2**20)
        assert parse_errors(source) == {page_parser.CUT_OFF: 1}
        assert source.store.describe_target("n1:9400").error_examples == {
            page_parser.CUT_OFF: "DCGM_FI_DEV_FB_FREE 409"
        }


@pytest.mark.parametrize("end", ["# EOF", " ", "\r"])
def test_a_page_may_end_with_a_comment_or_blanks_without_a_newline(end: str):
    assert parse_errors(scraped(page() + end)) == {}


def test_the_first_of_duplicate_series_is_used_as_in_prometheus():
    source = scraped(page(core="50"), page(core="20") + page(core="90"))
    assert of_pod(read(source), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.5)
    assert parse_errors(source) == {page_parser.DUPLICATE: 2}


def test_label_values_are_unescaped():
    assert parse_labels(rb'a="\"q\" \\ \n {x} ",b="",') == {"a": '"q" \\ \n {x} ', "b": ""}
    line = parse_line(b'm{a="} 7"} 5', errors=page_parser.ParseErrors())
    assert line is not None
    assert line.labels == {"a": "} 7"}


def of_one_target(**limits: int) -> MemoryLimits:
    """Limits with these for one target."""
    return replace(DEFAULT_LIMITS, **{name: TARGET_SHARE * limit for name, limit in limits.items()})


def test_series_beyond_the_limit_are_left_out_and_counted():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=of_one_target(series=4)))
    for number in range(6):
        store.ingest("a", (page("one") + page("two") + page("three")).encode(), AT + number)
    assert store.series == 4
    assert store.describe_target("a").error_counts[page_parser.NO_MEMORY] == 12


def test_lines_beyond_the_series_limit_are_not_parsed():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=of_one_target(series=2)))
    store.ingest("a", page("one").encode(), AT)
    store.ingest("a", (page("one") + 100 * "DCGM_FI_DEV_GPU_UTIL{?} 1\n").encode(), AT + 1)
    assert store.describe_target("a").error_counts == {page_parser.NO_MEMORY: 100}


def test_labels_beyond_the_byte_limit_are_left_out_and_counted():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=of_one_target(label_bytes=40_000)))
    long = "".join(page(f"long-{number}", note="x" * 8_000) for number in range(3))
    store.ingest("a", (page("one") + long + page("two")).encode(), AT)
    store.ingest("a", (page("one", core="70") + page("three")).encode(), AT + 1)
    assert store.describe_target("a").error_counts == {page_parser.NO_MEMORY: 4}, (
        "two of the long ones, and those behind them"
    )
    assert store.series == 2 + 4 + 2, "the next page was within the limit"


def test_a_line_that_is_too_long_does_not_count_towards_the_byte_limit():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=of_one_target(label_bytes=1_024)))
    store.ingest("a", (page(note="x" * 20_000) + page("one")).encode(), AT)
    assert store.describe_target("a").error_counts == {page_parser.TOO_LONG: 2}
    assert store.series == 2


def test_the_default_budget_is_more_than_an_agent_with_many_holders_needs():
    """8 GPUs, 64 holders each: as many copies of the holders of a real page."""
    golden = (ROOT / "tests/agent/golden/exclusive.prom").read_text()
    copies = [re.sub(r'pod="([^"]+)"', rf'pod="\1-{number}"', golden) for number in range(64)]
    store = SampleStore(StoreOptions(interval=15, keep_seconds=3600))
    store.ingest("a", "\n".join(copies).encode(), AT)
    assert page_parser.NO_MEMORY not in store.describe_target("a").error_counts
    assert store.kept.window_bytes < DEFAULT_LIMITS.window_bytes // TARGET_SHARE


def test_the_memory_of_expired_series_is_free_again_whatever_their_size():
    """Short lines remain and long ones expire, and the other way round."""
    short = "".join(page(f"short-{number}") for number in range(20))
    long = "".join(page(f"long-{number}", note="x" * 4_000) for number in range(20))
    for kept, expired in ((short, long), (long, short)):
        store, alone = (SampleStore(StoreOptions(interval=15, keep_seconds=60)) for _ in range(2))
        store.ingest("a", (kept + expired).encode(), AT)
        for number in range(1, 40):
            for each in (store, alone):
                each.ingest("a", kept.encode(), AT + STEP * number)
        assert store.series == alone.series
        assert store.kept == alone.kept


def test_all_targets_together_have_a_series_limit():
    store = SampleStore(StoreOptions(interval=15, keep_seconds=60, limits=of_one_target(series=4)))
    for target in range(TARGET_SHARE + 4):
        store.ingest(f"{target}", (page(f"one-{target}") + page(f"two-{target}")).encode(), AT)
    assert store.series == 4 * TARGET_SHARE


GOOD = page("one", core="40") + page("two", core="70")
MALFORMED = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda tail: b"DCGM_FI_DEV_GPU_UTIL{" + tail, st.binary(max_size=100)),
    st.builds(lambda text: f'DCGM_FI_DEV_GPU_UTIL{{gpu="{text}"}} {text}'.encode(), st.text(max_size=20)),
    st.builds(lambda text: f"DCGM_FI_DEV_FB_USED{{{device('junk')}}} {text}".encode(), st.text(max_size=20)),
)


@given(before=st.lists(MALFORMED, max_size=5), after=st.lists(MALFORMED, max_size=5))
def test_malformed_lines_do_not_affect_valid_ones(before: list[bytes], after: list[bytes]):
    text = b"\n".join([*before, GOOD.encode(), *after])
    plain, littered = read(scraped(GOOD, GOOD)), read(scraped(text, text))
    for pod in ("one", "two"):
        assert of_pod(littered, pod).stats[Measure.CORE, Stat.MEAN] == of_pod(plain, pod).stats[Measure.CORE, Stat.MEAN]
    assert np.isfinite(littered.coverage).all()
