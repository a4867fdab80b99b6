"""Why the Kubernetes API server could not be read, and what helps."""

from gpusteward.core.messages import Message

NOT_IN_A_POD = Message(
    "no API server: KUBERNETES_SERVICE_HOST is not set, so this is not a pod",
    "没有 API server：未设置 KUBERNETES_SERVICE_HOST，说明当前不在 Pod 中",
)
NO_TOKEN_MOUNTED = Message(
    "no API server: {path} is missing; is automountServiceAccountToken off?",
    "没有 API server：缺少 {path}；是否关闭了 automountServiceAccountToken？",
)
NOT_A_TOKEN = Message("{path} does not contain a service account token", "{path} 的内容不是服务账号令牌")
INVALID_URL = Message(
    "API server {url!r} is not a valid URL ({reason}); write http://host:port or https://host:port",
    "API server {url!r} 不是有效的 URL（{reason}）；请写成 http://host:port 或 https://host:port",
)
URL_WITH_CREDENTIALS = Message(
    "the URL of the API server must not contain credentials; write http://host:port or https://host:port",
    "API server 的 URL 不能包含凭据；请写成 http://host:port 或 https://host:port",
)
REQUEST_FAILED = Message("{url}: {reason}", "{url}：{reason}")
TLS_FAILED = Message("{url}: {reason} (trusted: {trusted})", "{url}：{reason}（信任的证书：{trusted}）")
SYSTEM_CERTIFICATES = Message("the system's certificates", "系统证书")
WATCH_FAILED = Message("the watch ended: {reason}", "watch 中断：{reason}")
NOT_DECODED = Message(
    "the response of {url} to {path} is not that of an API server: {reason}",
    "{url} 对 {path} 的响应不是 API server 的响应：{reason}",
)
REDIRECTED = Message(
    "{url} responded to {path} with a redirect ({status}), which is never followed",
    "{url} 对 {path} 返回了重定向（{status}），不会跟随",
)
GONE = Message(
    "{url} no longer has the resource version that {path} continues from ({status}): {reason}",
    "{url} 不再保留 {path} 所需的资源版本（{status}）：{reason}",
)
UNAUTHORIZED = Message(
    "{url} does not accept the service account token ({status}): {reason}",
    "{url} 不接受服务账号令牌（{status}）：{reason}",
)
FORBIDDEN = Message(
    "{url} denies access to {path} ({status}): {reason}; {rule}", "{url} 拒绝访问 {path}（{status}）：{reason}；{rule}"
)
BAD_STATUS = Message("{url} responded to {path} with {status}: {reason}", "{url} 对 {path} 返回 {status}：{reason}")
CONFIG_MAP_RULE = Message(
    'the service account needs a Role in that namespace with resources ["configmaps"], verbs ["get"]',
    '服务账号需要该命名空间中的 Role：resources ["configmaps"]，verbs ["get"]',
)
POD_RULE = Message(
    'the service account needs a ClusterRole with resources ["pods"], verbs ["list", "watch"]',
    '服务账号需要 ClusterRole：resources ["pods"]，verbs ["list", "watch"]',
)
RESOURCE_RULE = Message(
    'the service account needs a ClusterRole with apiGroups ["{group}"], resources ["{resource}"], verbs [{verbs}]',
    '服务账号需要 ClusterRole：apiGroups ["{group}"]，resources ["{resource}"]，verbs [{verbs}]',
)
REPLACED = Message("{path} is another pod of the same name by now", "{path} 现在是另一个同名的 Pod")
OWNERS_REQUIRED = Message(
    "kubernetes.owners is always, but there is {reason}; set kubernetes.api_url",
    "kubernetes.owners 设为 always，但{reason}；请设置 kubernetes.api_url",
)
WRITE_FAILED = Message(
    "the API server responded to the change of {path} with {status}: {reason}",
    "API server 对修改 {path} 的请求返回 {status}：{reason}",
)
WRITE_LATE = Message(
    "the change of {path} was not sent in time; nothing was changed", "未能及时发送对 {path} 的修改；没有任何改动"
)
WRITE_FORBIDDEN = Message(
    "the API server denies the change of {path} ({status}): {reason}; the service account needs the verb {verb} on it: "
    "the chart grants it with reclaim.rights, only in reclaim.namespaces where these are set",
    "API server 拒绝修改 {path}（{status}）：{reason}；服务账号需要对它的 {verb} 权限："
    "Chart 通过 reclaim.rights 授予；设置了 reclaim.namespaces 时仅限这些命名空间",
)
WRITE_REPLACED = Message(
    "{path} is another object of the same name by now ({status}): {reason}",
    "{path} 现在是另一个同名对象（{status}）：{reason}",
)
NODES_TOO_SLOW = Message(
    "the API server did not list all nodes within {seconds:.0f} s", "API server 未能在 {seconds:.0f} 秒内列出所有节点"
)
TOO_MANY_NODES = Message(
    "the cluster has more than {count} {count:|node|nodes}; the rest was not searched",
    "集群的节点多于 {count} 个，其余未查询",
)
