"""Recording rules: the engine computes the windows continuously, and the analyzer reads the last recorded value.

This module writes the rules file, and checks in every cycle that the rules are still evaluated: an engine returns a
recorded value for five minutes, and a window that ended earlier would miss GPUs that have just started to work.

`python -m gpusteward.analyzer.sources.promql.recording_rules` prints the file, kept in deploy/chart/gpusteward/files/
rules/recording.yaml; for another window than ten minutes add `--window-min 30`, which must be the analyzer's
`prometheus.time_window_min`.
"""

import argparse
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_vector
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.expressions import RULE_INTERVAL_SECONDS, Window, rule_name, write_duration
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.quantities import (
    CORE_AGGREGATIONS,
    HAMI_NAMES,
    Aggregation,
    Quantity,
    UsageMetric,
    dcgm_metrics,
    dcgm_names,
    hami_metrics,
    native_metrics,
)
from gpusteward.core.errors import SourceError
from gpusteward.core.metrics import METRICS
from gpusteward.logs import Log

log = Log(__name__)

MAX_AGE_SECONDS = 2.5 * RULE_INTERVAL_SECONDS
"""Two intervals, and half of one for an engine that writes late."""
DEFAULT_WINDOW_SECONDS = 600.0
_HEAD = """\
# Windows that gpusteward's analyzer reads instead of having them computed in every cycle.
# Written by `python -m gpusteward.analyzer.sources.promql.recording_rules`.
# Names carry the window (prometheus.time_window_min).
# Rules over metrics that a site does not have record nothing. All labels of the site are kept.
"""


def write_rules(window_seconds: float = DEFAULT_WINDOW_SECONDS) -> str:
    """The rules file for one window, as YAML."""
    groups = [
        ("native", native_metrics({metric.name for metric in METRICS})),
        ("hami", hami_metrics(HAMI_NAMES)),
        ("dcgm", _with_mig(dcgm_metrics(set(dcgm_names())))),
    ]
    body = "".join(_write_group(name, metrics, window_seconds) for name, metrics in groups)
    return f"{_HEAD}groups:\n{body}"


def _with_mig(metrics: tuple[UsageMetric, ...]) -> tuple[UsageMetric, ...]:
    """Engine activity is the core of a MIG instance, so it needs all aggregations of a core."""
    engines = (
        replace(metric, aggregations=CORE_AGGREGATIONS) for metric in metrics if metric.quantity is Quantity.ENGINE
    )
    return (*metrics, *engines)


def _write_group(name: str, metrics: tuple[UsageMetric, ...], window_seconds: float) -> str:
    rules = "".join(_write_rule(*rule, window_seconds) for rule in _list_rules(metrics))
    return f"  - name: gpusteward-{name}\n    interval: {write_duration(RULE_INTERVAL_SECONDS)}\n    rules:\n{rules}"


def _write_rule(metric: str, aggregation: Aggregation, window_seconds: float) -> str:
    record = rule_name(metric, aggregation, window_seconds)
    return f"      - record: {record}\n        expr: {Window(window_seconds).aggregate(metric, (), aggregation)}\n"


def _list_rules(metrics: tuple[UsageMetric, ...]) -> Iterator[tuple[str, Aggregation]]:
    """Each metric and aggregation once; the last value needs no rule."""
    pairs = [
        (metric.name, aggregation)
        for metric in metrics
        for aggregation in metric.aggregations
        if aggregation is not Aggregation.LAST
    ]
    return iter(dict.fromkeys(pairs))


class RuleFreshness:
    """Checks when the rules of each metric scheme were last evaluated; logs when that changes."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self.problem = ""

    def choose_rules(
        self, engine: Engine, rules: frozenset[str], schemes: Iterable[DetectedScheme], at: float
    ) -> frozenset[str]:
        """The rules, or none of them if those of one scheme are late: then windows are computed from samples."""
        pairs = [(self._choose_sample(rules, detected), detected.holder.mapping.cluster) for detected in schemes]
        samples = dict.fromkeys((rule, cluster) for rule, cluster in pairs if rule)
        problem = next(filter(None, (_find_problem(engine, rule, cluster, at) for rule, cluster in samples)), "")
        if problem and not self.problem:
            log.warning("recording_rules_late", reason=problem)
        elif self.problem and not problem:
            log.info("recording_rules_in_time")
        self.problem = problem
        return frozenset() if problem else rules

    def _choose_sample(self, rules: Collection[str], detected: DetectedScheme) -> str:
        """One rule of a scheme: they are one group, evaluated one after the other."""
        names = (
            rule_name(metric, aggregation, self._window_seconds) for metric, aggregation in _list_windows(detected)
        )
        return next((name for name in names if name in rules), "")


def _list_windows(detected: DetectedScheme) -> Iterator[tuple[str, Aggregation]]:
    """The core first: every holder has it."""
    metrics = [metric for group in detected.groups for metric in group.metrics]
    for metric in sorted(metrics, key=lambda metric: metric.quantity is not Quantity.CORE):
        yield from ((metric.name, aggregation) for aggregation in metric.aggregations)


def _find_problem(engine: Engine, rule: str, cluster: str, at: float) -> str:
    """`cluster`: the label of the cluster; each may evaluate its own rules, and the latest counts."""
    by = f" by ({cluster})" if cluster else ""
    try:
        vector = decode_vector(engine.query(f"min(max{by} (timestamp({rule})))", at))
    except SourceError as error:
        return f"the time of the last evaluation could not be read ({error}); windows are computed from samples"
    if len(vector) and at - vector.values[0] <= MAX_AGE_SECONDS:
        return ""
    when = f"{at - vector.values[0]:.0f} s ago" if len(vector) else "more than five minutes ago"
    return f"last recorded {when}; windows are computed from samples"


def main(arguments: Sequence[str] | None = None) -> str:
    """The rules file for these arguments. Exits for a window that the analyzer does not accept."""
    parser = argparse.ArgumentParser(description="Write the recording rules that gpusteward's analyzer reads.")
    parser.add_argument(
        "--window-min",
        type=_check_window,
        default=DEFAULT_WINDOW_SECONDS / 60,
        metavar="MINUTES",
        help="prometheus.time_window_min of the analyzer (default: %(default)g)",
    )
    return write_rules(parser.parse_args(arguments).window_min * 60)


def _check_window(text: str) -> float:
    """Raises ValueError, which argparse reports."""
    return PrometheusSettings(time_window_min=float(text)).time_window_min


if __name__ == "__main__":
    print(main(), end="")
