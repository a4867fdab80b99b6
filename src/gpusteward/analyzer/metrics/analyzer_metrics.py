"""Every metric that the analyzer exports: those of gpu-oour under its names and labels, then its own."""

from gpusteward.core.metrics import Metric, MetricType

HOLDER = ("gpu_id", "pod", "namespace", "hostname")
TENANT = ("gpu_id", "pod", "namespace")
WORKLOAD = ("namespace", "workload_kind", "workload")
_CREATED = "When this began to count, unix time; in OpenMetrics a sample of the metric itself."


def _gpu_oour(name: str, labels: tuple[str, ...], help_text: str, kind: MetricType = MetricType.GAUGE) -> Metric:
    return Metric(name, kind, help_text, labels, "gpu-oour")


def _own(name: str, labels: tuple[str, ...], help_text: str, kind: MetricType = MetricType.GAUGE) -> Metric:
    return Metric(f"gpusteward_analyzer_{name}", kind, help_text, labels, "analyzer")


SCORE = _gpu_oour(
    "gpu_utilization_score", (*HOLDER, "model", "status"), "Score of a GPU's use, 0 to 100; one status at a time."
)
CORE = _gpu_oour("gpu_core_utilization", HOLDER, "Mean core utilization (in %).")
MEMORY_USED = _gpu_oour("gpu_memory_used_mb", HOLDER, "Mean memory used (in MB).")
MEMORY_TOTAL = _gpu_oour("gpu_memory_total_mb", (*HOLDER, "model"), "Memory of the GPU (in MB).")
MEMORY_USAGE = _gpu_oour("gpu_memory_usage_percent", HOLDER, "Memory used / total (in %).")
POWER = _gpu_oour("gpu_power_usage_watts", HOLDER, "Mean power drawn (in W).")
MEMORY_COPY = _gpu_oour("gpu_memory_copy_utilization", HOLDER, "Mean memory copy utilization (in %).")
SM_CLOCK = _gpu_oour("gpu_sm_clock_mhz", HOLDER, "Mean SM clock (in MHz).")

AI_CONFIDENCE = _gpu_oour(
    "gpu_ai_analysis_confidence", (*TENANT, "ai_status"), "Confidence of the model's opinion, 0 to 1."
)
AI_SCORE = _gpu_oour("gpu_ai_adjusted_score", TENANT, "Score, 0 to 100, raised to the model's where that is higher.")

TOTAL = _gpu_oour("gpu_total_count", (), "Allocations (a container on a GPU) that have a score.")
LOW = _gpu_oour("gpu_low_utilization_count", (), "Allocations with a score below the low threshold, or idle.")
IDLE = _gpu_oour("gpu_idle_count", (), "Allocations whose state is idle: a low score or no work.")
AVERAGE = _gpu_oour("gpu_average_score", (), "Mean score of all allocations that have one.")
BY_STATUS = _gpu_oour("gpu_status_count", ("status",), "Allocations by state; those without a score are unknown.")
BY_NAMESPACE = _gpu_oour("gpu_namespace_count", ("namespace",), "Allocations that have a score, by namespace.")
NAMESPACE_AVERAGE = _gpu_oour("gpu_namespace_average_score", ("namespace",), "Mean score by namespace.")

ANALYSES = _gpu_oour("gpu_analysis_total", (), "Cycles finished since the analyzer started.", MetricType.COUNTER)
ANALYSES_CREATED = _gpu_oour("gpu_analysis_created", (), _CREATED, MetricType.CREATED)
ANALYSIS_ERRORS = _gpu_oour(
    "gpu_analysis_errors_total", (), "Cycles that failed: nothing could be read.", MetricType.COUNTER
)
ANALYSIS_ERRORS_CREATED = _gpu_oour("gpu_analysis_errors_created", (), _CREATED, MetricType.CREATED)
ANALYSIS_SECONDS = _gpu_oour("gpu_analysis_duration_seconds", ("le",), "Duration of a cycle.", MetricType.HISTOGRAM)
ANALYSIS_SECONDS_CREATED = _gpu_oour("gpu_analysis_duration_seconds_created", (), _CREATED, MetricType.CREATED)
SERVICE_INFO = _gpu_oour(
    "gpu_monitor_service_info",
    ("version", "threshold", "interval", "ai_enabled"),
    "The analyzer and its settings; always 1.",
)

BUILD_INFO = _own("build_info", ("version",), "Version of gpusteward; always 1.")
CYCLE_SECONDS = _own("last_cycle_duration_seconds", (), "Duration of the last cycle.")
CYCLE_TIME = _own("last_cycle_timestamp_seconds", (), "End of the last successful cycle, unix time.")
RESULT_TIME = _own("result_timestamp_seconds", (), "Time of the last result: the end of its window, unix time.")
RESULT_AGE = _own("result_age_seconds", (), "Age of the last result.")
RESULT_MAX_AGE = _own("result_max_age_seconds", (), "Age from which a result is no longer exported.")
UNKNOWN_RATIO = _own("unknown_ratio", (), "Allocations that could not be judged / all allocations of the last result.")
FINDINGS = _own(
    "data_findings",
    ("level", "code"),
    "What is wrong with the data of the whole site, as in /health; always 1. Levels: degraded, warning, info.",
)
TARGETS = _own("scrape_targets", ("state",), "Targets of the embedded source by their last scrape: up, down.")
QUERIES = _own("queries_total", ("result",), "Queries sent to the engine by result: ok or failed.", MetricType.COUNTER)
COVERAGE = _own("coverage_ratio", (), "Samples seen / samples expected, over all allocations.")
UNKNOWN = _own("unknown_allocations", ("reason",), "Allocations that could not be judged, by reason.")
ACTIVITY = _own("allocations", ("activity",), "Allocations (a container on a GPU) by activity: active, idle, unknown.")
GPUS = _own(
    "gpus",
    ("activity",),
    "GPUs by activity: active, idle, unknown, unallocated. A share of a GPU is a fraction; the sum is the fleet.",
)
NAMESPACE_GPUS = _own(
    "namespace_gpus", ("namespace", "activity"), "GPUs held by a namespace; a share of a GPU is a fraction."
)
NAMESPACE_COST = _own(
    "namespace_cost_per_hour",
    ("namespace", "activity", "currency"),
    "Cost of the GPUs held by a namespace, per hour; no sample where the price of one of them is unknown.",
)
EFFECTIVE_GPUS = _own(
    "effective_gpus",
    (),
    "Active GPUs without those whose work is shown to be of no use (stalled, keep-alive with witnesses, ranks that "
    "spin without requests): an upper bound, not MFU.",
)
NAMESPACE_INEFFECTIVE_GPUS = _own(
    "namespace_ineffective_gpus",
    ("namespace",),
    "Active GPUs held by a namespace whose work is shown to be of no use; a share of a GPU is a fraction.",
)
NAMESPACE_INEFFECTIVE_COST = _own(
    "namespace_ineffective_cost_per_hour",
    ("namespace", "currency"),
    "Cost of these GPUs per hour, a part of that of active ones; no sample where the price of one of them is unknown.",
)
WORKLOAD_TOKEN_COST = _own(
    "workload_cost_per_million_tokens",
    (*WORKLOAD, "currency"),
    "Cost of the GPUs that a workload holds, per million tokens that its inference servers read and generated in the "
    "window; no sample without tokens, where one of its servers does not count them, or without a price.",
)
SIGNATURES = _own("allocation_signatures", ("signature",), "Allocations by signature.")
PROOFS = _own("idle_allocations", ("proof",), "Idle allocations by proof: integrated, sampled.")
WORKLOADS = _own("workloads", ("activity",), "Workloads by activity: active, idle, unknown.")
WORKLOAD_IDLE_SINCE = _own(
    "workload_idle_since_timestamp_seconds",
    (*WORKLOAD, "signature", "proof"),
    "Since when all GPUs of a workload are idle, unix time; idle workloads only.",
)
WORKLOAD_IDLE_GPUS = _own(
    "workload_idle_gpus", WORKLOAD, "Idle GPUs of a workload that has some; a share of a GPU is a fraction."
)
WORKLOAD_IDLE_COST = _own(
    "workload_idle_cost_per_hour",
    (*WORKLOAD, "currency"),
    "Cost of the idle GPUs of a workload, per hour; no sample where the price of one of them is unknown.",
)
MODEL_CALLS = _own("model_calls_total", ("result",), "Requests to the language model by result.", MetricType.COUNTER)
MODEL_TOKENS = _own(
    "model_tokens_total", ("direction",), "Tokens sent to and received from the language model.", MetricType.COUNTER
)
MODEL_COST = _own(
    "model_cost_total", (), "Cost of the language model in the currency of the settings.", MetricType.COUNTER
)
SETTINGS_RELOADS = _own(
    "settings_reloads_total", ("result",), "Changes of the settings by result: ok or refused.", MetricType.COUNTER
)
REFUSED_REQUESTS = _own(
    "refused_requests_total",
    ("reason",),
    "Requests whose sender was refused, by reason: unknown_token, invalid_token, no_keys, not_a_proxy, invalid_header, "
    "no_rule, cross_site.",
    MetricType.COUNTER,
)

LEADER = _own("leader", (), "Whether this analyzer records and notifies; 0: another one on the same ledger does.")
LEDGER_UP = _own("ledger_up", (), "Whether the ledger can be written; no sample where it is disabled.")
LEDGER_BUFFERED = _own("ledger_buffered_cycles", (), "Cycles that wait to be recorded.")
LEDGER_LOST = _own(
    "ledger_lost_cycles_total",
    (),
    "Cycles that were lost before they could be recorded: the buffer was full or the database refused them.",
    MetricType.COUNTER,
)
DELIVERIES = _own(
    "deliveries_total",
    ("kind", "result"),
    "Notices, control calls and alerts by result: sent, failed (attempts), dead, refused, superseded (not sent).",
    MetricType.COUNTER,
)
DELIVERIES_PENDING = _own("deliveries_pending", ("kind",), "Deliveries that are waiting.")

LENDABLE_GPUS = _own(
    "lendable_gpus",
    ("horizon", "model"),
    "Idle GPUs that nobody will need for 1h, 4h or until morning with a probability of at least 0.9.",
)
LENDABLE_EXPECTED_GPUS = _own(
    "lendable_expected_gpus",
    ("horizon", "model"),
    "Idle GPUs, weighted with the probability that nobody will need them for 1h, 4h or until morning.",
)
RECLAIM_INFO = _own("reclaim_info", ("mode",), "The mode of reclaim: off, observe or enforce; the value is 1.")
RECLAIM_STOPPED = _own(
    "reclaim_stopped",
    (),
    "Whether nothing is done: reclaim is switched off, the Lease belongs to another analyzer or cannot be renewed, or "
    "there is no policy file that can be used.",
)
RECLAIM_DECISIONS = _own(
    "reclaim_decisions", ("outcome",), "Workloads by the outcome of the last plan: act, warn, wait, refuse, nothing."
)
RECLAIM_HOST_REFUSALS = _own(
    "reclaim_host_refusals",
    ("signal",),
    "Workloads that the last plan would have warned about or acted on but for what their pods do on their hosts, by "
    "signal: cpu, disk, network.",
)
RECLAIM_ACTIONS = _own(
    "reclaim_actions_total",
    ("kind", "outcome"),
    "What happened to actions, by kind of object: warned, acted, verified (GPUs free), failed, refused, restored, "
    "reverted (changed back by something else), ended, dry_run, conflict, no_effect.",
    MetricType.COUNTER,
)
RECLAIM_SUSPENDED = _own(
    "reclaim_suspended",
    (),
    "Objects that reclaim has changed and not restored yet; in every mode. Absent in replicas that do not act.",
)
RECLAIM_SUSPENDED_GPUS = _own("reclaim_suspended_gpus", (), "The GPUs that these objects gave back.")
RECLAIM_POLICIES_VALID = _own(
    "reclaim_policies_valid",
    (),
    "Whether the policy file can be used; while it is 0, nothing new is warned of or done. Absent in mode off without "
    "a file.",
)
RECLAIM_POLICY_RELOADS = _own(
    "reclaim_policy_reloads_total",
    ("result",),
    "Changes of the policy file by result: ok or refused.",
    MetricType.COUNTER,
)

ANALYZER_METRICS: tuple[Metric, ...] = tuple(row for row in tuple(vars().values()) if isinstance(row, Metric))
"""Every metric above, for the reference page and the tests."""
