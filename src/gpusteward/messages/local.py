"""Texts of `gpusteward up` and `gpusteward demo`."""

from gpusteward.core.messages import Message

SIMULATING_HISTORY = Message("simulating three weeks of history", "正在模拟三周的历史数据")
DEMO_STARTED = Message(
    "Simulated cluster at {url}, also in a browser; stop it with Ctrl-C.\n"
    "In another terminal: export GPUSTEWARD_SERVER={url}\n"
    "then: {commands}\n"
    "and for one of its nodes: gpusteward ps --node {node}, or from its agent: gpusteward ps --agent {agent_url}",
    "模拟集群已启动：{url}，可在浏览器中打开；按 Ctrl-C 停止。\n"
    "在另一个终端中执行：export GPUSTEWARD_SERVER={url}\n"
    "然后执行：{commands}\n"
    "查看其中一个节点：gpusteward ps --node {node}，或直接查询其 agent：gpusteward ps --agent {agent_url}",
)
UP_STARTED = Message(
    "GPUs of this machine at {url}; stop it with Ctrl-C.\n"
    "In another terminal: export GPUSTEWARD_SERVER={url} GPUSTEWARD_AGENT={agent_url}\n"
    "then: {commands}",
    "本机 GPU 的使用情况：{url}；按 Ctrl-C 停止。\n"
    "在另一个终端中执行：export GPUSTEWARD_SERVER={url} GPUSTEWARD_AGENT={agent_url}\n"
    "然后执行：{commands}",
)
DRIVER_UNUSABLE = Message(
    "{reason}. Without a GPU, run gpusteward demo: it simulates a cluster",
    "{reason}。没有 GPU 时可运行 gpusteward demo，它会模拟一个集群",
)
NO_GPU = Message(
    "the NVIDIA driver finds no GPU on this machine; gpusteward demo simulates a cluster",
    "NVIDIA 驱动在此机器上未发现 GPU；gpusteward demo 会模拟一个集群",
)
NO_FREE_PORT = Message("no free port for the agent", "没有可供 agent 使用的空闲端口")
AGENT_EXITED = Message(
    "the agent exited at once with code {code}; its error is printed above",
    "agent 启动后立即退出（退出码 {code}）；错误见上文",
)
