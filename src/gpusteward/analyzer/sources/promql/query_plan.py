"""The queries of one cycle for the metrics of a site: one per metric and aggregation for all GPUs, never one per GPU.

The plan is used for engines (written as PromQL) and for scraped samples (evaluated in memory).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from gpusteward.analyzer.sources.promql.expressions import Query
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, HOLDER_NAMESPACES, LabelMapping
from gpusteward.analyzer.sources.usage.quantities import (
    CORE_AGGREGATIONS,
    NO_VIDEO,
    PRESENCE_IN_WINDOW,
    PRESENCE_NOW,
    Aggregation,
    Level,
    MetricScheme,
    Quantity,
    QueryKey,
    UsageMetric,
)
from gpusteward.analyzer.sources.usage.query_results import DeviceDetails, HolderDetails, ScrapeTarget
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers
from gpusteward.core import metrics as metrics_table

DEVICE_DETAIL_LABELS = DeviceDetails(parent_uuid="parent_uuid", model="model")
_HOLDER_LABELS = frozenset(label for field in ("namespace", "pod", "container") for label in CANDIDATES[field])


def detail_labels(scheme: MetricScheme, mapping: LabelMapping) -> HolderDetails:
    """The label of each detail of a holder."""
    if scheme is not MetricScheme.NATIVE:
        return mapping.details
    return mapping.details._replace(
        pod_uid="pod_uid", workload_kind="workload_kind", workload="workload", share="share", user="user"
    )


@dataclass(frozen=True, slots=True)
class SeriesGroup:
    """The series of one metric scheme about holders or devices, and their label names."""

    mapping: LabelMapping
    metrics: tuple[UsageMetric, ...]
    fallbacks: tuple[HolderDetails, ...] = ()
    """Further labels of the details: versions of an exporter may differ in them, within one job too."""
    matchers: Matchers = ()  # the clusters it is restricted to

    @property
    def holder_metrics(self) -> list[UsageMetric]:
        return [metric for metric in self.metrics if metric.level is Level.HOLDER]

    def list_metrics(self, *quantities: Quantity) -> list[str]:
        """The metrics of these quantities, in this order."""
        return list(dict.fromkeys(one.name for each in quantities for one in self.metrics if one.quantity is each))

    @property
    def main_metric(self) -> UsageMetric | None:
        """The metric whose series are counted: the core, or the first one."""
        cores = (metric for metric in self.metrics if metric.quantity is Quantity.CORE)
        return next(cores, self.metrics[0] if self.metrics else None)


@dataclass(frozen=True, slots=True)
class DetectedScheme:
    """A metric scheme found at this site, with its metrics and labels."""

    scheme: MetricScheme
    holder: SeriesGroup
    device: SeriesGroup | None = None
    jobs: Matchers = ()  # the scrape jobs it is restricted to, where jobs label the holder differently
    identity: str = ""  # the labels that identify its GPUs, where one UUID stands for several of a node

    @property
    def key(self) -> tuple[MetricScheme, str, str, str]:
        """Identifies what is kept from cycle to cycle; unchanged when another job with the same labels appears."""
        return *self.detected_key, self.identity

    @property
    def detected_key(self) -> tuple[MetricScheme, str, str]:
        """The same for all its parts."""
        mapping = self.holder.mapping
        names_cluster = any(matcher.label == mapping.cluster for matcher in self.holder.matchers)
        return self.scheme, mapping.pod if self.jobs else "", mapping.cluster if names_cluster else ""

    @property
    def matchers(self) -> Matchers:
        """The scrape jobs and clusters that the series about holders are restricted to."""
        return (*self.jobs, *self.holder.matchers)

    @property
    def groups(self) -> list[SeriesGroup]:
        return [group for group in (self.holder, self.device) if group]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The queries about one group of series, and the selector by which its series are counted first."""

    mapping: LabelMapping
    queries: tuple[Query, ...]
    metric: str
    matchers: Matchers

    def without_static(self) -> "QueryPlan":
        return replace(self, queries=tuple(query for query in self.queries if not query.is_static))

    def only_static(self) -> "QueryPlan":
        return replace(self, queries=tuple(query for query in self.queries if query.is_static))

    def without_idle(self) -> "QueryPlan":
        return replace(self, queries=tuple(query for query in self.queries if not query.is_for_idle))

    def only_idle(self) -> "QueryPlan":
        """What only verdicts of idle need."""
        return replace(self, queries=tuple(query for query in self.queries if query.is_for_idle))

    def with_targets(self) -> "QueryPlan":
        """Counts samples by scrape target."""
        labels = ScrapeTarget("job", "instance", self.mapping.cluster)
        queries = (replace(one, detail_labels=labels) if one.is_coverage else one for one in self.queries)
        return replace(self, queries=tuple(queries))

    def only_presence_in_window(self) -> "QueryPlan":
        """The holders that existed in the window and do not exist now."""
        presence = (query for query in self.queries if query.key == PRESENCE_NOW)
        return replace(self, queries=tuple(replace(query, key=PRESENCE_IN_WINDOW) for query in presence))


def plan_holders(detected: DetectedScheme, condition: Matchers) -> QueryPlan:
    """All queries about holders: presence first, then the windows."""
    group = detected.holder
    condition = (*condition, *detected.matchers)
    all_holders = holder_matchers(condition)
    label = _held_label(detected)
    held = (*all_holders, Matcher(label, "!=", "")) if label else all_holders
    metrics = _holder_metrics(detected)
    devices = [metric for metric in group.metrics if metric.level is Level.DEVICE]
    queries = [
        *plan_presence(detected, all_holders),
        *_plan_missing_video(detected, held),
        *_plan_metrics(metrics, group.mapping, held),
        *_plan_metrics(devices, group.mapping, device_matchers(condition)),
        *(_plan_unheld(metrics, group.mapping, all_holders, label) if _shows_unheld(detected, condition) else ()),
    ]
    return _make_plan(group, queries, held)


def _shows_unheld(detected: DetectedScheme, condition: Matchers) -> bool:
    """gpusteward's agent reports the use of every device by itself."""
    return detected.scheme is MetricScheme.DCGM and reports_unheld_devices(detected.scheme, condition)


def _plan_unheld(
    metrics: Iterable[UsageMetric], mapping: LabelMapping, matchers: Matchers, label: str
) -> Iterator[Query]:
    """The core of devices without a holder, where they work: usually none."""
    unheld = (*matchers, Matcher(label, "=", "")) if label else matchers
    key = QueryKey(Level.HOLDER, Quantity.UNHELD, Aggregation.MEAN)
    for metric in metrics:
        if metric.quantity is Quantity.CORE:
            yield Query(key, metric.name, metric.scale, mapping.holder, (*unheld, *metric.matchers))


def plan_devices(group: SeriesGroup, condition: Matchers) -> QueryPlan:
    """All queries about devices, held or not."""
    matchers = device_matchers((*condition, *group.matchers))
    return _make_plan(group, list(_plan_metrics(group.metrics, group.mapping, matchers)), matchers)


def holder_matchers(condition: Matchers) -> Matchers:
    """The part of a condition that applies to series about holders, without `pod!=""`, which is added separately."""
    return tuple(matcher for matcher in condition if not _means_held(matcher))


def device_matchers(condition: Matchers) -> Matchers:
    """The part of a condition that applies to series about devices."""
    return tuple(matcher for matcher in condition if matcher.label not in _HOLDER_LABELS)


def reports_unheld_devices(scheme: MetricScheme, condition: Matchers) -> bool:
    """Whether the presence results include GPUs without a holder. HAMi does not report them, and a condition on
    namespaces excludes them, except for the agent, which reports all GPUs separately."""
    if scheme is MetricScheme.NATIVE:
        return True
    return scheme is MetricScheme.DCGM and holder_matchers(condition) == device_matchers(condition)


def _holder_metrics(detected: DetectedScheme) -> list[UsageMetric]:
    metrics = detected.holder.holder_metrics
    if detected.scheme is not MetricScheme.DCGM:
        return metrics
    return list(_split_mig(metrics, detected.holder.mapping.instance))


def _held_label(detected: DetectedScheme) -> str:
    """The label that shows whether a device is held. For `label!=""` an engine goes through all values of the label,
    and a cluster has a hundred times as many pods as namespaces, so the namespace is cheaper; dcgm-exporter sets both
    or neither."""
    mapping = detected.holder.mapping
    is_sibling = detected.scheme is MetricScheme.DCGM and mapping.namespace in HOLDER_NAMESPACES.get(mapping.pod, ())
    return mapping.namespace if is_sibling else mapping.pod


def _means_held(matcher: Matcher) -> bool:
    """gpu-oour's `pod!=""` means every holder, whatever the label is called at this site."""
    return (matcher.label, matcher.operator, matcher.value) == ("pod", "!=", "")


def _make_plan(group: SeriesGroup, queries: list[Query], matchers: Matchers) -> QueryPlan:
    metric = group.main_metric
    if metric is None:
        return QueryPlan(group.mapping, tuple(queries), "", matchers)
    return QueryPlan(group.mapping, tuple(queries), metric.name, (*matchers, *metric.matchers))


_PRESENCE_QUANTITIES = {
    MetricScheme.NATIVE: (Quantity.PRESENCE,),
    MetricScheme.HAMI: (Quantity.MEMORY_LIMIT, Quantity.MEMORY_USED, Quantity.CORE),
    MetricScheme.DCGM: (Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE),
}
"""What nearly every holder has, even if its core is not measured, most reliable first."""


def plan_presence(detected: DetectedScheme, matchers: Matchers) -> Iterator[Query]:
    """The holders that exist now, with their details; those without these series are found by `unlisted_holders`.

    Devices without a holder are selected too: this shows which allocations have ended and which exporters are down.
    """
    group = detected.holder
    labels = detail_labels(detected.scheme, group.mapping)
    metrics = group.holder_metrics
    quantities = [metric.quantity for metric in metrics]
    preferred = (*_PRESENCE_QUANTITIES[detected.scheme], *quantities)
    presence = next((each for each in preferred if each in quantities), None)
    for metric in metrics:
        if metric.quantity is presence:
            selected = (*matchers, *metric.matchers)
            yield Query(
                PRESENCE_NOW, metric.name, metric.scale, group.mapping.holder, selected, labels, group.fallbacks
            )


VIDEO_QUANTITIES: Mapping[MetricScheme, tuple[Quantity, ...]] = {
    MetricScheme.NATIVE: (Quantity.VIDEO,),
    MetricScheme.HAMI: (Quantity.ENCODER, Quantity.DECODER),
    MetricScheme.DCGM: (Quantity.ENCODER, Quantity.DECODER),
}
"""All of these are needed to see the use of video engines: engine activity and busy time are those of the core."""


def list_missing_video(detected: DetectedScheme) -> list[Quantity]:
    """The video signals that no series of this scheme has."""
    known = {metric.quantity for group in detected.groups for metric in group.metrics}
    return [quantity for quantity in VIDEO_QUANTITIES[detected.scheme] if quantity not in known]


VIDEO_METRICS: Mapping[Quantity, str] = {
    Quantity.VIDEO: metrics_table.USE_VIDEO_SECONDS.name,
    Quantity.ENCODER: "DCGM_FI_DEV_ENC_UTIL",
    Quantity.DECODER: "DCGM_FI_DEV_DEC_UTIL",
}


def list_missing_metrics(detected: DetectedScheme) -> list[str]:
    """The metrics whose absence limits every proof of this scheme, for people."""
    return [VIDEO_METRICS[quantity] for quantity in list_missing_video(detected)]


def _plan_missing_video(detected: DetectedScheme, matchers: Matchers) -> Iterator[Query]:
    """The holders without a video signal, where others have it: exporters of one site may export different fields. The
    boards that can be divided by MIG have no encoder, or do not report it per instance."""
    group = detected.holder
    if detected.scheme is MetricScheme.HAMI or list_missing_video(detected):
        return
    queries = list(plan_presence(detected, matchers))  # one for each name that versions of DCGM have for it
    for presence, quantity in product(queries, VIDEO_QUANTITIES[detected.scheme]):
        others = tuple(
            replace(presence, metric=metric.name, matchers=(*matchers, *metric.matchers))
            for metric in group.holder_metrics
            if metric.quantity is quantity
        )
        is_gpu = (Matcher(group.mapping.instance, "=", ""),) if quantity is Quantity.ENCODER else ()
        is_gpu = is_gpu if group.mapping.instance else ()
        yield replace(
            presence,
            key=NO_VIDEO,
            matchers=(*presence.matchers, *is_gpu),
            detail_labels=None,
            fallbacks=(),
            other_than=others,
        )


def _plan_metrics(metrics: Iterable[UsageMetric], mapping: LabelMapping, matchers: Matchers) -> Iterator[Query]:
    for metric in metrics:
        if metric.quantity is Quantity.PRESENCE:
            continue
        key_labels = mapping.holder if metric.level is Level.HOLDER else mapping.device
        labels = DEVICE_DETAIL_LABELS if metric.quantity is Quantity.IDENTITY else None
        for aggregation in metric.aggregations:
            key = QueryKey(metric.level, metric.quantity, aggregation)
            yield Query(key, metric.name, metric.scale, key_labels, (*matchers, *metric.matchers), labels)


def _split_mig(metrics: list[UsageMetric], label: str) -> Iterator[UsageMetric]:
    """A MIG instance has no utilization: its core is the engine activity. A site may also export nothing else."""
    cores = [metric for metric in metrics if metric.quantity is Quantity.CORE]
    engines = [metric for metric in metrics if metric.quantity is Quantity.ENGINE]
    as_core = [replace(engine, quantity=Quantity.CORE, aggregations=CORE_AGGREGATIONS) for engine in engines]
    if not cores:
        yield from as_core
    elif label:
        yield from (replace(core, matchers=(*core.matchers, Matcher(label, "=", ""))) for core in cores)
        yield from (replace(metric, matchers=(Matcher(label, "!=", ""),)) for metric in as_core)
    else:
        yield from cores
    yield from (metric for metric in metrics if metric.quantity is not Quantity.CORE)
