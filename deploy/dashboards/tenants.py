"""Namespaces: what they hold, how much of it is idle, what it costs."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards import frame
from deploy.dashboards.panels import BAD_WHEN_ABOVE_ZERO, NEUTRAL, Column, Panels, bars_by_activity, chart, number, rows
from deploy.dashboards.promql import NAMESPACE, latest, over_range

BY = "cluster, namespace, activity"
COST_BY = f"{BY}, currency"
GPUS, COST = "gpusteward_analyzer_namespace_gpus", "gpusteward_analyzer_namespace_cost_per_hour"
INEFFECTIVE = "gpusteward_analyzer_namespace_ineffective_gpus"
IDLE = f'{NAMESPACE}, activity="idle"'
WORKLOADS = {"Workloads": frame.link_to("gpusteward-workload", namespace="${__value.text}")}


def build() -> Dashboard:
    description = "GPUs and cost of each namespace. Prices are set in the analyzer; without them there is no cost."
    built = frame.begin("gpusteward-tenants", description, [frame.cluster(), frame.namespace()], since="now-24h")
    built = frame.add(built, "Now", *_numbers())
    built = frame.add(built, "Namespaces", *_namespaces())
    return frame.add(built, "Over time", *_charts())


def _numbers() -> Panels:
    yield number(
        "GPUs held", "A share of a GPU counts as a fraction.", f"sum({latest(GPUS, BY, NAMESPACE)})", decimals=1
    )
    yield number(
        "Idle GPUs",
        "GPUs that their holder has not used in the whole window of the last result.",
        f"sum({latest(GPUS, BY, IDLE)})",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=1,
    )
    cost, idle = latest(COST, COST_BY, NAMESPACE), latest(COST, COST_BY, IDLE)
    known = "Namespaces are not included where the price of a GPU is unknown."
    for title, description, expression, steps in (
        ("Cost per hour", f"Of all GPUs held. {known}", cost, NEUTRAL),
        ("Idle cost per hour", f"Of the idle GPUs. {known}", idle, BAD_WHEN_ABOVE_ZERO),
    ):
        total = f"sum by (currency) ({expression})"
        yield number(title, description, total, legend="{{currency}}", decimals=2, steps=steps)
    for title, expression, steps in (
        ("Cost in the time range", cost, NEUTRAL),
        ("Idle cost in the time range", idle, BAD_WHEN_ABOVE_ZERO),
    ):
        description = f"Cost per hour, added up over the time range. {known} Reports of the analyzer are exact."
        total = over_range(f"sum by (currency) ({expression})")
        yield number(title, description, total, legend="{{currency}}", decimals=0, steps=steps, instant=True)


def _namespaces() -> Panels:
    yield bars_by_activity(
        "GPUs by namespace",
        "GPUs that each namespace holds, by activity.",
        f"sum by (namespace, activity) ({latest(GPUS, BY, NAMESPACE)})",
        "namespace",
    )
    yield bars_by_activity(
        "Cost per hour by namespace",
        "Cost of the GPUs that each namespace holds, by activity; no bar where a price is unknown.",
        f"sum by (namespace, activity) ({latest(COST, COST_BY, NAMESPACE)})",
        "namespace",
    )
    by = "sum by (cluster, namespace)"
    yield rows(
        "Namespaces",
        "Everything about each namespace. An empty cell is unknown.",
        [
            f"{by} ({latest(GPUS, BY, NAMESPACE)})",
            f"{by} ({latest(GPUS, BY, IDLE)})",
            f"{by} ({latest(GPUS, BY, IDLE)}) / ({by} ({latest(GPUS, BY, NAMESPACE)}) > 0)",
            f"max by (cluster, namespace) (gpu_namespace_average_score{{{NAMESPACE}}})",
            f"{by} ({latest(COST, COST_BY, NAMESPACE)})",
            f"{by} ({latest(COST, COST_BY, IDLE)})",
            over_range(f"{by} ({latest(COST, COST_BY, NAMESPACE)})"),
            f"{by} ({latest(INEFFECTIVE, 'cluster, namespace', NAMESPACE)})",
        ],
        [
            Column("cluster", "Cluster"),
            Column("namespace", "Namespace", links=WORKLOADS),
            Column("Value #A", "GPUs", decimals=1),
            Column("Value #B", "Idle GPUs", decimals=1, colors=BAD_WHEN_ABOVE_ZERO),
            Column("Value #H", "Ineffective GPUs", decimals=1, colors=BAD_WHEN_ABOVE_ZERO),
            Column("Value #C", "Idle share", "percentunit", 0),
            Column("Value #D", "Mean score", decimals=0),
            Column("Value #E", "Cost per hour", decimals=2),
            Column("Value #F", "Idle cost per hour", decimals=2, colors=BAD_WHEN_ABOVE_ZERO),
            Column("Value #G", "Cost in the time range", decimals=0),
        ],
        sort="Value #F",
    )


def _charts() -> Panels:
    yield chart(
        "GPUs held by namespace",
        "The ten largest namespaces. A share of a GPU counts as a fraction.",
        {f"topk(10, sum by (namespace) ({latest(GPUS, BY, NAMESPACE)}))": "{{namespace}}"},
        stacked=True,
    )
    yield chart(
        "Idle cost per hour by namespace",
        "The ten namespaces whose idle GPUs cost most.",
        {f"topk(10, sum by (namespace, currency) ({latest(COST, COST_BY, IDLE)}))": "{{namespace}} {{currency}}"},
        stacked=True,
    )
    yield chart(
        "Mean score by namespace",
        "Score of gpu-oour, 0 to 100, as a mean of the allocations of a namespace.",
        {f"max by (cluster, namespace) (gpu_namespace_average_score{{{NAMESPACE}}})": "{{namespace}}"},
        high=100,
    )
    power = "gpusteward_use_power_estimated_watts"
    yield chart(
        "Power by namespace (gpusteward agent)",
        "Power of the GPUs, divided among their holders by utilization: an estimate.",
        {f'sum by (namespace) ({power}{{{NAMESPACE}, by="container"}})': "{{namespace}}"},
        unit="watt",
        stacked=True,
    )
