"""Why a usage source cannot be read: settings, the engine, exporters."""

from gpusteward.core.messages import Message

INVALID_URL = Message("{setting} cannot be used: {reason}", "无法使用 {setting}：{reason}")
CA_FILE = Message("{section}.ca_file: {reason}", "{section}.ca_file：{reason}")
PASSWORD_FILE = Message(
    "{section}.password_file {path} cannot be read: {reason}", "无法读取 {section}.password_file {path}：{reason}"
)
ENGINE_UNREACHABLE = Message("{path}: {reason}; check prometheus.url", "{path}：{reason}；请检查 prometheus.url")
ENGINE_TIMEOUT = Message(
    "{path}: {reason}; the engine is overloaded, or prometheus.timeout_seconds is too short",
    "{path}：{reason}；引擎负载过高，或 prometheus.timeout_seconds 过小",
)
ENGINE_RESPONSE_TOO_LARGE = Message(
    "{reason}; raise memory.budget_bytes and the memory limit of the container to {budget}",
    "{reason}；请将 memory.budget_bytes 和容器的内存限制增大到 {budget}",
)
ENGINE_NOT_UNDERSTOOD = Message(
    "{path}: {reason}; check prometheus.url",
    "{path}：{reason}；请检查 prometheus.url",
)
ENGINE_LIMIT = Message("a limit of the engine was reached: {reason}", "达到引擎自身的限制：{reason}")
ENGINE_FAILED = Message("the engine failed: {reason}", "引擎出错：{reason}")
ENGINE_REFUSED = Message("the engine refused the request: {reason}{hint}", "引擎拒绝了请求：{reason}{hint}")
_CHECK_CREDENTIALS = Message(
    "; check prometheus.username, password, bearer_token and headers (Mimir needs a tenant: X-Scope-OrgID)",
    "；请检查 prometheus.username、password、bearer_token 和 headers（Mimir 需要用 X-Scope-OrgID 指定租户）",
)
NO_UUID_LABEL = Message(
    "no label has the UUID of the GPUs, so they are identified by node and index ({labels}); keep the label UUID when "
    "relabeling: an index can change when a node restarts",
    "没有标签包含 GPU 的 UUID，因此按节点和序号（{labels}）识别 GPU；relabel 时请保留 UUID 标签："
    "节点重启后序号可能改变",
)
NO_UUID_ON_NODES = Message(
    "the series of some nodes have no UUID ({nodes}), so all GPUs of such a node count as one; keep the label UUID"
    " when relabeling",
    "部分节点的序列没有 UUID（{nodes}），这些节点上的所有 GPU 会被算作一张；relabel 时请保留 UUID 标签",
)
NO_IDENTITY = Message(
    "no label tells the GPUs of a node apart, so several count as one; keep the label UUID when relabeling",
    "没有标签能区分同一节点上的 GPU，因此多张 GPU 会被算作一张；relabel 时请保留 UUID 标签",
)
SHARED_UUID = Message(
    "one UUID stands for several GPUs of a node ({nodes}), so the GPUs of such nodes are identified by node and index"
    " ({labels}); give each GPU a UUID of its own (cloned virtual GPUs), and keep the label UUID as the exporter writes"
    " it: an index can change when a node restarts",
    "同一节点上有多张 GPU 使用同一个 UUID（{nodes}），因此这些节点的 GPU 按节点和序号（{labels}）识别；"
    "请让每张 GPU 有自己的 UUID（克隆的 vGPU），relabel 时请保留 exporter 写出的 UUID 标签：节点重启后序号可能改变",
)
NO_NODE_LABEL = Message(
    "the series of {count} {count:|GPU|GPUs} do not name the node, so it is not shown, and neither a node that does not"
    " report nor a pod on two nodes can be noticed; keep the label Hostname (or hostname, node, instance) when"
    " relabeling",
    "{count} 张 GPU 的序列没有节点名称，因此不显示节点，也无法发现没有上报的节点或同时出现在两个节点上的 Pod；"
    "relabel 时请保留 Hostname（或 hostname、node、instance）标签",
)
NO_NAMESPACE_LABEL = Message(
    "the series name pods ({pod}) but not their namespaces, so those of the exporters or none stand for them; keep the"
    " label of the namespace when relabeling",
    "序列中有 Pod（{pod}）但没有其命名空间，因此显示的是 exporter 的命名空间或为空；relabel 时请保留命名空间标签",
)
GPU_IN_TWO_CLUSTERS = Message(
    "{count} {count:|GPU is|GPUs are} reported in two clusters ({clusters}) and may count twice: one of the scrape jobs"
    " or engines names another cluster, or none; name it alike in all of them, best in external_labels",
    "{count} 张 GPU 出现在两个集群中（{clusters}），可能被重复计数：某个抓取任务或引擎的集群名不同或缺失；"
    "请统一集群名，最好写在 external_labels 中",
)
GPU_ON_TWO_NODES = Message(
    "{count} {count:|GPU is|GPUs are} on nodes of different names in two engines ({nodes}) and may count twice; keep"
    " the label of the node alike in both",
    "{count} 张 GPU 在两个引擎中的节点名不同（{nodes}），可能被重复计数；请让两者的节点标签一致",
)
SAME_POD_IN_TWO_ENGINES = Message(
    "{first} and {second} both have the pod {pod}: they are read as two clusters, named by their addresses, because "
    "no label of their series names a cluster; if they are one cluster, name it in external_labels of both",
    "{first} 和 {second} 中都有 Pod {pod}：由于序列没有集群标签，它们被当作两个集群，并以地址命名；"
    "如果它们属于同一个集群，请在两者的 external_labels 中写明集群名",
)
OF_ENGINE = Message("engine {url}: {error}", "引擎 {url}：{error}")
ENGINE_HINTS = {
    401: _CHECK_CREDENTIALS,
    403: _CHECK_CREDENTIALS,
    404: Message("; check the path in prometheus.url", "；请检查 prometheus.url 中的路径"),
}
NO_HINT = Message("", "")
ENGINE_WITHOUT_DATA = Message(
    "the engine has no series at all, which is not the same as no GPUs: check prometheus.url and, where the engine has"
    " tenants, prometheus.headers (X-Scope-OrgID)",
    "引擎中没有任何序列，这不等于没有 GPU：请检查 prometheus.url；若引擎区分租户，"
    "请检查 prometheus.headers（X-Scope-OrgID）",
)
ENGINE_NOT_FOUND = Message(
    "the Service of the engine has not been found yet (prometheus.service_selector)",
    "尚未找到引擎的 Service（prometheus.service_selector）",
)
NO_GPU_METRICS = Message(
    "the engine has series, but no GPU metrics: have it scrape the gpusteward agents or dcgm-exporter",
    "引擎中有序列，但没有 GPU 指标：请让它抓取 gpusteward agent 或 dcgm-exporter",
)
NO_SUCH_CLUSTERS = Message(
    "no GPU series name these clusters; check the names and prometheus.cluster_label",
    "没有 GPU 序列属于这些集群；请检查名称和 prometheus.cluster_label",
)
TOO_MANY_ROWS = Message(
    "{rows} {rows:|row|rows} with their labels {rows:|needs|need} more memory than this analyzer may take: raise"
    " memory.budget_bytes and the memory limit of the container from {before} to {budget}, or read fewer clusters"
    " (prometheus.clusters)",
    "{rows} 行及其标签所需的内存超过了 analyzer 的限额：请将 memory.budget_bytes 和容器的内存限制从 {before} 增大到"
    " {budget}，或减少读取的集群（prometheus.clusters）",
)
STOPPING = Message("the program is stopping", "程序正在停止")
TARGET_TIMEOUT = Message("{reason}; consider raising scrape.timeout", "{reason}；可考虑增大 scrape.timeout")
TARGET_PAGE_TOO_LARGE = Message(
    "{reason}; raise memory.budget_bytes and the memory limit of the container",
    "{reason}；请增大 memory.budget_bytes 和容器的内存限制",
)
TARGET_STATUS = Message("the target responded with HTTP {status}{hint}", "目标返回 HTTP {status}{hint}")
TARGET_HINTS = {
    401: Message(
        "; check scrape.username, password or bearer_token", "；请检查 scrape.username、password 或 bearer_token"
    ),
    403: Message(
        "; check scrape.username, password, bearer_token or headers",
        "；请检查 scrape.username、password、bearer_token 或 headers",
    ),
    404: Message("; check the path of the target", "；请检查目标的路径"),
}
TARGET_REDIRECTS = Message("more than {limit} {limit:|redirect|redirects}", "重定向超过 {limit} 次")
TARGET_REDIRECTED_AWAY = Message(
    "the target redirects to another address, {address!r}, which is not followed",
    "目标重定向到另一个地址 {address!r}，不会跟随",
)
TARGET_REDIRECTED_WITHOUT = Message(
    "the target redirects to {path!r}, which responds with HTTP {status}: credentials are not sent after a redirect; "
    "use that path in the target",
    "目标重定向到 {path!r}，该路径返回 HTTP {status}：重定向之后不会发送凭据，请在目标中直接使用该路径",
)
TARGET_INVALID = Message(
    "target {target!r}: write HOST, HOST:PORT or http://HOST:PORT/PATH",
    "目标 {target!r}：请写成 HOST、HOST:PORT 或 http://HOST:PORT/PATH",
)
TARGET_SCHEME = Message(
    "__scheme__ is {scheme!r}: write http or https", "__scheme__ 为 {scheme!r}：请写成 http 或 https"
)
TARGETS_FILE_INVALID = Message(
    "{path} is not a list of targets: {reason}; write [{{targets: [HOST:PORT]}}]",
    "{path} 不是目标列表：{reason}；请写成 [{{targets: [HOST:PORT]}}]",
)
TOO_MANY_PODS = Message(
    "more than {limit} {limit:|pod matches|pods match} scrape.selector", "匹配 scrape.selector 的 Pod 超过 {limit} 个"
)
NAMESPACE_UNKNOWN = Message(
    "the namespace of the agents is not known: set scrape.namespace (in a pod, POD_NAMESPACE or the namespace of the"
    " service account is used)",
    "不知道 agent 所在的命名空间：请设置 scrape.namespace（在 Pod 中会使用 POD_NAMESPACE 或服务账号的命名空间）",
)
NO_SOURCE = Message(
    "no source is set: set prometheus.url to a Prometheus-compatible engine, or scrape.targets or scrape.targets_file"
    " to exporters such as the gpusteward agent; in a cluster the agents are found automatically",
    "未设置数据源：请将 prometheus.url 设为兼容 Prometheus 的引擎，或将 scrape.targets 或 scrape.targets_file 设为"
    "exporter（例如 gpusteward agent）；在集群中会自动发现 agent",
)
NO_TARGET_READ = Message(
    "none of {count} {count:|target|targets} could be read: {reason}", "{count} 个目标均无法读取：{reason}"
)
NO_TARGETS = Message("no targets were found: {origins}", "未找到目标：{origins}")
NO_AGENT_RESPONDED = Message(
    "none of {count} {count:|agent|agents} responded: {reason}", "{count} 个 agent 均未响应：{reason}"
)
AGENTS_TOO_SLOW = Message("the agents took too long to respond", "agent 响应超时")
ENDED_NOT_READ = Message(
    "{left_out} of {count} {count:|container|containers} that ended within the window are too many to read: their last"
    " minutes are missing in the ledger",
    "窗口内结束的 {count} 个容器过多，有 {left_out} 个没有读取：账本中缺少它们最后几分钟的时间",
)
INCOMPLETE_REQUESTS = Message(
    "a part of the engine did not respond ({stores}), so the requests of inference servers are unknown",
    "引擎的部分存储没有响应（{stores}），因此推理服务的请求情况未知",
)
