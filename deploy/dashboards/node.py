"""Nodes and GPUs: a replacement for NVIDIA's dashboard 12239 with Tensor Cores, MIG and shared GPUs."""

from collections.abc import Mapping
from typing import Any

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.dashboards import frame
from deploy.dashboards.panels import Column, Panels, chart, number, rows, share
from deploy.dashboards.promql import (
    BY_GPU,
    BY_INSTANCE,
    DEVICE,
    GPU_NAME,
    INSTANCE_NAME,
    MIG,
    NODE_GPU,
    WHOLE,
    busy_per_device,
    device,
    memory_per_gpu,
    name_node,
    per_gpu,
    rate_of,
    utilization,
)

MOST_LINES = 40  # GPUs of five nodes
HOT = ((None, "green"), (80, "orange"), (90, "red"))
HOLDER_NAME = "{{node}} GPU {{gpu}}: {{namespace}}/{{pod}}"
SHARES = 'share!~"exclusive|mig"'


def build() -> Dashboard:
    description = "Every GPU of the chosen nodes. Works with the gpusteward agent and with dcgm-exporter."
    built = frame.begin("gpusteward-node", description, [frame.cluster(), frame.node(), frame.gpu()], since="now-1h")
    built = frame.add(built, "Now", *_numbers())
    built = frame.add(built, "Use", *_use())
    built = frame.add(built, "Temperature, power and clocks", *_board())
    built = frame.add(built, "MIG", *_mig())
    built = frame.add(built, "Shared GPUs (gpusteward agent)", *_shared())
    return frame.add(built, "Links and errors", *_links())


def _lines(title: str, description: str, queries: Mapping[str, str], **options: Any) -> timeseries.Panel:
    """Lines of some GPUs: a large site stays readable, and so does its browser."""
    limited = {f"topk({MOST_LINES}, {expression})": legend for expression, legend in queries.items()}
    return chart(title, f"{description} At most the {MOST_LINES} highest at a time.", limited, **options)


def _numbers() -> Panels:
    yield number(
        "GPUs",
        "Number of GPUs that report. A GPU with MIG is one GPU.",
        f"count({memory_per_gpu('memory_used_bytes')})",
        decimals=0,
    )
    yield share(
        "Utilization",
        "Mean of the GPUs and MIG instances: share of time in which a kernel ran.",
        f"avg({busy_per_device(DEVICE)})",
    )
    used, free = memory_per_gpu("memory_used_bytes"), memory_per_gpu("memory_free_bytes")
    yield share(
        "Memory used",
        "Memory used / used and free, without what the driver reserves.",
        f"sum({used}) / (sum({used}) + sum({free}))",
        steps=((None, "blue"),),
    )
    yield number("Power", "Power drawn by all boards.", f"sum({per_gpu('power_watts')})", unit="watt")
    yield number(
        "Mean temperature",
        "Of the GPUs.",
        f"avg({per_gpu('temperature_celsius')})",
        unit="celsius",
        steps=HOT,
        decimals=0,
    )
    yield number(
        "Highest temperature",
        "Of the GPUs.",
        f"max({per_gpu('temperature_celsius')})",
        unit="celsius",
        steps=HOT,
        decimals=0,
    )


def _use() -> Panels:
    whole = f"{DEVICE}, {WHOLE}"
    yield _lines(
        "GPU utilization",
        "Share of time in which a kernel ran or the engine was active. GPUs with MIG: see the instances below.",
        {f"max by ({BY_GPU}) ({utilization(whole)})": GPU_NAME},
        unit="percentunit",
        high=1,
    )
    yield _lines(
        "Tensor Core activity",
        "Share of cycles in which the tensor pipe was active. Hopper and newer, MIG instances, or a DCGM hostengine.",
        {
            f"max by ({BY_GPU}) ({device('tensor_ratio', whole)})": GPU_NAME,
            f"max by ({BY_INSTANCE}) ({device('tensor_ratio', f'{DEVICE}, {MIG}')})": INSTANCE_NAME,
        },
        unit="percentunit",
        high=1,
    )
    yield _lines(
        "Memory used by GPU",
        "Memory in use, without what the driver reserves.",
        {memory_per_gpu("memory_used_bytes"): GPU_NAME},
        unit="bytes",
        width=8,
    )
    yield _lines(
        "Memory traffic",
        "Share of time in which memory was read or written.",
        {f"max by ({BY_GPU}) ({device('memory_copy_ratio', whole)})": GPU_NAME},
        unit="percentunit",
        high=1,
        width=8,
    )
    yield _lines(
        "Video encoder and decoder",
        "Utilization of the video engines.",
        {
            f"max by ({BY_GPU}) ({device('encoder_ratio', DEVICE)})": f"encoder {GPU_NAME}",
            f"max by ({BY_GPU}) ({device('decoder_ratio', DEVICE)})": f"decoder {GPU_NAME}",
        },
        unit="percentunit",
        high=1,
        width=8,
    )
    model = f"max by ({BY_GPU}, modelName) ({device('memory_used_bytes', DEVICE)})"
    yield rows(
        "All GPUs",
        "All chosen GPUs as of now. An empty cell is unknown.",
        [
            f"group by (cluster, node, gpu, modelName) ({name_node(model)})",
            name_node(f"max by ({BY_GPU}) ({utilization(whole)})"),
            name_node(f"({memory_per_gpu('memory_used_bytes')})"),
            name_node(f"({memory_per_gpu('memory_free_bytes')})"),
            name_node(per_gpu("temperature_celsius")),
            name_node(per_gpu("power_watts")),
            name_node(per_gpu("last_xid")),
        ],
        [
            Column("cluster", "Cluster"),
            Column("node", "Node"),
            Column("gpu", "GPU"),
            Column("modelName", "Model"),
            Column("Value #B", "Utilization", "percentunit", 0),
            Column("Value #C", "Memory used", "bytes", 1),
            Column("Value #D", "Memory free", "bytes", 1),
            Column("Value #E", "Temperature", "celsius", 0, colors=HOT),
            Column("Value #F", "Power", "watt", 0),
            Column("Value #G", "Last XID", "none", 0, colors=((None, "green"), (1, "red"))),
        ],
        sort="Value #B",
        height=9,
    )


def _board() -> Panels:
    yield _lines(
        "GPU temperature",
        "Of the GPU.",
        {per_gpu("temperature_celsius"): GPU_NAME},
        unit="celsius",
        low=None,
        steps=HOT,
    )
    yield _lines(
        "Memory temperature",
        "Of the memory, where it has a sensor.",
        {per_gpu("memory_temperature_celsius"): GPU_NAME},
        unit="celsius",
        low=None,
    )
    yield _lines("Power by GPU", "Power drawn by the board.", {per_gpu("power_watts"): GPU_NAME}, unit="watt")
    yield _lines(
        "SM clock",
        "Clock of the streaming multiprocessors; it falls when a limit is reached.",
        {per_gpu("sm_clock_hertz"): GPU_NAME},
        unit="hertz",
    )


def _mig() -> Panels:
    instance = f"{DEVICE}, {MIG}"
    for title, description, signal, unit in (
        (
            "MIG: engine activity",
            "Share of time in which the compute engine of the instance was active.",
            "gr_engine_ratio",
            "percentunit",
        ),
        (
            "MIG: Tensor Core activity",
            "Share of cycles in which the tensor pipe of the instance was active.",
            "tensor_ratio",
            "percentunit",
        ),
        ("MIG: memory used", "Memory in use on the instance.", "memory_used_bytes", "bytes"),
    ):
        expression = f"max by ({BY_INSTANCE}) ({device(signal, instance)})"
        yield _lines(
            title,
            description,
            {expression: INSTANCE_NAME},
            unit=unit,
            high=1 if unit == "percentunit" else None,
            width=8,
        )


def _shared() -> Panels:
    on = "cluster, node, gpu, uuid, namespace, pod, container"
    allocated = f"max by ({on}) (gpusteward_allocation_info{{{NODE_GPU}, {SHARES}}})"
    for title, description, metric, unit in (
        (
            "Shared GPUs: utilization by pod",
            "Share of time in which a kernel of the pod ran.",
            "gpusteward_use_utilization_ratio",
            "percentunit",
        ),
        ("Shared GPUs: memory by pod", "GPU memory of the pod.", "gpusteward_use_memory_bytes", "bytes"),
    ):
        use = f'max by ({on}) ({metric}{{{NODE_GPU}, by="container"}})'
        yield _lines(
            title,
            f"{description} Time-slicing, MPS, HAMi and fractions.",
            {f"{use} and on ({on}) {allocated}": HOLDER_NAME},
            unit=unit,
            stacked=True,
        )
    by = f"{on}, share"
    yield rows(
        "Shared GPUs: holders",
        "Containers on GPUs that are shared by time-slicing, MPS, HAMi or fractions. An empty cell has no limit.",
        [
            f"max by ({by}) (gpusteward_allocation_info{{{NODE_GPU}, {SHARES}}})",
            f'max by ({on}) (gpusteward_use_utilization_ratio{{{NODE_GPU}, by="container"}}) and on ({on}) {allocated}',
            f'max by ({on}) (gpusteward_use_memory_bytes{{{NODE_GPU}, by="container"}}) and on ({on}) {allocated}',
            f"max by ({on}) (gpusteward_allocation_memory_limit_bytes{{{NODE_GPU}}}) and on ({on}) {allocated}",
        ],
        [
            Column("node", "Node"),
            Column("gpu", "GPU"),
            Column("share", "Share"),
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
            Column("container", "Container"),
            Column("Value #B", "Utilization", "percentunit", 0),
            Column("Value #C", "Memory used", "bytes", 1),
            Column("Value #D", "Memory limit", "bytes", 1),
        ],
        sort="Value #C",
        height=9,
    )


def _links() -> Panels:
    sent, received = per_gpu("pcie_tx_bytes_per_second"), per_gpu("pcie_rx_bytes_per_second")
    yield _lines(
        "PCIe traffic",
        "Sent and received. Hopper and newer, or a DCGM hostengine.",
        {f"{sent} + {received}": GPU_NAME},
        unit="Bps",
        width=6,
    )
    yield _lines(
        "NVLink traffic",
        "Sent and received, all links.",
        {per_gpu("nvlink_bytes_per_second"): GPU_NAME},
        unit="Bps",
        width=6,
    )
    yield _lines(
        "PCIe retries and remapped rows",
        "Retries per second of the PCIe link, and memory rows remapped after uncorrectable errors per second.",
        {
            f"max by ({BY_GPU}) ({rate_of('pcie_replays_total', DEVICE)})": f"retries {GPU_NAME}",
            f"max by ({BY_GPU}) ({rate_of('remapped_rows_uncorrectable_total', DEVICE)})": f"rows {GPU_NAME}",
        },
        unit="ops",
        width=6,
    )
    xids = f"sum by (node, gpu) (increase(gpusteward_gpu_all_xid_errors_total{{{NODE_GPU}}}[$__rate_interval]))"
    yield _lines(
        "XID errors (gpusteward agent)",
        "Errors that the driver reported. The table of all GPUs has the last code of each.",
        {xids: "{{node}} GPU {{gpu}}"},
        width=6,
    )
