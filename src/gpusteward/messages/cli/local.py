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

LOAD_STARTED = Message(
    "{workload} keeps {gpus} busy at {share} % for {minutes} min.\n"
    "Within a minute: gpusteward explain {workload}, gpusteward top, gpusteward ps --node {node}",
    "{workload} 将使 {gpus} 保持 {share}% 的繁忙程度，持续 {minutes} 分钟。\n"
    "一分钟内可查看：gpusteward explain {workload}、gpusteward top、gpusteward ps --node {node}",
)
LOADED_GPU = Message("GPU {gpu} of {node}", "{node} 的 GPU {gpu}")
MORE_GPUS = Message("{gpus} and {count} more", "{gpus} 以及另外 {count} 张")
