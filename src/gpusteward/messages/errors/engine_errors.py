"""Responses of a Prometheus-compatible engine that cannot be used. Connection errors are in `source_errors`."""

from gpusteward.core.messages import Message

ENGINE_ERROR = Message("the engine reports an error: {reason}", "引擎返回错误：{reason}")
UNREADABLE_RESPONSE = Message("the response cannot be read: {reason}", "无法解析响应：{reason}")
UNREADABLE_LABELS = Message("the engine sent labels that cannot be read: {reason}", "引擎返回的标签无法解析：{reason}")
NOT_A_NUMBER = Message("the engine sent {text} instead of a number", "引擎返回的 {text} 不是数字")
WRONG_RESULT_TYPE = Message(
    "the engine returned {actual} instead of {expected}", "引擎返回的是 {actual}，而不是 {expected}"
)
NO_RESULT = Message("no result", "没有结果")
PARTIAL_RESPONSE = Message("the response is incomplete: {reason}", "响应不完整：{reason}")
STORAGE_NODE_MISSING = Message("a storage node did not respond", "有存储节点没有响应")

BAD_CONDITION = Message(
    'query_condition {condition} cannot be parsed from {rest} on: write {{label="value", other!=""}}',
    '无法解析 query_condition {condition}，错误从 {rest} 开始；请写成 {{label="value", other!=""}}',
)
ROW_TOO_LARGE = Message(
    "a part of the response is larger than {limit_bytes} bytes; labels of GPU series are short",
    "响应的一部分超过 {limit_bytes} 字节；GPU 序列的标签都很短",
)
