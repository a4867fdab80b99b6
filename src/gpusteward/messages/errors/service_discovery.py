"""Why the Service of the engine was not found (`prometheus.service_selector`)."""

from gpusteward.core.messages import Message

ALL_NAMESPACES = Message("any namespace", "任何命名空间")
NONE = Message(
    "no Service in {where} has the labels {selector}; correct prometheus.service_selector or service_namespace, or set "
    "prometheus.url",
    "{where}中没有标签为 {selector} 的 Service；请修改 prometheus.service_selector 或 service_namespace，"
    "或设置 prometheus.url",
)
SEVERAL = Message(
    "several Services ({count}) have the labels {selector}, and none is chosen: {names}; use more labels or "
    "prometheus.service_namespace, or set prometheus.url",
    "有 {count} 个 Service 的标签为 {selector}，未选用其中任何一个：{names}；请增加标签、"
    "设置 prometheus.service_namespace 或 prometheus.url",
)
PORT = Message(
    "set prometheus.service_port to the name or number of the engine's port; Service {service} has: {ports}",
    "请将 prometheus.service_port 设为引擎端口的名称或端口号；Service {service} 的端口：{ports}",
)
CREDENTIALS = Message(
    "set prometheus.service_namespace: credentials must not be sent to Services of other namespaces",
    "请设置 prometheus.service_namespace：凭据不能发送给其他命名空间的 Service",
)
FOUND_BY_LABEL = Message(
    "Service {service}, found by prometheus.service_selector",
    "Service {service}（由 prometheus.service_selector 找到）",
)
