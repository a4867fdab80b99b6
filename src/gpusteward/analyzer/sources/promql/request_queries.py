"""Requests of inference servers: which of their metrics a site has, and what they say about a window.

One query per kind of server and reading, for all its pods; none where a site has no such metric. What a query that
fails would have said is unknown, and with it the silence of these servers: nothing else depends on it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite, nan
from typing import NamedTuple

from gpusteward.analyzer.sources.engine.client import Engine, Fields
from gpusteward.analyzer.sources.engine.decode import decode_names
from gpusteward.analyzer.sources.promql.expressions import write_range
from gpusteward.analyzer.sources.usage.inference_servers import (
    ASLEEP,
    COUNTERS,
    NAMED_BY_TARGET,
    OF_TOKENS,
    POD_LABELS,
    PROCESS_START,
    REQUESTS,
    ROLE_LABELS,
    RUNNING,
    SERVERS,
    InferenceServer,
    ServerMetric,
    ServerPodName,
    ServerReading,
    ServerValues,
    find_role,
    find_server_pod,
    make_server_pod,
)
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES
from gpusteward.analyzer.sources.usage.selectors import join_labels, match_any, write_selector
from gpusteward.analyzer.tables import ServerPod
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors

log = Log(__name__)

PODS_PER_QUERY = 200
"""About 12 KB of text."""
_PART = "gpusteward_part"


@dataclass(frozen=True, slots=True)
class FoundServers:
    """What a site has of the table of servers. Empty: nothing is asked."""

    names: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()

    @property
    def pod_labels(self) -> tuple[str, ...]:
        """Those that name a pod, its namespace and its cluster."""
        own = {label for pod, namespaces in POD_LABELS for label in (pod, *namespaces)}
        return tuple(sorted(self.labels & (own | set(CANDIDATES["cluster"]))))

    def find_metrics(self, server: InferenceServer) -> dict[ServerReading, list[ServerMetric]]:
        """Those of its metrics that the site has, by the names that it has."""
        found: defaultdict[ServerReading, list[ServerMetric]] = defaultdict(list)
        for reading, metrics in server.metrics.items():
            for metric in metrics:
                if names := tuple(name for name in metric.names if name in self.names):
                    found[reading].append(metric._replace(names=names))
        return dict(found)


NO_SERVERS = FoundServers()


def find_servers(engine: Engine, names: Collection[str], span: Fields) -> FoundServers:
    """`names`: all metrics of the site. One more request if a server is among them; if it fails, requests are unknown
    until the next discovery. Raises nothing."""
    found = frozenset(name for server in SERVERS for name in server.names if name in names)
    if not found:
        return FoundServers()
    selector = write_selector("", (match_any("__name__", sorted(found)),))
    try:
        labels = decode_names(engine.fetch("/api/v1/labels", (("match[]", selector), *span)))
    except SourceError as error:
        log.warning("servers_not_found", reason=error, consequence="requests of inference servers are unknown")
        return NO_SERVERS
    return FoundServers(found, frozenset(labels))


class _Task(NamedTuple):
    """One query of one kind of server."""

    server: InferenceServer
    reading: ServerReading
    about: str  # what of the reading
    expression: str


_GROWN, _LOWEST, _HIGHEST, _COVERAGE, _RESTARTS = "increase", "lowest", "highest", "samples", "restarts"
Rows = list[tuple[dict[str, str], float]]


def read_servers(
    engine: Engine, found: FoundServers, *, at: float, window_seconds: float, intervals: Mapping[str, float]
) -> tuple[list[ServerPod], dict[str, Message]]:
    """The servers, and why some of what they say is unknown. `intervals`: seconds between two scrapes of each job; that
    of "" is for all others. Raises nothing."""
    tasks = [task for server in SERVERS for task in _write_tasks(found, server, window_seconds)]
    failures: dict[str, Message] = {}
    failed: set[str] = set()  # servers of which not everything is known
    values: defaultdict[tuple[str, ServerPodName], ServerValues] = defaultdict(ServerValues)
    for task, rows in zip(tasks, _run(engine, [task.expression for task in tasks], at), strict=True):
        if isinstance(rows, Message):
            failures[f"{task.server.name}: {task.reading}, {task.about}"] = rows
            failed.add(task.server.name)
            continue
        for labels, value in rows:
            if isfinite(value) and (pod := find_server_pod(labels)) is not None:
                # Without an interval nobody knows how many samples there should be.
                interval = intervals.get(labels.get("job", ""), intervals.get("", 0.0))
                number = value * interval / window_seconds if task.about == _COVERAGE else value
                _keep(values[task.server.name, pod], task, number)
                values[task.server.name, pod].is_named_by_target |= NAMED_BY_TARGET in labels
                if task.reading in OF_TOKENS:
                    values[task.server.name, pod].roles.add(find_role(labels))
    kinds = {server.name: server for server in SERVERS}
    pods = [
        (pod, make_server_pod(kinds[name], pod, one)) for (name, pod), one in values.items() if kinds[name].is_one(one)
    ]
    pods = [
        (pod, replace(one, is_silent=False, served_tokens=nan) if one.server in failed else one) for pod, one in pods
    ]
    silent = sorted({pod for pod, one in pods if one.is_silent})
    restarted, failure = _find_restarted(engine, found, silent, at=at, window_seconds=window_seconds)
    if failure is not None:
        failures[PROCESS_START] = failure
    return [replace(one, is_silent=one.is_silent and pod not in restarted) for pod, one in pods], failures


def _write_tasks(found: FoundServers, server: InferenceServer, seconds: float) -> Iterator[_Task]:
    by, window = ", ".join(found.pod_labels), write_range(seconds)
    parts = [label for label in server.parts if label in found.labels]
    metrics = found.find_metrics(server)
    if not server.is_among(found.names) or not found.pod_labels:
        return

    def aggregate(metric: ServerMetric, function: str, labels: str) -> str:
        """The largest of the series that differ in none of these labels, as of a target that is scraped twice."""
        series = (f"{function}({write_selector(name, metric.matchers)}{window})" for name in metric.names)
        return f"max by ({labels}) ({f' or on ({by}) '.join(series)})"

    def add(reading: ServerReading, function: str, by: str = by) -> str:
        of_parts = (aggregate(metric, function, join_labels(by, *parts)) for metric in metrics[reading])
        # Metrics that are added are told apart by a label: one of them may be missing.
        named = (f'label_replace({each}, "{_PART}", "{number}", "", "")' for number, each in enumerate(of_parts))
        return f"sum by ({by}) ({' or '.join(named)})"

    for reading in metrics:
        if reading in COUNTERS:
            roles = [label for label in ROLE_LABELS if reading in OF_TOKENS and label in found.labels]
            yield _Task(server, reading, _GROWN, add(reading, "increase", join_labels(by, *roles)))
        elif reading is ASLEEP:  # an engine has one series for each depth of sleep
            of_engines = aggregate(metrics[reading][0], "min_over_time", join_labels(by, *parts))
            yield _Task(server, reading, _LOWEST, f"min by ({by}) ({of_engines})")
        else:
            yield _Task(server, reading, _HIGHEST, add(reading, "max_over_time"))
            if reading is RUNNING:
                yield _Task(server, reading, _LOWEST, add(reading, "min_over_time"))
    if server.proof and REQUESTS in metrics:
        counted = metrics[REQUESTS][0]
        samples = (f"count_over_time({name}{window})" for name in counted.names)
        of_targets = f"min by ({join_labels(by, 'job', 'instance')}) ({f' or on ({by}) '.join(samples)})"
        yield _Task(server, REQUESTS, _COVERAGE, f"min by ({join_labels(by, 'job')}) ({of_targets})")
        # A series that was not there before the window counts from zero, as one that was reset.
        back = f"offset {round(seconds * 1000)}ms"
        begun = (f"({name} unless {name} {back}) * 0 + 1 or resets({name}{window})" for name in counted.names)
        yield _Task(server, REQUESTS, _RESTARTS, f"max by ({by}) ({f' or on ({by}) '.join(begun)})")


def _keep(values: ServerValues, task: _Task, value: float) -> None:
    """Of several values the largest, as where two jobs write the pod into different labels; of coverage the
    smallest."""
    if task.about == _COVERAGE:
        values.coverage = value if values.coverage is None else min(value, values.coverage)
    elif task.about == _RESTARTS:
        values.restarts = value if values.restarts is None else max(value, values.restarts)
    else:
        kept = {_GROWN: values.grown, _LOWEST: values.lowest, _HIGHEST: values.highest}[task.about]
        kept[task.reading] = max(value, kept.get(task.reading, value))


def _find_restarted(
    engine: Engine, found: FoundServers, pods: Sequence[ServerPodName], *, at: float, window_seconds: float
) -> tuple[set[ServerPodName], Message | None]:
    """Those of these pods with a process that began in the window, where processes tell their start; all of them if
    that cannot be read."""
    batches = [pods[start : start + PODS_PER_QUERY] for start in range(0, len(pods), PODS_PER_QUERY)]
    by = ", ".join(found.pod_labels)
    expressions = []
    for batch, (label, _) in product(batches, POD_LABELS):
        if label in found.labels:
            own = match_any(label, sorted({pod.pod for pod in batch}))
            expressions.append(f"max by ({by}) ({write_selector(PROCESS_START, (own,))})")
    restarted: set[ServerPodName] = set()
    for rows in _run(engine, expressions, at):
        if isinstance(rows, Message):
            return set(pods), rows
        restarted |= {pod for labels, value in rows if value > at - window_seconds and (pod := find_server_pod(labels))}
    return restarted, None


def _run(engine: Engine, expressions: Sequence[str], at: float) -> list[Rows | Message]:
    """The rows of each, or why there are none."""

    def run(expression: str) -> Rows | Message:
        try:
            vector = engine.query_vector(expression, at)
            if vector.missing_stores:  # a request may be in what they have
                return source_errors.INCOMPLETE_REQUESTS.fill(stores=", ".join(sorted(vector.missing_stores)))
            return list(vector.rows())
        except SourceError as error:
            log.warning("query_failed", queries=expression, reason=error)
            return error.as_message()

    if not expressions:
        return []
    with ThreadPoolExecutor(engine.max_concurrent_queries, thread_name_prefix="engine") as threads:
        return list(threads.map(run, expressions))
