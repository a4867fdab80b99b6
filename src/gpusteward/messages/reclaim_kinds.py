"""What is lost when an object of a kind is suspended, and why an object is refused."""

from collections.abc import Mapping

from gpusteward.core.kinds import Loss
from gpusteward.core.messages import Message

LOSSES: Mapping[Loss, Message] = {
    Loss.MEMORY: Message(
        "pods and everything in their memory; a restore starts new pods, which load their models again",
        "Pod 及其内存中的全部内容；恢复时会启动新 Pod，并重新加载模型",
    ),
    Loss.MEMORY_NOT_VOLUMES: Message(
        "pods and everything in their memory; volumes stay", "Pod 及其内存中的全部内容；存储卷保留"
    ),
    Loss.WORK_OF_PODS: Message(
        "the work since the last checkpoint: a restore starts new pods; completed pods and indexes stay counted",
        "上一个检查点之后的工作：恢复时会启动新 Pod；已完成的 Pod 和索引仍计入",
    ),
    Loss.KERNELS: Message("kernels and their variables; files on volumes stay", "内核及其变量；存储卷上的文件保留"),
    Loss.ENDPOINT: Message(
        "the endpoint: requests fail until it is restored and the model is loaded again",
        "服务端点：在恢复并重新加载模型之前，请求会失败",
    ),
    Loss.RAY_CLUSTER: Message(
        "head and workers: actors, objects and the job history of the cluster; a restore starts an empty cluster",
        "head 与 worker：集群的 actor、对象和作业历史；恢复时启动空集群",
    ),
    Loss.RAY_JOB: Message(
        "its cluster; a restore makes a new one and runs the job from the beginning",
        "其集群；恢复时会新建集群并从头运行作业",
    ),
    Loss.WORK: Message(
        "the work since the last checkpoint: a restore starts all pods from the beginning",
        "上一个检查点之后的工作：恢复时所有 Pod 从头开始",
    ),
    Loss.PLACE_IN_QUEUE: Message(
        "as for the job itself; after a restore it enters the queue again and may wait",
        "与作业本身相同；恢复后会重新排队，可能需要等待",
    ),
    Loss.POD: Message(
        "the pod: nothing starts it again, and a restore is not possible",
        "该 Pod：不会再被启动，也无法恢复",
    ),
}
"""What is lost while an object is suspended; `make docs` puts it into docs/reclaim-kinds.md."""

UNKNOWN_KIND = Message(
    "reclaim does not know how to suspend a {kind} ({group})", "回收功能不知道如何暂停 {kind}（{group}）"
)
OWNED_BY_UNKNOWN = Message(
    "it is owned by {kind}/{name}, which would start it again", "它由 {kind}/{name} 所有，后者会重新启动它"
)
ALREADY_SUSPENDED = Message(
    "{kind}/{name} is suspended already, not by gpusteward", "{kind}/{name} 已被暂停，并非由 gpusteward 暂停"
)
BEING_DELETED = Message("{kind}/{name} is being deleted", "{kind}/{name} 正在被删除")
LOSES_VOLUMES = Message(
    "persistentVolumeClaimRetentionPolicy.whenScaled is Delete: scaling down would delete its volumes",
    "persistentVolumeClaimRetentionPolicy.whenScaled 为 Delete：缩容会删除其存储卷",
)
FINISHED = Message("{kind}/{name} is finished: there is nothing to suspend", "{kind}/{name} 已结束，没有可暂停的内容")
MANAGED_BY = Message(
    "managedBy is {manager}: another controller runs it, which may ignore suspend",
    "managedBy 为 {manager}：由其他控制器运行，可能忽略 suspend",
)
NOTEBOOK_LOCKED = Message(
    "kubeflow-resource-stopped is {value}: a lock of OpenShift AI, which is never overwritten",
    "kubeflow-resource-stopped 为 {value}：这是 OpenShift AI 的锁，绝不覆盖",
)
NOTEBOOK_STOPPED = Message(
    "the notebook is stopped already (kubeflow-resource-stopped)", "该 Notebook 已停止（kubeflow-resource-stopped）"
)
MODEL_MESH = Message(
    "deployment mode ModelMesh: its models share pods with others", "部署模式为 ModelMesh：其模型与其他服务共用 Pod"
)
USES_FOREIGN_CLUSTER = Message(
    "the RayJob uses a cluster of somebody else (clusterSelector)", "该 RayJob 使用他人的集群（clusterSelector）"
)
MULTIKUEUE = Message("it is dispatched to another cluster by MultiKueue", "它由 MultiKueue 分发到其他集群")
QUEUE_WITHOUT_WORKLOAD = Message(
    "it is in a queue of Kueue ({queue}), and the number of its Workloads is {count} instead of one",
    "它在 Kueue 队列（{queue}）中，但属于它的 Workload 有 {count} 个，而不是一个",
)
POD_IN_QUEUE = Message(
    "the pod is in a queue of Kueue ({queue}): stopping it would delete it for good",
    "该 Pod 在 Kueue 队列（{queue}）中：停止它会将其永久删除",
)
WORKLOAD_FINISHED = Message("the Workload of Kueue is finished or not active", "Kueue 的 Workload 已结束或未激活")
SCALED_OBJECT_PAUSED = Message(
    "the ScaledObject {name} of KEDA is paused already", "KEDA 的 ScaledObject {name} 已处于暂停状态"
)
SEVERAL_SCALED_OBJECTS = Message(
    "several ScaledObjects of KEDA scale it ({count})", "有 {count} 个 KEDA 的 ScaledObject 在伸缩它"
)
JUPYTERHUB_POD = Message(
    "a server of JupyterHub: only the hub may stop it (its culler, or DELETE /hub/api/users/NAME/server)",
    "JupyterHub 的服务器：只能由 Hub 停止（culler 或 DELETE /hub/api/users/NAME/server）",
)
STATIC_POD = Message("a static pod of node {node}", "节点 {node} 的静态 Pod")
CHANGED_BEFORE = Message(
    "{kind}/{name} was changed by action {action}, which is not closed: see its annotation {annotation}",
    "{kind}/{name} 已被尚未结束的操作 {action} 修改：见其注解 {annotation}",
)
POD_NOT_EVICTABLE = Message("annotation {name} forbids its eviction", "注解 {name} 禁止驱逐它")
EVICTION_NOT_CHOSEN = Message(
    "a bare pod is gone for good when it is evicted: only a policy with action evict does that",
    "裸 Pod 被驱逐后无法找回：只有 action 为 evict 的策略才会这样做",
)
EVICTION_FOR_BARE_PODS = Message(
    "the action evict is for bare pods; {kind} would start its pods again",
    "evict 只用于裸 Pod；{kind} 会重新启动其 Pod",
)
NOT_A_POOL = Message(
    "which replicas of a {kind} go first cannot be chosen: its replicas are not lowered",
    "无法选择 {kind} 的哪些副本先被删除：不降低其副本数",
)
NO_RUNNING_JOB = Message("no Job of the CronJob has pods with GPUs", "该 CronJob 没有占用 GPU 的 Job")
VOLCANO_NOT_RUNNING = Message("the phase of the job is {phase}", "作业的阶段为 {phase}")
POOL_SCALED_BY_OTHERS = Message(
    "{kind} {name} scales it: its replicas are not lowered, since they would be set back",
    "由 {kind} {name} 伸缩：不降低其副本数，否则会被改回",
)
