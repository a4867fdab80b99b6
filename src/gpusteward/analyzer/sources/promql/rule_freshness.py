"""Whether the recording rules are still evaluated: what they kept last is believed for five minutes by the engine, and
the end of a window is where a GPU begins to work."""

from collections.abc import Collection, Iterable, Iterator

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_vector
from gpusteward.analyzer.sources.promql.expressions import RULE_INTERVAL_SECONDS, rule_name
from gpusteward.analyzer.sources.promql.plan import Found
from gpusteward.analyzer.sources.usage.quantities import Fold, Quantity, Signal
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

LONGEST_AGE_SECONDS = 2.5 * RULE_INTERVAL_SECONDS
"""Two intervals, and half a one for an engine that writes late."""


class RuleWatch:
    """Asks in every cycle when the rules of each dialect were evaluated last; says once when that is too long ago."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self.complaint = ""

    def trust(self, engine: Engine, rules: frozenset[str], found: Iterable[Found], at: float) -> frozenset[str]:
        """The rules, or none of them if one dialect's are late: then windows are computed from samples."""
        beats = dict.fromkeys(filter(None, (self._find_beat(rules, one) for one in found)))
        complaint = next(filter(None, (_complain(engine, beat, at) for beat in beats)), "")
        if complaint and not self.complaint:
            log.warning("recording_rules_late", reason=complaint)
        elif self.complaint and not complaint:
            log.info("recording_rules_in_time")
        self.complaint = complaint
        return frozenset() if complaint else rules

    def _find_beat(self, rules: Collection[str], found: Found) -> str:
        """One rule of a dialect: they are one group, evaluated one after the other."""
        names = (rule_name(metric, fold, self._window_seconds) for metric, fold in _list_windows(found))
        return next((name for name in names if name in rules), "")


def _list_windows(found: Found) -> Iterator[tuple[str, Fold]]:
    """The core first: whoever is there has one."""
    sides = [side for side in (found.holder, found.device) if side]
    signals = sorted((signal for side in sides for signal in side.signals), key=_is_less_telling)
    yield from ((signal.metric, fold) for signal in signals for fold in signal.folds)


def _is_less_telling(signal: Signal) -> bool:
    return signal.quantity is not Quantity.CORE


def _complain(engine: Engine, beat: str, at: float) -> str:
    try:
        answer = decode_vector(engine.query(f"max(timestamp({beat}))", at))
    except SourceError as error:
        return f"when they were recorded could not be read ({error}); windows are computed from samples"
    if len(answer) and at - answer.values[0] <= LONGEST_AGE_SECONDS:
        return ""
    when = f"{at - answer.values[0]:.0f} s ago" if len(answer) else "more than five minutes ago"
    return f"last recorded {when}; windows are computed from samples"
