"""Errors and output of `ps`, `report` and `snooze`."""

from gpusteward.core.messages import Message

# `ps`

AGENT_OR_NODE = Message(
    "--agent and --node are both set: one asks the agent of a machine, the other the analyzer",
    "--agent 和 --node 不能同时使用：前者向某台机器的 agent 查询，后者向 analyzer 查询",
)
SERVER_NEEDS_NODE = Message(
    "--server and --token-file are for the analyzer: choose one of its nodes with --node NODE",
    "--server 和 --token-file 用于 analyzer：请用 --node NODE 指定节点",
)
HOLDS_ANOTHER_GPU = Message("{name} (another GPU is allocated to it)", "{name}（分配的是另一张 GPU）")
NO_PROCESSES_OF = Message("{name} (no processes)", "{name}（无进程）")
ON_HOST = Message("(host)", "（宿主机）")
UNATTRIBUTED = Message("(unknown)", "（未知）")
NO_PROCESSES = Message("No processes on the GPUs of {node}.", "{node} 的 GPU 上没有进程。")

# `report`

UNEXPECTED_REPORT = Message(
    "the report of {url} cannot be read; check that the analyzer and this command have the same version",
    "无法读取 {url} 的报表；请确认 analyzer 与本命令的版本一致",
)
INVALID_TIME_RANGE = Message("--since, --until: {reason}", "--since、--until：{reason}")
INVALID_LEDGER_URL = Message(
    "--ledger is not the address of a database: write a path, sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
    "--ledger 不是数据库地址：请写成文件路径、sqlite:///PATH 或 postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
)
NO_LEDGER_FILE = Message(
    "there is no ledger at {path}; `gpusteward serve` creates one",
    "{path} 中没有账本；运行 `gpusteward serve` 会创建账本",
)

# `snooze`

SNOOZE_WORKLOAD = Message("workload", "工作负载")
SNOOZE_UNTIL = Message("snoozed until", "暂缓至")
SNOOZE_WHO = Message("by", "操作者")
SNOOZE_REASON = Message("reason", "原因")
SNOOZE_USAGE = Message(
    "write WORKLOAD --for DURATION --reason TEXT, WORKLOAD --end, or --list",
    "请写成 WORKLOAD --for DURATION --reason TEXT、WORKLOAD --end 或 --list",
)
SNOOZE_ENDED = Message("{workload} no longer holds a GPU", "{workload} 已不再占用 GPU")
