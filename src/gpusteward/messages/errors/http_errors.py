"""Why an HTTP request failed. No text contains a URL, a header value or a credential."""

from gpusteward.core.messages import Message

CA_FILE_UNUSABLE = Message("cannot use the CA file {path}: {reason}", "无法使用 CA 文件 {path}：{reason}")
TOKEN_FILE_UNREADABLE = Message("cannot read {setting} {path}: {reason}", "无法读取 {setting} {path}：{reason}")
INVALID_CREDENTIALS = Message(
    "the header {name!r} cannot be sent: check {section}.headers and the token for line breaks and characters outside"
    " Latin-1",
    "无法发送请求头 {name!r}：请检查 {section}.headers 和令牌中是否含有换行符或 Latin-1 以外的字符",
)
INVALID_HEADER = Message(
    "the header {name!r} contains characters that HTTP does not allow", "请求头 {name!r} 含有 HTTP 不允许的字符"
)
INVALID_PATH = Message(
    "the path of the URL contains characters that HTTP does not allow", "URL 路径含有 HTTP 不允许的字符"
)
CONNECT_TIMEOUT = Message("no connection within {seconds:g} s", "{seconds:g} 秒内未能建立连接")
CONNECT_FAILED = Message("connection failed: {reason}", "连接失败：{reason}")
PROXY_REFUSED = Message("the proxy refused the connection: HTTP {status}", "代理拒绝连接：HTTP {status}")
TLS_FAILED = Message("TLS failed: {reason}", "TLS 失败：{reason}")
CONNECTION_LOST = Message("connection lost: {reason}", "连接中断：{reason}")
CLOSED_WITHOUT_RESPONSE = Message("the server closed the connection without a response", "服务器未响应便关闭了连接")
CLOSED_EARLY = Message(
    "the server closed the connection before the end of the response", "服务器在响应结束前关闭了连接"
)
RESPONSE_TIMEOUT = Message("no complete response within {seconds:g} s", "{seconds:g} 秒内未收到完整响应")
IDLE_TIMEOUT = Message("no data for {seconds:g} s", "{seconds:g} 秒内未收到数据")
RESPONSE_TOO_LARGE = Message("the response is larger than {limit_bytes} bytes", "响应超过 {limit_bytes} 字节")
TOO_MUCH_AT_ONCE = Message(
    "the responses being received have more than {limit_bytes} bytes together, and this is the largest",
    "正在接收的响应合计超过 {limit_bytes} 字节，而此响应最大",
)
LINE_TOO_LONG = Message(
    "a line of the response is longer than {limit_bytes} bytes", "响应中有一行超过 {limit_bytes} 字节"
)
HEADERS_TOO_LARGE = Message("response headers too large", "响应头过大")
TOO_MUCH_FRAMING = Message(
    "the response has more chunk headers or trailers than content", "响应中的分块头或尾部字段多于正文"
)
INVALID_RESPONSE = Message("invalid HTTP response: {reason}", "无效的 HTTP 响应：{reason}")
UNSUPPORTED_ENCODING = Message("unsupported content encoding {encoding!r}", "不支持的内容编码 {encoding!r}")
DAMAGED_CONTENT = Message("the compressed response is damaged: {reason}", "压缩的响应已损坏：{reason}")
TRUNCATED_CONTENT = Message("the compressed response is truncated", "压缩的响应不完整")
TOO_MANY_MEMBERS = Message("the compressed response has too many gzip members", "压缩的响应包含过多 gzip 成员")
NOT_SENT = Message("the server was not ready for it in time; nothing was sent", "服务器未能及时就绪；没有发送请求内容")
CANCELLED = Message("the request was cancelled", "请求已取消")
