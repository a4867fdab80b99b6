"""Detects the metric schemes of a site and their labels from the engine's index, without reading series.

The holder's labels may differ by scrape job, because `honor_labels` is set per job: where it is set, `pod` is the
holder; where it is not, the holder is `exported_pod` and `pod` is the exporter. Relabeling may also give the target
`pod_name`, while `pod` is the holder. Jobs whose labels differ from the usual ones are detected as a separate scheme;
read with the usual labels, they would have no holders.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from gpusteward.analyzer.sources.engine.client import Engine, Fields, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_names, decode_vector
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, HOLDER_NAMESPACES, ClusterChoice, map_labels
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme, dcgm_metrics, hami_metrics, native_metrics
from gpusteward.analyzer.sources.usage.quantities import Level, Quantity, UsageMetric
from gpusteward.analyzer.sources.usage.row_index import HolderDetails
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, match_any, write_selector
from gpusteward.logs import Log

log = Log(__name__)

LOOK_BACK_SECONDS = 3600.0
_SAMPLED = (Quantity.PRESENCE, Quantity.CORE, Quantity.ENGINE, Quantity.MEMORY_USED, Quantity.POWER)
"""The metrics whose labels are looked up: an exporter labels all its metrics alike, except that not all have MIG."""
_IN_EVERY_JOB = (Quantity.PRESENCE, Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE, Quantity.POWER)
"""What nearly every job exports, most reliable first."""


def read_metric_names(engine: Engine, at: float) -> set[str]:
    """Raises SourceError."""
    return set(decode_names(engine.fetch("/api/v1/label/__name__/values", _span(at), use_get=True)))


def detect_schemes(
    engine: Engine, names: Collection[str], clusters: ClusterChoice, at: float
) -> Iterator[DetectedScheme]:
    """The schemes among these metric names, most trusted first. Raises SourceError."""
    yield from _detect_native(engine, names, clusters, at)
    yield from _detect_hami(engine, names, clusters, at)
    yield from _detect_dcgm(engine, names, clusters, at)


def _detect_native(
    engine: Engine, names: Collection[str], clusters: ClusterChoice, at: float
) -> Iterator[DetectedScheme]:
    metrics = native_metrics(names)
    holders = tuple(metric for metric in metrics if metric.level is Level.HOLDER)
    devices = tuple(metric for metric in metrics if metric.level is Level.DEVICE)
    for part in _read_parts(engine, holders, clusters, at):
        detected = DetectedScheme(MetricScheme.NATIVE, part.group, replace(part.group, metrics=devices))
        yield from _split_by_job(engine, detected, part.labels, at)


def _detect_hami(
    engine: Engine, names: Collection[str], clusters: ClusterChoice, at: float
) -> Iterator[DetectedScheme]:
    for part in _read_parts(engine, hami_metrics(names), clusters, at):
        devices = dcgm_metrics(names, level=Level.DEVICE)
        device = _make_part(engine, devices, part.group.matchers, clusters, at) if devices else None
        detected = DetectedScheme(MetricScheme.HAMI, part.group, device.group if device else None)
        yield from _split_by_job(engine, detected, part.labels, at)


def _detect_dcgm(
    engine: Engine, names: Collection[str], clusters: ClusterChoice, at: float
) -> Iterator[DetectedScheme]:
    for part in _read_parts(engine, dcgm_metrics(names), clusters, at):
        group = replace(part.group, fallbacks=_find_fallbacks(engine, part.group, part.labels, at))
        yield from _split_by_job(engine, DetectedScheme(MetricScheme.DCGM, group), part.labels, at)


@dataclass(frozen=True, slots=True)
class _SitePart:
    """Series that name their cluster in the same label, and all their labels."""

    group: SeriesGroup
    labels: Collection[str]


def _read_parts(
    engine: Engine, metrics: tuple[UsageMetric, ...], clusters: ClusterChoice, at: float
) -> Iterator[_SitePart]:
    """Usually one. Raises SourceError."""
    if not metrics:
        return
    labels = read_labels(engine, metrics, (), at)
    for part in clusters.divide(labels):
        if not part.matchers:
            mapping = map_labels(labels, cluster_label=clusters.label, pod_labels=clusters.pod_labels)
            yield _SitePart(SeriesGroup(mapping, metrics), labels)
            continue
        choice = replace(clusters, label=part.label or clusters.label)
        if own := _make_part(engine, metrics, part.matchers, choice, at):
            yield own


def _make_part(
    engine: Engine, metrics: tuple[UsageMetric, ...], matchers: Matchers, clusters: ClusterChoice, at: float
) -> _SitePart | None:
    """None if there are no such series."""
    labels = read_labels(engine, metrics, matchers, at)
    mapping = map_labels(labels, cluster_label=clusters.label, pod_labels=clusters.pod_labels)
    group = SeriesGroup(mapping, metrics, matchers=matchers)
    return _SitePart(group, labels) if labels else None


def read_labels(engine: Engine, metrics: Iterable[UsageMetric], matchers: Matchers, at: float) -> set[str]:
    selectors = [("match[]", write_selector(metric, matchers)) for metric in _list_sampled(metrics)]
    return set(decode_names(engine.fetch("/api/v1/labels", (*selectors, *_span(at))))) if selectors else set()


def _find_fallbacks(
    engine: Engine, group: SeriesGroup, labels: Collection[str], at: float
) -> tuple[HolderDetails, ...]:
    """Other labels of the details, where series lack the usual one: dcgm-exporter 4.8.3 renamed `Hostname`, and an
    upgrade takes a while. Raises SourceError."""
    usual = group.mapping.details
    others = {
        field: [name for name in CANDIDATES[field] if name in labels and name != getattr(usual, field)]
        for field in ("node", "gpu", "model")
    }
    series = (match_any("__name__", _choose_metrics(group)), *group.matchers)
    lacking = [field for field, names in others.items() if names and _lacks(engine, series, getattr(usual, field), at)]
    rows = zip_longest(*(others[field] for field in lacking), fillvalue="")
    return tuple(HolderDetails(**dict(zip(lacking, names, strict=True))) for names in rows)


def _lacks(engine: Engine, series: Matchers, label: str, at: float) -> bool:
    selector = write_selector("", (*series, Matcher(label, "=", "")))
    return len(decode_vector(engine.query(f"count({selector})", at))) > 0


def _list_sampled(metrics: Iterable[UsageMetric]) -> list[str]:
    return list(dict.fromkeys(metric.name for metric in metrics if metric.quantity in _SAMPLED))


def _span(at: float) -> Fields:
    return ("start", f"{at - LOOK_BACK_SECONDS:.3f}"), ("end", f"{at:.3f}")


def _split_by_job(
    engine: Engine, detected: DetectedScheme, labels: Collection[str], at: float
) -> Iterator[DetectedScheme]:
    """The scheme with its usual labels, then once for each group of jobs with other labels. Queries nothing if only one
    label can name the holder. Raises SourceError."""
    yield detected
    mapping = detected.holder.mapping
    others = [name for name in CANDIDATES["pod"] if name in labels and name != mapping.pod]
    if not others or not mapping.job:
        return
    group = detected.holder
    metrics = match_any("__name__", _list_sampled(group.metrics))
    for label, jobs in _find_jobs(engine, detected, others, at):
        only: Matchers = (match_any("job", sorted(jobs)),)
        fields = (("match[]", write_selector("", (metrics, *only, *group.matchers))), *_span(at))
        names = set(decode_names(engine.fetch("/api/v1/labels", fields)))
        if mapping.pod in names:  # in these jobs both are of the exporter
            names -= {mapping.pod, *HOLDER_NAMESPACES[mapping.pod]}
        own = map_labels(names, cluster_label=mapping.cluster)
        if own.pod == label:
            own = replace(own, pod_labels=mapping.pod_labels)
            yield replace(detected, holder=replace(detected.holder, mapping=own), jobs=only)


def _choose_metrics(group: SeriesGroup) -> list[str]:
    """One quantity that nearly every job exports, under all its metric names."""
    found = (names for quantity in _IN_EVERY_JOB if (names := group.list_metrics(quantity)))
    return next(found, [metric.name for metric in group.metrics[:1]])


def _find_jobs(
    engine: Engine, detected: DetectedScheme, others: Sequence[str], at: float
) -> Iterable[tuple[str, set[str]]]:
    """Jobs without any holder under the usual label, by the label that names their holders. Raises SourceError."""
    group, main = detected.holder, _choose_metrics(detected.holder)
    # A job may lack the main metric. On a large site the engine may refuse to select all of them at once.
    all_metrics = main if detected.scheme is MetricScheme.NATIVE else group.list_metrics(*_IN_EVERY_JOB)
    for names in dict.fromkeys((tuple(all_metrics), tuple(main))):
        series = (match_any("__name__", names), *group.matchers)
        try:
            return list(_compare_jobs(engine, series, group.mapping.pod, others, at))
        except LimitError as error:
            log.warning("labels_of_jobs_not_compared", usual=group.mapping.pod, metrics=len(names), reason=error)
    return ()


def _compare_jobs(
    engine: Engine, series: Matchers, usual: str, others: Iterable[str], at: float
) -> Iterator[tuple[str, set[str]]]:
    all_series = write_selector("", series)
    held = _write_held(series, usual)
    left = _list_jobs(engine, f"count by (job) ({all_series} unless on (job) ({held}))", at)
    for label in others:
        jobs = _list_jobs(engine, _write_holders(series, label, left), at) if left else set[str]()
        left -= jobs
        if jobs:
            yield label, jobs


def _write_holders(series: Matchers, label: str, jobs: Collection[str]) -> str:
    return f"count by (job) ({_write_held((*series, match_any('job', sorted(jobs))), label)})"


def _write_held(series: Matchers, label: str) -> str:
    """Series with a holder: what the label names may also be the exporter, which is the scraped pod itself."""
    named = Matcher(label, "!=", "")
    return f"{write_selector('', (*series, named))} unless on (job, {label}) {write_selector('up', (named,))}"


def _list_jobs(engine: Engine, expression: str, at: float) -> set[str]:
    vector = decode_vector(engine.query(expression, at))
    return {decode_labels(text).get("job", "") for text in vector.labels} - {""}
