"""Detects the metric schemes of a site and their labels from the engine's index, without reading series.

The holder's labels may differ by scrape job, because `honor_labels` is set per job: where it is set, `pod` is the
holder; where it is not, the holder is `exported_pod` and `pod` is the exporter. Jobs whose labels differ from the usual
ones are detected as a separate scheme; read with the usual labels, they would have no holders.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from gpusteward.analyzer.sources.engine.client import Engine, Fields, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_names, decode_vector
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, map_labels
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme, dcgm_signals, hami_signals, native_signals
from gpusteward.analyzer.sources.usage.quantities import Level, Quantity, Signal
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, match_any, write_selector
from gpusteward.logs import Log

log = Log(__name__)

LOOK_BACK_SECONDS = 3600.0
_SAMPLED = (Quantity.PRESENCE, Quantity.CORE, Quantity.ENGINE, Quantity.MEMORY_USED)
"""The metrics whose labels are looked up: an exporter labels all its metrics alike, except that not all have MIG."""
_IN_EVERY_JOB = (Quantity.PRESENCE, Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE)
"""What every job exports, most reliable first."""


def read_metric_names(engine: Engine, at: float) -> set[str]:
    """Raises SourceError."""
    return set(decode_names(engine.fetch("/api/v1/label/__name__/values", _span(at), use_get=True)))


def detect_schemes(engine: Engine, names: Collection[str], at: float) -> Iterator[DetectedScheme]:
    """The schemes among these metric names, most trusted first. Raises SourceError."""
    yield from _detect_native(engine, names, at)
    yield from _detect_hami(engine, names, at)
    yield from _detect_dcgm(engine, names, at)


def _detect_native(engine: Engine, names: Collection[str], at: float) -> Iterator[DetectedScheme]:
    if not (signals := native_signals(names)):
        return
    holders = tuple(signal for signal in signals if signal.level is Level.HOLDER)
    devices = tuple(signal for signal in signals if signal.level is Level.DEVICE)
    labels = _read_labels(engine, holders, at)
    mapping = map_labels(labels)
    detected = DetectedScheme(MetricScheme.NATIVE, SeriesGroup(mapping, holders), SeriesGroup(mapping, devices))
    yield from _split_by_job(engine, detected, labels, at)


def _detect_hami(engine: Engine, names: Collection[str], at: float) -> Iterator[DetectedScheme]:
    if not (signals := hami_signals(names)):
        return
    devices = dcgm_signals(names, level=Level.DEVICE)
    device = SeriesGroup(map_labels(_read_labels(engine, devices, at)), devices) if devices else None
    labels = _read_labels(engine, signals, at)
    detected = DetectedScheme(MetricScheme.HAMI, SeriesGroup(map_labels(labels), signals), device)
    yield from _split_by_job(engine, detected, labels, at)


def _detect_dcgm(engine: Engine, names: Collection[str], at: float) -> Iterator[DetectedScheme]:
    if not (signals := dcgm_signals(names)):
        return
    labels = _read_labels(engine, signals, at)
    detected = DetectedScheme(MetricScheme.DCGM, SeriesGroup(map_labels(labels), signals))
    yield from _split_by_job(engine, detected, labels, at)


def _read_labels(engine: Engine, signals: Iterable[Signal], at: float) -> set[str]:
    selectors = [("match[]", metric) for metric in _list_sampled(signals)]
    return set(decode_names(engine.fetch("/api/v1/labels", (*selectors, *_span(at))))) if selectors else set()


def _list_sampled(signals: Iterable[Signal]) -> list[str]:
    return list(dict.fromkeys(signal.metric for signal in signals if signal.quantity in _SAMPLED))


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
    metrics = match_any("__name__", _list_sampled(detected.holder.signals))
    for label, jobs in _find_jobs(engine, match_any("__name__", _choose_metrics(detected)), mapping.pod, others, at):
        only: Matchers = (match_any("job", sorted(jobs)),)
        fields = (("match[]", write_selector("", (metrics, *only))), *_span(at))
        own = map_labels(decode_names(engine.fetch("/api/v1/labels", fields)))
        if own.pod == label:
            yield replace(detected, holder=replace(detected.holder, mapping=own), jobs=only)


def _choose_metrics(detected: DetectedScheme) -> list[str]:
    """One quantity that every job exports, under all its metric names."""
    for quantity in _IN_EVERY_JOB:
        names = dict.fromkeys(signal.metric for signal in detected.holder.signals if signal.quantity is quantity)
        if names:
            return list(names)
    return [signal.metric for signal in detected.holder.signals[:1]]


def _find_jobs(
    engine: Engine, metric: Matcher, usual: str, others: Iterable[str], at: float
) -> Iterator[tuple[str, set[str]]]:
    """Jobs without any holder under the usual label, by the label that names their holders."""
    all_series = write_selector("", (metric,))
    held = write_selector("", (metric, Matcher(usual, "!=", "")))
    try:
        left = _list_jobs(engine, f"count by (job) ({all_series} unless on (job) {held})", at)
        for label in others:
            jobs = _list_jobs(engine, _write_holders(metric, label, left), at) if left else set[str]()
            left -= jobs
            if jobs:
                yield label, jobs
    except LimitError as error:
        log.warning("labels_of_jobs_not_compared", usual=usual, reason=error)


def _write_holders(metric: Matcher, label: str, jobs: Collection[str]) -> str:
    """On a GPU without a holder, `pod` may be the exporter, which is the scraped pod itself: it is excluded."""
    of_jobs = match_any("job", sorted(jobs))
    labelled = write_selector("", (metric, of_jobs, Matcher(label, "!=", "")))
    return f"count by (job) ({labelled} unless on (job, {label}) {write_selector('up', (of_jobs,))})"


def _list_jobs(engine: Engine, expression: str, at: float) -> set[str]:
    vector = decode_vector(engine.query(expression, at))
    return {decode_labels(text).get("job", "") for text in vector.labels} - {""}
