"""What a few small queries show of the whole site of one engine: how many GPUs it has, names that two machines share,
exporters that cannot be scraped or report nothing any more, whether any series names a holder, why there is no GPU.

GPUs are counted and compared when the number of devices that report changes (`SiteChecks.check`), which is rare; what
was found then is said in every cycle until the next count. What could not be read keeps the earlier result.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_names
from gpusteward.analyzer.sources.promql.discovery import read_labels, read_metric_names
from gpusteward.analyzer.sources.promql.fleet import (
    Fleet,
    GpuSeries,
    count_fleet,
    count_once,
    list_gpu_series,
    query_labels,
)
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.findings import NO_GPU_SERIES, list_names
from gpusteward.analyzer.sources.usage.label_mapping import is_exporter_name
from gpusteward.analyzer.sources.usage.quantities import SHOWS_GPUS, Quantity
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, ScrapeTarget, find_label
from gpusteward.analyzer.sources.usage.schemes import SCHEMES
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, join_labels, match_any, write_selector
from gpusteward.analyzer.tables import NodeModel, SiteFinding, UsageTable
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log
from gpusteward.messages import data_health as messages
from gpusteward.messages import unknown_reasons
from gpusteward.messages.errors import source_errors

log = Log(__name__)

T = TypeVar("T")
DAY_SECONDS = 86_400.0
MAX_TARGETS = 200
"""Targets that are down and are looked up; beyond that their number says enough."""
MAX_NODES = 50
"""Nodes of the same name in two clusters whose GPUs are compared."""
MAX_JOBS = 5


class SiteChecks:
    """The checks of one engine, and what they found last. Raises nothing."""

    def __init__(self, engine: Engine, condition: Matchers) -> None:
        self._engine, self._condition = engine, condition
        self._fleet: Fleet = {}
        self.fleet_error: Message | None = None  # why the GPUs could not be counted last
        self.gpu_jobs: set[str] = set()  # scrape jobs that have had GPU metrics
        self._devices: list[int] | None = None  # that reported when the GPUs were counted, by scheme
        self._on_two_nodes: Mapping[DeviceKey, Sequence[NodeModel]] = {}  # GPUs that two nodes report
        self._in_two_clusters: Mapping[str, Collection[str]] = {}  # uuid -> clusters
        self._shared_names: Mapping[str, Sequence[str]] = {}  # nodes with two GPUs of one index
        self._without_uuid: Collection[str] = ()  # nodes whose series lack the label that others have
        self._without_node = 0  # GPUs whose series do not name their node
        self._silent: Sequence[str] = ()  # exporters that are up and report no GPU any more

    def expire(self) -> None:
        """Count again in the next cycle."""
        self._devices = None

    def check(self, table: UsageTable, schemes: Sequence[DetectedScheme], devices: list[int]) -> UsageTable:
        """The table with all GPUs, which are counted and compared again if another number of devices reports now."""
        is_due = devices != self._devices
        if is_due:
            self._count(schemes, table.at)
            self._devices = None if self.fleet_error else devices
        table = replace(table, fleet=self._fleet)
        if is_due:
            series = list_gpu_series(schemes, self._condition)
            self._in_two_clusters = _keep_if_failed(
                self._in_two_clusters, "clusters", lambda: _find_gpus_in_two_clusters(self._engine, series, table)
            )
            self._without_node = _count_without_node(table)
        if is_due or self._silent:
            self._silent = _keep_if_failed(
                self._silent,
                "silent targets",
                lambda: _list_silent_targets(self._engine, schemes, self.gpu_jobs, table.at),
            )
        return table

    def _count(self, schemes: Sequence[DetectedScheme], at: float) -> None:
        series, self.fleet_error = list(list_gpu_series(schemes, self._condition)), None
        try:
            fleet = count_fleet(self._engine, series, at)
            self._on_two_nodes = _find_gpus_on_two_nodes(self._engine, series, at)
            self._without_uuid = _list_without_uuid(self._engine, series, at)
            self._shared_names = _find_shared_names(self._engine, series, at)
            self._fleet = count_once(fleet, self._on_two_nodes)
        except SourceError as error:
            log.warning("fleet_not_counted", reason=error)
            self.fleet_error = error.as_message()

    def list_failures(self, table: UsageTable, schemes: Sequence[DetectedScheme]) -> Iterator[tuple[str, Message]]:
        """What is wrong with the labels of the site, by name."""
        if identity := self._explain_identity(schemes):
            yield "identity", identity
        if self._in_two_clusters:
            yield "cluster labels", _describe_two_clusters(self._in_two_clusters)
        if self._without_node:
            yield "nodes", source_errors.NO_NODE_LABEL.fill(count=self._without_node)
        if len(table) and (unnamed := _find_unnamed_namespaces(schemes)):
            yield "namespaces", source_errors.NO_NAMESPACE_LABEL.fill(pod=unnamed)

    def mark_two_nodes(self, table: UsageTable) -> UsageTable:
        """Which node has the GPU is not known, and so neither who holds it."""
        doubtful = {
            row: unknown_reasons.REPORTED_BY_TWO_NODES
            for row, each in enumerate(table.allocations if self._on_two_nodes else ())
            if DeviceKey(each.gpu_uuid, "", each.cluster) in self._on_two_nodes
        }
        return replace(table, unknown={**table.unknown, **doubtful}) if doubtful else table

    def find_findings(
        self, table: UsageTable, schemes: Sequence[DetectedScheme], *, is_unheld_work: bool
    ) -> Iterator[SiteFinding]:
        """What is wrong with the exporters and the machines of the site. `is_unheld_work`: devices without a holder
        work, which says more than that no holder is named."""
        down = _keep_if_failed(
            list[str](), "targets", lambda: _list_down_targets(self._engine, schemes, self.gpu_jobs, table.at)
        )
        yield from _name("exporters-down", messages.EXPORTERS_DOWN, down)
        yield from _name("exporters-silent", messages.EXPORTERS_SILENT, self._silent)
        # Where nobody works, a site without any holder may be one whose exporters do not know pods.
        if not len(table) and table.fleet and not is_unheld_work:
            is_named = _keep_if_failed(True, "holders", lambda: _names_holders(self._engine, schemes, table.at))
            if not is_named:
                labels = ", ".join(sorted(self.list_labels(schemes, table.at))) or "-"
                yield SiteFinding("warning", "no-holder-named", messages.NO_HOLDER_NAMED.fill(labels=labels))
        yield from _name("two-gpus-one-index", messages.SHARED_NAMES, self._shared_names)
        if self._on_two_nodes:
            nodes = {place.node for places in self._on_two_nodes.values() for place in places}
            text = messages.GPU_ON_TWO_NODES.fill(count=len(self._on_two_nodes), names=list_names(nodes))
            yield SiteFinding("warning", "gpu-on-two-nodes", text)
        if not len(table) and not table.fleet:
            yield SiteFinding("info", NO_GPU_SERIES, _explain_no_gpus(self._engine, table.at))

    def list_labels(self, schemes: Sequence[DetectedScheme], at: float) -> Collection[str]:
        """Of all series that could name holders; asked only where that is in question."""
        found: set[str] = set()
        for detected in schemes:
            with suppress(SourceError):
                found |= read_labels(self._engine, detected.holder.metrics, detected.matchers, at)
        return found - {"__name__"}

    def _explain_identity(self, schemes: Sequence[DetectedScheme]) -> Message | None:
        """What identifies GPUs whose series have no UUID; None: all have one."""
        mappings = [detected.holder.mapping for detected in schemes if not detected.identity]
        if self._without_uuid:
            return source_errors.NO_UUID_ON_NODES.fill(nodes=list_names(self._without_uuid))
        if not all(detected.holder.mapping.uuid for detected in schemes):
            return source_errors.NO_IDENTITY
        labels = sorted({mapping.uuid.replace(",", ", ") for mapping in mappings if mapping.lacks_uuid})
        return source_errors.NO_UUID_LABEL.fill(labels=" / ".join(labels)) if labels else None


def _name(code: str, message: Message, names: Collection[str]) -> Iterator[SiteFinding]:
    """One finding about all of them."""
    if names:
        yield SiteFinding("warning", code, message.fill(count=len(names), names=list_names(names)))


def _keep_if_failed(before: T, what: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except SourceError as error:
        log.warning("site_not_checked", what=what, reason=error)
        return before


def _count_without_node(table: UsageTable) -> int:
    """By the fleet, or by holders where free GPUs are not counted."""
    counted = sum(gpus for key, gpus in table.fleet.items() if not key.node)
    held = {one.gpu_uuid for row, one in enumerate(table.allocations) if not one.node and row not in table.unknown}
    return max(counted, len(held))


def _find_gpus_on_two_nodes(engine: Engine, series: Iterable[GpuSeries], at: float) -> dict[DeviceKey, list[NodeModel]]:
    """Where two nodes report the same uuid: cloned machines, or one exporter under two names. Usually none is returned.
    Raises SourceError."""
    found: dict[DeviceKey, list[NodeModel]] = {}
    for one in series:
        device = join_labels(one.mapping.uuid, one.mapping.cluster)
        for selector in one.select() if one.has_ids else ():
            each = f"group by ({join_labels(*one.nodes, *one.models, device)}) ({selector})"
            several = f"count by ({device}) (group by ({join_labels(*one.nodes, device)}) ({selector})) > 1"
            for labels in query_labels(engine, f"{each} and on ({device}) ({several})", at):
                place = one.find_place(labels)
                key = DeviceKey(labels.get(one.mapping.uuid, ""), "", place.cluster)
                if key.uuid and place not in found.setdefault(key, []):
                    found[key].append(place)
    return {key: places for key, places in found.items() if len({place.node for place in places}) > 1}


def _list_without_uuid(engine: Engine, series: Iterable[GpuSeries], at: float) -> set[str]:
    """Nodes whose series lack the label with the UUID, where others have it. Usually none. Raises SourceError."""
    return {
        find_label(labels, one.nodes)
        for one in series
        if one.scheme.names_holder and one.has_ids
        for selector in one.select(Matcher(one.mapping.uuid, "=", ""))
        for labels in query_labels(engine, f"group by ({join_labels(*one.nodes)}) ({selector})", at)
    }


def _find_shared_names(engine: Engine, series: Iterable[GpuSeries], at: float) -> Mapping[str, Sequence[str]]:
    """Nodes with two GPUs of one index, such as those of two clusters that no label names, or of exporters that all
    call their node `localhost`: node -> indexes. Usually none is returned. Raises SourceError."""
    found: dict[str, list[str]] = {}
    for one in series:
        mapping = one.mapping
        # The agent reports a MIG instance under a uuid of its own and the index of its GPU.
        whole = (Matcher(mapping.instance, "=", ""),) if mapping.instance else ()
        place = join_labels(*one.nodes, mapping.gpu, mapping.cluster)
        for selector in one.select(*whole) if one.has_ids and mapping.gpu else ():
            several = f"count by ({place}) (group by ({place}, {mapping.uuid}) ({selector})) > 1"
            for labels in query_labels(engine, several, at):
                found.setdefault(find_label(labels, one.nodes), []).append(labels.get(mapping.gpu, ""))
    return found


def _find_gpus_in_two_clusters(
    engine: Engine, series: Iterable[GpuSeries], table: UsageTable
) -> Mapping[str, Collection[str]]:
    """GPUs that the series of one job put into another cluster than those of another job: uuid -> clusters. Queries
    nothing unless two clusters have nodes of the same name. Raises SourceError."""
    clusters: dict[str, set[str]] = {}  # by node
    held = ((one.node, one.cluster) for one in table.allocations)
    for node, cluster in (*((gpu.node, gpu.cluster) for gpu in table.fleet), *held):
        clusters.setdefault(node, set()).add(cluster)
    nodes = sorted(node for node, found in clusters.items() if node and len(found) > 1)[:MAX_NODES]
    if not nodes:
        return {}
    gpus = _list_clusters(table.allocations)
    for one in series:
        labels = join_labels(one.mapping.uuid, one.mapping.cluster)
        for selector in one.select(match_any(one.mapping.node, nodes)) if one.has_ids else ():
            for found in query_labels(engine, f"group by ({labels}) ({selector})", table.at):
                gpus.setdefault(found.get(one.mapping.uuid, ""), set()).add(found.get(one.mapping.cluster, ""))
    return _choose_several(gpus)


def describe_gpus_in_two_engines(tables: Sequence[UsageTable]) -> Message | None:
    """GPUs that two engines have in different clusters, or on nodes of different names; None: there are none."""
    allocations = [one for table in tables for one in table.allocations]
    if len({key.cluster for table in tables for key in table.fleet}) > 1 and (
        gpus := _choose_several(_list_clusters(allocations))
    ):
        return _describe_two_clusters(gpus)
    nodes: dict[str, set[str]] = {}
    for one in allocations:
        nodes.setdefault(one.gpu_uuid, set()).add(one.node)
    if not (gpus := _choose_several(nodes)):
        return None
    names = list_names(node for found in gpus.values() for node in found)
    return source_errors.GPU_ON_TWO_NODES.fill(count=len(gpus), nodes=names)


def _list_clusters(allocations: Iterable[AllocationKey]) -> dict[str, set[str]]:
    """By uuid."""
    found: dict[str, set[str]] = {}
    for one in allocations:
        found.setdefault(one.gpu_uuid, set()).add(one.cluster)
    return found


def _choose_several(gpus: Mapping[str, Collection[str]]) -> Mapping[str, Collection[str]]:
    """Without those that are identified by node and index for want of a UUID."""
    return {uuid: found for uuid, found in gpus.items() if len(found) > 1 and uuid and "/" not in uuid}


def _describe_two_clusters(gpus: Mapping[str, Collection[str]]) -> Message:
    names = {cluster or "-" for found in gpus.values() for cluster in found}
    return source_errors.GPU_IN_TWO_CLUSTERS.fill(count=len(gpus), clusters=list_names(names))


def _list_down_targets(
    engine: Engine, schemes: Iterable[DetectedScheme], jobs: Collection[str], at: float
) -> list[str]:
    """The addresses of GPU exporters among these jobs that cannot be scraped. One query while all are up. A job may
    have other targets too: then those count that had GPUs within a day. Raises SourceError."""
    names = list(dict.fromkeys(metric.name for one in schemes if (metric := one.holder.main_metric)))
    up = write_selector("up", (match_any("job", sorted(jobs)),))
    down = _list_targets(engine, f"{up} == 0", at)[:MAX_TARGETS] if jobs else []
    if not down or not names:
        return []
    of_targets = (match_any("job", {one.job for one in down}), match_any("instance", {one.instance for one in down}))
    had_gpus = " or ".join(f"last_over_time({write_selector(name, of_targets)}[1d])" for name in names)
    found = set(_list_targets(engine, f"group by (job, instance) ({had_gpus})", at))
    if others := {one.job for one in down if one not in found}:
        has_gpus = " or ".join(write_selector(name, (match_any("job", others),)) for name in names)
        up = f"{write_selector('up', (match_any('job', others),))} == 1"
        mixed = _list_targets(engine, f"count by (job) ({up} unless on (job, instance) ({has_gpus}))", at)
        dedicated = others - {one.job for one in mixed}
        found.update(one for one in down if one.job in dedicated)
    return [one.instance or one.job for one in down if one in found]


def _list_silent_targets(
    engine: Engine, schemes: Iterable[DetectedScheme], jobs: Collection[str], at: float
) -> list[str]:
    """The addresses of targets among these jobs that are up and report no GPU, though they did within a day: an
    exporter whose driver or hostengine fails. Only of jobs of which another target reports. Raises SourceError."""
    series = list_gpu_series(schemes, ())
    names = sorted({name for one in series for name in one.group.list_metrics(Quantity.IDENTITY, *SHOWS_GPUS)})
    if not jobs or not names:
        return []
    of_jobs, of_gpus = match_any("job", sorted(jobs)), match_any("__name__", names)
    up = f"{write_selector('up', (of_jobs,))} == 1"
    has_gpus = f"group by (job, instance) ({write_selector('', (of_gpus, of_jobs))})"
    silent = f"({up} unless on (instance, job) {has_gpus}) and on (job) ({up} and on (instance, job) {has_gpus})"
    found = _list_targets(engine, silent, at)[:MAX_TARGETS]
    if not found:
        return []
    of_targets = (match_any("job", {one.job for one in found}), match_any("instance", {one.instance for one in found}))
    had_gpus = f"last_over_time({write_selector('', (of_gpus, *of_targets))}[1d])"
    before = set(_list_targets(engine, f"group by (job, instance) ({had_gpus})", at))
    return [one.instance or one.job for one in found if one in before]


def _list_targets(engine: Engine, expression: str, at: float) -> list[ScrapeTarget]:
    found = query_labels(engine, expression, at)
    return list(dict.fromkeys(ScrapeTarget(one.get("job", ""), one.get("instance", "")) for one in found))


def _names_holders(engine: Engine, schemes: Iterable[DetectedScheme], at: float) -> bool:
    """Whether any series of the last day names a pod that is not the scraped exporter itself, or gpusteward's agent
    knows that there is none. Asked only while there is no holder; reads the index, no series. Raises SourceError."""

    def list_values(label: str, selector: str) -> set[str]:
        span = ("start", f"{at - DAY_SECONDS:.3f}"), ("end", f"{at:.3f}")
        path = f"/api/v1/label/{label}/values"
        return set(decode_names(engine.fetch(path, (("match[]", selector), *span), use_get=True)))

    for detected in schemes:
        label, metric = detected.holder.mapping.pod, detected.holder.main_metric
        if label and metric:
            pods = list_values(label, write_selector(metric.name, detected.matchers))
            pods = {pod for pod in pods if not is_exporter_name(pod)}
            if pods - list_values(label, write_selector("up", (Matcher(label, "!=", ""),))):
                return True
    return bool(list_values("node", metrics.ALLOCATIONS_KNOWN.name))


def _find_unnamed_namespaces(schemes: Iterable[DetectedScheme]) -> str:
    """The label of holders whose namespace is that of the exporter, or missing: relabeling has dropped theirs."""
    for detected in schemes:
        mapping = detected.holder.mapping
        is_renamed = mapping.pod == "exported_pod" and mapping.namespace == "namespace"
        if detected.scheme.names_holder and mapping.pod and (is_renamed or not mapping.namespace):
            return mapping.pod
    return ""


def _explain_no_gpus(engine: Engine, at: float) -> Message:
    """What is left of its GPU metrics, and which scrape jobs are down. Asked only while there is no GPU."""
    try:
        names = read_metric_names(engine, at)  # of the last hour; current ones would have shown a GPU
        down = query_labels(engine, "count by (job) (up == 0) unless on (job) (up == 1)", at)
    except SourceError as error:
        return messages.FAILED_PART.fill(name="GPU metrics", reason=error)
    rules = [name for name in names if ":" in name and any(word in name.lower() for word in ("gpu", "dcgm"))]
    found = messages.ONLY_RULES.fill(names=list_names(rules)) if rules else messages.NO_METRICS
    if exported := frozenset[str]().union(*(scheme.names for scheme in SCHEMES)).intersection(names):
        found = messages.NO_CURRENT_SERIES.fill(names=list_names(exported))
    jobs = [job for labels in down if (job := labels.get("job", ""))]
    if not jobs:
        return found
    text = messages.TARGETS_DOWN.fill(jobs=list_names(jobs, MAX_JOBS))
    return Message(f"{found.en} {text.en}", f"{found.zh}{text.zh}")
