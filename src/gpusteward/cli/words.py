"""What verdicts are called, in both languages. The English words are those of the API."""

from collections.abc import Mapping

from gpusteward.cli.languages import Language, Said

FINDINGS: Mapping[str, Said] = {
    "idle": Said("idle", "空闲"),
    "partly-idle": Said("partly idle", "部分空闲"),
    "suspicious": Said("suspicious", "可疑"),
}
ACTIVITIES: Mapping[str, Said] = {
    "active": Said("active", "活跃"),
    "idle": Said("idle", "空闲"),
    "unknown": Said("unknown", "未知"),
}
STATES: Mapping[str, Said] = {
    "idle": Said("idle", "空闲"),
    "low": Said("low", "偏低"),
    "normal": Said("normal", "正常"),
    "high": Said("high", "高"),
    "unknown": Said("unknown", "未知"),
}
SIGNATURES: Mapping[str, Said] = {
    "empty": Said("empty", "空置"),
    "parked": Said("parked", "仅占显存"),
    "starved": Said("starved", "等待数据"),
    "hung": Said("hung", "疑似挂起"),
    "bursty": Said("bursty", "间歇"),
    "keep-alive": Said("keep-alive", "疑似保活"),
    "steady": Said("steady", "稳定"),
    "starting": Said("starting", "启动中"),
    "unknown": Said("unknown", "未知"),
}
STEPS: Mapping[str, Said] = {
    "nothing": Said("nothing", "不处理"),
    "notice": Said("notice", "仅通知"),
    "reclaim": Said("reclaim", "可回收"),
}


def translate(words: Mapping[str, Said], word: object, language: Language) -> str:
    """A word nobody knows stays as it is: the server may be newer."""
    known = words.get(str(word))
    return known.to(language) if known else str(word or "-")
