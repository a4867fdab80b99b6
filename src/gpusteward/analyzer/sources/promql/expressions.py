"""PromQL expressions of a cycle, and the names of recording rules that precompute them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpusteward.analyzer.sources.promql.query_plan import Query, split_names
from gpusteward.analyzer.sources.usage.quantities import (
    EXCESSES,
    PRESENCE_IN_WINDOW,
    PRESENCE_TIMES,
    Aggregation,
    Quantity,
)
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, write_selector

RULE_PREFIX = "gpusteward:"
RULE_INTERVAL_SECONDS = 60.0
STEP_SECONDS, STEP_RANGE_SECONDS = 60.0, 120.0
"""The increase of a counter is compared from minute to minute. Two minutes have two samples where the exporter is
scraped once a minute. The first ones of a window begin before it: work at its start is in none of the others."""
HOUR_SECONDS, HOUR_STEP_SECONDS = 3600.0, 420.0
"""Every seventh minute of the hour: work every 5, 10 or 15 minutes is in few of them."""
SPREADS = 2.0
"""Quiet minutes spread from their lowest to their median; the highest is about as far above it. More than twice that is
not noise. Work in less than half of the minutes changes neither of them."""


@dataclass(frozen=True, slots=True)
class Window:
    """The length of the window, and the recording rules whose results can be read instead of computing it."""

    seconds: float
    rules: Collection[str] = ()

    def aggregate(self, metric: str, matchers: Iterable[Matcher], aggregation: Aggregation) -> str:
        """`avg_over_time(metric{...}[...])`, or the recorded result of it."""
        if aggregation is Aggregation.LAST:
            return write_selector(metric, matchers)
        recorded = rule_name(metric, aggregation, self.seconds)
        if recorded in self.rules:
            return write_selector(recorded, matchers)
        if aggregation in EXCESSES:
            return write_excess(aggregation, write_selector(metric, matchers), self.seconds)
        return f"{aggregation}({write_selector(metric, matchers)}{write_range(self.seconds)})"


def write_query(query: Query, window: Window, shard: Matchers = ()) -> str:
    """The PromQL text: the maximum of the series with the same key. An exporter that was restarted, or is scraped
    twice, has several. The maximum of means never understates use, and the maximum of counts does not add up coverage
    from series that may overlap."""
    selector = write_selector(query.metric, (*query.matchers, *shard))
    if query.key == PRESENCE_TIMES:  # the samples themselves: only they have their times
        return f"{selector}{write_range(window.seconds)}"
    inner = window.aggregate(query.metric, (*query.matchers, *shard), query.key.aggregation)
    if query.key.quantity is Quantity.LAST_KERNEL:
        inner = f"timestamp({inner}) - {inner}"  # of several series the one with the newest kernel
    if query.key == PRESENCE_IN_WINDOW:
        inner = f"{inner} unless {selector}"
    if query.other_than:
        others = " or ".join(write_selector(other.metric, (*other.matchers, *shard)) for other in query.other_than)
        inner = f"{inner} unless on ({', '.join(split_names(query.key_labels))}) ({others})"
    condition = "" if query.floor is None else f" > {query.floor / query.scale:g}"
    return f"max by ({', '.join(query.list_labels())}) ({inner}){condition}"


def write_excess(aggregation: Aggregation, selector: str, window_seconds: float) -> str:
    """By how much the increase of a counter exceeds the lowest one, beyond twice the spread from there to the median,
    in its unit per second: the steepest minute of the window among its minutes, or the lowest one, and so all of them,
    among the minutes of the hour. All are steps of the same kind: an exporter that repeats its values makes a step of
    another length appear higher or lower. The embedded source computes the same (`ring_buffers.measure_excess`)."""
    step = f"rate({selector}{write_range(STEP_RANGE_SECONDS)})"
    minutes, hour = (
        f"{step}[{round(seconds * 1000) - 1}ms:{resolution:.0f}s]"
        for seconds, resolution in (
            (window_seconds, STEP_SECONDS),
            (HOUR_SECONDS, HOUR_STEP_SECONDS),
        )
    )
    is_of_hour = aggregation is Aggregation.HOUR_EXCESS
    compared, steps = (f"min_over_time({minutes})", hour) if is_of_hour else (f"max_over_time({minutes})", minutes)
    median, lowest = f"quantile_over_time(0.5, {steps})", f"min_over_time({steps})"
    return f"{compared} - {SPREADS:g} * {median} + {SPREADS - 1:g} * {lowest}"


def write_range(seconds: float) -> str:
    """A window that is open at its start in every engine: Prometheus 2 includes a sample right at the start."""
    return f"[{round(seconds * 1000) - 1}ms]"


def write_duration(seconds: float) -> str:
    """`10m`, as in rule names."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s".replace(".", "_")


def rule_name(metric: str, aggregation: Aggregation, seconds: float) -> str:
    """`gpusteward:DCGM_FI_DEV_GPU_UTIL:avg_over_time_10m`."""
    return f"{RULE_PREFIX}{metric}:{aggregation}_{write_duration(seconds)}"
