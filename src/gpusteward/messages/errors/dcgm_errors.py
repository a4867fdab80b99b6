"""Why a DCGM hostengine does not provide profiling values."""

from gpusteward.core.messages import Message

LIBRARY_NOT_FOUND = Message(
    "none of {names} was found. Install datacenter-gpu-manager, or mount its library into this container: a remote"
    " hostengine needs it too",
    "未找到 {names}。请安装 datacenter-gpu-manager，或将其库文件挂载到此容器：连接远程 hostengine 同样需要",
)
LIBRARY_UNUSABLE = Message("{name} is not a usable libdcgm: {reason}", "{name} 不是可用的 libdcgm：{reason}")
CALL_FAILED = Message("{reason} ({code}){advice}", "{reason}（{code}）{advice}")
UNREACHABLE = Message(
    "the DCGM hostengine {hostengine} cannot be used: {reason}", "无法使用 DCGM hostengine {hostengine}：{reason}"
)
NO_ADVICE = Message("", "")
USE_SAME_VERSION = Message(
    ". libdcgm and the hostengine must have the same major version", "。libdcgm 与 hostengine 的主版本必须一致"
)
NEEDS_ROOT = Message(
    ". Profiling needs a hostengine that runs as root or with CAP_SYS_ADMIN",
    "。性能分析要求 hostengine 以 root 运行，或具有 CAP_SYS_ADMIN 权限",
)
OTHER_PROFILER = Message(
    ". One process of a node can profile, and another one probably does: dcgm-exporter, a second hostengine, Nsight or"
    " CUPTI. Remove dcgm-exporter or the DCGM_FI_PROF_* from its fields, or let both use one hostengine (-r of"
    " dcgm-exporter, --dcgm-hostengine here); `dcgmi profile --pause` makes room for Nsight",
    "。每个节点只有一个进程能做性能分析，很可能已被其他进程占用：dcgm-exporter、另一个 hostengine、Nsight 或 CUPTI。"
    "请移除 dcgm-exporter，或从其字段列表中去掉 DCGM_FI_PROF_*，或让两者共用一个 hostengine（dcgm-exporter 的 -r，"
    "这里的 --dcgm-hostengine）；要使用 Nsight，请先执行 `dcgmi profile --pause`",
)
NOT_RESPONDING = Message("the DCGM hostengine {hostengine} does not respond", "DCGM hostengine {hostengine} 没有响应")
READ_FAILED = Message(
    "reading from the DCGM hostengine failed unexpectedly; see the log", "读取 DCGM hostengine 时出现意外错误；详见日志"
)
GPU_UNKNOWN = Message("the DCGM hostengine does not know this GPU", "DCGM hostengine 不认识该 GPU")
INSTANCE_UNKNOWN = Message("the DCGM hostengine does not know this MIG instance", "DCGM hostengine 不认识该 MIG 实例")
