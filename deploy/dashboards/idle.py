"""Idle GPUs: who holds them, since when, what they cost, and which notices were sent."""

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards import frame
from deploy.dashboards.panels import BAD_WHEN_ABOVE_ZERO, Column, Panels, bars, chart, number, rows
from deploy.dashboards.promql import CLUSTER, NAMESPACE, latest

WORKLOAD = "cluster, namespace, workload_kind, workload"
SINCE = (
    f"max by ({WORKLOAD}, signature, proof) (gpusteward_analyzer_workload_idle_since_timestamp_seconds{{{NAMESPACE}}})"
)
GPUS = latest("gpusteward_analyzer_workload_idle_gpus", WORKLOAD, NAMESPACE)
COST = latest("gpusteward_analyzer_workload_idle_cost_per_hour", f"{WORKLOAD}, currency", NAMESPACE)
HELD = "gpusteward_analyzer_namespace_gpus"
IDLE = f'{NAMESPACE}, activity="idle"'
LINKS = {
    "Workload": frame.link_to(
        "gpusteward-workload",
        namespace="${__data.fields.namespace}",
        workload="${__data.fields.workload}",
    ),
    "Web UI": "${web_ui}/ui/",
}


def build() -> Dashboard:
    description = "Idle GPUs and low utilization: workloads, since when, cost, notices and what was given back."
    built = frame.begin("gpusteward-idle", description, [frame.cluster(), frame.namespace()], since="now-24h")
    built = frame.add(built, "Now", *_numbers())
    built = frame.add(built, "Idle workloads", _workloads(), *_charts())
    built = frame.add(built, "Low utilization and notices", _low(), *_notices())
    return frame.add(built, "Reclaim", *_reclaim())


def _numbers() -> Panels:
    yield number(
        "Idle GPUs",
        "A share of a GPU counts as a fraction.",
        f"sum({latest(HELD, 'cluster, namespace, activity', IDLE)})",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=1,
        width=5,
    )
    yield number(
        "Idle workloads",
        "Workloads that do not use any of their GPUs.",
        f"count({SINCE})",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=0,
        width=5,
    )
    yield number(
        "Workloads with idle GPUs",
        "Also those that use some of their GPUs.",
        f"count({GPUS})",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=0,
        width=5,
    )
    yield number(
        "Idle cost per hour",
        "Of idle GPUs with a price.",
        f"sum by (currency) ({COST})",
        legend="{{currency}}",
        steps=BAD_WHEN_ABOVE_ZERO,
        decimals=2,
        width=5,
    )
    yield number(
        "Longest idle",
        "Time since the workload that is idle for longest was last seen working.",
        f"max(time() - {SINCE})",
        unit="s",
        decimals=0,
    )


def _workloads() -> table.Panel:
    on = f"on ({WORKLOAD})"
    return rows(
        "Idle workloads by idle time",
        "Workloads that use none of their GPUs. Proof: integrated signals miss nothing, sampled ones can. "
        "An empty cell is unknown.",
        [
            f"time() - {SINCE}",
            f"{GPUS} and {on} {SINCE}",
            f"sum by ({WORKLOAD}) ({COST}) and {on} {SINCE}",
            f"sum by ({WORKLOAD}) ({COST}) * {on} (time() - max by ({WORKLOAD}) ({SINCE})) / 3600",
            f"{SINCE} * 1000",
        ],
        [
            Column("cluster", "Cluster"),
            Column("namespace", "Namespace"),
            Column("workload_kind", "Kind"),
            Column("workload", "Workload", links=LINKS),
            Column("Value #B", "GPUs", decimals=1),
            Column("Value #E", "Idle since", "dateTimeAsIso"),
            Column("Value #A", "Idle for", "s", 1),
            Column("Value #C", "Cost per hour", decimals=2),
            Column("Value #D", "Cost so far", decimals=2, colors=BAD_WHEN_ABOVE_ZERO),
            Column("signature", "Signature"),
            Column("proof", "Proof"),
        ],
        sort="Value #A",
        height=11,
    )


def _charts() -> Panels:
    yield chart(
        "Idle GPUs by namespace",
        "The ten namespaces with the most idle GPUs.",
        {f"topk(10, sum by (namespace) ({latest(HELD, 'cluster, namespace, activity', IDLE)}))": "{{namespace}}"},
        stacked=True,
        width=8,
    )
    for title, description, metric, label in (
        (
            "Allocations by signature",
            "Kind of use of each allocation, as the analyzer classifies it.",
            "gpusteward_analyzer_allocation_signatures",
            "signature",
        ),
        (
            "Idle allocations by proof",
            "Integrated signals miss no work, sampled ones can.",
            "gpusteward_analyzer_idle_allocations",
            "proof",
        ),
    ):
        expression = f"sort_desc(sum by ({label}) ({latest(metric, f'cluster, {label}', CLUSTER)}))"
        yield bars(title, description, expression, f"{{{{{label}}}}}")


def _low() -> table.Panel:
    by = "cluster, namespace, pod, hostname, gpu_id"
    score = f'max by ({by}, model, status) (gpu_utilization_score{{{NAMESPACE}, status=~"idle|low"}})'
    return rows(
        "Low-utilization GPUs",
        "Allocations with a score below the low threshold, 20 by default, or idle.",
        [
            score,
            f"{latest('gpu_core_utilization', by, NAMESPACE)} / 100 and on ({by}) {score}",
            f"{latest('gpu_memory_used_mb', by, NAMESPACE)} * 1048576 and on ({by}) {score}",
        ],
        [
            Column("namespace", "Namespace"),
            Column(
                "pod",
                "Pod",
                links={
                    "Workload": frame.link_to(
                        "gpusteward-workload", namespace="${__data.fields.namespace}", pod="${__value.text}"
                    )
                },
            ),
            Column(
                "hostname",
                "Node",
                links={"Node and its GPUs": frame.link_to("gpusteward-node", node="${__value.text}")},
            ),
            Column("gpu_id", "GPU"),
            Column("model", "Model"),
            Column("status", "State"),
            Column("Value #A", "Score", decimals=1),
            Column("Value #B", "Core utilization", "percentunit", 1),
            Column("Value #C", "Memory used", "bytes", 1),
        ],
        sort="Value #C",
    )


def _notices() -> Panels:
    sent = "gpusteward_analyzer_deliveries_total"
    workloads = latest("gpusteward_analyzer_workloads", "cluster, activity", CLUSTER)
    yield chart(
        "Notices, control calls and alerts",
        "Deliveries per second by kind and result. No data until the first one is due.",
        {f"sum by (kind, result) (rate({sent}[$__rate_interval]))": "{{kind}} {{result}}"},
        unit="ops",
    )
    yield chart(
        "Workloads by activity",
        "A workload is idle only if all its GPUs are.",
        {f"sum by (activity) ({workloads})": "{{activity}}"},
        stacked=True,
        colors={"active": "green", "idle": "orange", "unknown": "purple"},
    )


def _reclaim() -> Panels:
    """Empty in mode off."""
    decisions = latest("gpusteward_analyzer_reclaim_decisions", "cluster, outcome", CLUSTER)
    yield bars(
        "Decisions by outcome",
        "Workloads in the last plan: act and warn are due, wait lacks only time, refuse is forbidden by a guard.",
        f"sort_desc(sum by (outcome) ({decisions}))",
        "{{outcome}}",
    )
    yield chart(
        "Actions by outcome",
        "What happened in each hour: warned, acted, verified (GPUs free), restored, reverted by others, failed.",
        {
            f"sum by (outcome) (increase(gpusteward_analyzer_reclaim_actions_total{{{CLUSTER}}}[1h]))": "{{outcome}}",
        },
        width=8,
    )
    yield chart(
        "Actions by kind",
        "Objects that were suspended or scaled down in each hour, by kind.",
        {
            f'sum by (kind) (increase(gpusteward_analyzer_reclaim_actions_total{{{CLUSTER}, outcome="acted"}}[1h]))': (
                "{{kind}}"
            ),
        },
        width=8,
    )
