"""When samples arrive: how often each job is scraped, which of its targets less often, which jobs have been scraped for
long enough to know, and how late samples are, for example by remote write.

The engine writes `up` at every scrape, also for targets that are down. The ten minutes of the last hour with the most
samples of `up` give the interval of a job, even right after an outage of the engine itself. Ten minutes that are only
half filled, because the job or the engine is new, would give twice the interval, and every window would look complete.
So nothing is concluded for a job without samples ten minutes ago.

Targets of one job may have different intervals. The interval of the job is that of its fastest target; a slower target
has its own, unless it is new or has a gap in the last ten minutes, which would look like a longer interval.

A window that ends now lacks the samples that have not arrived yet, and nothing in it would ever be idle. If all targets
are late by the same in two cycles, the window ends at the newest sample instead. A lag that grows is an outage.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.coverage import ScrapeIntervals
from gpusteward.analyzer.sources.usage.query_results import ScrapeTarget, find_label
from gpusteward.analyzer.sources.usage.selectors import join_labels, match_any, write_selector
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

PERIOD_SECONDS = 600.0
SHORT_PERIODS_SECONDS = (60, 150)
HIGHEST_COUNTS = (
    "max by (job) (max_over_time(count_over_time(up[600s])[1h:5m]))",
    "max by (job) (count_over_time(up[600s]))",  # until now: the former is evaluated at whole five minutes only
)
_COMMON_INTERVALS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
"""Values that people write into a scrape configuration."""


def read_scrape_intervals(engine: Engine, schemes: Collection[DetectedScheme], at: float) -> ScrapeIntervals:
    """Raises nothing: what cannot be read stays unknown."""
    main = dict.fromkeys(metric.name for detected in schemes if (metric := detected.holder.main_metric))
    of_gpus = {job for metric in main for job in _read_by_job(engine, f"count by (job) ({metric} offset 600s)", at)}
    established = of_gpus.union(_read_by_job(engine, "count by (job) (up offset 600s)", at))
    highest: dict[str, float] = {}
    for expression in HIGHEST_COUNTS:
        for job, count in _read_by_job(engine, expression, at).items():
            highest[job] = max(count, highest.get(job, 0.0))
    intervals = {job: infer_interval(count) for job, count in highest.items() if job in established}
    known = {job: interval for job, interval in intervals.items() if interval}
    clusters = dict.fromkeys(label for detected in schemes if (label := detected.holder.mapping.cluster))
    fastest = {job: known[job] for job in of_gpus & known.keys() - {""}}
    targets, at_most = _read_slow_targets(engine, list(clusters), fastest, highest, at)
    return ScrapeIntervals(known, frozenset(established), targets, at_most, frozenset(of_gpus))


def _read_slow_targets(
    engine: Engine, clusters: Sequence[str], fastest: Mapping[str, float], highest: Mapping[str, float], at: float
) -> tuple[dict[ScrapeTarget, float], dict[ScrapeTarget, float]]:
    """Targets with a longer interval than the fastest of their job, and those whose interval is at most so long. Three
    more queries, for jobs that may have some. `clusters`: the labels that may name the cluster of a target."""
    targets: dict[ScrapeTarget, float] = {}
    at_most: dict[ScrapeTarget, float] = {}
    lowest = _read_by_job(engine, f"min by (job) (count_over_time({_select_up(fastest)}[600s]))", at) if fastest else {}
    mixed = [job for job in fastest if lowest.get(job, highest[job]) < highest[job] - 1]
    if not mixed:
        return targets, at_most

    def read(expression: str) -> dict[ScrapeTarget, float]:
        return {
            ScrapeTarget(labels.get("job", ""), labels.get("instance", ""), find_label(labels, clusters)): value
            for labels, value in _query(engine, expression, at)
        }

    up, by = _select_up(mixed), join_labels("job", "instance", *clusters)
    bounds: list[dict[ScrapeTarget, float]] = []
    for seconds in SHORT_PERIODS_SECONDS:
        # The longest interval that puts as many samples into a short period as there were at most. Gaps beside the
        # period do not make it longer.
        counts = read(f"max by ({by}) (max_over_time(count_over_time({up}[{seconds}s])[600s:15s]))")
        bounds.append({target: seconds / (count - 1) + 1e-9 for target, count in counts.items() if count > 1})
    for target, count in read(f"max by ({by}) (count_over_time({up}[600s]) and ({up} offset 600s))").items():
        interval = infer_interval(count)
        longest = min(of_period.get(target, np.inf) for of_period in bounds)
        if interval and interval > fastest[target.job]:
            (targets if interval <= longest else at_most)[target] = min(interval, longest)
    return targets, at_most


def _select_up(jobs: Iterable[str]) -> str:
    return write_selector("up", (match_any("job", sorted(jobs)),))


def infer_interval(samples: float) -> float | None:
    """The interval that puts this many samples into ten minutes; one more fits in if both ends are included."""
    if not np.isfinite(samples) or samples < 2:
        return None
    shortest, longest = PERIOD_SECONDS / samples, PERIOD_SECONDS / (samples - 1)
    common = [interval for interval in _COMMON_INTERVALS if shortest - 1e-9 <= interval <= longest + 1e-9]
    return float(common[0]) if common else shortest


def _read_by_job(engine: Engine, expression: str, at: float) -> dict[str, float]:
    return {labels.get("job", ""): value for labels, value in _query(engine, expression, at)}


def _query(engine: Engine, expression: str, at: float) -> Iterator[tuple[dict[str, str], float]]:
    try:
        yield from engine.query_vector(expression, at).rows()
    except SourceError as error:
        log.warning("scrape_interval_not_read", query=expression, reason=error)


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
        oldest, newest = ends or (0.0, at)
        lag, normal = at - newest, interval + _SLACK_SECONDS
        # The newest samples of all targets must be alike, and later than a scrape explains.
        if newest - oldest > normal or not normal + hidden < lag <= MAX_LAG_SECONDS:
            self._before, self._is_constant = None, False
            return 0.0
        elapsed, grown = (at - self._before[0], abs(lag - self._before[1])) if self._before else (0.0, 0.0)
        if elapsed <= 0 or grown > interval:
            self._before, self._is_constant = (at, lag), False
        elif elapsed >= 2 * interval:  # before that, samples that stopped cannot be told from late ones
            self._before, self._is_constant = (at, lag), True
        return lag if self._is_constant else 0.0


def _read_ends(
    engine: Engine, schemes: Collection[DetectedScheme], intervals: ScrapeIntervals, at: float
) -> tuple[float, float] | None:
    """The oldest and the newest of the last samples of all targets; one query, over `up` where the engine has it: there
    is one series per target, also of a target that is down."""
    jobs = intervals.of_gpus & intervals.seconds.keys() - {""}
    selectors = [
        write_selector(metric.name, (*metric.matchers, *detected.matchers))
        for detected in schemes
        if (metric := detected.holder.main_metric)
    ]
    if jobs:
        selectors = [_select_up(jobs)]
    if not selectors:
        return None
    times = " or ".join(f"timestamp({selector})" for selector in selectors)
    ends = (f'label_replace({name}({times}), "{_END}", "{name}", "", "")' for name in ("min", "max"))
    try:
        vector = engine.query_vector(" or ".join(ends), at)
    except SourceError as error:
        log.warning("sample_lag_not_read", reason=error)
        return None
    found = {labels.get(_END): value for labels, value in vector.rows()}
    return (found["min"], found["max"]) if found.keys() >= {"min", "max"} else None
