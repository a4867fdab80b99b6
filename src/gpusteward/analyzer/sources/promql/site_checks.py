"""What a few small queries show of the whole site: how many GPUs it has, exporters that cannot be scraped, whether any
series names a holder, names that two machines share, and why there is no GPU."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_names, decode_vector
from gpusteward.analyzer.sources.promql.discovery import read_metric_names
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup, device_matchers
from gpusteward.analyzer.sources.usage.findings import list_names
from gpusteward.analyzer.sources.usage.label_mapping import is_exporter_name
from gpusteward.analyzer.sources.usage.quantities import HAMI_NAMES, SHOWS_GPUS, MetricScheme, Quantity, dcgm_names
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, ScrapeTarget, find_label
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, join_labels, match_any, write_selector
from gpusteward.analyzer.tables import NodeModel, UsageTable
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey
from gpusteward.messages import data_health as messages
from gpusteward.messages.errors import engine_errors, source_errors

Fleet = Mapping[NodeModel, int]
DAY_SECONDS = 86_400.0
MAX_TARGETS = 200
"""Targets that are down and are looked up; beyond that their number says enough."""
MAX_NODES = 50
"""Nodes of the same name in two clusters whose GPUs are compared."""


def list_down_targets(engine: Engine, schemes: Iterable[DetectedScheme], jobs: Collection[str], at: float) -> list[str]:
    """The addresses of GPU exporters among these jobs that cannot be scraped. One query while all are up. A job may
    have other targets too: then those count that had GPUs within a day. Raises SourceError."""
    if not jobs:
        return []
    of_jobs = match_any("job", sorted(jobs))
    down = _list_targets(engine, f"{write_selector('up', (of_jobs,))} == 0", at)[:MAX_TARGETS]
    if not down:
        return []
    names = list(dict.fromkeys(metric.name for one in schemes if (metric := one.holder.main_metric)))
    if not names:
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


def list_silent_targets(
    engine: Engine, schemes: Iterable[DetectedScheme], jobs: Collection[str], at: float
) -> list[str]:
    """The addresses of targets among these jobs that are up and report no GPU, though they did within a day: an
    exporter whose driver or hostengine fails. Only of jobs of which another target reports. Raises SourceError."""
    groups = (one.holder if one.scheme is MetricScheme.DCGM else one.device for one in schemes)
    names = sorted({name for group in groups if group for name in group.list_metrics(Quantity.IDENTITY, *SHOWS_GPUS)})
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
    vector = decode_vector(engine.query(expression, at))
    found = (decode_labels(text) for text in vector.labels)
    return list(dict.fromkeys(ScrapeTarget(one.get("job", ""), one.get("instance", "")) for one in found))


def names_holders(engine: Engine, schemes: Iterable[DetectedScheme], at: float) -> bool:
    """Whether any series of the last day names a pod that is not the scraped exporter itself, or gpusteward's agent
    knows that there is none. Asked only while there is no holder; reads the index, no series. Raises SourceError."""
    for detected in schemes:
        label, metric = detected.holder.mapping.pod, detected.holder.main_metric
        if label and metric:
            pods = _list_values(engine, label, write_selector(metric.name, detected.matchers), at)
            pods = {pod for pod in pods if not is_exporter_name(pod)}
            if pods - _list_values(engine, label, write_selector("up", (Matcher(label, "!=", ""),)), at):
                return True
    return bool(_list_values(engine, "node", metrics.ALLOCATIONS_KNOWN.name, at))


def _list_values(engine: Engine, label: str, selector: str, at: float) -> set[str]:
    span = ("start", f"{at - DAY_SECONDS:.3f}"), ("end", f"{at:.3f}")
    path = f"/api/v1/label/{label}/values"
    return set(decode_names(engine.fetch(path, (("match[]", selector), *span), use_get=True)))


def list_without_uuid(engine: Engine, schemes: Iterable[DetectedScheme], condition: Matchers, *, at: float) -> set[str]:
    """Nodes whose series lack the label with the UUID, where others have it. Usually none. Raises SourceError."""
    found: set[str] = set()
    for detected in schemes:
        group, mapping = detected.holder, detected.holder.mapping
        if detected.scheme is not MetricScheme.DCGM or not mapping.uuid or mapping.lacks_uuid or not mapping.node:
            continue
        for metric in choose_metric(group, detected.scheme):
            matchers = (*device_matchers((*condition, *group.matchers)), Matcher(mapping.uuid, "=", ""))
            nodes = [mapping.node, *(names.node for names in group.fallbacks)]
            by = ", ".join(filter(None, nodes))
            vector = decode_vector(engine.query(f"group by ({by}) ({write_selector(metric, matchers)})", at))
            found.update(find_label(decode_labels(text), nodes) for text in vector.labels)
    return found


def find_shared_names(
    engine: Engine, schemes: Iterable[DetectedScheme], condition: Matchers, *, at: float
) -> Mapping[str, Sequence[str]]:
    """Nodes with two GPUs of one index, such as those of two clusters that no label names, or of exporters that all
    call their node `localhost`: node -> indexes. Usually none is returned. Raises SourceError."""
    found: dict[str, list[str]] = {}
    for detected in schemes:
        group = detected.holder if detected.scheme is MetricScheme.DCGM else detected.device
        mapping = group.mapping if group else None
        if group is None or mapping is None or mapping.lacks_uuid or not all((mapping.uuid, mapping.node, mapping.gpu)):
            continue
        for metric in choose_metric(group, detected.scheme):
            # The agent reports a MIG instance under a uuid of its own and the index of its GPU.
            whole = (Matcher(mapping.instance, "=", ""),) if mapping.instance else ()
            selector = write_selector(metric, (*device_matchers((*condition, *group.matchers)), *whole))
            nodes = [mapping.node, *(names.node for names in group.fallbacks)]
            place = ", ".join(filter(None, (*nodes, mapping.gpu, mapping.cluster)))
            several = f"count by ({place}) (group by ({place}, {mapping.uuid}) ({selector})) > 1"
            for labels in map(decode_labels, decode_vector(engine.query(several, at)).labels):
                found.setdefault(find_label(labels, nodes), []).append(labels.get(mapping.gpu, ""))
    return found


def find_gpus_in_two_clusters(
    engine: Engine, schemes: Iterable[DetectedScheme], condition: Matchers, table: UsageTable
) -> Mapping[str, Collection[str]]:
    """GPUs that the series of one job put into another cluster than those of another job: uuid -> clusters. Queries
    nothing unless two clusters have nodes of the same name. Raises SourceError."""
    clusters: dict[str, set[str]] = {}  # by node
    held = [(allocation.node, allocation.cluster) for allocation in table.allocations]
    for node, cluster in [*((gpu.node, gpu.cluster) for gpu in table.fleet), *held]:
        clusters.setdefault(node, set()).add(cluster)
    nodes = sorted(node for node, found in clusters.items() if node and len(found) > 1)[:MAX_NODES]
    if not nodes:
        return {}
    gpus = _list_clusters(table.allocations)
    for detected in schemes:
        group = detected.holder if detected.scheme is MetricScheme.DCGM else detected.device
        mapping = group.mapping if group else None
        if group is None or mapping is None or mapping.lacks_uuid or not mapping.uuid or not mapping.node:
            continue
        for metric in choose_metric(group, detected.scheme):
            on_nodes = (*device_matchers((*condition, *group.matchers)), match_any(mapping.node, nodes))
            labels = ", ".join(filter(None, (mapping.uuid, mapping.cluster)))
            vector = decode_vector(engine.query(f"group by ({labels}) ({write_selector(metric, on_nodes)})", table.at))
            for found in map(decode_labels, vector.labels):
                gpus.setdefault(found.get(mapping.uuid, ""), set()).add(found.get(mapping.cluster, ""))
    return _choose_several(gpus)


def describe_gpus_in_two_engines(tables: Sequence[UsageTable]) -> Message | None:
    """GPUs that two engines have in different clusters, or on nodes of different names; None: there are none."""
    allocations = [one for table in tables for one in table.allocations]
    if len({key.cluster for table in tables for key in table.fleet}) > 1 and (
        gpus := _choose_several(_list_clusters(allocations))
    ):
        return describe_two_clusters(gpus)
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


def describe_two_clusters(gpus: Mapping[str, Collection[str]]) -> Message:
    names = {cluster or "-" for found in gpus.values() for cluster in found}
    return source_errors.GPU_IN_TWO_CLUSTERS.fill(count=len(gpus), clusters=list_names(names))


def choose_metric(group: SeriesGroup, scheme: MetricScheme) -> list[str]:
    """One that nearly every GPU has; none where the site has no such metric."""
    quantities = (Quantity.IDENTITY,) if scheme is MetricScheme.NATIVE else SHOWS_GPUS
    return group.list_metrics(*quantities)[:1]


def count_fleet(engine: Engine, schemes: Iterable[DetectedScheme], condition: Matchers, *, at: float) -> Fleet:
    """All GPUs, held or not, by node and model; each node from its most trusted scheme. Raises SourceError."""
    fleet: Counter[NodeModel] = Counter()
    for detected in schemes:
        # HAMi's own metrics do not include GPUs without a holder.
        group = detected.holder if detected.scheme is MetricScheme.DCGM else detected.device
        if group is not None:
            counted = {(key.cluster, key.node) for key in fleet}
            counts = _count_group(engine, group, condition, is_native=detected.scheme is MetricScheme.NATIVE, at=at)
            fleet.update({key: count for key, count in counts.items() if (key.cluster, key.node) not in counted})
    return fleet


def _count_group(
    engine: Engine, group: SeriesGroup, condition: Matchers, *, is_native: bool, at: float
) -> Counter[NodeModel]:
    """Each device once, however many series, exporters and MIG instances it has. Raises SourceError."""
    nodes = [group.mapping.node, *(names.node for names in group.fallbacks)]
    models = ["model"] if is_native else [group.mapping.model, *(names.model for names in group.fallbacks)]
    cluster = group.mapping.cluster
    counts: Counter[NodeModel] = Counter()
    expressions = _write_fleet(group, condition, [*nodes, *models, cluster], is_native=is_native)
    for number, expression in enumerate(expressions):
        try:
            vector = decode_vector(engine.query(expression, at))
        except SourceError:
            if not number:
                raise
            continue  # GPUs that only this metric shows; they count if they are held
        if vector.missing_stores:
            raise SourceError(engine_errors.PARTIAL_RESPONSE, reason=", ".join(sorted(vector.missing_stores)))
        for text, count in zip(vector.labels, vector.values.tolist(), strict=True):
            labels = decode_labels(text)
            key = NodeModel(find_label(labels, nodes), find_label(labels, models), labels.get(cluster, ""))
            counts[key] += int(count)
    return counts


def find_gpus_on_two_nodes(
    engine: Engine, schemes: Iterable[DetectedScheme], condition: Matchers, *, at: float
) -> dict[DeviceKey, list[NodeModel]]:
    """Where two nodes report the same uuid: cloned machines, or one exporter under two names. Usually none is returned.
    Raises SourceError."""
    found: dict[DeviceKey, list[NodeModel]] = {}
    for detected in schemes:
        group = detected.holder if detected.scheme is MetricScheme.DCGM else detected.device
        mapping = group.mapping if group else None
        if group is None or mapping is None or not mapping.uuid or mapping.lacks_uuid or not mapping.node:
            continue
        is_native = detected.scheme is MetricScheme.NATIVE
        nodes = [mapping.node, *(names.node for names in group.fallbacks)]
        models = ["model"] if is_native else [mapping.model, *(names.model for names in group.fallbacks)]
        device = join_labels(mapping.uuid, mapping.cluster)
        for metric in group.list_metrics(*((Quantity.IDENTITY,) if is_native else SHOWS_GPUS))[:1]:
            selector = write_selector(metric, device_matchers((*condition, *group.matchers)))
            each = f"group by ({join_labels(*nodes, *models, mapping.uuid, mapping.cluster)}) ({selector})"
            several = f"count by ({device}) (group by ({join_labels(*nodes)}, {device}) ({selector})) > 1"
            vector = decode_vector(engine.query(f"{each} and on ({device}) ({several})", at))
            for labels in map(decode_labels, vector.labels):
                key = DeviceKey(labels.get(mapping.uuid, ""), "", labels.get(mapping.cluster, ""))
                place = NodeModel(find_label(labels, nodes), find_label(labels, models), key.cluster)
                if key.uuid and place not in found.setdefault(key, []):
                    found[key].append(place)
    return {key: places for key, places in found.items() if len({place.node for place in places}) > 1}


def count_once(fleet: Fleet, gpus: Mapping[DeviceKey, Sequence[NodeModel]]) -> Fleet:
    """The fleet with each of these GPUs on its first node only."""
    counts = Counter(dict(fleet))
    for places in gpus.values():
        first = min(places)
        counts.subtract(place for place in places if place.node != first.node)
    return {place: count for place, count in counts.items() if count > 0} if gpus else fleet


def _write_fleet(group: SeriesGroup, condition: Matchers, labels: list[str], *, is_native: bool) -> Iterator[str]:
    """For each metric, the devices that the metrics before do not show: one query over all would select too much."""
    # The agent reports a MIG instance under its own uuid, beside its GPU; DCGM under the uuid of the GPU.
    mapping = group.mapping
    whole_gpus = (Matcher(mapping.instance, "=", ""),) if is_native and mapping.instance else ()
    matchers = (*device_matchers((*condition, *group.matchers)), *whole_gpus)
    by, devices = join_labels(*labels), join_labels(*labels, mapping.uuid)
    shown = ""
    for metric in group.list_metrics(*((Quantity.IDENTITY,) if is_native else SHOWS_GPUS)):
        selector = write_selector(metric, matchers)
        yield f"count by ({by}) (group by ({devices}) ({selector}{shown}))"
        shown += f" unless on ({join_labels(mapping.uuid, mapping.cluster)}) {selector}"


MAX_JOBS = 5


def explain_no_gpus(engine: Engine, at: float) -> Message:
    """Asked only while there is no GPU, so that it costs nothing otherwise. Raises nothing."""
    try:
        found = _explain_names(read_metric_names(engine, at))
        jobs = _list_jobs_down(engine, at)
    except SourceError as error:
        return messages.FAILED_PART.fill(name="GPU metrics", reason=error)
    if not jobs:
        return found
    down = messages.TARGETS_DOWN.fill(jobs=list_names(jobs, MAX_JOBS))
    return Message(f"{found.en} {down.en}", f"{found.zh}{down.zh}")


def _explain_names(names: Collection[str]) -> Message:
    """Of the last hour; current ones would have shown a GPU."""
    wanted = {*dcgm_names(), *HAMI_NAMES, metrics.ALLOCATION_INFO.name, metrics.GPU_INFO.name}
    if exported := wanted.intersection(names):
        return messages.NO_CURRENT_SERIES.fill(names=list_names(exported))
    rules = [name for name in names if ":" in name and any(word in name.lower() for word in ("gpu", "dcgm"))]
    return messages.ONLY_RULES.fill(names=list_names(rules)) if rules else messages.NO_METRICS


def _list_jobs_down(engine: Engine, at: float) -> list[str]:
    """One series per job, at most."""
    vector = decode_vector(engine.query("count by (job) (up == 0) unless on (job) (up == 1)", at))
    return [name for text in vector.labels if (name := decode_labels(text).get("job", ""))]
