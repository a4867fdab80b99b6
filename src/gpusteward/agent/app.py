"""Creates all components of the agent, runs it and stops it."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward import __version__
from gpusteward.agent.collection import Collection, CollectionThread, Dialect, DialectSet
from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions, parse_devices
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.dialects.pod_metrics import Pid2PodDialect, VgpuMonitorDialect
from gpusteward.agent.endpoints import AgentEndpoints
from gpusteward.agent.field_list import (
    ReloadedFields,
    default_fields,
    warn_of_unserved,
    watch_field_config_map,
    watch_field_file,
)
from gpusteward.agent.host_use import HostUseReader
from gpusteward.agent.hpc_jobs import HpcJobs
from gpusteward.agent.http.server import serve
from gpusteward.agent.kubernetes.kubelet import KubeletClient
from gpusteward.agent.kubernetes.pod_watch import PodWatch
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.agent.node_source import NodeProviders, NodeSource, SimulatedSource, SnapshotSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.processes import ProcessTable
from gpusteward.agent.settings.table import AgentSettings
from gpusteward.agent.shares.ratio_file import RatioFile
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import LabelCache
from gpusteward.http_server.web_config import WebConfig, WebConfigFile
from gpusteward.kubernetes.api import SERVICE_ACCOUNT, ApiServer
from gpusteward.logs import Log
from gpusteward.process_memory import limit_malloc_arenas

if TYPE_CHECKING:
    from gpusteward.agent.dcgm.client import Dcgm

log = Log(__name__)

STOCK_FIELD_FILES = (
    Path("/etc/dcgm-exporter/default-counters.csv"),
    Path("/etc/dcgm-exporter/dcp-metrics-included.csv"),
)
"""Files of dcgm-exporter's image; arguments that name them work here although the files do not exist."""

STOP_SECONDS = 4.0
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
SIGNALS = STOP_SIGNALS | {signal.SIGUSR1, signal.SIGHUP}


class Agent:
    """The running agent: a collection thread and an HTTP server."""

    def __init__(self, settings: AgentSettings) -> None:
        """Raises ConfigurationError for invalid settings."""
        api = _find_api(settings)
        labels = LabelCache()
        page = MetricsPage(node=settings.node_name, interval_seconds=settings.interval_seconds, clock=time.monotonic)
        dialect_set = build_dialects(settings, api, labels)
        self._source = build_source(settings, api)
        collection = Collection(self._source, dialect_set, page, interval_seconds=settings.interval_seconds)
        self.thread = CollectionThread(
            collection, interval_seconds=settings.interval_seconds, release_seconds=settings.release_seconds
        )
        endpoints = AgentEndpoints(collection, page, self.thread, requires_gpus=settings.health_require_gpus)
        web = WebConfigFile(settings.web_config_file).current if settings.web_config_file else WebConfig
        self.server = serve(
            endpoints,
            settings.address,
            web=web,
            max_concurrent_scrapes=settings.max_concurrent_scrapes,
            read_seconds=settings.web_read_timeout_seconds,
            write_seconds=settings.web_write_timeout_seconds,
            expose_snapshot=settings.expose_snapshot,
        )
        self.thread.start()

    def stop(self) -> None:
        """Stop listening, finish the current cycle, release the driver."""
        self.server.close()
        self.thread.stop(timeout_seconds=STOP_SECONDS)
        if not self.thread.is_alive():
            self._source.close()


def run_agent(settings: AgentSettings) -> int:
    """Run until SIGTERM or SIGINT; SIGUSR1 releases NVML for a while, SIGHUP checks for changed files now.

    Raises ConfigurationError for invalid settings, SourceError when a source required at the start is missing.
    """
    limit_malloc_arenas()
    # Blocked in all threads and awaited in this one: Python runs signal handlers only between two bytecodes of the main
    # thread, so a signal that arrives just before it waits would be handled only with the next signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        agent = Agent(settings)
        url = agent.server.url
        log.info("agent_started", version=__version__, node=settings.node_name, source=settings.source, url=url)
        if settings.source == "simulated":
            print(f"{url}/metrics shows simulated GPUs; press Ctrl-C to stop", flush=True)
        while (received := signal.sigwait(SIGNALS)) not in STOP_SIGNALS:
            if received == signal.SIGUSR1:
                agent.thread.request_release()
            else:
                agent.thread.request_cycle()
        agent.stop()
        log.info("agent_stopped")
        return 0
    finally:
        while signal.sigtimedwait(STOP_SIGNALS, 0):  # sent again while it was stopping
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # programs started later would inherit it


def build_source(settings: AgentSettings, api: ApiServer | None) -> SnapshotSource:
    """The source of snapshots: this node, or a simulated one."""
    if settings.source == "simulated":
        return SimulatedSource(settings.node_name, loads=settings.simulate_loads)
    jobs = HpcJobs(settings.hpc_job_mapping_dir) if settings.hpc_job_mapping_dir else None
    if settings.holders == "processes":
        alone = NodeProviders(
            ProcessTable(settings.proc), dcgm=_find_dcgm(settings), jobs=jobs, holders_are_processes=True
        )
        return NodeSource(settings.node_name, Nvml(settings.node_name), alone)
    # Regular expressions of the pod labels to keep: none by default; if enabled, all or those of the allowlist.
    patterns = [each.pattern for each in settings.kubernetes_pod_label_allowlist] or [""]
    kept = patterns if settings.kubernetes_enable_pod_labels else ()
    providers = NodeProviders(
        proc=ProcessTable(settings.proc),
        kubelet=_find_kubelet(settings),
        pods=PodWatch(api, settings.node_name, label_patterns=kept) if api else None,
        ratio=RatioFile(settings.ratio_file) if settings.ratio_file else None,
        dcgm=_find_dcgm(settings),
        jobs=jobs,
        host_use=HostUseReader(settings.cgroup, settings.proc) if settings.cgroup else None,
    )
    if providers.pods is not None:
        providers.pods.start()
    return NodeSource(settings.node_name, Nvml(settings.node_name), providers)


def build_dialects(settings: AgentSettings, api: ApiServer | None, labels: LabelCache) -> DialectSet:
    """The enabled dialects, and the field list of the dcgm dialect if it can change."""
    fields = _find_fields(settings, api)
    chosen = fields.fields if fields else settings.fields or default_fields(settings.dcgm_names)
    dcgm = DcgmDialect(_dcgm_options(settings), chosen, labels=labels)
    native = NativeDialect(
        labels,
        pod_labels=settings.kubernetes_enable_pod_labels,
        all_series=settings.all_series,
        beside=dcgm if dcgm.name in settings.dialects else None,
    )
    known: Sequence[Dialect] = (dcgm, VgpuMonitorDialect(labels), Pid2PodDialect(labels), native)
    dialects = [dialect for dialect in known if dialect.name in settings.dialects]
    if fields is None:
        return DialectSet(dialects, labels)
    return DialectSet(
        dialects,
        labels,
        refresh=lambda now: dcgm.use(fields.poll(now)),
        count_reloads=lambda: {"ok": fields.reloads_ok, "refused": fields.reloads_refused},
    )


def _find_api(settings: AgentSettings) -> ApiServer | None:
    """The API server of the settings, else that of the cluster this runs in, else None."""
    if settings.kubernetes is False or settings.source == "simulated":
        return None
    if settings.kubernetes_api:
        return ApiServer(
            settings.kubernetes_api, token_path=_service_account_file("token"), ca_path=_service_account_file("ca.crt")
        )
    if "KUBERNETES_SERVICE_HOST" in os.environ and _service_account_file("token"):
        return ApiServer.from_cluster(os.environ)
    return None


def _service_account_file(name: str) -> Path | None:
    path = SERVICE_ACCOUNT / name
    return path if path.is_file() else None


def _find_kubelet(settings: AgentSettings) -> KubeletClient | None:
    """The kubelet's socket, unless Kubernetes is disabled; by default only if its directory exists."""
    socket = settings.pod_resources_kubelet_socket
    if settings.kubernetes is False or (settings.kubernetes is None and not socket.parent.is_dir()):
        return None
    return KubeletClient(socket, resource_names=settings.nvidia_resource_names)


def _find_dcgm(settings: AgentSettings) -> "Dcgm | None":
    hostengine, interval = settings.dcgm_hostengine, settings.interval_seconds
    if hostengine is None:
        return None
    from gpusteward.agent.dcgm.client import Dcgm, DcgmReader

    return Dcgm(DcgmReader(hostengine, interval_seconds=interval), interval_seconds=interval)


def _find_fields(settings: AgentSettings, api: ApiServer | None) -> ReloadedFields | None:
    """The ConfigMap takes precedence over the file, as in dcgm-exporter. None: a list that cannot change."""
    if settings.fields is not None:
        warn_of_unserved(settings.fields, str(settings.config_file))
        return None
    if settings.configmap_data is not None:
        if api is None:
            raise ConfigurationError(
                "--configmap-data needs the API server: run in the cluster, set --kubernetes-api, or use --collectors"
            )
        namespace, name = settings.configmap_data
        return watch_field_config_map(f"{namespace}:{name}", lambda: api.read_config_map(namespace, name))
    if settings.collectors in STOCK_FIELD_FILES and not settings.collectors.exists():
        log.info("fields_built_in", path=settings.collectors, reason="file of dcgm-exporter's image not found")
        return None
    return watch_field_file(settings.collectors) if settings.collectors else None


def _dcgm_options(settings: AgentSettings) -> DcgmOptions:
    return DcgmOptions(
        names=settings.dcgm_names,
        hostname_label=settings.hostname_label,
        hostname="" if settings.no_hostname else settings.node_name,
        device_per_pod=settings.kubernetes_virtual_gpus,
        old_labels=settings.use_old_namespace,
        pod_labels=settings.kubernetes_enable_pod_labels,
        pod_uid=settings.kubernetes_enable_pod_uid,
        replace_blanks=settings.replace_blanks_in_model_name,
        xid_error_labels=settings.xid_error_labels,
        hpc_jobs=settings.hpc_job_mapping_dir is not None,
        xid_window_seconds=settings.xid_count_window_ms / 1000,
        clock_events_window_seconds=settings.clock_events_count_window_ms / 1000,
        devices=parse_devices(settings.devices),
    )
