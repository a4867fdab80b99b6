"""The treaty, second part: what the analyzer exports. gpu-oour's names and labels first, then its own health."""

from gpusteward.core.metrics import Kind, Metric

HOLDER = ("gpu_id", "pod", "namespace", "hostname")
TENANT = ("gpu_id", "pod", "namespace")


def _of_seed(name: str, labels: tuple[str, ...], help_text: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(name, kind, help_text, labels, "gpu-oour")


def _own(name: str, labels: tuple[str, ...], help_text: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(f"gpusteward_analyzer_{name}", kind, help_text, labels, "analyzer")


SCORE = _of_seed(
    "gpu_utilization_score", (*HOLDER, "model", "status"), "Score of a GPU's use, 0 to 100; one status at a time."
)
CORE = _of_seed("gpu_core_utilization", HOLDER, "Mean core utilization (in %).")
MEMORY_USED = _of_seed("gpu_memory_used_mb", HOLDER, "Mean memory used (in MB).")
MEMORY_TOTAL = _of_seed("gpu_memory_total_mb", (*HOLDER, "model"), "Memory of the GPU (in MB).")
MEMORY_USAGE = _of_seed("gpu_memory_usage_percent", HOLDER, "Memory used against the total (in %).")
POWER = _of_seed("gpu_power_usage_watts", HOLDER, "Mean power drawn (in W).")
MEMORY_COPY = _of_seed("gpu_memory_copy_utilization", HOLDER, "Mean memory copy utilization (in %).")
SM_CLOCK = _of_seed("gpu_sm_clock_mhz", HOLDER, "Mean SM clock (in MHz).")

AI_CONFIDENCE = _of_seed(
    "gpu_ai_analysis_confidence", (*TENANT, "ai_status"), "Confidence of the model's opinion, 0 to 1."
)
AI_SCORE = _of_seed("gpu_ai_adjusted_score", TENANT, "Score, 0 to 100, raised to the model's where that is higher.")

TOTAL = _of_seed("gpu_total_count", (), "GPUs held by somebody.")
LOW = _of_seed("gpu_low_utilization_count", (), "GPUs whose score is below the low threshold, or that are idle.")
IDLE = _of_seed("gpu_idle_count", (), "GPUs whose state is idle.")
AVERAGE = _of_seed("gpu_average_score", (), "Mean score of all GPUs that could be scored.")
BY_STATUS = _of_seed("gpu_status_count", ("status",), "GPUs by state; unknown ones are counted as unknown.")
BY_NAMESPACE = _of_seed("gpu_namespace_count", ("namespace",), "GPUs by namespace.")
NAMESPACE_AVERAGE = _of_seed("gpu_namespace_average_score", ("namespace",), "Mean score by namespace.")

ANALYSES = _of_seed("gpu_analysis_total", (), "Cycles finished since the analyzer started.", Kind.COUNTER)
ANALYSIS_ERRORS = _of_seed("gpu_analysis_errors_total", (), "Cycles that could read nothing at all.", Kind.COUNTER)
ANALYSIS_SECONDS = _of_seed("gpu_analysis_duration_seconds", ("le",), "How long a cycle took.", Kind.HISTOGRAM)
SERVICE_INFO = _of_seed(
    "gpu_monitor_service_info",
    ("version", "threshold", "interval", "ai_enabled"),
    "The analyzer and its settings; always 1.",
)

BUILD_INFO = _own("build_info", ("version",), "Version of gpusteward; always 1.")
CYCLE_SECONDS = _own("last_cycle_duration_seconds", (), "How long the last cycle took.")
CYCLE_TIME = _own("last_cycle_timestamp_seconds", (), "When the last cycle ended, unix time.")
QUERIES = _own("queries_total", ("result",), "Queries sent to the engine by result: ok or failed.", Kind.COUNTER)
COVERAGE = _own("coverage_ratio", (), "Samples seen against samples expected, over all allocations.")
UNKNOWN = _own("unknown_allocations", ("reason",), "Allocations that could not be judged, by reason.")
ACTIVITY = _own("allocations", ("activity",), "Allocations by activity: active, idle, unknown.")
SIGNATURES = _own("allocation_signatures", ("signature",), "Allocations by signature.")
WORKLOADS = _own("workloads", ("activity",), "Workloads by activity: active, idle, unknown.")
MODEL_CALLS = _own("model_calls_total", ("result",), "Questions to the language model by result.", Kind.COUNTER)
MODEL_TOKENS = _own(
    "model_tokens_total", ("direction",), "Tokens sent to and got from the language model.", Kind.COUNTER
)
MODEL_COST = _own(
    "model_cost_total", (), "What the language model cost, in the currency of the settings.", Kind.COUNTER
)
SETTINGS_RELOADS = _own(
    "settings_reloads_total", ("result",), "Changes of the settings by result: ok or refused.", Kind.COUNTER
)

LEDGER_UP = _own("ledger_up", (), "Whether the books can be written; no sample where none are kept.")
LEDGER_BUFFERED = _own("ledger_buffered_cycles", (), "Cycles that wait to be booked.")
LEDGER_LOST = _own(
    "ledger_lost_cycles_total",
    (),
    "Cycles that could not be kept until they were booked, or that the database refused.",
    Kind.COUNTER,
)
DELIVERIES = _own(
    "deliveries_total",
    ("kind", "result"),
    "Notices, control calls and alerts by result: sent, failed (attempts), dead, refused.",
    Kind.COUNTER,
)
DELIVERIES_PENDING = _own("deliveries_pending", ("kind",), "What still waits to be delivered.")

ANALYZER_METRICS: tuple[Metric, ...] = tuple(row for row in tuple(vars().values()) if isinstance(row, Metric))
"""Every row above, for the reference page and the tests."""
