"""What pods run, from the pages of their agents: read anew when somebody looks, so nothing of it is kept."""

from collections.abc import Collection, Iterator
from itertools import chain, islice

from gpusteward.analyzer.sources.pod_processes import (
    METRIC_NAMES,
    HolderLabels,
    Pod,
    PodProcesses,
    ProcessSample,
    collect_processes,
)
from gpusteward.analyzer.sources.scrape.lines import Faults, read_stranger, read_value
from gpusteward.analyzer.sources.scrape.scrape_loop import Rounds
from gpusteward.analyzer.sources.scrape.store import Store
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme

_NAMES = frozenset(name.encode() for name in METRIC_NAMES)


def read_running(store: Store, rounds: Rounds, pods: Collection[Pod], at: float) -> PodProcesses:
    """Raises SourceError if none of the agents answers."""
    limit = store.shape.target_series_limit
    told = rounds.read_now(_find_targets(store, pods), lambda page: list(islice(_read(page, pods, at), limit)))
    return collect_processes(chain.from_iterable(told), pods, HolderLabels())


def _find_targets(store: Store, pods: Collection[Pod]) -> list[str]:
    """Whoever speaks of these pods."""
    with store.read_records() as (clerk, records):
        keys = clerk.holders[MetricScheme.NATIVE].keys
        holders = frozenset(row for row, key in enumerate(keys) if Pod(key.namespace, key.pod) in pods)
        return [target for target, record in records.items() if record.roll.knows_any(holders)]


def _read(page: bytes, pods: Collection[Pod], at: float) -> Iterator[ProcessSample]:
    """Of these pods. What cannot be read is told at every scrape, and not once more here."""
    faults = Faults()
    for line in page.split(b"\n")[:-1]:  # what stands behind the last newline is no whole line
        if line[: line.find(b"{")] not in _NAMES:
            continue
        found = read_stranger(line, faults=faults)
        if found is None or Pod(found.labels.get("namespace", ""), found.labels.get("pod", "")) not in pods:
            continue
        value = read_value(line, found.end, faults=faults, at=at)
        if value is not None:
            yield ProcessSample(found.name.decode(), found.labels, value)
