"""Every setting of the agent: one table, from which flags, environment, `--help` and the reference page are made.

A field of `AgentSettings` is a row; foreign_flags.py has the rows without a field.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from gpusteward.agent.field_list import FieldList
from gpusteward.agent.settings.config_file import read_config_file
from gpusteward.agent.settings.flags import FlagGroup, Ignored, Setting, read_given, row_of, setting
from gpusteward.agent.settings.foreign_flags import FOREIGN_FLAGS
from gpusteward.agent.settings.values import (
    ConfigMapName,
    Hostengine,
    number_between,
    one_of,
    parse_configmap,
    parse_hostengine,
    parse_lines,
    parse_list,
    parse_path,
    parse_patterns,
    parse_url,
    some_of,
    whole_between,
)
from gpusteward.core.settings import ListenAddress, parse_address, parse_duration
from gpusteward.logs import LEVELS

DIALECTS = ("dcgm", "vgpu-monitor", "pid2pod", "native")
ALIKE = FlagGroup.COMPATIBLE  # works here as it does in dcgm-exporter


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """All settings of the agent."""

    source: Literal["nvml", "simulated"] = setting(
        "nvml",
        "--source",
        parse=one_of("nvml", "simulated"),
        about="Source of the GPUs: this machine (nvml), or simulated ones.",
    )
    address: ListenAddress = setting(
        # All interfaces, as in dcgm-exporter: whoever replaces its image need not change flags.
        ListenAddress("", 9400),
        "--address -a",
        environment="DCGM_EXPORTER_LISTEN",
        parse=parse_address,
        about="Listen address: PORT, :PORT, HOST:PORT or [IPV6]:PORT.",
    )
    interval_seconds: float = setting(
        5.0,
        "--interval",
        parse=number_between(0.5, 600, unit="seconds"),
        about="Seconds between two readings of the GPUs, 0.5 to 600.",
    )
    node_name: str = setting(
        os.uname().nodename,
        "--node-name",
        environment="NODE_NAME",
        parse=str.strip,
        default_text="the name of this host",
        about="The name of this node in Kubernetes.",
    )
    proc: Path = setting(
        Path("/proc"),
        "--proc",
        parse=Path,
        about="Where the host's /proc is mounted (needs hostPID).",
    )
    cgroup: Path | None = setting(
        Path("/sys/fs/cgroup"),
        "--cgroup",
        parse=parse_path,
        about="Where the host's /sys/fs/cgroup is mounted: CPU, disk and network of pods with GPUs. Empty: not read.",
    )
    dialects: tuple[str, ...] = setting(
        DIALECTS,
        "--dialects",
        parse=some_of(*DIALECTS),
        separator=",",
        about="Metric dialects that are exported, a comma list.",
    )
    dcgm_names: Literal["classic", "v4.9", "both"] = setting(
        "classic",
        "--dcgm-names",
        parse=one_of("classic", "v4.9", "both"),
        about="Names and units of the dcgm dialect: classic, as renamed in dcgm-exporter 4.9, or both.",
    )
    dcgm_hostengine: Hostengine | None = setting(
        None,
        "--dcgm-hostengine",
        parse=parse_hostengine,
        default_text="none",
        about="DCGM hostengine for profiling fields of GPUs before Hopper: HOST:5555, unix:PATH, embedded, auto.",
    )
    hostname_label: Literal["Hostname", "hostname", "both"] = setting(
        "Hostname",
        "--hostname-label",
        parse=one_of("Hostname", "hostname", "both"),
        about="Spelling of the host label in the dcgm dialect.",
    )
    xid_error_labels: bool = setting(
        False,
        "--xid-error-labels",
        about="err_code and err_msg on DCGM_FI_DEV_XID_ERRORS, as in dcgm-exporter; every XID starts a new series.",
    )
    all_series: bool = setting(
        False,
        "--all-series",
        about="Native series that nothing here reads or DCGM_FI_* repeat, and the utilization of each process.",
    )
    holders: Literal["claims", "processes"] = setting(
        "claims",
        "--holders",
        parse=one_of("claims", "processes"),
        about="Holders of a GPU: the pods that claim it, or, without Kubernetes, the users and programs on it.",
    )
    ratio_file: Path | None = setting(
        None,
        "--ratio-file",
        parse=Path,
        about="A file with the number of pods that share a GPU, such as 2 (gpu_allocation.txt of k8s-vgpu-monitor).",
    )
    kubernetes_api: str | None = setting(
        None,
        "--kubernetes-api",
        parse=parse_url,
        default_text="the cluster this pod runs in",
        about="The API server to watch pods on, such as a kubectl proxy.",
    )
    release_seconds: float = setting(
        60.0,
        "--release-seconds",
        parse=number_between(1, 86_400, unit="seconds"),
        about="How long NVML stays released after SIGUSR1, for a GPU reset or a driver reload.",
    )
    expose_snapshot: bool = setting(
        False,
        "--expose-snapshot",
        about="Serve /snapshot to other machines too, even without basic authentication.",
    )
    simulate_loads: tuple[str, ...] = setting(
        (),
        "--simulate-load",
        parse=parse_lines,
        separator=";",
        about="A load to put on simulated GPUs; may be given several times, or separated by semicolons.",
    )
    log_level: str = setting("info", "--log-level", parse=one_of(*LEVELS), about="Lowest level that is logged.")
    log_format: Literal["text", "json"] = setting(
        "text",
        "--log-format",
        parse=one_of("text", "json"),
        group=ALIKE,
        about="Log lines as text or as JSON objects.",
    )
    debug: bool = setting(False, "--debug", group=FlagGroup.ALIAS, about="The same as --log-level debug.")
    config_file: Path | None = setting(
        None,
        "--config-file",
        parse=parse_path,
        group=ALIKE,
        about="dcgm-exporter's YAML file: fields, interval, concurrent scrapes. Flags and variables win.",
    )
    collectors: Path | None = setting(
        None,
        "--collectors -f",
        parse=parse_path,
        default_text="dcgm-exporter's default fields",
        group=ALIKE,
        about="A CSV file that chooses the fields of the dcgm dialect; read again when it changes.",
    )
    configmap_data: ConfigMapName | None = setting(
        None,
        "--configmap-data -m",
        parse=parse_configmap,
        default_text="none",
        group=ALIKE,
        about="NAMESPACE:NAME of a ConfigMap whose key `metrics` holds that CSV.",
    )
    devices: str = setting(
        "f",
        "--devices -d",
        environment="DCGM_EXPORTER_DEVICES_STR",
        parse=str.strip,
        group=ALIKE,
        about="Which GPUs: f (whole GPUs, or their MIG instances), g[:0,1,3-5], i[:0,2], or both, as in g:0,1+i:0.",
    )
    kubernetes: bool | None = setting(
        None,
        "--kubernetes -k",
        default_text="where there is a kubelet socket or a service account",
        group=ALIKE,
        about="Find out which pod holds which GPU.",
    )
    pod_resources_kubelet_socket: Path = setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "--pod-resources-kubelet-socket",
        environment="DCGM_POD_RESOURCES_KUBELET_SOCKET",
        parse=Path,
        group=ALIKE,
        about="The kubelet's pod-resources socket.",
    )
    nvidia_resource_names: tuple[str, ...] = setting(
        (),
        "--nvidia-resource-names",
        environment="NVIDIA_RESOURCE_NAMES",
        parse=parse_list,
        separator=",",
        group=ALIKE,
        about="More names of GPU resources of the device plugin, a comma list.",
    )
    kubernetes_enable_pod_labels: bool = setting(
        False,
        "--kubernetes-enable-pod-labels",
        group=ALIKE,
        about="Pod labels as metric labels.",
    )
    kubernetes_pod_label_allowlist: tuple[re.Pattern[str], ...] = setting(
        (),
        "--kubernetes-pod-label-allowlist-regex",
        parse=parse_patterns,
        separator=",",
        default_text="all",
        group=ALIKE,
        about="Which pod labels: a comma list of regular expressions, each found anywhere in the key.",
    )
    kubernetes_enable_pod_uid: bool = setting(
        False,
        "--kubernetes-enable-pod-uid",
        group=ALIKE,
        about="A pod_uid label in the dcgm dialect.",
    )
    kubernetes_virtual_gpus: bool = setting(
        False,
        "--kubernetes-virtual-gpus",
        environment="KUBERNETES_VIRTUAL_GPUS",
        group=ALIKE,
        about="In the dcgm dialect, one copy of a shared GPU's samples for each of its pods.",
    )
    no_hostname: bool = setting(False, "--no-hostname -n", group=ALIKE, about="No host label in the dcgm dialect.")
    use_old_namespace: bool = setting(
        False,
        "--use-old-namespace -o",
        group=ALIKE,
        about="Labels of dcgm-exporter 1.x: pod_name, pod_namespace, container_name, uuid.",
    )
    replace_blanks_in_model_name: bool = setting(
        False,
        "--replace-blanks-in-model-name --rbmn",
        group=ALIKE,
        about="Dashes for blanks in modelName.",
    )
    xid_count_window_ms: int = setting(
        300_000,
        "--xid-count-window-size -x",
        parse=whole_between(1, 86_400_000),
        group=ALIKE,
        about="The window of DCGM_EXP_XID_ERRORS_COUNT in milliseconds.",
    )
    clock_events_count_window_ms: int = setting(
        300_000,
        "--clock-events-count-window-size",
        parse=whole_between(1, 86_400_000),
        group=ALIKE,
        about="The window of DCGM_EXP_CLOCK_EVENTS_COUNT in milliseconds.",
    )
    hpc_job_mapping_dir: Path | None = setting(
        None,
        "--hpc-job-mapping-dir",
        environment="DCGM_HPC_JOB_MAPPING_DIR",
        parse=parse_path,
        group=ALIKE,
        about="A directory with the jobs on each GPU (files 0, 1, 0.7 of a workload manager), for the label hpc_job.",
    )
    web_config_file: Path | None = setting(
        None,
        "--web-config-file",
        parse=parse_path,
        group=ALIKE,
        about="TLS and basic authentication, in the format of the Prometheus exporter-toolkit.",
    )
    health_require_gpus: bool = setting(
        False,
        "--health-require-gpus",
        group=ALIKE,
        about="/health and /livez fail while there is no GPU, so that a probe starts the container again.",
    )
    max_concurrent_scrapes: int = setting(
        16,
        "--max-concurrent-scrapes",
        parse=whole_between(1, 1000),
        group=ALIKE,
        about="Concurrent scrapes; further ones get 503.",
    )
    web_read_timeout_seconds: float = setting(
        10.0,
        "--web-read-timeout",
        parse=parse_duration,
        default_text="10s",
        group=ALIKE,
        about="How long a client may take to send its request.",
    )
    web_write_timeout_seconds: float = setting(
        30.0,
        "--web-write-timeout",
        parse=parse_duration,
        default_text="30s",
        group=ALIKE,
        about="How long a client may take to read the response.",
    )
    fields: FieldList | None = None  # of the configuration file
    ignored: tuple[Ignored, ...] = ()


SETTINGS: tuple[Setting, ...] = (
    *(row_of(each) for each in fields(AgentSettings) if each.metadata),
    *FOREIGN_FLAGS,
)


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> AgentSettings:
    """The settings from these arguments and this environment.

    Raises ConfigurationError for an unknown flag or a value that cannot be used; exits after `--help` and `--version`.
    """
    given = read_given(SETTINGS, arguments, environ)
    if not given.values.get("config_file"):
        return AgentSettings(**given.values, ignored=given.ignored)
    file = read_config_file(given.values["config_file"])
    values = dict(file.values)
    if given.values.get("collectors") or given.values.get("configmap_data"):
        values.pop("fields", None)
    return AgentSettings(**(values | given.values), ignored=given.ignored + file.ignored)
