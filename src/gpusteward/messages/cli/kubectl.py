"""Texts of `kubectl gpusteward`: kubeconfig, credentials, and the way to the analyzer."""

from gpusteward.core.messages import Message

ANALYZER_LABELS = "app.kubernetes.io/name=gpusteward,app.kubernetes.io/component=analyzer"

# kubeconfig

NO_KUBECONFIG = Message(
    "there is no kubeconfig at {paths}; name one with --kubeconfig or KUBECONFIG",
    "{paths} 中没有 kubeconfig；请用 --kubeconfig 或 KUBECONFIG 指定",
)
INVALID_KUBECONFIG = Message("kubeconfig {path}: {problem}", "kubeconfig {path}：{problem}")
NOT_YAML = Message("not YAML, line {line}", "不是 YAML，第 {line} 行")
NOT_A_KUBECONFIG = Message("{place} is not what a kubeconfig has there", "{place} 的内容不是 kubeconfig 的格式")
NO_CURRENT_CONTEXT = Message(
    "the kubeconfig has no current context; choose one with --context: {known}",
    "kubeconfig 没有当前 context；请用 --context 指定：{known}",
)
UNKNOWN_CONTEXT = Message(
    "the kubeconfig has no context {name!r}{suggestion}", "kubeconfig 中没有 context {name!r}{suggestion}"
)
NO_CONTEXTS = Message("it has none", "其中没有 context")
MISSING_ENTRY = Message(
    "context {context!r} names the {kind} {name!r}, which the kubeconfig does not have",
    "context {context!r} 引用的 {kind} {name!r} 在 kubeconfig 中不存在",
)
INVALID_SERVER = Message(
    "the server of context {context!r} is not an http or https URL",
    "context {context!r} 的 server 不是 http 或 https URL",
)
INVALID_PROXY = Message(
    "the proxy-url of context {context!r} cannot be used: only http:// proxies are supported",
    "context {context!r} 的 proxy-url 无法使用：仅支持 http:// 代理",
)
NOT_BASE64 = Message("{key} of context {context!r} is not base64", "context {context!r} 的 {key} 不是 base64")
UNUSABLE_CERTIFICATE = Message(
    "{key} of context {context!r} cannot be used: {reason}", "context {context!r} 的 {key} 无法使用：{reason}"
)
UNREADABLE_TOKEN = Message(
    "the token of context {context!r} cannot be used: {reason}", "context {context!r} 的令牌无法使用：{reason}"
)
NOT_A_TOKEN = Message("it is not one line without blanks", "不是一行不含空格的文本")
AUTH_PROVIDER = Message(
    "context {context!r} uses an auth-provider, which kubectl no longer has; use an exec credential plugin",
    "context {context!r} 使用 auth-provider，kubectl 已不再支持；请改用 exec 凭据插件",
)
SEVERAL_GROUPS = Message(
    "impersonating several groups is not supported; name one with --as-group",
    "不支持模拟多个用户组；请用 --as-group 只指定一个",
)
GROUP_WITHOUT_USER = Message("--as-group needs --as USER", "--as-group 需要与 --as USER 一起使用")

# Exec credential plugins

EXEC_NOT_FOUND = Message(
    "the credential plugin {command!r} of context {context!r} cannot be run: {reason}{hint}",
    "无法运行 context {context!r} 的凭据插件 {command!r}：{reason}{hint}",
)
EXEC_FAILED = Message(
    "the credential plugin {command!r} of context {context!r} ended with exit code {code}{hint}",
    "context {context!r} 的凭据插件 {command!r} 以退出码 {code} 结束{hint}",
)
EXEC_TIMEOUT = Message(
    "the credential plugin {command!r} of context {context!r} did not end within {seconds} s",
    "context {context!r} 的凭据插件 {command!r} 在 {seconds} 秒内没有结束",
)
EXEC_INVALID = Message(
    "the credential plugin {command!r} of context {context!r} printed no ExecCredential with a token or certificate",
    "context {context!r} 的凭据插件 {command!r} 没有输出带令牌或证书的 ExecCredential",
)
EXEC_NEEDS_TERMINAL = Message(
    "the credential plugin {command!r} of context {context!r} needs a terminal",
    "context {context!r} 的凭据插件 {command!r} 需要终端",
)

# The API server


# The analyzer's Service

NO_ANALYZER = Message(
    "no analyzer is installed in the cluster of context {context!r}: no Service with the labels {labels}; name one with"
    " --analyzer NAMESPACE/NAME",
    "context {context!r} 的集群中没有安装 analyzer：没有带标签 {labels} 的 Service；"
    "可用 --analyzer NAMESPACE/NAME 指定",
)
NO_ANALYZER_IN = Message(
    "no analyzer in the namespace {namespaces}, and other namespaces cannot be searched: {reason}; name its namespace"
    " with --analyzer NAMESPACE",
    "命名空间 {namespaces} 中没有 analyzer，且无法在其他命名空间查找：{reason}；"
    "请用 --analyzer NAMESPACE 指定其命名空间",
)
SEVERAL_ANALYZERS = Message(
    "{count} {count:|analyzer is|analyzers are} installed in this cluster: choose one with --analyzer {names}",
    "该集群中安装了 {count} 个 analyzer：请用 --analyzer 选择 {names}",
)
NO_PORT = Message("the Service {name} has no port", "Service {name} 没有端口")
INVALID_ANALYZER = Message(
    "--analyzer {value!r} is not a Service: write NAMESPACE/NAME or NAMESPACE",
    "--analyzer {value!r} 不是 Service：请写成 NAMESPACE/NAME 或 NAMESPACE",
)

# The role

NO_ROLE = Message(
    "the analyzer requires a role, and you cannot create a token of its service account gpusteward-viewer: {reason};"
    " to give it to you: kubectl create rolebinding NAME --namespace {namespace} --role gpusteward-viewer --user YOU",
    "analyzer 需要角色，而您无法创建其服务账号 gpusteward-viewer 的令牌：{reason}；"
    "授予角色：kubectl create rolebinding NAME --namespace {namespace} --role gpusteward-viewer --user YOU",
)
ACCOUNT_REJECTED = Message(
    "the analyzer does not accept tokens of service accounts: set auth.kubernetes.enabled, or send another token with"
    " --token-file",
    "analyzer 不接受服务账号令牌：请设置 auth.kubernetes.enabled，或用 --token-file 发送其他令牌",
)
ONE_NAMESPACE = Message(
    "showing the namespace {namespace} only, as your role allows", "根据您的角色，只显示命名空间 {namespace}"
)
NOT_A_TOKEN_REQUEST = Message("the response of the API server has no token", "API server 的响应中没有令牌")
