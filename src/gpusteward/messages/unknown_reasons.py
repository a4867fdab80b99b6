"""Why a source could not measure an allocation, so that it must not be judged."""

from gpusteward.core.messages import Message

REPORTED_BY_TWO_NODES = Message("two nodes report this allocation", "两个节点都上报了该分配")
NO_CURRENT_SAMPLE = Message(
    "no current sample: its exporter or its node does not report", "当前没有样本：其 exporter 或节点没有上报"
)
NO_CORE = Message("no usable sample of core utilization in the window", "窗口内没有可用的核心利用率样本")
UNMEASURED_MIG = Message(
    "this GPU cannot measure the use of a MIG instance (NVML can from Hopper on; before, the agent needs a DCGM"
    " hostengine: --dcgm-hostengine)",
    "该 GPU 无法测量 MIG 实例的使用情况（NVML 自 Hopper 起才支持；更早的 GPU 需要为 agent 设置 --dcgm-hostengine）",
)
SHARED_MIG = Message(
    "the use of a shared MIG instance cannot be divided among its holders",
    "共享 MIG 实例的使用情况无法拆分到各占用者",
)
UNEXPORTED_MIG = Message(
    "no exporter reports the use of this MIG instance (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
    "没有 exporter 上报该 MIG 实例的使用情况（DCGM_FI_PROF_GR_ENGINE_ACTIVE）",
)
NEW_EXPORTER = Message("its exporter has been scraped for less than ten minutes", "抓取其 exporter 还不到十分钟")
UNCOUNTED_SAMPLES = Message("the samples could not be counted", "无法统计样本数")
IMPOSSIBLE_CORE = Message("core utilization reads more than 100%", "核心利用率读数超过 100%")
CONTRADICTED_ZERO = Message(
    "signals contradict each other: core utilization reads 0 while the device is active",
    "信号互相矛盾：核心利用率读数为 0，但设备有活动",
)
COPIED_USE = Message(
    "several pods hold this device, and its exporter reports the use of the whole device for each of them: whose use "
    "it is cannot be known (dcgm-exporter with virtual GPUs reports it per pod since 4.8.2)",
    "多个 Pod 占用该设备，而 exporter 为每个 Pod 上报的都是整个设备的使用情况，无法得知是谁在使用"
    "（dcgm-exporter 的虚拟 GPU 模式自 4.8.2 起才按 Pod 上报）",
)
UNATTRIBUTED = Message(
    "signals contradict each other: the use of the device could not be attributed to its holders",
    "信号互相矛盾：无法把设备的使用归属到占用者",
)
USED_BY_POD = Message(
    "somebody who does not hold this GPU uses it: pod {pods}", "该 GPU 正被未占用它的 Pod 使用：{pods}"
)
USED_BY_ANOTHER_POD = Message("a pod that does not hold this GPU uses it", "该 GPU 正被另一个未占用它的 Pod 使用")
"""Instead of its name, for people who see some namespaces only."""
USED_BY_HOST = Message(
    "somebody who does not hold this GPU uses it: a process of the host", "该 GPU 正被未占用它的宿主机进程使用"
)
USED_BY_UNKNOWN = Message(
    "somebody who does not hold this GPU uses it: processes whose container was not found",
    "该 GPU 正被未占用它的进程使用，找不到这些进程所属的容器",
)
USED_BY_PAIR = Message(
    "this GPU is used by {pod}, the other pod of its pair, which does nothing now: only the server in it knows whether "
    "it is needed",
    "该 GPU 由与其成对的 Pod {pod} 使用，目前没有活动：只有其中的推理服务知道是否还需要",
)
"""Both pods are in one namespace: whoever may see the holder may see its name."""
POD_ON_TWO_NODES = Message(
    "two nodes report a pod of this name: two clusters seem to be read as one (name them by a label: "
    "prometheus.cluster_label)",
    "两个节点都上报了同名的 Pod：似乎有两个集群被当作一个（请用标签区分：prometheus.cluster_label）",
)
PODS_ON_TWO_NODES = Message(
    "{count} {count:|pod is|pods are} on two nodes at once, so two clusters seem to be read as one: {pods}; name the "
    "clusters by a label (external_labels of each Prometheus, prometheus.cluster_label)",
    "{count} 个 Pod 同时出现在两个节点上，似乎有两个集群被当作一个：{pods}；请用标签区分集群"
    "（各 Prometheus 的 external_labels，prometheus.cluster_label）",
)
PRESENCE_FAILED = Message(
    "the list of current allocations could not be read: {error}", "无法读取当前的分配列表：{error}"
)
PARTIAL_RESPONSE = Message(
    "a part of the engine does not respond ({stores}), and the remaining samples do not cover the window",
    "引擎的一部分没有响应（{stores}），其余样本不足以覆盖窗口",
)
QUERY_FAILED = Message("{quantity} could not be read: {error}", "无法读取 {quantity}：{error}")
CLOCK_SKEW = Message(
    "the clocks of the engine and the analyzer are {seconds:.0f} s apart", "引擎与 analyzer 的时钟相差 {seconds:.0f} 秒"
)
ENGINE_FAILED = Message("its engine could not be read: {error}", "无法读取其所在的引擎：{error}")
HIDDEN = Message(
    "its usage could not be read; the log of the analyzer has the reason", "无法读取其使用情况，原因见 analyzer 的日志"
)
"""Instead of a reason that contains an error text, for people who see some namespaces only."""


def hide_errors(reason: Message) -> Message:
    """The reason itself if it is one of the fixed texts above: any other may contain names of somebody else."""
    if reason.en.startswith(USED_BY_PAIR.en.partition("{")[0]):
        return reason
    if reason.en.startswith(USED_BY_POD.en.partition("{")[0]) and reason not in _FIXED_REASONS:
        return USED_BY_ANOTHER_POD
    return reason if reason in _FIXED_REASONS else HIDDEN


_FIXED_REASONS = frozenset(
    each for each in tuple(globals().values()) if isinstance(each, Message) and "{" not in each.en
)
