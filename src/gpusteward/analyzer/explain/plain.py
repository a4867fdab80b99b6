"""The rule's own words, for where no model is asked."""

from gpusteward.analyzer.explain.cases import Case
from gpusteward.core.verdicts import Signature

_WORDS = {
    Signature.EMPTY: ("held, and nothing runs on it", "已分配，但上面没有任何任务运行"),
    Signature.PARKED: ("memory is held without any work", "占用显存但没有活动"),
    Signature.STARVED: ("works little, as if waiting for input", "利用率偏低，可能在等待数据"),
    Signature.HUNG: (
        "worked before, and stands still with its memory held",
        "曾有活动，现已停滞且仍占用显存，疑似卡死",
    ),
    Signature.BURSTY: ("works in bursts", "间歇性工作"),
    Signature.KEEP_ALIVE: ("constant low activity, as made up to look busy", "持续的低水平活动，疑似占卡"),
    Signature.STEADY: ("works steadily", "持续稳定地工作"),
    Signature.STARTING: ("started a moment ago", "刚刚启动"),
    Signature.UNKNOWN: ("could not be judged", "无法判断"),
}


def plain_text(case: Case, *, language: str) -> str:
    """One sentence on the signature, then the judge's reasons as they are."""
    english, chinese = _WORDS[case.signature]
    if language == "zh":
        return chinese + ("：" + "；".join(case.reasons) if case.reasons else "")
    return english + (": " + "; ".join(case.reasons) if case.reasons else "")
