"""A result as series: gpu-oour's names, one status at a time, and the analyzer's own health. Made once a cycle."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from gpusteward import __version__
from gpusteward.analyzer.explain.tallies import Tally
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, SIGNATURES, STATES, Codes, Column
from gpusteward.analyzer.worker import DURATION_BUCKETS, Account
from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import Family, Samples, render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.usages import Holding, Measure, Stat
from gpusteward.core.verdicts import State

MIB = 1024 * 1024
Labels = tuple[tuple[str, str], ...]

_MEANS: Sequence[tuple[Metric, Measure, float]] = (
    (metrics.CORE, Measure.CORE, 100.0),
    (metrics.MEMORY_USED, Measure.MEMORY_USED, 1 / MIB),
    (metrics.POWER, Measure.POWER, 1.0),
    (metrics.MEMORY_COPY, Measure.MEMORY_COPY, 100.0),
    (metrics.SM_CLOCK, Measure.SM_CLOCK, 1e-6),
)
"""Means under the seed's names, and what turns base units into its units."""


def result_families(result: Result) -> Iterator[Family]:
    """Everything that a finished cycle says of the cluster; one family at a time, as all together would be large."""
    holdings = result.verdicts.usage.holdings
    holders = _unique([_render_holder(each) for each in holdings], holdings)
    yield _scores(result, holders)
    yield from _means(result, holders)
    yield from _capacities(result, holders)
    yield from _opinions(result)
    yield from _counts(result)
    yield from _kinds(result)


def health_families(
    result: Result | None, account: Account, tally: Tally, *, queries: Mapping[str, int]
) -> list[Family]:
    """How the analyzer itself fares."""
    finished = Family(metrics.ANALYSES, [("", account.finished)])
    failed = Family(metrics.ANALYSIS_ERRORS, [("", account.failed)])
    version = Family(metrics.BUILD_INFO, [(render_labels((("version", __version__),)), 1)])
    families = [version, finished, failed, _durations(account), *_model(tally), _by(metrics.QUERIES, "result", queries)]
    if account.last_ended_at is not None:
        families.append(Family(metrics.CYCLE_TIME, [("", round(account.last_ended_at, 3))]))
    if result is not None:
        families += [Family(metrics.CYCLE_SECONDS, [("", round(result.seconds, 3))]), _service_info(result)]
    return families


def gpu_id(holding: Holding) -> str:
    """The seed's `gpu_id`: the uuid; a MIG instance has its number behind it, so that two are not taken for one."""
    return f"{holding.gpu_uuid}/{holding.gpu_instance}" if holding.gpu_instance else holding.gpu_uuid


def holder_labels(holding: Holding) -> Labels:
    container = holding.container
    return (
        ("gpu_id", gpu_id(holding)),
        ("pod", container.pod),
        ("namespace", container.namespace),
        ("hostname", holding.node),
    )


_PLAIN = re.compile(r"[\w./:-]+", re.ASCII)


def _render_holder(holding: Holding) -> str:
    """Kept between cycles these texts would cost 40 MB for 50,000 GPUs; written straight down they cost 0.1 s."""
    container = holding.container
    gpu, pod, namespace, node = gpu_id(holding), container.pod, container.namespace, holding.node
    if gpu and pod and namespace and node and _PLAIN.fullmatch(f"{gpu}{pod}{namespace}{node}"):
        return f'{{gpu_id="{gpu}",pod="{pod}",namespace="{namespace}",hostname="{node}"}}'
    return render_labels(holder_labels(holding))


def _unique(texts: list[str], holdings: Sequence[Holding]) -> list[str]:
    """Containers of one pod on one GPU look alike under the seed's labels: those get their name as one more label."""
    if len(set(texts)) == len(texts):
        return texts
    seen: set[str] = set()
    for row, text in enumerate(texts):
        if text in seen:
            texts[row] = _extend(text, (("container", holdings[row].container.name or str(row)),))
        seen.add(text)
    return texts


def _extend(text: str, more: Labels) -> str:
    """More labels behind those that are rendered already."""
    return _behind(text, _tail(more))


def _tail(labels: Labels) -> str:
    """What follows labels that are rendered already: `,model="x"}`, or only `}`."""
    rendered = render_labels(labels)
    return f",{rendered[1:]}" if rendered else "}"


def _behind(text: str, tail: str) -> str:
    if text:
        return text[:-1] + tail
    return f"{{{tail[1:]}" if tail != "}" else ""


def _scores(result: Result, holders: Sequence[str]) -> Family:
    verdicts = result.verdicts
    holdings = verdicts.usage.holdings
    rows = np.flatnonzero(~np.isnan(verdicts.score))
    columns = zip(rows.tolist(), verdicts.state[rows].tolist(), np.round(verdicts.score[rows], 1).tolist(), strict=True)
    samples = [(_behind(holders[row], _model_tail(holdings[row].model, state)), score) for row, state, score in columns]
    return Family(metrics.SCORE, samples)


@lru_cache(maxsize=256)
def _model_tail(model: str, state: int | None = None) -> str:
    """There are few models and states, and many GPUs."""
    return _tail((("model", model), ("status", "" if state is None else STATES[state].value)))


def _means(result: Result, holders: Sequence[str]) -> Iterable[Family]:
    usage = result.verdicts.usage
    for metric, measure, scale in _MEANS:
        yield Family(metric, _samples(holders, usage.column(measure, Stat.MEAN) * scale))


def _samples(labels: Sequence[str], column: Column) -> Samples:
    """What is known of a column; unknown leaves no sample."""
    known = np.flatnonzero(~np.isnan(column))
    return [
        (labels[row], value) for row, value in zip(known.tolist(), np.round(column[known], 2).tolist(), strict=True)
    ]


def _capacities(result: Result, holders: Sequence[str]) -> Iterable[Family]:
    usage = result.verdicts.usage
    total = usage.column(Measure.MEMORY_TOTAL, Stat.LAST)
    models = [_behind(text, _model_tail(each.model)) for text, each in zip(holders, usage.holdings, strict=True)]
    yield Family(metrics.MEMORY_TOTAL, _samples(models, total / MIB))
    with np.errstate(divide="ignore", invalid="ignore"):
        yield Family(
            metrics.MEMORY_USAGE, _samples(holders, usage.column(Measure.MEMORY_USED, Stat.MEAN) / total * 100)
        )


def _opinions(result: Result) -> Iterable[Family]:
    confidence, score = Family(metrics.AI_CONFIDENCE, []), Family(metrics.AI_SCORE, [])
    told: set[str] = set()
    for row, opinion in sorted(result.opinions.items()):
        labels = render_labels(holder_labels(result.verdicts.usage.holdings[row])[:3])
        if labels not in told:
            told.add(labels)
            confidence.samples.append((_extend(labels, (("ai_status", opinion.status),)), round(opinion.confidence, 3)))
            score.samples.append((labels, round(opinion.adjusted_score, 1)))
    return (confidence, score)


def _counts(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    known = verdicts.score[~np.isnan(verdicts.score)]
    yield Family(metrics.TOTAL, [("", len(verdicts))])
    yield Family(metrics.LOW, [("", int(np.sum(known < result.settings.thresholds.low_utilization)))])
    yield Family(metrics.IDLE, [("", int(np.sum(verdicts.state == STATES.index(State.IDLE))))])
    if len(known):
        yield Family(metrics.AVERAGE, [("", round(float(known.mean()), 1))])
    yield _by(metrics.BY_STATUS, "status", _tally(verdicts.state, STATES))
    yield from _by_namespace(result)


def _by_namespace(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    names = np.array([holding.container.namespace for holding in verdicts.usage.holdings], dtype=object)
    spaces, codes = (
        np.unique(names.astype(str), return_inverse=True) if len(names) else (np.empty(0, str), np.empty(0, int))
    )
    scored = ~np.isnan(verdicts.score)
    counts = np.bincount(codes, minlength=len(spaces))
    scores = np.bincount(codes[scored], minlength=len(spaces))
    sums = np.bincount(codes[scored], weights=verdicts.score[scored], minlength=len(spaces))
    yield _by(metrics.BY_NAMESPACE, "namespace", dict(zip(spaces.tolist(), counts.tolist(), strict=True)))
    means = {
        name: round(total / n, 1)
        for name, total, n in zip(spaces.tolist(), sums.tolist(), scores.tolist(), strict=True)
        if n
    }
    yield _by(metrics.NAMESPACE_AVERAGE, "namespace", means)


def _kinds(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    yield _by(metrics.ACTIVITY, "activity", _tally(verdicts.activity, ACTIVITIES))
    yield _by(metrics.SIGNATURES, "signature", _tally(verdicts.signature, SIGNATURES))
    yield _by(metrics.WORKLOADS, "activity", _tally(result.workloads.activity, ACTIVITIES))
    if len(verdicts):
        yield Family(metrics.COVERAGE, [("", round(float(verdicts.usage.coverage.mean()), 4))])
    yield _by(metrics.UNKNOWN, "reason", _tally(verdicts.doubt[verdicts.doubt != 0], DOUBTS))


def _tally(codes: Codes, names: Sequence[str]) -> Mapping[str, int]:
    counts = np.bincount(codes, minlength=len(names)).tolist()
    return {str(name): count for name, count in zip(names, counts, strict=True)}


def _by(metric: Metric, label: str, values: Mapping[str, float]) -> Family:
    return Family(metric, [(render_labels(((label, name),)), value) for name, value in values.items()])


def _durations(account: Account) -> Family:
    """A histogram by hand: the suffix of a sample's name stands where its labels begin."""
    limits = [*(f"{limit:g}" for limit in DURATION_BUCKETS), "+Inf"]
    runs = account.finished + account.failed
    samples: Samples = [
        (f'_bucket{{le="{limit}"}}', count)
        for limit, count in zip(limits, [*account.duration_counts, runs], strict=True)
    ]
    return Family(metrics.ANALYSIS_SECONDS, [*samples, ("_sum", round(account.seconds_total, 3)), ("_count", runs)])


def _model(tally: Tally) -> Iterable[Family]:
    failures = {failure.value: count for failure, count in tally.failures.items()}
    yield _by(metrics.MODEL_CALLS, "result", {"ok": tally.opinions, "recalled": tally.recalled, **failures})
    yield _by(metrics.MODEL_TOKENS, "direction", {"input": tally.input_tokens, "output": tally.output_tokens})
    yield Family(metrics.MODEL_COST, [("", round(tally.cost, 6))])


def _service_info(result: Result) -> Family:
    settings = result.settings
    labels = (
        ("version", __version__),
        ("threshold", f"{settings.thresholds.low_utilization:g}"),
        ("interval", str(settings.scheduler.interval)),
        ("ai_enabled", str(settings.ai.enabled)),
    )
    return Family(metrics.SERVICE_INFO, [(render_labels(labels), 1)])
