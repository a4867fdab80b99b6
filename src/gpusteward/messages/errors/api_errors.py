"""Error texts of the analyzer's HTTP API: `title` and `detail` of a problem object (RFC 9457)."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

TITLES: Mapping[int, Message] = {
    400: Message("Bad Request", "请求无效"),
    401: Message("Unauthorized", "未认证"),
    403: Message("Forbidden", "无权限"),
    404: Message("Not Found", "不存在"),
    405: Message("Method Not Allowed", "不支持该方法"),
    409: Message("Conflict", "状态冲突"),
    410: Message("Gone", "已失效"),
    413: Message("Request Entity Too Large", "请求体过大"),
    422: Message("Unprocessable Entity", "参数无效"),
    429: Message("Too Many Requests", "请求过于频繁"),
    431: Message("Request Header Fields Too Large", "请求头过大"),
    500: Message("Internal Server Error", "内部错误"),
    503: Message("Service Unavailable", "服务暂不可用"),
    504: Message("Gateway Timeout", "后端响应超时"),
}
"""By HTTP status. In English the standard phrase of the status."""

NOT_READY = Message(
    "no cycle has finished yet; /api/v1/health shows the state of the analyzer",
    "第一个分析周期尚未完成；analyzer 的状态见 /api/v1/health",
)
UNKNOWN_PATH = Message("there is no such endpoint; /docs lists all of them", "没有这个端点；全部端点见 /docs")
METHOD_NOT_ALLOWED = Message("this endpoint does not support {method}", "该端点不支持 {method}")
INTERNAL = Message("internal error; see the log of the analyzer", "内部错误；详情见 analyzer 的日志")
TOO_LARGE = Message("the request body exceeds {bytes} bytes", "请求体超过 {bytes} 字节")
HEADER_TOO_LONG = Message("the header {name} is too long", "请求头 {name} 过长")
TOO_MANY_HEADERS = Message("too many headers: at most {most} are read", "请求头过多：最多 {most} 个")
BODY_TOO_LARGE = Message("the request body is too large", "请求体过大")

READING_NEEDS_TOKEN = Message(
    "reading from this address requires a bearer token: send Authorization: Bearer TOKEN",
    "从该地址读取数据需要令牌：请发送 Authorization: Bearer TOKEN",
)
WRITING_NEEDS_TOKEN = Message(
    "this requires a bearer token of the role operator; tokens are defined in server.tokens_file",
    "此操作需要 operator 角色的令牌；令牌在 server.tokens_file 中定义",
)
UNKNOWN_TOKEN = Message("the bearer token is not valid", "令牌无效")
PASSWORD_NEEDED = Message(
    "user and password, or a bearer token, are required; the users are in basic_auth_users of server.web_config_file",
    "需要用户名和密码，或令牌；用户在 server.web_config_file 的 basic_auth_users 中定义",
)
OVER_RATE_LIMIT = Message(
    "over the rate limit; it is rate_limit in server.web_config_file",
    "超出速率限制；该限制由 server.web_config_file 中的 rate_limit 设置",
)
ROLE_TOO_LOW = Message(
    "the role {role} does not permit this; a token of the role {needed} is required",
    "{role} 角色没有此权限，需要 {needed} 角色的令牌",
)
NOT_A_PROXY = Message(
    "this request has an identity header, but does not come from a proxy in auth.proxy.addresses",
    "该请求带有身份请求头，但不是来自 auth.proxy.addresses 中的代理",
)
TWO_IDENTITIES = Message(
    "the browser is signed in here as somebody else than at the proxy: sign out here, or sign in at the proxy as the"
    " same person",
    "浏览器在此处登录的身份与代理给出的身份不同：请在此处退出登录，或在代理处以同一身份登录",
)
INVALID_IDENTITY = Message(
    "the identity in the headers cannot be used: a header occurs twice, or a name is too long or has control"
    " characters; the log of the analyzer names the header",
    "请求头中的身份无法使用：请求头重复，或名称过长、含控制字符；具体请求头见 analyzer 的日志",
)
NO_ROLE = Message(
    "you are signed in, but no rule in auth.rules gives you a role",
    "您已登录，但 auth.rules 中没有规则授予您角色",
)
HIDDEN_ERROR = Message(
    "it could not be read; the log of the analyzer has the reason", "读取失败，原因见 analyzer 的日志"
)
"""Instead of an error text, for people who see some namespaces only."""
NEEDS_ALL_NAMESPACES = Message(
    "your role shows some namespaces only, and this covers the whole site",
    "您的角色只能查看部分命名空间，而此内容涉及整个站点",
)
WHICH_CLUSTER = Message(
    "your service account shows one namespace, but there are several clusters and kubernetes.cluster does not name its"
    " own",
    "您的服务账号只能查看一个命名空间，但存在多个集群，且 kubernetes.cluster 未指明该账号所在的集群",
)
NO_KEYS = Message(
    "the keys of the sign-in provider cannot be read at the moment; see the log of the analyzer",
    "暂时无法读取登录服务的公钥；详情见 analyzer 的日志",
)
CSRF_NEEDED = Message(
    "a change in a browser session must repeat `csrf` of GET /api/v1/session in the header {header}",
    "浏览器会话中的修改操作须在请求头 {header} 中带上 GET /api/v1/session 返回的 `csrf`",
)
TOO_MANY_SIGN_INS = Message(
    "too many failed sign-ins from this address; try again in a minute", "该地址登录失败次数过多，请一分钟后重试"
)
CROSS_SITE = Message("a page of another site sent this request", "该请求由其他网站的页面发出")

SEVERAL_CLUSTERS = Message(
    "several clusters have a workload of this name: add cluster=NAME, one of {clusters}",
    "多个集群中存在同名工作负载：请添加参数 cluster=NAME，可选值：{clusters}",
)
SERIES = Message("charts", "图表")
PROCESSES = Message("processes", "进程")
GPU_READINGS = Message("GPUs of a node", "节点的 GPU")
REPORTS = Message("reports", "报表")
ENDED_WORKLOADS = Message("ended workloads", "已结束的工作负载")
DELIVERIES = Message("deliveries", "投递")
ACTIONS = Message("actions of reclaim", "回收操作")
HISTORY = Message("histories", "历史记录")
REPLAYS = Message("replays", "策略回放")
SNOOZES = Message("snoozes", "暂缓")
PASSWORDS = Message("password checks", "密码校验")
TOO_MANY_REQUESTS = Message(
    "too many concurrent requests for {resource}; try again", "{resource}的并发请求过多，请稍后重试"
)
TOO_MANY_OF_CLIENT = Message(
    "too many concurrent requests of this client, or of all; try again when some have ended",
    "该客户端或全部客户端的并发请求过多，请待部分请求结束后重试",
)
TOO_MANY_LISTENERS = Message("too many concurrent event streams; try again later", "并发的事件流过多，请稍后重试")
ENGINE_TOO_SLOW = Message("the engine did not respond in time; request less data", "引擎响应超时；请减少请求的数据量")
LEDGER_TOO_SLOW = Message(
    "the database did not respond in time; request a shorter time range", "数据库响应超时；请缩短查询的时间范围"
)
RECLAIM_TOO_SLOW = Message(
    "Kubernetes or the database did not respond in time; GET /api/v1/actions shows what was done",
    "Kubernetes 或数据库响应超时；实际执行情况见 GET /api/v1/actions",
)
LEDGER_DISABLED = Message("the ledger is disabled (ledger.enabled: false)", "账本未启用（ledger.enabled: false）")

READER = Message(
    "this analyzer only reads, and the change would not reach the one that writes: send the request to {leader} "
    "(kubectl port-forward), or change the settings of both",
    "当前 analyzer 为只读副本，修改不会作用到负责写入的副本：请将请求发送到 {leader}（kubectl port-forward），"
    "或修改两个副本共用的设置",
)

CURSOR_INVALID = Message("cursor: use `next` of the previous page", "cursor：请使用上一页返回的 `next`")
CURSOR_EXPIRED = Message(
    "a new result has been published: start again from the first page, without a cursor",
    "结果已更新：请去掉 cursor，从第一页重新读取",
)
CURSOR_MISMATCH = Message(
    "cursor: it was made for another sort order or other filters", "cursor：与当前的排序或筛选条件不符"
)
WORKLOAD_NOT_FOUND = Message(
    "no workload of this kind and name holds a GPU in the last result",
    "最近一次结果中，没有该类型和名称的工作负载占用 GPU",
)
NOT_IDLE = Message(
    "this workload is not idle as a whole: there is nothing to notify about",
    "该工作负载并非全部空闲，无需发送通知",
)
NO_CHANNEL = Message(
    "no channel is configured for this workload (notify.channels)", "没有适用于该工作负载的通知渠道（notify.channels）"
)
SNOOZE_NOT_FOUND = Message("this workload is not snoozed", "该工作负载未处于暂缓状态")
SNOOZE_TIME = Message(
    "give hours or until, one of them: a time in the future, at most {days} {days:|day|days} from now",
    "请给出 hours 或 until 之一：须为将来的时间，且不超过 {days} 天",
)
NODE_NOT_FOUND = Message(
    "no node of this name has a GPU in the last result; GET /api/v1/gpus lists all GPUs with their nodes",
    "最近一次结果中，没有该名称的 GPU 节点；全部 GPU 及其节点见 GET /api/v1/gpus",
)
RECLAIM_OFF = Message(
    "reclaim is off (reclaim.mode); docs/how-to/reclaim.md says how to switch it on",
    "回收功能未启用（reclaim.mode）；启用方法见 docs/zh-CN/how-to/reclaim.md",
)
ACTION_NOT_FOUND = Message(
    "there is no such action; GET /api/v1/actions lists all of them", "没有这个操作；全部操作见 GET /api/v1/actions"
)
NOTHING_TO_RESTORE = Message(
    "nothing was done to this workload that can be undone; GET /api/v1/actions lists all actions",
    "该工作负载没有可恢复的操作；全部操作见 GET /api/v1/actions",
)
DELIVERY_NOT_FOUND = Message(
    "the delivery does not exist or was removed; GET /api/v1/deliveries lists all deliveries",
    "该投递不存在或已清除；全部投递见 GET /api/v1/deliveries",
)
DELIVERY_NOT_DEAD = Message(
    "the state of this delivery is {state}: only dead deliveries can be retried",
    "该投递的状态为 {state}，只能重试 dead 状态的投递",
)
DELIVERY_OUTDATED = Message(
    "this control call is from an earlier cycle and may no longer be true: every cycle sends its own",
    "该控制请求属于较早的分析周期，可能已不再成立：每个分析周期都会重新发送",
)
INVALID_TIME_RANGE = Message("since, until: {reason}", "since、until：{reason}")

INVALID_PARAMETER = Message("{name}: {reason}", "{name}：{reason}")
INVALID_VALUES: Mapping[str, Message] = {
    "extra_forbidden": Message("unknown parameter", "未知参数"),
    "missing": Message("the parameter is missing", "缺少该参数"),
    "less_than_equal": Message("must be at most {le}", "不能大于 {le}"),
    "greater_than_equal": Message("must be at least {ge}", "不能小于 {ge}"),
    "literal_error": Message("must be one of {expected}", "只能是 {expected}"),
    "int_parsing": Message("must be an integer", "必须是整数"),
    "float_parsing": Message("must be a number", "必须是数字"),
    "finite_number": Message("must be a finite number", "必须是有限的数字"),
    "bool_parsing": Message("must be true or false", "必须是 true 或 false"),
    "string_too_long": Message(
        "must have at most {max_length} {max_length:|character|characters}", "最多 {max_length} 个字符"
    ),
    "too_long": Message("must have at most {max_length} {max_length:|value|values}", "最多 {max_length} 个值"),
}
"""By pydantic's type of error, with pydantic's fields."""
INVALID_VALUE = Message("{text}", "取值无效（{text}）")
"""For every other type of error."""
MODEL_NOT_CONFIGURED = Message(
    "no language model is configured, and names of pods must not be sent to a provider that nobody has chosen: set "
    "ai.api_url, or ai.api_key or ai.api_key_file, in the settings of the analyzer",
    "尚未配置语言模型，不能把 Pod 名称发送给无人选定的服务商：请在 analyzer 的设置中填写 ai.api_url，"
    "或者 ai.api_key 或 ai.api_key_file",
)
