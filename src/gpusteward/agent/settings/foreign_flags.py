"""dcgm-exporter's flags that are no settings here: another spelling, always on, or without meaning."""

from gpusteward.agent.settings.flags import FlagGroup, Setting, find_dcgm_variable
from gpusteward.agent.settings.values import one_of, parse_collect_interval, parse_hostengine, parse_switch


def _accept(
    flags: str, about: str, *, environment: str = "", switch: bool = False, group: FlagGroup = FlagGroup.IGNORED
) -> Setting:
    """A row that sets nothing: its effect is always there (alias), or cannot be had (ignored)."""
    names = tuple(flags.split())
    return Setting(
        name="",
        flags=names,
        environment=(environment or find_dcgm_variable(names[0]),),
        parse=str if group is FlagGroup.IGNORED else parse_switch,
        about=about,
        group=group,
        switch=switch,
    )


NO_SAMPLES = "NVML is read in every cycle; no samples are kept."
ALWAYS_SEEN = "GPUs that come and go are always seen."
SEEN_IN_CYCLES = "GPUs that come and go are seen once an interval."
_DCGM_LOG = "A hostengine writes its log itself."
_NO_RUNTIME = "Pods come from the kubelet and from cgroups, not from a container runtime."
_NO_DUMPS = "There are no dumps; /snapshot shows what was seen."

FOREIGN_FLAGS: tuple[Setting, ...] = (
    Setting(
        name="interval_seconds",
        flags=("--collect-interval", "-c"),
        environment=("DCGM_EXPORTER_INTERVAL",),
        parse=parse_collect_interval,
        about="The same as --interval, in milliseconds.",
        group=FlagGroup.ALIAS,
    ),
    Setting(
        name="dcgm_hostengine",
        flags=("--remote-hostengine-info", "-r"),
        environment=("DCGM_REMOTE_HOSTENGINE_INFO",),
        parse=parse_hostengine,
        about="The same as --dcgm-hostengine.",
        group=FlagGroup.ALIAS,
    ),
    Setting(
        name="",
        flags=("--kubernetes-gpu-id-type",),
        environment=("DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE",),
        parse=one_of("uid", "device-name"),
        about="uid or device-name: both are always understood.",
        group=FlagGroup.ALIAS,
    ),
    _accept(
        "--kubernetes-enable-dra",
        "Dynamic resource claims are always read.",
        environment="KUBERNETES_ENABLE_DRA",
        switch=True,
        group=FlagGroup.ALIAS,
    ),
    _accept(
        "--enable-exporter-metrics",
        "Metrics about the agent itself are always served.",
        switch=True,
        group=FlagGroup.ALIAS,
    ),
    _accept("--watch-max-keep-age", NO_SAMPLES),
    _accept("--watch-max-keep-samples", NO_SAMPLES),
    _accept("--cpu-devices -p", "CPUs are not read.", environment="DCGM_EXPORTER_CPU_DEVICES_STR"),
    _accept(
        "--switch-devices -s", "NVSwitches and their links are not read.", environment="DCGM_EXPORTER_OTHER_DEVICES_STR"
    ),
    _accept(
        "--fake-gpus",
        "Only --source simulated has GPUs that are not real.",
        environment="DCGM_EXPORTER_USE_FAKE_GPUS",
        switch=True,
    ),
    _accept(
        "--web-systemd-socket", "Sockets are not inherited.", environment="DCGM_EXPORTER_SYSTEMD_SOCKET", switch=True
    ),
    _accept("--enable-dcgm-log", _DCGM_LOG, switch=True),
    _accept("--dcgm-log-level", _DCGM_LOG),
    _accept("--container-labels", _NO_RUNTIME, switch=True),
    _accept("--container-runtime-socket", _NO_RUNTIME, environment="DCGM_CONTAINER_RUNTIME_SOCKET"),
    _accept("--dump-enabled", _NO_DUMPS, switch=True),
    _accept("--dump-directory", _NO_DUMPS),
    _accept("--dump-retention", _NO_DUMPS),
    _accept("--dump-compression", _NO_DUMPS, switch=True),
    _accept(
        "--disable-startup-validate",
        "The agent starts without a driver and says what is missing.",
        environment="DISABLE_STARTUP_VALIDATE",
        switch=True,
    ),
    _accept("--enable-gpu-bind-unbind-watch", ALWAYS_SEEN, switch=True),
    _accept("--gpu-bind-unbind-poll-interval", SEEN_IN_CYCLES),
    _accept("--enable-pprof", "There is no profile to serve.", switch=True),
)
