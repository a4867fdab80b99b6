"""Texts of `--help`. The flags have the English ones; these are looked up by them."""

from functools import cache

from gpusteward.core.messages import Language, Message

USAGE = Message("usage: ", "用法：")
HEAD = (
    Message("usage: {program} COMMAND [flags]", "用法：{program} COMMAND [flags]"),
    Message(
        "Shows who holds each GPU of a Kubernetes cluster, how well it is used, and what idle GPUs cost.",
        "显示 Kubernetes 集群中每张 GPU 由谁占用、利用得如何，以及空闲 GPU 的费用。",
    ),
    Message("commands:", "命令："),
    Message(
        "{program} help COMMAND describes a command; {program} --version prints the version.",
        "{program} help COMMAND 查看某个命令的说明；{program} --version 打印版本。",
    ),
)
COMMANDS = (
    Message(
        "export the GPU metrics of this node, attributed to pods, on /metrics",
        "在 /metrics 上导出本节点的 GPU 指标，并归属到 Pod",
    ),
    Message(
        "run the analyzer: verdicts on the GPUs of a cluster, served over HTTP",
        "运行 analyzer：判断集群中 GPU 的使用情况，并通过 HTTP 提供",
    ),
    Message(
        "run agent and analyzer on this machine's GPUs, without Kubernetes or Prometheus",
        "在本机 GPU 上运行 agent 和 analyzer，不需要 Kubernetes 或 Prometheus",
    ),
    Message(
        "run the analyzer on simulated nodes with three weeks of history", "在带三周历史数据的模拟节点上运行 analyzer"
    ),
    Message("watch GPUs, workloads and tenants in the terminal", "在终端中查看 GPU、工作负载和租户"),
    Message("list workloads that hold GPUs without using them", "列出占用 GPU 却不使用的工作负载"),
    Message("show the verdict on a workload with its reasons and evidence", "显示某个工作负载的结论、原因和依据"),
    Message(
        "show what reclaim would do now, with every guard and its answer",
        "显示回收功能此刻会做什么，及每个检查项的结果",
    ),
    Message(
        "show what a policy would have released in the past, and what would have been regretted",
        "显示某个策略在过去会归还哪些 GPU，其中哪些会后悔",
    ),
    Message("show the policies of reclaim, or print an example", "显示回收策略，或打印示例"),
    Message("show how many idle GPUs can be lent for how long", "显示有多少空闲 GPU 可以出借、可借多久"),
    Message("list what reclaim planned, did, refused and put back", "列出回收功能计划、执行、拒绝和恢复的操作"),
    Message("put back what reclaim changed", "恢复回收功能所做的修改"),
    Message(
        "show the state of reclaim, stop all its actions, or allow them again",
        "显示回收功能的状态，停止或重新允许其全部操作",
    ),
    Message(
        "send no notices about a workload and do not touch it for some time",
        "在一段时间内不发送某个工作负载的通知，也不处理它",
    ),
    Message("list the processes on this machine's GPUs with their pods", "列出本机 GPU 上的进程及其 Pod"),
    Message("check prerequisites and suggest fixes", "检查运行条件并给出修复建议"),
    Message("report GPU-hours and cost: allocated, used and idle", "GPU 小时与费用报表：已分配、已使用和空闲"),
    Message(
        "add idle spells of the past to the ledger, from the engine's history",
        "用引擎的历史数据在账本中补录过去的空闲段",
    ),
    Message("copy a ledger from SQLite to PostgreSQL", "把账本从 SQLite 复制到 PostgreSQL"),
    Message("print the analyzer's effective settings and where each comes from", "打印 analyzer 生效的配置及其来源"),
    Message("print a completion script for bash, zsh or fish", "打印 bash、zsh 或 fish 的补全脚本"),
    Message("describe a command", "查看命令的说明"),
)
DESCRIPTIONS = (
    Message(
        "Show how many idle GPUs of each model can be lent for 1 hour, 4 hours and until morning: those that nobody "
        "will need with a probability of at least 0.9, from the idle spells of the same workloads.",
        "按型号显示有多少空闲 GPU 可以出借 1 小时、4 小时或到次日早晨："
        "根据同一工作负载的空闲段，以至少 0.9 的概率无人需要。",
    ),
    Message(
        "Replay a policy over the recorded idle spells: what it would have released and saved, and every release that "
        "would have been regretted; beside the present policy and fixed windows. Changes nothing.",
        "在已记录的空闲段上回放策略：会归还和节省多少，每一次会后悔的归还，并与当前策略和固定窗口对比。不做任何修改。",
    ),
    Message(
        "Copy a ledger from an SQLite file to the empty PostgreSQL of ledger.url (GPUSTEWARD_LEDGER__URL). The "
        "analyzer must be stopped. A copy that was interrupted continues; at the end all sums are compared.",
        "把账本从 SQLite 文件复制到 ledger.url（GPUSTEWARD_LEDGER__URL）指定的空 PostgreSQL。须先停止 analyzer。"
        "中断的复制可以继续；结束时核对所有合计。",
    ),
    Message(
        "Add idle spells of the time before the ledger's first record, from the history of the engine in the settings: "
        "chances of resumption and replays then need not wait. Recorded time does not change, and a second run adds "
        "nothing. May run beside the analyzer.",
        "用配置中引擎的历史数据，补录账本首次记录之前的空闲段：恢复工作的概率和策略回放无需再等待。"
        "已记录的时间不变，再次运行不会重复补录。可与 analyzer 同时运行。",
    ),
    Message(
        "Run the analyzer: compute verdicts on the GPUs of a cluster and serve them.",
        "运行 analyzer：判断集群中 GPU 的使用情况并提供结果。",
    ),
    Message("Run agent and analyzer on the GPUs of this machine.", "在本机的 GPU 上运行 agent 和 analyzer。"),
    Message(
        "Run the analyzer on simulated GPU nodes with three weeks of history.",
        "在带三周历史数据的模拟 GPU 节点上运行 analyzer。",
    ),
    Message(
        "Start a load on simulated GPUs of the demo that runs on this machine.",
        "在本机运行的演示中，使模拟 GPU 繁忙。",
    ),
    Message(
        "Watch GPUs, workloads and tenants of a cluster (--server) or of one machine (--agent).",
        "查看集群（--server）或单台机器（--agent）的 GPU、工作负载和租户。",
    ),
    Message("Watch GPUs, workloads and tenants of a cluster.", "查看集群的 GPU、工作负载和租户。"),
    Message("List the processes on the GPUs of a node with their pods.", "列出某个节点 GPU 上的进程及其 Pod。"),
    Message(
        "List workloads with idle GPUs, and those that look hung, starved or artificially kept busy.",
        "列出有空闲 GPU 的工作负载，以及疑似卡死、等待数据或人为占用的工作负载。",
    ),
    Message(
        "Show the verdict on one workload: reasons, evidence, and the opinion of a language model if any; of a workload"
        " that has ended its GPU-hours and cost.",
        "显示某个工作负载的结论：原因、依据，以及语言模型的意见（如有）；已结束的工作负载显示 GPU 小时和费用。",
    ),
    Message(
        "List the processes on a machine's GPUs with their pods, as its agent reports them (--agent), or on a node of"
        " the cluster, through the analyzer (--node).",
        "列出某台机器 GPU 上的进程及其 Pod，由其 agent 提供（--agent）；或通过 analyzer 查看集群中的节点（--node）。",
    ),
    Message(
        "Check driver, permissions, sockets, servers and clocks. Changes nothing, requires none of them.",
        "检查驱动、权限、套接字、服务器和时钟。不做任何修改，也不要求它们都存在。",
    ),
    Message(
        "Report GPU-hours and cost: allocated, used and idle, the trend, and what needs fewer GPUs.",
        "GPU 小时与费用报表：已分配、已使用和空闲，变化趋势，以及可以减少 GPU 的工作负载。",
    ),
    Message("Print the analyzer's effective settings and where each comes from.", "打印 analyzer 生效的配置及其来源。"),
    Message(
        "Print a script that completes gpusteward's commands, flags and values.",
        "打印用于补全 gpusteward 命令、参数和取值的脚本。",
    ),
    Message(
        "Describe a command, as `gpusteward COMMAND --help` does; without one, list all commands.",
        "查看命令的说明，与 `gpusteward COMMAND --help` 相同；不带命令时列出所有命令。",
    ),
    Message(
        "Show what reclaim would do now: for each workload the outcome, when, and why; for one workload "
        "every guard with its answer, and what exactly would change.",
        "显示回收功能此刻会做什么：每个工作负载的结果、时间和原因；指定一个工作负载时，显示每个检查项的结果和具体修改。",
    ),
    Message(
        "List what reclaim planned, did, refused and put back, the newest first.",
        "列出回收功能计划、执行、拒绝和恢复的操作，最新的在前。",
    ),
    Message(
        "Put back exactly what reclaim changed on a workload, or on all of them. A workload that somebody "
        "else changed meanwhile is left as it is. Needs the role operator.",
        "将回收功能对某个或全部工作负载所做的修改原样恢复。期间被他人修改过的工作负载保持不变。需要 operator 角色。",
    ),
    Message(
        "Show the state of reclaim, stop all actions at once, or allow them again. Needs the role admin "
        "for off and on.",
        "显示回收功能的状态，立即停止全部操作，或重新允许。off 和 on 需要 admin 角色。",
    ),
    Message(
        "Show the policies of reclaim in the order in which they are tried, or why there are none: then nothing new is "
        "warned of or done.",
        "按匹配顺序显示回收策略；没有可用策略时显示原因，此时不会发出新的警告，也不会执行新的操作。",
    ),
    Message(
        "Send no notices about a workload and do not touch it for some time, at most as long as its policy allows; list"
        " such workloads, or end it early. Changes need the role operator.",
        "在一段时间内（不超过策略的上限）不发送某个工作负载的通知，也不处理它；列出此类工作负载，或提前结束。"
        "修改需要 operator 角色。",
    ),
)
FLAGS = (
    Message("only this GPU model; repeatable", "只显示此 GPU 型号，可重复"),
    Message(
        "policy file (YAML) to replay (default: the policies in effect)", "要回放的策略文件（YAML，默认为生效的策略）"
    ),
    Message("replay the policies of `gpusteward policies --example`", "回放 `gpusteward policies --example` 的策略"),
    Message("print a policy file to begin with; asks no analyzer", "打印一份示例策略文件，不访问 analyzer"),
    Message("start: 24h, 14d, 4w ago, or a date (default 14d)", "开始时间：24h、14d、4w 之前，或日期（默认 14d）"),
    Message(
        "a release is regretted if work comes back within this time (default 30)",
        "归还后在此时间内又有工作，即为后悔（分钟，默认 30）",
    ),
    Message(
        "how far back: 24h, 14d, 4w ago, or a date (default 14d)", "补录到多久以前：24h、14d、4w 前，或日期（默认 14d）"
    ),
    Message(
        "time between two cycles of the past, at most the window (default: scheduler.interval); a longer one "
        "needs fewer queries",
        "过去两个周期之间的时间，不超过窗口（默认 scheduler.interval）；越长查询越少",
    ),
    Message("copy: from SQLite to PostgreSQL", "copy：从 SQLite 复制到 PostgreSQL"),
    Message(
        "the SQLite file (default: gpusteward.db in ledger.directory)",
        "SQLite 文件（默认：ledger.directory 中的 gpusteward.db）",
    ),
    Message("print the estimate only; add nothing", "只打印估计值，不补录"),
    Message("positional arguments", "位置参数"),
    Message("options", "参数"),
    Message("settings", "配置"),
    Message("Precedence: flag, environment, file, default.", "优先级：命令行参数、环境变量、文件、默认值。"),
    Message("show this help message and exit", "显示此帮助并退出"),
    Message(
        "settings file (default config.yaml) [GPUSTEWARD_CONFIG]", "配置文件（默认 config.yaml）[GPUSTEWARD_CONFIG]"
    ),
    Message(
        "listen address: PORT, :PORT, HOST:PORT or [IPV6]:PORT (server.address)",
        "监听地址：PORT、:PORT、HOST:PORT 或 [IPV6]:PORT（server.address）",
    ),
    Message("file with bearer tokens and their roles (server.tokens_file)", "令牌及其角色的文件（server.tokens_file）"),
    Message(
        "web config file of the exporter-toolkit: TLS, passwords (server.web_config_file)",
        "exporter-toolkit 的 web 配置文件：TLS、密码（server.web_config_file）",
    ),
    Message(
        "URL of the Prometheus-compatible engine to query (prometheus.url)",
        "要查询的兼容 Prometheus 的引擎的 URL（prometheus.url）",
    ),
    Message(
        "seconds between the starts of two cycles (scheduler.interval)", "两个周期开始之间的秒数（scheduler.interval）"
    ),
    Message("debug, info, warning or error (logging.level)", "debug、info、warning 或 error（logging.level）"),
    Message("text or json (logging.format)", "text 或 json（logging.format）"),
    Message(
        "any setting by its path, such as ai.enabled=true; may be given several times",
        "按路径设置任意配置项，例如 ai.enabled=true；可重复",
    ),
    Message(
        "output language (default: from LC_ALL, LC_MESSAGES or LANG)",
        "输出语言（默认取自 LC_ALL、LC_MESSAGES 或 LANG）",
    ),
    Message("number of nodes, 1 to 200 (default 40)", "节点数，1 到 200（默认 40）"),
    Message(
        "start a load in the running demo: gpusteward demo load --help",
        "在运行中的演示里启动负载：gpusteward demo load --help",
    ),
    Message(
        "share of the time in which the GPU is busy, 1 to 100 (default 80)",
        "GPU 繁忙时间所占百分比，1 到 100（默认 80）",
    ),
    Message("duration of the load (default 5)", "负载持续的分钟数（默认 5）"),
    Message(
        "load all GPUs of this workload (default: a new pod on a free GPU)",
        "使该工作负载的所有 GPU 繁忙（默认：在空闲 GPU 上新建一个 Pod）",
    ),
    Message(
        "seed of the simulation: each one is another cluster (default 7)", "模拟的种子：每个种子是另一个集群（默认 7）"
    ),
    Message("first view (default workloads)", "初始视图（默认 workloads）"),
    Message("first view (default workloads; with --agent gpus)", "初始视图（默认 workloads；使用 --agent 时为 gpus）"),
    Message("refresh interval (default 5)", "刷新间隔（默认 5）"),
    Message("print the view once and exit; table without a terminal", "打印一次视图后退出；没有终端时为 table"),
    Message(
        "address of the analyzer (default http://127.0.0.1:8080) [GPUSTEWARD_SERVER]",
        "analyzer 的地址（默认 http://127.0.0.1:8080）[GPUSTEWARD_SERVER]",
    ),
    Message("file with the bearer token [GPUSTEWARD_TOKEN: the token itself]", "令牌文件 [GPUSTEWARD_TOKEN：令牌本身]"),
    Message("timeout of a request (default 10)", "请求的超时时间（默认 10）"),
    Message(
        "file with the CA certificates to trust for https [GPUSTEWARD_CA_FILE]",
        "https 所信任的 CA 证书文件 [GPUSTEWARD_CA_FILE]",
    ),
    Message(
        "watch one machine: address of its agent (default http://127.0.0.1:9400)",
        "查看单台机器：其 agent 的地址（默认 http://127.0.0.1:9400）",
    ),
    Message("only this namespace; may be repeated", "只看该命名空间；可重复"),
    Message("only this cluster, where there are several; may be repeated", "只看该集群（有多个集群时）；可重复"),
    Message("its cluster, where there are several", "所在集群（有多个集群时）"),
    Message("only if idle for at least 30m, 2h, 7d", "只看空闲至少这么久的，例如 30m、2h、7d"),
    Message("order of the rows (default cost: of the current idle spell)", "行的顺序（默认 cost：本次空闲的费用）"),
    Message("exit 3 if any workload is listed", "列出任何工作负载时以 3 退出"),
    Message("output format (default table)", "输出格式（默认 table）"),
    Message(
        "NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME; a pod's name too",
        "NAME、NAMESPACE/NAME、KIND/NAME 或 NAMESPACE/KIND/NAME；也可以是 Pod 的名称",
    ),
    Message("namespace of the workload", "工作负载的命名空间"),
    Message("how long: 30m, 8h, 2d", "时长：30m、8h、2d"),
    Message("why, for others who look at the workload", "原因，供查看该工作负载的其他人了解"),
    Message("list the workloads that are snoozed", "列出处于暂缓状态的工作负载"),
    Message("end the snooze of the workload", "提前结束该工作负载的暂缓"),
    Message("also list pods that hold a GPU without a process on it", "同时列出占用 GPU 但没有进程的 Pod"),
    Message("only the GPU with this index or UUID; may be repeated", "只看该编号或 UUID 的 GPU；可重复"),
    Message("the processes of pods on this node of the cluster", "集群中该节点上 Pod 的进程"),
    Message(
        "kubeconfig file (default ~/.kube/config) [KUBECONFIG]", "kubeconfig 文件（默认 ~/.kube/config）[KUBECONFIG]"
    ),
    Message("context of the kubeconfig (default: the current one)", "kubeconfig 中的 context（默认为当前 context）"),
    Message("user to impersonate", "要模拟的用户"),
    Message("group to impersonate; needs --as", "要模拟的用户组；需要 --as"),
    Message(
        "Service of the analyzer, or its namespace (default: found by its labels) [GPUSTEWARD_ANALYZER]",
        "analyzer 的 Service 或其命名空间（默认按标签查找）[GPUSTEWARD_ANALYZER]",
    ),
    Message("all namespaces that you may see (default)", "您有权查看的全部命名空间（默认）"),
    Message("the processes of pods on this node of the cluster (--server)", "集群（--server）中该节点上 Pod 的进程"),
    Message(
        "address of the agent (default http://127.0.0.1:9400) [GPUSTEWARD_AGENT]",
        "agent 的地址（默认 http://127.0.0.1:9400）[GPUSTEWARD_AGENT]",
    ),
    Message(
        "address of Prometheus (default: prometheus.url of the settings) [PROM_URL]",
        "Prometheus 的地址（默认为配置中的 prometheus.url）[PROM_URL]",
    ),
    Message(
        "settings file of the analyzer (default config.yaml) [GPUSTEWARD_CONFIG]",
        "analyzer 的配置文件（默认 config.yaml）[GPUSTEWARD_CONFIG]",
    ),
    Message("address of the API server, such as a kubectl proxy", "API server 的地址，例如 kubectl proxy"),
    Message(
        "check an installation in a cluster instead: agents, rights, sources, holders, proof, notices, verdicts; "
        "used by helm test",
        "改为检查集群中的安装：agent、权限、数据源、占用者、测量方式、通知和结论；供 helm test 使用",
    ),
    Message("with --cluster: the DaemonSet of the agents", "与 --cluster 一起使用：agent 的 DaemonSet"),
    Message("with --cluster: repeat failed checks this long", "与 --cluster 一起使用：失败的检查重试多久"),
    Message(
        "DCGM hostengine of the agent (HOST:5555, unix:PATH, embedded, auto) [GPUSTEWARD_DCGM_HOSTENGINE]",
        "agent 的 DCGM hostengine（HOST:5555、unix:PATH、embedded、auto）[GPUSTEWARD_DCGM_HOSTENGINE]",
    ),
    Message("the kubelet's pod-resources socket", "kubelet 的 pod-resources 套接字"),
    Message("the host's /proc", "宿主机的 /proc"),
    Message(
        "start: 24h, 7d, 4w before --until, or a date (default 7d)",
        "开始：--until 之前的 24h、7d、4w，或日期（默认 7d）",
    ),
    Message("end: a duration before now, or a date (default now)", "结束：距现在的时长，或日期（默认现在）"),
    Message("group by (default namespace)", "分组方式（默认 namespace）"),
    Message("number of idle workloads and of findings (default 10)", "空闲工作负载和发现的数量（默认 10）"),
    Message("number of groups (default 30 in a table, else 1000)", "分组的数量（表格默认 30，其他默认 1000）"),
    Message(
        "output format (default table); focus: charges with the columns of FOCUS",
        "输出格式（默认 table）；focus：按 FOCUS 的列输出费用",
    ),
    Message("write to this file instead of standard output", "写入该文件，而不是标准输出"),
    Message(
        "read a ledger directly: a SQLite file or a database URL (default: ledger.url of the settings)",
        "直接读取账本：SQLite 文件或数据库 URL（默认为配置中的 ledger.url）",
    ),
    Message(
        "with --ledger: settings file with ledger.url and prices",
        "与 --ledger 一起使用：含 ledger.url 和 prices 的配置文件",
    ),
    Message("shell to write the script for", "脚本所用的 shell"),
    Message("command to describe", "要查看的命令"),
    Message("only this one, with every guard", "仅此工作负载，并显示每个检查项"),
    Message("also workloads for which nothing is planned", "也显示没有计划的工作负载"),
    Message("every guard of each workload", "显示每个工作负载的每个检查项"),
    Message("only actions on this one", "仅对该工作负载的操作"),
    Message("only in this state; may be repeated", "仅此状态；可重复"),
    Message("maximum number (default 50)", "最多显示的数量（默认 50）"),
    Message("status, off (stop all actions) or on", "status、off（停止全部操作）或 on"),
    Message("with off: why, shown to everybody", "与 off 一起使用：原因，所有人可见"),
    Message(
        "NAME, NAMESPACE/NAME, NAMESPACE/KIND/NAME or the id of an action",
        "NAME、NAMESPACE/NAME、NAMESPACE/KIND/NAME 或操作编号",
    ),
    Message("everything that can be restored", "全部可恢复的操作"),
    Message(
        "NAME, NAMESPACE/NAME, KIND/NAME or NAMESPACE/KIND/NAME",
        "NAME、NAMESPACE/NAME、KIND/NAME 或 NAMESPACE/KIND/NAME",
    ),
)
EPILOGS = (
    Message("exit codes:", "退出码："),
    Message("success", "成功"),
    Message("stopped by Ctrl-C or SIGTERM while serving", "运行中被 Ctrl-C 或 SIGTERM 停止"),
    Message(
        "a server, device or file is missing or failed; one line on standard error says which",
        "服务器、设备或文件缺失或出错；标准错误上有一行说明",
    ),
    Message("no workload with this name holds or held a GPU", "没有该名称的工作负载占用或占用过 GPU"),
    Message(
        "no workload with this name holds a GPU or is snoozed, or the token may not do this",
        "没有该名称的工作负载占用 GPU 或处于暂缓状态，或令牌没有权限",
    ),
    Message(
        "the engine failed many times in a row; the next run continues there", "引擎连续多次失败；下次运行从此处继续"
    ),
    Message("a check failed", "有检查未通过"),
    Message("the agent exited", "agent 已退出"),
    Message(
        "a flag, variable or file is invalid; one line on standard error says which",
        "参数、变量或文件无效；标准错误上有一行说明",
    ),
    Message("several workloads have this name", "有多个同名的工作负载"),
    Message("with --exit-code: at least one workload is listed", "使用 --exit-code 时：至少列出一个工作负载"),
    Message("interrupted by Ctrl-C", "被 Ctrl-C 中断"),
    Message("broken pipe, as with `| head`", "管道已断开，例如 `| head`"),
    Message("Press ? for the keys.", "按 ? 查看按键。"),
    Message("How to use it:", "用法："),
)


def translate_help(text: str, language: Language) -> str:
    """English where there is no translation."""
    return text if language == "en" else _index().get(text, text)


@cache
def _index() -> dict[str, str]:
    return {each.en: each.zh for each in (*COMMANDS, *DESCRIPTIONS, *FLAGS, *EPILOGS)}
