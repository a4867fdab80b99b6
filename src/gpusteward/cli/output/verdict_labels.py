"""Labels of the evidence and the health of an analyzer. The words of a verdict are in `messages.verdicts`."""

from collections.abc import Mapping

from gpusteward.core.messages import Language, Message

FREE = Message("free", "未分配")  # a GPU without a holder
MEASURES: Mapping[str, Message] = {
    "core_mean_ratio": Message("core utilization, mean", "核心利用率均值"),
    "core_peak_ratio": Message("core utilization, peak", "核心利用率峰值"),
    "memory_used_bytes": Message("memory in use", "已用显存"),
    "power_watts": Message("power", "功率"),
    "coverage": Message("sample coverage", "采样覆盖率"),
    "window_seconds": Message("window", "窗口"),
}
"""The evidence of a workload."""
HEALTH: Mapping[str, Message] = {
    "healthy": Message("healthy", "正常"),
    "degraded": Message("degraded", "异常"),
    "warning": Message("warning", "警告"),
}


def translate(words: Mapping[str, Message], word: object, language: Language) -> str:
    """An unknown word is not translated: the server may be newer."""
    known = words.get(str(word))
    return known.text(language) if known else str(word or "-")
