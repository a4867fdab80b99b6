"""Texts of `gpusteward doctor`: findings, and how to fix them."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

REASON = Message("{reason}", "{reason}")
FIX = Message("fix: {how}", "修复方法：{how}")
CHECKING = Message("checks", "检查")
CANNOT_READ = Message("{path} cannot be read: {reason}", "无法读取 {path}：{reason}")
MISSING_PATH = Message("{path} does not exist", "{path} 不存在")

# Driver and devices

NO_GPU = Message("this machine has no NVIDIA GPU", "此机器没有 NVIDIA GPU")
ONLY_FOR_AGENTS = Message(
    "no action needed unless an agent will run on this machine", "无需处理，除非要在此机器上运行 agent"
)
NO_LIBRARY = Message("the Python package {name} is not installed", "未安装 Python 包 {name}")
INSTALL_AGENT = Message("pip install gpusteward", "pip install gpusteward")
RUN_NVIDIA_SMI = Message(
    "run nvidia-smi as the same user and fix what it reports", "请以同一用户运行 nvidia-smi，并按其提示修复"
)
DRIVER_READ = Message("{gpus} {gpus:|GPU|GPUs}, driver {version}", "{gpus} 张 GPU，驱动版本 {version}")
FAMILIES_OF_GPU = Message("{model} does not provide: {families}", "{model} 不提供：{families}")
FAMILIES_OF_MIG = Message(
    "{model} divided by MIG does not provide: {families}", "启用 MIG 的 {model} 不提供：{families}"
)
USE_HOSTENGINE = Message(
    "before Hopper, DCGM_FI_PROF_* need a DCGM hostengine: --dcgm-hostengine of the agent, or"
    " agent.profiling.hostengine of the chart",
    "Hopper 之前的 GPU 上，DCGM_FI_PROF_* 需要 DCGM hostengine：设置 agent 的 --dcgm-hostengine，或 chart 的 "
    "agent.profiling.hostengine",
)
DRIVER_HANGS = Message("the driver did not respond within {seconds:.0f} s", "驱动在 {seconds:.0f} 秒内没有响应")
REBOOT = Message(
    "look for Xid errors in dmesg; drain and reboot the node", "请在 dmesg 中查找 Xid 错误；排空节点并重启"
)
RESET_GPU = Message(
    "look for its Xid in dmesg; drain the node, then reset the GPU or reboot",
    "请在 dmesg 中查找其 Xid；排空节点后重置 GPU 或重启",
)
NO_DEVICES = Message("there is no /dev/nvidia*", "没有 /dev/nvidia* 设备")
DEVICES_OPEN = Message("{count} {count:|device|devices} can be opened", "{count} 个设备可以打开")
DEVICE_CLOSED = Message("this user may not open {path}", "当前用户无权打开 {path}")
JOIN_GROUP = Message(
    "it belongs to group {group}: join the group, run as root, or give the container the nvidia runtime class",
    "该设备属于 {group} 组：请加入该组、以 root 运行，或为容器使用 nvidia 运行时类",
)

# DCGM hostengine

NO_HOSTENGINE = Message("no DCGM hostengine is configured", "未配置 DCGM hostengine")
SET_HOSTENGINE = Message(
    "no action needed on Hopper and newer; on older GPUs, profiling fields such as Tensor Core activity and the"
    " utilization of MIG instances need one: set --dcgm-hostengine of the agent, or agent.profiling.hostengine of the"
    " chart",
    "Hopper 及更新的 GPU 无需处理；更早的 GPU 需要它才能提供性能分析字段（例如 Tensor Core 活动）和 MIG 实例的"
    "利用率：请设置 agent 的 --dcgm-hostengine，或 chart 的 agent.profiling.hostengine",
)
HOSTENGINE_HANGS = Message(
    "the hostengine {hostengine} did not respond within {seconds:.0f} s",
    "hostengine {hostengine} 在 {seconds:.0f} 秒内没有响应",
)
RESTART_HOSTENGINE = Message("restart the hostengine, and check its log", "请重启 hostengine，并查看其日志")
HOSTENGINE_FAILS = Message(
    "the hostengine {hostengine} cannot be used: {reason}", "无法使用 hostengine {hostengine}：{reason}"
)
START_HOSTENGINE = Message(
    "check the address, that nv-hostengine runs (the GPU operator runs it as nvidia-dcgm), and that libdcgm of the same"
    " major version is installed here",
    "请检查地址，确认 nv-hostengine 正在运行（GPU operator 中名为 nvidia-dcgm），且本机已安装主版本相同的 libdcgm",
)
HOSTENGINE_RESPONDS = Message(
    "the hostengine {hostengine} responds; DCGM {version}, {gpus} {gpus:|GPU|GPUs}",
    "hostengine {hostengine} 响应正常；DCGM {version}，{gpus} 张 GPU",
)
PROFILING_FIELDS = Message(
    "{count} {count:|GPU|GPUs} (such as {gpu}): {fields}", "{count} 张 GPU（例如 {gpu}）：{fields}"
)
NO_PROFILING_FIELDS = Message(
    "{count} {count:|GPU|GPUs} (such as {gpu}) without profiling fields", "{count} 张 GPU（例如 {gpu}）没有性能分析字段"
)
PROFILING_SUPPORT = Message(
    "DCGM does not profile GeForce GPUs; on data center GPUs the hostengine must run as root or with CAP_SYS_ADMIN",
    "DCGM 不支持对 GeForce 进行性能分析；对于数据中心 GPU，hostengine 必须以 root 运行，或具有 CAP_SYS_ADMIN 权限",
)

# Processes and cgroups

MOUNT_PROC = Message(
    "mount the host's /proc and set its path with --proc", "请挂载宿主机的 /proc，并用 --proc 指定路径"
)
PROCESSES_SEEN = Message(
    "{count} {count:|process|processes} visible, all cgroups readable", "可见 {count} 个进程，cgroup 均可读取"
)
OWN_PID_NAMESPACE = Message(
    "only {count} {count:|process is|processes are} visible: this is a separate PID namespace",
    "仅可见 {count} 个进程：当前处于独立的 PID 命名空间",
)
SET_HOST_PID = Message(
    "an agent needs hostPID: true to identify the processes of other pods",
    "agent 需要 hostPID: true 才能识别其他 Pod 的进程",
)
CGROUPS_HIDDEN = Message(
    "the cgroups of {hidden} of {count} {count:|process|processes} cannot be read",
    "{count} 个进程中有 {hidden} 个的 cgroup 不可读",
)
UNHIDE_PROC = Message("run as root, or mount /proc without hidepid", "请以 root 运行，或在挂载 /proc 时去掉 hidepid")
CGROUP_VERSION = Message("cgroup {version}", "cgroup {version}")
MOUNT_CGROUP = Message("mount /sys/fs/cgroup of the host", "请挂载宿主机的 /sys/fs/cgroup")

# Kubelet

NO_KUBELET = Message("no kubelet on this machine", "此机器没有 kubelet")
ONLY_ON_NODES = Message("no action needed unless this is a node of a cluster", "无需处理，除非此机器是集群节点")
MOUNT_SOCKET = Message(
    "mount /var/lib/kubelet/pod-resources of the host into the pod, or set the socket with --kubelet-socket",
    "请将宿主机的 /var/lib/kubelet/pod-resources 挂载到 Pod 中，或用 --kubelet-socket 指定套接字",
)
SOCKET_FAILS = Message("no response on {path}: {reason}", "{path} 无响应：{reason}")
RUN_AS_ROOT = Message(
    "the socket belongs to root: run the agent as root, and check that the kubelet is running",
    "该套接字属于 root：请以 root 运行 agent，并确认 kubelet 正在运行",
)
CLAIMS = Message(
    "it responds; {claims} GPU {claims:|claim|claims} on this node", "响应正常，本节点有 {claims} 个 GPU 设备声明"
)
SOCKET_LISTENS = Message(
    "it is listening; to query it, run pip install gpusteward",
    "正在监听；如需查询，请运行 pip install gpusteward",
)

# Permissions at the API server

NOT_IN_POD = Message("not running in a pod", "当前不在 Pod 中")
USE_KUBECTL_PROXY = Message(
    "no action needed; to check a cluster from here, run kubectl proxy and set --kubernetes-api http://127.0.0.1:8001",
    "无需处理；如需从此处检查集群，请运行 kubectl proxy 并指定 --kubernetes-api http://127.0.0.1:8001",
)
NO_SERVICE_ACCOUNT = Message("{path} is missing", "缺少 {path}")
MOUNT_TOKEN = Message("set automountServiceAccountToken: true", "请设置 automountServiceAccountToken: true")
REACH_API_SERVER = Message("allow this pod to reach the API server", "请允许此 Pod 访问 API server")
ALLOWED = Message("may {rights}", "允许执行：{rights}")
NOT_ALLOWED = Message("may not {rights}", "不允许执行：{rights}")
GRANT = Message(
    "bind the service account to a ClusterRole that may {rights}, as the chart's and the manifests' do",
    "请为服务账号绑定允许 {rights} 的 ClusterRole，chart 和清单中已有",
)
GRANT_RECLAIM = Message(
    "set reclaim.rights of the chart, and reclaim.namespaces there if only these may be changed; without the chart "
    "bind the service account to roles that may {rights}",
    "请设置 chart 的 reclaim.rights；若只允许修改部分命名空间，请同时设置 reclaim.namespaces；不使用 chart 时请为"
    "服务账号绑定允许 {rights} 的角色",
)
REVIEW_REFUSED = Message("{url} responded {status} to an access review", "{url} 对权限查询返回 {status}")
NOT_AN_API_SERVER = Message("{url} does not respond like an API server", "{url} 的响应不像 API server")

# Prometheus

NO_PROMETHEUS = Message("no Prometheus is configured", "未配置 Prometheus")
SET_PROMETHEUS = Message(
    "no action needed if the analyzer scrapes agents itself; otherwise set --prometheus-url URL, PROM_URL, or"
    " prometheus.url in the settings file of the analyzer (--config FILE)",
    "若由 analyzer 直接抓取 agent 则无需处理；否则请指定 --prometheus-url URL、PROM_URL，或在 analyzer 的配置文件"
    "（--config FILE）中设置 prometheus.url",
)
SETTINGS_INVALID = Message("the settings of the analyzer are invalid: {reason}", "analyzer 的配置无效：{reason}")
FIX_SETTINGS = Message(
    "correct them; gpusteward settings shows the effective settings, and --prometheus-url URL bypasses them",
    "请修正；gpusteward settings 显示生效的配置，指定 --prometheus-url URL 则不使用该配置",
)
NOT_PROMETHEUS = Message("{url} does not respond like Prometheus", "{url} 的响应不像 Prometheus")
REACH_PROMETHEUS = Message(
    "check the address, which comes from {origin}, and the network policies", "请检查地址（来自 {origin}）及网络策略"
)
PROMETHEUS_RESPONDS = Message("{url} responds; the address comes from {origin}", "{url} 响应正常；地址来自 {origin}")
METRICS_FOUND = Message("found GPU metrics of {dialects}", "找到 GPU 指标：{dialects}")
NO_METRICS = Message("no GPU metrics in the last hour", "最近一小时没有 GPU 指标")
NO_SERIES = Message("it has no series at all", "其中没有任何序列")
CHECK_TENANT = Message(
    "check the address and, where the engine has tenants, prometheus.headers (X-Scope-OrgID): this tenant is empty",
    "请检查地址；若引擎区分租户，请检查 prometheus.headers（X-Scope-OrgID）：该租户没有数据",
)
SCRAPE_AGENTS = Message(
    "have it scrape the agents (or dcgm-exporter) with a ServiceMonitor or the annotation prometheus.io/scrape",
    "请让它抓取 agent（或 dcgm-exporter）：使用 ServiceMonitor 或 prometheus.io/scrape 注解",
)
NO_RECENT_SAMPLES = Message(
    "it has GPU metric names, but no samples from the last minutes", "有 GPU 指标名，但最近几分钟没有样本"
)
RESTORE_EXPORTERS = Message(
    "restore the exporters that are down; see its /targets page", "请恢复已停止的 exporter；见其 /targets 页面"
)
SCRAPE_INTERVAL = Message("job {job} is scraped every {seconds:.0f} s", "任务 {job} 每 {seconds:.0f} 秒抓取一次")
SHORTEN_INTERVAL = Message(
    "set scrape_interval of that job to 30s or less", "请将该任务的 scrape_interval 设为 30s 或更短"
)

PROFILING_INTERVAL = Message(
    "job {job} is scraped every {seconds:.0f} s; engine activity proves idleness if DCGM is read every "
    "{collected:.0f} s or less often (judge.proof.dcgm_interval_seconds, dcgm-exporter's -c)",
    "任务 {job} 每 {seconds:.0f} 秒抓取一次；DCGM 的读取间隔不短于 {collected:.0f} 秒时，引擎活跃度能证明空闲"
    "（judge.proof.dcgm_interval_seconds，即 dcgm-exporter 的 -c）",
)
SCRAPE_PROFILING = Message(
    "DCGM averages profiling fields over {collected:.0f} s, and a scrape that is not clearly sooner can skip one: set "
    "scrape_interval of that job to 15s, as dcgm-exporter's own ServiceMonitor does, or dcgm-exporter's -c and "
    "judge.proof.dcgm_interval_seconds to twice the scrape interval; until then idleness leads to a notice at most",
    "DCGM 对性能分析字段按 {collected:.0f} 秒求平均，抓取若不明显更快就可能跳过一个平均值：请像 dcgm-exporter 自带的 "
    "ServiceMonitor 那样将该任务的 scrape_interval 设为 15s，或把 dcgm-exporter 的 -c 和 "
    "judge.proof.dcgm_interval_seconds 设为抓取间隔的两倍；在此之前，空闲最多只发通知",
)
NO_VIDEO = Message("{fields} are not exported", "没有导出 {fields}")
EXPORT_VIDEO = Message(
    "add them to the CSV of dcgm-exporter: without them work of video engines is not seen, and idleness leads to a "
    "notice at most",
    "请把它们加入 dcgm-exporter 的 CSV：否则看不到视频引擎的活动，空闲最多只发通知",
)

# Analyzer and agent

NOT_RUNNING = Message("not running at {url}", "{url} 上没有运行")
START_ANALYZER = Message(
    "no action needed unless you expect one: start gpusteward serve, or set --server URL",
    "如不需要则无需处理；否则请启动 gpusteward serve，或指定 --server URL",
)
START_AGENT = Message(
    "no action needed unless you expect one: start gpusteward agent, or set --agent URL",
    "如不需要则无需处理；否则请启动 gpusteward agent，或指定 --agent URL",
)
CHECK_LOG = Message("check its log and its listen address", "请查看其日志，并确认监听地址")
HEALTHY = Message(
    "version {version}, {allocations} {allocations:|allocation|allocations}", "版本 {version}，{allocations} 个分配"
)
NO_CYCLE = Message("no cycle has finished yet", "第一个分析周期尚未完成")
WAIT_FOR_CYCLE = Message(
    "wait for one interval ({interval:.0f} s); if there is still no result, check its log",
    "请等待一个周期（{interval:.0f} 秒）；如仍无结果，请查看其日志",
)
UNHEALTHY = Message("status {status}: {error}", "状态{status}：{error}")
REACH_SOURCE = Message(
    "make its source reachable: /api/v1/sources shows the addresses and the results",
    "请确保它能访问数据源：地址和结果见 /api/v1/sources",
)
NOT_HEALTHY = Message(
    "version {version}, {allocations} {allocations:|allocation|allocations}, status {status}",
    "版本 {version}，{allocations} 个分配，状态{status}",
)
CORRECT_POLICIES = Message(
    "correct the file of reclaim.policy_file, which is read again when it changes; nothing new is warned of or done "
    "meanwhile",
    "请修正 reclaim.policy_file 指定的文件（修改后会自动重新读取）；在此之前不会发出新的警告，也不会执行新的操作",
)
CHECK_CYCLES = Message(
    "check in its log how long a cycle takes; if it takes longer than scheduler.interval, raise that setting",
    "请在其日志中查看分析周期的耗时；如超过 scheduler.interval，请增大该配置项",
)
FIX_FINDINGS: Mapping[str, Message] = {
    "source-incomplete": Message(
        "restore what it names; /api/v1/sources lists all failures", "请恢复所列部分；全部故障见 /api/v1/sources"
    ),
    "result-old": CHECK_CYCLES,
    "policies-refused": CORRECT_POLICIES,
    "targets-lost": Message(
        "check that these exporters run and can be reached; /api/v1/sources names them",
        "请确认这些 exporter 正在运行且可以访问；名称见 /api/v1/sources",
    ),
    "unknown-gpus": Message(
        "gpusteward explain WORKLOAD shows the reason of each; /api/v1/health counts them by reason",
        "gpusteward explain 工作负载 可查看各自的原因；/api/v1/health 按原因统计",
    ),
    "gpus-vanished": Message(
        "check that the exporters run and that the engine scrapes them; after scaling to zero on purpose, let the"
        " analyzer list nodes",
        "请确认 exporter 正在运行且引擎在抓取它们；如果是有意缩容到零，请允许 analyzer 列出节点",
    ),
    "gpus-never-found": Message(
        "have the engine scrape the agents or dcgm-exporter; on a cluster without GPU nodes, let the analyzer list"
        " nodes",
        "请让引擎抓取 agent 或 dcgm-exporter；如果集群没有 GPU 节点，请允许 analyzer 列出节点",
    ),
    "nodes-missing": Message(
        "check that an exporter runs on these nodes and is scraped; where none shall run, label the node"
        " nvidia.com/gpu.deploy.dcgm-exporter=false",
        "请确认这些节点上有 exporter 在运行且被抓取；如果有意不运行，请给节点加上标签"
        " nvidia.com/gpu.deploy.dcgm-exporter=false",
    ),
    "nodes-unreadable": Message("let the analyzer list nodes", "请允许 analyzer 列出节点"),
    "gpus-lost": Message(
        "look for XID errors and run nvidia-smi on the node; a GPU that was removed is forgotten after a day",
        "请查看 XID 错误，并在节点上运行 nvidia-smi；已拆除的 GPU 一天后不再提示",
    ),
    "used-by-nobody-known": Message(
        "mount the kubelet's pod-resources socket into the exporter and keep its labels pod, namespace and container"
        " when relabeling; processes outside of Kubernetes are expected here",
        "请把 kubelet 的 pod-resources 套接字挂载到 exporter，relabel 时保留 pod、namespace、container 标签；"
        "Kubernetes 之外的进程出现在这里属于正常",
    ),
    "exporter-is-holder": Message(
        "copy exported_pod to pod also where it is empty (regex .* instead of .+), or drop the pod label of the target",
        "把 exported_pod 复制到 pod 时也应覆盖空值（正则用 .* 而不是 .+），或去掉抓取目标的 pod 标签",
    ),
    "no-video-fields": EXPORT_VIDEO,
    "exporters-down": Message(
        "check that these exporters run and that the engine may reach them",
        "请确认这些 exporter 正在运行，且引擎可以访问它们",
    ),
    "gpus-unreported": Message(
        "keep series without a pod when relabeling, and let the exporter report all GPUs of its node",
        "relabel 时请保留没有 Pod 的序列，并让 exporter 上报其节点的所有 GPU",
    ),
    "exporters-silent": Message(
        "read the log of these exporters: the driver, NVML or DCGM's hostengine of their nodes fails",
        "请查看这些 exporter 的日志：其节点上的驱动、NVML 或 DCGM hostengine 出错",
    ),
    "no-holder-named": Message(
        "where pods hold GPUs: mount the kubelet's pod-resources socket into the exporter, set"
        " DCGM_EXPORTER_KUBERNETES=true, and keep its labels pod and namespace when relabeling",
        "如果有 Pod 占用 GPU：请把 kubelet 的 pod-resources 套接字挂载到 exporter，设置"
        " DCGM_EXPORTER_KUBERNETES=true，relabel 时保留 pod 和 namespace 标签",
    ),
    "two-gpus-one-index": Message(
        "name clusters by a label (external_labels of each Prometheus, prometheus.cluster_label), and give"
        " dcgm-exporter the name of its node (NODE_NAME)",
        "请用标签区分集群（各 Prometheus 的 external_labels，prometheus.cluster_label），并为 dcgm-exporter 设置节点名"
        "（NODE_NAME）",
    ),
    "gpu-on-two-nodes": Message(
        "scrape each exporter once and label clusters (prometheus.cluster_label) where machines are cloned",
        "请确保每个 exporter 只抓取一次；克隆的机器请用集群标签区分（prometheus.cluster_label）",
    ),
}
"""By the code of a finding in /api/v1/health; others need no further words."""
AGENT_READY = Message("it is ready", "已就绪")
AGENT_NOT_READY = Message("it is not ready: {reason}", "未就绪：{reason}")
RUN_DOCTOR_THERE = Message(
    "run gpusteward doctor on that node and fix what it finds", "请在该节点上运行 gpusteward doctor 并按提示修复"
)

# Clocks

NO_CLOCK = Message("no server responded, so there is no clock to compare with", "没有服务器响应，无法对比时钟")
CLOCKS_AGREE = Message(
    "within {skew:.0f} s of this machine: {servers}", "与本机时钟相差不超过 {skew:.0f} 秒：{servers}"
)
CLOCK_DIFFERS = Message(
    "the clock of {server} differs from this machine by {skew:+.0f} s", "{server} 的时钟与本机相差 {skew:+.0f} 秒"
)
SYNCHRONISE = Message(
    "run chrony or systemd-timesyncd on both machines", "请在两台机器上运行 chrony 或 systemd-timesyncd"
)

# Samples

COVERED = Message(
    "sample coverage {coverage} of {measured} {measured:|allocation|allocations}",
    "{measured} 个分配的采样覆盖率为 {coverage}",
)
COVERED_WHERE_MEASURABLE = Message(
    "sample coverage {coverage} of {measured} {measured:|allocation|allocations}; the utilization of {unmeasured}"
    " {unmeasured:|other|others} cannot be measured, such as MIG instances before Hopper without a DCGM hostengine",
    "{measured} 个分配的采样覆盖率为 {coverage}；另有 {unmeasured} 个分配无法测得利用率（例如 Hopper 之前没有"
    " DCGM hostengine 的 MIG 实例）",
)
SEE_REASONS = Message(
    "no action needed; /api/v1/allocations?activity=unknown gives the reason for each",
    "无需处理；/api/v1/allocations?activity=unknown 给出每个分配的原因",
)
NO_UTILIZATION = Message(
    "{allocations} {allocations:|allocation|allocations}, but no utilization samples",
    "有 {allocations} 个分配，但没有任何利用率样本",
)
EXPORT_UTILIZATION = Message(
    "have the exporter export utilization: gpusteward agent, or DCGM_FI_DEV_GPU_UTIL, and"
    " DCGM_FI_PROF_GR_ENGINE_ACTIVE for MIG",
    "请让 exporter 提供利用率：gpusteward agent，或 DCGM_FI_DEV_GPU_UTIL；MIG 需要 DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
WINDOW_FILLING = Message(
    "the window is not full yet: sample coverage {coverage} of {minutes:.0f} {minutes:|minute|minutes}",
    "窗口尚未填满：{minutes:.0f} 分钟窗口的采样覆盖率目前为 {coverage}",
)
WAIT_FOR_WINDOW = Message(
    "no action needed: the window fills by itself; an allocation is not judged idle until its sample coverage is 90%",
    "无需处理：窗口会自行填满；采样覆盖率达到 90% 之前，分配不会被判定为空闲",
)
LOW_COVERAGE = Message(
    "sample coverage only {coverage} of {measured} {measured:|allocation|allocations}; an allocation below 90% is not"
    " judged idle",
    "{measured} 个分配的采样覆盖率仅 {coverage}；低于 90% 的分配不会被判定为空闲",
)
RESTORE_FAILING = Message(
    "restore {failing}: {reason}; /api/v1/sources lists all failures",
    "请恢复 {failing}：{reason}；全部故障见 /api/v1/sources",
)
FIND_FAILING_TARGETS = Message(
    "find the targets that sometimes fail ({failed} of {scrapes} {scrapes:|scrape|scrapes} of {targets}"
    " {targets:|target|targets} failed): the log of the analyzer names them; raise scrape.timeout for slow ones",
    "请找出偶尔抓取失败的目标（{targets} 个目标共抓取 {scrapes} 次，失败 {failed} 次）：名称见 analyzer 的日志；"
    "对于较慢的目标，请增大 scrape.timeout",
)
FIND_GAPS = Message(
    "look for gaps in the metric `up` of the exporters; if there are none, set prometheus.scrape_interval_seconds to"
    " their actual interval",
    "请检查 exporter 的 `up` 指标是否有缺口；如果没有，请将 prometheus.scrape_interval_seconds 设为实际抓取间隔",
)

# An installation in a cluster

INVALID_AGENTS = Message(
    "--agents: {value} is not NAMESPACE/NAME of the agents' DaemonSet",
    "--agents：{value} 不是 agent 的 DaemonSet 的 命名空间/名称",
)
READ_DAEMONSET = Message(
    'check the name, and that the service account has a role with apiGroups ["apps"], resources ["daemonsets"], verbs'
    ' ["get"]',
    '请检查名称，并确认服务账号的角色包含 apiGroups ["apps"]，resources ["daemonsets"]，verbs ["get"]',
)
NO_AGENT_NODES = Message(
    "no node is selected by DaemonSet {namespace}/{name}, so no agent runs",
    "DaemonSet {namespace}/{name} 没有选中任何节点，因此没有 agent 运行",
)
LABEL_NODES = Message(
    "label the GPU nodes (gpu-feature-discovery sets nvidia.com/gpu.present=true), or change agent.nodeSelector and"
    " agent.tolerations of the chart",
    "请为 GPU 节点设置标签（gpu-feature-discovery 会设置 nvidia.com/gpu.present=true），"
    "或修改 chart 的 agent.nodeSelector 和 agent.tolerations",
)
AGENTS_READY = Message("{ready} of {wanted} {wanted:|agent|agents} ready", "{wanted} 个 agent 中有 {ready} 个就绪")
SEE_AGENT_PODS = Message(
    "kubectl -n {namespace} get pods -o wide names the others; kubectl -n {namespace} logs POD says why an agent is not"
    " ready",
    "用 kubectl -n {namespace} get pods -o wide 查看其余 Pod；agent 未就绪的原因见 kubectl -n {namespace} logs POD",
)
NO_TARGETS = Message(
    "none of {targets} {targets:|target|targets} can be scraped: {reason}", "{targets} 个目标都无法抓取：{reason}"
)
FIND_TARGETS = Message(
    "check that agents run and that a NetworkPolicy allows the analyzer to reach their port; /api/v1/sources shows"
    " every target",
    "请确认 agent 正在运行，且网络策略允许 analyzer 访问其端口；各目标见 /api/v1/sources",
)
NO_METRICS_YET = Message("{engine} has no GPU metrics: {reason}", "{engine} 中没有 GPU 指标：{reason}")
ENGINE_READ = Message("{engine} has GPU metrics of {dialects}", "{engine} 中有 GPU 指标：{dialects}")
TARGETS_READ = Message(
    "{up} of {targets} {targets:|target|targets} scraped; GPU metrics of {dialects}",
    "{targets} 个目标中有 {up} 个抓取成功；GPU 指标：{dialects}",
)
HOLDERS = Message(
    "GPUs: {gpus} found, {held} held; owners of {known} of {workloads} {workloads:|workload|workloads} read "
    "from the API server",
    "发现 {gpus} 张 GPU，其中 {held} 张被占用；{workloads} 个工作负载中有 {known} 个的所有者已从 API server 读取",
)
READ_OWNERS = Message(
    "nothing is ever done to the others; see `rights`, and set kubernetes.cluster where several clusters are read",
    "其余工作负载不会被执行任何操作；请查看 rights 一项，若读取多个集群请设置 kubernetes.cluster",
)
PROOF_OF_MODEL = Message(
    "{model}: {measured} of {held} {held:|holder|holders} measured without gaps",
    "{model}：{held} 个占用者中有 {measured} 个为连续测量",
)
MEASURE_WITHOUT_GAPS = Message(
    "the others get notices at most: run the agent on their nodes, or have dcgm-exporter export "
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE and scrape it every 15 s; `gpusteward explain WORKLOAD` has the reason of each",
    "其余占用者最多只会收到通知：请在其节点上运行 agent，或让 dcgm-exporter 导出 DCGM_FI_PROF_GR_ENGINE_ACTIVE 并每 15 "
    "秒抓取一次；每个工作负载的原因见 `gpusteward explain WORKLOAD`",
)
NO_CHANNELS = Message("no channel is set, so owners are not told", "未设置通知渠道，所有者不会收到通知")
SET_CHANNELS = Message(
    "set notify.channels if owners are to be told (docs/how-to/notifications.md)",
    "如需通知所有者，请设置 notify.channels（docs/how-to/notifications.md）",
)
NOTICES = Message(
    "{targets} {targets:|channel|channels}, {sent} {sent:|delivery|deliveries} since the start",
    "{targets} 个渠道，启动以来已送达 {sent} 次",
)
NOTICES_FAIL = Message(
    "{sent} {sent:|delivery|deliveries} since the start, {dead} given up: {reason}",
    "启动以来已送达 {sent} 次，放弃 {dead} 次：{reason}",
)
CHECK_CHANNELS = Message(
    "`/api/v1/deliveries` has each with its reason; check the address and credentials of the channel",
    "每次投递及其原因见 `/api/v1/deliveries`；请检查渠道的地址和凭据",
)
NO_VERDICT = Message("there is no verdict yet", "尚无判定结果")
WAIT_FOR_VERDICT = Message(
    "the lines above say what is missing; the log of the analyzer has every failed cycle",
    "缺少的内容见以上各行；失败的分析周期见 analyzer 的日志",
)
NOTHING_HELD = Message("no container holds a GPU ({gpus} in all)", "没有容器占用 GPU（共 {gpus} 张）")
RUN_A_LOAD = Message(
    "no action needed if that is so; otherwise start a pod with a GPU and run this again",
    "若情况属实则无需处理；否则请启动一个使用 GPU 的 Pod，然后重新检查",
)
ALL_UNKNOWN = Message(
    "{allocations} {allocations:|allocation|allocations}, not judged yet ({reasons})",
    "{allocations} 个分配，尚未判定（{reasons}）",
)
VERDICTS = Message(
    "{allocations} {allocations:|allocation|allocations} judged; GPUs: {active} active, {idle} idle, {unknown} unknown",
    "已判定 {allocations} 个分配；GPU：活跃 {active}，空闲 {idle}，未知 {unknown}",
)
