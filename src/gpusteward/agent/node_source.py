"""A real node as a source of snapshots: asks every witness, each guarded, and joins what they said."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from gpusteward.agent.attribution import AttributionInput, assign_process_holders, attribute
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.kubernetes.kubelet import Claim, PodResources
from gpusteward.agent.kubernetes.pod_watch import Pod, PodWatch
from gpusteward.agent.nvml import IN_POD, Nvml, NvmlReading
from gpusteward.agent.proc.process_table import ProcessIdentity, ProcessTable
from gpusteward.agent.shares.ratio_file import RatioFile
from gpusteward.agent.shares.resolver import Resolution, Resolver
from gpusteward.core.errors import SourceError
from gpusteward.core.snapshots import Failure, Snapshot

CLAIMS_KEPT_SECONDS = 60.0
"""How long the kubelet's last answer stands while it does not answer: a restart of the kubelet takes less."""

CLAIMS_CHECKED_SECONDS = 30.0
"""How often the kubelet is asked although no pod of the node has changed: devices are given to pods, never later."""

PODS_AWAITED_SECONDS = 2.0
"""How long the first cycle waits for the API server's list of pods; later ones never do."""

_NOBODY_IN_PROC = (
    f"none of the processes on the GPUs is in /proc: {IN_POD}mount the host's /proc and name it with --proc"
)
_IN_CONTAINER = "run it with --pid=host if it is in a container, or "
_NO_IDENTITIES: Mapping[int, ProcessIdentity] = {}
_NO_PODS: Mapping[str, Pod] = {}


class SnapshotSource(Protocol):
    """Where snapshots come from."""

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """The node now; what failed is on the guard's account."""

    def release(self, *, seconds: float) -> None:
        """Let go of the driver, and for that long from then on, so that it can be unloaded or a GPU be reset."""

    def close(self) -> None:
        """Stop for good."""


@dataclass(frozen=True, slots=True)
class NodeProviders:
    """Who besides NVML can be asked on this node. None: not there, or switched off."""

    proc: ProcessTable
    kubelet: PodResources | None = None
    pods: PodWatch | None = None
    ratio: RatioFile | None = None
    holders_are_processes: bool = False  # there is no Kubernetes: whoever has a process on a GPU holds it


class NodeSource:
    """NVML, /proc, the kubelet and the pods of one node."""

    def __init__(self, name: str, nvml: Nvml, neighbours: NodeProviders) -> None:
        self._name = name
        self._nvml = nvml
        self._ask = neighbours
        self._claims: tuple[Claim, ...] = ()
        self._claims_at = -CLAIMS_KEPT_SECONDS
        self._claims_of: Mapping[str, Pod] | None = None  # the pods there were when the kubelet was asked
        self._release_seconds = 0.0
        self._released_at: float | None = 0.0  # None: just now, whatever the clock says
        self._resolver = Resolver()
        self._is_first = True

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """Ask everybody, join the answers."""
        reading = runner.run("nvml", lambda: self._read_nvml(wanted, now), NvmlReading())
        for failure in reading.failures:
            runner.fail(self._advise(failure))
        identities = self._identify(reading, runner)
        pods = self._read_pods(runner)
        claims_known = self._read_claims(pods, now=now, runner=runner)
        resolution = self._resolve(reading, pods, runner)
        witnesses = AttributionInput(
            identities, pods, resolution.allocations, allocations_known=claims_known, unplaced=resolution.unplaced
        )
        processes, allocations = attribute(reading.processes, witnesses), resolution.allocations
        if self._ask.holders_are_processes:
            processes, allocations = assign_process_holders(processes, identities)
        return Snapshot(
            node=self._name,
            taken_at=now,
            readings=reading.readings,
            processes=processes,
            allocations=allocations,
            allocations_known=claims_known or self._ask.holders_are_processes,
            failures=tuple(runner.failures),
            holders_are_processes=self._ask.holders_are_processes,
        )

    def release(self, *, seconds: float) -> None:
        self._nvml.release()  # takes seconds itself while the driver waits for events
        self._release_seconds, self._released_at = seconds, None

    def close(self) -> None:
        if self._ask.pods is not None:
            self._ask.pods.stop()
        if self._ask.kubelet is not None:
            self._ask.kubelet.close()
        self._nvml.release()

    def _read_nvml(self, wanted: frozenset[str], now: float) -> NvmlReading:
        if self._released_at is None:
            self._released_at = now
        until = self._released_at + self._release_seconds
        if self._released_at <= now < until:  # earlier than that, the clock was set back
            raise SourceError(f"NVML is released on request until {time.strftime('%H:%M:%SZ', time.gmtime(until))}")
        return self._nvml.read(wanted, peers="peer_status" in wanted)

    def _advise(self, failure: Failure) -> Failure:
        """Without Kubernetes nobody can do what only a pod can have done to it."""
        if not self._ask.holders_are_processes:
            return failure
        return replace(failure, reason=failure.reason.replace(IN_POD, _IN_CONTAINER))

    def _identify(self, reading: NvmlReading, runner: CollectorRunner) -> Mapping[int, ProcessIdentity]:
        pids = {process.pid for process in reading.processes}
        self._ask.proc.forget_except(pids)
        identities = runner.run("proc", lambda: {pid: self._ask.proc.identify(pid) for pid in pids}, _NO_IDENTITIES)
        if identities and not any(identity.name for identity in identities.values()):
            runner.fail(self._advise(Failure("proc", _NOBODY_IN_PROC)))
        return identities

    def _read_pods(self, runner: CollectorRunner) -> Mapping[str, Pod]:
        """Pods as the watch knows them; without the API server the last known ones stand, and it is said."""
        watch = self._ask.pods
        if watch is None:
            return _NO_PODS
        if self._is_first:  # a first page without owners would start series that end with the second
            self._is_first = False
            watch.wait_for_first(PODS_AWAITED_SECONDS)
        pods = runner.run("pods", lambda: watch.pods, _NO_PODS)
        if watch.failure is not None:
            runner.fail(Failure("pods", watch.failure))
        return pods

    def _read_claims(self, pods: Mapping[str, Pod], *, now: float, runner: CollectorRunner) -> bool:
        """Refresh the claims; tell if what we have is recent enough to call it known."""
        kubelet = self._ask.kubelet
        if kubelet is None:
            return False
        if pods and pods is self._claims_of and 0 <= now - self._claims_at < CLAIMS_CHECKED_SECONDS:
            return True
        claims = runner.run("kubelet", kubelet.read, None)
        if claims is not None:
            self._claims, self._claims_at, self._claims_of = claims, now, pods
        elif now - self._claims_at > CLAIMS_KEPT_SECONDS:
            self._claims = ()
        return now - self._claims_at <= CLAIMS_KEPT_SECONDS

    def _resolve(self, reading: NvmlReading, pods: Mapping[str, Pod], runner: CollectorRunner) -> Resolution:
        resolution = runner.run(
            "shares",
            lambda: self._resolver.resolve(self._claims, pods, reading.readings, ratio=self._read_ratio()),
            Resolution(),
        )
        if resolution.unresolved and reading.readings:  # without NVML nothing answers, and that is said already
            ids = ", ".join(map(repr, resolution.unresolved))
            runner.fail(Failure("shares", f"no GPU of this node answers to the device id {ids}"))
        return resolution

    def _read_ratio(self) -> float | None:
        return self._ask.ratio.poll() if self._ask.ratio else None
