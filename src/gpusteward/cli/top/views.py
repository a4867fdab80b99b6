"""Columns and sort orders of the three views: GPUs, workloads, tenants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities
from gpusteward.cli.output.terminal_text import measure
from gpusteward.cli.top.cells import (
    MIN_WIDE,
    Fit,
    Total,
    Write,
    fit_full_name,
    fit_holders,
    fit_in_cluster,
    fit_workload,
    sum_counts,
    sum_gpus,
    sum_money,
    write_activity,
    write_count,
    write_full_name,
    write_gpu,
    write_gpus,
    write_holders,
    write_idle_share,
    write_idle_time,
    write_in_cluster,
    write_model,
    write_money,
    write_names,
    write_number,
    write_proof,
    write_signature,
    write_text,
    write_workload,
)
from gpusteward.cli.top.source_protocol import View
from gpusteward.core.messages import Language, Message
from gpusteward.messages.cli import top as messages

TITLES: Mapping[View, Message] = {
    View.GPUS: Message("GPUs", "GPU"),
    View.WORKLOADS: Message("Workloads", "工作负载"),
    View.TENANTS: Message("Tenants", "租户"),
}


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """One column of a view."""

    title: Message
    write: Write
    width: int
    share: int = 0  # of the remaining width
    sort: str = ""
    to_right: bool = False
    word: str = ""  # key of the value that selects the colour
    fit: Fit | None = None  # short form for a number of cells
    at_least: int = 0  # cells of the screen; a narrower one leaves the column out
    is_wide: bool = False  # printed only with -o wide
    total: Total | None = None  # of all rows

    def show(self, row: Row, language: Language, width: int) -> str:
        written = self.write(row, language)
        if self.fit is None or (width >= MIN_WIDE and measure(written) <= width):
            return written
        return self.fit(row, language, width)


NAMESPACE = ViewColumn(
    Message("namespace", "命名空间"),
    write_in_cluster("namespace"),
    10,
    share=1,
    sort="namespace",
    fit=fit_in_cluster("namespace"),
)
SCORE = ViewColumn(Message("score", "评分"), write_number("score", quantities.score), 6, sort="score", to_right=True)
ACTIVITY = ViewColumn(Message("activity", "活动"), write_activity, 8, word="activity")

CLUSTER: Mapping[View, Sequence[ViewColumn]] = {
    View.GPUS: (
        ViewColumn(
            Message("node", "节点"), write_in_cluster("node"), 10, share=1, sort="node", fit=fit_in_cluster("node")
        ),
        ViewColumn(Message("gpu", "GPU"), write_gpu, 4, sort="id"),
        ViewColumn(Message("model", "型号"), write_model, 15, sort="model"),
        ViewColumn(
            Message("GPUs", "GPU 数"), write_gpus("gpus"), 6, to_right=True, at_least=94, total=sum_gpus("gpus")
        ),
        ACTIVITY,
        SCORE,
        ViewColumn(Message("held by", "占用者"), write_holders, 12, share=2, sort="holders", fit=fit_holders),
    ),
    View.WORKLOADS: (
        ViewColumn(Message("workload", "工作负载"), write_full_name, 20, share=1, sort="namespace", fit=fit_full_name),
        ViewColumn(Message("user", "用户"), write_names("users"), 8),
        ACTIVITY,
        ViewColumn(Message("signature", "特征"), write_signature, 10, word="signature", at_least=94),
        ViewColumn(
            messages.IDLE_GPUS,
            write_idle_share,
            10,
            sort="idle_gpus",
            to_right=True,
            total=sum_gpus("idle_gpus", "gpus"),
        ),
        ViewColumn(Message("for", "时长"), write_idle_time, 7, sort="idle_since", to_right=True),
        ViewColumn(
            messages.COST_PER_HOUR,
            write_money("idle_cost_micros_per_hour"),
            10,
            sort="idle_cost_per_hour",
            to_right=True,
            at_least=108,
            total=sum_money("idle_cost_micros_per_hour"),
        ),
        ViewColumn(
            messages.COST_OF_SPELL,
            write_money("idle_cost_micros"),
            12,
            sort="idle_cost",
            to_right=True,
            total=sum_money("idle_cost_micros"),
        ),
        ViewColumn(
            messages.COST_7D,
            write_money("idle_cost_micros_7d", "currency_7d"),
            12,
            to_right=True,
            at_least=132,
            total=sum_money("idle_cost_micros_7d", "currency_7d"),
        ),
        ViewColumn(Message("model", "型号"), write_names("models"), 14, at_least=160),
        ViewColumn(Message("node", "节点"), write_names("nodes"), 12, at_least=176),
        ViewColumn(
            Message("score", "评分"),
            write_number("score", quantities.score),
            6,
            sort="score",
            to_right=True,
            at_least=186,
            is_wide=True,
        ),
        ViewColumn(Message("proof", "测量方式"), write_proof, 10, at_least=198, is_wide=True),
    ),
    View.TENANTS: (
        NAMESPACE,
        ViewColumn(Message("GPUs", "GPU"), write_gpus("gpus"), 6, sort="gpus", to_right=True, total=sum_gpus("gpus")),
        ViewColumn(messages.ACTIVE_GPUS, write_gpus("active_gpus"), 11, to_right=True, total=sum_gpus("active_gpus")),
        ViewColumn(
            messages.IDLE_GPUS,
            write_gpus("idle_gpus"),
            10,
            sort="idle_gpus",
            to_right=True,
            total=sum_gpus("idle_gpus"),
        ),
        ViewColumn(
            messages.UNKNOWN_GPUS,
            write_gpus("unknown_gpus"),
            12,
            sort="unknown_gpus",
            to_right=True,
            total=sum_gpus("unknown_gpus"),
        ),
        ViewColumn(
            Message("workloads", "工作负载"),
            write_count("workloads"),
            9,
            sort="workloads",
            to_right=True,
            total=sum_counts("workloads"),
        ),
        ViewColumn(
            Message("score", "评分"),
            write_number("average_score", quantities.score),
            6,
            sort="average_score",
            to_right=True,
        ),
        ViewColumn(
            Message("memory", "显存"),
            write_number("memory_used_bytes", quantities.memory),
            10,
            to_right=True,
            at_least=94,
        ),
    ),
}

NODE: Mapping[View, Sequence[ViewColumn]] = {
    View.GPUS: (
        ViewColumn(Message("gpu", "GPU"), write_text("gpu"), 11, sort="gpu"),
        ViewColumn(Message("model", "型号"), write_model, 9, share=1, sort="model"),
        ViewColumn(
            Message("util", "利用率"),
            write_number("utilization_ratio", quantities.percent),
            6,
            sort="util",
            to_right=True,
        ),
        ViewColumn(
            Message("memory", "显存"),
            write_number("memory_used_bytes", quantities.memory),
            9,
            sort="memory",
            to_right=True,
        ),
        ViewColumn(
            Message("power", "功率"), write_number("power_watts", quantities.watts), 6, sort="power", to_right=True
        ),
        ViewColumn(
            Message("temp", "温度"),
            write_number("temperature_celsius", quantities.celsius),
            5,
            sort="temp",
            to_right=True,
        ),
        ViewColumn(Message("held by", "占用者"), write_holders, 12, share=5, fit=fit_holders),
    ),
    View.WORKLOADS: (
        NAMESPACE,
        ViewColumn(Message("workload", "工作负载"), write_workload, 12, share=2, sort="name", fit=fit_workload),
        ViewColumn(Message("gpus", "GPU"), write_count("gpus"), 5, sort="gpus", to_right=True),
        ViewColumn(Message("processes", "进程"), write_count("processes"), 9, sort="processes", to_right=True),
        ViewColumn(Message("sm", "SM"), write_number("sm_ratio", quantities.percent), 5, sort="sm", to_right=True),
        ViewColumn(
            Message("memory", "显存"), write_number("memory_bytes", quantities.memory), 9, sort="memory", to_right=True
        ),
    ),
    View.TENANTS: (
        NAMESPACE,
        ViewColumn(Message("gpus", "GPU"), write_count("gpus"), 5, sort="gpus", to_right=True),
        ViewColumn(Message("workloads", "工作负载"), write_count("workloads"), 9, sort="workloads", to_right=True),
        ViewColumn(Message("processes", "进程"), write_count("processes"), 9, sort="processes", to_right=True),
        ViewColumn(Message("sm", "SM"), write_number("sm_ratio", quantities.percent), 5, sort="sm", to_right=True),
        ViewColumn(
            Message("memory", "显存"), write_number("memory_bytes", quantities.memory), 9, sort="memory", to_right=True
        ),
    ),
}

FIRST_SORTS: Mapping[View, str] = {View.GPUS: "node", View.WORKLOADS: "-idle_cost", View.TENANTS: "-idle_gpus"}
FIRST_NODE_SORTS: Mapping[View, str] = {View.GPUS: "gpu", View.WORKLOADS: "-memory", View.TENANTS: "-memory"}


def sorts_of(columns: Sequence[ViewColumn]) -> list[str]:
    return [column.sort for column in columns if column.sort]


def choose_columns(columns: Sequence[ViewColumn], width: int) -> Sequence[ViewColumn]:
    """Those that a screen of this width has."""
    return [column for column in columns if column.at_least <= width]


def divide_width(columns: Sequence[ViewColumn], width: int) -> list[int]:
    """Width of each column: its minimum, and its share of the remaining width."""
    left = max(0, width - sum(column.width for column in columns))
    shares = sum(column.share for column in columns) or 1
    return [column.width + left * column.share // shares for column in columns]
