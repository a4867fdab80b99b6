"""The GPUs of a site: which series show all of them, how many there are, and what identifies them.

On some nodes one UUID stands for several GPUs: cloned virtual GPUs, or a label that relabeling made constant. The GPUs
of these nodes are identified by node and index; all others keep their UUIDs.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.promql.discovery import read_labels
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup, device_matchers
from gpusteward.analyzer.sources.usage.findings import list_names
from gpusteward.analyzer.sources.usage.label_mapping import IDS_ON_NODE, LabelMapping
from gpusteward.analyzer.sources.usage.partial_tables import PartialTable
from gpusteward.analyzer.sources.usage.quantities import SHOWS_GPUS, Quantity
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, find_label
from gpusteward.analyzer.sources.usage.schemes import MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, join_labels, match_any, write_selector
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages.errors import engine_errors, source_errors

log = Log(__name__)

Fleet = Mapping[NodeModel, int]

MAX_NODES = 50
"""Nodes that are named in every query. Where there are more, all GPUs of the scheme are identified that way."""

NodeLabel = tuple[str, str]  # name of the label, and the node


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """The series of one scheme that show all its GPUs, held or not."""

    group: SeriesGroup
    scheme: MetricScheme
    matchers: Matchers

    @property
    def mapping(self) -> LabelMapping:
        return self.group.mapping

    @property
    def metrics(self) -> list[str]:
        """What nearly every GPU has, most reliable first; none where the site has no such metric."""
        return self.group.list_metrics(*((Quantity.IDENTITY,) if self.scheme.lists_allocations else SHOWS_GPUS))

    @property
    def nodes(self) -> list[str]:
        """The labels that may name the node."""
        return [self.mapping.node, *(names.node for names in self.group.fallbacks)]

    @property
    def models(self) -> list[str]:
        own = "model" if self.scheme.lists_allocations else self.mapping.model
        return [own, *(names.model for names in self.group.fallbacks)]

    @property
    def has_ids(self) -> bool:
        """Whether GPUs have a UUID and the name of their node."""
        return bool(self.mapping.uuid and self.mapping.node) and not self.mapping.lacks_uuid

    def select(self, *more: Matcher) -> Iterator[str]:
        """The series of one metric."""
        yield from (write_selector(metric, (*self.matchers, *more)) for metric in self.metrics[:1])

    def find_place(self, labels: Mapping[str, str]) -> NodeModel:
        cluster = labels.get(self.mapping.cluster, "")
        return NodeModel(find_label(labels, self.nodes), find_label(labels, self.models), cluster)


def list_gpu_series(schemes: Iterable[DetectedScheme], condition: Matchers) -> Iterator[GpuSeries]:
    """HAMi's own metrics do not include GPUs without a holder."""
    for detected in schemes:
        group = detected.holder if detected.scheme.names_holder else detected.device
        if group is not None:
            yield GpuSeries(group, detected.scheme, device_matchers((*condition, *group.matchers)))


def count_fleet(engine: Engine, series: Iterable[GpuSeries], at: float) -> Fleet:
    """All GPUs, held or not, by node and model; each node from its most trusted scheme. Raises SourceError."""
    fleet: Counter[NodeModel] = Counter()
    for one in series:
        counted = {(key.cluster, key.node) for key in fleet}
        counts = _count_gpus(engine, one, at)
        fleet.update({key: count for key, count in counts.items() if (key.cluster, key.node) not in counted})
    return fleet


def _count_gpus(engine: Engine, series: GpuSeries, at: float) -> Counter[NodeModel]:
    """Each device once, however many series, exporters and MIG instances it has. For each metric, the devices that the
    metrics before do not show: one query over all would select too much. Raises SourceError."""
    mapping = series.mapping
    # The agent reports a MIG instance under its own uuid, beside its GPU; DCGM under the uuid of the GPU.
    is_own = series.scheme.lists_allocations
    whole = (Matcher(mapping.instance, "=", ""),) if is_own and mapping.instance else ()
    by = join_labels(*series.nodes, *series.models, mapping.cluster)
    counts: Counter[NodeModel] = Counter()
    shown = ""
    for number, metric in enumerate(series.metrics):
        selector = write_selector(metric, (*series.matchers, *whole))
        devices = f"group by ({join_labels(by, mapping.uuid)}) ({selector}{shown})"
        shown += f" unless on ({join_labels(mapping.uuid, mapping.cluster)}) {selector}"
        try:
            vector = engine.query_vector(f"count by ({by}) ({devices})", at)
        except SourceError:
            if not number:
                raise
            continue  # GPUs that only this metric shows; they count if they are held
        if vector.missing_stores:
            raise SourceError(engine_errors.PARTIAL_RESPONSE, reason=", ".join(sorted(vector.missing_stores)))
        for labels, count in vector.rows():
            counts[series.find_place(labels)] += int(count)
    return counts


def count_once(fleet: Fleet, gpus: Mapping[DeviceKey, Sequence[NodeModel]]) -> Fleet:
    """The fleet with each of these GPUs on its first node only."""
    counts = Counter(dict(fleet))
    for places in gpus.values():
        first = min(places)
        counts.subtract(place for place in places if place.node != first.node)
    return {place: count for place, count in counts.items() if count > 0} if gpus else fleet


def query_labels(engine: Engine, expression: str, at: float) -> list[dict[str, str]]:
    """The labels of the result. Raises SourceError."""
    return [labels for labels, _ in engine.query_vector(expression, at).rows()]


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
        if detected.scheme.devices or not mapping.uuid or mapping.lacks_uuid or not mapping.node:
            return ""
        if mapping.gpu:
            return mapping.gpu
        labels = read_labels(self._engine, detected.holder.metrics, detected.matchers, at)
        return next((name for name in IDS_ON_NODE if name in labels), "")

    def _find(self, detected: DetectedScheme, place: str, known: set[NodeLabel], at: float) -> set[NodeLabel]:
        """Only samples of the same scrape are compared: after a restart of the node a GPU may have another index, and
        engines return its former series for five minutes. Raises SourceError."""
        found = set[NodeLabel]()
        for series in list_gpu_series([detected], self._condition):
            mapping, nodes = series.mapping, list(filter(None, series.nodes))
            matchers = (*device_matchers((*self._condition, *detected.matchers)), Matcher(mapping.uuid, "!=", ""))
            device = join_labels(*nodes, mapping.uuid, mapping.instance, mapping.cluster)
            for metric in series.metrics[:1]:
                times = f"timestamp({write_selector(metric, matchers)})"
                newest = (
                    f"max by ({device}, {place}) ({times}) == on ({device}) group_left () max by ({device}) ({times})"
                )
                for labels in query_labels(self._engine, f"count by ({device}) ({newest}) > 1", at):
                    found.update([(name, labels[name]) for name in nodes if labels.get(name)][:1])
                for label in {name for name, _ in known - found}:
                    ours = (*matchers, match_any(label, sorted(node for name, node in known - found if name == label)))
                    reported = f"group by ({label}) ({write_selector(metric, ours)})"
                    reporting = {(label, one.get(label, "")) for one in query_labels(self._engine, reported, at)}
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
