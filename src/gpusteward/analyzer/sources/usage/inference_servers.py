"""Inference servers: the table of their metrics, and from their values to the rows of the usage table.

A server that counts its requests knows better than a GPU whether anybody uses it. What it says is used with care,
because each of its signals alone can say something wrong:

- A gauge misses a request between two scrapes, and stays at its last value when an engine stops stepping. So it never
  shows silence by itself, and one above zero never shows use by itself.
- A counter of finished requests says nothing about one that still runs, and not all count what was rejected.
- No series at all may mean that statistics are switched off. It is unknown, never silence.
- Counters of a router or a frontend may be passed by: they deny silence, and never prove it.
- A new process begins at zero: what its predecessor counted last, nobody has seen.
- A target can name any pod as its own: such a series (`exported_pod`) denies silence, and never proves it.

Silence of a server is therefore proven only by all of these together, over the whole window: enough samples, no counter
of its row has grown, its gauges were 0 in every sample, no counter began anew. A workload is silent if every pod that
holds its GPUs has such a server, or belongs to a pod that has one: of the pods of a LeaderWorkerSet only the leaders
have metrics.

A new server is one row.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.node.containers import Container, WorkloadKey
from gpusteward.core.usages import Measure, Stat


class ServerReading(StrEnum):
    """What is read of a server."""

    REQUESTS = "requests"  # finished ones, counted
    TOKENS = "tokens"  # read and generated, counted; those below added, where a server has no other counter of them
    PROMPT = "prompt tokens"
    GENERATED = "generated tokens"
    STEPS = "steps"  # of the engine, counted: they grow while a request is served
    RUNNING = "running"
    WAITING = "waiting"
    ASLEEP = "asleep"  # 1 while it sleeps


OF_TOKENS = (ServerReading.PROMPT, ServerReading.GENERATED)
COUNTERS = (ServerReading.REQUESTS, ServerReading.TOKENS, *OF_TOKENS, ServerReading.STEPS)


class ServerMetric(NamedTuple):
    """A metric, under one of several names: those of other versions. A pod has one of them, or counts the same under
    each."""

    names: tuple[str, ...]
    matchers: Matchers = ()


@dataclass(frozen=True, slots=True)
class InferenceServer:
    """One kind of server. Several metrics of one reading are added."""

    name: str
    metrics: Mapping[ServerReading, tuple[ServerMetric, ...]]
    parts: tuple[str, ...]  # labels: series of one pod that differ in them are added
    proof: tuple[ServerReading, ...] = ()  # what must be known and still to prove silence; empty: it can only be denied
    identity: ServerReading | None = None  # a pod without it has no such server

    def is_among(self, names: Collection[str]) -> bool:
        """Whether a site with these metrics may have one."""
        needed = self.identity or REQUESTS
        return any(name in names for metric in self.metrics[needed] for name in metric.names)

    def is_one(self, values: "ServerValues") -> bool:
        """Whether a pod with these values has such a server."""
        return self.identity is None or values.has(self.identity)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for metrics in self.metrics.values() for metric in metrics for name in metric.names)


def _metrics(*names: str, **labels: str) -> tuple[ServerMetric, ...]:
    """Each of these names is a metric of its own."""
    return tuple(
        ServerMetric((name,), tuple(Matcher(label, "=", value) for label, value in labels.items())) for name in names
    )


def _either(*names: str) -> tuple[ServerMetric, ...]:
    """One metric with several names."""
    return (ServerMetric(names),)


REQUESTS, TOKENS, PROMPT, GENERATED, STEPS, RUNNING, WAITING, ASLEEP = ServerReading
_TARGET = ("container",)
_VLLM_LABELS = (*_TARGET, "model_name", "engine", "finished_reason")


def _vllm(
    name: str, prefix: str, *, suffixes: Sequence[str] = ("_total",), labels: Sequence[str] = ()
) -> InferenceServer:
    """The same metrics under another prefix."""

    def count(*plain: str) -> tuple[ServerMetric, ...]:
        return tuple(ServerMetric(tuple(f"{prefix}{each}{suffix}" for suffix in suffixes)) for each in plain)

    awake = Matcher("sleep_state", "!=", "awake")
    return InferenceServer(
        name,
        {
            REQUESTS: count("request_success"),
            PROMPT: count("prompt_tokens"),
            GENERATED: count("generation_tokens"),
            STEPS: _metrics(f"{prefix}iteration_tokens_total_count"),
            RUNNING: _metrics(f"{prefix}num_requests_running"),
            WAITING: _metrics(f"{prefix}num_requests_waiting"),
            ASLEEP: (ServerMetric((f"{prefix}engine_sleep_state",), (awake,)),),
        },
        (*_VLLM_LABELS, *labels),
        proof=(REQUESTS, TOKENS, RUNNING, WAITING),
    )


_SGLANG: Mapping[ServerReading, tuple[ServerMetric, ...]] = {
    REQUESTS: _metrics("sglang:num_requests_total", "sglang:num_aborted_requests_total"),
    PROMPT: _metrics("sglang:prompt_tokens_total"),
    GENERATED: _metrics("sglang:generation_tokens_total"),
    RUNNING: _metrics("sglang:num_running_reqs"),
    WAITING: _metrics(
        "sglang:num_queue_reqs",
        "sglang:num_grammar_queue_reqs",
        "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    ),
}
_SGLANG_LABELS = (*_TARGET, "model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "dp_rank", "mode")
_DYNAMO_LABELS = (*_TARGET, "dynamo_namespace", "dynamo_component", "dynamo_endpoint", "model", "status")
# The Endpoint Picker writes its metrics under the present prefix and under those of its predecessors.
_ROUTER_PREFIXES = ("llm_d_epp_", "inference_objective_", "inference_extension_", "llm_d_inference_scheduler_")

SERVERS: Sequence[InferenceServer] = (
    _vllm("vLLM", "vllm:"),
    # Ray writes each counter twice, with and without `_total`.
    _vllm("vLLM in Ray Serve", "ray_vllm_", suffixes=("_total", ""), labels=("ReplicaId", "WorkerId")),
    _vllm("vLLM in OpenShift AI", "kserve_vllm:"),
    # Its live counter grows with every batch; the others at the end of a request only.
    InferenceServer(
        "SGLang",
        {**_SGLANG, TOKENS: _metrics("sglang:realtime_tokens_total")},
        _SGLANG_LABELS,
        proof=(REQUESTS, TOKENS, RUNNING, WAITING),
        identity=TOKENS,
    ),
    InferenceServer("SGLang, tokens of finished requests", _SGLANG, _SGLANG_LABELS),
    InferenceServer(
        "Triton",
        {
            REQUESTS: _metrics("nv_inference_request_success", "nv_inference_request_failure"),
            STEPS: _metrics("nv_inference_exec_count"),
            # Of its TensorRT-LLM backend; others have no gauge of what runs.
            RUNNING: _metrics("nv_trt_llm_request_metrics", request_type="active"),
            WAITING: (
                *_metrics("nv_inference_pending_request_count"),
                *_metrics("nv_trt_llm_request_metrics", request_type="waiting"),
            ),
        },
        (*_TARGET, "model", "version", "reason"),
        proof=(REQUESTS, STEPS, WAITING),
    ),
    InferenceServer(
        "TensorRT-LLM",
        {
            REQUESTS: (
                *_either("trtllm_num_requests_completed_total", "trtllm_request_success_total"),
                *_metrics("trtllm_request_error_total"),
            ),
            PROMPT: _metrics("trtllm_prompt_tokens_total"),
            GENERATED: _metrics("trtllm_generation_tokens_total"),
            RUNNING: _metrics("trtllm_num_requests_running"),
            WAITING: _metrics("trtllm_num_requests_waiting"),
        },
        (*_TARGET, "model_name", "engine_type", "finished_reason"),
        proof=(REQUESTS, TOKENS, RUNNING, WAITING),
    ),
    # A request is in its gauge as long as it runs, and then in its counter.
    InferenceServer(
        "Dynamo worker",
        {
            REQUESTS: _metrics("dynamo_component_requests_total"),
            RUNNING: _metrics("dynamo_component_inflight_requests"),
        },
        _DYNAMO_LABELS,
        proof=(REQUESTS, RUNNING),
    ),
    InferenceServer(
        "Dynamo frontend",
        {
            REQUESTS: _metrics("dynamo_frontend_requests_total"),
            PROMPT: _metrics("dynamo_frontend_input_sequence_tokens_sum"),
            GENERATED: _metrics("dynamo_frontend_output_tokens_total"),
            RUNNING: _either("dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests"),
            WAITING: _metrics("dynamo_frontend_router_queue_pending_requests"),
        },
        (*_DYNAMO_LABELS, "endpoint", "request_type"),
    ),
    InferenceServer(
        "TGI",
        {
            REQUESTS: _either("tgi_request_count", "tgi_request_success"),
            TOKENS: _metrics("tgi_request_generated_tokens_sum"),
            RUNNING: _metrics("tgi_batch_current_size"),
            WAITING: _metrics("tgi_queue_size"),
        },
        _TARGET,
    ),
    InferenceServer(
        "NIM",
        {
            REQUESTS: _either("request_finish_total", "request_success_total"),
            PROMPT: _metrics("prompt_tokens_total"),
            GENERATED: _metrics("generation_tokens_total"),
            RUNNING: _metrics("num_requests_running"),
            WAITING: _metrics("num_requests_waiting"),
        },
        (*_TARGET, "model_name", "finish_reason"),
        identity=RUNNING,
    ),
    InferenceServer(
        "llm-d router",
        {
            REQUESTS: _either(*(f"{prefix}request_total" for prefix in _ROUTER_PREFIXES)),
            PROMPT: _either(*(f"{prefix}request_input_tokens_sum" for prefix in _ROUTER_PREFIXES)),
            GENERATED: _either(*(f"{prefix}request_output_tokens_sum" for prefix in _ROUTER_PREFIXES)),
            RUNNING: _metrics("llm_d_epp_request_running"),
            WAITING: _metrics("llm_d_epp_flow_control_queue_size"),
        },
        (*_TARGET, "model_name", "target_model_name", "fairness_id", "priority"),
    ),
    # Several processes of one server answer in turn: each scrape sees one of them.
    InferenceServer(
        "KServe", {REQUESTS: _metrics("request_predict_seconds_count")}, (*_TARGET, "model_name")
    ),
    InferenceServer(
        "Ray Serve",
        {
            REQUESTS: _either("ray_serve_deployment_request_counter_total", "ray_serve_deployment_request_counter"),
            RUNNING: _metrics("ray_serve_replica_processing_queries"),
            WAITING: _metrics("ray_serve_deployment_queued_queries"),
        },
        (*_TARGET, "deployment", "application", "replica", "route"),
    ),
)  # fmt: skip


def list_possible_servers(names: Collection[str]) -> list[str]:
    """The servers that a site with these metrics may have: some have metrics in common."""
    return [server.name for server in SERVERS if server.is_among(names)]


PREFILL, DECODE = "prefill", "decode"
ROLE_LABELS = ("llm_isvc_role", "llm_d_ai_role", "engine_type")
"""Labels that say which half of the work an engine does, with these values: of KServe, of the pods of llm-d, of
SGLang."""


def find_role(labels: Mapping[str, str]) -> str:
    """Empty: both halves, or nobody says."""
    return next((labels[each] for each in ROLE_LABELS if labels.get(each) in (PREFILL, DECODE)), "")


SERVER_LABELS = tuple(
    sorted(
        {label for server in SERVERS for label in (*server.parts, *ROLE_LABELS)}
        | {
            matcher.label
            for server in SERVERS
            for metrics in server.metrics.values()
            for metric in metrics
            for matcher in metric.matchers
        }
    )
)
"""The labels that tell series of one pod apart, or choose among them."""
_PROVING = frozenset(server.name for server in SERVERS if server.proof)
"""A pod with one of these proves its silence by all of them, and nobody else does it in its place."""
LEAST_COVERAGE = 0.9
"""Silence needs this part of the samples, as `judge.activity.coverage` by default."""
POD_LABELS = (
    # The plain name is that of a gateway where the series themselves name their pod.
    ("exported_pod", ("exported_namespace", "namespace")),
    ("pod", ("namespace",)),
    ("kubernetes_pod_name", ("kubernetes_namespace", "namespace")),
    ("pod_name", ("pod_namespace", "namespace", "kubernetes_namespace")),
)
"""The labels that scraping writes for the pod of a server, which names none itself; with those of its namespace."""
NAMED_BY_TARGET = "exported_pod"
"""A target that writes a label `pod` itself has it under this name. It may name the pod of somebody else."""
PROCESS_START = "process_start_time_seconds"


class ServerPodName(NamedTuple):
    """As the series name it; the cluster may be empty."""

    namespace: str
    pod: str
    cluster: str = ""


def find_server_pod(labels: Mapping[str, str]) -> ServerPodName | None:
    """None: the series names no pod."""
    for label, namespaces in POD_LABELS:
        if labels.get(label):
            namespace = next((labels[each] for each in namespaces if labels.get(each)), "")
            cluster = next((labels[each] for each in CANDIDATES["cluster"] if labels.get(each)), "")
            return ServerPodName(namespace, labels[label], cluster) if namespace else None
    return None


@dataclass
class ServerValues:
    """What was read of one server in one pod. What is missing is unknown."""

    grown: dict[ServerReading, float] = field(default_factory=dict)  # by how much the counters grew in the window
    lowest: dict[ServerReading, float] = field(default_factory=dict)
    highest: dict[ServerReading, float] = field(default_factory=dict)
    coverage: float | None = None  # of the target that was seen least
    restarts: float | None = None  # counters that were reset, or began in the window; None: not known
    is_named_by_target: bool = False  # a target says itself which pod this is, and may say what it likes
    roles: set[str] = field(default_factory=set)  # of its engines, by `find_role`

    def has(self, reading: ServerReading) -> bool:
        return reading in self.grown or reading in self.highest

    @property
    def tokens(self) -> float:
        """All that are known."""
        return self.grown[TOKENS] if TOKENS in self.grown else _sum_known(self.grown.get(one, nan) for one in OF_TOKENS)

    def count_served_tokens(self, server: InferenceServer) -> float:
        """Prompt and generation together; NaN where one of the two is not known. Of a server that generates nothing,
        such as of embeddings, the prompt. Where two engines share the work, each counts its half: a decode engine
        counts the prompt again (vLLM issue 33289)."""
        prompt, generated = (self.grown.get(one, nan) for one in OF_TOKENS)
        if self.roles in ({PREFILL}, {DECODE}):
            return prompt if PREFILL in self.roles else generated
        both = prompt + (generated if GENERATED in self.grown else 0.0)
        return both if self.roles <= {""} and PROMPT in server.metrics else nan

    def is_silent(self, proof: Sequence[ServerReading]) -> bool:
        """Whether no request in the whole window is proven."""
        grown = {**self.grown, TOKENS: self.tokens}
        still = all(grown.get(each) == 0 if each in COUNTERS else self.highest.get(each) == 0 for each in proof)
        # What is read beside the proof may contradict it; that a server sleeps does not.
        others = [*self.grown.values(), *(self.highest.get(each, 0.0) for each in (RUNNING, WAITING))]
        is_complete = (self.coverage or 0.0) >= LEAST_COVERAGE and self.restarts == 0
        is_named_for_sure = not self.is_named_by_target
        return bool(proof) and still and is_complete and is_named_for_sure and all(value == 0 for value in others)


def make_server_pod(server: InferenceServer, pod: ServerPodName, values: ServerValues) -> ServerPod:
    return ServerPod(
        server.name,
        Container(pod.namespace, pod.pod, cluster=pod.cluster),
        requests=values.grown.get(REQUESTS, nan),
        tokens=values.tokens,
        served_tokens=values.count_served_tokens(server),
        # Beside counters that only grow at the end of a request, it would look as if a long one were not served.
        lowest_running=values.lowest.get(RUNNING, nan) if TOKENS in server.proof else nan,
        highest_running=values.highest.get(RUNNING, nan),
        highest_waiting=values.highest.get(WAITING, nan),
        asleep=values.lowest.get(ASLEEP, nan),
        is_silent=values.is_silent(server.proof),
    )


def join_duplicate_servers(servers: Iterable[ServerPod]) -> list[ServerPod]:
    """One entry for each server that several engines have: of each value the largest, and silent only if all say so."""
    found: dict[tuple[str, ServerPodName], ServerPod] = {}
    for one in servers:
        key = one.server, _name_pod(one.container)
        before = found.setdefault(key, one)
        if before is not one:
            largest: dict[str, Any] = {n: float(np.fmax(getattr(before, n), getattr(one, n))) for n in _VALUES}
            found[key] = replace(one, **largest, is_silent=before.is_silent and one.is_silent)
    return list(found.values())


_VALUES = ("requests", "tokens", "served_tokens", "lowest_running", "highest_running", "highest_waiting", "asleep")
_COLUMNS = (
    (Measure.REQUESTS, Stat.COUNT),
    (Measure.TOKENS, Stat.COUNT),
    (Measure.SERVED_TOKENS, Stat.COUNT),
    (Measure.RUNNING, Stat.LOWEST),
    (Measure.RUNNING, Stat.PEAK),
    (Measure.WAITING, Stat.PEAK),
    (Measure.ASLEEP, Stat.LOWEST),
    (Measure.SILENT, Stat.LOWEST),
)


def join_servers(table: UsageTable) -> UsageTable:
    """The values of the servers of each workload as columns, the same in all its rows; without servers the same
    table."""
    if not table.servers:
        return table
    pods = {_name_pod(one.container): one.container.workload_key for one in table.allocations}
    clusters = {pod.cluster for pod in pods}
    by_workload: defaultdict[WorkloadKey, list[ServerPod]] = defaultdict(list)
    for server in table.servers:
        one = server.container
        if len(clusters) == 1 and (not one.cluster or clusters == {""}):  # only one of the two names it
            one = replace(one, cluster=next(iter(clusters)))
        key = pods.get(_name_pod(one)) or one.workload_key
        by_workload[key].append(replace(server, container=one))
    held: defaultdict[WorkloadKey, set[ServerPodName]] = defaultdict(set)
    for pod, key in pods.items():
        held[key].add(pod)
    joined = {key: _join_pods(servers, held[key]) for key, servers in by_workload.items() if key in held}
    unknown = (nan,) * len(_COLUMNS)
    rows = [joined.get(pods[_name_pod(one.container)], unknown) for one in table.allocations]
    columns = np.array(rows, dtype=np.float64).reshape(len(rows), len(_COLUMNS)).T if joined else ()
    stats = {name: column for name, column in zip(_COLUMNS, columns, strict=False) if not np.isnan(column).all()}
    return replace(table, stats={**table.stats, **stats}, servers=())


def _join_pods(servers: Sequence[ServerPod], held: set[ServerPodName]) -> tuple[float, ...]:
    """The values of a workload, in the order of `_COLUMNS`. `held`: its pods with GPUs."""
    by_kind: defaultdict[str, list[ServerPod]] = defaultdict(list)
    for server in servers:
        by_kind[server.server].append(server)

    def add(name: str) -> float:
        """Over the pods. A router and the engines behind it count the same requests, as two kinds of server in one pod
        do: the largest sum counts."""
        sums = (_sum_known(getattr(one, name) for one in pods) for pods in by_kind.values())
        return max((value for value in sums if not isnan(value)), default=nan)

    counted = {_name_pod(one.container) for one in servers if not isnan(one.served_tokens)}
    all_count = all(pod in counted or _name_leader(pod) in counted for pod in held)
    own = {_name_pod(one.container) for one in servers if one.server in _PROVING}
    silent = {_name_pod(one.container) for one in servers if one.is_silent}
    silent -= {_name_pod(one.container) for one in servers if one.server in _PROVING and not one.is_silent}
    contradicts = any(one.has_demand for one in servers)
    proven = (pod in silent or (pod not in own and _name_leader(pod) in silent) for pod in held)
    is_silent = not contradicts and all(proven)
    asleep = [one.asleep for one in servers if not isnan(one.asleep)]
    sleeping = {_name_pod(one.container) for one in servers if one.asleep == 1}
    all_asleep = all(pod in sleeping or _name_leader(pod) in sleeping for pod in held) and min(asleep, default=0) == 1
    return (
        *(add(name) for name in ("requests", "tokens")),
        add("served_tokens") if all_count else nan,
        *(add(name) for name in ("lowest_running", "highest_running", "highest_waiting")),
        float(all_asleep) if asleep else nan,
        float(is_silent),
    )


def _sum_known(values: Iterable[float]) -> float:
    """NaN if none is known."""
    known = [value for value in values if not isnan(value)]
    return sum(known) if known else nan


def _name_pod(container: Container) -> ServerPodName:
    return ServerPodName(container.namespace, container.pod, container.cluster)


def _name_leader(pod: ServerPodName) -> ServerPodName:
    """The leader of `vllm-0-3` is `vllm-0`; without a number at the end there is none."""
    leader, _, number = pod.pod.rpartition("-")
    return pod._replace(pod=leader if number.isdecimal() else "")
