"""Metrics about the agent itself, independent of the enabled dialects."""

from collections.abc import Mapping

from gpusteward import __version__
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.core import metrics
from gpusteward.core.exposition import Family, FamilyBuilder, LabelCache
from gpusteward.core.metrics import Metric


def render_self_metrics(
    runner: CollectorRunner, *, node: str, cycles: int, reloads: Mapping[str, int], labels: LabelCache
) -> list[Family]:
    """Version, number of cycles, and errors, success and duration of every collector."""
    builder = FamilyBuilder()

    def write(metric: Metric, value: float, **more: str) -> None:
        builder.column(metric).append((labels.render((("node", node), *more.items())), value))

    builder.column(metrics.BUILD_INFO).append((labels.render((("version", __version__),)), 1))
    write(metrics.CYCLES, cycles)
    for name, count in sorted(runner.error_counts.items()):
        write(metrics.COLLECTOR_ERRORS, count, collector=name)
    failed = {failure.collector for failure in runner.failures}
    for name, seconds in sorted(runner.durations_seconds.items()):
        write(metrics.COLLECTOR_SUCCESS, int(name not in failed), collector=name)
        write(metrics.COLLECTOR_SECONDS, round(seconds, 6), collector=name)
    for result, count in sorted(reloads.items()):
        write(metrics.CONFIG_RELOADS, count, result=result)
    return builder.families()
