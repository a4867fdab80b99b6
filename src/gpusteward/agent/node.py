"""A real node as a source of snapshots: asks every witness, each guarded, and joins what they said."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gpusteward.agent.attribute import Witnesses, attribute
from gpusteward.agent.guards import Guard
from gpusteward.agent.kubernetes.kubelet import Claim, PodResources
from gpusteward.agent.kubernetes.pods import Pod, PodWatch
from gpusteward.agent.nvml import Nvml, NvmlReading
from gpusteward.agent.proc.table import ProcessIdentity, ProcTable
from gpusteward.agent.shares.ratio_file import RatioFile
from gpusteward.agent.shares.resolve import Resolution, Resolver
from gpusteward.core.errors import SourceError
from gpusteward.core.snapshots import Failure, Snapshot

CLAIMS_KEPT_SECONDS = 60.0
"""How long the kubelet's last answer stands while it does not answer: a restart of the kubelet takes less."""

CLAIMS_CHECKED_SECONDS = 15.0
"""How often the kubelet is asked although no pod of the node has changed: devices are given to pods, never later."""


_NO_IDENTITIES: Mapping[int, ProcessIdentity] = {}
_NO_PODS: Mapping[str, Pod] = {}


class Source(Protocol):
    """Where snapshots come from."""

    def read(self, wanted: frozenset[str], *, now: float, guard: Guard) -> Snapshot:
        """The node now; what failed is on the guard's account."""

    def release(self, *, until: float) -> None:
        """Let go of the driver until then, so that it can be unloaded or a GPU be reset."""

    def close(self) -> None:
        """Stop for good."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who besides NVML can be asked on this node. None: not there, or switched off."""

    proc: ProcTable
    kubelet: PodResources | None = None
    pods: PodWatch | None = None
    ratio: RatioFile | None = None


class NodeSource:
    """NVML, /proc, the kubelet and the pods of one node."""

    def __init__(self, name: str, nvml: Nvml, neighbours: Neighbours) -> None:
        self._name = name
        self._nvml = nvml
        self._ask = neighbours
        self._claims: tuple[Claim, ...] = ()
        self._claims_at = -CLAIMS_KEPT_SECONDS
        self._claims_of: Mapping[str, Pod] | None = None  # the pods there were when the kubelet was asked
        self._released_until = 0.0
        self._resolver = Resolver()

    def read(self, wanted: frozenset[str], *, now: float, guard: Guard) -> Snapshot:
        """Ask everybody, join the answers."""
        reading = guard.run("nvml", lambda: self._read_nvml(wanted, now), NvmlReading())
        for failure in reading.failures:
            guard.fail(failure)
        identities = guard.run("proc", lambda: self._identify(reading), _NO_IDENTITIES)
        pods = guard.run("pods", self._read_pods, _NO_PODS)
        claims_known = self._read_claims(pods, now=now, guard=guard)
        resolution = guard.run("shares", lambda: self._resolve(reading, pods), Resolution())
        for device_id in resolution.unresolved:
            guard.fail(Failure("shares", f"no GPU of this node answers to the device id {device_id!r}"))
        witnesses = Witnesses(identities, pods, resolution.allocations, allocations_known=claims_known)
        return Snapshot(
            node=self._name,
            taken_at=now,
            readings=reading.readings,
            processes=attribute(reading.processes, witnesses),
            allocations=tuple(resolution.allocations),
            allocations_known=claims_known,
            failures=tuple(guard.failures),
        )

    def release(self, *, until: float) -> None:
        self._released_until = until
        self._nvml.release()

    def close(self) -> None:
        if self._ask.pods is not None:
            self._ask.pods.stop()
        if self._ask.kubelet is not None:
            self._ask.kubelet.close()
        self._nvml.release()

    def _read_nvml(self, wanted: frozenset[str], now: float) -> NvmlReading:
        if now < self._released_until:
            raise SourceError(f"NVML is released on request for {self._released_until - now:.0f} s more")
        return self._nvml.read(wanted, peers="peer_status" in wanted)

    def _identify(self, reading: NvmlReading) -> Mapping[int, ProcessIdentity]:
        pids = {process.pid for process in reading.processes}
        self._ask.proc.forget_except(pids)
        return {pid: self._ask.proc.identify(pid) for pid in pids}

    def _read_pods(self) -> Mapping[str, Pod]:
        """Pods as the watch knows them; the last known ones stay true for a while without the API server."""
        watch = self._ask.pods
        if watch is None:
            return {}
        if watch.failure is not None and not watch.pods:
            raise SourceError(watch.failure)
        return watch.pods

    def _read_claims(self, pods: Mapping[str, Pod], *, now: float, guard: Guard) -> bool:
        """Refresh the claims; tell if what we have is recent enough to call it known."""
        kubelet = self._ask.kubelet
        if kubelet is None:
            return False
        if pods and pods is self._claims_of and 0 <= now - self._claims_at < CLAIMS_CHECKED_SECONDS:
            return True
        claims = guard.run("kubelet", kubelet.read, None)
        if claims is not None:
            self._claims, self._claims_at, self._claims_of = claims, now, pods
        elif now - self._claims_at > CLAIMS_KEPT_SECONDS:
            self._claims = ()
        return now - self._claims_at <= CLAIMS_KEPT_SECONDS

    def _resolve(self, reading: NvmlReading, pods: Mapping[str, Pod]) -> Resolution:
        ratio = self._ask.ratio.poll() if self._ask.ratio else None
        return self._resolver.resolve(self._claims, pods, reading.readings, ratio=ratio)
