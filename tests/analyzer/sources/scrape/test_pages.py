"""A malformed line costs only itself, and is counted with its reason."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.analyzer.sources.scrape import lines
from gpusteward.analyzer.sources.scrape.labels import parse_labels
from gpusteward.analyzer.sources.scrape.lines import read_stranger
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.scrape.store import Shape, Store
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
    source = ScrapeSource(ScrapeSettings(kubernetes="never"), window_seconds=600)
    for number, one in enumerate(pages):
        source.ingest("n1:9400", one if isinstance(one, bytes) else one.encode(), AT + STEP * number)
    return source


def read(source: ScrapeSource) -> UsageTable:
    return source.read(AT + 60)


def faults(source: ScrapeSource) -> dict[str, int]:
    return dict(source.store.describe_target("n1:9400")[1])


def test_values_are_scaled_to_base_units_and_the_window_is_summed_up():
    usage = of_pod(read(scraped(page(core="10"), page(core="30"), page(core="80"))), "one")
    assert usage.stats[Measure.CORE, Stat.MEAN] == pytest.approx(0.4)
    assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.8)
    assert usage.stats[Measure.CORE, Stat.SPREAD] == pytest.approx(math.sqrt(2600 / 3) / 100)
    assert usage.stats[Measure.MEMORY_USED, Stat.MEAN] == 2**30
    assert usage.coverage == pytest.approx(3 / 40)


def test_a_title_on_the_page_is_survived_and_a_slice_has_its_engines_activity_as_core():
    usage = of_pod(read(scraped(MIG_PAGE)), "sliced")
    assert usage.allocation.gpu_instance == "7"
    assert usage.stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("ERROR - FAILED TO CONVERT TO STRING", lines.NOT_A_NUMBER),
        ("", lines.NOT_A_NUMBER),
        ("0x1g", lines.NOT_A_NUMBER),
        ("1 2 3", lines.NOT_A_NUMBER),
        ("NaN", lines.NOT_FINITE),
        ("+Inf", lines.NOT_FINITE),
        ("1e300", lines.NOT_FINITE),
        (f"5 {(AT - 7200) * 1000:.0f}", lines.TOO_OLD),
    ],
)
def test_a_bad_value_costs_only_itself_whether_the_series_is_new_or_known(bad: str, reason: str):
    for before in ([], [page()]):
        source = scraped(*before, page(core=bad) + page("two", core="70"))
        assert of_pod(read(source), "two").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.7)
        assert of_pod(read(source), "one").stats[Measure.MEMORY_USED, Stat.PEAK] == 2**30
        assert faults(source) == {reason: 1}


def test_the_last_bad_line_of_each_kind_is_shown_without_its_labels():
    source = scraped(page(core="ERROR - FAILED TO CONVERT TO STRING"))
    assert source.store.describe_target("n1:9400")[2] == {
        lines.NOT_A_NUMBER: "DCGM_FI_DEV_GPU_UTIL ERROR - FAILED TO CONVERT TO STRING"
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="0} 5', lines.NO_LABELS),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="0"', lines.NO_LABELS),
        (b"DCGM_FI_DEV_GPU_UTIL{gpu=0} 5", lines.NO_LABELS),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="\xff"} 5', lines.NO_LABELS),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="%s"} 5' % (b"x" * 20_000), lines.TOO_LONG),
    ],
)
def test_a_line_that_cannot_be_taken_apart_costs_only_itself(line: bytes, reason: str):
    source = scraped(line + b"\n" + page().encode())
    assert of_pod(read(source), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.5)
    assert faults(source) == {reason: 1}


def test_a_timestamp_of_now_carriage_returns_and_tabs_are_no_fault():
    text = page(core=f"50 {AT * 1000:.0f}").replace("\n", "\r\n").replace("} 1024", "} \t1024")
    source = scraped(text)
    assert of_pod(read(source), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.5)
    assert faults(source) == {}


def test_a_page_that_ends_within_a_number_is_not_believed_whether_the_series_is_new_or_known():
    whole = page() + f"DCGM_FI_DEV_FB_FREE{{{device('one')}}} 40960"
    for before in ([], [whole + "\n"]):
        source = scraped(*before, whole[:-2])
        free = of_pod(read(source), "one").stats.get((Measure.MEMORY_TOTAL, Stat.LAST))
        assert free in (None, (1024 + 40960) * 2**20)
        assert faults(source) == {lines.CUT_OFF: 1}
        assert source.store.describe_target("n1:9400")[2] == {lines.CUT_OFF: "DCGM_FI_DEV_FB_FREE 409"}


@pytest.mark.parametrize("end", ["# EOF", " ", "\r"])
def test_the_end_of_a_page_needs_no_newline_where_it_says_nothing(end: str):
    assert faults(scraped(page() + end)) == {}


def test_of_duplicates_the_first_is_taken_as_prometheus_does():
    source = scraped(page(core="50"), page(core="20") + page(core="90"))
    assert of_pod(read(source), "one").stats[Measure.CORE, Stat.PEAK] == pytest.approx(0.5)
    assert faults(source) == {lines.DUPLICATE: 2}


def test_signs_in_labels_are_unescaped():
    assert parse_labels(rb'a="\"q\" \\ \n {x} ",b="",') == {"a": '"q" \\ \n {x} ', "b": ""}
    stranger = read_stranger(b'm{a="} 7"} 5', faults=lines.Faults())
    assert stranger is not None
    assert stranger.labels == {"a": "} 7"}


def test_series_beyond_the_limit_are_left_out_and_counted():
    store = Store(Shape(interval=15, keep_seconds=60, series_limit=100, target_series_limit=4))
    for number in range(6):
        store.ingest("a", (page("one") + page("two") + page("three")).encode(), AT + number)
    assert store.series == 4
    assert store.describe_target("a")[1][lines.TOO_MANY] == 12


def test_what_there_is_no_room_for_is_not_even_taken_apart():
    store = Store(Shape(interval=15, keep_seconds=60, target_series_limit=2))
    store.ingest("a", page("one").encode(), AT)
    store.ingest("a", (page("one") + 100 * "DCGM_FI_DEV_GPU_UTIL{?} 1\n").encode(), AT + 1)
    assert store.describe_target("a")[1] == {lines.TOO_MANY: 100}


def test_labels_beyond_their_bytes_are_left_out_and_counted():
    store = Store(Shape(interval=15, keep_seconds=60, target_label_limit_bytes=40_000))
    long = "".join(page(f"long-{number}", note="x" * 8_000) for number in range(3))
    store.ingest("a", (page("one") + long + page("two")).encode(), AT)
    store.ingest("a", (page("one", core="70") + page("three")).encode(), AT + 1)
    assert store.describe_target("a")[1] == {lines.TOO_MUCH_TEXT: 4}, "two of the long ones, and those behind them"
    assert store.series == 2 + 4 + 2, "there was room for those of the next page"


def test_a_line_that_is_too_long_takes_nothing_from_the_bytes_of_others():
    store = Store(Shape(interval=15, keep_seconds=60, target_label_limit_bytes=1_024))
    store.ingest("a", (page(note="x" * 20_000) + page("one")).encode(), AT)
    assert store.describe_target("a")[1] == {lines.TOO_LONG: 2}
    assert store.series == 2


def test_the_bytes_left_for_labels_are_many_times_what_an_agent_with_many_holders_needs():
    """8 GPUs, 64 holders each: as many copies of the holders of a real page."""
    golden = (ROOT / "tests/agent/golden/exclusive.prom").read_text()
    copies = [re.sub(r'pod="([^"]+)"', rf'pod="\1-{number}"', golden) for number in range(64)]
    store = Store(Shape(interval=15, keep_seconds=60))
    store.ingest("a", "\n".join(copies).encode(), AT)
    with store.read_records() as (_, records):
        needed = records["a"].roll.label_bytes
    assert not {lines.TOO_MANY, lines.TOO_MUCH_TEXT} & set(store.describe_target("a")[1])
    assert 500_000 < needed < ScrapeSettings().target_label_limit_bytes / 8
    assert ScrapeSettings().target_label_limit_bytes == store.shape.target_label_limit_bytes


def test_all_targets_together_have_a_limit_too():
    store = Store(Shape(interval=15, keep_seconds=60, series_limit=5, target_series_limit=4))
    for target in ("a", "b", "c"):
        store.ingest(target, (page(f"one-{target}") + page(f"two-{target}")).encode(), AT)
    assert store.series == 5


GOOD = page("one", core="40") + page("two", core="70")
JUNK = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda tail: b"DCGM_FI_DEV_GPU_UTIL{" + tail, st.binary(max_size=100)),
    st.builds(lambda text: f'DCGM_FI_DEV_GPU_UTIL{{gpu="{text}"}} {text}'.encode(), st.text(max_size=20)),
    st.builds(lambda text: f"DCGM_FI_DEV_FB_USED{{{device('junk')}}} {text}".encode(), st.text(max_size=20)),
)


@given(before=st.lists(JUNK, max_size=5), after=st.lists(JUNK, max_size=5))
def test_no_junk_on_a_page_touches_the_good_lines(before: list[bytes], after: list[bytes]):
    text = b"\n".join([*before, GOOD.encode(), *after])
    plain, littered = read(scraped(GOOD, GOOD)), read(scraped(text, text))
    for pod in ("one", "two"):
        assert of_pod(littered, pod).stats[Measure.CORE, Stat.MEAN] == of_pod(plain, pod).stats[Measure.CORE, Stat.MEAN]
    assert np.isfinite(littered.coverage).all()
