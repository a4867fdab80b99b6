"""One cycle of the analyzer: read, judge, explain, publish, pools, record, notify, reclaim.

The idea. A cycle is a chain of functions over one `Cycle`: each stage takes what earlier ones left there and adds its
own. `Pipeline` runs the stages in this order, in one thread, and one `StageRunner` times each, contains its failures
and counts them. Nothing but `VerdictHistory` is carried over to the next cycle: one that failed leaves nothing behind.

What always holds:
- A failure of read, judge, explain or publish ends the cycle: the last published result stays, with its age, and the
  outage is announced. A failure of pools, record, notify or reclaim costs only that stage.
- A result is published before it is recorded and notified: a slow database does not delay what people see.
- Of several analyzers on one ledger, only the leader runs record and notify and asks the language model. The others
  read, judge and publish for themselves, so that their history is complete when one of them becomes the leader. In
  reclaim they continue what is open in their own cluster: the leader may be the analyzer of another one.
- A language model delays no result: it is published with the opinions that are cached. Others are requested in another
  thread; when that ends, the thread of the cycles publishes the same result again with them.
- Notices and actions wait for the opinions on their result, or for the end of their time: an opinion can object.
- A result never replaces a newer one: opinions that arrive after the next cycle has been published are used there.
- A cycle is recorded only if the clock did not move during it: what dated it would not be what the ledger compares.

Without this, one slow or broken receiver would leave everybody without verdicts, two analyzers would send every notice
twice, and a workload could be suspended a second before the model's objection arrives.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from gpusteward.analyzer.explain.explainer import Explainer, OpinionRequests
from gpusteward.analyzer.explain.opinion_effects import OpinionEffect, apply_objections, evaluate_opinions
from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.explain.prompt_cases import Case, choose_rows, make_case
from gpusteward.analyzer.gpu_presence import GpuPresence
from gpusteward.analyzer.host_witnesses import add_host_use
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import make_verdict
from gpusteward.analyzer.judge.resumption import NO_HISTORY
from gpusteward.analyzer.judge.score import find_low
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import MAX_CLOCK_SKEW_SECONDS, UsageTable, VerdictTable
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log

log = Log(__name__)

DURATION_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),  # gpu-oour's, with +Inf 15
    *(30.0, 60.0, 120.0),  # cycles of large sites
)
CASES_OFFERED = 1000
"""How many allocations are offered to the explainer; its own budget limits how many the model is asked about."""


class Publisher(Protocol):
    """Makes a result visible to clients: `api.publisher.ResultPublisher`, which is above this module."""

    def publish(self, result: Result) -> None: ...


@dataclass
class Cycle:
    """What the stages of one cycle hand to each other."""

    settings: Settings
    at: float  # unix seconds: the end of the window
    use_ai: bool
    started: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)  # the same moment in unix seconds
    usage: UsageTable = field(init=False)
    rule_verdicts: VerdictTable = field(init=False)  # before any opinion
    cases: Sequence[Case] = ()  # what a model may be asked about
    requested: Mapping[str, Opinion] | None = None  # the opinions that were requested for this cycle; None: not yet
    verdicts: VerdictTable = field(init=False)
    opinions: Mapping[int, Opinion] = field(init=False)  # by row of `verdicts`
    opinion_effects: Mapping[int, OpinionEffect] = field(init=False)
    seconds: float | None = None  # until the first publication
    pools: Mapping[WorkloadKey, PoolMinutes] = field(default_factory=dict)  # read after it
    result: Result = field(init=False)
    source_error: SourceError | None = None  # of the stage that failed; has texts in all languages


class Stage(NamedTuple):
    """One step of a cycle."""

    name: str
    run: Callable[[Cycle], None]
    is_required: bool = True  # whether its failure ends the cycle


@dataclass
class StageStats:
    """The runs of one stage since the start."""

    runs: int = 0
    failures: int = 0
    seconds_total: float = 0.0
    last_error: str = ""  # empty: the last run succeeded


@dataclass
class CycleStats:
    """The cycles since the start. Written by the thread that runs them, read by any."""

    created_at: float = field(default_factory=time.time)  # unix seconds
    finished: int = 0
    failed: int = 0
    last_error: str = ""
    last_ended_at: float | None = None  # unix seconds
    last_succeeded_at: float | None = None  # end of the last successful cycle
    seconds_total: float = 0.0
    duration_counts: list[int] = field(default_factory=lambda: [0] * len(DURATION_BUCKETS))  # cumulative
    stages: dict[str, StageStats] = field(default_factory=dict)

    def observe(self, seconds: float) -> None:
        self.seconds_total += seconds
        for number, limit in enumerate(DURATION_BUCKETS):
            self.duration_counts[number] += seconds <= limit

    def stage_error(self, name: str) -> str:
        """Why the last run of a stage failed; empty when it did not."""
        stage = self.stages.get(name)
        return stage.last_error if stage else ""


class StageRunner:
    """Times stages, contains their failures and counts them."""

    def __init__(self, stats: dict[str, StageStats]) -> None:
        self._stats = stats

    def run(self, stage: Stage, cycle: Cycle) -> str:
        """Run one stage; the reason if it failed, else an empty text."""
        stats = self._stats.setdefault(stage.name, StageStats())
        started, error = time.monotonic(), ""
        try:
            stage.run(cycle)
        except SourceError as raised:
            error, cycle.source_error = str(raised), raised
        except Exception as raised:  # noqa: BLE001 - a defect costs this stage or this cycle, never the thread
            error = f"unexpected {type(raised).__name__}: {raised}"
        seconds = time.monotonic() - started
        log.debug("stage_finished", stage=stage.name, seconds=f"{seconds:.3f}", error=error)
        if error and not stage.is_required and error != stats.last_error:
            log.warning("stage_failed", stage=stage.name, reason=error)
        stats.runs += 1
        stats.failures += bool(error)
        stats.seconds_total += seconds
        stats.last_error = error
        return error


@dataclass(frozen=True)
class Components:
    """What the stages use. Without a ledger, stage `record` does nothing; without a notifier, stage `notify`; without a
    reclaimer, stage `reclaim`."""

    source: UsageSource
    owners: ClusterOwners
    explainer: Explainer
    publisher: Publisher
    ledger: LedgerAccess | None = None
    notifier: Notifier | None = None
    reclaimer: Reclaimer | None = None
    is_leader: Callable[[], bool] = lambda: True  # whether this replica writes; may take as long as the database
    presence: GpuPresence | None = None
    pools: PoolWatch | None = None


class Pipeline:
    """Runs cycles one after another, in one thread. Only `VerdictHistory` is carried over from cycle to cycle."""

    def __init__(self, components: Components) -> None:
        self.stats = CycleStats()
        self._components = components
        self._runner = StageRunner(self.stats.stages)
        self._history: VerdictHistory | None = None
        self._number = 0
        self.requests = OpinionRequests(components.explainer)
        self.on_opinions: Callable[[], None] = lambda: None  # called in another thread; then `publish_opinions` is due
        self._waiting: Cycle | None = None  # for opinions
        explain, publish = Stage("explain", self._explain), Stage("publish", self._publish)
        notify = Stage("notify", self._notify, is_required=False)
        reclaim = Stage("reclaim", self._reclaim, is_required=False)
        self._stages: Sequence[Stage] = (
            Stage("read", self._read),
            Stage("judge", self._judge),
            explain,
            publish,
            Stage("pools", self._watch_pools, is_required=False),
            Stage("record", self._record, is_required=False),
            notify,
            reclaim,
        )
        self._opinion_stages: Sequence[Stage] = (explain, publish, notify, reclaim)

    def run(self, settings: Settings, *, at: float, use_ai: bool) -> Result | None:
        """Run one cycle; its result, or None when it failed: `stats.last_error` has the reason. Never raises."""
        cycle = Cycle(settings, at, use_ai)
        error = self._run_stages(self._stages, cycle)
        if error:
            self._fail(error, cycle)
        else:
            self._finish(cycle.result)
        self.stats.observe(time.monotonic() - cycle.started)
        self.stats.last_ended_at = time.time()
        return None if error else cycle.result

    def publish_opinions(self) -> Result | None:
        """Publish the last result again, with the opinions that were requested for it; None: none has arrived, or those
        that have arrived are on an earlier result and those on this one have not.

        Only for the thread that calls `run`. Never raises.
        """
        if self.requests.are_running:
            return None
        cycle, self._waiting = self._waiting, None
        if cycle is None:
            return None
        before, explain, *others = cycle.opinions, *self._opinion_stages
        self._run_stages([explain], cycle)
        if cycle.opinions == before:  # the model has failed
            self._run_stages(others[1:], cycle)
            return None
        return None if self._run_stages(others, cycle) else cycle.result

    def _run_stages(self, stages: Sequence[Stage], cycle: Cycle) -> str:
        for stage in stages:
            error = self._runner.run(stage, cycle)
            if error and stage.is_required:
                return error
        return ""

    def _read(self, cycle: Cycle) -> None:
        usage, presence = self._components.source.read(cycle.at), self._components.presence
        usage = self._components.owners.resolve_owners(presence.check(usage) if presence else usage)
        cycle.usage = join_servers(usage)

    def _judge(self, cycle: Cycle) -> None:
        history, ledger = self._history, self._components.ledger
        if history is None:  # the first cycle: what the ledger has of these allocations
            history = VerdictHistory() if ledger is None else ledger.restore(cycle.usage)
        rules = cycle.settings.rules
        cycle.usage = add_host_use(cycle.usage, history, self._components.source, rules=rules)
        cycle.rule_verdicts, self._history = judge(cycle.usage, rules, history, now=cycle.at)

    def _explain(self, cycle: Cycle) -> None:
        """Second opinions can only make a verdict more careful. A cycle that was requested without the model uses what
        the model said before: it must not be less careful than the others."""
        if cycle.use_ai or cycle.settings.ai.enabled:
            cycle.cases = cycle.cases or _make_cases(cycle)
        opinions = {**self._components.explainer.recall(cycle.cases, now=cycle.at), **(cycle.requested or {})}
        cycle.opinions = {int(key): opinion for key, opinion in opinions.items()}
        cycle.opinion_effects = evaluate_opinions(
            cycle.rule_verdicts, cycle.opinions, threshold=cycle.settings.ai.threshold
        )
        cycle.verdicts = apply_objections(cycle.rule_verdicts, cycle.opinion_effects)

    def _publish(self, cycle: Cycle) -> None:
        workloads = judge_workloads(cycle.verdicts, cycle.settings.rules)
        self._waiting = None  # an older result must not replace this one
        self._number += 1
        cycle.seconds = cycle.seconds or time.monotonic() - cycle.started
        cycle.result = Result(
            number=self._number,
            at=cycle.at - cycle.usage.lag_seconds,
            seconds=cycle.seconds,
            settings=cycle.settings,
            verdicts=cycle.verdicts,
            workloads=workloads,
            opinions=cycle.opinions,
            opinion_effects=cycle.opinion_effects,
            sources=self._components.source.describe(),
            spells=NO_HISTORY if self._components.ledger is None else self._components.ledger.spell_history,
            pools=cycle.pools,
        )
        self._components.publisher.publish(cycle.result)

    def _watch_pools(self, cycle: Cycle) -> None:
        """After the result is published: nobody waits for it but reclaim. Where it fails, pools are not known."""
        if self._components.pools is not None:
            cycle.pools = self._components.pools.update(cycle.result)
            cycle.result = replace(cycle.result, pools=cycle.pools)

    def _record(self, cycle: Cycle) -> None:
        ledger = self._components.ledger
        if ledger is None:
            return
        if self._components.is_leader():
            # The ledger compares the present clock with others: it must also be the one that dated this cycle.
            stepped = (time.time() - cycle.started_at) - (time.monotonic() - cycle.started)
            if abs(stepped) > MAX_CLOCK_SKEW_SECONDS:
                raise SourceError(f"the clock moved by {stepped:+.0f} s during the cycle, which is not recorded")
            ledger.record(cycle.result)
            ledger.record_pools(cycle.result.pools)
        ledger.update_spell_history(cycle.result)  # also in a replica that only reads

    def _notify(self, cycle: Cycle) -> None:
        """Not before the opinions on this result have arrived, or their time is up."""
        if not self._components.is_leader():
            return
        if cycle.use_ai and cycle.requested is None:
            self._request_opinions(cycle)
            if self._waiting is cycle:
                return
        if self._components.notifier is not None:
            self._components.notifier.notify(cycle.result)

    def _reclaim(self, cycle: Cycle) -> None:
        """After the notices, and like them not before the opinions on this result have arrived."""
        reclaimer = self._components.reclaimer
        if reclaimer is None or self._waiting is cycle:
            return
        if self._components.is_leader():
            reclaimer.reclaim(cycle.result)
        else:
            reclaimer.continue_open(cycle.result)

    def _request_opinions(self, cycle: Cycle) -> None:
        def receive(opinions: Mapping[str, Opinion]) -> None:
            cycle.requested = opinions

        unasked = [case for case in cycle.cases if int(case.key) not in cycle.opinions]
        cycle.requested = {}
        self._waiting = cycle  # before the requests start: they may end at once
        if not self.requests.start(unasked, now=cycle.at, receive=receive, on_end=self.on_opinions):
            self._waiting = None

    def _finish(self, result: Result) -> None:
        self.stats.finished += 1
        self.stats.last_succeeded_at = time.time()
        self.stats.last_error = ""
        log.info(
            "cycle_finished",
            number=result.number,
            allocations=len(result.verdicts),
            seconds=f"{result.seconds:.2f}",
        )

    def _fail(self, reason: str, cycle: Cycle) -> None:
        self.stats.failed += 1
        if reason != self.stats.last_error:
            log.warning("cycle_failed", reason=reason)
        self.stats.last_error = reason
        notifier = self._components.notifier
        if notifier is not None and self._components.is_leader():
            announce = Stage(
                "notify",
                lambda _: notifier.announce_outage(cycle.source_error or reason, at=time.time()),
                is_required=False,
            )
            self._runner.run(announce, cycle)
        cycle.source_error = None  # its traceback refers to the cycle, which would stay in memory


def _make_cases(cycle: Cycle) -> Sequence[Case]:
    verdicts, settings = cycle.rule_verdicts, cycle.settings
    is_low = find_low(verdicts.score, verdicts.state, thresholds=settings.thresholds)
    return [
        make_case(
            str(row), make_verdict(verdicts, row, rules=settings.rules, language=settings.ai.language), now=cycle.at
        )
        for row in choose_rows(verdicts, limit=CASES_OFFERED, is_low=is_low)
    ]
