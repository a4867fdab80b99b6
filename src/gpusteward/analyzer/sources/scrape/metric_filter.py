"""The metric families that are read from pages, and what is kept of each; from the same tables as for an engine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpusteward.analyzer.sources.usage.metric_schemes import (
    HAMI_NAMES,
    MetricScheme,
    dcgm_metrics,
    dcgm_names,
    hami_metrics,
    native_metrics,
)
from gpusteward.analyzer.sources.usage.quantities import (
    EXCESSES,
    FLOORS,
    SHOWS_GPUS,
    Aggregation,
    Quantity,
    UsageMetric,
)
from gpusteward.core import metrics

_OF_COUNTERS = frozenset({Aggregation.INCREASE, *EXCESSES})


@dataclass(frozen=True, slots=True)
class MetricFamily:
    number: int
    name: str
    scheme: MetricScheme
    is_windowed_gauge: bool  # of other families only the last value is needed
    is_windowed_counter: bool
    varies_most: bool  # power or energy, whose changes show how often an exporter collects
    shows_presence: bool  # its labels show which holders exist
    shows_devices: bool  # its labels describe devices
    shows_gpus: bool  # GPUs are counted by its series
    floor: float | None  # of a gauge that only proves work: lower values are not kept; in the unit of the page
    attributions: frozenset[str] | None  # the values of the label `by` that are needed; None: all

    def needs(self, attribution: str) -> bool:
        """Whether a series with this value of the label `by` is kept."""
        return self.attributions is None or attribution in self.attributions


def _make_families() -> Iterable[MetricFamily]:
    families: dict[str, tuple[MetricScheme, list[UsageMetric]]] = {}
    for scheme, found in (
        (MetricScheme.NATIVE, native_metrics({metric.name for metric in metrics.METRICS})),
        (MetricScheme.HAMI, hami_metrics(HAMI_NAMES)),
        (MetricScheme.DCGM, dcgm_metrics(set(dcgm_names()))),
    ):
        for metric in found:
            families.setdefault(metric.name, (scheme, []))[1].append(metric)
    for number, (name, (scheme, own)) in enumerate(families.items()):
        aggregations = {aggregation for metric in own for aggregation in metric.aggregations}
        quantities = {metric.quantity for metric in own}
        yield MetricFamily(
            number,
            name,
            scheme,
            # When the last kernel ran is read once more before an action, which needs to know when that was scraped.
            is_windowed_gauge=bool(aggregations - {Aggregation.LAST, Aggregation.CHANGES, *_OF_COUNTERS})
            or Quantity.LAST_KERNEL in quantities,
            is_windowed_counter=not aggregations.isdisjoint(_OF_COUNTERS),
            varies_most=scheme is MetricScheme.DCGM and not quantities.isdisjoint((Quantity.POWER, Quantity.ENERGY)),
            shows_presence=_shows_presence(scheme, quantities, aggregations),
            shows_devices=Quantity.IDENTITY in quantities,
            shows_gpus=not quantities.isdisjoint(SHOWS_GPUS),
            floor=_find_floor(own),
            attributions=_find_attributions(own),
        )


def _shows_presence(scheme: MetricScheme, quantities: set[Quantity], aggregations: set[Aggregation]) -> bool:
    """gpusteward's agent has a metric for it; elsewhere, whoever is named on any line is a holder."""
    if scheme is MetricScheme.NATIVE:
        return Quantity.PRESENCE in quantities
    return Quantity.MEMORY_LIMIT in quantities or bool(aggregations - {Aggregation.LAST})


def _find_floor(metrics: Iterable[UsageMetric]) -> float | None:
    floors = [
        FLOORS[metric.quantity] / metric.scale if metric.quantity in FLOORS else None
        for metric in metrics
        if _OF_COUNTERS.isdisjoint(metric.aggregations)
    ]
    return floors[0] if floors and None not in floors else None


def _find_attributions(metrics: Iterable[UsageMetric]) -> frozenset[str] | None:
    values = [matcher.value for metric in metrics for matcher in metric.matchers if matcher.label == "by"]
    return frozenset(values) if all(metric.matchers for metric in metrics) else None


FAMILIES: tuple[MetricFamily, ...] = tuple(_make_families())
"""By number; in the order of preference of their schemes."""
MOST_VARIED = [family.number for family in FAMILIES if family.varies_most]
BY_NAME: Mapping[str, MetricFamily] = {family.name: family for family in FAMILIES}

BY_ENCODED_NAME: Mapping[bytes, MetricFamily] = {family.name.encode(): family for family in FAMILIES}
_WITHOUT_DCGM: Mapping[bytes, MetricFamily] = {
    name: family for name, family in BY_ENCODED_NAME.items() if family.scheme is not MetricScheme.DCGM
}
_ALLOCATIONS_KNOWN = b"\n" + metrics.ALLOCATIONS_KNOWN.name.encode() + b"{"
_TRUE = frozenset({b"1", b"1.0"})


def choose_families(page: bytes) -> Mapping[bytes, MetricFamily]:
    """The families to read from a page. If gpusteward's agent knows all allocations, its DCGM families add nothing."""
    start = page.rfind(_ALLOCATIONS_KNOWN)
    if start < 0:
        return BY_ENCODED_NAME
    line = page[start + 1 : page.find(b"\n", start + 1)]
    return _WITHOUT_DCGM if line.rpartition(b"} ")[2].strip() in _TRUE else BY_ENCODED_NAME
