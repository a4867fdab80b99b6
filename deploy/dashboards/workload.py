"""One workload: its pods on their GPUs, also on shared ones."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards import frame
from deploy.dashboards.panels import GOOD_WHEN_HIGH, Column, Panels, chart, number, rows, share
from deploy.dashboards.promql import HOLDER, held, latest, used_by_pod

NAME = "{{pod}} on {{node}} GPU {{gpu}}"
ALLOCATION_BY = "cluster, namespace, pod, container, node, gpu, uuid, mig_profile, share, workload_kind, workload"
ON_ALLOCATION = "cluster, namespace, pod, container, node, gpu, uuid"
CORE_BY = "cluster, namespace, pod, gpu_id, hostname"
SCORE_BY = f"{CORE_BY}, model"


def build() -> Dashboard:
    description = "One workload or pod: utilization, memory, Tensor Cores and power of its GPUs, and its score."
    variables = [frame.cluster(), frame.holder_namespace(), frame.workload(), frame.pod()]
    built = frame.begin("gpusteward-workload", description, variables)
    built = frame.add(built, "Now", *_numbers())
    built = frame.add(built, "Use", *_charts())
    return frame.add(built, "Allocations and processes (gpusteward agent)", *_tables())


def _numbers() -> Panels:
    use, memory = (
        used_by_pod("gpusteward_use_utilization_ratio", "utilization_ratio"),
        used_by_pod("gpusteward_use_memory_bytes", "memory_used_bytes"),
    )
    power = used_by_pod("gpusteward_use_power_estimated_watts", "power_watts")
    yield number("Pods", "Pods that hold a GPU.", f"count(count by (namespace, pod) ({memory}))", decimals=0)
    yield number(
        "GPUs", "GPUs that the pods hold, whole or shared.", f"count(count by (node, gpu) ({memory}))", decimals=0
    )
    yield share(
        "Utilization", "Mean of the pods and GPUs: share of time in which a kernel of the pod ran.", f"avg({use})"
    )
    yield number("Memory used", "GPU memory of all pods.", f"sum({memory})", unit="bytes")
    yield number(
        "Power",
        "Power of the GPUs; on shared GPUs divided among the holders, an estimate.",
        f"sum({power})",
        unit="watt",
    )
    yield number(
        "Score",
        "Mean score of the allocations, 0 to 100; below 10 idle, below 20 low.",
        f"avg({latest('gpu_utilization_score', SCORE_BY, HOLDER)})",
        steps=((None, "red"), (10, "orange"), (20, "green")),
        decimals=0,
    )


def _charts() -> Panels:
    yield chart(
        "Utilization by pod",
        "Share of time in which a kernel of the pod ran; without the gpusteward agent that of its whole GPU.",
        {used_by_pod("gpusteward_use_utilization_ratio", "utilization_ratio"): NAME},
        unit="percentunit",
        high=1,
    )
    yield chart(
        "Memory used by pod",
        "GPU memory of the pod; without the gpusteward agent that of its whole GPU.",
        {used_by_pod("gpusteward_use_memory_bytes", "memory_used_bytes"): NAME},
        unit="bytes",
    )
    held_gpus = latest("gpusteward_allocation_info", "cluster, namespace, pod, node, gpu, uuid", HOLDER)
    tensor = (
        "max by (cluster, namespace, pod, node, gpu) "
        "(max by (cluster, node, uuid) (gpusteward_gpu_tensor_active_ratio) "
        f"* on (cluster, node, uuid) group_right () {held_gpus})"
    )
    yield chart(
        "Tensor Core activity",
        "Share of cycles in which the tensor pipe of the GPU was active; on a shared GPU by all its holders together.",
        {f"{tensor} or on (namespace, pod) {held('tensor_ratio')}": NAME},
        unit="percentunit",
        high=1,
    )
    yield chart(
        "Power by pod",
        "Power of the GPU; on shared GPUs divided among the holders, an estimate.",
        {used_by_pod("gpusteward_use_power_estimated_watts", "power_watts"): NAME},
        unit="watt",
    )
    yield chart(
        "Score by allocation",
        "Score of gpu-oour, 0 to 100, of each allocation.",
        {latest("gpu_utilization_score", SCORE_BY, HOLDER): "{{pod}} {{gpu_id}}"},
        high=100,
        steps=((None, "red"), (10, "orange"), (20, "green")),
    )
    yield chart(
        "Core utilization of the analyzed window",
        "Mean over the window of each result: what the verdict is based on.",
        {f"{latest('gpu_core_utilization', CORE_BY, HOLDER)} / 100": "{{pod}} {{gpu_id}}"},
        unit="percentunit",
        high=1,
    )


def _tables() -> Panels:
    own = f'{HOLDER}, by="container"'
    yield rows(
        "Allocations",
        "GPUs of each container: how they are shared, limits and use. An empty cell is unknown or has no limit.",
        [
            latest("gpusteward_allocation_info", ALLOCATION_BY, HOLDER),
            f"max by ({ON_ALLOCATION}) (gpusteward_use_utilization_ratio{{{own}}})",
            f"max by ({ON_ALLOCATION}) (gpusteward_use_memory_bytes{{{own}}})",
            f"max by ({ON_ALLOCATION}) (gpusteward_allocation_memory_limit_bytes{{{HOLDER}}})",
            f"time() - max by ({ON_ALLOCATION}) (gpusteward_allocation_start_time_seconds{{{HOLDER}}})",
        ],
        [
            Column("workload", "Workload"),
            Column("pod", "Pod"),
            Column("container", "Container"),
            Column(
                "node", "Node", links={"Node and its GPUs": frame.link_to("gpusteward-node", node="${__value.text}")}
            ),
            Column("gpu", "GPU"),
            Column("mig_profile", "MIG profile"),
            Column("share", "Share"),
            Column("Value #B", "Utilization", "percentunit", 0, colors=GOOD_WHEN_HIGH),
            Column("Value #C", "Memory used", "bytes", 1),
            Column("Value #D", "Memory limit", "bytes", 1),
            Column("Value #E", "Age of the pod", "dtdurations", 0),
        ],
        sort="Value #C",
    )
    yield rows(
        "Processes",
        "Processes of the pods on their GPUs.",
        [f"max by (namespace, pod, node, gpu, pid, process) (gpusteward_process_memory_bytes{{{HOLDER}}})"],
        [
            Column("pod", "Pod"),
            Column("node", "Node"),
            Column("gpu", "GPU"),
            Column("pid", "Process id"),
            Column("process", "Program"),
            Column("Value", "Memory", "bytes", 1),
        ],
        sort="Value",
        height=8,
    )
