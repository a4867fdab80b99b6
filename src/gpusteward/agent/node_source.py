"""Snapshots of a real node: reads NVML, /proc, the kubelet and the pods, and joins the results."""

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gpusteward.agent.attribution import AttributionInput, assign_process_holders, attribute_processes, join_pairs
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.holders import HolderUids, InitContainerGpus
from gpusteward.agent.host_use import HostUseReader
from gpusteward.agent.hpc_jobs import HpcJobs, JobsByGpu
from gpusteward.agent.kubernetes.kubelet import ClaimCache, KubeletClient, accept_names
from gpusteward.agent.kubernetes.pod_watch import PodWatch
from gpusteward.agent.kubernetes.pods import Pod
from gpusteward.agent.nvml import HOST_PID_ADVICE, Nvml, NvmlReading
from gpusteward.agent.nvml.identity import identify_lost_gpus
from gpusteward.agent.processes import ProcessIdentity, ProcessTable
from gpusteward.agent.shares.ratio_file import RatioFile
from gpusteward.agent.shares.resolver import Resolution, Resolver
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, GpuReading
from gpusteward.core.node.snapshots import Failure, PodHostUse, Snapshot

if TYPE_CHECKING:
    from gpusteward.agent.dcgm.client import Dcgm  # imported only where a hostengine is configured

FIRST_PODS_TIMEOUT_SECONDS = 2.0
"""How long the first cycle waits for the API server's list of pods; later cycles never wait."""

_NO_PROCESS_IN_PROC = (
    f"no process of the GPUs is found in /proc: {HOST_PID_ADVICE}mount the host's /proc and set --proc"
)
_NO_RUNNING_POD_LISTED = (
    "the kubelet lists none of the pods that run on this node, as after a restart until it has read them from the API "
    "server: the last known allocations are kept for a few minutes"
)
_CONTAINER_ADVICE = "run it with --pid=host if it is in a container, or "
_NO_IDENTITIES: Mapping[int, ProcessIdentity] = {}
_NO_PODS: Mapping[str, Pod] = {}
_NO_JOBS: JobsByGpu = {}


class SnapshotSource(Protocol):
    """Reads snapshots."""

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """Read the node now; failures are recorded in the runner."""

    def release(self, *, seconds: float) -> None:
        """Release the driver for that long, so that it can be unloaded or a GPU can be reset."""

    def close(self) -> None:
        """Stop permanently."""


@dataclass(frozen=True, slots=True)
class NodeProviders:
    """Data sources of this node besides NVML. None: not available, or disabled."""

    proc: ProcessTable
    kubelet: KubeletClient | None = None
    pods: PodWatch | None = None
    ratio: RatioFile | None = None
    dcgm: "Dcgm | None" = None
    jobs: HpcJobs | None = None
    host_use: HostUseReader | None = None
    holders_are_processes: bool = False  # no Kubernetes: a GPU is attributed to the processes running on it


class NodeSource:
    """Reads NVML, /proc, the kubelet and the pods of one node."""

    def __init__(self, name: str, nvml: Nvml, providers: NodeProviders) -> None:
        self._name = name
        self._nvml = nvml
        self._providers = providers
        self._claims = ClaimCache(name, has_pod_watch=providers.pods is not None)
        self._release_seconds = 0.0
        self._released_at: float | None = 0.0  # None: released since the last read, time not yet known
        self._resolver = Resolver()
        self._holder_uids = HolderUids()
        self._init_gpus = InitContainerGpus(providers.kubelet.accepts if providers.kubelet else accept_names(()))
        self._is_first = True

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """Read all sources and join the results."""
        reading = runner.run("nvml", lambda: self._read_nvml(wanted, now), NvmlReading())
        for failure in reading.failures:
            runner.fail(self._adapt_advice(failure))
        readings = self._add_profiling(tuple(reading.readings), wanted, now=now, runner=runner)
        identities = self._identify(reading.processes, runner)
        pods = self._read_pods(runner)
        claims_known = self._read_claims(pods, now=now, runner=runner)
        device_ids = [claim.device_id for claim in self._claims.claims]
        readings = identify_lost_gpus(readings, proc=self._providers.proc.root, device_ids=device_ids)
        self._init_gpus.forget_ended(pods)

        def join() -> AttributionInput:
            """What is known about processes, pods and allocations."""
            resolution = self._resolve(readings, pods, runner)
            known = AttributionInput(
                identities,
                pods,
                join_pairs(resolution.allocations, pods),
                allocations_known=claims_known,
                unplaced=resolution.unplaced | self._claims.unlisted,
                reserving=self._init_gpus.find_reserving(pods),
            )
            return self._holder_uids.identify(reading.processes, known, now=now)

        known = join()
        processes = attribute_processes(reading.processes, known)
        if claims_known and self._init_gpus.learn(processes, known.allocations, pods):
            known = join()  # with the GPUs of init containers that were just found
            processes = attribute_processes(reading.processes, known)
        allocations = tuple(known.allocations)
        if self._providers.holders_are_processes:
            processes, allocations = assign_process_holders(processes, identities)
        host_use = self._read_host_use(allocations, pods, now=now, runner=runner)
        jobs = self._read_jobs(readings, runner)
        return Snapshot(
            node=self._name,
            taken_at=now,
            readings=readings,
            processes=processes,
            allocations=allocations,
            allocations_known=claims_known or self._providers.holders_are_processes,
            failures=tuple(runner.failures),
            holders_are_processes=self._providers.holders_are_processes,
            allocations_kept=len(self._claims.kept),
            unlisted_devices=tuple(self._init_gpus.count_unlisted(pods)) if claims_known else (),
            pod_host_use=host_use,
            hpc_jobs=jobs,
        )

    def release(self, *, seconds: float) -> None:
        self._nvml.release()  # takes up to a second while the driver waits for events
        if self._providers.dcgm is not None:
            self._providers.dcgm.close()  # an embedded engine uses the driver too
        self._release_seconds, self._released_at = seconds, None

    def close(self) -> None:
        if self._providers.pods is not None:
            self._providers.pods.stop()
        if self._providers.kubelet is not None:
            self._providers.kubelet.close()
        if self._providers.dcgm is not None:
            self._providers.dcgm.close()
        self._nvml.release()

    def _read_nvml(self, wanted: frozenset[str], now: float) -> NvmlReading:
        if self._released_at is None:
            self._released_at = now
        until = self._released_at + self._release_seconds
        if self._released_at <= now < until:  # earlier than that, the clock was set back
            raise SourceError(f"NVML is released on request until {time.strftime('%H:%M:%SZ', time.gmtime(until))}")
        return self._nvml.read(wanted, peers="peer_status" in wanted)

    def _add_profiling(
        self, readings: tuple[GpuReading, ...], wanted: frozenset[str], *, now: float, runner: CollectorRunner
    ) -> tuple[GpuReading, ...]:
        """Add what NVML cannot profile, if there is a DCGM hostengine."""
        dcgm = self._providers.dcgm
        profiled = runner.run("dcgm", lambda: dcgm.read(readings, wanted, now=now), None) if dcgm else None
        if profiled is None:
            return readings
        for failure in profiled.failures:
            runner.fail(failure)
        return profiled.readings

    def _adapt_advice(self, failure: Failure) -> Failure:
        """Without Kubernetes, replace advice about pods by advice about containers."""
        if not self._providers.holders_are_processes:
            return failure
        return replace(failure, reason=failure.reason.replace(HOST_PID_ADVICE, _CONTAINER_ADVICE))

    def _identify(self, processes: Sequence[GpuProcess], runner: CollectorRunner) -> Mapping[int, ProcessIdentity]:
        pids = {process.pid for process in processes}
        self._providers.proc.forget_except(pids)
        identities = runner.run(
            "proc", lambda: {pid: self._providers.proc.identify(pid) for pid in pids}, _NO_IDENTITIES
        )
        if identities and not any(identity.name for identity in identities.values()):
            runner.fail(self._adapt_advice(Failure("proc", _NO_PROCESS_IN_PROC)))
        return identities

    def _read_pods(self, runner: CollectorRunner) -> Mapping[str, Pod]:
        """The pods known to the watch; without the API server the last known ones, and a recorded failure."""
        watch = self._providers.pods
        if watch is None:
            return _NO_PODS
        if self._is_first:  # a first page without owners would start series that end with the second page
            self._is_first = False
            watch.wait_for_first_list(FIRST_PODS_TIMEOUT_SECONDS)
        pods = runner.run("pods", lambda: watch.pods, _NO_PODS)
        if watch.failure is not None:
            runner.fail(Failure("pods", watch.failure))
        return pods

    def _read_claims(self, pods: Mapping[str, Pod], *, now: float, runner: CollectorRunner) -> bool:
        """Refresh the claims; return whether they are known."""
        kubelet, watch, claims = self._providers.kubelet, self._providers.pods, self._claims
        if kubelet is None:
            return False
        known_pods = pods if watch is not None and watch.has_listed else None
        if claims.is_current(known_pods, now):
            return True
        listing = runner.run("kubelet", kubelet.read, None)
        if listing is None:
            claims.forget_if_outdated(now)
            return claims.is_known(now)
        claims.update(listing, known_pods, now=now)
        if not claims.is_accepted:
            runner.fail(Failure("kubelet", _NO_RUNNING_POD_LISTED))
        return claims.is_known(now)

    def _resolve(self, readings: Sequence[GpuReading], pods: Mapping[str, Pod], runner: CollectorRunner) -> Resolution:
        claims = (*self._claims.claims, *self._init_gpus.claims_besides(self._claims.claims))
        file = self._providers.ratio
        resolution = runner.run(
            "shares",
            lambda: self._resolver.resolve(claims, pods, readings, ratio=file.poll() if file else None),
            Resolution(),
        )
        if resolution.unresolved and readings:  # without NVML no id resolves; that failure is recorded
            ids = ", ".join(map(repr, resolution.unresolved))
            runner.fail(Failure("shares", f"no GPU of this node has the device id {ids}"))
        return resolution

    def _read_host_use(
        self, allocations: Sequence[GpuAllocation], pods: Mapping[str, Pod], *, now: float, runner: CollectorRunner
    ) -> tuple[PodHostUse, ...]:
        """CPU, disk and network of the pods that hold GPUs now. A pod whose uid is not known has no cgroup either."""
        reader = self._providers.host_use
        named = (each.container for each in allocations if each.container.pod_uid)
        holders = dict.fromkeys(Container(each.namespace, each.pod, each.pod_uid) for each in named)
        if reader is None or not holders:
            return ()
        if reader.is_due(now):
            known = ((pods.get(holder.pod_uid), holder) for holder in holders)
            by_uid = {(pod.static_uid if pod else "") or holder.pod_uid: holder for pod, holder in known}
            runner.run("host_use", lambda: reader.read(by_uid, now=now), None)
        for reason in reader.failures:
            runner.fail(Failure("host_use", reason))
        return tuple(each for each in reader.found if each.pod in holders)

    def _read_jobs(self, readings: Sequence[GpuReading], runner: CollectorRunner) -> JobsByGpu:
        jobs = self._providers.jobs
        if jobs is None:
            return _NO_JOBS
        found = runner.run("hpc_jobs", lambda: jobs.read(each.gpu for each in readings if not each.lost), _NO_JOBS)
        for reason in jobs.failures:
            runner.fail(Failure("hpc_jobs", reason))
        return found


class SimulatedSource:
    """Eight simulated GPUs with every sharing mode and kind of workload, plus the loads given with --simulate-load."""

    def __init__(self, node: str, *, loads: Sequence[str]) -> None:
        """Raises ConfigurationError for an invalid load."""
        from gpusteward.simulate.fleets import default_node  # half a megabyte that a real node does not need
        from gpusteward.simulate.loads import parse_load

        # Of one name always the same numbers, so that what is shown can be shown again; two names are two nodes.
        self._node = default_node(zlib.crc32(node.encode()), name=node)
        for load in loads:
            self._node = self._node.with_load(parse_load(load, now=time.time()))

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """All signals of the simulated GPU model; `wanted` is ignored."""
        del wanted
        return runner.run("simulate", lambda: self._node.snapshot(now), Snapshot(self._node.name, now))

    def release(self, *, seconds: float) -> None:
        """Nothing to release: there is no driver."""

    def close(self) -> None:
        """Nothing to close."""
