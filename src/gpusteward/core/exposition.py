"""Renders metric families in the Prometheus text format and in OpenMetrics.

Sample lines are the same in both formats and rendered once; only the headers differ, and a format is assembled on
request. Rendered labels are cached between cycles (`LabelCache`): they are the expensive part and rarely change.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from operator import itemgetter

from gpusteward.core.metrics import Metric, MetricType

Labels = tuple[tuple[str, str], ...]
Samples = list[tuple[str, float]]  # rendered labels, value

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(slots=True)
class Family:
    """A metric and its samples. Labels must be unique within one family."""

    metric: Metric
    samples: Samples


@dataclass(frozen=True)
class RenderedPage:
    """A rendered page without `# EOF`, so that more families can follow."""

    families: Sequence[tuple[Metric, bytes]]  # each with its sample lines

    @cached_property
    def text_parts(self) -> list[bytes]:
        """The page in pieces: a scrape needs no copy of the whole that would stay in memory."""
        return [part for metric, lines in self.families for part in (render_text_header(metric).encode(), lines)]

    @cached_property
    def openmetrics_parts(self) -> list[bytes]:
        return [part for metric, lines in self.families for part in (render_openmetrics_header(metric).encode(), lines)]

    @property
    def text(self) -> bytes:
        return b"".join(self.text_parts)

    @property
    def openmetrics(self) -> bytes:
        return b"".join(self.openmetrics_parts)


@dataclass(slots=True)
class _CachedLabels:
    texts: tuple[str, ...]
    cycle: int  # that used them last


class LabelCache:
    """Rendered labels, kept while every cycle uses them, so the cache is bounded by the current series.

    A key is hashed once per use: keys contain containers, and their hashes are a considerable part of a cycle.
    """

    def __init__(self) -> None:
        self._cached: dict[Hashable, _CachedLabels] = {}
        self._cycle = 0
        self._used = 0  # entries in this cycle

    def __len__(self) -> int:
        return len(self._cached)

    def start_cycle(self) -> None:
        """Drop entries that the last cycle did not use."""
        if self._used < len(self._cached):
            self._cached = {key: each for key, each in self._cached.items() if each.cycle == self._cycle}
        self._cycle += 1
        self._used = 0

    def render(self, labels: Labels) -> str:
        """`{a="b",c="d"}`, or empty without labels."""
        return self.get_or_render(labels, lambda: labels)

    def get_or_render(self, key: Hashable, build: Callable[[], Labels]) -> str:
        """The rendered labels cached under `key`; `build` is called only for a new key."""
        return self.get_or_render_all(key, lambda: (build(),))[0]

    def get_or_render_all(self, key: Hashable, build: Callable[[], Iterable[Labels]]) -> tuple[str, ...]:
        """The same for several label sets under one key."""
        cached = self._cached.get(key)
        if cached is None:
            texts = tuple([render_labels(labels) for labels in build()])
            cached = self._cached[key] = _CachedLabels(texts, self._cycle - 1)
        if cached.cycle != self._cycle:
            cached.cycle = self._cycle
            self._used += 1
        return cached.texts


def render_labels(labels: Iterable[tuple[str, str]]) -> str:
    """Render labels; empty ones are omitted, because for Prometheus an empty label does not exist."""
    inside = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels if value)
    return f"{{{inside}}}" if inside else ""


def escape_label(value: str) -> str:
    """Escape a label value for the text format; invalid UTF-8 is replaced, NUL is removed."""
    if value.isalnum():
        return value
    value = value.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"").replace("\r", " ")


class PageRenderer:
    """Renders one page after the other. A family whose samples have not changed is not rendered again."""

    def __init__(self) -> None:
        self._rendered: dict[str, tuple[Samples, bytes]] = {}  # by name of the metric: samples and lines

    def render(self, families: Iterable[Family]) -> RenderedPage:
        """Render families in order; those without samples are omitted. The samples must not be changed afterwards."""
        before, self._rendered = self._rendered, {}
        return RenderedPage([(each.metric, self._render(each, before)) for each in families if each.samples])

    def _render(self, family: Family, before: Mapping[str, tuple[Samples, bytes]]) -> bytes:
        name = family.metric.name
        samples, lines = before.get(name, _NOT_RENDERED)
        if samples != family.samples:
            lines = render_lines(family.metric, family.samples).encode()
        self._rendered[name] = family.samples, lines
        return lines


_NOT_RENDERED: tuple[Samples, bytes] = ([], b"")


def render_page(families: Iterable[Family]) -> RenderedPage:
    """Render families in order; those without samples are omitted."""
    return RenderedPage(
        [(each.metric, render_lines(each.metric, each.samples).encode()) for each in families if each.samples]
    )


def render_lines(metric: Metric, samples: Samples) -> str:
    """The sample lines of a family, the same in both formats.

    Whole numbers have no fraction; others have the shortest form that parses to the same value.
    """
    name = metric.name
    lines = "".join([f"{name}{labels} {value if value % 1 else int(value)}\n" for labels, value in samples])
    if not isfinite(sum(map(_VALUE, samples))):
        for python, prometheus in _SPECIAL:
            lines = lines.replace(python, prometheus)  # only a value precedes a line end: in labels it is escaped
    return lines


_VALUE = itemgetter(1)
_SPECIAL = ((" inf\n", " +Inf\n"), (" -inf\n", " -Inf\n"), (" nan\n", " NaN\n"))


def render_text_header(metric: Metric) -> str:
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    kind = MetricType.GAUGE if metric.kind is MetricType.CREATED else metric.kind
    return f"# HELP {metric.name} {help_text}\n# TYPE {metric.name} {kind}\n"


def render_openmetrics_header(metric: Metric) -> str:
    """OpenMetrics requires counters to end in `_total`; a counter with another name has the type unknown: Prometheus
    prefers OpenMetrics, and DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION must keep its name for every user. A time of creation
    must follow the counter or histogram that it belongs to, without a header of its own."""
    if metric.kind is MetricType.CREATED:
        return ""
    name, kind = metric.name, metric.kind.value
    if metric.kind is MetricType.COUNTER:
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    elif metric.kind is MetricType.UNTYPED:
        kind = "unknown"
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


class SampleRows:
    """Samples of several metrics with the same labels, written row by row."""

    def __init__(self, columns: Sequence[Samples]) -> None:
        self._appends = [column.append for column in columns]

    def write(self, labels: str, *values: float | None) -> None:
        """Write one value per metric. `None` is unknown and writes no sample."""
        for append, value in zip(self._appends, values, strict=True):
            if value is not None:
                append((labels, value))


class FamilyBuilder:
    """Collects samples by metric; families keep the order of first use."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def rows(self, *metrics: Metric) -> SampleRows:
        """A writer for rows of these metrics."""
        return SampleRows([self.column(metric) for metric in metrics])

    def column(self, metric: Metric) -> Samples:
        return self._families.setdefault(metric.name, Family(metric, [])).samples

    def families(self) -> list[Family]:
        return list(self._families.values())
