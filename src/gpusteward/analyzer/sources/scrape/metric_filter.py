"""Which families are worth reading, and what is kept of each: all from the tables of the engine's reader."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpusteward.analyzer.sources.usage.metric_schemes import (
    HAMI_NAMES,
    MetricScheme,
    dcgm_names,
    dcgm_signals,
    hami_signals,
    native_signals,
)
from gpusteward.analyzer.sources.usage.quantities import Aggregation, Quantity, Signal
from gpusteward.core import metrics

_CALLED = frozenset({Quantity.PRESENCE, Quantity.MEMORY_LIMIT, Quantity.MEMORY_USED, Quantity.CORE})
"""What may be asked for at a roll call, with everything its labels say."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One family."""

    number: int
    name: str
    scheme: MetricScheme
    is_windowed_gauge: bool  # without a window, its last value is all that is asked for
    is_windowed_counter: bool
    is_called: bool  # who is there is read from its labels
    is_identity: bool  # of devices
    users: frozenset[str] | None  # whose part is asked for, by the label `by`; None: everybody's

    def is_about(self, user: str) -> bool:
        """Whether a series of this family is worth keeping, by whose it is."""
        return self.users is None or user in self.users


def _gather() -> Iterable[Wanted]:
    told: dict[str, tuple[MetricScheme, list[Signal]]] = {}
    for scheme, signals in (
        (MetricScheme.NATIVE, native_signals({metric.name for metric in metrics.METRICS})),
        (MetricScheme.HAMI, hami_signals(HAMI_NAMES)),
        (MetricScheme.DCGM, dcgm_signals(set(dcgm_names()))),
    ):
        for signal in signals:
            told.setdefault(signal.metric, (scheme, []))[1].append(signal)
    for number, (name, (scheme, mine)) in enumerate(told.items()):
        aggregations = {aggregation for signal in mine for aggregation in signal.aggregations}
        quantities = {signal.quantity for signal in mine}
        yield Wanted(
            number,
            name,
            scheme,
            is_windowed_gauge=bool(aggregations - {Aggregation.LAST, Aggregation.INCREASE}),
            is_windowed_counter=Aggregation.INCREASE in aggregations,
            is_called=bool(quantities & _CALLED),
            is_identity=Quantity.IDENTITY in quantities,
            users=_find_users(mine),
        )


def _find_users(signals: Iterable[Signal]) -> frozenset[str] | None:
    users = [matcher.value for signal in signals for matcher in signal.matchers if matcher.label == "by"]
    return frozenset(users) if all(signal.matchers for signal in signals) else None


FAMILIES: tuple[Wanted, ...] = tuple(_gather())
BY_NAME: Mapping[str, Wanted] = {family.name: family for family in FAMILIES}

EVERY_NAME: Mapping[bytes, Wanted] = {family.name.encode(): family for family in FAMILIES}
NOT_DCGM: Mapping[bytes, Wanted] = {
    name: family for name, family in EVERY_NAME.items() if family.scheme is not MetricScheme.DCGM
}
_KNOWS_ALL = b"\n" + metrics.ALLOCATIONS_KNOWN.name.encode() + b"{"
_YES = frozenset({b"1", b"1.0"})


def choose_names(page: bytes) -> Mapping[bytes, Wanted]:
    """What to read of a page. Where gpusteward's agent knows who holds what, its DCGM families say nothing more."""
    start = page.rfind(_KNOWS_ALL)
    if start < 0:
        return EVERY_NAME
    line = page[start + 1 : page.find(b"\n", start + 1)]
    return NOT_DCGM if line.rpartition(b"} ")[2].strip() in _YES else EVERY_NAME
