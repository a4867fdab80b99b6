"""One question as PromQL, and the names under which recording rules keep the answer."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpusteward.analyzer.sources.promql.matchers import Matcher, Matchers, write_selector
from gpusteward.analyzer.sources.usage.quantities import LAST_WORDS, LASTING, Asked, Fold, Level, Quantity

RULE_PREFIX = "gpusteward:"
RULE_INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Window:
    """How far back to look, and which windows recording rules keep already."""

    seconds: float
    rules: Collection[str] = ()

    def fold(self, metric: str, matchers: Iterable[Matcher], fold: Fold) -> str:
        """`avg_over_time(metric{...}[...])`, or what a rule keeps of it."""
        if fold is Fold.LAST:
            return write_selector(metric, matchers)
        kept = rule_name(metric, fold, self.seconds)
        if kept in self.rules:
            return write_selector(kept, matchers)
        return f"{fold}({write_selector(metric, matchers)}{write_range(self.seconds)})"


@dataclass(frozen=True, slots=True)
class Query:
    """One question for all GPUs at once."""

    asked: Asked
    metric: str
    scale: float
    by: tuple[str, ...]  # labels of the answer; the first ones are the key
    matchers: Matchers = ()

    @property
    def level(self) -> Level:
        return self.asked[0]

    @property
    def quantity(self) -> Quantity:
        return self.asked[1]

    @property
    def fold(self) -> Fold:
        return self.asked[2]

    @property
    def is_lasting(self) -> bool:
        """Whether the answer of an earlier cycle still holds."""
        return self.level is Level.DEVICE and self.fold is Fold.LAST and self.quantity in LASTING

    def write(self, window: Window, shard: Matchers = ()) -> str:
        """The largest of the series that stand for one key: an exporter that was restarted, or scraped twice, makes
        several. Of means and counts the largest is the careful choice: use is never understated, nor coverage added
        up of two halves that may be the same half twice."""
        matchers = (*self.matchers, *shard)
        inner = window.fold(self.metric, matchers, self.fold)
        if self.asked == LAST_WORDS:
            inner = f"{inner} unless {write_selector(self.metric, matchers)}"
        return f"max by ({', '.join(label for label in self.by if label)}) ({inner})"


def write_range(seconds: float) -> str:
    """A window open at its start, in every engine: Prometheus 2 would count a sample that lies right on it."""
    return f"[{round(seconds * 1000) - 1}ms]"


def write_duration(seconds: float) -> str:
    """`10m`, as people and rule names say it."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s".replace(".", "_")


def rule_name(metric: str, fold: Fold, seconds: float) -> str:
    """`gpusteward:DCGM_FI_DEV_GPU_UTIL:avg_over_time_10m`."""
    return f"{RULE_PREFIX}{metric}:{fold}_{write_duration(seconds)}"
