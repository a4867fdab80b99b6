"""Faults between the analyzer and a real engine: rows are unknown or it is a SourceError, never a zero that was not
measured."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons
from tests.agent.test_agent_process import free_port
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus, wait_until_ready
from tests.analyzer.scraped_history import AT, scrape_times, steady
from tests.analyzer.sources.faulty_engine import (
    Fault,
    FaultyEngine,
    cut_json,
    fails,
    faulty,
    no_response,
    over_limit_unless,
    responds_with,
    slow,
    truncated_response,
)
from tests.analyzer.tables import assert_alike
from tests.constants import make_settings

pytestmark = pytest.mark.slow

GPUS = 40
CORE = "DCGM_FI_DEV_GPU_UTIL"
MEAN_OF_CORE = f"avg_over_time({CORE}"


def busy_fleet(times: list[float]) -> Iterator[Sample]:
    """No GPU here is idle: a zero would be invented."""
    for number in range(GPUS):
        labels = {"UUID": f"GPU-{number:04}", "Hostname": f"node-{number // 8}", "pod": f"train-{number}"}
        labels |= {"namespace": "ml", "container": "main", "job": "dcgm", "gpu": str(number % 8)}
        for name, value in (
            (CORE, 80.0),
            ("DCGM_FI_DEV_MEM_COPY_UTIL", 40.0),
            ("DCGM_FI_DEV_FB_USED", 30_000.0),
            ("DCGM_FI_DEV_FB_FREE", 10_000.0),
            ("DCGM_FI_DEV_POWER_USAGE", 300.0),
            ("DCGM_FI_DEV_SM_CLOCK", 1400.0),
        ):
            yield from steady(name, value, times, **labels)
    for node in range(GPUS // 8):
        yield from steady("up", 1, times, job="dcgm", instance=f"node-{node}:9400")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_prometheus(tmp_path_factory.mktemp("faults"), busy_fleet(scrape_times())) as one:
        yield one


@pytest.fixture
def proxy(engine: RunningEngine) -> Iterator[FaultyEngine]:
    with faulty(engine.url) as server:
        yield server


@contextmanager
def reading(
    url: str, *, limit: int | None = None, limits: MemoryLimits = DEFAULT_LIMITS, **settings: object
) -> Iterator[PrometheusSource]:
    """`limit`: series per query, below the smallest valid value, because a larger site takes minutes to fill."""
    quick = {"timeout_seconds": 5, "retries": 1, "retry_delay_seconds": 0.01}
    chosen = make_settings(PrometheusSettings, url=url, **quick | settings | ({"series_limit": limit} if limit else {}))
    with closing(PrometheusSource(chosen, limits=limits)) as source:
        yield source


def assert_nothing_invented(table: UsageTable) -> None:
    """All GPUs work, so every number is right or missing; a row without an essential number is unknown."""
    for measure in (Measure.CORE, Measure.MEMORY_COPY, Measure.POWER):
        for stat in (Stat.MEAN, Stat.PEAK):
            column = table.column(measure, stat)
            assert np.all(np.isnan(column) | (column > 0))
            assert set(np.flatnonzero(np.isnan(column)).tolist()) <= set(table.unknown)


def test_without_faults_everything_is_known(proxy: FaultyEngine):
    with reading(proxy.url) as source:
        table = source.read(AT)
    assert len(table) == GPUS
    assert not table.unknown
    assert not table.findings
    assert set(table.coverage.tolist()) == {1.0}
    assert_nothing_invented(table)


@pytest.mark.parametrize(
    "fault",
    [truncated_response, cut_json, fails, lambda word: fails(word, status=400, body=b'{"error":"bad"}')],
)
@pytest.mark.parametrize(
    "word",
    [
        f"max_over_time({CORE}",
        MEAN_OF_CORE,
        f"count_over_time({CORE}",
        "avg_over_time(DCGM_FI_DEV_MEM_COPY_UTIL",
        "avg_over_time(DCGM_FI_DEV_POWER_USAGE",
    ],
)
def test_a_failed_query_makes_its_rows_unknown_with_the_reason(proxy: FaultyEngine, fault: Fault, word: str):
    with reading(proxy.url) as source:
        source.read(AT)
        proxy.fault = fault(word)
        table = source.read(AT)
        failures = source.describe()["failures"]
    (finding,) = table.findings
    assert (finding.level, finding.code) == ("warning", "source-incomplete")
    assert next(iter(failures)) in finding.message.en, "it is named"
    assert len(table) == GPUS
    assert set(table.unknown) == set(range(GPUS))
    assert all("could not be read" in reason.en for reason in table.unknown.values())
    assert_nothing_invented(table)


def test_after_a_failed_presence_query_the_previous_rows_are_unknown(proxy: FaultyEngine):
    with reading(proxy.url) as source:
        whole = source.read(AT)
        proxy.fault = fails("max by (UUID, namespace, pod, container, Hostname")
        table = source.read(AT)
        proxy.fault = fails("DCGM_FI_DEV_FB_USED")
        again = source.read(AT)
    for one in (table, again):
        assert sorted(map(str, one.allocations)) == sorted(map(str, whole.allocations))
        assert_nothing_invented(one)


def test_a_failed_shard_makes_only_its_own_rows_unknown(proxy: FaultyEngine):
    with reading(proxy.url, limit=20) as source:
        whole = source.read(AT)
        proxy.fault = fails('Hostname=~"node-0|node-1"')
        table = source.read(AT)
    assert {one.container.pod for one in table.allocations} == {one.container.pod for one in whole.allocations}
    unknown = {table.allocations[row].node for row in table.unknown}
    assert unknown == {"node-0", "node-1"}
    assert_nothing_invented(table)


def test_a_refused_connection_is_an_error_and_the_next_read_succeeds(proxy: FaultyEngine):
    with (
        reading(f"http://127.0.0.1:{free_port()}") as source,
        pytest.raises(SourceError, match=r"check prometheus\.url"),
    ):
        source.read(AT)


def test_if_all_queries_fail_it_is_an_error_and_the_next_read_succeeds(proxy: FaultyEngine):
    with reading(proxy.url) as source:
        whole = source.read(AT)
        proxy.fault = fails("")
        with pytest.raises(SourceError, match="503"):
            source.read(AT)
        proxy.fault = fails("", times=0)
        assert_alike(source.read(AT), whole)


def test_a_temporary_503_is_retried(proxy: FaultyEngine):
    with reading(proxy.url, retries=2) as source:
        proxy.fault = fails("over_time", times=2)
        table = source.read(AT)
    assert not table.unknown
    assert_nothing_invented(table)


def test_a_query_without_response_ends_at_the_timeout_and_affects_only_its_rows(proxy: FaultyEngine):
    """Like no response within the default of 60 s, a hundred times faster."""
    proxy.fault = no_response(MEAN_OF_CORE)
    began = time.monotonic()
    with reading(proxy.url, timeout_seconds=0.6, retries=3) as source:
        table = source.read(AT)
    assert time.monotonic() - began < 5
    assert len(table) == GPUS
    assert all("no complete response within 0.6 s" in reason.en for reason in table.unknown.values())
    assert_nothing_invented(table)


def test_a_response_after_30_seconds_is_complete(proxy: FaultyEngine):
    proxy.fault = slow(MEAN_OF_CORE, 30)
    began = time.monotonic()
    with closing(PrometheusSource(PrometheusSettings(url=proxy.url))) as source:  # the defaults
        table = source.read(AT)
    assert time.monotonic() - began >= 30
    assert not table.unknown
    assert_nothing_invented(table)


def test_closing_ends_a_hanging_read(proxy: FaultyEngine):
    proxy.fault = no_response("over_time")
    with reading(proxy.url, timeout_seconds=30) as source:
        threading.Timer(0.4, source.close).start()
        began = time.monotonic()
        with suppress(SourceError):
            table = source.read(AT)
            assert set(table.unknown) == set(range(len(table)))
        assert time.monotonic() - began < 5


def test_a_partial_response_is_an_error(proxy: FaultyEngine):
    row = b'{"metric":{"UUID":"GPU-0000","pod":"train-0","namespace":"ml","container":"main"},"value":[1,"0"]}'
    body = b'{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[' + row + b"]}}"
    with reading(proxy.url) as source:
        proxy.fault = responds_with(MEAN_OF_CORE, body)
        table = source.read(AT)
    assert len(table.unknown) == GPUS
    assert_nothing_invented(table)


def test_an_empty_result_is_unknown_not_zero(proxy: FaultyEngine):
    proxy.fault = responds_with(MEAN_OF_CORE, b'{"status":"success","data":{"resultType":"vector","result":[]}}')
    with reading(proxy.url) as source:
        table = source.read(AT)
    assert set(table.unknown.values()) == {unknown_reasons.NO_CORE}
    assert_nothing_invented(table)


def test_clock_skew_makes_everything_unknown(proxy: FaultyEngine):
    proxy.clock_ahead_seconds = -600
    with reading(proxy.url) as source:
        table = source.read(AT)
    assert len(table.unknown) == GPUS
    assert all("s apart" in reason.en for reason in table.unknown.values())
    assert table.clock_skew is not None
    assert -602 < table.clock_skew <= -600  # the ledger records nothing then


def test_a_clock_ahead_of_the_data_lowers_coverage(proxy: FaultyEngine):
    with reading(proxy.url) as source:
        table = source.read(AT + 240)
    assert set(table.coverage.tolist()) == {0.6}


def test_queries_over_the_limit_of_the_engine_are_sharded(proxy: FaultyEngine):
    proxy.fault = over_limit_unless('Hostname=~"')
    with reading(proxy.url, limit=20) as source:
        first = source.read(AT)
    assert not first.unknown
    assert_nothing_invented(first)
    groups = {
        query for query in proxy.queries if f'avg_over_time({CORE}{{namespace!=""' in query and "Hostname=~" in query
    }
    assert len(groups) == 3


def test_a_response_over_the_size_limit_is_not_read_to_its_end(proxy: FaultyEngine):
    small = replace(DEFAULT_LIMITS, response=2048, whole_response=2048)
    with reading(proxy.url, limits=small) as source:
        try:
            table = source.read(AT)
        except SourceError as error:
            assert "larger than 2048 bytes" in str(error)  # noqa: PT017 - unknown rows are right too
        else:
            assert_nothing_invented(table)


def test_an_engine_restart_during_a_read_is_unknown_or_an_error(tmp_path: Path):
    with (
        running_prometheus(tmp_path, busy_fleet(scrape_times())) as engine,
        faulty(engine.url) as proxy,
        reading(proxy.url, retries=0) as source,
    ):
        whole = source.read(AT)

        def restart(_: object, expression: str) -> bool:
            if MEAN_OF_CORE in expression:
                engine.start_again()
            return False

        proxy.fault = restart
        with suppress(SourceError):
            assert_nothing_invented(source.read(AT))
        proxy.fault = fails("", times=0)
        wait_until_ready(engine)
        assert_alike(source.read(AT), whole)


CONTRADICTING_SIGNALS = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.3,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.2,
}


@pytest.mark.parametrize("signal", CONTRADICTING_SIGNALS)
@pytest.mark.parametrize("function", ["avg", "max"])
def test_a_zero_is_unknown_while_a_contradicting_signal_cannot_be_read(tmp_path: Path, signal: str, function: str):
    """The core reads 0 while another signal contradicts it; then that signal cannot be read."""
    labels = {"UUID": "GPU-a", "Hostname": "n1", "pod": "p", "namespace": "ml", "container": "main", "gpu": "0"}
    signals = {
        CORE: 0.0,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 0.0,
        "DCGM_FI_DEV_FB_USED": 30_000.0,
        signal: CONTRADICTING_SIGNALS[signal],
    }
    samples = [
        sample
        for name, value in signals.items()
        for sample in steady(name, value, scrape_times(), **labels, job="dcgm")
    ]
    with (
        running_prometheus(tmp_path, [*samples, *steady("up", 1, scrape_times(), job="dcgm")]) as engine,
        faulty(engine.url) as proxy,
        reading(proxy.url) as source,
    ):
        source.read(AT)
        proxy.fault = fails(f"{function}_over_time({signal}")
        table = source.read(AT)
        assert any(f"{function}_over_time({signal}" in query for query in proxy.queries), "it must have been queried"
    (reason,) = table.unknown.values()
    assert "could not be read" in reason.en
