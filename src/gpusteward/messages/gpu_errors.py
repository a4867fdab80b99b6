"""What errors of a GPU mean, and what helps, for people who look at a node in the web UI."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

LOST = Message(
    "The GPU no longer responds: it has fallen off the bus. Drain the node and reset or replace the GPU.",
    "GPU 已失去响应（掉卡）。请排空节点并复位或更换该 GPU。",
)
ROW_REMAP_FAILURE = Message(
    "A faulty memory row could not be remapped: replace the GPU.", "有故障的显存行无法重映射：请更换该 GPU。"
)
ROW_REMAP_PENDING = Message(
    "A memory row will be remapped with the next reset of the GPU.", "有显存行等待重映射，将在下次复位 GPU 时生效。"
)
DOUBLE_BIT_ERRORS = Message(
    "Memory errors that could not be corrected since the driver was loaded: {count}.",
    "驱动加载以来无法纠正的显存错误：{count} 次。",
)
REMAPPED_ROWS = Message(
    "Memory rows that were remapped after uncorrectable errors: {count}.",
    "因不可纠正的错误而重映射的显存行：{count} 行。",
)
XID = Message("XID {code}: {meaning}", "XID {code}：{meaning}")
XID_TIMES = Message("XID {code} ({count} {count:|time|times}): {meaning}", "XID {code}（{count} 次）：{meaning}")

_MEANINGS: Mapping[int, Message] = {
    8: Message("the GPU stopped processing", "GPU 停止处理"),
    13: Message("the program made an invalid access or instruction", "程序执行了无效的访问或指令"),
    31: Message("the program accessed memory that it does not have", "程序访问了无效的显存地址"),
    43: Message("the program was stopped by the driver after an error", "程序出错后被驱动终止"),
    45: Message("the program ended while it used the GPU", "程序在使用 GPU 时结束"),
    48: Message("an uncorrectable memory error; the GPU must be reset", "不可纠正的显存错误，需要复位 GPU"),
    61: Message("an internal microcontroller failed", "内部微控制器故障"),
    62: Message("an internal microcontroller halted; the GPU must be reset", "内部微控制器停机，需要复位 GPU"),
    63: Message("a memory row was remapped or a page retired", "重映射了一行显存或停用了一页"),
    64: Message("remapping a memory row failed; replace the GPU", "显存行重映射失败，请更换 GPU"),
    68: Message("the video engine failed", "视频引擎故障"),
    69: Message("the program made an invalid access in the graphics engine", "程序在图形引擎中执行了无效访问"),
    74: Message("an NVLink failed; the GPU must be reset", "NVLink 故障，需要复位 GPU"),
    79: Message("the GPU has fallen off the bus; check power, cooling and the slot", "掉卡；请检查供电、散热和插槽"),
    92: Message("many correctable memory errors", "可纠正的显存错误很多"),
    94: Message("a contained memory error; only its program failed", "已隔离的显存错误，仅影响出错的程序"),
    95: Message("a memory error that was not contained; reset the GPU", "未隔离的显存错误，需要复位 GPU"),
    109: Message("a context switch timed out; the GPU must be reset", "上下文切换超时，需要复位 GPU"),
    119: Message(
        "the GPU's firmware does not respond; reset it, update the driver", "GSP 固件无响应；请复位并升级驱动"
    ),
    120: Message("the GPU's firmware failed; reset it, update the driver", "GSP 固件出错；请复位并升级驱动"),
    121: Message("an error of the link between CPU and GPU (C2C)", "CPU 与 GPU 之间的链路（C2C）出错"),
    140: Message("an unrecovered memory error; the GPU must be reset", "未恢复的 ECC 错误，需要复位 GPU"),
    143: Message("the GPU could not be initialized", "GPU 初始化失败"),
}
OTHER_XID = Message("see NVIDIA's catalogue of XID errors", "见 NVIDIA 的 XID 目录")
CRITICAL_XIDS = frozenset({48, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143})
"""Those after which the GPU must be reset or replaced, as in the alert GpuXidFatal."""


def explain_xid(code: int) -> Message:
    return _MEANINGS.get(code, OTHER_XID)
