"""Sample lines of each allocation, under gpu-oour's names.

The labels of all rows are rendered once and kept for all metrics: 5 MB of 50,000 GPUs. Lines are made in batches, each
step with its loop in C: 50,000 GPUs are 400,000 lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import msgspec
import numpy as np

from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.metrics.result_metrics import MIB, HolderLabels, holder_labels
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import STATES, Column, VerdictTable
from gpusteward.core.exposition import escape_label, render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.usages import AllocationKey, Measure, Stat

BATCH_ROWS = 4000

MetricLines = tuple[Metric, str]  # the same lines in both formats

_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:"
_END_OF_LABELS = "} "
_MEANS: Sequence[tuple[Metric, Measure, float]] = (
    (metrics.CORE, Measure.CORE, 100.0),
    (metrics.MEMORY_USED, Measure.MEMORY_USED, 1 / MIB),
    (metrics.POWER, Measure.POWER, 1.0),
    (metrics.MEMORY_COPY, Measure.MEMORY_COPY, 100.0),
    (metrics.SM_CLOCK, Measure.SM_CLOCK, 1e-6),
)
"""Means under gpu-oour's names, and the factor from base units to its units."""


@dataclass(frozen=True, slots=True)
class _SampleColumn:
    metric: Metric
    values: Column  # NaN and infinity have no sample
    scale: float = 1.0
    digits: int = 2


def render_allocations(result: Result) -> Iterator[MetricLines]:
    """The lines of one metric after the other, in batches of rows."""
    allocations = result.verdicts.usage.allocations
    duplicates, size = _find_duplicates(allocations), len(allocations)
    batches = [range(begin, min(begin + BATCH_ROWS, size)) for begin in range(0, size, BATCH_ROWS)]
    # One text per batch: as a string each they would take twice the memory.
    heads = ["\n".join(_render_labels(allocations, rows, duplicates=duplicates)).encode() for rows in batches]
    for column in _list_columns(result):
        for rows, own in zip(batches, heads, strict=True):
            yield column.metric, _render_lines(column, rows, own.decode().split("\n"), result.verdicts)


def _list_columns(result: Result) -> list[_SampleColumn]:
    usage = result.verdicts.usage
    total = usage.column(Measure.MEMORY_TOTAL, Stat.LAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        used_ratio = usage.column(Measure.MEMORY_USED, Stat.MEAN) / total
    return [
        _SampleColumn(metrics.SCORE, result.verdicts.score, digits=1),
        *(_SampleColumn(metric, usage.column(measure, Stat.MEAN), scale) for metric, measure, scale in _MEANS),
        _SampleColumn(metrics.MEMORY_TOTAL, total, 1 / MIB),
        _SampleColumn(metrics.MEMORY_USAGE, used_ratio, 100.0),
    ]


def _find_duplicates(allocations: Sequence[AllocationKey]) -> frozenset[int]:
    """Rows with the labels of an earlier row: gpu-oour's labels do not tell containers of one pod on one GPU apart."""
    batches = (allocations[begin : begin + BATCH_ROWS] for begin in range(0, len(allocations), BATCH_ROWS))
    names = zip(chain.from_iterable(map(_escape, batches)), (each.cluster for each in allocations), strict=True)
    hashes = np.fromiter(map(hash, names), np.int64, len(allocations))
    _, firsts = np.unique(hashes, return_index=True)
    return frozenset(range(len(allocations))).difference(firsts.tolist()) if len(firsts) < len(hashes) else frozenset()


def _escape(allocations: Sequence[AllocationKey]) -> list[HolderLabels]:
    names = [holder_labels(each) for each in allocations]
    return names if _are_plain(names) else [tuple(map(escape_label, each)) for each in names]


def _are_plain(names: Sequence[HolderLabels]) -> bool:
    """Whether none of them is empty or needs escaping; names of Kubernetes objects never do."""
    texts = list(chain.from_iterable(names))
    return all(texts) and not "".join(texts).encode("utf-8", "replace").translate(None, _PLAIN)


def _render_labels(allocations: Sequence[AllocationKey], rows: range, *, duplicates: frozenset[int]) -> list[str]:
    """The labels of each row without the closing brace: some metrics have further labels."""
    names = [holder_labels(each) for each in allocations[rows.start : rows.stop]]
    if _are_plain(names):
        heads = [
            f'{{gpu_id="{gpu}",pod="{pod}",namespace="{namespace}",hostname="{node}"'
            for gpu, pod, namespace, node in names
        ]
    else:
        heads = [render_labels(zip(metrics.HOLDER, each, strict=True))[:-1] or '{gpu_id=""' for each in names]
    clusters = [each.cluster for each in allocations[rows.start : rows.stop]]
    if any(clusters):
        heads = [head + _render_cluster(cluster) for head, cluster in zip(heads, clusters, strict=True)]
    for row in duplicates.intersection(rows):
        container = allocations[row].container.name or str(row)
        heads[row - rows.start] += f',container="{escape_label(container)}"'
    return heads


def _render_lines(column: _SampleColumn, rows: range, heads: Sequence[str], verdicts: VerdictTable) -> str:
    """A line is four texts: name, labels, further labels, value. One join makes all lines."""
    values = column.values[rows.start : rows.stop]
    known = np.flatnonzero(np.isfinite(values)).tolist()
    if len(known) < len(heads):
        values, heads = values[known], [heads[number] for number in known]
    parts = [column.metric.name] * (4 * len(known))
    parts[1::4] = heads
    parts[2::4] = _render_tails(column.metric, [rows.start + number for number in known], verdicts)
    parts[3::4] = _render_values(np.round(values * column.scale, column.digits))
    return "".join(parts)


def _render_tails(metric: Metric, rows: Sequence[int], verdicts: VerdictTable) -> list[str]:
    allocations = verdicts.usage.allocations
    if metric is metrics.SCORE:
        states = verdicts.state[rows].tolist()
        return [_render_tail(allocations[row].model, state) for row, state in zip(rows, states, strict=True)]
    if metric is metrics.MEMORY_TOTAL:
        return [_render_tail(allocations[row].model) for row in rows]
    return [_END_OF_LABELS] * len(rows)


@lru_cache(maxsize=256)
def _render_cluster(cluster: str) -> str:
    return f',cluster="{escape_label(cluster)}"' if cluster else ""


@lru_cache(maxsize=256)
def _render_tail(model: str, state: int | None = None) -> str:
    """Cached: there are few models and states, and many GPUs."""
    more = render_labels((("model", model), ("status", "" if state is None else STATES[state].value)))
    return f",{more[1:]} " if more else _END_OF_LABELS


def _render_values(column: Column) -> list[str]:
    """Each with its line end; whole numbers have no fraction, as everywhere on the page."""
    if not len(column):
        return []
    text = msgspec.json.encode(column.tolist())[1:-1] + b","
    return text.replace(b".0,", b",").replace(b",", b"\n,").decode().split(",")[:-1]
