"""How late samples arrive in an engine, for example by remote write.

A window that ends now lacks the samples that have not arrived yet, and nothing in it would ever be idle. If all targets
are late by the same in two cycles, the window ends at the newest sample instead. A lag that grows is an outage.
"""

from collections.abc import Collection, Iterable

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.coverage import ScrapeIntervals
from gpusteward.analyzer.sources.usage.selectors import match_any, write_selector
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

MAX_LAG_SECONDS = 300.0
"""An engine returns a sample for five minutes; what is later looks like an outage."""
DEFAULT_INTERVAL_SECONDS = 60.0
"""Where the engine has no `up`, so that the interval is not known."""
_SLACK_SECONDS = 5.0  # a scrape takes a while
_END = "end"


class SampleLag:
    """The lag of one engine from cycle to cycle."""

    def __init__(self) -> None:
        self.seconds: float | None = None  # age of the newest sample in the last cycle; None: there was none
        self._before: tuple[float, float] | None = None  # time and lag of an earlier cycle in which samples were late
        self._is_constant = False

    def measure(
        self,
        engine: Engine,
        schemes: Collection[DetectedScheme],
        intervals: ScrapeIntervals,
        *,
        at: float,
        hidden: float,
    ) -> float:
        """How long before `at` a window should end: the constant lag, else 0. `hidden`: seconds that the engine hides
        from queries. Raises nothing."""
        ends = _read_ends(engine, schemes, intervals, at)
        self.seconds = max(0.0, at - ends[1]) if ends else None
        interval = intervals.longest_of_gpus or DEFAULT_INTERVAL_SECONDS
        if ends is None or not self._is_late(at, *ends, normal=interval + _SLACK_SECONDS, hidden=hidden):
            self._before, self._is_constant = None, False
            return 0.0
        lag = at - ends[1]
        elapsed, grown = (at - self._before[0], abs(lag - self._before[1])) if self._before else (0.0, 0.0)
        if elapsed <= 0 or grown > interval:
            self._before, self._is_constant = (at, lag), False
        elif elapsed >= 2 * interval:  # before that, samples that stopped cannot be told from late ones
            self._before, self._is_constant = (at, lag), True
        return lag if self._is_constant else 0.0

    @staticmethod
    def _is_late(at: float, oldest: float, newest: float, *, normal: float, hidden: float) -> bool:
        """Whether the newest samples of all targets are alike, and later than a scrape explains."""
        return newest - oldest <= normal and normal + hidden < at - newest <= MAX_LAG_SECONDS


def _read_ends(
    engine: Engine, schemes: Collection[DetectedScheme], intervals: ScrapeIntervals, at: float
) -> tuple[float, float] | None:
    """The oldest and the newest of the last samples of all targets; one query, over `up` where the engine has it: there
    is one series per target, also of a target that is down."""
    jobs = intervals.of_gpus & intervals.seconds.keys() - {""}
    selectors = [write_selector("up", (match_any("job", sorted(jobs)),))] if jobs else list(_select_metrics(schemes))
    if not selectors:
        return None
    times = " or ".join(f"timestamp({selector})" for selector in selectors)
    ends = (f'label_replace({name}({times}), "{_END}", "{name}", "", "")' for name in ("min", "max"))
    try:
        vector = decode_vector(engine.query(" or ".join(ends), at))
    except SourceError as error:
        log.warning("sample_lag_not_read", reason=error)
        return None
    found = {
        decode_labels(text).get(_END): value for text, value in zip(vector.labels, vector.values.tolist(), strict=True)
    }
    return (found["min"], found["max"]) if found.keys() >= {"min", "max"} else None


def _select_metrics(schemes: Collection[DetectedScheme]) -> Iterable[str]:
    for detected in schemes:
        if metric := detected.holder.main_metric:
            yield write_selector(metric.name, (*metric.matchers, *detected.matchers))
