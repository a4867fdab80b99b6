"""GPUs, workloads, tenants: their columns and sortings. How names are made to fit is in names.py."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpusteward.cli.json_access import Row, count, moment, number, text
from gpusteward.cli.output import quantities
from gpusteward.cli.output.terminal_text import cut_middle, measure
from gpusteward.cli.output.verdict_labels import FREE, translate
from gpusteward.cli.top.names import WIDE, fit_holders, fit_workload, write_holders, write_workload
from gpusteward.cli.top.source_protocol import View
from gpusteward.core.messages import Language, Message
from gpusteward.messages.verdicts import ACTIVITIES, SIGNATURES

TITLES: Mapping[View, Message] = {
    View.GPUS: Message("GPUs", "GPU"),
    View.WORKLOADS: Message("Workloads", "工作负载"),
    View.TENANTS: Message("Tenants", "租户"),
}
Write = Callable[[Row, Language], str]
Fit = Callable[[Row, Language, int], str]
GPU_ACTIVITIES = {**ACTIVITIES, "free": FREE}


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of a view: how wide it is, and what of a row it shows."""

    title: Message
    write: Write
    width: int
    share: int = 0  # its part of the room that is left over
    sort: str = ""
    to_right: bool = False
    word: str = ""  # the key of the word that colours it
    fit: Fit | None = None  # the short way to write it, in so many cells

    def show(self, row: Row, language: Language, width: int) -> str:
        written = self.write(row, language)
        if self.fit is None or (width >= WIDE and measure(written) <= width):
            return written
        return self.fit(row, language, width)


def _text(key: str) -> Write:
    return lambda row, _: text(row, key) or quantities.UNKNOWN


def _cut_text(key: str) -> Fit:
    return lambda row, _, width: cut_middle(text(row, key) or quantities.UNKNOWN, width)


def _count(key: str) -> Write:
    return lambda row, _: str(count(row, key))


def _measured(key: str, show: Callable[[float | None], str]) -> Write:
    return lambda row, _: show(number(row, key))


def _activity(row: Row, language: Language) -> str:
    return translate(GPU_ACTIVITIES, text(row, "activity"), language)


def _signature(row: Row, language: Language) -> str:
    return translate(SIGNATURES, text(row, "signature"), language)


def _short_model(row: Row, _: Language) -> str:
    return text(row, "model").removeprefix("NVIDIA ") or quantities.UNKNOWN


def _gpu_name(row: Row, _: Language) -> str:
    if text(row, "activity") == "free":
        return quantities.UNKNOWN
    index, instance = text(row, "index"), text(row, "instance")
    return f"{index}/{instance}" if instance else index or text(row, "id")


def _idle_share(row: Row, _: Language) -> str:
    return f"{count(row, 'idle_gpus')}/{count(row, 'gpus')}"


def _idle_for(row: Row, _: Language) -> str:
    began, at = moment(row, "idle_since"), number(row, "at")
    return quantities.UNKNOWN if began is None or at is None else quantities.span(at - began)


NAMESPACE = Cell(
    Message("namespace", "命名空间"), _text("namespace"), 10, share=1, sort="namespace", fit=_cut_text("namespace")
)
SCORE = Cell(Message("score", "评分"), _measured("score", quantities.score), 6, sort="score", to_right=True)
ACTIVITY = Cell(Message("activity", "活动"), _activity, 8, word="activity")

CLUSTER: Mapping[View, Sequence[Cell]] = {
    View.GPUS: (
        Cell(Message("node", "节点"), _text("node"), 10, share=1, sort="node", fit=_cut_text("node")),
        Cell(Message("gpu", "GPU"), _gpu_name, 4, sort="id"),
        Cell(Message("model", "型号"), _short_model, 15, sort="model"),
        ACTIVITY,
        SCORE,
        Cell(Message("held by", "占用者"), write_holders, 12, share=2, sort="holders", fit=fit_holders),
    ),
    View.WORKLOADS: (
        NAMESPACE,
        Cell(Message("workload", "工作负载"), write_workload, 12, share=2, sort="name", fit=fit_workload),
        ACTIVITY,
        Cell(Message("signature", "特征"), _signature, 10, word="signature"),
        Cell(Message("idle", "空闲"), _idle_share, 5, sort="idle_gpus", to_right=True),
        Cell(Message("for", "时长"), _idle_for, 7, sort="idle_since", to_right=True),
        SCORE,
    ),
    View.TENANTS: (
        NAMESPACE,
        Cell(Message("gpus", "GPU"), _count("allocations"), 6, sort="allocations", to_right=True),
        Cell(Message("active", "活跃"), _count("active"), 6, to_right=True),
        Cell(Message("idle", "空闲"), _count("idle"), 6, sort="idle", to_right=True),
        Cell(Message("unknown", "未知"), _count("unknown"), 7, sort="unknown", to_right=True),
        Cell(Message("workloads", "工作负载"), _count("workloads"), 9, sort="workloads", to_right=True),
        Cell(
            Message("score", "评分"),
            _measured("average_score", quantities.score),
            6,
            sort="average_score",
            to_right=True,
        ),
        Cell(Message("memory", "显存"), _measured("memory_used_bytes", quantities.memory), 10, to_right=True),
    ),
}

NODE: Mapping[View, Sequence[Cell]] = {
    View.GPUS: (
        Cell(Message("gpu", "GPU"), _text("gpu"), 11, sort="gpu"),
        Cell(Message("model", "型号"), _short_model, 9, share=1, sort="model"),
        Cell(
            Message("util", "利用率"), _measured("utilization_ratio", quantities.percent), 6, sort="util", to_right=True
        ),
        Cell(
            Message("memory", "显存"),
            _measured("memory_used_bytes", quantities.memory),
            9,
            sort="memory",
            to_right=True,
        ),
        Cell(Message("power", "功率"), _measured("power_watts", quantities.watts), 6, sort="power", to_right=True),
        Cell(
            Message("temp", "温度"), _measured("temperature_celsius", quantities.celsius), 5, sort="temp", to_right=True
        ),
        Cell(Message("held by", "占用者"), write_holders, 12, share=5, fit=fit_holders),
    ),
    View.WORKLOADS: (
        NAMESPACE,
        Cell(Message("workload", "工作负载"), write_workload, 12, share=2, sort="name", fit=fit_workload),
        Cell(Message("gpus", "GPU"), _count("gpus"), 5, sort="gpus", to_right=True),
        Cell(Message("processes", "进程"), _count("processes"), 9, sort="processes", to_right=True),
        Cell(Message("sm", "SM"), _measured("sm_ratio", quantities.percent), 5, sort="sm", to_right=True),
        Cell(Message("memory", "显存"), _measured("memory_bytes", quantities.memory), 9, sort="memory", to_right=True),
    ),
    View.TENANTS: (
        NAMESPACE,
        Cell(Message("gpus", "GPU"), _count("gpus"), 5, sort="gpus", to_right=True),
        Cell(Message("workloads", "工作负载"), _count("workloads"), 9, sort="workloads", to_right=True),
        Cell(Message("processes", "进程"), _count("processes"), 9, sort="processes", to_right=True),
        Cell(Message("sm", "SM"), _measured("sm_ratio", quantities.percent), 5, sort="sm", to_right=True),
        Cell(Message("memory", "显存"), _measured("memory_bytes", quantities.memory), 9, sort="memory", to_right=True),
    ),
}

FIRST_SORTS: Mapping[View, str] = {View.GPUS: "node", View.WORKLOADS: "-idle_gpus", View.TENANTS: "-idle"}
FIRST_NODE_SORTS: Mapping[View, str] = {View.GPUS: "gpu", View.WORKLOADS: "-memory", View.TENANTS: "-memory"}


def sorts_of(cells: Sequence[Cell]) -> list[str]:
    return [cell.sort for cell in cells if cell.sort]


def divide_width(cells: Sequence[Cell], width: int) -> list[int]:
    """How wide each column is in a window: its least, and its share of what is left over."""
    left = max(0, width - sum(cell.width for cell in cells))
    shares = sum(cell.share for cell in cells) or 1
    return [cell.width + left * cell.share // shares for cell in cells]
