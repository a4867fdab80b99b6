"""Why a source could not measure an allocation. Usage tables carry the English text."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

_REASONS = (
    Message("two nodes claim this allocation", "两个节点都声称拥有该分配"),
    Message("no sample now: its exporter or its node is silent", "当前没有样本，其 exporter 或节点没有响应"),
    Message("no usable core sample in the window", "窗口内没有可用的核心利用率样本"),
    Message(
        "this GPU cannot measure the use of a MIG slice (NVIDIA's library can from Hopper on)",
        "这种 GPU 无法测量 MIG 实例的使用情况（NVML 自 Hopper 起才支持）",
    ),
    Message("the holders of a shared MIG slice cannot be told apart", "共享同一 MIG 实例的占用者无法区分"),
    Message(
        "no exporter tells the use of this MIG slice (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
        "没有 exporter 提供该 MIG 实例的使用情况（DCGM_FI_PROF_GR_ENGINE_ACTIVE）",
    ),
    Message("its exporter has been scraped for less than ten minutes", "其 exporter 被采集还不到十分钟"),
    Message("samples could not be counted", "无法统计样本数"),
    Message("core reads more than 100 %", "核心利用率读数超过 100%"),
    Message("signals contradict: core reads 0 while the device works", "信号互相矛盾，核心利用率为 0 而设备有活动"),
    Message(
        "signals contradict: use of the device could not be attributed to its holders",
        "信号互相矛盾，设备的使用无法归到占用者",
    ),
)
MESSAGES: Mapping[str, Message] = {each.en: each for each in _REASONS}

(
    CLAIMED_TWICE,
    SILENT,
    NO_CORE,
    UNMEASURED_SLICE,
    SHARED_SLICE,
    UNEXPORTED_SLICE,
    YOUNG,
    UNCOUNTED,
    IMPOSSIBLE,
    DENIED_ZERO,
    UNATTRIBUTED,
) = MESSAGES
