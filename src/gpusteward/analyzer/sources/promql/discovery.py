"""Discovers what a site has: the engine, metric schemes and their labels, recording rules and scrape intervals.
Repeated every `PrometheusSettings.relearn_cycles` cycles. Schemes and labels are found in the engine's index, without
series.

The holder's labels may differ by scrape job, because `honor_labels` is set per job: where it is set, `pod` is the
holder; where it is not, the holder is `exported_pod` and `pod` is the exporter. Relabeling may also give the target
`pod_name`, while `pod` is the holder. Jobs whose labels differ from the usual ones are detected as a separate scheme;
read with the usual labels, they would have no holders.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from gpusteward.analyzer.sources.engine.client import Engine, Fields, LimitError
from gpusteward.analyzer.sources.engine.decode import decode_names, decode_plain
from gpusteward.analyzer.sources.promql.expressions import RULE_PREFIX, rule_name, write_duration
from gpusteward.analyzer.sources.promql.query_plan import (
    DetectedScheme,
    QueryPlan,
    SeriesGroup,
    plan_holders,
)
from gpusteward.analyzer.sources.promql.request_queries import NO_SERVERS, FoundServers, find_servers
from gpusteward.analyzer.sources.promql.sample_timing import read_scrape_intervals
from gpusteward.analyzer.sources.usage.coverage import ScrapeIntervals
from gpusteward.analyzer.sources.usage.inference_servers import list_possible_servers
from gpusteward.analyzer.sources.usage.label_mapping import (
    CANDIDATES,
    HOLDER_NAMESPACES,
    ClusterChoice,
    LabelMapping,
    map_labels,
)
from gpusteward.analyzer.sources.usage.quantities import SHOWS_GPUS, Aggregation, Quantity, UsageMetric
from gpusteward.analyzer.sources.usage.query_results import HolderDetails
from gpusteward.analyzer.sources.usage.schemes import SCHEMES
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, join_labels, match_any, write_selector
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

LOOK_BACK_SECONDS = 3600.0
_IN_EVERY_JOB = (Quantity.PRESENCE, *SHOWS_GPUS)
"""What nearly every job exports, most reliable first. The labels of these metrics are looked up: an exporter labels all
its metrics alike, except that not all have MIG."""


def read_metric_names(engine: Engine, at: float) -> set[str]:
    """Raises SourceError."""
    return set(decode_names(engine.fetch("/api/v1/label/__name__/values", _span(at), use_get=True)))


def detect_schemes(
    engine: Engine, names: Collection[str], clusters: ClusterChoice, at: float
) -> Iterator[DetectedScheme]:
    """The schemes among these metric names, most trusted first. Raises SourceError."""
    for scheme in SCHEMES:
        found = scheme.find_metrics(names)
        for group, labels in _read_groups(engine, found.of_holders, clusters, at) if found.of_holders else ():
            device = None
            if not scheme.devices:  # its series about devices have the labels of those about holders
                device = replace(group, metrics=found.of_devices) if found.of_devices else None
            elif own := read_labels(engine, found.of_devices, group.matchers, at):
                device = _make_group(found.of_devices, own, group.matchers, clusters)
            fallbacks = _find_fallbacks(engine, group, labels, at) if scheme.names_holder else ()
            holder = replace(group, fallbacks=fallbacks)
            yield from _split_by_job(engine, DetectedScheme(scheme, holder, device), labels, at)


def _read_groups(
    engine: Engine, metrics: tuple[UsageMetric, ...], clusters: ClusterChoice, at: float
) -> Iterator[tuple[SeriesGroup, Collection[str]]]:
    """Series that name their cluster in the same label, usually all, and their labels. Raises SourceError."""
    labels = read_labels(engine, metrics, (), at)
    for part in clusters.divide(labels):
        if not part.matchers:
            yield _make_group(metrics, labels, (), clusters), labels
        elif own := read_labels(engine, metrics, part.matchers, at):
            choice = replace(clusters, label=part.label or clusters.label)
            yield _make_group(metrics, own, part.matchers, choice), own


def _make_group(
    metrics: tuple[UsageMetric, ...], labels: Collection[str], matchers: Matchers, clusters: ClusterChoice
) -> SeriesGroup:
    mapping = map_labels(labels, cluster_label=clusters.label, pod_labels=clusters.pod_labels)
    return SeriesGroup(mapping, metrics, matchers=matchers)


def read_labels(engine: Engine, metrics: Iterable[UsageMetric], matchers: Matchers, at: float) -> set[str]:
    selectors = [("match[]", write_selector(metric, matchers)) for metric in _list_sampled(metrics)]
    return set(decode_names(engine.fetch("/api/v1/labels", (*selectors, *_span(at))))) if selectors else set()


def _find_fallbacks(
    engine: Engine, group: SeriesGroup, labels: Collection[str], at: float
) -> tuple[HolderDetails, ...]:
    """Other labels of the details, where series lack the usual one: dcgm-exporter 4.8.3 renamed `Hostname`, and an
    upgrade takes a while. Raises SourceError."""
    usual = group.mapping.details
    others = {
        field: [name for name in CANDIDATES[field] if name in labels and name != getattr(usual, field)]
        for field in ("node", "gpu", "model")
    }
    series = (match_any("__name__", _choose_metrics(group)), *group.matchers)
    lacking = [field for field, names in others.items() if names and _lacks(engine, series, getattr(usual, field), at)]
    rows = zip_longest(*(others[field] for field in lacking), fillvalue="")
    return tuple(HolderDetails(**dict(zip(lacking, names, strict=True))) for names in rows)


def _lacks(engine: Engine, series: Matchers, label: str, at: float) -> bool:
    selector = write_selector("", (*series, Matcher(label, "=", "")))
    return len(engine.query_vector(f"count({selector})", at)) > 0


def _list_sampled(metrics: Iterable[UsageMetric]) -> list[str]:
    return list(dict.fromkeys(metric.name for metric in metrics if metric.quantity in _IN_EVERY_JOB))


def _span(at: float) -> Fields:
    return ("start", f"{at - LOOK_BACK_SECONDS:.3f}"), ("end", f"{at:.3f}")


def _split_by_job(
    engine: Engine, detected: DetectedScheme, labels: Collection[str], at: float
) -> Iterator[DetectedScheme]:
    """The scheme with its usual labels, then once for each group of jobs with other labels. Queries nothing if only one
    label can name the holder. Raises SourceError."""
    yield detected
    mapping = detected.holder.mapping
    others = [name for name in CANDIDATES["pod"] if name in labels and name != mapping.pod]
    if not others or not mapping.job:
        return
    group = detected.holder
    metrics = match_any("__name__", _list_sampled(group.metrics))
    for label, jobs in _find_jobs(engine, detected, others, at):
        only: Matchers = (match_any("job", sorted(jobs)),)
        fields = (("match[]", write_selector("", (metrics, *only, *group.matchers))), *_span(at))
        names = set(decode_names(engine.fetch("/api/v1/labels", fields)))
        if mapping.pod in names:  # in these jobs both are of the exporter
            names -= {mapping.pod, *HOLDER_NAMESPACES[mapping.pod]}
        own = map_labels(names, cluster_label=mapping.cluster)
        if own.pod == label:
            own = replace(own, pod_labels=mapping.pod_labels)
            yield replace(detected, holder=replace(detected.holder, mapping=own), jobs=only)


def _choose_metrics(group: SeriesGroup) -> list[str]:
    """One quantity that nearly every job exports, under all its metric names."""
    found = (names for quantity in _IN_EVERY_JOB if (names := group.list_metrics(quantity)))
    return next(found, [metric.name for metric in group.metrics[:1]])


def _find_jobs(
    engine: Engine, detected: DetectedScheme, others: Sequence[str], at: float
) -> Iterable[tuple[str, set[str]]]:
    """Jobs without any holder under the usual label, by the label that names their holders. Raises SourceError."""
    group, main = detected.holder, _choose_metrics(detected.holder)
    # A job may lack the main metric. On a large site the engine may refuse to select all of them at once.
    all_metrics = main if detected.scheme.lists_allocations else group.list_metrics(*_IN_EVERY_JOB)
    for names in dict.fromkeys((tuple(all_metrics), tuple(main))):
        series = (match_any("__name__", names), *group.matchers)
        try:
            return list(_compare_jobs(engine, series, group.mapping.pod, others, at))
        except LimitError as error:
            log.warning("labels_of_jobs_not_compared", usual=group.mapping.pod, metrics=len(names), reason=error)
    return ()


def _compare_jobs(
    engine: Engine, series: Matchers, usual: str, others: Iterable[str], at: float
) -> Iterator[tuple[str, set[str]]]:
    all_series = write_selector("", series)
    held = _write_held(series, usual)
    left = _list_jobs(engine, f"count by (job) ({all_series} unless on (job) ({held}))", at)
    for label in others:
        named = _write_held((*series, match_any("job", sorted(left))), label)
        jobs = _list_jobs(engine, f"count by (job) ({named})", at) if left else set[str]()
        left -= jobs
        if jobs:
            yield label, jobs


def _write_held(series: Matchers, label: str) -> str:
    """Series with a holder: what the label names may also be the exporter, which is the scraped pod itself."""
    named = Matcher(label, "!=", "")
    return f"{write_selector('', (*series, named))} unless on (job, {label}) {write_selector('up', (named,))}"


def _list_jobs(engine: Engine, expression: str, at: float) -> set[str]:
    return {labels.get("job", "") for labels, _ in engine.query_vector(expression, at).rows()} - {""}


VICTORIA = "VictoriaMetrics"


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
    servers: FoundServers = NO_SERVERS
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
            "dialects": [detected.describe() for detected in self.schemes],
            "inference_servers": list_possible_servers(self.servers.names),
        }


def discover(
    engine: Engine, condition: Matchers, clusters: ClusterChoice, *, at: float, window_seconds: float
) -> DiscoveryResult:
    """Raises SourceError when the engine does not respond at all."""
    names = read_metric_names(engine, at)
    product, version = _identify(engine, at)
    schemes = list(detect_schemes(engine, names, clusters, at))
    ignored_nodes: dict[str, float] = {}
    native = [detected for detected in schemes if detected.scheme.lists_allocations]
    others = [detected for detected in schemes if not detected.scheme.lists_allocations]
    if native and others:
        agents = [each.holder.mapping for each in native]
        plans = [plan_holders(other, condition) for other in others]
        uncovered = (expression for plan in plans for expression in _write_uncovered(plan, agents))
        # Schemes whose devices gpusteward's agent knows all holders of are not needed.
        if all(_count(engine, expression, at) == 0 for expression in uncovered):
            expressions = map(_write_node_count, plans)
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
        servers=find_servers(engine, names, _span(at)),
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
    if "goVersion" not in build:
        with suppress(SourceError):
            engine.query_vector("now()", at)
            return VICTORIA, ""
    product = "Prometheus" if build else "Prometheus-compatible"
    return str(build.get("application") or product), str(build.get("version") or "")


def _write_uncovered(plan: QueryPlan, agents: Iterable[LabelMapping]) -> Iterator[str]:
    """For every metric that shows GPUs: exporters differ in them, and so do MIG instances and GPUs."""
    mapping = plan.mapping
    agents = list(agents)
    if mapping.lacks_uuid or any(agent.lacks_uuid for agent in agents):
        identity = join_labels(mapping.node, mapping.gpu)
    else:
        identity = mapping.uuid
    known = " or ".join(_write_known(mapping, agent, identity) for agent in agents)
    shown = dict.fromkeys((query.metric, query.matchers) for query in plan.queries if query.key.quantity in SHOWS_GPUS)
    for metric, matchers in shown or {(plan.metric, plan.matchers): None}:
        on = join_labels(identity, mapping.cluster)
        yield f"count({write_selector(metric, matchers)} unless on ({on}) ({known}))"


def _write_known(mapping: LabelMapping, agent: LabelMapping, identity: str) -> str:
    """The devices whose holders an agent knows, with the labels of `mapping`. `identity`: that of the UUID, or of node
    and index where one of the two exporters has no UUID."""
    on = join_labels("node", agent.cluster)
    known = f"{metrics.GPU_INFO.name} and on ({on}) ({metrics.ALLOCATIONS_KNOWN.name} == 1)"
    renamed = known
    for label, own in zip(
        identity.split(", "), ("node", "gpu") if identity != mapping.uuid else ("uuid",), strict=False
    ):
        renamed = f'label_replace({renamed}, "{label}", "$1", "{own}", "(.*)")'
    if mapping.cluster in ("", agent.cluster) or not agent.cluster:
        return renamed
    return f'label_replace({renamed}, "{mapping.cluster}", "$1", "{agent.cluster}", "(.*)")'


def _write_node_count(plan: QueryPlan) -> str:
    by = join_labels(plan.mapping.node, plan.mapping.cluster)
    return f"count(count by ({by}) ({write_selector(plan.metric, plan.matchers)}))"


def _count(engine: Engine, expression: str, at: float) -> float:
    try:
        vector = engine.query_vector(expression, at)
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
