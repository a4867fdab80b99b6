"""Columns, cells and sort orders of the three views: GPUs, workloads, tenants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpusteward.cli.api.workloads import SHORT_KINDS, WorkloadReference, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities
from gpusteward.cli.output.terminal_text import clean, cut_middle, measure
from gpusteward.cli.output.verdict_texts import FREE, name_verdict, translate
from gpusteward.core.messages import Language, Message
from gpusteward.messages.verdicts import PROOFS, SIGNATURES, VERDICTS

IDLE_GPUS = Message("idle GPUs", "空闲 GPU")
COST_PER_HOUR = Message("cost/hour", "每小时费用")

MIN_WIDE = 28  # cells; a narrower column uses short names in all rows
Write = Callable[[Row, Language], str]
Fit = Callable[[Row, Language, int], str]
Total = Callable[[Sequence[Row]], str]
GPU_VERDICTS = {**VERDICTS, "free": FREE}


def _place_in_cluster(row: Row, key: str) -> str:
    text = row.text(key) or quantities.UNKNOWN
    return f"{row.text('cluster')}/{text}" if row.get("shows_cluster") else text


def write_word(words: Mapping[str, Message], key: str) -> Write:
    return lambda row, language: translate(words, row.text(key), language)


def write_model(row: Row, _: Language) -> str:
    return row.text("model").removeprefix("NVIDIA ") or quantities.UNKNOWN


def write_gpu(row: Row, _: Language) -> str:
    if row.text("activity") == "free":
        return quantities.UNKNOWN
    index, instance = row.text("index"), row.text("instance")
    return f"{index}/{instance}" if instance else index or row.text("id")


def write_idle_share(row: Row, _: Language) -> str:
    return "/".join(quantities.gpus(row.number(key)) for key in ("idle_gpus", "gpus"))


def write_idle_time(row: Row, _: Language) -> str:
    began, at = row.time("idle_since"), row.number("at")
    return quantities.UNKNOWN if began is None or at is None else quantities.duration(at - began)


def sum_gpus(*keys: str) -> Total:
    return lambda rows: "/".join(quantities.gpus(sum(row.number(key) or 0 for row in rows)) for key in keys)


def sum_money(key: str, currency: str = "currency") -> Total:
    """Of the rows with a known cost."""

    def total(rows: Sequence[Row]) -> str:
        known = [(amount, row.text(currency)) for row in rows if (amount := row.number(key)) is not None]
        return quantities.money(sum(amount for amount, _ in known), known[0][1]) if known else quantities.UNKNOWN

    return total


def sum_counts(key: str) -> Total:
    return lambda rows: str(sum(row.count(key) for row in rows))


def write_names(key: str) -> Write:
    return lambda row, _: quantities.first_name(
        [name.removeprefix("NVIDIA ") for name in row.texts(key)], row.count(f"{key}_total")
    )


def _name_shown(row: Row) -> WorkloadReference:
    """With the cluster only where there are several."""
    return name_of(row) if row.get("shows_cluster") else name_of(row)._replace(cluster="")


def write_full_name(row: Row, _: Language) -> str:
    return str(_name_shown(row))


def fit_full_name(row: Row, _: Language, width: int) -> str:
    """A shorter form that `explain` accepts too, else the beginning and the end."""
    name = _name_shown(row)
    short = name._replace(kind=SHORT_KINDS.get(name.kind, name.kind))
    shortest = clean(f"{name.namespace}/{name.name}")
    return next((form for form in (str(name), str(short), shortest) if measure(form) <= width), "") or cut_middle(
        shortest, width
    )


def write_workload(row: Row, _: Language) -> str:
    return f"{row.text('kind')}/{row.text('name')}"


def fit_workload(row: Row, _: Language, width: int) -> str:
    """The name, followed by its kind if that fits."""
    kind, name = row.text("kind"), row.text("name")
    fitting = (f"{name} ({word})" for word in (kind, SHORT_KINDS.get(kind, kind)) if word)
    return next((each for each in fitting if measure(each) <= width), cut_middle(name, width))


def write_holders(row: Row, language: Language) -> str:
    """In a row of free GPUs: their number."""
    if row.text("activity") == "free":
        return Message("{count} {count:|GPU|GPUs}", "{count} 张").text(language, count=row.count("gpus"))
    return (
        ", ".join(f"{one.text('namespace')}/{one.text('pod')}" for one in row.objects("holders")) or quantities.UNKNOWN
    )


def fit_holders(row: Row, language: Language, width: int) -> str:
    """As many pods as fit, and the number of others; without namespaces in a narrow column."""
    holders = row.objects("holders")
    if not holders:
        return write_holders(row, language)
    pods = [one.text("pod") for one in holders]
    placed = [f"{one.text('namespace')}/{one.text('pod')}" for one in holders] if width >= MIN_WIDE else []
    for names in (placed, pods):
        for shown in range(len(names), 0, -1):
            line = ", ".join(names[:shown]) + (f" +{len(names) - shown}" if shown < len(names) else "")
            if measure(line) <= width:
                return line
    more = f" +{len(pods) - 1}" if len(pods) > 1 else ""
    return cut_middle(pods[0], width - len(more)) + more


class View(StrEnum):
    GPUS = "gpus"
    WORKLOADS = "workloads"
    TENANTS = "tenants"


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


def _in_cluster(title: Message, key: str) -> ViewColumn:
    """A name with its cluster, where there are several."""
    return ViewColumn(
        title,
        lambda row, _: _place_in_cluster(row, key),
        10,
        share=1,
        sort=key,
        fit=lambda row, _, width: cut_middle(_place_in_cluster(row, key), width),
    )


def _number(
    title: Message, width: int, key: str, show: Callable[[float | None], str], *, sort: str = "", **options: Any
) -> ViewColumn:
    return ViewColumn(title, lambda row, _: show(row.number(key)), width, sort=sort, to_right=True, **options)


def _gpus(title: Message, width: int, key: str, *, sort: str = "", at_least: int = 0) -> ViewColumn:
    return _number(title, width, key, quantities.gpus, sort=sort, at_least=at_least, total=sum_gpus(key))


def _count(title: Message, width: int, key: str, *, total: Total | None = None) -> ViewColumn:
    return ViewColumn(title, lambda row, _: str(row.count(key)), width, sort=key, to_right=True, total=total)


def _money(
    title: Message, width: int, key: str, currency: str = "currency", *, sort: str = "", at_least: int = 0
) -> ViewColumn:
    return ViewColumn(
        title,
        lambda row, _: quantities.money(row.number(key), row.text(currency)),
        width,
        sort=sort,
        to_right=True,
        at_least=at_least,
        total=sum_money(key, currency),
    )


NAMESPACE = _in_cluster(Message("namespace", "命名空间"), "namespace")
VERDICT = ViewColumn(
    Message("verdict", "结论"),
    lambda row, language: translate(GPU_VERDICTS, name_verdict(row), language),
    10,
    word="verdict",
)
SCORE, MODEL = Message("score", "评分"), Message("model", "型号")
MEMORY, SM, PROCESSES = Message("memory", "显存"), Message("sm", "SM"), Message("processes", "进程")
WORKLOAD_COUNT = Message("workloads", "工作负载")

CLUSTER: Mapping[View, Sequence[ViewColumn]] = {
    View.GPUS: (
        _in_cluster(Message("node", "节点"), "node"),
        ViewColumn(Message("gpu", "GPU"), write_gpu, 4, sort="id"),
        ViewColumn(MODEL, write_model, 15, sort="model"),
        _gpus(Message("GPUs", "GPU 数"), 6, "gpus", at_least=94),
        VERDICT,
        _number(SCORE, 6, "score", quantities.score, sort="score"),
        ViewColumn(Message("held by", "占用者"), write_holders, 12, share=2, sort="holders", fit=fit_holders),
    ),
    View.WORKLOADS: (
        ViewColumn(Message("workload", "工作负载"), write_full_name, 20, share=1, sort="namespace", fit=fit_full_name),
        ViewColumn(Message("user", "用户"), write_names("users"), 8),
        VERDICT,
        ViewColumn(
            Message("signature", "特征"), write_word(SIGNATURES, "signature"), 10, word="signature", at_least=94
        ),
        ViewColumn(
            IDLE_GPUS,
            write_idle_share,
            10,
            sort="idle_gpus",
            to_right=True,
            total=sum_gpus("idle_gpus", "gpus"),
        ),
        ViewColumn(Message("for", "时长"), write_idle_time, 7, sort="idle_since", to_right=True),
        _money(COST_PER_HOUR, 10, "idle_cost_micros_per_hour", sort="idle_cost_per_hour", at_least=108),
        _money(Message("this spell", "本次空闲"), 12, "idle_cost_micros", sort="idle_cost"),
        _money(Message("last 7 days", "近 7 天"), 12, "idle_cost_micros_7d", "currency_7d", at_least=132),
        ViewColumn(MODEL, write_names("models"), 14, at_least=160),
        ViewColumn(Message("node", "节点"), write_names("nodes"), 12, at_least=176),
        _number(SCORE, 6, "score", quantities.score, sort="score", at_least=186, is_wide=True),
        ViewColumn(Message("proof", "测量方式"), write_word(PROOFS, "proof"), 10, at_least=198, is_wide=True),
    ),
    View.TENANTS: (
        NAMESPACE,
        _gpus(Message("GPUs", "GPU"), 6, "gpus", sort="gpus"),
        _gpus(Message("active GPUs", "使用中 GPU"), 11, "active_gpus"),
        _gpus(IDLE_GPUS, 10, "idle_gpus", sort="idle_gpus"),
        _gpus(Message("unknown GPUs", "未知 GPU"), 12, "unknown_gpus", sort="unknown_gpus"),
        _count(WORKLOAD_COUNT, 9, "workloads", total=sum_counts("workloads")),
        _number(SCORE, 6, "average_score", quantities.score, sort="average_score"),
        _number(MEMORY, 10, "memory_used_bytes", quantities.memory, at_least=94),
    ),
}

NODE: Mapping[View, Sequence[ViewColumn]] = {
    View.GPUS: (
        ViewColumn(Message("gpu", "GPU"), lambda row, _: row.text("gpu") or quantities.UNKNOWN, 11, sort="gpu"),
        ViewColumn(MODEL, write_model, 9, share=1, sort="model"),
        _number(Message("util", "利用率"), 6, "utilization_ratio", quantities.percent, sort="util"),
        _number(MEMORY, 9, "memory_used_bytes", quantities.memory, sort="memory"),
        _number(Message("power", "功率"), 6, "power_watts", quantities.watts, sort="power"),
        _number(Message("temp", "温度"), 5, "temperature_celsius", quantities.celsius, sort="temp"),
        ViewColumn(Message("held by", "占用者"), write_holders, 12, share=5, fit=fit_holders),
    ),
    View.WORKLOADS: (
        NAMESPACE,
        ViewColumn(Message("workload", "工作负载"), write_workload, 12, share=2, sort="name", fit=fit_workload),
        _count(Message("gpus", "GPU"), 5, "gpus"),
        _count(PROCESSES, 9, "processes"),
        _number(SM, 5, "sm_ratio", quantities.percent, sort="sm"),
        _number(MEMORY, 9, "memory_bytes", quantities.memory, sort="memory"),
    ),
    View.TENANTS: (
        NAMESPACE,
        _count(Message("gpus", "GPU"), 5, "gpus"),
        _count(WORKLOAD_COUNT, 9, "workloads"),
        _count(PROCESSES, 9, "processes"),
        _number(SM, 5, "sm_ratio", quantities.percent, sort="sm"),
        _number(MEMORY, 9, "memory_bytes", quantities.memory, sort="memory"),
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
