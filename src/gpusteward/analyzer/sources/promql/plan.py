"""What a site has -> the questions of one cycle: one per signal and fold for all GPUs, never one per GPU."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpusteward.analyzer.sources.promql.expressions import Query
from gpusteward.analyzer.sources.promql.matchers import Matcher, Matchers, write_selector
from gpusteward.analyzer.sources.usage.dialects import CORE_FOLDS, Dialect
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, Spelling
from gpusteward.analyzer.sources.usage.quantities import LAST_WORDS, ROLL_CALL, Asked, Fold, Level, Quantity, Signal

NATIVE_DETAILS = ("pod_uid", "workload_kind", "workload", "share", "user")
DEVICE_DETAILS = ("parent_uuid", "model")
_OF_HOLDER = frozenset(label for role in ("namespace", "pod", "container") for label in CANDIDATES[role])


@dataclass(frozen=True, slots=True)
class Side:
    """The series of one dialect at one level, and how they are labelled."""

    spelling: Spelling
    signals: tuple[Signal, ...]
    has_mig: bool = False

    @property
    def core(self) -> Signal | None:
        """What the series are counted of: the core, or whatever there is."""
        cores = (signal for signal in self.signals if signal.quantity is Quantity.CORE)
        return next(cores, self.signals[0] if self.signals else None)


@dataclass(frozen=True, slots=True)
class Found:
    """What one dialect offers at this site."""

    dialect: Dialect
    holder: Side
    device: Side | None = None
    calls_all: bool = False  # whether everybody with a core answers the roll call
    only: Matchers = ()  # whose holders these are, where scrape jobs spell their labels differently

    @property
    def key(self) -> tuple[Dialect, str]:
        """What outlives a cycle is kept by this; it stays when one more job spells its labels so."""
        return self.dialect, self.holder.spelling.pod if self.only else ""


@dataclass(frozen=True, slots=True)
class SidePlan:
    """The questions about one side, and what to count before they are asked."""

    spelling: Spelling
    queries: tuple[Query, ...]
    metric: str  # whose series are counted before anything is asked
    matchers: Matchers

    def leave_out_lasting(self) -> "SidePlan":
        return replace(self, queries=tuple(query for query in self.queries if not query.is_lasting))

    def only_last_words(self) -> "SidePlan":
        """Instead of who is there now, who was in the window and is not any more."""
        called = (query for query in self.queries if query.asked == ROLL_CALL)
        return replace(self, queries=tuple(replace(query, asked=LAST_WORDS) for query in called))

    def only_lasting(self) -> "SidePlan":
        return replace(self, queries=tuple(query for query in self.queries if query.is_lasting))


def plan_holders(found: Found, condition: Matchers) -> SidePlan:
    """Everything asked about holders: the roll call first, then the windows."""
    side = found.holder
    condition = (*condition, *found.only)
    everyone = asks_holders(condition)
    label = _tell_held(found)
    held = (*everyone, Matcher(label, "!=", "")) if label else everyone
    signals = _signals_of_holders(found)
    devices = [signal for signal in side.signals if signal.level is Level.DEVICE]
    queries = [
        *_roll_call(found, signals, everyone),
        *_ask(signals, side.spelling, held),
        *_ask(devices, side.spelling, asks_devices(condition)),
    ]
    return _plan_side(side, queries, held)


def write_uncalled(found: Found, condition: Matchers) -> Iterator[str]:
    """Expressions for holders that have a core now and do not answer the roll call."""
    signals, everyone = _signals_of_holders(found), asks_holders((*condition, *found.only))
    callers = [write_selector(query.metric, query.matchers) for query in _roll_call(found, signals, everyone)]
    labels = ", ".join(label for label in found.holder.spelling.holder if label)
    for signal in signals:
        if signal.quantity is Quantity.CORE:
            core = write_selector(signal.metric, (*everyone, *_conditions(signal)))
            yield f"{core} unless on ({labels}) ({' or '.join(callers)})"


def _signals_of_holders(found: Found) -> list[Signal]:
    """Where somebody may have a core and yet not answer the roll call, it is asked who has one now."""
    mine = [signal for signal in found.holder.signals if signal.level is Level.HOLDER]
    mine = list(_split_mig(mine, found.holder.spelling.instance)) if found.dialect is Dialect.DCGM else mine
    if found.calls_all or found.dialect is Dialect.NATIVE:
        return mine
    return [
        replace(signal, folds=(*signal.folds, Fold.LAST)) if signal.quantity is Quantity.CORE else signal
        for signal in mine
    ]


def plan_devices(side: Side, condition: Matchers) -> SidePlan:
    """Everything asked about devices, whoever holds them."""
    matchers = asks_devices(condition)
    return _plan_side(side, list(_ask(side.signals, side.spelling, matchers)), matchers)


def _tell_held(found: Found) -> str:
    """The label that says cheapest that somebody holds a GPU. An engine goes through all values of a label that must
    not be empty, and a cluster has a hundred times as many pods as namespaces; dcgm-exporter knows both or neither."""
    spelling = found.holder.spelling
    return (spelling.namespace if found.dialect is Dialect.DCGM else "") or spelling.pod


def asks_holders(condition: Matchers) -> Matchers:
    """What of a condition is asked of series about holders, besides that they are held."""
    return tuple(matcher for matcher in condition if not _means_held(matcher))


def calls_devices(dialect: Dialect, condition: Matchers) -> bool:
    """Whether a GPU that nobody holds answers the roll call too. HAMi's families do not know of it; and it has no
    namespace that a condition could ask for, but for the agent, which names all GPUs beside their holders."""
    if dialect is Dialect.NATIVE:
        return True
    return dialect is Dialect.DCGM and asks_holders(condition) == asks_devices(condition)


def asks_devices(condition: Matchers) -> Matchers:
    """What of a condition is asked of series about devices."""
    return tuple(matcher for matcher in condition if matcher.label not in _OF_HOLDER)


def _plan_side(side: Side, queries: list[Query], matchers: Matchers) -> SidePlan:
    core = side.core
    metric = core.metric if core else ""
    only = _conditions(core) if core else ()
    return SidePlan(side.spelling, tuple(queries), metric, (*matchers, *only))


def _means_held(matcher: Matcher) -> bool:
    """The seed's `pod!=""`: every holder is meant, under whatever name this site has for the label."""
    return (matcher.label, matcher.operator, matcher.value) == ("pod", "!=", "")


def _roll_call(found: Found, signals: list[Signal], matchers: Matchers) -> Iterator[Query]:
    """Who is there now, with all that is known of them: by what every allocation has, also one whose core nobody
    measures. That is the claim itself, HAMi's memory limit, DCGM's memory in use.

    Devices without a holder are called too: so it is seen whose allocation has ended, and whose exporter fell silent.
    """
    spelling = found.holder.spelling
    more = NATIVE_DETAILS if found.dialect is Dialect.NATIVE else ()
    by = (*spelling.holder, spelling.node, spelling.gpu, spelling.model, spelling.job, *more)
    for signal in signals:
        if signal.quantity is _find_caller(found.dialect, signals):
            yield Query(ROLL_CALL, signal.metric, signal.scale, by, (*matchers, *_conditions(signal)))


def _find_caller(dialect: Dialect, signals: list[Signal]) -> Quantity:
    there = {signal.quantity for signal in signals}
    return next((quantity for quantity in _CALLERS[dialect] if quantity in there), Quantity.CORE)


_CALLERS = {
    Dialect.NATIVE: (Quantity.PRESENCE,),
    Dialect.HAMI: (Quantity.MEMORY_LIMIT, Quantity.MEMORY_USED),
    Dialect.DCGM: (Quantity.MEMORY_USED,),
}


def _ask(signals: list[Signal] | tuple[Signal, ...], spelling: Spelling, matchers: Matchers) -> Iterator[Query]:
    for signal in signals:
        if signal.quantity is Quantity.PRESENCE:
            continue
        by = spelling.holder if signal.level is Level.HOLDER else spelling.device
        if signal.quantity is Quantity.IDENTITY:
            by = (*by, *DEVICE_DETAILS)
        for fold in signal.folds:
            asked: Asked = (signal.level, signal.quantity, fold)
            yield Query(asked, signal.metric, signal.scale, by, (*matchers, *_conditions(signal)))


def _conditions(signal: Signal) -> Matchers:
    return tuple(Matcher(*parts) for parts in signal.only)


def _split_mig(signals: list[Signal], label: str) -> Iterator[Signal]:
    """A MIG instance has no utilization: its core is the engine's activity. A site may also export nothing else."""
    cores = [signal for signal in signals if signal.quantity is Quantity.CORE]
    engines = [signal for signal in signals if signal.quantity is Quantity.ENGINE]
    if not cores:
        yield from (replace(engine, quantity=Quantity.CORE, folds=CORE_FOLDS) for engine in engines)
    elif label:
        yield from (replace(core, only=(*core.only, (label, "=", ""))) for core in cores)
        in_slices = ((label, "!=", ""),)
        yield from (replace(one, quantity=Quantity.CORE, folds=CORE_FOLDS, only=in_slices) for one in engines)
    else:
        yield from cores
    yield from (signal for signal in signals if signal.quantity is not Quantity.CORE)
