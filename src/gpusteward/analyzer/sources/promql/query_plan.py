"""The queries of one cycle for the metrics of a site: one per metric and aggregation for all GPUs, never one per GPU.

The idea. What is wanted is said without any engine: a `Query` has a key (of holders or devices, which quantity, how the
window becomes one number), a metric that provides it, and matchers of the series that are meant. The engine computes
the windows; what comes back is one number per holder or device, so that its amount does not grow with the length of the
window. Two things run the same plan: `query_runner` writes it as PromQL (`expressions.py`), and `scrape.store_queries`
evaluates it on samples in memory. That is why both sources give the same table for the same samples.

What must hold:
- Who exists is asked first and separately (`plan_presence`), of series that nearly every holder has. A holder without
  utilization is then a row that is unknown; derived from the utilization itself, it would be no row at all.
- Devices without a holder are selected there too. Only so can a holder that has ended (its device reports, it does not)
  be told from one whose exporter is down (neither reports).
- What is missing is asked for, not concluded: holders without a video signal where others have it, devices that work
  without a holder. An absent series and an idle GPU look alike otherwise.
- Signals that only prove work have a floor (`quantities.FLOORS`): an idle fleet returns nothing for them.
- What does not change is static and read again after a discovery only; what only a verdict of idle needs is read of
  quiet holders only (`Query.is_for_idle`): comparing energy minute by minute is the most expensive of all queries.

Without one plan for the whole site a cycle over 10,000 GPUs would take a minute and a half instead of a second
(bench/results/analyzer.md), and the samples of its first and its last GPU would be of different times.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from typing import Any

from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, HOLDER_NAMESPACES, LabelMapping
from gpusteward.analyzer.sources.usage.quantities import (
    CORE_AGGREGATIONS,
    CORE_COUNT,
    EXCESSES,
    FLOORS,
    IDLE_KEYS,
    NO_VIDEO,
    PRESENCE_IN_WINDOW,
    PRESENCE_NOW,
    STATIC_QUANTITIES,
    UNHELD_FLOOR,
    Aggregation,
    Level,
    Quantity,
    QueryKey,
    UsageMetric,
)
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceDetails,
    DeviceKey,
    HolderDetails,
    HolderKey,
    ScrapeTarget,
)
from gpusteward.analyzer.sources.usage.schemes import MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, write_selector
from gpusteward.core import metrics as metrics_table
from gpusteward.core.usages import LEAST_EXCESS

DEVICE_DETAIL_LABELS = DeviceDetails(parent_uuid="parent_uuid", model="model")
_HOLDER_LABELS = frozenset(label for field in ("namespace", "pod", "container") for label in CANDIDATES[field])


def detail_labels(scheme: MetricScheme, mapping: LabelMapping) -> HolderDetails:
    """The label of each detail of a holder."""
    if not scheme.lists_allocations:
        return mapping.details
    return mapping.details._replace(
        **{name: name for name in ("pod_uid", "workload_kind", "workload", "share", "user", "used_by")}
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

    def describe(self) -> dict[str, Any]:
        """For `/api/v1/sources`; `missing_metrics` limit every proof of this scheme."""
        return {
            "name": self.scheme.name,
            **({"only": write_selector("", self.matchers)} if self.matchers else {}),
            "labels": {field: str(label) for field, label in asdict(self.holder.mapping).items() if label},
            "metrics": sorted({metric.name for group in self.groups for metric in group.metrics}),
            "missing_metrics": [VIDEO_METRICS[quantity] for quantity in list_missing_video(self)],
        }


@dataclass(frozen=True, slots=True)
class Query:
    """One query for all GPUs at once."""

    key: QueryKey
    metric: str
    scale: float
    key_labels: HolderKey | DeviceKey  # the label of each part of the key
    matchers: Matchers = ()
    detail_labels: HolderDetails | DeviceDetails | ScrapeTarget | None = None  # the label of each detail, if queried
    fallbacks: tuple[HolderDetails, ...] = ()  # further labels of the details, for series without the first ones
    other_than: tuple["Query", ...] = ()  # leave out the keys that these have now

    @property
    def floor(self) -> float | None:
        """In base units. Only values above it are returned; None: all."""
        if self.key.aggregation in EXCESSES:
            return LEAST_EXCESS
        return UNHELD_FLOOR if self.key.quantity is Quantity.UNHELD else FLOORS.get(self.key.quantity)

    @property
    def is_static(self) -> bool:
        """Whether the result of an earlier cycle is still valid."""
        level, quantity, aggregation = self.key
        return level is Level.DEVICE and aggregation is Aggregation.LAST and quantity in STATIC_QUANTITIES

    @property
    def is_for_idle(self) -> bool:
        """Whether only a verdict of idle needs it: what contradicts idleness, and what limits its proof."""
        return self.key.aggregation in EXCESSES or self.key in IDLE_KEYS

    def list_labels(self) -> list[str]:
        """Of its key and its details, each once. Names of several labels in one text are joined by commas."""
        labels = (*self.key_labels, *(self.detail_labels or ()), *chain.from_iterable(self.fallbacks))
        return split_names(labels)


def split_names(labels: Iterable[str]) -> list[str]:
    """The names of labels, each once; those of several labels may be one text, joined by commas."""
    names = (name for text in labels for name in text.split(","))
    return list(dict.fromkeys(filter(None, names)))


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The queries about one group of series, and the selector by which its series are counted first."""

    mapping: LabelMapping
    queries: tuple[Query, ...]
    metric: str
    matchers: Matchers

    def choose(self, is_wanted: Callable[[Query], bool]) -> "QueryPlan":
        """Some of its queries."""
        return replace(self, queries=tuple(filter(is_wanted, self.queries)))

    def with_targets(self) -> "QueryPlan":
        """Counts samples by scrape target: where intervals differ, a number says nothing without its target."""
        labels = ScrapeTarget("job", "instance", self.mapping.cluster)
        queries = (replace(one, detail_labels=labels) if one.key == CORE_COUNT else one for one in self.queries)
        return replace(self, queries=tuple(queries))

    def only_presence_in_window(self) -> "QueryPlan":
        """The holders that existed in the window and do not exist now."""
        presence = (query for query in self.queries if query.key == PRESENCE_NOW)
        return replace(self, queries=tuple(replace(query, key=PRESENCE_IN_WINDOW) for query in presence))


def plan_holders(detected: DetectedScheme, condition: Matchers) -> QueryPlan:
    """All queries about holders: presence first, then the windows."""
    group, mapping = detected.holder, detected.holder.mapping
    condition = (*condition, *detected.matchers)
    all_holders = holder_matchers(condition)
    # For `label!=""` an engine goes through all values of the label, and a cluster has a hundred times as many pods as
    # namespaces, so the namespace is cheaper; dcgm-exporter sets both or neither.
    names_holder = detected.scheme.names_holder
    is_sibling = names_holder and mapping.namespace in HOLDER_NAMESPACES.get(mapping.pod, ())
    label = mapping.namespace if is_sibling else mapping.pod
    held = (*all_holders, Matcher(label, "!=", "")) if label else all_holders
    metrics = list(_split_mig(group.holder_metrics, mapping.instance)) if names_holder else group.holder_metrics
    devices = [metric for metric in group.metrics if metric.level is Level.DEVICE]
    queries = [
        *plan_presence(detected, all_holders),  # of free devices too: one that reports without its holder shows its end
        *_plan_missing_video(detected, held),
        *_plan_metrics(metrics, mapping, held),
        *_plan_metrics(devices, mapping, device_matchers(condition)),
    ]
    if names_holder and reports_unheld_devices(detected.scheme, condition):
        # The core of devices without a holder, where they work: usually none. gpusteward's agent reports the use of
        # every device by itself.
        unheld = (*all_holders, Matcher(label, "=", "")) if label else all_holders
        key = QueryKey(Level.HOLDER, Quantity.UNHELD, Aggregation.MEAN)
        cores = (metric for metric in metrics if metric.quantity is Quantity.CORE)
        queries += [Query(key, one.name, one.scale, mapping.holder, (*unheld, *one.matchers)) for one in cores]
    return _make_plan(group, queries, held)


def plan_devices(group: SeriesGroup, condition: Matchers) -> QueryPlan:
    """All queries about devices, held or not."""
    matchers = device_matchers((*condition, *group.matchers))
    return _make_plan(group, list(_plan_metrics(group.metrics, group.mapping, matchers)), matchers)


def holder_matchers(condition: Matchers) -> Matchers:
    """The part of a condition that applies to series about holders. Without gpu-oour's `pod!=""`, which means every
    holder, whatever the label is called at this site: that is added separately."""
    return tuple(matcher for matcher in condition if matcher != Matcher("pod", "!=", ""))


def device_matchers(condition: Matchers) -> Matchers:
    """The part of a condition that applies to series about devices."""
    return tuple(matcher for matcher in condition if matcher.label not in _HOLDER_LABELS)


def reports_unheld_devices(scheme: MetricScheme, condition: Matchers) -> bool:
    """Whether the presence results include GPUs without a holder. HAMi does not report them, and a condition on
    namespaces excludes them, except for the agent, which reports all GPUs separately."""
    is_unrestricted = holder_matchers(condition) == device_matchers(condition)
    return scheme.lists_allocations or (scheme.names_holder and is_unrestricted)


def _make_plan(group: SeriesGroup, queries: list[Query], matchers: Matchers) -> QueryPlan:
    metric = group.main_metric
    counted = (*matchers, *metric.matchers) if metric else matchers
    return QueryPlan(group.mapping, tuple(queries), metric.name if metric else "", counted)


def plan_presence(detected: DetectedScheme, matchers: Matchers) -> Iterator[Query]:
    """The holders that exist now, with their details; those without these series are found by `unlisted_holders`.

    Devices without a holder are selected too: this shows which allocations have ended and which exporters are down.
    """
    group = detected.holder
    labels = detail_labels(detected.scheme, group.mapping)
    metrics = group.holder_metrics
    quantities = [metric.quantity for metric in metrics]
    preferred = (*detected.scheme.presence, *quantities)
    presence = next((each for each in preferred if each in quantities), None)
    for metric in metrics:
        if metric.quantity is presence:
            selected = (*matchers, *metric.matchers)
            yield Query(
                PRESENCE_NOW, metric.name, metric.scale, group.mapping.holder, selected, labels, group.fallbacks
            )


def list_missing_video(detected: DetectedScheme) -> list[Quantity]:
    """The video signals that no series of this scheme has."""
    known = {metric.quantity for group in detected.groups for metric in group.metrics}
    return [quantity for quantity in detected.scheme.video if quantity not in known]


VIDEO_METRICS: Mapping[Quantity, str] = {
    Quantity.VIDEO: metrics_table.USE_VIDEO_SECONDS.name,
    Quantity.ENCODER: "DCGM_FI_DEV_ENC_UTIL",
    Quantity.DECODER: "DCGM_FI_DEV_DEC_UTIL",
}


def _plan_missing_video(detected: DetectedScheme, matchers: Matchers) -> Iterator[Query]:
    """The holders without a video signal, where others have it: exporters of one site may export different fields. The
    boards that can be divided by MIG have no encoder, or do not report it per instance."""
    group = detected.holder
    if detected.scheme.devices or list_missing_video(detected):
        return
    queries = list(plan_presence(detected, matchers))  # one for each name that versions of DCGM have for it
    for presence, quantity in product(queries, detected.scheme.video):
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
            other_than=others,  # the engine compares: it returns the few that lack a signal, not all that have it
        )


def _plan_metrics(metrics: Iterable[UsageMetric], mapping: LabelMapping, matchers: Matchers) -> Iterator[Query]:
    for metric in metrics:
        if metric.quantity is Quantity.PRESENCE:
            continue  # `plan_presence` asks for it, with its details
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
