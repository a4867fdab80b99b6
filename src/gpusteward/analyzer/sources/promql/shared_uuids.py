"""Nodes on which one UUID stands for several GPUs: cloned virtual GPUs, or a label that relabeling made constant. The
GPUs of these nodes are identified by node and index; all others keep their UUIDs."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_vector
from gpusteward.analyzer.sources.promql.discovery import read_labels
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup, device_matchers
from gpusteward.analyzer.sources.promql.site_checks import choose_metric
from gpusteward.analyzer.sources.usage.findings import list_names
from gpusteward.analyzer.sources.usage.label_mapping import IDS_ON_NODE
from gpusteward.analyzer.sources.usage.partial_tables import PartialTable
from gpusteward.analyzer.sources.usage.quantities import MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, match_any, write_selector
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors

log = Log(__name__)

MAX_NODES = 50
"""Nodes that are named in every query. Where there are more, all GPUs of the scheme are identified that way."""

NodeLabel = tuple[str, str]  # name of the label, and the node


class SharedUuids:
    """Finds these nodes after each discovery, and keeps them while they do not report."""

    def __init__(self, engine: Engine, condition: Matchers) -> None:
        self._engine, self._condition = engine, condition
        self._nodes: dict[Hashable, set[NodeLabel]] = {}  # by key of the scheme, as it was detected

    def divide(self, schemes: Iterable[DetectedScheme], at: float) -> tuple[DetectedScheme, ...]:
        """The schemes with such nodes in parts of their own. One query for each scheme; raises nothing."""
        parts: list[DetectedScheme] = []
        for detected in schemes:
            known = self._nodes.get(detected.key, set())
            place = ""
            try:
                if place := self._find_place(detected, at):
                    known = self._find(detected, place, known, at)
            except SourceError as error:
                log.warning("uuids_not_compared", scheme=detected.scheme, reason=error)
            self._nodes[detected.key] = known
            parts += _divide(detected, known, place or detected.holder.mapping.gpu)
        return tuple(parts)

    def describe(self, schemes: Collection[DetectedScheme]) -> Message | None:
        """Which nodes; None: there are none."""
        keys = {(*each.detected_key, "") for each in schemes}
        nodes = {node for key in keys for _, node in self._nodes.get(key, ())}
        labels = sorted({each.identity.replace(",", ", ") for each in schemes if each.identity})
        if not nodes:
            return None
        return source_errors.SHARED_UUID.fill(nodes=list_names(nodes), labels=" / ".join(labels))

    def leave_out(
        self,
        schemes: Sequence[DetectedScheme],
        tables: Sequence[PartialTable],
        chosen: Sequence[Collection[int]],
    ) -> list[Sequence[int]]:
        """Without the rows that these nodes had before they became parts of their own."""
        kept: list[Sequence[int]] = []
        for detected, table, rows in zip(schemes, tables, chosen, strict=True):
            nodes = {node for _, node in self._nodes.get(detected.key, ())}
            kept.append([row for row in rows if table.allocations[row].node not in nodes] if nodes else [*rows])
        return kept

    def _find_place(self, detected: DetectedScheme, at: float) -> str:
        """The label of a GPU's place on its node; empty: there is none, or no UUID to compare."""
        mapping = detected.holder.mapping
        if detected.scheme is MetricScheme.HAMI or not mapping.uuid or mapping.lacks_uuid or not mapping.node:
            return ""
        if mapping.gpu:
            return mapping.gpu
        labels = read_labels(self._engine, detected.holder.metrics, detected.matchers, at)
        return next((name for name in IDS_ON_NODE if name in labels), "")

    def _find(self, detected: DetectedScheme, place: str, known: set[NodeLabel], at: float) -> set[NodeLabel]:
        """Only samples of the same scrape are compared: after a restart of the node a GPU may have another index, and
        engines return its former series for five minutes. Raises SourceError."""
        group = detected.holder if detected.scheme is MetricScheme.DCGM else detected.device
        if group is None:
            return known
        mapping, found = group.mapping, set[NodeLabel]()
        nodes = [mapping.node, *(names.node for names in group.fallbacks if names.node)]
        for metric in choose_metric(group, detected.scheme):
            matchers = (*device_matchers((*self._condition, *detected.matchers)), Matcher(mapping.uuid, "!=", ""))
            device = ", ".join(filter(None, (*nodes, mapping.uuid, mapping.instance, mapping.cluster)))
            times = f"timestamp({write_selector(metric, matchers)})"
            newest = f"max by ({device}, {place}) ({times}) == on ({device}) group_left () max by ({device}) ({times})"
            vector = decode_vector(self._engine.query(f"count by ({device}) ({newest}) > 1", at))
            for labels in map(decode_labels, vector.labels):
                found.update([(name, labels[name]) for name in nodes if labels.get(name)][:1])
            for label in {name for name, _ in known - found}:
                ours = (*matchers, match_any(label, sorted(node for name, node in known - found if name == label)))
                vector = decode_vector(self._engine.query(f"group by ({label}) ({write_selector(metric, ours)})", at))
                reporting = {(label, decode_labels(text).get(label, "")) for text in vector.labels}
                known = {each for each in known if each in found or each not in reporting}
        return found | known


def _divide(detected: DetectedScheme, nodes: Collection[NodeLabel], place: str) -> Iterator[DetectedScheme]:
    """The nodes that are not listed first."""
    if not nodes or not place:
        yield detected
        return
    if len(nodes) > MAX_NODES:
        yield _identify(detected, f"{detected.holder.mapping.node},{place}", ())
        return
    by_label: dict[str, list[str]] = {}
    for label, node in sorted(nodes):
        by_label.setdefault(label, []).append(node)
    listed = [match_any(label, found) for label, found in by_label.items()]
    others = tuple(replace(each, operator="!~") for each in listed)
    yield _identify(detected, "", others)
    for each in listed:
        yield _identify(detected, f"{each.label},{place}", (each,))


def _identify(detected: DetectedScheme, identity: str, only: Matchers) -> DetectedScheme:
    def change(group: SeriesGroup) -> SeriesGroup:
        mapping = replace(group.mapping, uuid=identity or group.mapping.uuid)
        return replace(group, mapping=mapping, matchers=(*group.matchers, *only))

    device = change(detected.device) if detected.device else None
    return replace(detected, holder=change(detected.holder), device=device, identity=identity)
