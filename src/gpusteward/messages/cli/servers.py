"""Servers that cannot be reached, and their error responses; `peer` is one of the first four."""

from gpusteward.core.messages import Message

ANALYZER = Message("the analyzer", "analyzer")
AGENT = Message("the agent", "agent")
PROMETHEUS = Message("Prometheus", "Prometheus")
API_SERVER = Message("the API server", "API server")

INVALID_URL = Message(
    "the address of {peer} is not a valid URL: write http://HOST:PORT or https://HOST:PORT",
    "{peer} 的地址不是有效的 URL：请写成 http://HOST:PORT 或 https://HOST:PORT",
)
WITH_HINT = Message("{problem}; {hint}", "{problem}；{hint}")
CANNOT_CONNECT = Message("cannot connect to {peer} at {url} ({reason})", "无法连接 {url} 上的 {peer}（{reason}）")
NO_RESPONSE = Message("no response from {peer} at {url}: {reason}", "{url} 上的 {peer} 没有响应：{reason}")
NOT_JSON = Message(
    "the response of {url} is not valid JSON; check that this is the address of {peer}",
    "{url} 的响应不是有效的 JSON；请确认这是 {peer} 的地址",
)
START_ANALYZER = Message(
    "start one with `gpusteward serve`, forward a port of the cluster with `kubectl port-forward`, or set its address"
    " with --server URL or GPUSTEWARD_SERVER",
    "请用 `gpusteward serve` 启动，用 `kubectl port-forward` 转发集群中的端口，或通过 --server URL 或 GPUSTEWARD_SERVER"
    " 指定地址",
)
START_AGENT = Message(
    "start one with `gpusteward agent` (without a GPU: `--source simulated`), or set its address with --agent URL or"
    " GPUSTEWARD_AGENT",
    "请用 `gpusteward agent` 启动（没有 GPU 时加 `--source simulated`），或用 --agent URL 或 GPUSTEWARD_AGENT 指定地址",
)
SET_PROMETHEUS_URL = Message("set its address with --prometheus-url URL", "请用 --prometheus-url URL 指定地址")
CHECK_NETWORK_POLICY = Message("check the network policies of this pod", "请检查此 Pod 的网络策略")

# Error responses

ERROR_STATUS = Message("{peer} at {url} responded {status}: {reason}", "{url} 上的 {peer} 返回 {status}：{reason}")
VERBATIM = Message("{text}", "{text}")
NO_REASON = Message("no reason given", "未说明原因")
NOT_FOUND = Message(
    "{url} responded 404; check that it is the address of {peer} and that its version is not older than this command",
    "{url} 返回 404；请确认这是 {peer} 的地址，且其版本不低于本命令",
)
NEEDS_PASSWORD = Message(
    "{peer} at {url} requires a user name and password: --agent http://NAME:PASSWORD@HOST:PORT, or better in"
    " GPUSTEWARD_AGENT",
    "{url} 上的 {peer} 需要用户名和密码：--agent http://NAME:PASSWORD@HOST:PORT，最好写在 GPUSTEWARD_AGENT 中",
)
CREDENTIALS_REJECTED = Message(
    "{peer} at {url} rejected the credentials (HTTP {status}); check prometheus.username, password, bearer_token and"
    " headers (Mimir needs a tenant: X-Scope-OrgID)",
    "{url} 上的 {peer} 拒绝了凭据（HTTP {status}）；请检查 prometheus.username、password、bearer_token 和 headers"
    "（Mimir 需要用 X-Scope-OrgID 指定租户）",
)
TOKEN_REJECTED = Message(
    "{peer} at {url} rejected the token from {origin}; its server.tokens_file lists the accepted tokens",
    "{url} 上的 {peer} 拒绝了来自 {origin} 的令牌；有效令牌见其 server.tokens_file",
)
NEEDS_TOKEN = Message(
    "{peer} at {url} requires a bearer token: set GPUSTEWARD_TOKEN or --token-file",
    "{url} 上的 {peer} 需要令牌：请设置 GPUSTEWARD_TOKEN 或 --token-file",
)
