"""What pods run, from the series of gpusteward's agents: one question, when somebody looks."""

from collections.abc import Collection, Iterable, Iterator

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import Vector, decode_labels, decode_vector
from gpusteward.analyzer.sources.pod_processes import NAMES, HolderLabels, Pod, Running, Sample, gather
from gpusteward.analyzer.sources.promql.matchers import match_any, write_selector
from gpusteward.analyzer.sources.promql.plan import Found
from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.label_mapping import Spelling


def read_running(engine: Engine, found: Iterable[Found], pods: Collection[Pod], at: float) -> Running:
    """Where no agent of ours is, nobody tells. Raises SourceError."""
    spellings = [one.holder.spelling for one in found if one.dialect is Dialect.NATIVE]
    told = [_read_spelled(engine, spelling, pods, at) for spelling in spellings] if pods else []
    processes = [process for each in told for process in each.processes]
    return Running(processes, frozenset(pod for each in told for pod in each.told))


def _read_spelled(engine: Engine, spelling: Spelling, pods: Collection[Pod], at: float) -> Running:
    names = HolderLabels(spelling.namespace, spelling.pod, spelling.container)
    return gather(_read(decode_vector(engine.query(_write(pods, names), at))), pods, names)


def _write(pods: Collection[Pod], names: HolderLabels) -> str:
    matchers = (
        match_any("__name__", sorted(NAMES)),
        match_any(names.namespace, sorted({pod.namespace for pod in pods})),
        match_any(names.pod, sorted({pod.name for pod in pods})),
    )
    return write_selector("", matchers)


def _read(vector: Vector) -> Iterator[Sample]:
    for text, value in zip(vector.labels, vector.values.tolist(), strict=True):
        labels = decode_labels(text)
        yield labels.get("__name__", ""), labels, value
