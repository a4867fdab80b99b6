"""`PrometheusSource`: usage from a Prometheus-compatible engine, as a table."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpusteward.analyzer.read.prometheus import victoria
from gpusteward.analyzer.read.prometheus.blocks import Block, Shelf, build_block
from gpusteward.analyzer.read.prometheus.client import Engine
from gpusteward.analyzer.read.prometheus.coverage import Expectations
from gpusteward.analyzer.read.prometheus.dialects import Dialect
from gpusteward.analyzer.read.prometheus.discovery import Sources, discover
from gpusteward.analyzer.read.prometheus.expressions import Window
from gpusteward.analyzer.read.prometheus.gather import Errand, Gathered, ask, failed_quantities, run_errands
from gpusteward.analyzer.read.prometheus.keys import Key, Keys
from gpusteward.analyzer.read.prometheus.matchers import Matchers, parse_condition
from gpusteward.analyzer.read.prometheus.plan import Found, SidePlan, plan_devices, plan_holders
from gpusteward.analyzer.read.prometheus.series import read_chart
from gpusteward.analyzer.read.prometheus.settings import PrometheusSettings
from gpusteward.analyzer.read.prometheus.shards import cut
from gpusteward.analyzer.read.sources import Chart
from gpusteward.analyzer.settings.values import mask_password
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import Holding, Measure, Stat
from gpusteward.logs import Log

log = Log(__name__)

LONGEST_SKEW_SECONDS = 60.0
"""Two clocks further apart than this do not speak of the same window."""
SMALLEST_SHARD = 500
_SHRINK = 4
_MOST_STALE = 2
_FEW_ROWS = 10_000
"""Rows that are kept from cycle to cycle, before those of pods long gone are dropped."""


class PrometheusSource:
    """Reads a whole cluster: learns what the site has, asks, joins. One thread at a time may read."""

    def __init__(self, settings: PrometheusSettings, *, max_workers: int | None = None) -> None:
        """Raises ConfigurationError for settings that cannot be used."""
        self._settings = settings
        self._engine = Engine(settings, max_workers=max_workers)
        self._condition: Matchers = parse_condition(settings.query_condition)
        self._expectations = Expectations(
            window_seconds=settings.window_seconds, fixed_interval=settings.scrape_interval_seconds
        )
        self._limit = settings.series_limit
        self._sources: Sources | None = None
        self._cycles_left = 0
        self._failures: Mapping[str, str] = {}
        self._kept: dict[tuple[Key, Key], tuple[Keys, Keys]] = {}
        self._shelves: dict[Dialect, Shelf] = {}
        self._before: dict[Dialect, tuple[Keys, list[int]]] = {}  # the rows of the last cycle
        self._rows = 0  # of the last table

    @property
    def sources(self) -> Sources | None:
        """What was found, None before the first look."""
        return self._sources

    @property
    def asked(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        return self._engine.asked

    def describe(self) -> Mapping[str, Any]:
        """What was found, as plain data, and which questions failed in the last cycle."""
        found = self._sources.as_plain() if self._sources else {}
        return {"url": mask_password(self._settings.url), **found, "failures": dict(self._failures)}

    def read(self, at: float) -> UsageTable:
        """Every allocation over the window before `at`.

        Raises SourceError when nothing at all could be read, of one dialect too: its rows must neither vanish nor be
        told by one that is trusted less.
        """
        sources = self._learn(at)
        blocks = [self._read_dialect(found, sources, at) for found in sources.found]
        table = self._join(blocks, at)
        self._rows = len(table)
        if not len(table):
            self._kept.clear()
            self._sources = None  # perhaps the site changed its names: look again next time
        return table

    def read_series(self, holding: Holding, at: float, *, seconds: float) -> Chart:
        """The course of one allocation before `at`. Raises SourceError."""
        sources = self._sources or self._learn(at)
        return read_chart(self._engine, sources, holding, at=at, seconds=seconds, step=self._settings.step_seconds)

    def close(self) -> None:
        self._engine.close()

    def _learn(self, at: float) -> Sources:
        if self._sources is None or self._cycles_left <= 0:
            self._sources = discover(self._engine, self._condition, at=at, window_seconds=self._settings.window_seconds)
            self._cycles_left = self._settings.relearn_cycles
            self._expectations.learn(self._sources.intervals)
            shown = ",".join(found.dialect for found in self._sources.found)
            log.info("sources_found", engine=self._sources.engine, dialects=shown or "none")
        self._cycles_left -= 1
        return self._sources

    def _read_dialect(self, found: Found, sources: Sources, at: float) -> Block:
        started = time.monotonic()
        gathered = self._gather(found, sources, at)
        while gathered.hit_limit and self._limit > SMALLEST_SHARD:
            self._limit = max(self._shrink(gathered), SMALLEST_SHARD)
            log.warning("series_limit_lowered", limit=self._limit, reason="the engine refused larger queries")
            gathered = self._gather(found, sources, at)
        self._failures = failed_quantities(gathered.failures)
        if gathered.is_empty and gathered.failures:
            raise SourceError(next(iter(gathered.failures.values())))
        shelf = self._shelves.setdefault(found.dialect, Shelf())
        block = build_block(found.dialect, gathered, expectations=self._expectations, shelf=shelf, at=at)
        self._before[found.dialect] = gathered.holders, block.rows
        log.debug("dialect_read", dialect=found.dialect, rows=len(block.holdings), seconds=time.monotonic() - started)
        return block

    def _shrink(self, gathered: Gathered) -> int:
        return min(self._limit, max(len(gathered.holders), self._limit // _SHRINK)) // _SHRINK

    def _gather(self, found: Found, sources: Sources, at: float) -> Gathered:
        plans = [plan_holders(found, self._condition)]
        if found.device:
            plans.append(plan_devices(found.device, self._condition))
        holders, devices = self._keys(plans)
        keys, before = self._before.get(found.dialect, (holders, []))
        gathered = Gathered(holders, devices, before=before if keys is holders else ())
        errands = [errand for plan in plans for errand in self._errands(plan, sources, at)]
        run_errands(errands, gathered, at_once=self._engine.max_concurrent_queries)
        return gathered

    def _keys(self, plans: Sequence[SidePlan]) -> tuple[Keys, Keys]:
        """The rows of the last cycle go on, unless the labels are others now, or most of them are gone."""
        labels = (plans[0].spelling.holder, plans[-1].spelling.device)
        kept = self._kept.get(labels)
        if kept is None or len(kept[0]) > _MOST_STALE * self._rows + _FEW_ROWS:
            kept = self._kept[labels] = (Keys(labels[0]), Keys(labels[1]))
        return kept

    def _errands(self, plan: SidePlan, sources: Sources, at: float) -> Iterable[Errand]:
        rules = sources.rules if self._settings.use_recording_rules else frozenset[str]()
        window = Window(self._settings.window_seconds, rules)
        shards = cut(self._engine, plan, at=at, limit=self._limit)
        exported = self._settings.use_export and sources.can_export and not rules
        for shard in shards:
            if exported:
                yield from victoria.plan_exports(self._engine, plan, shard=shard, window=window, at=at)
            else:
                for query in plan.queries:
                    yield Errand((query,), partial(ask, self._engine, query, query.write(window, shard), at))

    def _join(self, blocks: Sequence[Block], at: float) -> UsageTable:
        """Dialects in the order of trust: a device that one speaks of is left out of the later ones."""
        kept = list(_trust_first(blocks))
        size = sum(len(rows) for _, rows in kept)
        keys = dict.fromkeys(key for block, _ in kept for key in block.stats)
        stats = {key: _concatenate([_column(block, key, rows) for block, rows in kept]) for key in keys}
        holdings = [block.holdings[row] for block, rows in kept for row in rows]
        coverage = _concatenate([block.coverage[rows] for block, rows in kept])
        reasons = [block.unknown.get(row, "") for block, rows in kept for row in rows]
        unknown = {row: reason for row, reason in enumerate(reasons) if reason}
        if skewed := self._skew_reason():
            unknown = dict.fromkeys(range(size), skewed)
        return UsageTable(at, self._settings.window_seconds, holdings, stats, coverage, unknown)

    def _skew_reason(self) -> str:
        skew = self._engine.skew_seconds
        if skew is None or abs(skew) <= LONGEST_SKEW_SECONDS:
            return ""
        return f"the clocks of the engine and the analyzer are {abs(skew):.0f} s apart"


def _trust_first(blocks: Iterable[Block]) -> Iterable[tuple[Block, list[int]]]:
    told: set[str] = set()
    for block in blocks:
        yield block, [row for row, device in enumerate(block.devices) if device not in told]
        told.update(block.devices)


def _column(block: Block, key: tuple[Measure, Stat], rows: list[int]) -> Column:
    column = block.stats.get(key)
    if column is None:
        return np.full(len(rows), np.nan)
    return column if len(rows) == len(column) else column[rows]  # whole: no copy


def _concatenate(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.concatenate((np.empty(0), *columns))
