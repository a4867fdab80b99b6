"""What verdicts are called in Chinese: one word each, wherever people read. In English the words are the API's own."""

from collections.abc import Mapping

CHINESE: Mapping[str, str] = {
    # activity, and what a second opinion calls it
    "active": "使用中",
    "idle": "空闲",
    "partly-idle": "部分空闲",
    "suspicious": "可疑",
    "unknown": "未知",
    # state
    "low": "偏低",
    "normal": "正常",
    "high": "高",
    # signature
    "empty": "空占",
    "parked": "仅占显存",
    "starved": "等待数据",
    "hung": "疑似卡死",
    "bursty": "间歇",
    "keep-alive": "疑似占卡",
    "steady": "稳定",
    "starting": "启动中",
    # the highest step
    "nothing": "不处理",
    "notice": "仅通知",
    "reclaim": "可回收",
}
