"""All clusters at a glance: GPUs in use, idle, unknown, free and effective, utilization, cost, scores of gpu-oour."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards import frame
from deploy.dashboards.panels import (
    ACTIVITY_COLORS,
    BAD_WHEN_ABOVE_ZERO,
    Panels,
    bars,
    chart,
    distribution,
    number,
    share,
)
from deploy.dashboards.promql import ANY_DEVICE, CLUSTER, busy_per_device, gpus, latest, per_gpu

COST_BY = "cluster, namespace, activity, currency"
COST = "gpusteward_analyzer_namespace_cost_per_hour"
EFFECTIVE = "Effective: active without what is shown to be of no use; an upper bound, not MFU."


def build() -> Dashboard:
    description = "GPUs of all clusters: held, idle, unknown, free and effective; utilization, power and cost."
    built = frame.begin("gpusteward-cluster", description, [frame.cluster()])
    built = frame.add(built, "Now", *_numbers())
    built = frame.add(built, "From all GPUs to effective ones", *_funnel())
    built = frame.add(built, "GPUs", *_gpus())
    return frame.add(built, "Scores", *_scores())


def _numbers() -> Panels:
    yield number("GPUs", "All GPUs, allocated or not. A GPU with MIG is one GPU.", gpus(), decimals=0)
    yield share(
        "Allocated",
        "GPUs that a container holds / all GPUs. A share of a GPU counts as a fraction.",
        f"{gpus('active|idle|unknown')} / {gpus()}",
    )
    yield number(
        "Idle GPUs",
        "GPUs whose holder has not used them in the whole window of the last result.",
        gpus("idle"),
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=1,
    )
    yield number(
        "Unknown GPUs",
        "GPUs that could not be judged, mostly for lack of samples. They count neither as used nor as idle.",
        gpus("unknown"),
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=1,
    )
    idle = f'{CLUSTER}, activity="idle"'
    yield number(
        "Idle cost per hour",
        "Cost of the idle GPUs per hour. GPUs of a namespace are not included if one of them has no price.",
        f"sum by (currency) ({latest(COST, COST_BY, idle)})",
        legend="{{currency}}",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=2,
    )
    yield share(
        "Mean utilization",
        "Mean of all GPUs and MIG instances, allocated or not: share of time in which a kernel ran.",
        f"avg({busy_per_device(ANY_DEVICE)})",
    )


def _funnel() -> Panels:
    """Ineffective GPUs and their cost are parts of active ones."""
    effective = f"sum({latest('gpusteward_analyzer_effective_gpus', 'cluster', CLUSTER)})"
    ineffective = latest("gpusteward_analyzer_namespace_ineffective_gpus", "cluster, namespace", CLUSTER)
    by = "cluster, namespace, currency"
    lost = f"sum by (currency) ({latest('gpusteward_analyzer_namespace_ineffective_cost_per_hour', by, CLUSTER)})"
    known = "GPUs of a namespace are not included if one of them has no price."
    yield share("Effective share", f"Effective GPUs / all GPUs. {EFFECTIVE}", f"{effective} / {gpus()}", width=8)
    yield number(
        "Ineffective GPUs",
        "Active GPUs whose work is shown to be of no use: stalled, keep-alive, or ranks that spin without requests.",
        f"sum({ineffective})",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=1,
        width=8,
    )
    yield number(
        "Ineffective cost per hour",
        f"Cost of the ineffective GPUs per hour. {known}",
        lost,
        legend="{{currency}}",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=2,
        width=8,
    )
    yield chart(
        "Total, allocated, active and effective GPUs",
        f"Each is a part of the one before. {EFFECTIVE}",
        {gpus(): "total", gpus("active|idle|unknown"): "allocated", gpus("active"): "active", effective: "effective"},
    )
    active = f'{CLUSTER}, activity="active"'
    cost = f"sum by (currency) ({latest(COST, COST_BY, active)})"
    yield chart(
        "Cost per hour of allocated, active and effective GPUs",
        f"Each is a part of the one before. {known}",
        {
            f"sum by (currency) ({latest(COST, COST_BY, CLUSTER)})": "allocated {{currency}}",
            cost: "active {{currency}}",
            f"{cost} - {lost}": "effective {{currency}}",
        },
    )


def _gpus() -> Panels:
    yield chart(
        "GPUs by activity",
        "Verdicts of the analyzer. Unallocated GPUs are held by no container.",
        {f"sum by (activity) ({latest('gpusteward_analyzer_gpus', 'cluster, activity', CLUSTER)})": "{{activity}}"},
        stacked=True,
        colors=ACTIVITY_COLORS,
    )
    yield chart(
        "Utilization by GPU model",
        "Mean of all GPUs and MIG instances of a model: share of time in which a kernel ran.",
        {f"avg by (modelName) ({busy_per_device(ANY_DEVICE)})": "{{modelName}}"},
        unit="percentunit",
        high=1,
    )
    yield bars(
        "GPUs by model",
        "Number of GPUs that report, by model.",
        f"sort_desc(count by (modelName) (count by (cluster, Hostname, hostname, gpu, modelName) "
        f'({{__name__=~"DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_USED_BYTES", {ANY_DEVICE}}})))',
        "{{modelName}}",
    )
    yield chart(
        "Power by cluster",
        "Power drawn by all boards.",
        {f"sum by (cluster) ({per_gpu('power_watts', ANY_DEVICE)})": "power {{cluster}}"},
        unit="watt",
        width=8,
    )
    yield chart(
        "Cost per hour by activity",
        "Cost of the GPUs that containers hold. Namespaces are not included where a price is unknown.",
        {f"sum by (activity, currency) ({latest(COST, COST_BY, CLUSTER)})": "{{activity}}"},
        width=8,
        stacked=True,
        colors=ACTIVITY_COLORS,
    )


def _scores() -> Panels:
    score = latest("gpu_utilization_score", "cluster, namespace, pod, gpu_id, container", CLUSTER)
    yield distribution(
        "GPU score distribution",
        "Number of allocations by score, 0 to 100: half core utilization, then memory traffic, memory and power.",
        score,
        unit="short",
        bucket=10,
        width=12,
    )
    yield chart(
        "Score trend",
        "Mean score of all allocations, and of the best and the worst tenth.",
        {
            f"avg({score})": "mean",
            f"quantile(0.9, {score})": "90 % are below",
            f"quantile(0.1, {score})": "10 % are below",
        },
        high=100,
        steps=((None, "red"), (10, "orange"), (20, "green")),
    )
