"""Errors of Prometheus-compatible engines: what failed, the likely reason, and the setting that helps."""

from gpusteward.core.messages import Message

SHUTTING_DOWN = Message("the program is shutting down", "程序正在退出")

# the connection
CONNECT_TIMEOUT = Message(
    "{path}: no connection to the engine within {seconds:g} s", "{path}：{seconds:g} 秒内未能连接到监控引擎"
)
CONNECTION_FAILED = Message("{path}: {reason}; check prometheus.url", "{path}：{reason}；请检查 prometheus.url")
REQUEST_FAILED = Message("{path}: {kind}: {reason}", "{path}：{kind}：{reason}")
RESPONSE_TIMEOUT = Message(
    "{path}: no complete response within {seconds:g} s; the engine is busy, or prometheus.timeout_seconds is too short",
    "{path}：{seconds:g} 秒内未收到完整响应；监控引擎繁忙，或 prometheus.timeout_seconds 过短",
)
RESPONSE_TOO_LARGE = Message(
    "the response is larger than {limit} bytes; lower prometheus.series_limit or raise prometheus.response_limit_bytes",
    "响应超过 {limit} 字节；请调低 prometheus.series_limit 或调高 prometheus.response_limit_bytes",
)

# the status of a response
ENGINE_LIMIT = Message("a limit of the engine was exceeded: {reason}", "超出监控引擎自身的限制：{reason}")
ENGINE_FAILED = Message("the engine failed: {reason}", "监控引擎出错：{reason}")
REFUSED = Message("the engine refused the request: {reason}", "监控引擎拒绝了请求：{reason}")
UNAUTHORIZED = Message(
    "the engine refused the request: {reason}; check prometheus.username, password or bearer_token",
    "监控引擎拒绝了请求：{reason}；请检查 prometheus.username、password 或 bearer_token",
)
FORBIDDEN = Message(
    "the engine refused the request: {reason}; check prometheus.username, password, bearer_token or headers",
    "监控引擎拒绝了请求：{reason}；请检查 prometheus.username、password、bearer_token 或 headers",
)
NOT_FOUND = Message(
    "the engine refused the request: {reason}; check the path in prometheus.url",
    "监控引擎拒绝了请求：{reason}；请检查 prometheus.url 中的路径",
)

# the content of a response
ENGINE_ERROR = Message("the engine reports an error: {reason}", "监控引擎返回错误：{reason}")
UNREADABLE_RESPONSE = Message("the response cannot be read: {reason}", "无法解析响应：{reason}")
UNREADABLE_EXPORT = Message("the export cannot be read: {reason}", "无法解析导出的数据：{reason}")
UNREADABLE_LABELS = Message(
    "the engine sent labels that cannot be read: {reason}", "监控引擎返回的标签无法解析：{reason}"
)
NOT_A_NUMBER = Message("the engine sent {text} instead of a number", "监控引擎返回的 {text} 不是数字")
WRONG_RESULT_TYPE = Message(
    "the engine returned {actual} instead of {expected}", "监控引擎返回的是 {actual}，而不是 {expected}"
)
NO_RESULT = Message("no result", "空结果")
PARTIAL_RESPONSE = Message("the response is incomplete: {reason}", "响应不完整：{reason}")
STORAGE_NODE_MISSING = Message("a storage node did not respond", "有存储节点没有响应")

# settings
BAD_CONDITION = Message(
    'query_condition {condition} cannot be read from {rest} on: write {{label="value", other!=""}}',
    '无法解析 query_condition {condition}，错误从 {rest} 开始；请写成 {{label="value", other!=""}}',
)
BAD_CA_FILE = Message(
    "prometheus.ca_file {path} cannot be used: {reason}", "无法使用 prometheus.ca_file {path}：{reason}"
)
