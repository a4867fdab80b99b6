"""Recording rules: the engine computes the windows continuously, and the analyzer reads the last recorded value.

This module writes the rules file, and checks in every cycle that the rules are still evaluated: an engine returns a
recorded value for five minutes, and a window that ended earlier would miss GPUs that have just started to work.

`python -m gpusteward.analyzer.sources.promql.recording_rules` prints the file, kept in deploy/chart/gpusteward/files/
rules/recording.yaml; for another window than ten minutes add `--window-min 30`, which must be the analyzer's
`prometheus.time_window_min`.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.expressions import RULE_INTERVAL_SECONDS, Window, rule_name, write_duration
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.quantities import CORE_AGGREGATIONS, Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.schemes import SCHEMES
from gpusteward.core.errors import SourceError
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
    lines = [f"{_HEAD}groups:\n"]
    for scheme in SCHEMES:
        interval = write_duration(RULE_INTERVAL_SECONDS)
        lines.append(f"  - name: gpusteward-{scheme}\n    interval: {interval}\n    rules:\n")
        found = scheme.list_metrics(scheme.names)
        # Engine activity is the core of a MIG instance in DCGM, so it needs all aggregations of a core.
        engines = [one for one in found if one.quantity is Quantity.ENGINE and one.level is Level.HOLDER]
        cores = (replace(one, aggregations=CORE_AGGREGATIONS) for one in engines)
        pairs = ((metric.name, aggregation) for metric in (*found, *cores) for aggregation in metric.aggregations)
        for metric, aggregation in dict.fromkeys(pairs):
            if aggregation is not Aggregation.LAST:  # the last value needs no rule
                lines.append(f"      - record: {rule_name(metric, aggregation, window_seconds)}\n")
                lines.append(f"        expr: {Window(window_seconds).aggregate(metric, (), aggregation)}\n")
    return "".join(lines)


class RuleFreshness:
    """Checks when the rules of each metric scheme were last evaluated; logs when that changes."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self.problem = ""

    def choose_rules(
        self, engine: Engine, rules: frozenset[str], schemes: Iterable[DetectedScheme], at: float
    ) -> frozenset[str]:
        """The rules, or none of them if those of one scheme are late: then windows are computed from samples."""
        samples: dict[tuple[str, str], None] = {}  # one rule of each scheme: they are evaluated one after the other
        for detected in schemes:
            metrics = [metric for group in detected.groups for metric in group.metrics]
            names = (
                rule_name(metric.name, aggregation, self._window_seconds)
                for metric in sorted(metrics, key=lambda metric: metric.quantity is not Quantity.CORE)
                for aggregation in metric.aggregations
            )
            if rule := next((name for name in names if name in rules), ""):
                samples[rule, detected.holder.mapping.cluster] = None
        problem = next(filter(None, (_find_problem(engine, rule, cluster, at) for rule, cluster in samples)), "")
        if problem and not self.problem:
            log.warning("recording_rules_late", reason=problem)
        elif self.problem and not problem:
            log.info("recording_rules_in_time")
        self.problem = problem
        return frozenset() if problem else rules


def _find_problem(engine: Engine, rule: str, cluster: str, at: float) -> str:
    """`cluster`: the label of the cluster; each may evaluate its own rules, and the latest counts."""
    by = f" by ({cluster})" if cluster else ""
    try:
        vector = engine.query_vector(f"min(max{by} (timestamp({rule})))", at)
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
