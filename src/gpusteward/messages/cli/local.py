"""Texts of `gpusteward up` and `gpusteward demo`."""

from gpusteward.core.messages import Message

SIMULATING_HISTORY = Message("simulating three weeks of history", "正在模拟三周的历史数据")
DEMO_STARTED = Message(
    "Simulated cluster at {url}, also in a browser; stop it with Ctrl-C.\n"
    "In another terminal: export GPUSTEWARD_SERVER={url}\n"
    "then: {commands}\n"
    "and for one of its nodes: gpusteward ps --node {node}, or from its agent: gpusteward ps --agent {agent_url}\n"
    "Within minutes idle workloads of student-projects are warned and suspended; notices follow here.",
    "模拟集群已启动：{url}，可在浏览器中打开；按 Ctrl-C 停止。\n"
    "在另一个终端中执行：export GPUSTEWARD_SERVER={url}\n"
    "然后执行：{commands}\n"
    "查看其中一个节点：gpusteward ps --node {node}，或直接查询其 agent：gpusteward ps --agent {agent_url}\n"
    "几分钟内，student-projects 中空闲的工作负载会被警告并暂停；通知显示在下方。",
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

LOAD_STARTED = Message(
    "{workload} keeps {gpus} busy at {share} % for {minutes} min.\n"
    "Within a minute: gpusteward explain {workload}, gpusteward top, gpusteward ps --node {node}",
    "{workload} 将使 {gpus} 保持 {share}% 的繁忙程度，持续 {minutes} 分钟。\n"
    "一分钟内可查看：gpusteward explain {workload}、gpusteward top、gpusteward ps --node {node}",
)
LOADED_GPU = Message("GPU {gpu} of {node}", "{node} 的 GPU {gpu}")
MORE_GPUS = Message("{gpus} and {count} more", "{gpus} 以及另外 {count} 张")
NO_DEMO = Message(
    "no demo of this user is running; start one with gpusteward demo, in another terminal",
    "当前用户没有正在运行的演示；请在另一个终端中运行 gpusteward demo",
)
INVALID_LOAD = Message("the load is invalid: {reason}", "负载无效：{reason}")
NO_FREE_GPU = Message(
    "no GPU of the demo is free for that long; name a workload with --workload (gpusteward idle lists some), "
    "or start the demo with more --nodes",
    "演示中没有能空闲这么久的 GPU；请用 --workload 指定工作负载（可用 gpusteward idle 查看），"
    "或用更大的 --nodes 启动演示",
)
NO_SUCH_WORKLOAD = Message(
    "no workload named {name!r} holds a GPU now; gpusteward top lists them",
    "目前没有名为 {name!r} 的工作负载占用 GPU；可用 gpusteward top 查看",
)
SEVERAL_WORKLOADS = Message(
    "several workloads are named {name!r}: {names}; write one of these",
    "有多个工作负载名为 {name!r}：{names}；请写其中一个",
)
