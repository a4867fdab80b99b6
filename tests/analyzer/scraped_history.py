"""Samples as an engine would have scraped them: from pages of simulated nodes over time, or constant series."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import default_fields
from gpusteward.agent.usage_counters import SnapshotView, UsageCounters
from gpusteward.core.exposition import LabelCache, render_labels
from gpusteward.simulate.nodes import SimulatedNode
from tests.analyzer.engines import Sample

AT = 1_790_000_015.0
"""The end of every window; between two scrapes, as usual."""
STEP = 30.0
WINDOW = 600.0

Change = Callable[[str], str]
Collect = Callable[[SimulatedNode, Sequence[float]], Iterable[SnapshotView]]


def scrape_times(seconds: float = WINDOW + 300, *, at: float = AT, step: float = STEP) -> list[float]:
    """The times of scrapes, from oldest to newest."""
    last = at - at % step
    return [last - step * number for number in reversed(range(int(seconds / step) + 1))]


def scrape_history(
    nodes: Sequence[SimulatedNode],
    times: Sequence[float],
    *,
    dialects: str = "native dcgm",
    options: DcgmOptions | None = None,
    change: Change = lambda labels: labels,
    job: str = "gpus",
    collect: Collect | None = None,
) -> Iterator[Sample]:
    """All pages of these nodes, as scraped by a job; the agent collects as often, unless `collect` does otherwise."""
    for node in nodes:
        made = list(_make_dialects(dialects, node.name, options))
        target = f'{{instance="{node.name}:9400",job="{job}"}}'
        label = cache(_labeling(target, change))
        for view in (collect or collect_views)(node, times):
            at = view.snapshot.taken_at
            yield "up", target, 1.0, at
            for dialect in made:
                for family in dialect.families(view):
                    for labels, value in family.samples:
                        yield family.metric.name, label(labels), float(value), at


def collect_views(node: SimulatedNode, times: Sequence[float], every: float | None = None) -> Iterator[SnapshotView]:
    """What the agent has at these times; it collects then, or also in between, every so many seconds."""
    meters = UsageCounters(longest_gap_seconds=120)
    for number, at in enumerate(times):
        for between in _between(times[number - 1], at, every) if number else ():
            meters.advance(node.snapshot(between))
        yield meters.advance(node.snapshot(at))


def collecting_once(every: float | None = None) -> Collect:
    """For several sites with the same nodes: what the agent of each node has is computed once."""
    views: dict[tuple[object, ...], list[SnapshotView]] = {}

    def collect(node: SimulatedNode, times: Sequence[float]) -> list[SnapshotView]:
        key = (node, *times)
        if key not in views:
            views[key] = list(collect_views(node, times, every))
        return views[key]

    return collect


def _between(before: float, at: float, step: float | None) -> Iterator[float]:
    """When the agent collects between two scrapes."""
    while step and (before := before + step) < at - step / 2:
        yield before


def _labeling(target: str, change: Change) -> Change:
    return lambda labels: change(with_target(labels, target))


def with_target(labels: str, target: str) -> str:
    return f"{labels[:-1]},{target[1:]}" if labels else target


def rename_labels(**names: str) -> Change:
    """Rename labels, as relabeling does."""

    def change(labels: str) -> str:
        for old, new in names.items():
            labels = re.sub(rf'(?<=[{{,]){old}="', f'{new}="', labels)
        return labels

    return change


def _make_dialects(dialects: str, node: str, options: DcgmOptions | None) -> Iterator[DcgmDialect | NativeDialect]:
    """As the agent with its default settings; with `all-series` among the dialects as with `--all-series`."""
    dcgm = None
    if "dcgm" in dialects:
        chosen = options or DcgmOptions()
        named = DcgmOptions(**{**{name: getattr(chosen, name) for name in chosen.__slots__}, "hostname": node})
        dcgm = DcgmDialect(named, default_fields(chosen.names), labels=LabelCache())
    if "native" in dialects:
        yield NativeDialect(LabelCache(), all_series="all-series" in dialects, beside=dcgm)
    if dcgm:
        yield dcgm


def steady(name: str, value: float, times: Iterable[float], **labels: str) -> Iterator[Sample]:
    """One series with a constant value."""
    text = render_labels(sorted(labels.items()))
    for at in times:
        yield name, text, value, at
