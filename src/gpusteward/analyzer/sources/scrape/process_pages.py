"""What pods run, from the pages of their agents: read anew when somebody looks, so nothing of it is kept."""

from collections.abc import Collection, Iterator
from itertools import chain, islice

from gpusteward.analyzer.sources.pod_processes import NAMES, HolderLabels, Pod, Running, Sample, gather
from gpusteward.analyzer.sources.scrape.lines import Faults, read_stranger, read_value
from gpusteward.analyzer.sources.scrape.scrape_loop import Rounds
from gpusteward.analyzer.sources.scrape.store import Store
from gpusteward.analyzer.sources.usage.dialects import Dialect

_NAMES = frozenset(name.encode() for name in NAMES)
_NAMESPACE, _POD = 2, 3  # of a holder's key


def read_running(store: Store, rounds: Rounds, pods: Collection[Pod], at: float) -> Running:
    """Raises SourceError if none of the agents answers."""
    limit = store.shape.target_series_limit
    told = rounds.read_now(_find_targets(store, pods), lambda page: list(islice(_read(page, pods, at), limit)))
    return gather(chain.from_iterable(told), pods, HolderLabels())


def _find_targets(store: Store, pods: Collection[Pod]) -> list[str]:
    """Whoever speaks of these pods."""
    with store.read_records() as (clerk, records):
        keys = clerk.holders[Dialect.NATIVE].all
        holders = frozenset(row for row, key in enumerate(keys) if Pod(key[_NAMESPACE], key[_POD]) in pods)
        return [target for target, record in records.items() if record.roll.knows_any(holders)]


def _read(page: bytes, pods: Collection[Pod], at: float) -> Iterator[Sample]:
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
            yield found.name.decode(), found.labels, value
