"""What verdicts are called, in both languages. The English words are those of the API."""

from collections.abc import Mapping

from gpusteward.cli.languages import Language, Said
from gpusteward.core.verdict_words import CHINESE
from gpusteward.core.verdicts import Activity, Signature, State, Step


def _name(*words: str) -> Mapping[str, Said]:
    return {word: Said(str(word), CHINESE[word]) for word in words}


FINDINGS = {**_name("idle", "suspicious"), "partly-idle": Said("partly idle", CHINESE["partly-idle"])}
ACTIVITIES = _name(*Activity)
FREE = Said("free", "未分配")  # of a GPU that nobody holds
STATUSES = _name("active", "idle", "suspicious")
STATES = _name(*State)
SIGNATURES = _name(*Signature)
STEPS = _name(*Step)
MEASURES: Mapping[str, Said] = {
    "core_mean_ratio": Said("core utilization, mean", "核心利用率平均"),
    "core_peak_ratio": Said("core utilization, peak", "核心利用率峰值"),
    "memory_used_bytes": Said("memory in use", "已用显存"),
    "power_watts": Said("power", "功率"),
    "coverage": Said("coverage of samples", "采样覆盖率"),
    "window_seconds": Said("window", "窗口"),
}
"""The evidence of a workload."""
HEALTH: Mapping[str, Said] = {
    "healthy": Said("healthy", "正常"),
    "degraded": Said("degraded", "异常"),
    "warning": Said("warning", "结果过旧"),
}


def translate(words: Mapping[str, Said], word: object, language: Language) -> str:
    """A word nobody knows stays as it is: the server may be newer."""
    known = words.get(str(word))
    return known.to(language) if known else str(word or "-")
