"""The samples of each allocation: in batches, with any names, and never two with the same labels."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.publisher import ResultPublisher, prepare
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.metrics import allocation_samples
from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.metrics.allocation_samples import render_allocations
from gpusteward.analyzer.metrics.page import render_result
from gpusteward.analyzer.results import Result
from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from gpusteward.core.usages import AllocationKey, Measure
from tests.analyzer.api.server import make_result
from tests.analyzer.usage_tables import GIB, allocation, large_table, resting, signal, table_of, working

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=12)


def read_samples(result: Result, name: str) -> list[Sample]:
    page = b"".join(render_result(result, TEXT_TYPE).pieces()).decode()
    return [sample for family in parse_text(page) for sample in family.samples if sample.name == name]


def rename(one: AllocationKey, *, pod: str, namespace: str, node: str) -> AllocationKey:
    return replace(one, container=replace(one.container, pod=pod, namespace=namespace), node=node)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=5))
def test_every_row_has_a_sample_with_its_own_labels_whatever_characters_they_have(names: list[tuple[str, str, str]]):
    held = [
        rename(allocation(number), pod=pod, namespace=namespace, node=node)
        for number, (pod, namespace, node) in enumerate(names)
    ]
    samples = read_samples(make_result(table_of(*[working()] * len(held), allocations=held)), metrics.CORE.name)
    wanted = [(f"GPU-{number}", *three) for number, three in enumerate(names)]
    assert [tuple(sample.labels.get(label, "") for label in metrics.HOLDER) for sample in samples] == wanted
    assert {sample.value for sample in samples} == {60.0}


def test_the_page_does_not_depend_on_the_batch_size(monkeypatch: pytest.MonkeyPatch):
    result = make_result(large_table(500))
    whole = b"".join(render_result(result, TEXT_TYPE).pieces())
    monkeypatch.setattr(allocation_samples, "BATCH_ROWS", 7)
    assert b"".join(render_result(result, TEXT_TYPE).pieces()) == whole


def test_containers_of_one_pod_on_one_gpu_have_different_labels():
    main = allocation(share="time-sliced")
    side = replace(main, container=replace(main.container, name="side"))
    nameless = replace(main, container=replace(main.container, name=""))
    result = make_result(table_of(working(), working(), working(), allocations=[main, side, nameless]))
    for name in (metrics.CORE.name, metrics.SCORE.name):
        assert [sample.labels.get("container") for sample in read_samples(result, name)] == [None, "side", "2"]


def test_names_that_are_equal_after_escaping_get_different_labels():
    held = [rename(allocation(), pod=pod, namespace="team", node="node") for pod in ("a\rb", "a b")]
    samples = read_samples(make_result(table_of(working(), working(), allocations=held)), metrics.CORE.name)
    assert [sample.labels["pod"] for sample in samples] == ["a b", "a b"]
    assert len({tuple(sample.labels.items()) for sample in samples}) == 2


def test_a_row_without_any_name_still_has_its_model_and_status():
    unnamed = rename(replace(allocation(), gpu_uuid=""), pod="", namespace="", node="")
    (sample,) = read_samples(make_result(table_of(working(), allocations=[unnamed])), metrics.SCORE.name)
    assert {name for name, text in sample.labels.items() if text} == {"model", "status"}


def test_a_value_that_is_not_finite_has_no_sample():
    table = table_of(resting() | signal(Measure.MEMORY_TOTAL, 0.0), resting() | signal(Measure.MEMORY_TOTAL, 80 * GIB))
    result = make_result(table)
    (sample,) = read_samples(result, metrics.MEMORY_USAGE.name)
    assert (sample.labels["gpu_id"], sample.value) == ("GPU-1", 50.0)
    assert len(read_samples(result, metrics.MEMORY_TOTAL.name)) == 2


def test_whole_numbers_have_no_fraction():
    lines = dict(render_allocations(make_result(table_of(working(0.6)))))
    assert lines[metrics.CORE].endswith("} 60\n")
    assert dict(render_allocations(make_result(table_of(working(0.1234)))))[metrics.CORE].endswith("} 12.34\n")


def test_the_previous_page_is_served_until_the_next_one_is_rendered():
    store = ResultStore()
    publisher = ResultPublisher(store, EventFeed())
    first, second = make_result(table_of(working())), make_result(table_of(resting()), number=2)
    publisher.publish(first)
    page = store.pages.make(first, TEXT_TYPE)
    store.publish(prepare(second))
    assert store.published is not None
    assert (store.published.result, store.pages.find(TEXT_TYPE)) == (second, page)
    publisher.publish(second)
    assert store.pages.find(TEXT_TYPE) not in (page, None)


def test_a_format_that_nobody_scrapes_is_rendered_at_its_first_scrape_only():
    store, result = ResultStore(), make_result(table_of(working()))
    publisher = ResultPublisher(store, EventFeed())
    publisher.publish(result)
    assert store.pages.find(TEXT_TYPE) is None
    assert store.pages.make(result, TEXT_TYPE) is store.pages.find(TEXT_TYPE)
    publisher.publish(make_result(table_of(resting()), number=2))
    assert store.pages.find(TEXT_TYPE) is not None
    assert store.pages.find(OPENMETRICS_TYPE) is None
