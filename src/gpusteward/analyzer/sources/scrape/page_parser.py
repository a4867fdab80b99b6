"""A metrics page -> values by series, of the metric families that are read and no others. A known line costs a
dictionary lookup and a number; a malformed line is counted.

The part of a line before its value identifies its series, and only its hash is kept: kept as texts, the lines of a
thousand nodes would be 80 MB. Python's hash of bytes has a random key per process, so collisions cannot be provoked.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpusteward.analyzer.sources.usage.inference_servers import COUNTERS, PROCESS_START, SERVERS
from gpusteward.analyzer.sources.usage.quantities import (
    EXCESSES,
    FLOORS,
    SHOWS_GPUS,
    Aggregation,
    Quantity,
    UsageMetric,
)
from gpusteward.analyzer.sources.usage.query_results import MAX_LABEL_LENGTH
from gpusteward.analyzer.sources.usage.schemes import SCHEMES, MetricScheme
from gpusteward.core import metrics

_OF_COUNTERS = frozenset({Aggregation.INCREASE, *EXCESSES})


@dataclass(frozen=True, slots=True)
class MetricFamily:
    number: int
    name: str
    scheme: MetricScheme | None  # None: of inference servers
    is_windowed_gauge: bool  # of other families only the last value is needed
    is_windowed_counter: bool
    varies_most: bool  # power or energy, whose changes show how often an exporter collects
    shows_presence: bool  # its labels show which holders exist
    shows_devices: bool  # its labels describe devices
    shows_gpus: bool  # GPUs are counted by its series
    floor: float | None  # of a gauge that only proves work: lower values are not kept; in the unit of the page
    attributions: frozenset[str] | None  # the values of the label `by` that are needed; None: all

    @property
    def value_bytes(self) -> int:
        """What one sample of a series takes in the window."""
        return 4 * self.is_windowed_gauge + 8 * self.is_windowed_counter

    def needs(self, attribution: str) -> bool:
        """Whether a series with this value of the label `by` is kept."""
        return self.attributions is None or attribution in self.attributions


def _make_families() -> Iterable[MetricFamily]:
    families: dict[str, tuple[MetricScheme, list[UsageMetric]]] = {}
    for scheme in SCHEMES:
        for metric in scheme.list_metrics(scheme.names):
            families.setdefault(metric.name, (scheme, []))[1].append(metric)
    for number, (name, (scheme, own)) in enumerate(families.items()):
        aggregations = {aggregation for metric in own for aggregation in metric.aggregations}
        quantities = {metric.quantity for metric in own}
        values = [matcher.value for metric in own for matcher in metric.matchers if matcher.label == "by"]
        # gpusteward's agent has a metric for it; elsewhere, whoever is named on any line is a holder.
        shows_presence = Quantity.MEMORY_LIMIT in quantities or bool(aggregations - {Aggregation.LAST})
        if scheme.lists_allocations:
            shows_presence = Quantity.PRESENCE in quantities
        gauges = [metric for metric in own if _OF_COUNTERS.isdisjoint(metric.aggregations)]
        only_proves_work = gauges and all(metric.quantity in FLOORS for metric in gauges)
        yield MetricFamily(
            number,
            name,
            scheme,
            # When the last kernel ran is read once more before an action, which needs to know when that was scraped.
            is_windowed_gauge=bool(aggregations - {Aggregation.LAST, Aggregation.CHANGES, *_OF_COUNTERS})
            or Quantity.LAST_KERNEL in quantities,
            is_windowed_counter=not aggregations.isdisjoint(_OF_COUNTERS),
            varies_most=scheme.names_holder and not quantities.isdisjoint((Quantity.POWER, Quantity.ENERGY)),
            shows_presence=shows_presence,
            shows_devices=Quantity.IDENTITY in quantities,
            shows_gpus=not quantities.isdisjoint(SHOWS_GPUS),
            floor=FLOORS[gauges[0].quantity] / gauges[0].scale if only_proves_work else None,
            attributions=frozenset(values) if all(metric.matchers for metric in own) else None,
        )


def _make_server_families(first: int) -> Iterable[MetricFamily]:
    counts = {
        name: reading in COUNTERS
        for server in SERVERS
        for reading, metrics in server.metrics.items()
        for metric in metrics
        for name in metric.names
    }
    for number, (name, is_counter) in enumerate({**counts, PROCESS_START: True}.items(), first):
        yield MetricFamily(number, name, None, not is_counter, is_counter, *(False,) * 4, None, None)


_OF_GPUS = tuple(_make_families())
FAMILIES: tuple[MetricFamily, ...] = (*_OF_GPUS, *_make_server_families(len(_OF_GPUS)))
"""By number; those of GPUS in the order of preference of their schemes, then those of inference servers."""
FIRST_OF_SERVERS = len(_OF_GPUS)
MOST_VARIED = [family.number for family in FAMILIES if family.varies_most]
BY_NAME: Mapping[str, MetricFamily] = {family.name: family for family in FAMILIES}

BY_ENCODED_NAME: Mapping[bytes, MetricFamily] = {family.name.encode(): family for family in FAMILIES}
_MAY_LACK_LABELS = frozenset(family.name.encode() for family in FAMILIES[FIRST_OF_SERVERS:])
_WITHOUT_DCGM: Mapping[bytes, MetricFamily] = {
    name: family for name, family in BY_ENCODED_NAME.items() if family.scheme is None or not family.scheme.names_holder
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


MAX_LINE_BYTES = 16_384
MAX_NEW_SERIES = 20_000
"""Of one page: so many lines of unknown series are looked at, however many there are."""
_PART_BYTES = 1 << 18
MAX_EXAMPLE_BYTES = 120
MAX_AGE_SECONDS = 300.0
"""Older samples are ignored whatever timestamp the exporter gives: Prometheus does not look further back either."""

IGNORED = -1  # the row of a line that is not needed

NOT_A_NUMBER = "value is not a number"
NOT_FINITE = "value is NaN, infinite or out of range"
TOO_OLD = "timestamp is not of this scrape"
NO_LABELS = "labels cannot be parsed"
TOO_LONG = "line is too long"
CUT_OFF = "page ends in the middle of a line"
DUPLICATE = "series is on the page twice"
OTHER_NODE = "names a node that this target may not report; see scrape.any_node_targets"
NO_MEMORY = "series need more memory than the budget; raise memory.budget_bytes and the memory limit of the container"

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n"}


@dataclass
class ParseErrors:
    """Lines that were left out, by reason, each with the last example."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, line: bytes = b"", *, times: int = 1) -> None:
        self.counts[reason] += times
        if line:
            name, _, rest = line.partition(b"{")
            value = rest.rpartition(b"}")[2]
            self.examples[reason] = (name + value)[:MAX_EXAMPLE_BYTES].decode("utf-8", "replace")


@dataclass(slots=True)
class ParsedPage:
    """The values of known series, and the first lines of unknown ones."""

    rows: list[int]
    values: list[float]
    unknown_lines: list[bytes]
    unknown_count: int


def parse_page(
    page: bytes,
    known: Mapping[int, int],
    names: Container[bytes],
    *,
    errors: ParseErrors,
    at: float,
) -> ParsedPage:
    """Every line of these metric families. `known`: hash of a line without its value -> row."""
    rows: list[int] = []
    values: list[float] = []
    unknown: list[bytes] = []
    unknown_count = 0
    find_row, add_row, add_value = known.get, rows.append, values.append
    rest = page[page.rfind(b"\n") + 1 :]
    if rest.strip() and not rest.startswith(b"#"):  # digits of its number may be missing
        errors.add(CUT_OFF, rest[:MAX_EXAMPLE_BYTES])
    for line in split_lines(page):
        brace = line.find(b"{")
        if line[:brace] not in names:
            if brace >= 0 or line[: line.find(b" ")] not in _MAY_LACK_LABELS:
                continue
            line = line.replace(b" ", b"{} ", 1)  # noqa: PLW2901 - from here on as any other
        end = line.rfind(b"} ")
        row = find_row(hash(line[:end]))
        if row is None:
            unknown_count += 1
            if len(unknown) < MAX_NEW_SERIES:
                unknown.append(line)
            continue
        if row == IGNORED:
            continue
        try:
            value = float(line[end + 2 :])
        except ValueError:
            with_timestamp = _parse_value_with_timestamp(line, end, errors=errors, at=at)
            if with_timestamp is None:
                continue
            value = with_timestamp
        add_row(row)
        add_value(value)
    return ParsedPage(rows, values, unknown, unknown_count)


def split_lines(page: bytes) -> Iterator[bytes]:
    """The complete lines of a page, a part at a time: a line of one byte takes 42 in a list."""
    start = 0
    while start < len(page):
        end = page.rfind(b"\n", start, start + _PART_BYTES)
        end = page.find(b"\n", start) if end < 0 else end  # a line that is longer
        if end < 0:
            return
        yield from page[start:end].split(b"\n")
        start = end + 1


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """A line of a series that is not known yet."""

    line: bytes
    name: bytes
    labels: dict[str, str]
    end: int  # of the labels

    @property
    def key(self) -> int:
        return hash(self.line[: self.end])


def parse_line(line: bytes, *, errors: ParseErrors) -> ParsedLine | None:
    """Name and labels; None if they cannot be parsed, which is counted."""
    if len(line) > MAX_LINE_BYTES:
        errors.add(TOO_LONG, line[:MAX_EXAMPLE_BYTES])
        return None
    start, end = line.find(b"{"), line.rfind(b"} ")
    try:
        return ParsedLine(line, line[:start], parse_labels(line[start + 1 : end] if end > start else b"?"), end)
    except ValueError:  # also for invalid UTF-8
        errors.add(NO_LABELS, line)
        return None


def parse_value(line: bytes, end: int, *, errors: ParseErrors, at: float) -> float | None:
    """The number after the labels; None if there is none, which is counted."""
    try:
        return float(line[end + 2 :])
    except ValueError:
        return _parse_value_with_timestamp(line, end, errors=errors, at=at)


def _parse_value_with_timestamp(line: bytes, end: int, *, errors: ParseErrors, at: float) -> float | None:
    parts = line[end + 2 :].split()
    try:
        value, timestamp_ms = map(float, parts)
    except ValueError:
        errors.add(NOT_A_NUMBER, line)
        return None
    if abs(at - timestamp_ms / 1000) > MAX_AGE_SECONDS:
        errors.add(TOO_OLD, line)
        return None
    return value


def parse_labels(text: bytes) -> dict[str, str]:
    """`a="b",c="d"` -> a mapping. Raises ValueError for anything else."""
    inside = text.decode("utf-8").strip()
    labels: dict[str, str] = {}
    position = 0
    while position < len(inside):
        match = _LABEL.match(inside, position)
        if match is None:
            raise ValueError(NO_LABELS)
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), value)
        labels[match[1]] = value[:MAX_LABEL_LENGTH]
        position = match.end()
    return labels
