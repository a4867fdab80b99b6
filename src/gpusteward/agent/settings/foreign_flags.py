"""dcgm-exporter's flags that are no settings here: another spelling, always on, or without meaning."""

from gpusteward.agent.settings.flags import FlagGroup, Setting
from gpusteward.agent.settings.values import one_of, parse_collect_interval, parse_hostengine, parse_switch


def _accept(
    flags: str, environment: str, about: str, *, switch: bool = False, group: FlagGroup = FlagGroup.IGNORED
) -> Setting:
    """A row that sets nothing: its effect is always there (compatible), or cannot be had (ignored)."""
    return Setting(
        name="",
        flags=tuple(flags.split()),
        environment=tuple(environment.split()),
        parse=str if group is FlagGroup.IGNORED else parse_switch,
        about=about,
        group=group,
        switch=switch,
    )


NO_SAMPLES = "NVML is read in every cycle; no samples are kept."
ALWAYS_SEEN = "GPUs that come and go are always seen."
SEEN_IN_CYCLES = "GPUs that come and go are seen once an interval."
_DCGM_LOG = "A hostengine writes its log itself."
_NO_DUMPS = "There are no dumps; /snapshot shows what was seen."

FOREIGN_FLAGS: tuple[Setting, ...] = (
    Setting(
        name="interval_seconds",
        flags=("--collect-interval", "-c"),
        environment=("DCGM_EXPORTER_INTERVAL",),
        parse=parse_collect_interval,
        about="The same as --interval, in milliseconds.",
        group=FlagGroup.COMPATIBLE,
    ),
    Setting(
        name="dcgm_hostengine",
        flags=("--remote-hostengine-info", "-r"),
        environment=("DCGM_REMOTE_HOSTENGINE_INFO",),
        parse=parse_hostengine,
        about="The same as --dcgm-hostengine.",
        group=FlagGroup.COMPATIBLE,
    ),
    Setting(
        name="",
        flags=("--kubernetes-gpu-id-type",),
        environment=("DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE",),
        parse=one_of("uid", "device-name"),
        about="uid or device-name: both are always understood.",
        group=FlagGroup.COMPATIBLE,
    ),
    _accept(
        "--kubernetes-enable-dra",
        "KUBERNETES_ENABLE_DRA",
        "Dynamic resource claims are always read.",
        switch=True,
        group=FlagGroup.COMPATIBLE,
    ),
    _accept(
        "--enable-exporter-metrics",
        "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS",
        "Metrics about the agent itself are always served.",
        switch=True,
        group=FlagGroup.COMPATIBLE,
    ),
    _accept("--watch-max-keep-age", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", NO_SAMPLES),
    _accept("--watch-max-keep-samples", "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", NO_SAMPLES),
    _accept("--cpu-devices -p", "DCGM_EXPORTER_CPU_DEVICES_STR", "CPUs are not read."),
    _accept("--switch-devices -s", "DCGM_EXPORTER_OTHER_DEVICES_STR", "NVSwitches and their links are not read."),
    _accept(
        "--fake-gpus", "DCGM_EXPORTER_USE_FAKE_GPUS", "Only --source simulated has GPUs that are not real.", switch=True
    ),
    _accept("--web-systemd-socket", "DCGM_EXPORTER_SYSTEMD_SOCKET", "Sockets are not inherited.", switch=True),
    _accept("--enable-dcgm-log", "DCGM_EXPORTER_ENABLE_DCGM_LOG", _DCGM_LOG, switch=True),
    _accept("--dcgm-log-level", "DCGM_EXPORTER_DCGM_LOG_LEVEL", _DCGM_LOG),
    _accept(
        "--container-labels",
        "DCGM_EXPORTER_CONTAINER_LABELS",
        "Pods come from the kubelet and from cgroups, not from a container runtime.",
        switch=True,
    ),
    _accept(
        "--container-runtime-socket",
        "DCGM_CONTAINER_RUNTIME_SOCKET",
        "Pods come from the kubelet and from cgroups, not from a container runtime.",
    ),
    _accept("--dump-enabled", "DCGM_EXPORTER_DUMP_ENABLED", _NO_DUMPS, switch=True),
    _accept("--dump-directory", "DCGM_EXPORTER_DUMP_DIRECTORY", _NO_DUMPS),
    _accept("--dump-retention", "DCGM_EXPORTER_DUMP_RETENTION", _NO_DUMPS),
    _accept("--dump-compression", "DCGM_EXPORTER_DUMP_COMPRESSION", _NO_DUMPS, switch=True),
    _accept(
        "--disable-startup-validate",
        "DISABLE_STARTUP_VALIDATE",
        "The agent starts without a driver and says what is missing.",
        switch=True,
    ),
    _accept(
        "--enable-gpu-bind-unbind-watch",
        "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH",
        ALWAYS_SEEN,
        switch=True,
    ),
    _accept(
        "--gpu-bind-unbind-poll-interval",
        "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
        SEEN_IN_CYCLES,
    ),
    _accept("--enable-pprof", "DCGM_EXPORTER_ENABLE_PPROF", "There is no profile to serve.", switch=True),
)
