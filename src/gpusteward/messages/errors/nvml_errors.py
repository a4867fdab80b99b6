"""Why NVML cannot be used."""

from gpusteward.core.messages import Message

UNUSABLE = Message("NVML cannot be used: {reason}{advice}", "无法使用 NVML：{reason}{advice}")
LIBRARY_NOT_FOUND = Message(
    "libnvidia-ml.so.1 was not found. The NVIDIA driver is not installed, or not given to this container: run it with"
    " the nvidia runtime class and NVIDIA_DRIVER_CAPABILITIES=utility",
    "未找到 libnvidia-ml.so.1。NVIDIA 驱动未安装，或未提供给此容器：请使用 nvidia runtime class 并设置"
    " NVIDIA_DRIVER_CAPABILITIES=utility",
)
SIMULATE_ADVICE = Message(", or `--source simulated` without a GPU", "；没有 GPU 时可用 `--source simulated`")
"""Only the agent has this flag."""
NO_ADVICE = Message("", "")
DRIVER_NOT_LOADED = Message(
    "the NVIDIA kernel driver is not loaded. Check `nvidia-smi` on the node; the agent recovers by itself when the"
    " driver is loaded",
    "NVIDIA 内核驱动未加载。请在节点上检查 `nvidia-smi`；驱动加载后 agent 会自动恢复",
)
NO_PERMISSION = Message(
    "no permission to open /dev/nvidiactl. The container needs the nvidia devices: run it with the nvidia runtime"
    " class and NVIDIA_VISIBLE_DEVICES=all",
    "没有打开 /dev/nvidiactl 的权限。容器需要 nvidia 设备：请使用 nvidia runtime class 并设置"
    " NVIDIA_VISIBLE_DEVICES=all",
)
VERSION_MISMATCH = Message(
    "the driver library and the kernel module have different versions, as after an upgrade. Restart the agent; if"
    " that does not help, reload the kernel module or reboot the node",
    "驱动库与内核模块的版本不一致，常见于升级之后。请重启 agent；如仍无效，请重新加载内核模块或重启节点",
)
DRIVER_GONE = Message(
    "the NVIDIA driver is gone ({reason}); the next cycle opens it again",
    "NVIDIA 驱动已卸载（{reason}）；下个周期会重新打开",
)
