"""The simulated nodes: metrics pages of the agent's dialects, snapshots, and the loads that `gpusteward demo load` asks
for."""

import secrets
import threading
import time
from collections.abc import Sequence
from hmac import compare_digest
from typing import Annotated

import msgspec

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import default_fields
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import TEXT_TYPE, Family, LabelCache, render_page
from gpusteward.core.node.containers import Workload
from gpusteward.local.demo_control import MAX_MINUTES
from gpusteward.simulate.fleets import create_load_application
from gpusteward.simulate.nodes import SimulatedNode

LONGEST_GAP_SECONDS = 120.0
PAGES = ("metrics", "snapshot")


class NodeServer:
    """Renders the pages of one node as its agent would."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._meters = UsageCounters(longest_gap_seconds=LONGEST_GAP_SECONDS)
        self._labels = LabelCache()
        options = DcgmOptions(hostname=node.name)
        dcgm = DcgmDialect(options, default_fields(), labels=self._labels)
        self._dialects = (dcgm, NativeDialect(self._labels, beside=dcgm))
        self._lock = threading.Lock()

    @property
    def node(self) -> SimulatedNode:
        return self._node

    def replace_node(self, node: SimulatedNode) -> None:
        """From now on the node is in this state; its counters continue."""
        with self._lock:
            self._node = node

    def render_metrics(self, at: float) -> bytes:
        """The metrics page at a time. Times must rise: counters add up from call to call."""
        with self._lock:
            self._labels.start_cycle()
            view = self._meters.advance(self._node.snapshot(at))
            families: list[Family] = [family for each in self._dialects for family in each.families(view)]
            return render_page(families).text

    def render_snapshot(self, at: float) -> bytes:
        """The agent's /snapshot; it changes no counter."""
        with self._lock:
            return msgspec.json.encode(self._node.snapshot(at))


class SimulatedFleet:
    """All nodes by name. Requests wait until the fleet is ready."""

    def __init__(self, nodes: Sequence[SimulatedNode], *, ready_timeout_seconds: float) -> None:
        self._ready_timeout = ready_timeout_seconds
        self._servers = {node.name: NodeServer(node) for node in nodes}
        self._is_ready = threading.Event()

    @property
    def nodes(self) -> list[SimulatedNode]:
        return [server.node for server in self._servers.values()]

    def replace_node(self, node: SimulatedNode) -> None:
        """From now on the node of that name is in this state; its counters continue."""
        self._servers[node.name].replace_node(node)

    def set_ready(self) -> None:
        self._is_ready.set()

    def render_metrics(self, name: str, at: float) -> bytes:
        return self._servers[name].render_metrics(at)

    def render(self, path: str) -> tuple[bytes, str] | None:
        """The current page for `/NODE/metrics` or `/NODE/snapshot`, and its content type; None for other paths, and if
        not ready in time."""
        name, _, page = path.partition("?")[0].strip("/").rpartition("/")
        if name not in self._servers or page not in PAGES or not self._is_ready.wait(self._ready_timeout):
            return None
        if page == "snapshot":
            return self._servers[name].render_snapshot(time.time()), "application/json"
        return self.render_metrics(name, time.time()), TEXT_TYPE


class LoadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A load: in the pods of a workload, or in a new pod on a free GPU."""

    share_percent: Annotated[float, msgspec.Meta(gt=0, le=100)]
    minutes: Annotated[float, msgspec.Meta(gt=0, le=MAX_MINUTES)]
    workload: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class LoadedGpu(msgspec.Struct, frozen=True):
    """A GPU that the load uses."""

    node: str
    gpu: int


class StartedLoad(msgspec.Struct, frozen=True):
    """The workload in which the load runs, and its GPUs."""

    namespace: str
    kind: str
    name: str
    gpus: tuple[LoadedGpu, ...]


class DemoLoads:
    """Starts loads on the simulated nodes."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.token = secrets.token_urlsafe()
        self._fleet = fleet
        self._count = 0
        self._lock = threading.Lock()

    def is_token(self, authorization: str) -> bool:
        return compare_digest(authorization.encode(), f"Bearer {self.token}".encode())

    def handle(self, body: bytes) -> bytes:
        """The response to a request. Raises ConfigurationError."""
        try:
            request = msgspec.json.decode(body, type=LoadRequest)
        except msgspec.MsgspecError as error:
            raise ConfigurationError(f"the load is invalid: {error}") from error
        return msgspec.json.encode(self.start(request, time.time()))

    def start(self, request: LoadRequest, now: float) -> StartedLoad:
        """Raises ConfigurationError if there is no such workload, or no free GPU."""
        with self._lock:
            return self._load_workload(request, now) if request.workload else self._add_pod(request, now)

    def _load_workload(self, request: LoadRequest, now: float) -> StartedLoad:
        held = (each.allocation.container.workload for node in self._fleet.nodes for each in node.ownerships(now))
        workload = _choose(request.workload, {workload for workload in held if workload})
        gpus: list[LoadedGpu] = []
        for node in self._fleet.nodes:
            loaded = node.with_load_in(
                workload, ratio=request.share_percent / 100, since=now, until=now + 60 * request.minutes
            )
            if loaded is not node:
                self._fleet.replace_node(loaded)
                devices = enumerate(zip(node.devices, loaded.devices, strict=True))
                gpus += [LoadedGpu(node.name, index) for index, (before, after) in devices if before is not after]
        return StartedLoad(workload.namespace, workload.kind, workload.name, tuple(gpus))

    def _add_pod(self, request: LoadRequest, now: float) -> StartedLoad:
        until = now + 60 * request.minutes
        node, index = self._find_free_gpu(now, until)
        self._count += 1
        application = create_load_application(self._count, ratio=request.share_percent / 100, since=now, until=until)
        self._fleet.replace_node(node.with_pod(index, application))
        workload = application.pod(0, 0).container.workload
        assert workload is not None
        return StartedLoad(workload.namespace, workload.kind, workload.name, (LoadedGpu(node.name, index),))

    def _find_free_gpu(self, now: float, until: float) -> tuple[SimulatedNode, int]:
        for node in self._fleet.nodes:
            for index, device in enumerate(node.devices):
                if device.is_free(now, until):
                    return node, index
        raise ConfigurationError(
            "no GPU of the demo is free for that long; name a workload with --workload (gpusteward "
            "idle lists some), or start the demo with more --nodes"
        )


def _choose(text: str, workloads: set[Workload]) -> Workload:
    found = [each for each in workloads if text in _list_names(each)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(f"no workload named {text!r} holds a GPU now; gpusteward top lists them")
    names = ", ".join(sorted(f"{each.namespace}/{each.kind}/{each.name}" for each in found))
    raise ConfigurationError(f"several workloads are named {text!r}: {names}; write one of these")


def _list_names(workload: Workload) -> tuple[str, ...]:
    """The forms in which `gpusteward explain` takes a workload."""
    namespace, kind, name = workload.namespace, workload.kind, workload.name
    return name, f"{namespace}/{name}", f"{kind}/{name}", f"{namespace}/{kind}/{name}"
