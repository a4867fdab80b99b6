"""Texts of the page at `/` for browsers."""

from typing import NamedTuple

from gpusteward.core.messages import Message

ABOUT = Message(
    "Which workload holds each GPU of the cluster, how well it is used, and what the waste costs.",
    "集群中每张 GPU 由哪个工作负载占用、利用得如何、浪费了多少钱。",
)
FOR_PEOPLE = Message("For people", "供人查看")
FOR_PROGRAMS = Message("For programs", "供程序读取")
NOT_BUILT = Message(
    "The web UI is not part of this installation. Every released package has it; in a checkout, build it with"
    " Node.js 20:",
    "此安装未包含网页界面。正式发布的软件包均已包含；如从源码运行，请在检出目录中用 Node.js 20 执行以下命令构建：",
)
IN_THE_TERMINAL = Message("In the terminal", "在终端中")


class Link(NamedTuple):
    """A link of the page."""

    path: str
    title: Message


PEOPLE = (
    Link(
        "api/v1/reports?since=7d&format=html&language={language}",
        Message(
            "Report of the last 7 days: GPU-hours, cost, idle workloads",
            "最近 7 天的报表：GPU 小时、费用、空闲的工作负载",
        ),
    ),
    Link(
        "api/v1/reports?since=7d&by=user&format=html&language={language}",
        Message("The same by user", "同上，按用户汇总"),
    ),
    Link("docs", Message("All endpoints, to try out", "全部端点，可直接试用")),
)
PROGRAMS = (
    Link(
        "api/v1/workloads?sort=-idle_gpus",
        Message("Workloads with verdicts, most idle GPUs first", "工作负载及结论，空闲 GPU 多的在前"),
    ),
    Link("api/v1/namespaces", Message("Namespaces", "命名空间")),
    Link("api/v1/gpus", Message("GPUs", "GPU")),
    Link("api/v1/health", Message("State of the analyzer", "analyzer 的状态")),
    Link("metrics", Message("Metrics for Prometheus", "供 Prometheus 抓取的指标")),
    Link("results", Message("Results as in gpu-oour", "与 gpu-oour 相同的结果")),
)
COMMANDS = ("gpusteward top", "gpusteward idle", "gpusteward report --since 7d")
