"""What pods run, from the pages of their agents: read anew when somebody looks, so nothing of it is kept."""

from collections.abc import Collection, Iterator
from itertools import islice

from gpusteward.analyzer.read.processes import NAMES, HolderLabels, Pod, Running, Sample, gather
from gpusteward.analyzer.read.prometheus.dialects import Dialect
from gpusteward.analyzer.read.scrape.lines import Faults, read_stranger, read_value
from gpusteward.analyzer.read.scrape.rounds import Rounds
from gpusteward.analyzer.read.scrape.store import Store

_NAMES = frozenset(name.encode() for name in NAMES)
_NAMESPACE, _POD = 2, 3  # of a holder's key


def read_running(store: Store, rounds: Rounds, pods: Collection[Pod], at: float) -> Running:
    """Raises SourceError if none of the agents answers."""
    limit = store.shape.target_series_limit
    pages = rounds.fetch_now(_find_targets(store, pods))
    samples = (sample for page in pages for sample in islice(_read(page, at), limit))
    return gather(samples, pods, HolderLabels())


def _find_targets(store: Store, pods: Collection[Pod]) -> list[str]:
    """Whoever speaks of these pods."""
    with store.read_records() as (clerk, records):
        keys = clerk.holders[Dialect.NATIVE].all
        holders = frozenset(row for row, key in enumerate(keys) if Pod(key[_NAMESPACE], key[_POD]) in pods)
        return [target for target, record in records.items() if record.roll.knows_any(holders)]


def _read(page: bytes, at: float) -> Iterator[Sample]:
    """What cannot be read is told at every scrape, and not once more here."""
    faults = Faults()
    for line in page.split(b"\n"):
        if line[: line.find(b"{")] not in _NAMES:
            continue
        found = read_stranger(line, faults=faults)
        value = read_value(line, found.end, faults=faults, at=at) if found else None
        if found and value is not None:
            yield found.name.decode(), found.labels, value
