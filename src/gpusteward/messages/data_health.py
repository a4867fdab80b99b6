"""What is wrong with the data of the analyzer, in plain words, for people who look at the web UI."""

from collections.abc import Mapping

from gpusteward.core.messages import Message
from gpusteward.core.verdicts import Doubt

SOURCE_FAILED = Message("GPU usage cannot be read at the moment: {reason}", "目前无法读取 GPU 使用数据：{reason}")
RESULT_OLD = Message(
    "The last result is {minutes} min old; a new one is due every {interval} min.",
    "最近一次结果已过去 {minutes} 分钟；正常情况下每 {interval} 分钟更新一次。",
)
TARGETS_LOST = Message(
    "{lost} of {targets} {targets:|exporter does|exporters do} not respond: their GPUs are missing or unknown.",
    "{targets} 个 exporter 中有 {lost} 个没有响应：其 GPU 缺失或状态未知。",
)
NAMED = Message("{text} Among them: {names}.", "{text}包括：{names}。")
NO_RESULT = Message("No cycle has finished yet.", "第一个分析周期尚未完成。")
ALL_UNKNOWN = Message(
    "None of the {total} {total:|allocation|allocations} could be judged. Most frequent reason: {reason}.",
    "{total} 个分配全部无法判断。最常见的原因：{reason}。",
)
PART_UNKNOWN = Message(
    "{unknown} of {total} {total:|allocation|allocations} could not be judged. Most frequent reason: {reason}.",
    "{total} 个分配中有 {unknown} 个无法判断。最常见的原因：{reason}。",
)
SOURCE_INCOMPLETE = Message(
    "{count} {count:|part|parts} of the source could not be read: {names}", "数据源有 {count} 个部分无法读取：{names}"
)
FAILED_PART = Message("{name} ({reason})", "{name}（{reason}）")
GPUS_VANISHED = Message(
    "No GPU reports any more: {gpus} were known until {since} (UTC). {why}",
    "已没有任何 GPU 上报数据：直到 {since}（UTC）仍有 {gpus} 张。{why}",
)
GPUS_NEVER_FOUND = Message("No GPU was ever found. {why}", "从未发现任何 GPU。{why}")
GPUS_GONE = Message("No GPU has reported since {since} (UTC). {why}", "自 {since}（UTC）起没有任何 GPU 上报数据。{why}")
SCALED_TO_ZERO = Message(
    "No node of the cluster offers GPUs at the moment: there is nothing to measure.",
    "集群中目前没有提供 GPU 的节点：没有可测量的对象。",
)
NODES_UNREADABLE = Message(
    "Whether any node offers GPUs could not be read from the API server: {error}",
    "无法从 API server 读取是否有节点提供 GPU：{error}",
)
NODES_OFFER = Message("Nodes of the cluster offer GPUs, such as {node}.", "集群中有节点提供 GPU，例如 {node}。")
NODES_MISSING = Message(
    "{missing} of {nodes} {nodes:|node|nodes} with GPUs in the cluster {missing:|does|do} not report ({names}): {gpus}"
    " of {offered} {offered:|GPU|GPUs} {gpus:|is|are} not measured.",
    "集群中提供 GPU 的 {nodes} 个节点里有 {missing} 个没有上报（{names}）：{offered} 张 GPU 中有 {gpus} 张没有测量。",
)
NODES_MISSING_BY_NUMBER = Message(
    "Nodes of the cluster offer {offered} {offered:|GPU|GPUs} on {nodes} {nodes:|node|nodes}, but only {gpus}"
    " {gpus:|GPU|GPUs} on {reporting} {reporting:|node reports|nodes report}. Which ones are missing is not known: the"
    " metrics name nodes in another way ({example}) than the API server ({node}).",
    "集群的 {nodes} 个节点提供 {offered} 张 GPU，但只有 {reporting} 个节点的 {gpus} 张上报数据。无法得知缺少哪些："
    "指标中的节点名称（{example}）与 API server 中的（{node}）不同。",
)
NODES_NOT_COMPARED = Message(
    "Whether every node that offers GPUs reports is not known: {error}", "无法得知提供 GPU 的节点是否都有上报：{error}"
)
GPUS_LOST = Message(
    "{count} {count:|GPU|GPUs} that {nodes} {nodes:|node|nodes} had within the last day {count:|does|do} not report any"
    " more, while others of the same node do: {names}. A GPU may have fallen off the bus.",
    "{nodes} 个节点上一天之内还有的 {count} 张 GPU 不再上报，而同一节点的其他 GPU 仍在上报：{names}。可能是 GPU 掉卡。",
)
GPUS_UNREPORTED = Message(
    "{count} {count:|GPU|GPUs} of {nodes} {nodes:|node|nodes} {count:|is|are} not in the metrics, by the label"
    " nvidia.com/gpu.count of the {nodes:|node|nodes}: {names}. Relabeling may drop the series of free GPUs.",
    "按节点标签 nvidia.com/gpu.count，{nodes} 个节点上有 {count} 张 GPU 不在指标中：{names}。"
    "可能是 relabel 丢弃了未分配 GPU 的序列。",
)
ENGINE_WITHOUT_GPUS = Message("{url} has no GPU. {why}", "{url} 中没有 GPU。{why}")
NO_METRICS = Message(
    "The source has no GPU metrics: check the exporters and their scrape jobs.",
    "数据源中没有 GPU 指标：请检查 exporter 及其抓取任务。",
)
ONLY_RULES = Message(
    "Only recorded series are left ({names}): their source, the exporters, does not report.",
    "只剩记录规则产生的序列（{names}）：它们的来源（exporter）没有上报数据。",
)
NO_CURRENT_SERIES = Message(
    "GPU metrics exist ({names}), but none has a current sample: the exporters do not report.",
    "存在 GPU 指标（{names}），但都没有当前样本：exporter 没有上报数据。",
)
TARGETS_DOWN = Message("Scrape jobs without any target that is up: {jobs}.", "所有目标都无法抓取的任务：{jobs}。")
USED_BY_NOBODY_KNOWN = Message(
    "{count} {count:|GPU|GPUs} without a holder worked throughout the last window: used by nobody known ({names})."
    " {known} {known:|GPU works|GPUs work} for a known holder. Labels of the series: {labels}.",
    "{count} 张没有占用者的 GPU 在最近一个窗口内一直在工作：使用者未知（{names}）。"
    "占用者已知且在工作的 GPU 有 {known} 张。序列的标签：{labels}。",
)
EXPORTER_IS_HOLDER = Message(
    "By relabeling or honor_labels, the labels of {count} {count:|GPU|GPUs} have the exporter's own pod ({names}) as"
    " the holder: such a GPU has no known holder.",
    "{count} 张 GPU 的占用者标签是 exporter 自己的 Pod（{names}），由 relabel 或 honor_labels 造成："
    "视为没有已知占用者。",
)
GPU_ON_TWO_NODES = Message(
    "{count} {count:|GPU is|GPUs are} reported by two nodes ({names}): each counts once, and what they hold there is"
    " unknown.",
    "{count} 张 GPU 由两个节点同时上报（{names}）：每张只计一次，其占用情况未知。",
)
EXPORTERS_DOWN = Message(
    "{count} GPU {count:|exporter|exporters} cannot be scraped ({names}): their GPUs are missing or unknown.",
    "有 {count} 个 GPU exporter 无法抓取（{names}）：其 GPU 缺失或状态未知。",
)
EXPORTERS_SILENT = Message(
    "{count} GPU {count:|exporter is|exporters are} scraped and {count:|reports|report} no GPU any more ({names}):"
    " their GPUs are missing or unknown.",
    "有 {count} 个 GPU exporter 可以抓取，但不再上报任何 GPU（{names}）：其 GPU 缺失或状态未知。",
)
NO_HOLDER_NAMED = Message(
    "No series of the last day names a pod that holds a GPU: nobody held one, or the exporters do not know pods."
    " Labels of the series: {labels}.",
    "最近一天没有任何序列标明占用 GPU 的 Pod：要么没有人占用，要么 exporter 不知道 Pod。序列的标签：{labels}。",
)
SHARED_NAMES = Message(
    "{count} {count:|node has|nodes have} two GPUs of one index ({names}): several machines or clusters share a name.",
    "{count} 个节点上有两张序号相同的 GPU（{names}）：多台机器或多个集群使用了同一个名称。",
)
NO_VIDEO_FIELDS = Message(
    "No exporter reports video engines ({fields}): a GPU that only encodes or decodes looks idle, and the proof of"
    " every verdict is sampled.",
    "没有 exporter 上报视频引擎（{fields}）：只做编解码的 GPU 看起来是空闲的，所有判定都只是采样得出。",
)
OWN_CLUSTER_UNKNOWN = Message(
    "The series have named several clusters ({names}), and kubernetes.cluster does not say which one the API server"
    " belongs to: owners of pods are not looked up, and nothing is suspended.",
    "序列中出现过多个集群名（{names}），而 kubernetes.cluster 没有说明 API server 属于哪一个："
    "不会查询 Pod 的属主，也不会暂停任何工作负载。",
)
OWN_CLUSTER_NOT_FOUND = Message(
    "No series names the cluster {own} of kubernetes.cluster, only {names}: owners of pods are not looked up, and"
    " nothing is suspended.",
    "没有序列使用 kubernetes.cluster 中的集群名 {own}，只有 {names}：不会查询 Pod 的属主，也不会暂停任何工作负载。",
)
PODS_ELSEWHERE = Message(
    "{count} {count:|pod is|pods are} on another node by the metrics than by the API server ({names}): a pod of this"
    " name in another cluster. Owners of these are not looked up, and nothing is done to them. Name the clusters in a"
    " label of the series, and this one in kubernetes.cluster.",
    "{count} 个 Pod 在指标中所在的节点与 API server 中的不同（{names}）：应为其他集群中的同名 Pod。"
    "不会查询其属主，也不会对其执行任何操作。请在序列的标签中写明集群名，并在 kubernetes.cluster 中写明本集群。",
)
PODS_NOT_CONFIRMED = Message(
    "The metrics of {count} {count:|pod|pods} have no uid, and name nodes otherwise than the API server ({names}):"
    " whether they are pods of this cluster is not confirmed, and they are at most notified about. If they are, set"
    " kubernetes.cluster to the name of this cluster.",
    "{count} 个 Pod 的指标没有 uid，且节点的写法与 API server 不同（{names}）：无法确认它们是否属于本集群，"
    "最多只会发送通知。如果确实属于，请将 kubernetes.cluster 设为本集群的名称。",
)
UNKNOWN_GPUS = Message(
    "{gpus} of {total} held {total:|GPU|GPUs} could not be judged. Most frequent reason: {reason}.",
    "占用中的 {total} 张 GPU 里有 {gpus} 张无法判断。最常见的原因：{reason}。",
)
NO_GPUS = Message(
    "No GPU is held by anybody, or the source has no series that names a holder.",
    "没有 GPU 被占用，或数据源中没有标明占用者的序列。",
)
GPUS_NOT_COUNTED = Message(
    "The source does not count free GPUs: only those that are held are shown.",
    "数据源没有统计空闲未分配的 GPU：仅显示已被占用的 GPU。",
)
NO_PRICE = Message("No price is configured (prices): costs are unknown.", "未配置价格（prices），费用未知。")
LEDGER_DISABLED = Message(
    "The ledger is disabled (ledger.enabled: false): there are no trends and no costs of past days.",
    "账本未启用（ledger.enabled: false）：没有趋势，也没有以往的费用。",
)
LEDGER_FAILED = Message(
    "GPU-hours cannot be recorded or read at the moment: {reason}", "目前无法记录或读取 GPU 小时：{reason}"
)
LEDGER_SHORT = Message(
    "GPU-hours are recorded since {since} (UTC): sums over a longer time cover that part only.",
    "GPU 小时自 {since}（UTC）起开始记录：更长时段的合计仅包含这一部分。",
)
DELIVERIES_FAILED = Message("Notices cannot be delivered: {reason}", "通知无法投递：{reason}")
POLICIES_REFUSED = Message(
    "No idle workload is warned of or suspended, since there is no usable policy file: {reason}",
    "由于没有可用的策略文件，不会警告或暂停任何空闲的工作负载：{reason}",
)
CLUSTER_NOT_RECORDED = Message(
    "Another analyzer ({leader}, cluster {cluster}) records into this ledger: the GPU hours of this cluster are not"
    " recorded, nobody is notified, and nothing is suspended here. Give this analyzer a ledger of its own, or let one"
    " analyzer read all clusters.",
    "另一个 analyzer（{leader}，集群 {cluster}）正在向该账本写入：本集群的 GPU 小时不会被记录，"
    "也不会发送通知或暂停任何工作负载。请为该 analyzer 使用单独的账本，或由一个 analyzer 读取所有集群。",
)
ASK_ADMIN = Message("ask an administrator", "请联系管理员")

DOUBTS: Mapping[Doubt, Message] = {
    Doubt.STALE: Message("no current data", "没有当前数据"),
    Doubt.SOURCE: Message("the source could not measure them", "数据源无法测量"),
    Doubt.NO_DATA: Message("core utilization is not measured", "没有测得核心利用率"),
    Doubt.COVERAGE: Message("samples are missing in the window", "窗口内缺少样本"),
    Doubt.SPARSE: Message("too few samples in the window", "窗口内样本过少"),
    Doubt.PARTIAL: Message("only a part of the window is known", "窗口只有一部分有数据"),
    Doubt.POWER: Message("zero utilization, but the GPU draws power", "利用率为零，但 GPU 有功耗"),
}
"""Why GPUs could not be judged; every other reason has the word of the API."""

SUMMARIES: Mapping[str, Message] = {
    "source-failed": Message("The source cannot be read.", "无法读取数据源。"),
    "source-incomplete": Message("A part of the source cannot be read.", "数据源有一部分无法读取。"),
    "no-result": NO_RESULT,
    "result-old": Message("The last result is old.", "最近一次结果已过时。"),
    "targets-lost": Message("Exporters do not respond.", "有 exporter 没有响应。"),
    "unknown-gpus": Message("Many allocations could not be judged.", "许多分配无法判断。"),
    "gpus-vanished": Message("No GPU reports any more.", "已没有任何 GPU 上报数据。"),
    "gpus-never-found": Message("No GPU was ever found.", "从未发现任何 GPU。"),
    "gpus-gone": Message("No GPU has reported for more than a day.", "超过一天没有任何 GPU 上报数据。"),
    "nodes-missing": Message("Nodes that offer GPUs do not report.", "有提供 GPU 的节点没有上报数据。"),
    "nodes-unreadable": Message(
        "Whether every node that offers GPUs reports is not known.", "无法得知提供 GPU 的节点是否都有上报。"
    ),
    "gpus-lost": Message(
        "GPUs are missing on nodes whose other GPUs report.", "有节点缺少部分 GPU，其余 GPU 仍在上报。"
    ),
    "engine-without-gpus": Message("One of the engines has no GPU.", "其中一个引擎没有 GPU。"),
    "scaled-to-zero": SCALED_TO_ZERO,
    "used-by-nobody-known": Message(
        "GPUs without a holder work: used by nobody known.", "没有占用者的 GPU 在工作：使用者未知。"
    ),
    "exporter-is-holder": Message(
        "GPUs name the exporter's own pod as the holder.", "有 GPU 的占用者标签是 exporter 自己的 Pod。"
    ),
    "owners-not-looked-up": Message(
        "Which cluster the API server belongs to is not known: no owners are looked up.",
        "不知道 API server 属于哪个集群：不会查询属主。",
    ),
    "pods-elsewhere": Message(
        "Pods are on another node by the metrics than by the API server.",
        "有 Pod 在指标中所在的节点与 API server 中的不同。",
    ),
    "pods-not-confirmed": Message(
        "Whether the pods of the metrics are those of this cluster is not confirmed.",
        "无法确认指标中的 Pod 是否属于本集群。",
    ),
    "cluster-not-recorded": Message(
        "The ledger records another cluster: the GPU hours of this one are not recorded.",
        "账本记录的是另一个集群：本集群的 GPU 小时不会被记录。",
    ),
    "policies-refused": Message("The policy file of reclaim cannot be used.", "回收的策略文件不可用。"),
    "gpu-on-two-nodes": Message("A GPU is reported by two nodes.", "有 GPU 由两个节点同时上报。"),
    "no-video-fields": Message("No exporter reports video engines.", "没有 exporter 上报视频引擎。"),
    "exporters-down": Message("GPU exporters cannot be scraped.", "有 GPU exporter 无法抓取。"),
    "gpus-unreported": Message("Nodes have GPUs that are not in the metrics.", "有节点的部分 GPU 不在指标中。"),
    "exporters-silent": Message("GPU exporters report no GPU any more.", "有 GPU exporter 不再上报任何 GPU。"),
    "no-holder-named": Message("No series names a pod that holds a GPU.", "没有序列标明占用 GPU 的 Pod。"),
    "two-gpus-one-index": Message("Several machines or clusters share a name.", "多台机器或多个集群使用了同一个名称。"),
}
"""Each finding by its code, without any name: for /health, which needs no token, and for people who see some
namespaces only."""
OTHER_FINDING = Message("Something is wrong with the data.", "数据存在问题。")


def summarize(code: str) -> Message:
    """What a finding says without names."""
    return SUMMARIES.get(code, OTHER_FINDING)
