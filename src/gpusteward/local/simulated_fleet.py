"""The simulated nodes: metrics pages of the agent's dialects, snapshots, and the loads that `gpusteward demo load` asks
for."""

import secrets
import threading
import time
from collections.abc import Sequence
from hmac import compare_digest
from typing import Annotated, NamedTuple

import msgspec

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import default_fields
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import TEXT_TYPE, Family, LabelCache, render_labels, render_page
from gpusteward.core.node.containers import Container, Workload
from gpusteward.local.demo_control import MAX_MINUTES
from gpusteward.simulate.applications import ServerState
from gpusteward.simulate.fleets import create_load_application
from gpusteward.simulate.nodes import SimulatedNode

LONGEST_GAP_SECONDS = 120.0
PAGES = ("metrics", "snapshot")
SERVERS = "servers/"
"""Before the names of pods in paths: a node may have the same name."""


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


class SimulatedServer(NamedTuple):
    """An inference server with a metrics page, by the name of its pod."""

    node: str
    container: Container
    state: ServerState

    def render_metrics(self) -> bytes:
        """As of vLLM: it has served once, and nobody asks it any more."""
        engine = {"model_name": "qwen3-32b", "engine": "0"}
        asleep = self.state is ServerState.ASLEEP
        samples: tuple[tuple[str, dict[str, str], float], ...] = (
            ("vllm:request_success_total", {**engine, "finished_reason": "stop"}, 1841.0),
            ("vllm:prompt_tokens_total", engine, 1_265_000.0),
            ("vllm:generation_tokens_total", engine, 402_000.0),
            ("vllm:num_requests_running", engine, 0.0),
            ("vllm:num_requests_waiting", engine, 0.0),
            ("vllm:engine_sleep_state", {**engine, "sleep_state": "awake"}, float(not asleep)),
            ("vllm:engine_sleep_state", {**engine, "sleep_state": "weights_offloaded"}, float(asleep)),
            ("vllm:engine_sleep_state", {**engine, "sleep_state": "discard_all"}, 0.0),
            ("process_start_time_seconds", {}, self.container.started_at or 0.0),
        )
        return "".join(
            f"{name}{render_labels(labels.items())} {value:.10g}\n" for name, labels, value in samples
        ).encode()


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

    def find_servers(self, at: float) -> dict[str, SimulatedServer]:
        """The inference servers with metrics, by the names of their pods."""
        found: dict[str, SimulatedServer] = {}
        for node in self.nodes:
            for one in node.ownerships(at):
                request, container = one.placement.request, one.allocation.container
                if request is not None and request.application.server is not None:
                    found[container.pod] = SimulatedServer(node.name, container, request.application.server)
        return found

    def render(self, path: str) -> tuple[bytes, str] | None:
        """The current page for `/NODE/metrics`, `/NODE/snapshot` or `/servers/POD/metrics`, and its content type; None
        for other paths, and if not ready in time."""
        name, _, page = path.partition("?")[0].strip("/").rpartition("/")
        if name.startswith(SERVERS) and page == "metrics":
            server = self.find_servers(time.time()).get(name.removeprefix(SERVERS))
            return (server.render_metrics(), TEXT_TYPE) if server else None
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
