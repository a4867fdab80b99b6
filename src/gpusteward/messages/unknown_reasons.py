"""Why a source could not tell what an allocation does, in both languages. The English text is what tables carry."""

from collections.abc import Mapping

CLAIMED_TWICE = "two nodes claim this allocation"
SILENT = "no sample now: its exporter or its node is silent"
NO_CORE = "no usable core sample in the window"
UNMEASURED_SLICE = "this GPU cannot measure the use of a MIG slice (NVIDIA's library can from Hopper on)"
SHARED_SLICE = "the holders of a shared MIG slice cannot be told apart"
UNEXPORTED_SLICE = "no exporter tells the use of this MIG slice (DCGM_FI_PROF_GR_ENGINE_ACTIVE)"
YOUNG = "its exporter has been scraped for less than ten minutes"
UNCOUNTED = "samples could not be counted"
IMPOSSIBLE = "core reads more than 100 %"
DENIED_ZERO = "signals contradict: core reads 0 while the device works"
UNATTRIBUTED = "signals contradict: use of the device could not be attributed to its holders"

CHINESE: Mapping[str, str] = {
    CLAIMED_TWICE: "两个节点都声称拥有该分配",
    SILENT: "当前没有样本，其 exporter 或节点没有响应",
    NO_CORE: "窗口内没有可用的核心利用率样本",
    UNMEASURED_SLICE: "这种 GPU 无法测量 MIG 实例的使用情况（NVML 自 Hopper 起才支持）",
    SHARED_SLICE: "共享同一 MIG 实例的占用者无法区分",
    UNEXPORTED_SLICE: "没有 exporter 提供该 MIG 实例的使用情况（DCGM_FI_PROF_GR_ENGINE_ACTIVE）",
    YOUNG: "其 exporter 被采集还不到十分钟",
    UNCOUNTED: "无法统计样本数",
    IMPOSSIBLE: "核心利用率读数超过 100%",
    DENIED_ZERO: "信号互相矛盾，核心利用率为 0 而设备有活动",
    UNATTRIBUTED: "信号互相矛盾，设备的使用无法归到占用者",
}
