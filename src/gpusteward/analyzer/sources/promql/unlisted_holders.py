"""Holders that the presence series do not name now: another series of theirs does, or they have ended.

Exporters and their targets differ: one has no used memory, another labels only some metrics with the pod. The other
metrics are asked for such holders in every cycle, but only if there may be any: rows with samples in the window, or of
the last cycle, that are not present. Most of them have just ended.

A GPU without a holder may name the exporter's own pod: that pod holds nothing (`find_exporters`).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_vector
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, Query, holder_matchers, plan_presence
from gpusteward.analyzer.sources.usage.label_mapping import LabelMapping, is_exporter_name
from gpusteward.analyzer.sources.usage.quantities import PRESENCE_NOW, PRESENCE_TIMES, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import QueryResults
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, match_any, write_selector
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

MAX_ENDED = 5000
"""Holders that ended within one window and whose time is read; 50 queries."""
MAX_SELECTED = 1000
"""Holders that are asked for by the uuid of their device; more of them are searched in whole metrics."""
UUIDS_PER_QUERY = 200
"""8 KB of text."""
_TIMES_PER_QUERY = 100
"""Devices whose samples are read: scraped every 5 s, 2 MB of text."""


def can_have_unlisted(detected: DetectedScheme, results: QueryResults) -> bool:
    """gpusteward's agent names every holder, and reports processes of others too. While the list of current holders
    could not be read, nothing can be said about one of them."""
    return not detected.scheme.lists_allocations and PRESENCE_NOW not in results.failures


def select_by_uuid(detected: DetectedScheme, condition: Matchers, uuids: Collection[str]) -> Iterator[Query]:
    """All metrics of these devices, with a holder or without."""
    matchers = holder_matchers((*condition, *detected.matchers))
    listed = {query.metric for query in plan_presence(detected, matchers)}
    others = sorted({metric.name for metric in detected.holder.metrics} - listed)
    found = sorted(set(uuids))
    label = detected.holder.mapping.uuid
    for presence in list(plan_presence(detected, matchers))[:1] if others and label else ():
        for start in range(0, len(found), UUIDS_PER_QUERY):
            own = _match_devices(detected.holder.mapping, found[start : start + UUIDS_PER_QUERY])
            yield replace(presence, metric="", matchers=(*matchers, match_any("__name__", others), own))


def select_ended(
    detected: DetectedScheme, condition: Matchers, uuids: Collection[str], *, by_core: bool
) -> Iterator[Query]:
    """When the holders of these devices were seen: by the presence series, or by those of the core."""
    matchers = holder_matchers((*condition, *detected.matchers))
    label = detected.holder.mapping.uuid
    queries = [replace(each, key=PRESENCE_TIMES) for each in plan_presence(detected, matchers)] if label else []
    if by_core:
        # None of the agent's: it names every holder, and reports the use of others too.
        listed = {query.metric for query in queries}
        cores = detected.holder.list_metrics(Quantity.CORE, Quantity.ENGINE)
        names = [] if detected.scheme.lists_allocations else cores
        queries = [replace(each, metric=name) for each in queries[:1] for name in names if name not in listed]
    found = sorted(set(uuids))
    for query in queries:
        for start in range(0, len(found), _TIMES_PER_QUERY):
            own = _match_devices(detected.holder.mapping, found[start : start + _TIMES_PER_QUERY])
            yield replace(query, matchers=(*query.matchers, own))


def _match_devices(mapping: LabelMapping, uuids: Collection[str]) -> Matcher:
    """Where series have no UUID: all GPUs of their nodes."""
    if not mapping.lacks_uuid:
        return match_any(mapping.uuid, uuids)
    return match_any(mapping.uuid.partition(",")[0], sorted({uuid.rpartition("/")[0] for uuid in uuids}))


def select_all(
    detected: DetectedScheme, condition: Matchers, results: QueryResults, rows: Sequence[int], tried: set[Quantity]
) -> Iterator[Query]:
    """The metrics of the quantity that most of these holders have, without what the presence series list."""
    matchers = holder_matchers((*condition, *detected.matchers))
    presence = tuple(plan_presence(detected, matchers))
    listed = {query.metric for query in presence}
    quantity = _find_most_common(results, rows, tried)
    for metric in detected.holder.holder_metrics if quantity else ():
        if metric.quantity is quantity and metric.name not in listed:
            yield replace(presence[0], metric=metric.name, matchers=matchers, other_than=presence)
    tried |= {quantity} if quantity else set()


def _find_most_common(results: QueryResults, rows: Sequence[int], tried: Collection[Quantity]) -> Quantity | None:
    counts = Counter[Quantity]()
    for key in results.list_keys():
        if key.level is Level.HOLDER and key.quantity not in tried:
            known = int(np.isfinite(results.column(*key)[rows]).sum())
            counts[key.quantity] = max(counts[key.quantity], known)
    return next((quantity for quantity, known in counts.most_common(1) if known), None)


def find_exporters(engine: Engine, detected: DetectedScheme, results: QueryResults, at: float) -> set[int]:
    """Where the labels of the holder may be those of the target, a GPU without a holder names the exporter."""
    mapping = detected.holder.mapping
    jobs = sorted({details.job for details in results.present.values()} - {""})
    if not mapping.pod or (mapping.job and not jobs):
        return set()
    of_jobs = (match_any(mapping.job, jobs),) if mapping.job else ()
    try:
        scraped = _list_scraped(engine, mapping, of_jobs, at)
        rows = _select_pods(results, scraped)
        # Without `up` of their targets, the usual name of an exporter's pod has to do.
        is_sought = not rows and detected.scheme.names_holder
        keys = results.holders.keys if is_sought else ()
        by_name = {row for row, key in enumerate(keys) if is_exporter_name(key.pod)}
        names = sorted({results.holders.keys[row].pod for row in rows or by_name})
        if not names or not (metric := detected.holder.main_metric):
            return rows
        # A holder may be scraped itself, by the same job: only an exporter has the address of series that name it.
        is_few = len(names) <= UUIDS_PER_QUERY
        named = match_any(mapping.pod, names) if is_few else Matcher(mapping.pod, "!=", "")
        series = write_selector(metric.name, (*of_jobs, named))
        own = _list_scraped(engine, mapping, of_jobs, at, only=f" and on (instance, {mapping.pod}) {series}")
        # Are there no exporters, or do the series have other addresses than the targets?
        if not own and (mapping.job or by_name):
            addressed = engine.query(f"count({series} and on (instance) {write_selector('up', of_jobs)})", at)
            return set() if len(decode_vector(addressed)) else rows or by_name
    except SourceError as error:
        log.warning("exporters_not_found", reason=error)
        return set()
    return _select_pods(results, own)


def _list_scraped(
    engine: Engine, mapping: LabelMapping, matchers: Matchers, at: float, *, only: str = ""
) -> set[tuple[str, str]]:
    """Namespace and name of pods that are scraped. A target may have no such label for its namespace."""
    labels = ", ".join(filter(None, (mapping.namespace, mapping.pod)))
    targets = write_selector("up", (*matchers, Matcher(mapping.pod, "!=", "")))
    found = engine.query_vector(f"group by ({labels}) ({targets}{only})", at)
    return {(one.get(mapping.namespace, ""), one.get(mapping.pod, "")) for one, _ in found.rows()}


def _select_pods(results: QueryResults, pods: set[tuple[str, str]]) -> set[int]:
    """The rows whose holder is one of these pods, which may have no namespace."""
    keys = results.holders.keys
    return {row for row, key in enumerate(keys) if not pods.isdisjoint({(key.namespace, key.pod), ("", key.pod)})}
