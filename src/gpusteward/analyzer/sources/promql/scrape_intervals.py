"""How often each job is scraped, and which jobs have been scraped long enough to know.

The engine writes `up` at every scrape, also for targets that are down. The ten minutes of the last hour with the most
samples of `up` give the interval of a job, even right after an outage of the engine itself. Ten minutes that are only
half filled, because the job or the engine is new, would give twice the interval, and every window would look complete.
So nothing is concluded for a job without samples ten minutes ago.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.coverage import ScrapeIntervals
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

PERIOD_SECONDS = 600.0
HIGHEST_COUNTS = (
    "max by (job) (max_over_time(count_over_time(up[600s])[1h:5m]))",
    "max by (job) (count_over_time(up[600s]))",  # until now: the former is evaluated at whole five minutes only
)
_COMMON_INTERVALS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
"""Values that people write into a scrape configuration."""


def read_scrape_intervals(engine: Engine, schemes: Iterable[DetectedScheme], at: float) -> ScrapeIntervals:
    """Raises nothing: what cannot be read stays unknown."""
    main = [signal.metric for detected in schemes if (signal := detected.holder.main_signal)]
    earlier = [f"count by (job) ({metric} offset 600s)" for metric in ("up", *main)]
    established = frozenset(job for expression in earlier for job, _ in _query(engine, expression, at))
    highest: dict[str, float] = {}
    for expression in HIGHEST_COUNTS:
        for job, count in _query(engine, expression, at):
            highest[job] = max(count, highest.get(job, 0.0))
    intervals = {job: infer_interval(count) for job, count in highest.items() if job in established}
    return ScrapeIntervals({job: interval for job, interval in intervals.items() if interval}, established)


def infer_interval(samples: float) -> float | None:
    """The interval that puts this many samples into ten minutes; one more fits in if both ends are included."""
    if not np.isfinite(samples) or samples < 2:
        return None
    shortest, longest = PERIOD_SECONDS / samples, PERIOD_SECONDS / (samples - 1)
    common = [interval for interval in _COMMON_INTERVALS if shortest - 1e-9 <= interval <= longest + 1e-9]
    return float(common[0]) if common else shortest


def _query(engine: Engine, expression: str, at: float) -> Iterator[tuple[str, float]]:
    try:
        vector = decode_vector(engine.query(expression, at))
    except SourceError as error:
        log.warning("scrape_interval_not_read", query=expression, reason=error)
        return
    for text, value in zip(vector.labels, vector.values.tolist(), strict=True):
        yield decode_labels(text).get("job", ""), value
