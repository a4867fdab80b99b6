"""What this site has: which engine, whose metrics, under which names and labels. Learned from the engine's index, not
by reading series."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_names, decode_plain, decode_vector
from gpusteward.analyzer.sources.promql.expressions import RULE_PREFIX, rule_name, write_duration
from gpusteward.analyzer.sources.promql.matchers import Matchers, write_selector
from gpusteward.analyzer.sources.promql.per_job_labels import divide_by_job
from gpusteward.analyzer.sources.promql.plan import Found, Side, SidePlan, plan_holders, write_uncalled
from gpusteward.analyzer.sources.usage.dialects import Dialect, dcgm_signals, hami_signals, native_signals
from gpusteward.analyzer.sources.usage.label_mapping import find_spelling
from gpusteward.analyzer.sources.usage.quantities import Fold, Level, Quantity, Signal
from gpusteward.analyzer.sources.usage.scrape_intervals import Pace, read_pace
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError

LOOK_BACK_SECONDS = 3600.0
VICTORIA = "VictoriaMetrics"
_TELLING = (Quantity.PRESENCE, Quantity.CORE, Quantity.ENGINE, Quantity.MEMORY_USED)


@dataclass(frozen=True)
class Sources:
    """What was found, as far as a cycle needs it."""

    engine: str
    version: str
    learned_at: float
    found: tuple[Found, ...] = ()
    rules: frozenset[str] = frozenset()
    can_export: bool = False
    pace: Pace = field(default_factory=Pace)
    left_out: Mapping[str, float] = field(default_factory=dict)
    """How many nodes those speak of who were left out because the agent is on all of them: question -> nodes."""

    def as_plain(self) -> dict[str, Any]:
        """For people: who speaks here, in which words."""
        return {
            "engine": self.engine,
            "version": self.version,
            "learned_at": self.learned_at,
            "recording_rules": sorted(self.rules),
            "export": self.can_export,
            "scrape_intervals_seconds": dict(self.pace.intervals),
            "dialects": [_show(found) for found in self.found],
        }


def discover(engine: Engine, condition: Matchers, *, at: float, window_seconds: float) -> Sources:
    """Ask the engine what it has. Raises SourceError when it does not answer at all."""
    names = set(_read_names(engine, at))
    kind, version = _identify(engine, at)
    found = [
        *_find_native(engine, names, at),
        *_find_hami(engine, names, at),
        *_find_dcgm(engine, names, at),
    ]
    left_out: dict[str, float] = {}
    native = [one for one in found if one.dialect is Dialect.NATIVE]
    others = [one for one in found if one.dialect is not Dialect.NATIVE]
    if native and others and _native_says_all(engine, others, condition, at):
        questions = [_count_nodes(plan_holders(other, condition)) for other in others]
        left_out = {question: _count(engine, question, at) for question in questions}
        found = native
    found = [replace(one, calls_all=_calls_all(engine, one, condition, at)) for one in found]
    return Sources(
        engine=kind,
        version=version,
        learned_at=at,
        found=tuple(found),
        rules=_find_rules(engine, names, found, window_seconds=window_seconds, at=at),
        can_export=kind == VICTORIA and _can_export(engine, at),
        pace=read_pace(engine, found, at),
        left_out=left_out,
    )


def has_newcomers(engine: Engine, sources: Sources, at: float) -> bool:
    """Whether a node joined that the agent may not be on."""
    return any(_count(engine, question, at) > nodes for question, nodes in sources.left_out.items())


def _read_names(engine: Engine, at: float) -> list[str]:
    return decode_names(engine.fetch("/api/v1/label/__name__/values", _span(at), is_read_by_get=True))


def _read_labels(engine: Engine, signals: Iterable[Signal], at: float) -> set[str]:
    """The labels of a few families: one exporter labels them alike, but for MIG, which not every family knows."""
    matches = [("match[]", metric) for metric in _list_telling(signals)]
    return set(decode_names(engine.fetch("/api/v1/labels", (*matches, *_span(at))))) if matches else set()


def _list_telling(signals: Iterable[Signal]) -> list[str]:
    return list(dict.fromkeys(signal.metric for signal in signals if signal.quantity in _TELLING))


def _divide(engine: Engine, found: Found, labels: set[str], at: float) -> Iterator[Found]:
    """Once, or once for every spelling that the scrape jobs have."""
    yield from divide_by_job(engine, found, _list_telling(found.holder.signals), labels, at=at, span=_span(at))


def _span(at: float) -> tuple[tuple[str, str], ...]:
    return ("start", f"{at - LOOK_BACK_SECONDS:.3f}"), ("end", f"{at:.3f}")


def _identify(engine: Engine, at: float) -> tuple[str, str]:
    """VictoriaMetrics poses as Prometheus, but does not say what it was built with, and only it knows `now()`."""
    try:
        built = decode_plain(engine.fetch("/api/v1/status/buildinfo", is_read_by_get=True))
    except SourceError:
        built = {}
    if "goVersion" not in built and _knows_now(engine, at):
        return VICTORIA, ""
    kind = "Prometheus" if built else "Prometheus-compatible"
    return str(built.get("application") or kind), str(built.get("version") or "")


def _knows_now(engine: Engine, at: float) -> bool:
    try:
        decode_vector(engine.query("now()", at))
    except SourceError:
        return False
    return True


def _find_native(engine: Engine, names: Collection[str], at: float) -> Iterable[Found]:
    signals = native_signals(names)
    if not signals:
        return
    holders = tuple(signal for signal in signals if signal.level is Level.HOLDER)
    devices = tuple(signal for signal in signals if signal.level is Level.DEVICE)
    labels = _read_labels(engine, holders, at)
    spelling = find_spelling(labels)
    found = Found(Dialect.NATIVE, Side(spelling, holders), Side(spelling, devices))
    yield from _divide(engine, found, labels, at)


def _find_hami(engine: Engine, names: Collection[str], at: float) -> Iterable[Found]:
    signals = hami_signals(names)
    if not signals:
        return
    devices = dcgm_signals(names, level=Level.DEVICE)
    device = Side(find_spelling(_read_labels(engine, devices, at)), devices) if devices else None
    labels = _read_labels(engine, signals, at)
    yield from _divide(engine, Found(Dialect.HAMI, Side(find_spelling(labels), signals), device), labels, at)


def _find_dcgm(engine: Engine, names: Collection[str], at: float) -> Iterable[Found]:
    signals = dcgm_signals(names)
    if not signals:
        return
    labels = _read_labels(engine, signals, at)
    yield from _divide(engine, Found(Dialect.DCGM, Side(find_spelling(labels), signals)), labels, at)


def _native_says_all(engine: Engine, others: list[Found], condition: Matchers, at: float) -> bool:
    """Whether every device that others name is one whose holders gpusteward's agent knows: then they need no asking."""
    told = f"{metrics.GPU_INFO.name} and on (node) ({metrics.ALLOCATIONS_KNOWN.name} == 1)"
    plans = [plan_holders(other, condition) for other in others]
    return all(_count(engine, untold, at) == 0 for plan in plans for untold in _write_untold(plan, told))


def _calls_all(engine: Engine, found: Found, condition: Matchers, at: float) -> bool:
    """Of claims the roll call alone speaks."""
    if found.dialect is Dialect.NATIVE:
        return True
    return all(_count(engine, f"count({asked})", at) == 0 for asked in write_uncalled(found, condition))


def _write_untold(side: SidePlan, told: str) -> Iterator[str]:
    """By every name a core has here: exporters of several versions do not share one, nor do slices with whole GPUs."""
    label = side.spelling.uuid
    cores = dict.fromkeys((query.metric, query.matchers) for query in side.queries if query.quantity is Quantity.CORE)
    for metric, matchers in cores or {(side.metric, side.matchers): None}:
        mine = write_selector(metric, matchers)
        yield f'count({mine} unless on ({label}) label_replace({told}, "{label}", "$1", "uuid", "(.*)"))'


def _count_nodes(side: SidePlan) -> str:
    return f"count(count by ({side.spelling.node}) ({write_selector(side.metric, side.matchers)}))"


def _count(engine: Engine, expression: str, at: float) -> float:
    try:
        vector = decode_vector(engine.query(expression, at))
    except SourceError:
        return float("nan")
    return float(vector.values[0]) if len(vector) else 0.0


def _find_rules(
    engine: Engine, names: Collection[str], found: Iterable[Found], *, window_seconds: float, at: float
) -> frozenset[str]:
    """Recorded windows of this length, if they are still being recorded: a name outlives its rule by hours."""
    suffix = f"_{write_duration(window_seconds)}"
    kept = {name for name in names if name.startswith(RULE_PREFIX) and name.endswith(suffix)}
    for one in found:
        core = one.holder.core
        beat = rule_name(core.metric, Fold.COUNT, window_seconds) if core else ""
        if beat in kept and not _count(engine, f"count({beat})", at) > 0:
            return frozenset()
    return frozenset(kept)


def _can_export(engine: Engine, at: float) -> bool:
    """Proxies and clusters may hide it."""
    fields = (("match[]", "up"), ("start", f"{at - 1:.3f}"), ("end", f"{at:.3f}"))
    try:
        engine.fetch("/api/v1/export", fields)
    except SourceError:
        return False
    return True


def _show(found: Found) -> dict[str, Any]:
    sides = [side for side in (found.holder, found.device) if side]
    return {
        "name": found.dialect.value,
        **({"only": write_selector("", found.only)} if found.only else {}),
        "labels": {role: label for role, label in asdict(found.holder.spelling).items() if label},
        "metrics": sorted({signal.metric for side in sides for signal in side.signals}),
    }
