"""Discovers what a site has: the engine, metric schemes and their labels, recording rules, scrape intervals, and the
number of GPUs. Repeated every `PrometheusSettings.relearn_cycles` cycles."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_labels, decode_plain, decode_vector
from gpusteward.analyzer.sources.engine.label_text_index import find_label
from gpusteward.analyzer.sources.promql.expressions import RULE_PREFIX, rule_name, write_duration
from gpusteward.analyzer.sources.promql.query_plan import (
    DetectedScheme,
    QueryPlan,
    SeriesGroup,
    device_matchers,
    list_missing_metrics,
    plan_holders,
)
from gpusteward.analyzer.sources.promql.scheme_detection import detect_schemes, read_metric_names
from gpusteward.analyzer.sources.promql.scrape_intervals import read_scrape_intervals
from gpusteward.analyzer.sources.usage.coverage import ScrapeIntervals
from gpusteward.analyzer.sources.usage.label_mapping import ClusterChoice, LabelMapping
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.quantities import SHOWS_GPUS, Aggregation, Quantity
from gpusteward.analyzer.sources.usage.row_index import DeviceKey
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, write_selector
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import engine_errors

VICTORIA = "VictoriaMetrics"
Fleet = Mapping[NodeModel, int]


@dataclass(frozen=True)
class DiscoveryResult:
    """What was found at the site."""

    engine: str
    version: str
    discovered_at: float
    has_series: bool = True  # of any metric; a tenant without data has none
    schemes: tuple[DetectedScheme, ...] = ()
    rules: frozenset[str] = frozenset()
    intervals: ScrapeIntervals = field(default_factory=ScrapeIntervals)
    ignored_nodes: Mapping[str, float] = field(default_factory=dict)
    """The schemes that are ignored because the agent covers all their nodes: expression -> number of nodes."""

    def as_plain(self) -> dict[str, Any]:
        """For `/api/v1/sources`."""
        return {
            "engine": self.engine,
            "version": self.version,
            "learned_at": self.discovered_at,
            "recording_rules": sorted(self.rules),
            "scrape_intervals_seconds": dict(self.intervals.seconds),
            "slower_targets": [
                {"job": job, "seconds": seconds, "targets": count}
                for (job, seconds), count in sorted(self.intervals.count_slow_targets().items())
            ],
            "dialects": [_describe(detected) for detected in self.schemes],
        }


def discover(
    engine: Engine, condition: Matchers, clusters: ClusterChoice, *, at: float, window_seconds: float
) -> DiscoveryResult:
    """Raises SourceError when the engine does not respond at all."""
    names = read_metric_names(engine, at)
    product, version = _identify(engine, at)
    schemes = list(detect_schemes(engine, names, clusters, at))
    ignored_nodes: dict[str, float] = {}
    native = [detected for detected in schemes if detected.scheme is MetricScheme.NATIVE]
    others = [detected for detected in schemes if detected.scheme is not MetricScheme.NATIVE]
    if native and others and _covers_all(engine, native, others, condition, at):
        expressions = [_write_node_count(plan_holders(other, condition)) for other in others]
        ignored_nodes = {expression: _count(engine, expression, at) for expression in expressions}
        schemes = native
    return DiscoveryResult(
        engine=product,
        version=version,
        discovered_at=at,
        has_series=bool(names),
        schemes=tuple(schemes),
        rules=_find_rules(engine, names, schemes, window_seconds=window_seconds, at=at),
        intervals=read_scrape_intervals(engine, schemes, at),
        ignored_nodes=ignored_nodes,
    )


def has_new_nodes(engine: Engine, discovered: DiscoveryResult, at: float) -> bool:
    """Whether a node has appeared in an ignored scheme: the agent may not run on it."""
    return any(_count(engine, expression, at) > nodes for expression, nodes in discovered.ignored_nodes.items())


def _identify(engine: Engine, at: float) -> tuple[str, str]:
    """Product and version. VictoriaMetrics imitates Prometheus, but reports no Go version, and only it has `now()`."""
    try:
        build = decode_plain(engine.fetch("/api/v1/status/buildinfo", use_get=True))
    except SourceError:
        build = {}
    if "goVersion" not in build and _has_now_function(engine, at):
        return VICTORIA, ""
    product = "Prometheus" if build else "Prometheus-compatible"
    return str(build.get("application") or product), str(build.get("version") or "")


def _has_now_function(engine: Engine, at: float) -> bool:
    try:
        decode_vector(engine.query("now()", at))
    except SourceError:
        return False
    return True


def _covers_all(
    engine: Engine, native: list[DetectedScheme], others: list[DetectedScheme], condition: Matchers, at: float
) -> bool:
    """Whether gpusteward's agent knows the holders of every device in the other schemes, which then are not needed."""
    agents = [each.holder.mapping for each in native]
    plans = [plan_holders(other, condition) for other in others]
    return all(_count(engine, expression, at) == 0 for plan in plans for expression in _write_uncovered(plan, agents))


def _write_uncovered(plan: QueryPlan, agents: Iterable[LabelMapping]) -> Iterator[str]:
    """For every metric that shows GPUs: exporters differ in them, and so do MIG instances and GPUs."""
    mapping = plan.mapping
    agents = list(agents)
    if mapping.lacks_uuid or any(agent.lacks_uuid for agent in agents):
        identity = _join(mapping.node, mapping.gpu)
    else:
        identity = mapping.uuid
    known = " or ".join(_write_known(mapping, agent, identity) for agent in agents)
    shown = dict.fromkeys((query.metric, query.matchers) for query in plan.queries if query.quantity in SHOWS_GPUS)
    for metric, matchers in shown or {(plan.metric, plan.matchers): None}:
        yield f"count({write_selector(metric, matchers)} unless on ({_join(identity, mapping.cluster)}) ({known}))"


def _write_known(mapping: LabelMapping, agent: LabelMapping, identity: str) -> str:
    """The devices whose holders an agent knows, with the labels of `mapping`. `identity`: that of the UUID, or of node
    and index where one of the two exporters has no UUID."""
    on = _join("node", agent.cluster)
    known = f"{metrics.GPU_INFO.name} and on ({on}) ({metrics.ALLOCATIONS_KNOWN.name} == 1)"
    renamed = known
    for label, own in zip(
        identity.split(", "), ("node", "gpu") if identity != mapping.uuid else ("uuid",), strict=False
    ):
        renamed = f'label_replace({renamed}, "{label}", "$1", "{own}", "(.*)")'
    if mapping.cluster in ("", agent.cluster) or not agent.cluster:
        return renamed
    return f'label_replace({renamed}, "{mapping.cluster}", "$1", "{agent.cluster}", "(.*)")'


def _join(*labels: str) -> str:
    return ", ".join(filter(None, labels))


def _write_node_count(plan: QueryPlan) -> str:
    by = _join(plan.mapping.node, plan.mapping.cluster)
    return f"count(count by ({by}) ({write_selector(plan.metric, plan.matchers)}))"


def _count(engine: Engine, expression: str, at: float) -> float:
    try:
        vector = decode_vector(engine.query(expression, at))
    except SourceError:
        return float("nan")
    return float(vector.values[0]) if len(vector) else 0.0


def _find_rules(
    engine: Engine, names: Collection[str], schemes: Iterable[DetectedScheme], *, window_seconds: float, at: float
) -> frozenset[str]:
    """Recording rules for this window that are still evaluated: a name stays in the index for hours after its rule."""
    suffix = f"_{write_duration(window_seconds)}"
    rules = {name for name in names if name.startswith(RULE_PREFIX) and name.endswith(suffix)}
    for detected in schemes:
        metric = detected.holder.main_metric
        counted = rule_name(metric.name, Aggregation.COUNT, window_seconds) if metric else ""
        if metric and counted in rules and not _is_recorded(engine, metric.name, counted, detected.holder, at):
            return frozenset()
    return frozenset(rules)


def _is_recorded(engine: Engine, metric: str, rule: str, group: SeriesGroup, at: float) -> bool:
    """Whether the rule has series, in every cluster that has the metric: each cluster may have its own rules."""
    recorded = write_selector(rule, group.matchers)
    if not _count(engine, f"count({recorded})", at) > 0:
        return False
    cluster = group.mapping.cluster
    missing = f"count({write_selector(metric, group.matchers)} unless on ({cluster}) {recorded})"
    return not cluster or _count(engine, missing, at) == 0


def _describe(detected: DetectedScheme) -> dict[str, Any]:
    return {
        "name": detected.scheme.value,
        **({"only": write_selector("", detected.matchers)} if detected.matchers else {}),
        "labels": {field: str(label) for field, label in asdict(detected.holder.mapping).items() if label},
        "metrics": sorted({metric.name for group in detected.groups for metric in group.metrics}),
        "missing_metrics": list_missing_metrics(detected),
    }


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
        device = _join(mapping.uuid, mapping.cluster)
        for metric in group.list_metrics(*((Quantity.IDENTITY,) if is_native else SHOWS_GPUS))[:1]:
            selector = write_selector(metric, device_matchers((*condition, *group.matchers)))
            each = f"group by ({_join(*nodes, *models, mapping.uuid, mapping.cluster)}) ({selector})"
            several = f"count by ({device}) (group by ({_join(*nodes)}, {device}) ({selector})) > 1"
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
    by, devices = _join(*labels), _join(*labels, mapping.uuid)
    shown = ""
    for metric in group.list_metrics(*((Quantity.IDENTITY,) if is_native else SHOWS_GPUS)):
        selector = write_selector(metric, matchers)
        yield f"count by ({by}) (group by ({devices}) ({selector}{shown}))"
        shown += f" unless on ({_join(mapping.uuid, mapping.cluster)}) {selector}"
