"""Failed queries are noted by their reason in both languages, and keep nothing of their cycle in memory."""

import gc
import logging
import weakref
from typing import cast

import pytest

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.promql.query_plan import Query
from gpusteward.analyzer.sources.promql.query_runner import (
    QueryTask,
    ResultChunk,
    ResultCollector,
    TextRowIndex,
    run_tasks,
)
from gpusteward.analyzer.sources.usage.quantities import PRESENCE_NOW
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, HolderKey
from gpusteward.analyzer.sources.usage.schemes import DCGM
from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import source_errors

HOLDER = HolderKey("UUID", "", "namespace", "pod", "container")


class FailingEngine:
    """Cannot be reached."""

    max_concurrent_queries = 1

    def read_query(self, expression: str, at: float, read: object) -> list[ResultChunk]:
        reason = SourceError(source_errors.STOPPING)
        raise SourceError(source_errors.ENGINE_UNREACHABLE, path="/api/v1/query", reason=reason)


def test_a_failed_query_keeps_its_reason_and_not_the_results_of_its_cycle(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.ERROR, logger="gpusteward")  # pytest keeps log records, and with them the error
    collector = ResultCollector(DCGM, TextRowIndex(HOLDER), TextRowIndex(DeviceKey("UUID", "")))
    gc.disable()
    try:
        tasks = [QueryTask(Query(PRESENCE_NOW, "metric", 1.0, HOLDER), "metric")]
        run_tasks(cast(Engine, FailingEngine()), tasks, collector, 0.0)
        reason = collector.results.failures[PRESENCE_NOW]
        results = weakref.ref(collector.results)
        del collector
        assert results() is None
    finally:
        gc.enable()
    assert "the program is stopping" in reason.en
    assert "程序正在停止" in reason.zh
