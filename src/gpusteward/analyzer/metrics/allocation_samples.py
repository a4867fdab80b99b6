"""What a finished cycle says of each allocation, as sample lines under gpu-oour's names.

Some rows at a time with all their series, although a page has them series by series: so the labels of a row are written
once and forgotten, and nothing as long as the fleet stands in memory. Each step leaves its loop to C: 50,000 GPUs are
400,000 lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import msgspec
import numpy as np

from gpusteward.analyzer.metrics.result_metrics import MIB, Names, name_holder
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import STATES, Column, VerdictTable
from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import escape_label, render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.usages import AllocationKey, Measure, Stat

ROWS_AT_ONCE = 4000

Lines = tuple[Metric, str]  # the same in both formats

_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:"
_NOTHING_MORE = "} "
_MEANS: Sequence[tuple[Metric, Measure, float]] = (
    (metrics.CORE, Measure.CORE, 100.0),
    (metrics.MEMORY_USED, Measure.MEMORY_USED, 1 / MIB),
    (metrics.POWER, Measure.POWER, 1.0),
    (metrics.MEMORY_COPY, Measure.MEMORY_COPY, 100.0),
    (metrics.SM_CLOCK, Measure.SM_CLOCK, 1e-6),
)
"""Means under the seed's names, and what turns base units into its units."""


@dataclass(frozen=True, slots=True)
class _Series:
    metric: Metric
    column: Column  # what is not known, or no number, has no sample
    scale: float = 1.0
    digits: int = 2


def render_holders(result: Result) -> Iterator[Lines]:
    """The lines of every series for some rows, then for the next ones; series come in the same order each time."""
    series, allocations = _list_series(result), result.verdicts.usage.allocations
    namesakes = _find_namesakes(allocations)
    for begin in range(0, len(allocations), ROWS_AT_ONCE):
        rows = range(begin, min(begin + ROWS_AT_ONCE, len(allocations)))
        heads = _write_heads(allocations, rows, namesakes=namesakes)
        yield from ((each.metric, _write_lines(each, rows, heads, result.verdicts)) for each in series)


def _list_series(result: Result) -> list[_Series]:
    usage = result.verdicts.usage
    total = usage.column(Measure.MEMORY_TOTAL, Stat.LAST)
    with np.errstate(divide="ignore", invalid="ignore"):
        used_ratio = usage.column(Measure.MEMORY_USED, Stat.MEAN) / total
    return [
        _Series(metrics.SCORE, result.verdicts.score, digits=1),
        *(_Series(metric, usage.column(measure, Stat.MEAN), scale) for metric, measure, scale in _MEANS),
        _Series(metrics.MEMORY_TOTAL, total, 1 / MIB),
        _Series(metrics.MEMORY_USAGE, used_ratio, 100.0),
    ]


def _find_namesakes(allocations: Sequence[AllocationKey]) -> frozenset[int]:
    """Rows whose labels an earlier row has too: containers of one pod on one GPU look alike under the seed's labels."""
    pieces = (allocations[begin : begin + ROWS_AT_ONCE] for begin in range(0, len(allocations), ROWS_AT_ONCE))
    hashes = np.fromiter(map(hash, chain.from_iterable(map(_escape, pieces))), np.int64, len(allocations))
    _, firsts = np.unique(hashes, return_index=True)
    return frozenset(range(len(allocations))).difference(firsts.tolist()) if len(firsts) < len(hashes) else frozenset()


def _escape(allocations: Sequence[AllocationKey]) -> list[Names]:
    names = [name_holder(each) for each in allocations]
    return names if _are_plain(names) else [tuple(map(escape_label, each)) for each in names]


def _are_plain(names: Sequence[Names]) -> bool:
    """Whether none of them is empty or has to be escaped, as Kubernetes' own names never have."""
    texts = list(chain.from_iterable(names))
    return all(texts) and not "".join(texts).encode("utf-8", "replace").translate(None, _PLAIN)


def _write_heads(allocations: Sequence[AllocationKey], rows: range, *, namesakes: frozenset[int]) -> list[str]:
    """The labels of each row up to where more may follow."""
    names = [name_holder(each) for each in allocations[rows.start : rows.stop]]
    if _are_plain(names):
        heads = [
            f'{{gpu_id="{gpu}",pod="{pod}",namespace="{namespace}",hostname="{node}"'
            for gpu, pod, namespace, node in names
        ]
    else:
        heads = [render_labels(zip(metrics.HOLDER, each, strict=True))[:-1] or '{gpu_id=""' for each in names]
    for row in namesakes.intersection(rows):
        container = allocations[row].container.name or str(row)
        heads[row - rows.start] += f',container="{escape_label(container)}"'
    return heads


def _write_lines(series: _Series, rows: range, heads: Sequence[str], verdicts: VerdictTable) -> str:
    """A line is four texts in a row: name, labels, more labels, value. One join makes all lines."""
    column = series.column[rows.start : rows.stop]
    known = np.flatnonzero(np.isfinite(column)).tolist()
    if len(known) < len(heads):
        column, heads = column[known], [heads[place] for place in known]
    parts = [series.metric.name] * (4 * len(known))
    parts[1::4] = heads
    parts[2::4] = _write_tails(series.metric, [rows.start + place for place in known], verdicts)
    parts[3::4] = _write_values(np.round(column * series.scale, series.digits))
    return "".join(parts)


def _write_tails(metric: Metric, rows: Sequence[int], verdicts: VerdictTable) -> list[str]:
    allocations = verdicts.usage.allocations
    if metric is metrics.SCORE:
        states = verdicts.state[rows].tolist()
        return [_write_tail(allocations[row].model, state) for row, state in zip(rows, states, strict=True)]
    if metric is metrics.MEMORY_TOTAL:
        return [_write_tail(allocations[row].model) for row in rows]
    return [_NOTHING_MORE] * len(rows)


@lru_cache(maxsize=256)
def _write_tail(model: str, state: int | None = None) -> str:
    """There are few models and states, and many GPUs."""
    more = render_labels((("model", model), ("status", "" if state is None else STATES[state].value)))
    return f",{more[1:]} " if more else _NOTHING_MORE


def _write_values(column: Column) -> list[str]:
    """Each with the end of its line; whole numbers without a fraction, as everywhere on the page."""
    if not len(column):
        return []
    text = msgspec.json.encode(column.tolist())[1:-1] + b","
    return text.replace(b".0,", b",").replace(b",", b"\n,").decode().split(",")[:-1]
