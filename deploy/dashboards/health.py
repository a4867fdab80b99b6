"""gpusteward itself: is the data recent and complete, and do agents and analyzer work without errors?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards import frame
from deploy.dashboards.panels import BAD_WHEN_ABOVE_ZERO, Column, Panels, chart, number, rows, share
from deploy.dashboards.promql import CLUSTER, NODE

MODEL_CALLS = "gpusteward_analyzer_model_calls_total"


def build() -> Dashboard:
    description = "Agents and analyzer: age and completeness of the data, errors, durations, ledger, deliveries, model."
    built = frame.begin("gpusteward-health", description, [frame.cluster(), frame.node()])
    built = frame.add(built, "Now", *_numbers())
    built = frame.add(built, "Analyzer: data", *_data())
    built = frame.add(built, "Analyzer: work", *_work())
    return frame.add(built, "Agents (gpusteward agent)", *_agents())


def _numbers() -> Panels:
    age, limit = "gpusteward_analyzer_result_age_seconds", "gpusteward_analyzer_result_max_age_seconds"
    yield number(
        "Age of the result",
        "Seconds since the end of the window of the last result.",
        f"min({age})",
        unit="s",
        decimals=0,
    )
    yield number(
        "Age / allowed age",
        "From 1 on the result is no longer exported.",
        f"min({age} / on (instance, job) {limit})",
        unit="percentunit",
        steps=((None, "green"), (0.7, "orange"), (1, "red")),
        decimals=0,
    )
    yield share(
        "Coverage",
        "Samples seen / samples expected, over all allocations.",
        f"avg(gpusteward_analyzer_coverage_ratio{{{CLUSTER}}})",
        steps=((None, "red"), (0.9, "green")),
    )
    yield number(
        "Unknown allocations",
        "Part of the allocations that could not be judged.",
        "max(gpusteward_analyzer_unknown_ratio)",
        unit="percentunit",
        steps=((None, "green"), (0.2, "orange"), (0.5, "red")),
        decimals=0,
    )
    yield number(
        "Ledger",
        "1 if the ledger can be written; no data where it is disabled.",
        "max(gpusteward_analyzer_ledger_up)",
        unit="bool_yes_no",
        steps=((None, "red"), (1, "green")),
    )
    yield number(
        "Agents",
        "Agents that report, by version.",
        f"count by (version) (gpusteward_build_info{{{CLUSTER}}})",
        legend="{{version}}",
        decimals=0,
    )


def _data() -> Panels:
    yield chart(
        "Age of the result and its limit",
        "It grows until the next cycle ends; above the limit the result is no longer exported.",
        {
            "min(gpusteward_analyzer_result_age_seconds)": "age",
            "max(gpusteward_analyzer_result_max_age_seconds)": "limit",
        },
        unit="s",
        width=8,
    )
    yield chart(
        "Unknown allocations by reason",
        "Why allocations could not be judged.",
        {f"max by (reason) (gpusteward_analyzer_unknown_allocations{{{CLUSTER}}})": "{{reason}}"},
        width=8,
        stacked=True,
    )
    yield chart(
        "Coverage by cluster",
        "Samples seen / samples expected, by cluster.",
        {f"max by (cluster) (gpusteward_analyzer_coverage_ratio{{{CLUSTER}}})": "coverage {{cluster}}"},
        unit="percentunit",
        high=1,
        width=8,
    )


def _work() -> Panels:
    cycle = "gpu_analysis_duration_seconds"
    yield chart(
        "Duration of a cycle",
        "From reading to publishing.",
        {
            "max(gpusteward_analyzer_last_cycle_duration_seconds)": "last cycle",
            f"histogram_quantile(0.95, sum by (le) (rate({cycle}_bucket[$__rate_interval])))": "95 % are shorter",
        },
        unit="s",
        width=8,
    )
    yield chart(
        "Cycles",
        "Finished and failed cycles per second; a failed cycle could read nothing.",
        {
            "sum(rate(gpu_analysis_total[$__rate_interval]))": "finished",
            "sum(rate(gpu_analysis_errors_total[$__rate_interval]))": "failed",
        },
        unit="ops",
        width=8,
        colors={"finished": "green", "failed": "red"},
    )
    yield chart(
        "Queries to the engine",
        "Queries per second by result.",
        {"sum by (result) (rate(gpusteward_analyzer_queries_total[$__rate_interval]))": "{{result}}"},
        unit="ops",
        width=8,
    )
    asked = f'sum(rate({MODEL_CALLS}{{result!="recalled"}}[$__rate_interval]))'
    success = f'sum(rate({MODEL_CALLS}{{result="ok"}}[$__rate_interval])) / ({asked} > 0)'
    yield chart(
        "AI analysis success rate",
        "Requests to the language model that gave an opinion / all requests. No data while none is sent.",
        {success: "success rate"},
        unit="percentunit",
        high=1,
        width=8,
    )
    yield chart(
        "Deliveries waiting, cycles not recorded",
        "Notices, control calls and alerts that wait, and cycles that wait for the ledger.",
        {
            "max(gpusteward_analyzer_ledger_buffered_cycles)": "cycles",
            "max by (kind) (gpusteward_analyzer_deliveries_pending)": "{{kind}}",
        },
        width=8,
    )
    yield chart(
        "Refused requests and settings, lost cycles",
        "Requests whose sender was refused, refused changes of the settings, cycles lost before they were recorded; "
        "per second.",
        {
            "sum(rate(gpusteward_analyzer_refused_requests_total[$__rate_interval]))": "requests",
            'sum(rate(gpusteward_analyzer_settings_reloads_total{result="refused"}[$__rate_interval]))': "settings",
            "sum(rate(gpusteward_analyzer_ledger_lost_cycles_total[$__rate_interval]))": "lost cycles",
        },
        unit="ops",
        width=8,
    )


def _agents() -> Panels:
    yield chart(
        "Age of the data",
        "Time since the last collection; above three intervals the agent exports only what is still true.",
        {f"topk(10, max by (node) (gpusteward_snapshot_age_seconds{{{NODE}}}))": "{{node}}"},
        unit="s",
        width=8,
    )
    yield chart(
        "Collection cycles",
        "Cycles per second of each agent; one every five seconds by default.",
        {f"bottomk(10, sum by (node) (rate(gpusteward_cycles_total{{{NODE}}}[$__rate_interval])))": "{{node}}"},
        unit="ops",
        width=8,
    )
    yield chart(
        "Duration by collector",
        "The slowest node of each collector.",
        {f"max by (collector) (gpusteward_collector_duration_seconds{{{NODE}}})": "{{collector}}"},
        unit="s",
        width=8,
    )
    yield rows(
        "Collectors",
        "Collectors of each agent. A failing collector costs its own series only.",
        [
            f"min by (cluster, node, collector) (gpusteward_collector_success{{{NODE}}})",
            f"sum by (cluster, node, collector) (increase(gpusteward_collector_errors_total{{{NODE}}}[$__range]))",
            f"max by (cluster, node, collector) (gpusteward_collector_duration_seconds{{{NODE}}})",
        ],
        [
            Column("cluster", "Cluster"),
            Column(
                "node", "Node", links={"Node and its GPUs": frame.link_to("gpusteward-node", node="${__value.text}")}
            ),
            Column("collector", "Collector"),
            Column("Value #A", "Works", "bool_yes_no", colors=((None, "red"), (1, "green"))),
            Column("Value #B", "Errors in the time range", decimals=0, colors=BAD_WHEN_ABOVE_ZERO),
            Column("Value #C", "Duration", "s", 3),
        ],
        sort="Value #B",
    )
