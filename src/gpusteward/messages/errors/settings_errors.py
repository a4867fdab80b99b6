"""Why settings cannot be used: flags, environment variables and files of both programs."""

import errno
from collections.abc import Mapping

from gpusteward.core.messages import Message

# A value: setting, value, origin, what to write instead

INVALID_SETTING = Message("{path}: {value} ({origin}): {problem}", "{path}：{value}（{origin}）：{problem}")
INVALID_FLAG_VALUE = Message("{path}: {value}: {problem}", "{path}：{value}：{problem}")
SETTING_WITH_ORIGIN = Message("{path} {value} ({origin})", "{path} {value}（{origin}）")
INSIDE_SETTING = Message("{key}: {problem}", "{key}：{problem}")
CONTRADICTION = Message("{settings}: {problem}", "{settings}：{problem}")
HIDDEN_VALUE = Message("a hidden value", "（值已隐藏）")
WRITE = Message("write {allowed}", "允许的值：{allowed}")

ALLOWED_TYPES: Mapping[str, Message] = {
    "integer": Message("a whole number", "整数"),
    "number": Message("a number", "数字"),
    "boolean": Message("true or false", "true 或 false"),
    "string": Message("text", "文本"),
    "array": Message("a list", "列表"),
    "object": Message("a mapping of keys to values", "键值映射"),
}
"""By JSON schema type."""
OTHER_TYPE = Message("another value", "其他值")
ONE_OF = Message("one of {words}", "以下之一：{words}")
AT_LEAST = Message("{kind} at least {bound:g}", "不小于 {bound:g} 的{kind}")
ABOVE = Message("{kind} above {bound:g}", "大于 {bound:g} 的{kind}")
AT_MOST = Message("{kind} at most {bound:g}", "不大于 {bound:g} 的{kind}")
BELOW = Message("{kind} below {bound:g}", "小于 {bound:g} 的{kind}")
BOUNDS: Mapping[tuple[bool, bool], Message] = {
    (False, False): Message("{kind} from {low:g} to {high:g}", "{low:g} 到 {high:g} 的{kind}"),
    (True, False): Message("{kind} above {low:g} and at most {high:g}", "大于 {low:g} 且不大于 {high:g} 的{kind}"),
    (False, True): Message("{kind} at least {low:g} and below {high:g}", "不小于 {low:g} 且小于 {high:g} 的{kind}"),
    (True, True): Message("{kind} above {low:g} and below {high:g}", "大于 {low:g} 且小于 {high:g} 的{kind}"),
}
"""By whether the lower and the upper bound are exclusive."""
LIKE_PATTERN = Message("{kind} like {pattern}", "符合 {pattern} 的{kind}")
EITHER = Message("{first} or {second}", "{first}，或{second}")

# Values with rules of their own

NOT_A_SWITCH = Message("write true or false", "请写成 true 或 false")
NOT_A_URL = Message(
    "write a URL: http://HOST:PORT/PATH or https://HOST/PATH", "请写成 URL：http://HOST:PORT/PATH 或 https://HOST/PATH"
)
NOT_A_BASE_URL = Message(
    "write a URL: http://HOST:PORT or https://HOST:PORT", "请写成 URL：http://HOST:PORT 或 https://HOST:PORT"
)
NOT_AN_ENGINE_URL = Message(
    "write a URL without query: http://HOST:PORT/PREFIX or https://HOST/PREFIX",
    "请写成不含查询参数的 URL：http://HOST:PORT/PREFIX 或 https://HOST/PREFIX",
)
EMPTY_URL = Message("write a URL, or leave it out", "请写一个 URL，或删去该项")
NOT_A_MODEL_URL = Message(
    "write a URL, such as https://api.openai.com/v1/chat/completions",
    "请写成 URL，例如 https://api.openai.com/v1/chat/completions",
)
NOT_A_DATABASE_URL = Message(
    "write sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
    "请写成 sqlite:///PATH 或 postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
)
NOT_HOURS = Message("write two times, such as 22:00-08:00", "请写成两个时刻，例如 22:00-08:00")
NOT_A_WEEKLY_TIME = Message("write a day and a time, such as monday 09:00", "请写成星期和时刻，例如 monday 09:00")
UNKNOWN_ZONE = Message(
    "unknown time zone; write one such as Asia/Shanghai (the package tzdata has them)",
    "未知时区；请写成 Asia/Shanghai 这样的名称（软件包 tzdata 含全部时区）",
)
NOT_A_HOSTENGINE = Message(
    "write HOST:PORT, unix:PATH, embedded or auto", "请写成 HOST:PORT、unix:PATH、embedded 或 auto"
)
NOT_A_CONFIGMAP = Message("write NAMESPACE:NAME of a ConfigMap, or none", "请写成 ConfigMap 的 NAMESPACE:NAME，或 none")
NOT_A_PATTERN = Message(
    "write regular expressions; {pattern!r} is none: {reason}", "请写成正则表达式；{pattern!r} 不是正则表达式：{reason}"
)
NOT_ONE_OF = Message("write one of {words}{suggestion}", "请写成以下之一：{words}{suggestion}")
NOT_SOME_OF = Message("write one or more of {words}", "请写成以下一个或多个：{words}")
NOT_A_NUMBER_OF = Message(
    "write a number of {unit} from {low:g} to {high:g}", "请写成 {low:g} 到 {high:g} 之间的数字，单位为{unit}"
)
SECONDS = Message("seconds", "秒")
MILLISECONDS = Message("milliseconds", "毫秒")
REQUESTED_TOO_LARGE = Message("a request may set it to {high:g} at most", "通过请求最多可设为 {high:g}")
NOT_A_WHOLE_NUMBER = Message("write a whole number from {low} to {high}", "请写成 {low} 到 {high} 之间的整数")
TOO_FEW_MILLISECONDS = Message(
    "this is in milliseconds and must be at least 500: for {value} seconds write {milliseconds:.0f}, or use"
    " --interval {value}",
    "单位是毫秒，且不能小于 500：{value} 秒应写成 {milliseconds:.0f}，或使用 --interval {value}",
)

# Values that contradict each other

KEY_TWICE = Message("api_key and api_key_file are both set: keep one of them", "api_key 和 api_key_file 只能设置一个")
NOT_A_LEASE_NAME = Message(
    "use lower-case letters, digits and hyphens, at most 63 characters, such as gpusteward-reclaim",
    "只能使用小写字母、数字和连字符，最多 63 个字符，例如 gpusteward-reclaim",
)
NOT_A_NAMESPACE = Message(
    "use the name of a namespace: lower-case letters, digits and hyphens",
    "请填写命名空间名称：小写字母、数字和连字符",
)
NO_NAMESPACES = Message(
    "name at least one namespace, or leave the setting out: without it all namespaces count",
    "请至少填写一个命名空间，或不设置此项：不设置时为所有命名空间",
)
SHORT_SIGNING_KEY = Message(
    "the signing key of links is too short; use {length} {length:|character|characters} or more, "
    "as `openssl rand -hex 32` prints",
    "链接的签名密钥过短；至少需要 {length} 个字符，可用 `openssl rand -hex 32` 生成",
)
SIGNING_KEY_TWICE = Message(
    "set reclaim.signing_key or reclaim.signing_key_file, not both",
    "reclaim.signing_key 与 reclaim.signing_key_file 只能设置一个",
)
SIGNING_KEY_UNREADABLE = Message(
    "reclaim.signing_key_file: {path} cannot be read: {reason}",
    "reclaim.signing_key_file：无法读取 {path}：{reason}",
)
ENFORCE_NEEDS_OWNERS = Message(
    "reclaim.mode enforce acts only on owners read from Kubernetes, but kubernetes.owners is never; set it to auto or "
    "always, or reclaim.mode to observe",
    "reclaim.mode 为 enforce 时只处理从 Kubernetes 读取到的属主，但 kubernetes.owners 为 never；请将其设为 auto 或 "
    "always，或将 reclaim.mode 设为 observe",
)
ENFORCE_NEEDS_LEDGER = Message(
    "reclaim.mode enforce keeps the original of what it changes in the ledger, but ledger.enabled is false; enable the "
    "ledger, or set reclaim.mode to observe",
    "reclaim.mode 为 enforce 时需要在账本中保存被修改对象的原值，但 ledger.enabled 为 false；请启用账本，或将 "
    "reclaim.mode 设为 observe",
)
ENFORCE_NEEDS_KUBERNETES = Message(
    "reclaim.mode is enforce, but Kubernetes cannot be reached: {reason}; run the analyzer in the cluster, set "
    "kubernetes.api_url, or set reclaim.mode to observe",
    "reclaim.mode 为 enforce，但无法访问 Kubernetes：{reason}；请在集群内运行 analyzer、设置 kubernetes.api_url，或将 "
    "reclaim.mode 设为 observe",
)
SECRET_TWICE = Message("secret and secret_file are both set; remove one of them", "secret 和 secret_file 只能设置一个")
AZURE_NEEDS_URL = Message(
    "enabled with the provider azure needs an api_url, such as https://NAME.openai.azure.com",
    "provider 为 azure 且 enabled 时需要 api_url，例如 https://NAME.openai.azure.com",
)
SECRET_FILE_WRITABLE = Message(
    "{path} ({setting}) may be written by other users (mode {mode}): whoever can add a token there has its role; "
    "run chmod go-w on it",
    "其他用户可以写入 {path}（{setting}，权限 {mode}）：能在其中添加令牌的人就拥有相应角色；请对该文件执行 chmod go-w",
)
MODEL_NOT_CONFIGURED = Message(
    "no language model is configured, and names of pods must not be sent to a provider that nobody has chosen: set "
    "ai.api_url, or ai.api_key or ai.api_key_file, in the settings of the analyzer",
    "尚未配置语言模型，不能把 Pod 名称发送给无人选定的服务商：请在 analyzer 的设置中填写 ai.api_url，"
    "或者 ai.api_key 或 ai.api_key_file",
)
NO_MODEL_SDK = Message(
    "ai.enabled is true, but the SDKs of language models are not installed: install them with pip install"
    " 'gpusteward[ai]', or set ai.enabled to false",
    "ai.enabled 为 true，但未安装语言模型的 SDK：请运行 pip install 'gpusteward[ai]' 安装，或将 ai.enabled 设为 false",
)
RETENTION_ORDER = Message("daily_days must not be less than hourly_days", "daily_days 不能小于 hourly_days")
THRESHOLD_ORDER = Message(
    "thresholds must be ordered: idle <= low_utilization <= high",
    "thresholds 必须满足 thresholds.idle <= thresholds.low_utilization <= thresholds.high",
)
NO_WEIGHT = Message("at least one weight of scoring must be above 0", "scoring 中至少有一个权重必须大于 0")
CONTROL_NEEDS_URL = Message("control.enabled needs control.api_url", "control.enabled 需要 control.api_url")
INVALID_CHANNEL_NAME = Message(
    "a channel name consists of at most 63 letters, digits, `-`, `_` and `.`",
    "渠道名最多 63 个字符，只能含字母、数字、`-`、`_` 和 `.`",
)
INVALID_CHANNEL = Message(
    "channel {name}: expected Feishu webhooks or Apprise URLs, separated by spaces",
    "渠道 {name}：应为飞书 webhook 或 Apprise URL，以空格分隔",
)
UNKNOWN_CHANNEL = Message(
    "{setting}: there is no channel {name!r} in channels", "{setting}：channels 中没有渠道 {name!r}"
)
SECRETS_COUNT = Message(
    "secrets: channel {name} has {secrets} but needs {bots}, one for each of its Feishu webhooks; put bots without a"
    " secret into a separate channel",
    "secrets：渠道 {name} 有 {secrets} 个，需要 {bots} 个，每个飞书 webhook 一个；没有密钥的机器人请放到单独的渠道",
)
NOT_NETWORKS = Message(
    "write IP addresses or networks, such as 10.0.3.7 or 10.0.3.0/28 (without host bits)",
    "请写成 IP 地址或网段，例如 10.0.3.7 或 10.0.3.0/28（主机位须为 0）",
)
EVERY_ADDRESS = Message(
    "this trusts every address: anybody could claim to be anybody; write the addresses of the proxies",
    "这会信任所有地址，任何人都可以冒充他人；请只写代理的地址",
)
NOT_A_HEADER = Message(
    "write the name of a header that the proxy sets, such as X-Forwarded-User",
    "请写成由代理设置的请求头名称，例如 X-Forwarded-User",
)
SAME_HEADER = Message(
    "user_header and groups_header must be different headers", "user_header 和 groups_header 不能是同一个请求头"
)
NOT_A_NAMESPACE_PATTERN = Message(
    "namespaces and clusters: write names, or patterns with `*` and `?`, such as vision-*",
    "namespaces 和 clusters：请写成名称，或含 `*`、`?` 的模式，例如 vision-*",
)
NOT_AN_HTTPS_URL = Message(
    "write an https URL: over plain http anybody on the way could replace the keys; or use jwks_file",
    "请写成 https URL：明文 http 传输中密钥可能被替换；也可以使用 jwks_file",
)
OIDC_NEEDS_AUDIENCE = Message(
    "issuer needs audience: without it, tokens made for other applications would be accepted",
    "设置 issuer 时必须设置 audience，否则为其他应用签发的令牌也会被接受",
)
KEYS_TWICE = Message("jwks_url and jwks_file are both set: keep one of them", "jwks_url 和 jwks_file 只能设置一个")
RULE_FOR_NOBODY = Message(
    "a rule needs users or groups; user `*` is everybody who is signed in",
    "规则需要 users 或 groups；用户 `*` 表示所有已登录的人",
)
LIMITED_WRITER = Message(
    "namespaces and clusters limit viewers only; the role {role} acts on the whole site",
    "namespaces 和 clusters 只能限制 viewer；{role} 角色的操作作用于整个站点",
)
NO_AUTH_RULES = Message(
    "rules is empty: nobody who signs in would have a role; add a rule", "rules 为空：登录的人都没有角色；请添加规则"
)
LIMITS_WITHOUT_EFFECT = Message(
    "auth.rules limits viewers to namespaces, but server.anonymous_reads is always: everybody could read everything",
    "auth.rules 限制了 viewer 可见的命名空间，但 server.anonymous_reads 为 always：任何人都能读取全部数据",
)
INVALID_LABEL_NAME = Message("labels: {name!r} is not a valid label name", "labels：{name!r} 不是有效的标签名")
SAME_VALUE_TWICE = Message(
    "{flag} and another flag set the same value: keep one of them", "{flag} 与另一个参数设置了同一个值：只能保留一个"
)

# Unknown settings, and settings of a command

UNKNOWN_SETTING = Message("{flag} {path}: unknown setting; {hint}", "{flag} {path}：未知的配置项；{hint}")
SETTING_SUGGESTION = Message("did you mean {nearest!r}?", "您是否想输入 {nearest!r}？")
SETTINGS_LISTED = Message("`gpusteward settings` lists all settings", "`gpusteward settings` 会列出所有配置项")
NO_SETTING_VALUE = Message(
    "--set {assignment!r} has no value: write --set PATH=VALUE", "--set {assignment!r} 缺少值：请写成 --set PATH=VALUE"
)
FIXED_SETTING = Message(
    "{flag} {path}: `gpusteward {command}` sets this itself; use `gpusteward serve` to choose it",
    "{flag} {path}：`gpusteward {command}` 会自行设置该项；如需指定请用 `gpusteward serve`",
)
UNEXPECTED_AGENT_ARGUMENT = Message(
    "unexpected argument {word!r}: settings are flags, see --help", "多余的参数 {word!r}：配置均为命令行参数，见 --help"
)

# The configuration file of dcgm-exporter

INVALID_KEY = Message("{path} ({origin}): {problem}", "{path}（{origin}）：{problem}")
UNKNOWN_KEY = Message("unknown key{suggestion}", "未知的键{suggestion}")
MISSING_KEY = Message("the key {key!r} is missing", "缺少键 {key!r}")
NOT_KEYS = Message("write keys with values", "请写成键值对")
NOT_ITEMS = Message("write a list with at least one item", "请写成至少有一项的列表")
NOT_A_TEXT = Message("write a single value", "请写成单个值")
CONFIG_FILE_VERSION = Message("write version: 1 or version: 2", "请写成 version: 1 或 version: 2")
KEY_OF_ANOTHER_VERSION = Message("version {version} does not have this key", "版本 {version} 没有这个键")
FILE_AND_FIELDS = Message("write either file or fields, not both", "file 与 fields 只能写一个")
NOT_AN_INTERVAL = Message("write 500ms to 10m", "请写成 500ms 到 10m")

# Files and addresses

NOT_YAML = Message("{where} is not YAML: {reason}", "{where}不是有效的 YAML（{reason}）")
NESTED_TOO_DEEPLY = Message("nested too deeply", "嵌套过深")
YAML_TOO_LARGE = Message("too large", "过大")
YAML_ALIASES = Message(
    "anchors with aliases (&name, *name) are not accepted here", "此处不接受锚点和别名（&name、*name）"
)
YAML_KEY_TWICE = Message("the key {key} is written twice", "键 {key} 写了两次")
UNREADABLE_YAML = Message("unreadable", "无法解析")
NOT_A_SECTION = Message("{where}: expected keys with values, found {found}", "{where}：应为键值对，实际为{found}")
SECTION_WITH_ORIGIN = Message("{path} ({origin})", "{path}（{origin}）")
A_LIST = Message("a list", "列表")
A_SINGLE_VALUE = Message("a single value", "单个值")
NOT_UTF8 = Message(
    "{path} is not UTF-8 text: {reason} at byte {byte}", "{path} 不是 UTF-8 文本：第 {byte} 字节，{reason}"
)
FILE_UNREADABLE = Message(
    "{path} cannot be read: {reason}; check {setting}", "无法读取 {path}：{reason}；请检查 {setting}"
)
CANNOT_LISTEN = Message(
    "--address {address!r}: cannot listen there: {reason}; choose another with --address HOST:PORT",
    "--address {address!r}：无法监听该地址：{reason}；请用 --address HOST:PORT 指定其他地址",
)
AGENT_CANNOT_LISTEN = Message("cannot listen on {address}: {reason}", "无法监听 {address}：{reason}")
UNKNOWN_LISTEN_HOST = Message(
    "unknown host {host!r}; use an address of this machine, or only :{port}",
    "未知主机 {host!r}；请使用本机地址，或只写 :{port}",
)
LISTEN_ERRORS: Mapping[int, Message] = {
    errno.EADDRINUSE: Message(
        "port {port} is in use; choose another one with --address :PORT",
        "端口 {port} 已被占用；请用 --address :PORT 指定其他端口",
    ),
    errno.EADDRNOTAVAIL: Message(
        "{host} is not an address of this machine; use one that is, or only :{port}",
        "{host} 不是本机地址；请使用本机地址，或只写 :{port}",
    ),
    errno.EACCES: Message(
        "port {port} needs privileges; choose one above 1023 with --address :PORT",
        "端口 {port} 需要特权；请用 --address :PORT 指定大于 1023 的端口",
    ),
}
WEB_CONFIG_UNREADABLE = Message(
    "web config file {path} cannot be read: {reason}", "无法读取 web 配置文件 {path}：{reason}"
)
WEB_CONFIG_NOT_YAML = Message("web config file {path} is not YAML: {reason}", "web 配置文件 {path} 不是 YAML：{reason}")
RATIO_FILE_UNREADABLE = Message(
    "cannot read the ratio file {path}: {reason}; it must contain one number above 0, such as 2 (each GPU is shared by"
    " two pods)",
    "无法读取比例文件 {path}：{reason}；文件内容应为一个大于 0 的数字，例如 2（每张 GPU 由两个 Pod 共享）",
)
INVALID_RATIO = Message(
    "ratio file {path} contains {text!r}; it must contain one number above 0, such as 2 (each GPU is shared by two"
    " pods)",
    "比例文件 {path} 的内容为 {text!r}；应为一个大于 0 的数字，例如 2（每张 GPU 由两个 Pod 共享）",
)
INVALID_DEVICES = Message(
    "--devices {text!r}: use f, g, i or g+i; g and i accept ids, as in g:0,1,3-5 or g:0,1+i:0",
    "--devices {text!r}：请写成 f、g、i 或 g+i；g 和 i 可以带编号，例如 g:0,1,3-5 或 g:0,1+i:0",
)
DEVICES_WITHOUT_IDS = Message(
    "--devices {text!r}: only g and i accept a list of ids, as in g:0,1,3-5",
    "--devices {text!r}：只有 g 和 i 可以带编号列表，例如 g:0,1,3-5",
)
INVALID_DEVICE_RANGE = Message(
    "--devices {text!r}: {part!r} is neither an id nor a range such as 3-5",
    "--devices {text!r}：{part!r} 既不是编号，也不是 3-5 这样的范围",
)
BACKWARD_DEVICE_RANGE = Message(
    "--devices {text!r}: the range {part!r} runs backwards", "--devices {text!r}：范围 {part!r} 的起止颠倒"
)
