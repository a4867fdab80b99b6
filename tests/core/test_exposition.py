"""The renderer, judged by prometheus-client's parsers."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpusteward.core.exposition import Family, LabelCache, PageRenderer, render_labels, render_lines, render_page
from gpusteward.core.metrics import METRICS, Metric, MetricType

COUNTER = Metric("joules_total", MetricType.COUNTER, "Energy.", ("gpu",))
OLD_COUNTER = Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", MetricType.COUNTER, "Energy (in mJ).", ("gpu",))
GAUGE = Metric("watts", MetricType.GAUGE, 'Power, "now".\nSecond line \\ third.', ("gpu",))


def openmetrics(*families: Family) -> list:
    return list(parse_openmetrics(render_page(families).openmetrics.decode() + "# EOF\n"))


def test_a_family_reads_back_as_it_was_written():
    page = render_page([Family(GAUGE, [(render_labels((("gpu", "0"),)), 1.5)])])
    (family,) = parse_text(page.text.decode())
    assert (family.name, family.type, family.samples[0].value) == ("watts", "gauge", 1.5)
    assert family.documentation == GAUGE.help


def test_a_family_without_samples_is_omitted():
    assert render_page([Family(GAUGE, [])]).text == b""


def test_a_counter_without_total_suffix_has_unknown_type_in_openmetrics():
    (family,) = openmetrics(Family(OLD_COUNTER, [('{gpu="0"}', 7)]))
    assert family.samples[0].name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    assert family.type == "unknown"


def test_a_counter_of_ours_is_a_counter_in_openmetrics():
    (family,) = openmetrics(Family(COUNTER, [('{gpu="0"}', 7)]))
    assert (family.type, family.samples[0].name) == ("counter", "joules_total")


def test_whole_numbers_have_no_fraction_and_others_are_exact():
    values = (3, 3.0, 55491669881.0, 0.1, 1e-7, -2.0, 10.05, math.inf, -math.inf, math.nan)
    lines = render_lines(GAUGE, [("", value) for value in values]).splitlines()
    assert [line.removeprefix(f"{GAUGE.name} ") for line in lines] == [
        *("3", "3", "55491669881", "0.1", "1e-07", "-2", "10.05", "+Inf", "-Inf", "NaN")
    ]


@given(st.floats(allow_nan=False))
def test_every_value_reads_back_the_same(value):
    line = render_lines(GAUGE, [('{gpu="1.0"}', value)])
    assert math.isclose(float(line.rpartition(" ")[2]), value, rel_tol=0, abs_tol=0)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,7}", fullmatch=True), st.text(), max_size=4))
def test_any_text_in_a_label_is_contained_in_it(labels):
    page = render_page([Family(GAUGE, [(render_labels(tuple(labels.items())), 1)])])
    for families in (parse_text(page.text.decode()), parse_openmetrics(page.openmetrics.decode() + "# EOF\n")):
        (family,) = families
        (sample,) = family.samples
        assert sample.labels.keys() == {name for name, value in labels.items() if value}


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from([0, 0.0, 1, 1.5, math.nan, math.inf])), max_size=4)
)
def test_a_page_is_the_same_whether_or_not_its_families_changed_since_the_last_one(cycles):
    renderer = PageRenderer()
    for values in cycles:
        samples = [(render_labels((("gpu", gpu),)), value) for gpu, value in values.items()]
        families = [Family(GAUGE, samples), Family(COUNTER, samples[:1])]
        assert renderer.render(families).text == render_page(families).text


def test_cached_labels_are_dropped_after_a_cycle_without_use():
    cache = LabelCache()
    for cycle in range(1000):
        cache.start_cycle()
        cache.render((("pod", f"pod-{cycle}"),))
        assert len(cache) <= 2


def test_every_metric_name_is_unique_and_follows_its_type():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        if metric.dialect == "native":
            assert metric.name.endswith("_total") == (metric.kind is MetricType.COUNTER), metric.name
