"""Columns, cells and sort orders of the three views: GPUs, workloads, tenants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusteward.cli.api.workloads import SHORT_KINDS, WorkloadName, name_of
from gpusteward.cli.json_access import Row, get_count, get_number, get_objects, get_text, get_texts, get_time
from gpusteward.cli.output import quantities
from gpusteward.cli.output.terminal_text import clean, cut_middle, measure
from gpusteward.cli.output.verdict_texts import FREE, translate
from gpusteward.cli.top.source_protocol import SHOWS_CLUSTER, View
from gpusteward.core.messages import Language, Message
from gpusteward.messages.cli import top as messages
from gpusteward.messages.verdicts import ACTIVITIES, PROOFS, SIGNATURES

MIN_WIDE = 28  # cells; a narrower column uses short names in all rows
Write = Callable[[Row, Language], str]
Fit = Callable[[Row, Language, int], str]
Total = Callable[[Sequence[Row]], str]
GPU_ACTIVITIES = {**ACTIVITIES, "free": FREE}


def write_text(key: str) -> Write:
    return lambda row, _: get_text(row, key) or quantities.UNKNOWN


def _place_in_cluster(row: Row, key: str) -> str:
    text = get_text(row, key) or quantities.UNKNOWN
    return f"{get_text(row, 'cluster')}/{text}" if row.get(SHOWS_CLUSTER) else text


def write_in_cluster(key: str) -> Write:
    return lambda row, _: _place_in_cluster(row, key)


def fit_in_cluster(key: str) -> Fit:
    return lambda row, _, width: cut_middle(_place_in_cluster(row, key), width)


def write_count(key: str) -> Write:
    return lambda row, _: str(get_count(row, key))


def write_number(key: str, show: Callable[[float | None], str]) -> Write:
    return lambda row, _: show(get_number(row, key))


def write_activity(row: Row, language: Language) -> str:
    return translate(GPU_ACTIVITIES, get_text(row, "activity"), language)


def write_signature(row: Row, language: Language) -> str:
    return translate(SIGNATURES, get_text(row, "signature"), language)


def write_proof(row: Row, language: Language) -> str:
    return translate(PROOFS, get_text(row, "proof"), language)


def write_model(row: Row, _: Language) -> str:
    return get_text(row, "model").removeprefix("NVIDIA ") or quantities.UNKNOWN


def write_gpu(row: Row, _: Language) -> str:
    if get_text(row, "activity") == "free":
        return quantities.UNKNOWN
    index, instance = get_text(row, "index"), get_text(row, "instance")
    return f"{index}/{instance}" if instance else index or get_text(row, "id")


def write_idle_share(row: Row, _: Language) -> str:
    return "/".join(quantities.gpus(get_number(row, key)) for key in ("idle_gpus", "gpus"))


def write_idle_time(row: Row, _: Language) -> str:
    began, at = get_time(row, "idle_since"), get_number(row, "at")
    return quantities.UNKNOWN if began is None or at is None else quantities.duration(at - began)


def write_gpus(key: str) -> Write:
    return lambda row, _: quantities.gpus(get_number(row, key))


def sum_gpus(*keys: str) -> Total:
    return lambda rows: "/".join(quantities.gpus(sum(get_number(row, key) or 0 for row in rows)) for key in keys)


def write_money(key: str, currency: str = "currency") -> Write:
    return lambda row, _: quantities.money(get_number(row, key), get_text(row, currency))


def sum_money(key: str, currency: str = "currency") -> Total:
    """Of the rows with a known cost."""

    def total(rows: Sequence[Row]) -> str:
        known = [(amount, get_text(row, currency)) for row in rows if (amount := get_number(row, key)) is not None]
        return quantities.money(sum(amount for amount, _ in known), known[0][1]) if known else quantities.UNKNOWN

    return total


def sum_counts(key: str) -> Total:
    return lambda rows: str(sum(get_count(row, key) for row in rows))


def write_names(key: str) -> Write:
    return lambda row, _: quantities.first_name(
        [name.removeprefix("NVIDIA ") for name in get_texts(row, key)], get_count(row, f"{key}_total")
    )


def _name_shown(row: Row) -> WorkloadName:
    """With the cluster only where there are several."""
    return name_of(row) if row.get(SHOWS_CLUSTER) else name_of(row)._replace(cluster="")


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
    return f"{get_text(row, 'kind')}/{get_text(row, 'name')}"


def fit_workload(row: Row, _: Language, width: int) -> str:
    """The name, followed by its kind if that fits."""
    kind, name = get_text(row, "kind"), get_text(row, "name")
    fitting = (f"{name} ({word})" for word in (kind, SHORT_KINDS.get(kind, kind)) if word)
    return next((each for each in fitting if measure(each) <= width), cut_middle(name, width))


def write_holders(row: Row, language: Language) -> str:
    """In a row of free GPUs: their number."""
    if get_text(row, "activity") == "free":
        return messages.FREE_GPUS.text(language, count=get_count(row, "gpus"))
    return (
        ", ".join(f"{get_text(one, 'namespace')}/{get_text(one, 'pod')}" for one in get_objects(row, "holders"))
        or quantities.UNKNOWN
    )


def fit_holders(row: Row, language: Language, width: int) -> str:
    """As many pods as fit, and the number of others; without namespaces in a narrow column."""
    holders = get_objects(row, "holders")
    if not holders:
        return write_holders(row, language)
    pods = [get_text(one, "pod") for one in holders]
    placed = [f"{get_text(one, 'namespace')}/{get_text(one, 'pod')}" for one in holders] if width >= MIN_WIDE else []
    fitting = (line for names in (placed, pods) for line in _shorten(names) if measure(line) <= width)
    return next(fitting, _cut_first(pods, width))


def _shorten(names: Sequence[str]) -> Iterator[str]:
    for shown in range(len(names), 0, -1):
        more = f" +{len(names) - shown}" if shown < len(names) else ""
        yield ", ".join(names[:shown]) + more


def _cut_first(pods: Sequence[str], width: int) -> str:
    more = f" +{len(pods) - 1}" if len(pods) > 1 else ""
    return cut_middle(pods[0], width - len(more)) + more


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
