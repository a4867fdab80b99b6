"""Texts of the command line: errors, hints, and what the commands print."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

# Servers that cannot be reached; `peer` is one of these

ANALYZER = Message("the analyzer", "analyzer")
AGENT = Message("the agent", "agent")
PROMETHEUS = Message("Prometheus", "Prometheus")
API_SERVER = Message("the API server", "API server")

INVALID_URL = Message(
    "the address of {peer} is not a valid URL: write http://HOST:PORT or https://HOST:PORT",
    "{peer} 的地址不是有效的 URL：请写成 http://HOST:PORT 或 https://HOST:PORT",
)
WITH_HINT = Message("{problem}; {hint}", "{problem}；{hint}")
CANNOT_CONNECT = Message("cannot connect to {peer} at {url} ({reason})", "无法连接 {url} 上的 {peer}（{reason}）")
NO_RESPONSE = Message("no response from {peer} at {url}: {reason}", "{url} 上的 {peer} 没有响应：{reason}")
NOT_JSON = Message(
    "the response of {url} is not valid JSON; check that this is the address of {peer}",
    "{url} 的响应不是有效的 JSON；请确认这是 {peer} 的地址",
)
START_ANALYZER = Message(
    "start one with `gpusteward serve`, forward a port of the cluster with `kubectl port-forward`, or set its address"
    " with --server URL or GPUSTEWARD_SERVER",
    "请用 `gpusteward serve` 启动，用 `kubectl port-forward` 转发集群中的端口，或通过 --server URL 或 GPUSTEWARD_SERVER"
    " 指定地址",
)
START_AGENT = Message(
    "start one with `gpusteward agent` (without a GPU: `--source simulated`), or set its address with --agent URL or"
    " GPUSTEWARD_AGENT",
    "请用 `gpusteward agent` 启动（没有 GPU 时加 `--source simulated`），或用 --agent URL 或 GPUSTEWARD_AGENT 指定地址",
)
SET_PROMETHEUS_URL = Message("set its address with --prometheus-url URL", "请用 --prometheus-url URL 指定地址")
CHECK_NETWORK_POLICY = Message("check the network policies of this pod", "请检查此 Pod 的网络策略")

# Error responses

ERROR_STATUS = Message("{peer} at {url} responded {status}: {reason}", "{url} 上的 {peer} 返回 {status}：{reason}")
VERBATIM = Message("{text}", "{text}")
NO_REASON = Message("no reason given", "未说明原因")
NOT_FOUND = Message(
    "{url} responded 404; check that it is the address of {peer} and that its version is not older than this command",
    "{url} 返回 404；请确认这是 {peer} 的地址，且其版本不低于本命令",
)
NEEDS_PASSWORD = Message(
    "{peer} at {url} requires a user name and password: --agent http://NAME:PASSWORD@HOST:PORT, or better in"
    " GPUSTEWARD_AGENT",
    "{url} 上的 {peer} 需要用户名和密码：--agent http://NAME:PASSWORD@HOST:PORT，最好写在 GPUSTEWARD_AGENT 中",
)
CREDENTIALS_REJECTED = Message(
    "{peer} at {url} rejected the credentials (HTTP {status}); check prometheus.username, password, bearer_token and"
    " headers (Mimir needs a tenant: X-Scope-OrgID)",
    "{url} 上的 {peer} 拒绝了凭据（HTTP {status}）；请检查 prometheus.username、password、bearer_token 和 headers"
    "（Mimir 需要用 X-Scope-OrgID 指定租户）",
)
TOKEN_REJECTED = Message(
    "{peer} at {url} rejected the token from {origin}; its server.tokens_file lists the accepted tokens",
    "{url} 上的 {peer} 拒绝了来自 {origin} 的令牌；有效令牌见其 server.tokens_file",
)
NEEDS_TOKEN = Message(
    "{peer} at {url} requires a bearer token: set GPUSTEWARD_TOKEN or --token-file",
    "{url} 上的 {peer} 需要令牌：请设置 GPUSTEWARD_TOKEN 或 --token-file",
)

# Flags and arguments

MISSING_LIBRARY = Message(
    "{library!r} is not installed: pip install 'gpusteward[{extra}]'",
    "未安装 {library!r}：pip install 'gpusteward[{extra}]'",
)
UNKNOWN_COMMAND = Message("unknown command {word!r}{suggestion}", "未知命令 {word!r}{suggestion}")
UNKNOWN_FLAG = Message("unknown flag {word!r}{suggestion}", "未知参数 {word!r}{suggestion}")
SEE_COMMANDS = Message("; {program} --help lists the commands", "；用 {program} --help 查看所有命令")
SEE_FLAGS = Message("; --help lists all flags", "；用 --help 查看所有参数")
UNEXPECTED_ARGUMENT = Message(
    "unexpected argument {word!r}; --help shows the usage", "多余的参数 {word!r}；用 --help 查看用法"
)
MISSING_ARGUMENT = Message("missing argument: {names}", "缺少参数：{names}")
INVALID_FLAG = Message("{flag}: {problem}", "{flag}：{problem}")
INVALID_CHOICE = Message("{value} is not one of {choices}", "{value} 不是有效值，可选：{choices}")
MISSING_VALUE = Message("a value is missing", "缺少取值")
TOO_MANY_VALUES = Message("at most one value is allowed", "最多只能有一个取值")
UNEXPECTED_VALUE = Message("takes no value, but has {value}", "不接受取值，但给出了 {value}")
NOT_A_NUMBER = Message("{value} is not a number", "{value} 不是数字")
NOT_SECONDS = Message("{value!r} is not a number of seconds from 0 to 3600", "{value!r} 不是 0 到 3600 之间的秒数")
NOT_A_DURATION = Message(
    "{value!r} is not a duration: write 90s, 30m, 2h, 7d or 1w",
    "{value!r} 不是时长：请写成 90s、30m、2h、7d 或 1w",
)
NOT_IN_RANGE = Message(
    "{value!r} is not a number from {least} to {most}", "{value!r} 不是 {least} 到 {most} 之间的数字"
)
INVALID_TOKEN_VARIABLE = Message(
    "environment variable {name} does not contain a token", "环境变量 {name} 的内容不是令牌"
)
INVALID_TOKEN_FILE = Message(
    "--token-file {path} does not contain a token: write one line without spaces",
    "--token-file {path} 的内容不是令牌：应只有一行，且不含空格",
)
FILE_ERROR = Message("{flag} {path}: {reason}", "{flag} {path}：{reason}")

# Workloads

UNKNOWN_WORKLOAD = Message(
    "no workload {name!r} holds or held a GPU{suggestion}", "没有名为 {name!r} 的工作负载占用或占用过 GPU{suggestion}"
)
UNKNOWN_AND_UNREADABLE = Message(
    "no workload {name!r} holds a GPU; whether one has ended is unknown: {reason}",
    "没有名为 {name!r} 的工作负载占用 GPU；无法得知是否有已结束的：{reason}",
)
AMBIGUOUS_WORKLOAD = Message(
    "{count} {count:|workload|workloads} match {name!r}: write one of {names}",
    "有 {count} 个工作负载匹配 {name!r}：请写成 {names} 之一",
)
INVALID_WORKLOAD = Message(
    "{name!r} is not a workload: write NAMESPACE/NAME or NAMESPACE/KIND/NAME",
    "{name!r} 不是工作负载名：请写成 NAMESPACE/NAME 或 NAMESPACE/KIND/NAME",
)
AS_OF = Message("as of {clock}", "截至 {clock}")
AS_OF_WITH_AGE = Message("as of {clock} ({age} ago)", "截至 {clock}（{age} 前）")
STALE_RESULT = Message(
    "{as_of}: no newer result, the engine has not answered since", "{as_of}：此后引擎没有响应，没有更新的结果"
)
FAILED_SINCE = Message(
    "{as_of}: no newer result, the last cycle failed: {reason}",
    "{as_of}：没有更新的结果，最近一个分析周期失败：{reason}",
)
NO_IDLE_WORKLOADS = Message("No idle or suspicious workloads.", "没有空闲或可疑的工作负载。")
NO_IDLE_WORKLOADS_IN = Message("No idle or suspicious workloads in {names}.", "{names} 中没有空闲或可疑的工作负载。")
NO_GPUS_HELD_IN = Message("No GPUs are held in {names} now.", "{names} 目前没有占用 GPU。")
UNKNOWN_NAMESPACE = Message(
    "no namespace {name!r} holds or held a GPU{suggestion}", "没有名为 {name!r} 的命名空间占用或占用过 GPU{suggestion}"
)
WORKLOAD = Message("workload", "工作负载")
SIGNATURE = Message("signature", "特征")
PROOF = Message("proof", "测量方式")
NODE = Message("node", "节点")
IDLE_GPUS = Message("idle GPUs", "空闲/占用 GPU")
FOR = Message("for", "时长")
SINCE = Message("since", "始于")
SCORE = Message("score", "评分")
NEXT = Message("next", "后续")
COST_PER_HOUR = Message("{currency}/hour", "每小时 {currency}")
COST_OF_SPELL = Message("this spell", "本次空闲")
COST_7D = Message("last 7 days", "近 7 天")
TOTAL_WORKLOADS = Message("{count} {count:|workload|workloads}", "共 {count} 个工作负载")
READING_WORKLOADS = Message("reading workloads", "正在读取工作负载")

# Workloads that have ended

ENDED = Message("ended", "结束于")
ENDED_TEXT = Message("{at} ({length} ago)", "{at}（{length} 前）")
END_NOT_RECORDED = Message(
    "not in the last result; the end is not recorded yet", "不在最近一次结果中；尚未记录结束时间"
)
HELD = Message("held", "占用")
HELD_TEXT = Message(
    "from {at} ({length}), on {devices} {devices:|GPU or MIG instance|GPUs or MIG instances}",
    "自 {at} 起（{length}），共 {devices} 个 GPU 或 MIG 实例",
)
GPU_HOURS = Message("GPU-hours", "GPU 小时")
GPU_HOURS_TEXT = Message(
    "{allocated} allocated: {active} active, {idle} idle ({ratio}), {unknown} unknown",
    "分配 {allocated}：使用 {active}，空闲 {idle}（{ratio}），未知 {unknown}",
)
COST = Message("cost", "费用")
COST_TEXT = Message("{total}, of which {idle} idle", "{total}，其中空闲 {idle}")
USER = Message("user", "用户")
MODEL = Message("model", "型号")

# Processes

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

# Verdicts: names of facts, and their texts

VERDICT = Message("verdict", "结论")
VERDICT_WITH_SIGNATURE = Message("{activity}, {signature}", "{activity}，{signature}")
VERDICT_WITH_SCORE = Message("{verdict}; score {score} of 100", "{verdict}；评分 {score}（满分 100）")
VERDICT_WITHOUT_SCORE = Message("{verdict}; no score", "{verdict}；没有评分")
GPUS = Message("GPUs", "GPU")
GPU_COUNTS = Message("{gpus} held, {idle} idle, {unknown} unknown", "占用 {gpus}，空闲 {idle}，未知 {unknown}")
IDLE_SINCE = Message("idle since", "空闲始于")
IDLE_SINCE_TEXT = Message("{at} ({length})", "{at}（{length}）")
FINDING = Message("finding", "发现")
HIGHEST_STEP = Message("highest step", "处置上限")
OWNER = Message("owner", "属主")
UNREAD_OWNERS: Mapping[str, Message] = {
    "derived": Message(
        "derived from names or labels of its pods, not read from the API server",
        "由 Pod 的名称或标签推断，未从 API server 读取",
    ),
    "unknown": Message("not known: each pod stands for itself", "未知：每个 Pod 单独计算"),
}
"""Where nobody has read it, and no owner reference names it."""
PROOF = Message("proof", "测量方式")
NODES = Message("nodes", "节点")
WINDOW = Message("window", "窗口")
WINDOW_TEXT = Message("{length} until {at}", "截至 {at} 的 {length}")
REASONS = Message("reasons", "原因")
EVIDENCE = Message("evidence", "依据")
OPINION = Message("language model ({model})", "语言模型（{model}）")
OPINION_TEXT = Message("{status}, confidence {confidence}: {reason}", "{status}，置信度 {confidence}：{reason}")
ALLOCATION_VALUES = Message(
    "core {mean} mean, {peak} peak; memory {memory}; power {power}; coverage {coverage}",
    "核心利用率均值 {mean}、峰值 {peak}；显存 {memory}；功率 {power}；采样覆盖率 {coverage}",
)
MORE_ALLOCATIONS = Message("and {count} more; see --output json", "另有 {count} 个；请用 --output json 查看")

# Reports

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

# Snoozes

SNOOZE_WORKLOAD = Message("workload", "工作负载")
SNOOZE_UNTIL = Message("snoozed until", "暂缓至")
SNOOZE_WHO = Message("by", "操作者")
SNOOZE_REASON = Message("reason", "原因")
SNOOZE_USAGE = Message(
    "write WORKLOAD --for DURATION --reason TEXT, WORKLOAD --end, or --list",
    "请写成 WORKLOAD --for DURATION --reason TEXT、WORKLOAD --end 或 --list",
)
SNOOZE_ENDED = Message("{workload} no longer holds a GPU", "{workload} 已不再占用 GPU")
