"""How often each job is scraped, and which jobs have spoken long enough to tell.

How often a target is scraped is a fact of the engine's configuration. The engine writes `up` at every attempt, also
for a target that is down; the densest ten minutes of `up` in the last hour give the interval of a job even right after
an outage of the engine itself. Ten minutes that are only half filled, because the job or the whole engine is new, would
give twice the interval, and every window would look full: a job that did not speak ten minutes ago tells nothing yet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector
from gpusteward.analyzer.sources.promql.plan import Found
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

LOOK_SECONDS = 600.0
DENSEST = (
    "max by (job) (max_over_time(count_over_time(up[600s])[1h:5m]))",
    "max by (job) (count_over_time(up[600s]))",  # now: the former looks at whole five minutes only
)
_ROUND_INTERVALS = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
"""What people write into a scrape configuration."""


@dataclass(frozen=True)
class Pace:
    """What was learned of the jobs."""

    intervals: dict[str, float] = field(default_factory=dict)  # job -> seconds, as far as `up` tells it
    grown: frozenset[str] = frozenset()  # jobs that spoke ten minutes ago


def read_pace(engine: Engine, found: Iterable[Found], at: float) -> Pace:
    """Raises nothing: what could not be read is not known."""
    cores = [core.metric for one in found if (core := one.holder.core)]
    spoke = [f"count by (job) ({metric} offset 600s)" for metric in ("up", *cores)]
    grown = frozenset(job for question in spoke for job, _ in _ask(engine, question, at))
    densest: dict[str, float] = {}
    for question in DENSEST:
        for job, count in _ask(engine, question, at):
            densest[job] = max(count, densest.get(job, 0.0))
    intervals = {job: interval_of(count) for job, count in densest.items() if job in grown}
    return Pace({job: interval for job, interval in intervals.items() if interval}, grown)


def interval_of(samples: float) -> float | None:
    """The interval that puts so many samples into ten minutes; one more fits in when they fall on both ends."""
    if not np.isfinite(samples) or samples < 2:
        return None
    shortest, longest = LOOK_SECONDS / samples, LOOK_SECONDS / (samples - 1)
    round_ones = [one for one in _ROUND_INTERVALS if shortest - 1e-9 <= one <= longest + 1e-9]
    return float(round_ones[0]) if round_ones else shortest


def _ask(engine: Engine, question: str, at: float) -> Iterator[tuple[str, float]]:
    try:
        vector = decode_vector(engine.query(question, at))
    except SourceError as error:
        log.warning("pace_not_read", asked=question, reason=error)
        return
    for text, value in zip(vector.labels, vector.values.tolist(), strict=True):
        yield decode_labels(text).get("job", ""), value
