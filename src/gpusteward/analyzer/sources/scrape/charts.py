"""The course of one allocation, from what is kept in memory."""

from collections.abc import Collection, Iterable, Iterator

from gpusteward.analyzer.sources.promql.on_demand_queries import MAX_POINTS, chart_signals
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.scrape.metric_filter import BY_NAME
from gpusteward.analyzer.sources.scrape.records import Course
from gpusteward.analyzer.sources.scrape.series import Clerk
from gpusteward.analyzer.sources.scrape.store import Store
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.quantities import MEASURES
from gpusteward.analyzer.sources.usage.row_index import HolderKey
from gpusteward.analyzer.sources.usage_source import Chart, Points
from gpusteward.core.usages import AllocationKey, Measure


def read_chart(
    store: Store, found: Iterable[DetectedScheme], allocation: AllocationKey, *, at: float, seconds: float
) -> Chart:
    """The measures that people look at, as far back as they are kept."""
    lines: dict[Measure, Points] = {}
    with store.read_records() as (clerk, records):
        for one in found:
            holders = frozenset(_find_holders(one.scheme, clerk, allocation))
            mine = [record for record in records.values() if record.roll.knows_any(holders)]
            for signal in chart_signals(one, allocation):
                family, measure = BY_NAME[signal.metric], MEASURES[signal.quantity]
                courses = [
                    course for record in mine for course in record.read_courses(family, holders, at=at, seconds=seconds)
                ]
                if measure not in lines and (points := _merge(courses, signal.scale)):
                    lines[measure] = points
    return Chart(allocation, lines)


def _find_holders(scheme: MetricScheme, clerk: Clerk, allocation: AllocationKey) -> Iterator[int]:
    """Rows of this allocation. The agent names a MIG instance by its own uuid, a holding by that of its parent."""
    who = allocation.container
    names_parent = scheme is not MetricScheme.NATIVE or not allocation.gpu_instance
    own = HolderKey(allocation.gpu_uuid, allocation.gpu_instance, who.namespace, who.pod, who.name)
    for row, key in enumerate(clerk.holders[scheme].keys):
        if key == own or (not names_parent and key == own._replace(uuid=key.uuid)):
            yield row


def _merge(courses: Collection[Course], scale: float) -> Points:
    """The largest at each moment, in a bounded number of points; the last one is always among them."""
    largest: dict[float, float] = {}
    for moments, values in courses:
        for moment, value in zip(moments.tolist(), (values * scale).tolist(), strict=True):
            largest[moment] = max(value, largest.get(moment, value))
    points = sorted(largest.items())
    step = -(-len(points) // MAX_POINTS) or 1
    return points[::-1][::step][::-1]
