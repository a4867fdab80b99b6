"""`PrometheusSource`: usage from a Prometheus-compatible engine, as a table."""

import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpusteward.analyzer.setting_values import mask_password
from gpusteward.analyzer.sources.engine import victoriametrics as victoria
from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.engine.shards import SeriesLimit, Shards
from gpusteward.analyzer.sources.engine.text_keys import TextKeys
from gpusteward.analyzer.sources.pod_processes import Pod, Running
from gpusteward.analyzer.sources.promql.chart_queries import read_chart
from gpusteward.analyzer.sources.promql.discovery import Sources, discover, has_newcomers
from gpusteward.analyzer.sources.promql.expressions import Window
from gpusteward.analyzer.sources.promql.fleet import Fleet, count_fleet
from gpusteward.analyzer.sources.promql.matchers import Matchers, parse_condition
from gpusteward.analyzer.sources.promql.plan import Found, SidePlan, calls_devices, plan_devices, plan_holders
from gpusteward.analyzer.sources.promql.process_queries import read_running
from gpusteward.analyzer.sources.promql.query_runner import Desk, Errand, Gathered, ask, failed_quantities, run_errands
from gpusteward.analyzer.sources.promql.rule_freshness import RuleWatch
from gpusteward.analyzer.sources.promql.static_values import Lasting
from gpusteward.analyzer.sources.usage.blocks import Block, Shelf, build_block
from gpusteward.analyzer.sources.usage.coverage import Expectations
from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.keys import Key
from gpusteward.analyzer.sources.usage.merge_tables import choose_rows, join_blocks
from gpusteward.analyzer.sources.usage.presence import list_silent
from gpusteward.analyzer.sources.usage.stale_allocations import Absences
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log

log = Log(__name__)

LONGEST_SKEW_SECONDS = 60.0
"""Two clocks further apart than this do not speak of the same window."""
_MOST_STALE = 2
_FEW_ROWS = 10_000
"""Rows that are kept from cycle to cycle, before those of pods long gone are dropped."""


@dataclass
class _Kept:
    """What outlives a cycle, for one spelling of the labels."""

    holders: TextKeys
    devices: TextKeys
    lasting: Lasting = field(default_factory=Lasting)


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
        self._limit = SeriesLimit(settings.series_limit)
        self._shards = Shards(settings.window_seconds)
        self._fleet: Fleet = {}
        self._sources: Sources | None = None
        self._cycles_left = 0
        self._failures: dict[str, str] = {}
        self._kept: dict[tuple[Key, Key], _Kept] = {}
        self._shelves: defaultdict[Hashable, Shelf] = defaultdict(Shelf)
        self._absences: defaultdict[Hashable, Absences] = defaultdict(Absences)
        self._watch = RuleWatch(settings.window_seconds)
        self._rules = frozenset[str]()  # those to read instead of samples, in this cycle
        self._rows = 0  # of the last table
        self._telling: set[Hashable] = set()  # whose rows are in it

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
        self._failures = {}
        self._rules = self._trust_rules(sources, at)
        blocks = [self._read_dialect(found, sources, at) for found in sources.found]
        chosen = choose_rows(blocks, [self._absences[found.key].unseen for found in sources.found])
        table = self._join(blocks, chosen, at)
        self._telling = {found.key for found, rows in zip(sources.found, chosen, strict=True) if rows}
        self._rows = len(table)
        if self._expectations.young:
            self._cycles_left = 0  # soon it will have grown
        if not len(table):
            self._kept.clear()
            self._sources = None  # perhaps the site changed its names: look again next time
        return table

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The course of one allocation before `at`. Raises SourceError."""
        sources = self._sources or self._learn(at)
        return read_chart(self._engine, sources, allocation, at=at, seconds=seconds, step=self._settings.step_seconds)

    def read_processes(self, pods: Collection[Pod], at: float) -> Running:
        """What these pods run, where an agent of ours tells it. Raises SourceError."""
        sources = self._sources or self._learn(at)
        return read_running(self._engine, sources.found, pods, at)

    def close(self) -> None:
        self._engine.close()

    def _learn(self, at: float) -> Sources:
        if self._sources is None or self._cycles_left <= 0 or has_newcomers(self._engine, self._sources, at):
            learned = discover(self._engine, self._condition, at=at, window_seconds=self._settings.window_seconds)
            self._sources = self._keep_awaited(learned)
            self._cycles_left = self._settings.relearn_cycles
            self._expire()
            self._fleet = self._count_fleet(self._sources, at)
            self._expectations.learn(self._sources.pace)
            shown = ",".join(found.dialect for found in self._sources.found)
            log.info("sources_found", engine=self._sources.engine, dialects=shown or "none")
        self._cycles_left -= 1
        return self._sources

    def _keep_awaited(self, learned: Sources) -> Sources:
        """Who is silent cannot be found, and yet its rows must not vanish from the table."""
        keys = {found.key for found in learned.found}
        silent = [
            found
            for found in (self._sources.found if self._sources else ())
            if found.key not in keys and found.key in self._telling
        ]
        return replace(learned, found=tuple(sorted((*learned.found, *silent), key=_trust))) if silent else learned

    def _trust_rules(self, sources: Sources, at: float) -> frozenset[str]:
        if not sources.rules or not self._settings.use_recording_rules:
            return frozenset()
        trusted = self._watch.trust(self._engine, sources.rules, sources.found, at)
        if self._watch.complaint:
            self._failures["recording rules"] = self._watch.complaint
        return trusted

    def _expire(self) -> None:
        """What was learned besides is asked for again; an engine that refused large queries may bear them by now."""
        self._limit.rise()
        self._shards.expire()
        for kept in self._kept.values():
            kept.lasting.expire()

    def _count_fleet(self, sources: Sources, at: float) -> Fleet:
        try:
            return count_fleet(self._engine, sources.found, self._condition, at=at)
        except SourceError as error:
            log.warning("fleet_not_counted", reason=error)
            return self._fleet

    def _read_dialect(self, found: Found, sources: Sources, at: float) -> Block:
        started = time.monotonic()
        gathered = self._gather(found, sources, at)
        while gathered.hit_limit and self._limit.lower(len(gathered.holders)):
            self._shards.expire()
            gathered = self._gather(found, sources, at)
        self._failures |= {
            f"{found.dialect} {asked}": why for asked, why in failed_quantities(gathered.failures).items()
        }
        if gathered.is_empty and gathered.failures:
            raise SourceError(next(iter(gathered.failures.values())))
        shelf = self._shelves[found.key]
        block = build_block(found.dialect, gathered, expectations=self._expectations, shelf=shelf, at=at)
        told = calls_devices(found.dialect, self._condition)
        self._absences[found.key].note(gathered, block, at, calls_devices=told)
        log.debug(
            "dialect_read", dialect=found.dialect, rows=len(block.allocations), seconds=time.monotonic() - started
        )
        return block

    def _gather(self, found: Found, sources: Sources, at: float) -> Gathered:
        plans = [plan_holders(found, self._condition)]
        if found.device:
            plans.append(plan_devices(found.device, self._condition))
        kept = self._keys(plans)
        absences = self._absences[found.key]
        desk = Desk(kept.holders, kept.devices, before=absences.recall(kept.holders, at))
        gathered = desk.gathered
        asks_all = kept.lasting.is_due
        self._run([plan if asks_all else plan.leave_out_lasting() for plan in plans], desk, sources, at)
        if not asks_all and kept.lasting.has_newcomers(gathered):
            self._run([plan.only_lasting() for plan in plans], desk, sources, at)
            asks_all = True
        if absences.find_strangers(list_silent(gathered)):
            self._run([plans[0].only_last_words()], desk, sources, at)
        if not gathered.is_empty:
            kept.lasting.recall(gathered)
            if asks_all:
                kept.lasting.keep(gathered, kept.devices, plans)
        return gathered

    def _run(self, plans: Iterable[SidePlan], desk: Desk, sources: Sources, at: float) -> None:
        asked = [plan for plan in plans if plan.queries]
        errands = [errand for plan in asked for errand in self._errands(plan, desk.gathered, sources, at)]
        run_errands(errands, desk, at_once=self._engine.max_concurrent_queries)

    def _keys(self, plans: Sequence[SidePlan]) -> "_Kept":
        """The rows of the last cycle go on, unless the labels are others now, or most of them are gone."""
        labels = (plans[0].spelling.holder, plans[-1].spelling.device)
        kept = self._kept.get(labels)
        if kept is None or len(kept.holders) > _MOST_STALE * self._rows + _FEW_ROWS:
            kept = self._kept[labels] = _Kept(TextKeys(labels[0]), TextKeys(labels[1]))
        return kept

    def _errands(self, plan: SidePlan, gathered: Gathered, sources: Sources, at: float) -> Iterable[Errand]:
        window = Window(self._settings.window_seconds, self._rules)
        known = max(len(gathered.holders), len(gathered.devices))
        shards = self._shards.cut(self._engine, plan, at=at, limit=self._limit.now, known=known)
        exported = self._settings.use_export and sources.can_export and not self._rules
        for shard in shards:
            if exported:
                yield from victoria.plan_exports(self._engine, plan, shard=shard, window=window, at=at)
            else:
                for query in plan.queries:
                    yield Errand((query,), partial(ask, self._engine, query, query.write(window, shard), at))

    def _join(self, blocks: Sequence[Block], chosen: Sequence[list[int]], at: float) -> UsageTable:
        table = join_blocks(blocks, chosen, at=at, window_seconds=self._settings.window_seconds)
        table = replace(table, fleet=self._fleet)
        skewed = self._skew_reason()
        return replace(table, unknown=dict.fromkeys(range(len(table)), skewed)) if skewed else table

    def _skew_reason(self) -> str:
        skew = self._engine.skew_seconds
        if skew is None or abs(skew) <= LONGEST_SKEW_SECONDS:
            return ""
        return f"the clocks of the engine and the analyzer are {abs(skew):.0f} s apart"


def _trust(found: Found) -> int:
    """Dialects in the order of trust."""
    return list(Dialect).index(found.dialect)
